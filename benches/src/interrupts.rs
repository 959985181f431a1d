// SPDX-License-Identifier: Apache-2.0
//! Signals to flatboot-bench: what they end, or whom they are handed on to.

use std::sync::Arc;
use std::{io, thread};

use flatboot_bench::SessionControl;
use flatboot_bench::direct::DirectControl;
use flatboot_bench::host::{Control, terminal_size};
use flatboot_bench::observe::Interrupted;
use rustix::process::{Signal, set_parent_process_death_signal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGWINCH};
use signal_hook::iterator::Signals;

/// From here on a signal that would end this process is `asked` of instead.
pub(crate) fn ask(asked: impl Fn(i32) + Send + 'static) -> io::Result<()> {
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM])?;
    thread::spawn(move || signals.forever().for_each(asked));
    Ok(())
}

/// For a helper beside a VMM: set by a signal, or by the end of the process that it helps, so that the VMM is ended.
pub(crate) fn interrupted() -> io::Result<Arc<Interrupted>> {
    let interrupted = Arc::new(Interrupted::new(false));
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&interrupted))?;
    }
    set_parent_process_death_signal(Some(Signal::TERM))?;
    Ok(interrupted)
}

/// Signals are the program's; a second one ends the host. No signal ends this process: it always cleans up behind itself.
pub(crate) struct Interrupts {
    signals: Signals,
}

impl Interrupts {
    pub(crate) fn catch() -> io::Result<Self> {
        Ok(Self { signals: Signals::new([SIGHUP, SIGINT, SIGTERM, SIGWINCH])? })
    }

    /// Hands what comes, and what came since [`Interrupts::catch`], to an emulated host.
    pub(crate) fn forward(mut self, control: Control) {
        thread::spawn(move || {
            let mut asked = false;
            for signal in self.signals.forever() {
                match signal {
                    SIGWINCH => drop(terminal_size().map(|size| control.resize(size))),
                    _ if asked => control.kill_host(signal),
                    _ => {
                        asked = true;
                        control.signal(signal);
                    }
                }
            }
        });
    }

    /// Hands what comes to a program on either host; with `terminal` it has this terminal.
    pub(crate) fn forward_to(self, control: SessionControl, terminal: bool) {
        match control {
            SessionControl::Direct(control) => self.forward_directly(control, terminal),
            SessionControl::Emulated(control) => self.forward(control),
        }
    }

    /// Hands what comes to a program on this machine. With `terminal` the terminal's own signals reach it without us.
    pub(crate) fn forward_directly(mut self, control: DirectControl, terminal: bool) {
        thread::spawn(move || {
            let mut asked = false;
            for signal in self.signals.forever() {
                match signal {
                    SIGWINCH => {}
                    SIGINT if terminal => {}
                    _ if asked => control.kill(),
                    _ => {
                        asked = true;
                        control.signal(signal);
                    }
                }
            }
        });
    }
}
