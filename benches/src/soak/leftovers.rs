// SPDX-License-Identifier: Apache-2.0
//! What a VMM has left behind: processes, files that nobody asked for, its sockets, locks, taps.

use std::fs::{self, Metadata};
use std::io;
use std::os::linux::fs::MetadataExt;
use std::path::Path;

use super::order::{CONSOLE, DISK, SOCKETS, STDERR, STDOUT, TIMELINE};

/// What is found in `directory`, where the VMM had its files: each a few words.
pub(super) fn files(directory: &Path) -> io::Result<Vec<String>> {
    let locks = fs::read_to_string("/proc/locks")?;
    let mut left = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if !is_expected(&name) {
            left.push(if SOCKETS.contains(&&*name) { name.clone() } else { format!("file {name}") });
        }
        if is_locked(&entry.metadata()?, &locks) {
            left.push(format!("lock on {name}"));
        }
    }
    left.sort();
    Ok(left)
}

/// The tap `name`, if it is still among `interfaces`, which is /sys/class/net: it goes with its VM.
pub(super) fn tap(interfaces: &Path, name: &str) -> Option<String> {
    interfaces.join(name).exists().then(|| format!("tap {name}"))
}

fn is_expected(name: &str) -> bool {
    [CONSOLE, STDOUT, STDERR, TIMELINE].contains(&name)
        || name.strip_prefix(DISK).is_some_and(|number| number.parse::<u8>().is_ok())
}

/// Whether `locks`, which is /proc/locks, has a lock on that file: "1: OFDLCK ADVISORY WRITE -1 08:01:1234 0 EOF".
fn is_locked(file: &Metadata, locks: &str) -> bool {
    let (major, minor) = (rustix::fs::major(file.st_dev()), rustix::fs::minor(file.st_dev()));
    let id = format!("{major:02x}:{minor:02x}:{}", file.st_ino());
    locks.lines().any(|line| line.split_whitespace().any(|word| word == id))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn what_is_left_is_found_and_what_was_asked_for_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        for name in ["console", "stdout", "stderr", "timeline", "disk0", "disk12"] {
            fs::write(path(name), "").unwrap();
        }
        assert!(files(directory.path()).unwrap().is_empty());
        let _sockets = ["socket", "vsock", "second"].map(|name| UnixListener::bind(path(name)).unwrap());
        fs::write(path("timeline.tmp"), "").unwrap();
        let disk = fs::File::options().write(true).open(path("disk12")).unwrap();
        disk.lock().unwrap();
        assert_eq!(
            files(directory.path()).unwrap(),
            ["file timeline.tmp", "lock on disk12", "second", "socket", "vsock"]
        );
        drop(disk);
        assert_eq!(files(directory.path()).unwrap(), ["file timeline.tmp", "second", "socket", "vsock"]);
    }

    #[test]
    fn taps_of_others_are_not_left_behind() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["lo", "tap0", "soak7-1"] {
            fs::create_dir(directory.path().join(name)).unwrap();
        }
        assert_eq!(tap(directory.path(), "soak7-0"), None);
        assert_eq!(tap(directory.path(), "soak7-1").as_deref(), Some("tap soak7-1"));
    }
}
