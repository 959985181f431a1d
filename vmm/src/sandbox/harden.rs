// SPDX-License-Identifier: Apache-2.0
//! What holds for the whole process, whatever its options are.

use std::io;

use rustix::process::{Resource, Rlimit, setrlimit};
use rustix::thread::set_no_new_privs;

use super::JailError;

/// No program that this process could start has more rights than it, and no core dump of it is written. To be called before any
/// other thread is started, which then inherits both.
pub fn harden() -> Result<(), JailError> {
    let failed = |what| move |error| JailError::Harden { what, source: io::Error::from(error) };
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
