// SPDX-License-Identifier: Apache-2.0
//! flatboot's own memory: what is resident in its process outside of the guest's memory, with a control socket.

use std::path::Path;

use anyhow::{Context, Result};

use crate::backend::Session;
use crate::command::Command;
use crate::guest::Guest;

/// Runs its arguments with init's console in the file `$0`, waits for init's last line, shows the mappings, ends it.
/// Sockets need a file system of the host's own, which /run is in the emulated one.
const SCRIPT: &str = r#"
    directory=$(mktemp -d -p /run 2>/dev/null || mktemp -d) && socket=$directory/socket
    rm -f "$0"; "$@" --api-socket "path=$socket" & pid=$!
    n=0; until grep -q '"check":"done"' "$0" 2>/dev/null; do n=$((n+1)); [ $n -lt 600 ] || break; sleep 0.1; done
    if [ ! -S "$socket" ]; then echo 'there is no control socket' >&2; elif [ $n -lt 600 ]; then cat /proc/$pid/smaps; fi
    kill -KILL $pid; wait $pid; rm -rf "$directory"
"#;

/// What the file of guest memory is called when it is shared, and so can be told from the rest.
const GUEST_MEMORY: &str = "memfd:flatboot-guest-memory";

/// KiB that are resident outside of guest memory when `guest`, given 1 vCPU, 128 MiB and a control socket, has done its checks.
///
/// `console` is a file that may be written on the host. Source: `Rss` in `/proc/PID/smaps`.
pub fn measure(session: &mut Session, flatboot: &Path, guest: Guest, console: &Path) -> Result<u64> {
    let serial = format!("file={}", console.display());
    let guest = guest.cpus(1).memory("size=128M,shared=on").cmdline("flatboot.end=hang").options(["--serial", &serial]);
    let run = guest.command(flatboot);
    let watched = Command::new("/bin/sh").args(["-c", SCRIPT]).arg(console).arg(run.program).args(run.args);
    let outcome = session.run(&watched.timeout(guest.limit))?;
    resident_kib_outside_guest(&outcome.stdout_text()).with_context(|| {
        let stderr = String::from_utf8_lossy(&outcome.stderr);
        format!("no mappings of a running guest: {}", stderr.lines().next_back().unwrap_or("it said nothing"))
    })
}

/// Sums `Rss` over all mappings but those of guest memory; none if there is no such mapping.
fn resident_kib_outside_guest(smaps: &str) -> Option<u64> {
    let (mut guest, mut own, mut seen) = (false, 0, false);
    for line in smaps.lines() {
        let mut words = line.split_whitespace();
        match (words.next(), words.next()) {
            (Some("Rss:"), Some(kib)) if !guest => own += kib.parse::<u64>().ok()?,
            // The line that begins a mapping has its address range first, and its file last.
            (Some(range), _) if range.contains('-') => {
                guest = line.contains(GUEST_MEMORY);
                seen |= guest;
            }
            _ => {}
        }
    }
    seen.then_some(own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guest_memory_is_left_out() {
        let smaps = "00400000-00500000 r-xp 0 fe:00 1   /flatboot\nSize: 1024 kB\nRss:  600 kB\n\
            7f00-7f08 rw-s 0 00:01 2   /memfd:flatboot-guest-memory (deleted)\nRss:  9999 kB\n\
            7ffe-7fff rw-p 0 00:00 0   [stack]\nRss:  24 kB\n";
        assert_eq!(resident_kib_outside_guest(smaps), Some(624));
        assert_eq!(resident_kib_outside_guest("00400000-00500000 r-xp 0 fe:00 1\nRss: 600 kB\n"), None);
        assert_eq!(resident_kib_outside_guest(""), None);
    }

    #[test]
    fn without_a_control_socket_nothing_is_measured() {
        let console = tempfile::NamedTempFile::new().unwrap();
        let vmm = format!("echo '\"check\":\"done\"' >{}; exec sleep 60", console.path().display());
        let mut script = std::process::Command::new("/bin/sh");
        script.args(["-c", SCRIPT]).arg(console.path()).args(["/bin/sh", "-c", &vmm]);
        let output = script.output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "");
        assert!(String::from_utf8_lossy(&output.stderr).contains("there is no control socket"), "{output:?}");
    }
}
