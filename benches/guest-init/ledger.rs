// SPDX-License-Identifier: Apache-2.0
//! Writes that are told when they are said to be safe, for a host that ends its VMM in the midst of them.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use rustix::mount::{MountFlags, mount};
use serde_json::json;

use crate::outcome::Outcome;
use crate::report;

/// Where the disk's file system is mounted.
const ROOT: &str = "/root";
/// What grows, from nothing at each boot.
const LEDGER: &str = "/root/ledger";
/// Lines of a record, each the record's number in eight digits: 4 KiB and more, so that it lies on several blocks.
const LINES: usize = 600;
/// Room for so many is on 64 MiB.
const MOST: u32 = 8000;
/// Now and then a name is changed, and the directory flushed.
const RENAME: u32 = 8;

/// Mounts the ext4 on `device`, and adds record after record to a file, each flushed and then told by a line of its own.
pub(crate) fn ledger(device: &str) -> Outcome {
    mount(device, ROOT, "ext4", MountFlags::empty(), None).map_err(|error| format!("{device}: {error}"))?;
    write().map_err(|error| format!("{LEDGER}: {error}"))?;
    Ok((true, json!({ "records": MOST })))
}

fn write() -> std::io::Result<()> {
    let directory = File::open(ROOT)?;
    let mut ledger = File::create(LEDGER)?;
    directory.sync_all()?;
    for number in 1..=MOST {
        let line = format!("{number:07}\n");
        ledger.write_all(line.repeat(LINES).as_bytes())?;
        ledger.sync_data()?;
        if number % RENAME == 0 {
            let fresh = Path::new(ROOT).join("fresh");
            let mut file = File::create(&fresh)?;
            file.write_all(line.as_bytes())?;
            file.sync_all()?;
            fs::rename(&fresh, Path::new(ROOT).join("number"))?;
            directory.sync_all()?;
        }
        report::print(&json!({ "written": number }));
        report::drain();
    }
    Ok(())
}
