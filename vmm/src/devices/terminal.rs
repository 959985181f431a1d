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
/// `process::exit`, and in handlers of fatal signals, for which it is safe: it allocates nothing, waits for no lock, and calls
/// nothing but the kernel.
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
    stdin().is_terminal() && tcgetpgrp(stdin()).is_ok_and(|group| group == getpgrp())
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

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};
    use std::{env, thread};

    use rustix::process::{Pid, WaitOptions, waitpid};

    use super::*;

    /// Says to this test binary which part to play.
    const ROLE: &str = "FLATBOOT_TEST_TERMINAL_ROLE";

    fn mode() -> (InputModes, LocalModes) {
        let mode = tcgetattr(stdin()).unwrap();
        (mode.input_modes, mode.local_modes)
    }

    fn is_raw() -> bool {
        !mode().1.intersects(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG)
    }

    /// This test binary again, to run only [`play_a_role`].
    fn player(role: &str) -> Command {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--exact", "--nocapture", "--test-threads=1", "devices::terminal::tests::play_a_role"]);
        command.env(ROLE, role);
        command
    }

    #[test]
    fn without_a_terminal_nothing_happens() {
        assert!(player("none").stdin(Stdio::null()).stdout(Stdio::null()).status().unwrap().success());
    }

    #[test]
    fn every_way_out_restores_the_terminal() {
        // script(1) gives its command a terminal of its own, as foreground process group.
        let me = player("foreground");
        let words = std::iter::once(me.get_program()).chain(me.get_args());
        let quoted: Vec<_> = words.map(|word| format!("'{}'", word.to_str().unwrap())).collect();
        let output = Command::new("script")
            .args(["--quiet", "--return", "--command", &quoted.join(" "), "/dev/null"])
            .env(ROLE, "foreground")
            .stdin(Stdio::null())
            .output()
            .expect("script(1), of Debian's bsdutils, must be there");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }

    /// No test of its own: what the tests above start in another process.
    #[test]
    fn play_a_role() {
        match env::var(ROLE).as_deref() {
            Ok("foreground") => in_the_foreground(),
            Ok(_) => {
                assert!(RawTerminal::enter().unwrap().is_none());
                restore();
            }
            Err(_) => {}
        }
    }

    #[expect(clippy::zombie_processes, reason = "waitpid waits, and unlike wait sees a stop")]
    fn in_the_foreground() {
        let own = mode();
        assert!(!is_raw());
        let guard = RawTerminal::enter().unwrap().unwrap();
        assert!(is_raw());
        drop(guard);
        assert_eq!(mode(), own, "dropping restores");

        let guard = RawTerminal::enter().unwrap().unwrap();
        restore();
        assert_eq!(mode(), own, "restore() restores");
        restore();
        std::mem::forget(guard);

        let guard = RawTerminal::enter().unwrap().unwrap();
        assert!(is_raw());
        assert!(thread::spawn(|| panic!("on purpose")).join().is_err());
        assert_eq!(mode(), own, "a panic restores");
        drop(guard);

        // Another process group on this terminal is in the background. It must neither change the mode nor be stopped.
        let guard = RawTerminal::enter().unwrap().unwrap();
        let child = player("background").process_group(0).spawn().unwrap();
        let (_, status) = waitpid(Some(Pid::from_child(&child)), WaitOptions::UNTRACED).unwrap().unwrap();
        assert_eq!(status.exit_status(), Some(0), "stopped or failed: {status:?}");
        assert!(is_raw());
        drop(guard);
        assert_eq!(mode(), own);
    }
}
