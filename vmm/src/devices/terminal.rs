// SPDX-License-Identifier: Apache-2.0
//! The user's terminal in raw mode, and back in its own mode whichever way the process ends.

use std::io::{self, IsTerminal};
use std::panic;
use std::sync::{Mutex, Once, TryLockError};

use rustix::process::getpgrp;
use rustix::stdio::stdin;
use rustix::termios::{
    InputModes, LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetpgrp, tcsetattr,
};

/// Standard input's own mode while it is raw. Of the process, not of a guard: a panic hook and an exit path that owns
/// nothing must be able to restore it.
static SAVED: Mutex<Option<Termios>> = Mutex::new(None);
static HOOK: Once = Once::new();

/// Standard input is raw while this lives.
#[derive(Debug)]
pub struct RawTerminal(());

impl RawTerminal {
    /// Makes standard input raw: every key goes to the guest, Ctrl-C too, unechoed. `None` when standard input is no
    /// terminal, or is one that another process group has: then its mode is not ours to change, and reading from it would
    /// stop this process (SIGTTIN).
    ///
    /// Output processing stays on, so that our own messages start at the left edge.
    pub fn enter() -> io::Result<Option<Self>> {
        if !is_ours() {
            return Ok(None);
        }
        let mut mode = tcgetattr(stdin())?;
        {
            let mut saved = SAVED.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            // A second guard must not take the raw mode for the terminal's own.
            saved.get_or_insert_with(|| mode.clone());
        }
        HOOK.call_once(restore_on_panic);
        make_raw(&mut mode);
        tcsetattr(stdin(), OptionalActions::Now, &mode)?;
        Ok(Some(Self(())))
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        restore();
    }
}

/// Gives standard input its own mode back, if it is raw. For exit paths that drop no [`RawTerminal`]: before
/// `process::exit`, and where fatal signals are handled. Not async-signal-safe; call it from an ordinary thread.
pub fn restore() {
    let mut saved = match SAVED.try_lock() {
        Ok(saved) => saved,
        Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        // Another thread changes the mode just now, or this one panicked doing so: waiting could be for ever.
        Err(TryLockError::WouldBlock) => return,
    };
    if saved.is_some()
        && is_ours()
        && let Some(mode) = saved.take()
    {
        // Nothing better is left to do when this fails.
        let _ = tcsetattr(stdin(), OptionalActions::Now, &mode);
    }
}

/// Standard input is a terminal, and this process's group is its foreground group. Changing the mode from the background
/// would stop the process (SIGTTOU).
fn is_ours() -> bool {
    io::stdin().is_terminal() && tcgetpgrp(stdin()).is_ok_and(|group| group == getpgrp())
}

/// Bytes as typed, one by one, no signals, no echo.
fn make_raw(mode: &mut Termios) {
    mode.input_modes &=
        !(InputModes::ICRNL | InputModes::INLCR | InputModes::IGNCR | InputModes::ISTRIP | InputModes::IXON);
    mode.local_modes &= !(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG | LocalModes::IEXTEN);
    mode.special_codes[SpecialCodeIndex::VMIN] = 1;
    mode.special_codes[SpecialCodeIndex::VTIME] = 0;
}

/// The panic message should be readable, and the shell after it usable; release builds abort without unwinding.
fn restore_on_panic() {
    let previous = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        restore();
        previous(info);
    }));
}
