// SPDX-License-Identifier: Apache-2.0
//! The kernel's large hash tables, which are cleared when they are used: of dentries, inodes, mounts.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use serde_json::json;

use crate::outcome::Outcome;

/// On the root file system, a ramfs: what its dentries do not find is not there.
const FILES: &str = "/tables-files";
const MOUNTS: &str = "/tables-mounts";
/// Mounts at a time.
const MOUNTED: usize = 300;
/// Threads that look up files while others are made.
const LOOKERS: usize = 2;

/// `count` files are made, while others are looked up, renamed, made and removed: each is found, what is not there is not.
pub(crate) fn dentries(count: &str) -> Outcome {
    let count: usize = count.parse().map_err(|_| format!("dentries={count}: expected a number"))?;
    fs::create_dir(FILES).map_err(|error| format!("{FILES}: {error}"))?;
    let (made, looked, over) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicBool::new(false));
    let (result, missing, renamed) = thread::scope(|scope| {
        let lookers = [(); LOOKERS].map(|()| scope.spawn(|| look(&made, &looked, &over)));
        let moving = scope.spawn(|| rename(&over));
        let result = make(count, &made);
        // On a busy host all may be made before a looker has run; files are still renamed, made and removed.
        while result.is_ok() && looked.load(Ordering::SeqCst) == 0 && !lookers.iter().any(ScopedJoinHandle::is_finished)
        {
            thread::sleep(Duration::from_millis(1));
        }
        over.store(true, Ordering::SeqCst);
        let missing: usize = lookers.map(|looker| looker.join().unwrap_or(1)).iter().sum();
        (result, missing, moving.join().unwrap_or_else(|_| Err("it died".to_owned())))
    });
    let looked = looked.into_inner();
    result?;
    let renamed = renamed?;
    let lost = (0..count).filter(|number| !is_there(&file(*number))).count();
    let ghosts = (count..count + 1000).filter(|number| is_there(&file(*number))).count();
    fs::remove_dir_all(FILES).map_err(|error| format!("{FILES}: {error}"))?;
    let good = missing + lost + ghosts == 0 && looked > 0 && renamed > 0;
    let report = json!({ "looked_up": looked, "missing": missing, "renamed": renamed, "lost": lost, "ghosts": ghosts });
    Ok((good, report))
}

fn file(number: usize) -> PathBuf {
    Path::new(FILES).join(format!("file-{number}"))
}

fn is_there(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}

fn make(count: usize, made: &AtomicUsize) -> Result<(), String> {
    for number in 0..count {
        let path = file(number);
        File::create_new(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        made.store(number + 1, Ordering::SeqCst);
    }
    Ok(())
}

/// Looks up files that are there until it is `over`, which are counted in `looked`: how many were not found.
fn look(made: &AtomicUsize, looked: &AtomicUsize, over: &AtomicBool) -> usize {
    let mut missing = 0;
    while !over.load(Ordering::SeqCst) {
        let there = made.load(Ordering::SeqCst);
        // A prime stride comes by all of them.
        for step in 0..there.min(64) {
            let number = looked.fetch_add(1, Ordering::SeqCst) * 7919 + step;
            missing += usize::from(!is_there(&file(number % there)));
        }
    }
    missing
}

/// Gives a file two names in turn, and makes and removes another, until it is `over`.
fn rename(over: &AtomicBool) -> Result<usize, String> {
    let names = ["here", "there"].map(|name| Path::new(FILES).join(name));
    let passing = Path::new(FILES).join("passing");
    let failed = |error| format!("{FILES}: {error}");
    File::create_new(&names[0]).map_err(failed)?;
    let mut renamed = 0;
    while !over.load(Ordering::SeqCst) {
        let (from, to) = (&names[renamed % 2], &names[(renamed + 1) % 2]);
        fs::rename(from, to).map_err(failed)?;
        if is_there(from) || !is_there(to) {
            return Err(format!("after {renamed} renames {} is found, {} is not", from.display(), to.display()));
        }
        File::create_new(&passing).map_err(failed)?;
        fs::remove_file(&passing).map_err(failed)?;
        renamed += 1;
    }
    Ok(renamed)
}

/// All of /sys has the inodes that it had before they were dropped: those that went were taken out of their table, and
/// others put in.
pub(crate) fn inodes() -> Outcome {
    let drop_caches = || fs::write("/proc/sys/vm/drop_caches", "2").map_err(|error| format!("drop_caches: {error}"));
    let walk = || {
        let mut found = BTreeMap::new();
        numbers(Path::new("/sys/devices"), &mut found).map(|()| found)
    };
    let before = walk()?;
    drop_caches()?;
    let after = walk()?;
    let same = before.iter().filter(|(path, number)| after.get(*path) == Some(*number)).count();
    Ok((same == before.len() && same > 0, json!({ "inodes": before.len(), "same": same })))
}

fn numbers(directory: &Path, found: &mut BTreeMap<PathBuf, u64>) -> Result<(), String> {
    let failed = |error| format!("{}: {error}", directory.display());
    for entry in fs::read_dir(directory).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let meta = match fs::symlink_metadata(&path) {
            Ok(meta) => meta,
            // What comes and goes by itself.
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(error) => return Err(failed(error)),
        };
        found.insert(path.clone(), meta.ino());
        if meta.is_dir() {
            numbers(&path, found)?;
        }
    }
    Ok(())
}

/// Many mounts, each of which is found by its own path, and gone when it is unmounted.
pub(crate) fn mounts() -> Outcome {
    let place = |number: usize| Path::new(MOUNTS).join(number.to_string());
    let own = |number: usize| place(number).join(format!("own-{number}"));
    let mut wrong = 0;
    for number in 0..MOUNTED {
        let place = place(number);
        let failed = |error: std::io::Error| format!("{}: {error}", place.display());
        fs::create_dir_all(&place).map_err(failed)?;
        mount("none", &place, "ramfs", MountFlags::empty(), None).map_err(|error| failed(error.into()))?;
        File::create_new(own(number)).map_err(failed)?;
    }
    wrong += (0..MOUNTED).filter(|number| !is_there(&own(*number))).count();
    for number in 0..MOUNTED {
        unmount(place(number), UnmountFlags::empty())
            .map_err(|error| format!("{}: {error}", place(number).display()))?;
        wrong += usize::from(is_there(&own(number)));
    }
    Ok((wrong == 0, json!({ "mounts": MOUNTED, "wrong": wrong })))
}
