// SPDX-License-Identifier: Apache-2.0
//! Marks of a boot that user space makes: docs/boot-timeline.md.

use std::fs::File;
use std::io::{Result, Seek, SeekFrom, Write};

use flatboot_handoff::marks;

/// Of user space's range: what a check times begins.
const BEGIN: u8 = 0x71;

/// Says that what a check times begins.
pub(crate) fn begin() -> std::result::Result<(), String> {
    mark(BEGIN).map_err(|error| format!("/dev/port: {error}"))
}

/// Writes one mark.
pub(crate) fn mark(code: u8) -> Result<()> {
    let mut port = File::options().write(true).open("/dev/port")?;
    port.seek(SeekFrom::Start(marks::PORT.into()))?;
    port.write_all(&[code])
}
