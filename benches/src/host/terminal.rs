// SPDX-License-Identifier: Apache-2.0
//! The caller's terminal, handed to the program inside and given back at every exit.

use std::io;

use rustix::termios::{self, OptionalActions, Termios};

use crate::protocol::Size;

/// The caller's terminal refuses to be set up, or is none.
pub const NO_TERMINAL: &str = "the terminal of standard input cannot be used";

/// Standard input in raw mode until this is dropped.
#[derive(Debug)]
pub(super) struct RawTerminal {
    before: Termios,
    size: Size,
}

impl RawTerminal {
    pub(super) fn enter() -> io::Result<Self> {
        let size = terminal_size()?;
        let before = termios::tcgetattr(rustix::stdio::stdin())?;
        let mut raw = before.clone();
        raw.make_raw();
        termios::tcsetattr(rustix::stdio::stdin(), OptionalActions::Drain, &raw)?;
        Ok(Self { before, size })
    }

    pub(super) fn size(&self) -> Size {
        self.size
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        // A terminal that is gone needs no restoring.
        let _ = termios::tcsetattr(rustix::stdio::stdin(), OptionalActions::Flush, &self.before);
    }
}

/// The size of standard input's terminal; an error if it is none.
pub fn terminal_size() -> io::Result<Size> {
    let size = termios::tcgetwinsize(rustix::stdio::stdin())?;
    Ok(Size { rows: size.ws_row, columns: size.ws_col })
}
