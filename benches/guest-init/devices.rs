// SPDX-License-Identifier: Apache-2.0
//! Checks of devices.

use std::fs::{self, File};
use std::io::{self, BufRead, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FallocateFlags, fallocate};
use serde_json::json;

use crate::outcome::Outcome;
use crate::{files, report};

const SECTOR: usize = 512;
/// What `diskwrite` writes: a page, so that no file-system block is half old.
pub(crate) const BLOCK: usize = 4096;
/// How long a device may take to be larger.
const GROW: Duration = Duration::from_secs(60);
/// How long it may take until a word is written from outside, and how often it is looked for.
const TELL: Duration = Duration::from_secs(240);
const LOOK: Duration = Duration::from_millis(100);

/// Reads the first and the last sector.
pub(crate) fn disk(device: &str) -> Outcome {
    let failed = |error: io::Error| format!("{device}: {error}");
    let disk = File::open(device).map_err(failed)?;
    let bytes = size(device)?;
    let mut sector = [0; SECTOR];
    disk.read_exact_at(&mut sector, bytes.saturating_sub(SECTOR as u64)).map_err(failed)?;
    disk.read_exact_at(&mut sector, 0).map_err(failed)?;
    let first = format!("{:032x}", u128::from_be_bytes(*sector.first_chunk().unwrap_or(&[0; 16])));
    let read_only = files::number(format!("/sys/class/block/{}/ro", name(device)))? != 0;
    let queues = fs::read_dir(format!("/sys/class/block/{}/mq", name(device))).map_err(failed)?.count();
    let report = json!({ "bytes": bytes, "read_only": read_only, "first": first, "queues": queues });
    Ok((bytes > 0, report))
}

/// Waits until the device is larger, and writes to its new end. Its first line says that it has begun.
pub(crate) fn grow(device: &str) -> Outcome {
    let before = size(device)?;
    report::print(&json!({ "check": "grow", "begun": true }));
    let since = Instant::now();
    while size(device)? == before && since.elapsed() < GROW {
        thread::sleep(Duration::from_millis(10));
    }
    let after = size(device)?;
    let written = disk_write(device)?.0;
    Ok((after > before && written, json!({ "before": before, "after": after })))
}

/// Writes all of the device, by several threads at once, and finds there what was written.
pub(crate) fn beside(text: &str) -> Outcome {
    let (device, threads) = text.split_once('*').ok_or("must be DEVICE*THREADS")?;
    let threads: u64 = threads.parse().map_err(|_| format!("{threads}: no number"))?;
    let failed = |error: io::Error| format!("{device}: {error}");
    let share = size(device)? / threads.max(1) / BLOCK as u64;
    let block = |number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes().repeat(BLOCK / 8);
    let write = |thread: u64| {
        let disk = File::options().write(true).open(device)?;
        (thread * share..(thread + 1) * share).try_for_each(|number| {
            disk.write_all_at(&block(number), number * BLOCK as u64)?;
            if number % 16 == 0 { disk.sync_all() } else { Ok(()) }
        })?;
        disk.sync_all()
    };
    let written = thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|thread| scope.spawn(move || write(thread))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| io::Error::other("a panic"))?)
    });
    written.map_err(failed)?;
    let mut wrong = 0u64;
    for number in 0..share * threads {
        wrong += u64::from(read_uncached(device, number * BLOCK as u64).map_err(failed)? != block(number));
    }
    Ok((wrong == 0 && share > 0, json!({ "blocks": (share * threads), "wrong": wrong })))
}

/// Writes the last block and reads it back from the device.
pub(crate) fn disk_write(device: &str) -> Outcome {
    let failed = |error: io::Error| format!("{device}: {error}");
    let bytes = size(device)?;
    let offset = bytes.checked_sub(BLOCK as u64).ok_or_else(|| format!("{device}: smaller than {BLOCK} bytes"))?;
    let mut pattern: Vec<u8> = (0..BLOCK).map(|n| u8::try_from(n % 251).unwrap_or_default()).collect();
    if read_uncached(device, offset).map_err(failed)? == pattern {
        // From the boot before: what is there already would pass for what was written.
        pattern.reverse();
    }
    write_through(device, offset, &pattern).map_err(failed)?;
    let after = read_uncached(device, offset).map_err(failed)?;
    Ok((after == pattern, json!({ "bytes": bytes, "offset": offset })))
}

