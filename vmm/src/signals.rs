// SPDX-License-Identifier: Apache-2.0
//! SIGTERM, SIGINT and SIGHUP: first the guest is asked to power off, then it is ended.

use std::io;
use std::thread;
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use vmm_sys_util::eventfd::EventFd;

use crate::ending::{Ending, EndingSink};

/// Listens from now on. The first signal presses `power_button`; `grace` later, or at the second signal, the VM ends.
pub fn listen(power_button: EventFd, grace: Duration, sink: EndingSink) -> io::Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP])?;
    thread::Builder::new().name("signals".to_owned()).spawn(move || {
        let mut pending = signals.forever();
        if pending.next().is_none() {
            return;
        }
        if power_button.write(1).is_err() {
            return sink.end(Ending::Stopped { why: "a signal came and the power button does not work".to_owned() });
        }
        tracing::info!("asked the guest to power off");
        end_after(grace, &sink);
        if pending.next().is_some() {
            sink.end(Ending::Stopped { why: "a second signal came before the guest had powered off".to_owned() });
        }
    })?;
    Ok(())
}

fn end_after(grace: Duration, sink: &EndingSink) {
    let timer = sink.clone();
    let started = thread::Builder::new().name("grace".to_owned()).spawn(move || {
        thread::sleep(grace);
        timer.end(Ending::Stopped { why: format!("it did not power off within {} s", grace.as_secs()) });
    });
    if started.is_err() {
        sink.end(Ending::Stopped { why: "no thread to wait for its power-off".to_owned() });
    }
}
