// SPDX-License-Identifier: Apache-2.0
//! Memory that cannot go, because somebody holds pages of it where they are.

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;

use rustix::pipe::{SpliceFlags, pipe, splice};
use serde_json::json;

use crate::devices::told;
use crate::elastic::{Filled, mount_at};
use crate::memory::{self, PAGE, kib};
use crate::outcome::Outcome;
use crate::report;

/// As many pages as a pipe has room for: it holds them, and does not copy them.
const HELD: u64 = 16;
const TMPFS: &str = "/pinned";

/// Fills a file in memory with a quarter of it, has a pipe hold some of its pages, and says `pinned`. Waits for `go` in the last block
/// of `device`, written from outside; lets the pages go and says `released`; waits for `stop`.
pub(crate) fn pinned(device: &str) -> Outcome {
    let pages = kib("MemTotal")? / 4 / 4;
    mount_at("tmpfs", TMPFS, "tmpfs")?;
    let file = Filled::write(&format!("{TMPFS}/file"), pages)?;
    let held = Held::of(&file, pages)?;
    report::print(&json!({ "pinned": true }));
    told(device, b"go")?;
    let part = kib("MemTotal")?;
    let mut wrong = file.wrong()? + held.release()?;
    report::print(&json!({ "released": true }));
    told(device, b"stop")?;
    wrong += file.wrong()?;
    Ok((wrong == 0, json!({ "pages": pages, "wrong": wrong, "part_kib": part, "after_kib": kib("MemTotal")? })))
}

/// Pages of a file in a pipe.
struct Held {
    reader: OwnedFd,
    _writer: OwnedFd,
    /// What they are numbered.
    pages: Vec<u64>,
}

impl Held {
    /// [`HELD`] pages of the `pages` of `file`, at equal distances.
    fn of(file: &Filled, pages: u64) -> Result<Self, String> {
        let (reader, writer) = pipe().map_err(|error| format!("pipe: {error}"))?;
        let held: Vec<_> = (0..HELD).map(|n| n * (pages / HELD)).collect();
        for page in &held {
            let mut offset = page * PAGE as u64;
            let moved = splice(file.file(), Some(&mut offset), &writer, None, PAGE, SpliceFlags::NONBLOCK);
            if moved != Ok(PAGE) {
                return Err(format!("splice: {moved:?}: expected {PAGE} bytes"));
            }
        }
        Ok(Self { reader, _writer: writer, pages: held })
    }

    /// Takes them out of the pipe. How many are not as they were numbered.
    fn release(self) -> Result<u64, String> {
        let (mut reader, mut bytes, mut wrong) = (File::from(self.reader), [0; PAGE], 0);
        for page in self.pages {
            reader.read_exact(&mut bytes).map_err(|error| format!("pipe: {error}"))?;
            wrong += u64::from(!memory::has_value(&bytes, page));
        }
        Ok(wrong)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_has_pages_of_the_file() {
        let path = tempfile::NamedTempFile::new().unwrap().into_temp_path();
        let file = Filled::write(path.to_str().unwrap(), 3 * HELD).unwrap();
        let held = Held::of(&file, 3 * HELD).unwrap();
        assert_eq!(held.pages.last(), Some(&(3 * (HELD - 1))));
        assert_eq!(held.release(), Ok(0));
        let mut held = Held::of(&file, 3 * HELD).unwrap();
        held.pages[1] += 1;
        assert_eq!(held.release(), Ok(1));
    }
}