/// Makes the middle of the device zero without writing it; what is around it stays.
pub(crate) fn erase(device: &str) -> Outcome {
    let failed = |error: io::Error| format!("{device}: {error}");
    let queue = |limit: &str| files::number(format!("/sys/class/block/{}/queue/{limit}", name(device)));
    let (discard, zeroes) = (queue("discard_max_bytes")?, queue("write_zeroes_max_bytes")?);
    let middle = size(device)? / 2 / BLOCK as u64 * BLOCK as u64;
    let around = [middle - BLOCK as u64, middle + 16 * BLOCK as u64];
    let before = around.map(|offset| read_uncached(device, offset));
    let disk = File::options().write(true).open(device).map_err(failed)?;
    let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(&disk, how, middle, 16 * BLOCK as u64).map_err(|error| failed(error.into()))?;
    disk.sync_all().map_err(failed)?;
    drop(disk);
    let mut zero = true;
    for block in 0..16 {
        zero &= read_uncached(device, middle + block * BLOCK as u64).map_err(failed)?.iter().all(|byte| *byte == 0);
    }
    let mut same = true;
    for (offset, before) in around.into_iter().zip(before) {
        same &= read_uncached(device, offset).map_err(failed)? == before.map_err(failed)?;
    }
    let report = json!({ "zero": zero, "same": same, "discard_max": discard, "zeroes_max": zeroes });
    Ok((zero && same && zeroes > 0, report))
}

fn write_through(device: &str, offset: u64, block: &[u8]) -> io::Result<()> {
    let disk = File::options().write(true).open(device)?;
    disk.write_all_at(block, offset)?;
    disk.sync_all()
}

/// From the device, not from the page cache, which every last close of a block device drops.
pub(crate) fn read_uncached(device: &str, offset: u64) -> io::Result<Vec<u8>> {
    let mut block = vec![0; BLOCK];
    File::open(device)?.read_exact_at(&mut block, offset)?;
    Ok(block)
}

/// Waits until the last block of `device` begins with `word`.
pub(crate) fn told(device: &str, word: &[u8]) -> Result<(), String> {
    let since = Instant::now();
    let last = size(device)?.saturating_sub(BLOCK as u64);
    while !read_uncached(device, last).map_err(|error| format!("{device}: {error}"))?.starts_with(word) {
        if since.elapsed() > TELL {
            return Err(format!("{device}: nobody has written {}", String::from_utf8_lossy(word)));
        }
        thread::sleep(LOOK);
    }
    Ok(())
}

/// Bytes of a block device.
pub(crate) fn size(device: &str) -> Result<u64, String> {
    Ok(files::number(format!("/sys/class/block/{}/size", name(device)))? * SECTOR as u64)
}

fn name(device: &str) -> &str {
    Path::new(device).file_name().and_then(|name| name.to_str()).unwrap_or(device)
}

/// Reads twice from the generator that the kernel chose.
pub(crate) fn rng() -> Outcome {
    let current = files::text("/sys/class/misc/hw_random/rng_current")?;
    let mut source = File::open("/dev/hwrng").map_err(|error| format!("/dev/hwrng: {error}"))?;
    let (mut first, mut second) = ([0; 32], [0; 32]);
    for bytes in [&mut first, &mut second] {
        source.read_exact(bytes).map_err(|error| format!("/dev/hwrng: {error}"))?;
    }
    // 32 equal random bytes twice do not happen.
    let ok = first != second && current.trim() != "none";
    Ok((ok, json!({ "current": current.trim(), "bytes": first.len() + second.len() })))
}

/// Whether a driver of the platform bus has found what it drives.
pub(crate) fn driver(name: &str) -> Outcome {
    let driver = format!("/sys/bus/platform/drivers/{name}");
    let entries = fs::read_dir(&driver).map_err(|error| format!("{driver}: {error}"))?;
    let devices = entries.flatten().filter(|entry| entry.path().join("driver").exists());
    let devices: Vec<_> = devices.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    Ok((!devices.is_empty(), json!({ "devices": devices })))
}

/// Asks for a line on the console and gives it back.
pub(crate) fn echo() -> Outcome {
    report::print(&json!({ "check": "echo", "ready": true }));
    let mut line = Vec::new();
    // Bounded: a console that never sends a new line does not fill memory.
    let mut console = io::stdin().lock().take(64 << 10);
    console.read_until(b'\n', &mut line).map_err(|error| format!("console: {error}"))?;
    io::stdout().flush().map_err(|error| format!("console: {error}"))?;
    let text = String::from_utf8_lossy(&line).trim_end().to_owned();
    Ok((!line.is_empty(), json!({ "line": text })))
}
