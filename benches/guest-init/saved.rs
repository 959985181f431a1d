// SPDX-License-Identifier: Apache-2.0
//! Memory that is being saved, as for hibernation, which may neither become more nor less meanwhile.

use std::fs::File;
use std::io;

use rustix::io::Errno;
use serde_json::json;

use crate::devices::told;
use crate::memory::kib;
use crate::outcome::Outcome;
use crate::report;

/// Whoever has it open is about to save all memory (Documentation/power/userland-swsusp.rst).
const SNAPSHOT: &str = "/dev/snapshot";

/// Is about to save memory, and says `saving`, until the last block of `device`, written from outside, says `go`; says `saved`; at `more`
/// tries it again, and says `refused` if that is because memory of the hypervisor is there; waits for `stop`.
pub(crate) fn saved(device: &str) -> Outcome {
    let before = kib("MemTotal")?;
    let saving = open().map_err(|error| format!("{SNAPSHOT}: {error}"))?;
    report::print(&json!({ "saving": true }));
    told(device, b"go")?;
    let meanwhile = kib("MemTotal")?;
    drop(saving);
    report::print(&json!({ "saved": true }));
    told(device, b"more")?;
    let more = kib("MemTotal")?;
    let again = open().err();
    let refused = again.as_ref().and_then(Errno::from_io_error) == Some(Errno::BUSY);
    report::print(&json!({ "refused": refused }));
    told(device, b"stop")?;
    let after = kib("MemTotal")?;
    drop(open().map_err(|error| format!("{SNAPSHOT}, afterwards: {error}"))?);
    let again = again.map(|error| error.to_string());
    let report = json!({
        "before_kib": before, "meanwhile_kib": meanwhile, "more_kib": more, "after_kib": after, "again": again,
    });
    Ok((refused && meanwhile == before && more > before && after == before, report))
}

fn open() -> io::Result<File> {
    File::open(SNAPSHOT)
}
