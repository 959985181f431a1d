// SPDX-License-Identifier: Apache-2.0
//! Takes orders from flatboot-bench.

use std::io;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;

use flatboot_bench::protocol::{self, CONTROL_PORT, Order, Report, STDIN_PORT};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::session::Session;
use crate::{mounts, ports, program};

/// Runs until flatboot-bench is gone.
pub(crate) fn run() -> ExitCode {
    match serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("host-init: agent: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve() -> io::Result<()> {
    let control = ports::open(CONTROL_PORT)?;
    let input = ports::open(STDIN_PORT)?;
    let mut orders = control.try_clone()?;
    let session = Arc::new(Session::new(control));
    session.report(0, &Report::Ready(protocol::VERSION))?;
    let feeder = Arc::clone(&session);
    thread::spawn(move || feeder.feed(input));
    while let Some(frame) = protocol::read_frame(&mut orders)? {
        match frame.message()? {
            Order::Setup(setup) => {
                let report = match mounts::programs_root(&setup) {
                    Ok(()) => Report::SetUp,
                    Err(error) => Report::Failed(error.to_string()),
                };
                session.report(0, &report)?;
            }
            Order::Start(start) => program::start(&session, frame.sequence, start)?,
            Order::Signal(number) => session.signal(frame.sequence, number),
            Order::Resize(size) => {
                let size = Winsize { ws_row: size.rows, ws_col: size.columns, ws_xpixel: 0, ws_ypixel: 0 };
                if let Some(terminal) = &session.current().terminal {
                    tcsetwinsize(&**terminal, size)?;
                }
            }
        }
    }
    Ok(())
}
