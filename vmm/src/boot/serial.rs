// SPDX-License-Identifier: Apache-2.0
//! The serial port, and what it is connected to.

use std::fs::File;
use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use super::typed::Typed;
use super::wiring::{DevicesError, host, line};
use crate::config::{MachineConfig, OutputFile, SerialConfig};
use crate::devices::Bus;
use crate::devices::capped::Capped;
use crate::devices::queued::{self, QueueWriter};
use crate::devices::serial::SerialPort;
use crate::layout;
use crate::observe::devices::SerialCounters;
use crate::stdio;
use crate::vcpu;
use crate::vm::Vm;

/// What there is of a serial port beside its registers.
pub(super) struct Serial {
    /// From the terminal, if it has any.
    pub(super) typed: Typed,
    /// Where it writes to, if that is a file, to be committed before the guest runs.
    pub(super) file: Option<OutputFile>,
    /// What does that, once it is started.
    pub(super) writer: Option<QueueWriter<File>>,
}

impl Serial {
    /// What writes to `file` without waiting for it.
    fn queue(&mut self, file: File, counters: &Arc<SerialCounters>) -> Result<Box<dyn Write + Send>, DevicesError> {
        let (queued, writer) = queued::queue(file, Arc::clone(counters)).map_err(host("serial output"))?;
        self.writer = Some(writer);
        Ok(Box::new(queued))
    }
}

/// Standard output, and whether it is a regular file: writing to that takes as long as its disk does.
fn stdout() -> io::Result<(File, bool)> {
    let output = stdio::output()?;
    let is_file = output.metadata()?.is_file();
    Ok((output, is_file))
}

/// A terminal or a pipe: whoever reads it is waited for, so that nothing is lost, but for as long as there is the VM.
struct Interruptible(File);

impl Write for Interruptible {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.0.write(bytes) {
            // There is nobody left who could write it again.
            Err(error) if error.kind() == io::ErrorKind::Interrupted && vcpu::is_to_end() => Ok(bytes.len()),
            result => result,
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Puts the serial port on its bus.
pub(super) fn serial(
    config: &mut MachineConfig,
    vm: &Vm,
    ports: &mut Bus,
    counters: Arc<SerialCounters>,
) -> Result<Serial, DevicesError> {
    let takes_input = matches!(config.serial, SerialConfig::Tty);
    let mut serial = Serial { typed: Typed::Nowhere, file: None, writer: None };
    if matches!(config.serial, SerialConfig::Off) {
        return Ok(serial);
    }
    let mut room = u64::MAX;
    // The port stays, whatever is left of its configuration.
    let output: Box<dyn Write + Send> = match std::mem::replace(&mut config.serial, SerialConfig::Null) {
        SerialConfig::Tty => match stdout().map_err(host("serial output"))? {
            (file, true) => serial.queue(file, &counters)?,
            (output, false) => Box::new(Interruptible(output)),
        },
        SerialConfig::File(output) => {
            let file = output.writer()?;
            room = output.room(config.serial_limit);
            serial.file = Some(output);
            serial.queue(file, &counters)?
        }
        SerialConfig::Null | SerialConfig::Off => Box::new(io::sink()),
    };
    let irq = line(vm, layout::GSI_SERIAL)?;
    let output = Box::new(Capped::new(output, room, counters));
    let port = Arc::new(Mutex::new(SerialPort::new(irq, output).map_err(host("serial port"))?));
    ports.insert(layout::PORT_SERIAL, port.clone())?;
    if takes_input {
        serial.typed = Typed::Serial(port);
    }
    Ok(serial)
}
