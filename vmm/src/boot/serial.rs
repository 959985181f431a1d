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

/// Standard output, if it is a regular file: writing to that takes as long as its disk does. Of a terminal or a pipe, whoever reads
/// it is waited for, so that nothing is lost.
fn stdout_file() -> io::Result<Option<File>> {
    let file = stdio::output()?;
    Ok(file.metadata()?.is_file().then_some(file))
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
        SerialConfig::Tty => match stdout_file().map_err(host("serial output"))? {
            Some(file) => serial.queue(file, &counters)?,
            None => Box::new(io::stdout()),
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
