// SPDX-License-Identifier: Apache-2.0
//! A thread has called what its filter does not allow: SIGSYS. It says so, gives the terminal its mode back, and ends the process.
//!
//! That is why filters answer by a signal and do not kill at once, which would leave a raw terminal and no word. It is as strict: the
//! call is not made, and a thread that has been taken over gains nothing by keeping the signal from being handled: if it is
//! blocked or ignored, the kernel kills.
#![expect(
    unsafe_code,
    reason = "the system call's number is in a union of siginfo_t; _exit, since a handler must not return"
)]

use std::cell::Cell;
use std::io;
use std::sync::OnceLock;
use std::thread;

use vmm_sys_util::signal::register_signal_handler;

use super::names;
use crate::line::Line;

/// What the process then ends with: a part of flatboot itself has failed.
pub const STATUS: i32 = 8;
/// `si_code` of a signal that a filter sends.
const SYS_SECCOMP: i32 = 1;
/// Bytes of a thread's name, as Linux has it.
const NAME: usize = 15;

/// What gives the terminal its mode back. Set before the handler is there, and never changed: it can be read in a signal handler.
static RESTORE: OnceLock<fn()> = OnceLock::new();

thread_local! {
    /// For messages; without a destructor, so that a signal handler may look at it at any time.
    static THREAD: Cell<[u8; NAME]> = const { Cell::new([0; NAME]) };
}

/// `siginfo_t` of SIGSYS (sigaction(2)), of which the crate libc has no accessor.
#[repr(C)]
struct SigSys {
    signal: i32,
    errno: i32,
    code: i32,
    _padding: i32,
    address: u64,
    call: i32,
    architecture: u32,
}

/// From now on a SIGSYS ends the process as described above. `restore` must be safe in a signal handler.
pub(super) fn watch(restore: fn()) -> io::Result<()> {
    // Whoever was first has the same terminal.
    RESTORE.get_or_init(|| restore);
    register_signal_handler(libc::SIGSYS, on_sigsys).map_err(|error| io::Error::from_raw_os_error(error.errno()))
}

/// Notes what this thread is called.
pub(super) fn name_thread() {
    let mut name = [0; NAME];
    let current = thread::current();
    name.iter_mut().zip(current.name().unwrap_or("unnamed").bytes()).for_each(|(to, from)| *to = from);
    THREAD.set(name);
}

extern "C" fn on_sigsys(_signal: libc::c_int, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid siginfo_t to a handler that was installed with SA_SIGINFO, nobody else has it, and for this
    // signal its bytes are laid out as `SigSys`, which is shorter and has the same alignment.
    let info = unsafe { info.cast::<SigSys>().as_ref() };
    if let Some(restore) = RESTORE.get() {
        restore();
    }
    let line = say(&THREAD.get(), info.filter(|info| info.code == SYS_SECCOMP).map(|info| info.call));
    let bytes = line.bytes();
    // SAFETY: the pointer and the length are those of initialized bytes; write(2) is safe in a handler.
    let _ = unsafe { libc::write(libc::STDERR_FILENO, bytes.as_ptr().cast(), bytes.len()) };
    // SAFETY: it ends the process at once; no destructor runs, and no lock is taken.
    unsafe { libc::_exit(STATUS) }
}

/// The line, of `thread`, which made `call`; without one, somebody has sent the signal.
fn say(thread: &[u8; NAME], call: Option<i32>) -> Line {
    let mut line = Line::default();
    line.text("flatboot: error: thread ");
    let length = thread.iter().position(|byte| *byte == 0).unwrap_or(NAME);
    line.raw(thread.get(..length).unwrap_or_default());
    let Some(call) = call else {
        line.text(": was sent SIGSYS, which ends the VM\n");
        return line;
    };
    line.text(": made the system call ");
    if let Some(name) = names::name(call) {
        line.text(name);
        line.text(", ");
    }
    line.text("number ");
    line.decimal(u64::from(call.cast_unsigned()));
    line.text(": must be one that its seccomp filter allows; the VM is ended\n");
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(name: &str, call: Option<i32>) -> String {
        let mut thread = [0; NAME];
        thread.iter_mut().zip(name.bytes()).for_each(|(to, from)| *to = from);
        String::from_utf8(say(&thread, call).bytes().to_vec()).unwrap()
    }

    #[test]
    fn the_line_names_thread_and_call() {
        for (name, call, expected) in [
            ("virtio0", Some(257), "virtio0: made the system call openat, number 257: must be one that"),
            ("a-name-that-is-too-long", Some(2000), "a-name-that-is-: made the system call number 2000: must"),
            ("vcpu0", None, "vcpu0: was sent SIGSYS, which ends the VM\n"),
        ] {
            let said = said(name, call);
            assert!(said.starts_with(&format!("flatboot: error: thread {expected}")), "{said}");
            assert!(said.ends_with('\n'), "{said}");
        }
    }
}
