// SPDX-License-Identifier: Apache-2.0
//! What a kernel says on the console when something in it broke.

/// What such a line contains.
const SPLATS: [&str; 8] = [
    "BUG:",
    "WARNING:",
    "Call Trace",
    "Oops",
    "Bad page",
    "general protection fault",
    "blocked for more than",
    "rcu: INFO",
];
/// Emulated processors that offer no compact state are warned about, and are none of our business.
const NO_SPLAT: &str = "arch/x86/kernel/fpu/xstate.c";
/// Where a warning ends.
const END_OF_TRACE: &str = "---[ end trace";

/// The first line of `console` that says so.
pub(super) fn find(console: &str) -> Option<&str> {
    let mut excused = false;
    console.lines().map(str::trim).find(|line| {
        excused = (excused || line.contains(NO_SPLAT)) && !line.contains(END_OF_TRACE);
        !excused && SPLATS.iter().any(|splat| line.contains(splat))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_splat_is_found_wherever_it_is() {
        let boot = "[ 0.1] x86/fpu: ok\r\nFLATBOOT {\"check\":\"start\",\"ok\":true}\r\n";
        assert_eq!(find(boot), None);
        for splat in [
            "[ 1.0] BUG: kernel NULL pointer dereference, address: 0000000000000000",
            "[ 1.0] WARNING: CPU: 0 PID: 1 at mm/page_alloc.c:1 f+0x1/0x2",
            "[ 1.0] Call Trace:",
            "[ 9.0] INFO: task init:1 blocked for more than 30 seconds.",
        ] {
            assert_eq!(find(&format!("{boot}{splat}\r\n{boot}")), Some(splat));
        }
    }

    #[test]
    fn the_one_warning_that_means_nothing_excuses_no_other() {
        let warning = "[ 0.0] WARNING: CPU: 0 PID: 0 at arch/x86/kernel/fpu/xstate.c:1 f+0x1/0x2\n\
            [ 0.0] Call Trace:\n[ 0.0] ---[ end trace 0000000000000000 ]---\n";
        assert_eq!(find(warning), None);
        assert_eq!(find(&format!("{warning}[ 1.0] Call Trace:\n")), Some("[ 1.0] Call Trace:"));
    }
}
