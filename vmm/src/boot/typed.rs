// SPDX-License-Identifier: Apache-2.0
//! What is typed at the terminal, and the device that it goes to.

use std::io::{self, IsTerminal, PipeWriter, Read};
use std::sync::{Arc, Mutex};

use rustix::stdio::stdin;

use super::wiring::{DevicesError, host};
use crate::devices::bus::lock;
use crate::devices::escape::{self, Escape};
use crate::devices::input::{self, End, Input};
use crate::devices::serial::{Feeding, SerialPort};
use crate::devices::terminal::RawTerminal;
use crate::ender::Ender;
use crate::ending::Ending;
use crate::stdio;

/// Where what is typed goes; the way there is not open yet.
#[derive(Debug, Default)]
pub(super) enum Typed {
    /// Nobody wants it.
    #[default]
    Nowhere,
    /// To the serial port.
    Serial(Arc<Mutex<SerialPort>>),
    /// To a virtio console, which reads the other end.
    Console(PipeWriter),
}

/// The terminal's way to the guest. Dropping it ends that, and makes the terminal what it was.
#[derive(Debug)]
pub struct TerminalInput {
    /// First: what is read after that is for somebody else.
    _end: End,
    serial: Option<(Feeding, Arc<Mutex<SerialPort>>)>,
    _raw: Option<RawTerminal>,
}

impl TerminalInput {
    /// Whether what is typed has to wait. To be told while no vCPU runs: one may wait for whoever reads what it writes. A virtio
    /// console rests by itself.
    pub fn rest(&self, rests: bool) {
        self.serial.iter().for_each(|(_, port)| lock(port).rest(rests));
    }
}

impl Typed {
    /// What is typed has to wait until it is told to go on.
    pub(super) fn rest_first(&self) {
        if let Self::Serial(port) = self {
            lock(port).rest(true);
        }
    }

    /// From now on, what is typed goes to the guest, but for the keys that end the VM, as long as the result lives. `begin` is the
    /// first that the thread does which takes what is typed; it ends if there is nothing to keep.
    pub(super) fn start<G: 'static>(
        self,
        ender: &Ender,
        begin: impl FnOnce() -> Option<G> + Send + 'static,
    ) -> Result<Option<TerminalInput>, DevicesError> {
        if matches!(self, Self::Nowhere) {
            return Ok(None);
        }
        let raw = RawTerminal::enter().map_err(host("the terminal cannot be made raw"))?;
        if raw.is_none() && io::stdin().is_terminal() {
            // Another process group has the terminal: reading from it would stop this process (SIGTTIN).
            return Ok(None);
        }
        let (typed, end) = Input::new().map_err(host("terminal input"))?;
        let input: Box<dyn Read + Send> = if raw.is_some() {
            stdio::tell(&format!("flatboot: {}", escape::HINT));
            let ender = ender.clone();
            let stop = move || ender.end(Ending::Stopped { why: "Ctrl-A x was typed".to_owned() });
            Box::new(Escape::new(typed, Box::new(stop)))
        } else {
            Box::new(typed)
        };
        let serial = match self {
            Self::Nowhere => None,
            Self::Serial(port) => {
                // Ctrl-A x ends a VM that takes no keys, too.
                let keys = raw.as_ref().map(|_| stdin());
                let feeding = SerialPort::attach_input(&port, input, keys, begin).map_err(host("terminal input"))?;
                Some((feeding, port))
            }
            Self::Console(pipe) => {
                input::pass_on(input, pipe, begin).map_err(host("terminal input"))?;
                None
            }
        };
        Ok(Some(TerminalInput { _end: end, serial, _raw: raw }))
    }
}
