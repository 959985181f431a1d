// SPDX-License-Identifier: Apache-2.0
//! What holds for the whole process, whatever its options are.
#![expect(unsafe_code, reason = "malloc is told how to manage memory, and the kernel what to do about a signal")]

use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::set_no_new_privs;

use super::JailError;

/// All threads share one arena of malloc. With one for each, glibc looks into /sys (how many CPUs are there?) and into /proc (may
/// memory be given back?) when it likes, which is when a thread is in its jail already. None of them allocates much.
fn one_arena() {
    // SAFETY: it sets a number of malloc's, under its lock. Should it not take it, all is as it was.
    let _ = unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
}

/// A file that reaches this process's limit (`RLIMIT_FSIZE`) is one that cannot be written to, EFBIG, as a full disk is. Otherwise SIGXFSZ
/// would end the process without a word, whenever a guest writes enough.
fn full_files_are_errors() {
    // SAFETY: there is no handler: the signal is ignored. It may be called at any time.
    let _ = unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// As many files as this process may have: each vCPU is one, and each connection of a guest, which would otherwise take the place of
/// clients. What there is at first is low for the sake of select(2), which nothing here calls (systemd.exec(5), `LimitNOFILE=`).
fn as_many_files_as_may_be() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // If it cannot be, there are as many as before.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

/// No program that this process could start has more rights than it, and no core dump of it is written. To be called before any
/// other thread is started, which then inherits both.
pub fn harden() -> Result<(), JailError> {
    let failed = |what| move |error| JailError::Harden { what, source: io::Error::from(error) };
    one_arena();
    full_files_are_errors();
    as_many_files_as_may_be();
    set_no_new_privs(true).map_err(failed("no_new_privs"))?;
    // One byte, not none: it is too little for a file, and the one limit that keeps Linux from calling the program that
    // kernel.core_pattern may name instead (core(5); fs/coredump.c). PR_SET_DUMPABLE would do it, too, but then even the owner
    // could no longer see in /proc what a VM takes of the host.
    let least = Rlimit { current: Some(1), maximum: Some(1) };
    match setrlimit(Resource::Core, least) {
        // Whoever has set it to 0 for good has meant the same.
        Ok(()) | Err(rustix::io::Errno::PERM) => Ok(()),
        Err(error) => Err(failed("RLIMIT_CORE")(error)),
    }
}
