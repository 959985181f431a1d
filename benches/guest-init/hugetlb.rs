// SPDX-License-Identifier: Apache-2.0
//! Huge pages: those that the allocator is asked for, and the pools of hugetlbfs.

use std::fs::{self, File};
use std::io::Read;

use rustix::fs::{FallocateFlags, fallocate};
use rustix::mount::{MountFlags, mount};

use serde_json::json;

use crate::outcome::Outcome;
use crate::{files, memory};

const THP: &str = "/sys/kernel/mm/transparent_hugepage";
/// The size of the pages in the pool that [`grow`] uses.
const SIZE_KIB: u64 = 2048;
/// Pages of the pool whose content is looked at.
const LOOKED_AT: u64 = 32;
const MOUNT: &str = "/hugetlbfs";

/// From now on all memory is taken as huge pages, for which the kernel takes its time if it must.
pub(crate) fn transparent() -> Outcome {
    for (file, value) in [("enabled", "always"), ("defrag", "always")] {
        let path = format!("{THP}/{file}");
        fs::write(&path, value).map_err(|error| format!("{path}: {error}"))?;
    }
    let enabled = files::text(format!("{THP}/enabled"))?;
    Ok((enabled.contains("[always]"), json!({ "enabled": enabled.trim() })))
}

/// `SIZE_KIB:COUNT`: the pool of this size has this many pages, as the kernel command line asked. They are given back.
pub(crate) fn pool(argument: &str) -> Outcome {
    let wrong = || format!("hugepages={argument}: expected hugepages=SIZE_KIB:COUNT");
    let (size, count) = argument.split_once(':').ok_or_else(wrong)?;
    let (size, count): (u64, u64) = (size.parse().map_err(|_| wrong())?, count.parse().map_err(|_| wrong())?);
    let (had, free) = (read(size, "nr_hugepages")?, read(size, "free_hugepages")?);
    let left = resize(size, 0)?;
    let report = json!({ "pages": had, "free": free, "left": left });
    Ok((had == count && free == count && left == 0, report))
}

/// Makes a pool of `amount` of memory, looks whether a few of its pages are zero, and gives it back.
pub(crate) fn grow(amount: &str) -> Outcome {
    let wanted = memory::amount_kib(amount)? / SIZE_KIB;
    let got = resize(SIZE_KIB, wanted)?;
    let not_zero = not_zero(got.min(LOOKED_AT) * SIZE_KIB * 1024)?;
    let left = resize(SIZE_KIB, 0)?;
    let report = json!({ "wanted": wanted, "got": got, "not_zero": not_zero, "left": left });
    Ok((got == wanted && got > 0 && not_zero == 0 && left == 0, report))
}

fn directory(size_kib: u64) -> String {
    format!("/sys/kernel/mm/hugepages/hugepages-{size_kib}kB")
}

fn read(size_kib: u64, file: &str) -> Result<u64, String> {
    files::number(format!("{}/{file}", directory(size_kib)))
}

/// Asks for a pool of `count` pages; how many it has then.
fn resize(size_kib: u64, count: u64) -> Result<u64, String> {
    let path = format!("{}/nr_hugepages", directory(size_kib));
    fs::write(&path, count.to_string()).map_err(|error| format!("{path}: {error}"))?;
    files::number(path)
}

/// How many bytes of a new file of `length` bytes, in pages of the pool, are not zero.
fn not_zero(length: u64) -> Result<u64, String> {
    let failed = |error: std::io::Error| format!("{MOUNT}: {error}");
    fs::create_dir_all(MOUNT).map_err(failed)?;
    mount("hugetlbfs", MOUNT, "hugetlbfs", MountFlags::empty(), None).map_err(|error| failed(error.into()))?;
    let path = format!("{MOUNT}/file");
    let mut file = File::options().read(true).write(true).create_new(true).open(&path).map_err(failed)?;
    fallocate(&file, FallocateFlags::empty(), 0, length).map_err(|error| failed(error.into()))?;
    let mut buffer = vec![0xff; 1 << 20];
    let (mut read, mut not_zero) = (0, 0);
    loop {
        let got = file.read(&mut buffer).map_err(failed)?;
        if got == 0 {
            break;
        }
        read += got as u64;
        not_zero += buffer[..got].iter().map(|byte| u64::from(*byte != 0)).sum::<u64>();
    }
    drop(file);
    fs::remove_file(path).map_err(failed)?;
    if read == length { Ok(not_zero) } else { Err(format!("{MOUNT}: {read} of {length} bytes could be read")) }
}
