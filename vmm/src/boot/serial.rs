// SPDX-License-Identifier: Apache-2.0
//! The serial port, and what it is connected to.

use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex};

use super::wiring::{DevicesError, host, line};
use crate::config::{MachineConfig, OutputFile, SerialConfig};
use crate::devices::bus::lock;
use crate::devices::capped::Capped;
use crate::devices::escape::{self, Escape};
use crate::devices::input::{End, Input};
use crate::devices::queued::{self, QueueWriter};
use crate::devices::serial::{Feeding, SerialPort};
use crate::devices::{Bus, terminal::RawTerminal};
use crate::ender::Ender;
use crate::ending::Ending;
use crate::layout;
use crate::observe::devices::SerialCounters;
use crate::stdio;
use crate::vm::Vm;

/// What there is of a serial port beside its registers.
pub(super) struct Serial {
    /// From the terminal, if it has any.
    pub(super) input: SerialInput,
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
    let file = File::from(io::stdout().as_fd().try_clone_to_owned()?);
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
    let mut serial = Serial { input: SerialInput(None), file: None, writer: None };
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
            // What an earlier guest has left there counts.
            let there = if output.appends() { file.metadata().map_or(0, |file| file.len()) } else { 0 };
            room = config.serial_limit.map_or(u64::MAX, |limit| limit.saturating_sub(there));
            serial.file = Some(output);
            serial.queue(file, &counters)?
        }
        SerialConfig::Null | SerialConfig::Off => Box::new(io::sink()),
    };
    let irq = line(vm, layout::GSI_SERIAL)?;
    let output = Box::new(Capped::new(output, room, counters));
    let port = Arc::new(Mutex::new(SerialPort::new(irq, output).map_err(host("serial port"))?));
    ports.insert(layout::PORT_SERIAL, port.clone())?;
    serial.input = SerialInput(takes_input.then_some(port));
    Ok(serial)
}

/// The terminal's way to the serial port, not yet open.
#[derive(Debug)]
pub(super) struct SerialInput(Option<Arc<Mutex<SerialPort>>>);

/// The terminal's way to the serial port. Dropping it ends that, and makes the terminal what it was.
#[derive(Debug)]
pub struct TerminalInput {
    /// First: what is read after that is for somebody else.
    _end: End,
    _feeding: Feeding,
    _raw: Option<RawTerminal>,
    port: Arc<Mutex<SerialPort>>,
}

impl TerminalInput {
    /// Whether what is typed has to wait. To be told while no vCPU runs: one may wait for whoever reads what it writes.
    pub fn rest(&self, rests: bool) {
        lock(&self.port).rest(rests);
    }
}

impl SerialInput {
    /// What is typed has to wait until it is told to go on.
    pub(super) fn rest_first(&self) {
        self.0.iter().for_each(|port| lock(port).rest(true));
    }

    /// From now on, what is typed goes to the guest, but for the keys that end the VM, as long as the result lives. `begin` is the
    /// first that the thread does which takes what is typed; it ends if there is nothing to keep.
    pub(super) fn start<G: 'static>(
        self,
        ender: &Ender,
        begin: impl FnOnce() -> Option<G> + Send + 'static,
    ) -> Result<Option<TerminalInput>, DevicesError> {
        let Some(port) = self.0 else { return Ok(None) };
        let raw = RawTerminal::enter().map_err(host("the terminal cannot be made raw"))?;
        if raw.is_none() && io::stdin().is_terminal() {
            // Another process group has the terminal: reading from it would stop this process (SIGTTIN).
            return Ok(None);
        }
        let (stdin, end) = Input::new().map_err(host("serial input"))?;
        let input: Box<dyn Read + Send> = if raw.is_some() {
            stdio::tell(&format!("flatboot: {}", escape::HINT));
            let ender = ender.clone();
            let stop = move || ender.end(Ending::Stopped { why: "Ctrl-A x was typed".to_owned() });
            Box::new(Escape::new(stdin, Box::new(stop)))
        } else {
            Box::new(stdin)
        };
        let feeding = SerialPort::attach_input(&port, input, begin).map_err(host("serial input"))?;
        Ok(Some(TerminalInput { _end: end, _feeding: feeding, _raw: raw, port }))
    }
}
