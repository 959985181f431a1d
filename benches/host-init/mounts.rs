// SPDX-License-Identifier: Apache-2.0
//! The programs' view of the file system: this machine's, at the same paths.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use flatboot_bench::protocol::{ROOT_TAG, Setup};
use rustix::mount::{MountFlags, mount, mount_bind, mount_bind_recursive, mount_move};

/// Where this machine's files are mounted before they become the root directory of the agent and of programs.
const ROOT: &str = "/root";
/// Where a cgroup for each program is made.
pub(crate) const CGROUPS: &str = "/sys/fs/cgroup";
/// Largest 9p message that virtio carries in one request, in bytes: reads of files in few round trips.
const MSIZE: u32 = 512_000;

/// Something cannot be mounted.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MountError {
    #[error("cannot mount {what} on {}: {source}", target.display())]
    Mount { what: String, target: PathBuf, source: io::Error },
    #[error("cannot make the directory {}: {source}", path.display())]
    Directory { path: PathBuf, source: io::Error },
    #[error("cannot make the link {}: {source}", path.display())]
    Link { path: PathBuf, source: io::Error },
    #[error("no block device with the serial {serial} for {}", path.display())]
    NoDevice { serial: String, path: PathBuf },
}

/// What PID 1 and the agent need.
pub(crate) fn kernel_file_systems() -> Result<(), MountError> {
    file_system("devtmpfs", "/dev", "mode=0755")?;
    // What udev would make.
    for (name, target) in [("fd", ""), ("stdin", "/0"), ("stdout", "/1"), ("stderr", "/2")] {
        let link = Path::new("/dev").join(name);
        symlink(format!("/proc/self/fd{target}"), &link)
            .map_err(|source| MountError::Link { path: link.clone(), source })?;
    }
    file_system("proc", "/proc", "")?;
    file_system("sysfs", "/sys", "")?;
    file_system("cgroup2", CGROUPS, "")
}

/// What the programs see below [`ROOT`].
pub(crate) fn programs_root(setup: &Setup) -> Result<(), MountError> {
    // Read once and kept: nothing is written through this mount, and what changes on the machine meanwhile is new names,
    // which are looked up again.
    share(ROOT_TAG, Path::new("/"), "cache=loose", MountFlags::RDONLY)?;
    for directory in ["/dev", "/proc", "/sys"] {
        let target = below_root(Path::new(directory));
        mount_bind_recursive(directory, &target).map_err(|e| failed(directory, &target, e))?;
    }
    file_system("devpts", "/root/dev/pts", "mode=0620,ptmxmode=0666")?;
    file_system("tmpfs", "/root/dev/shm", "mode=1777")?;
    file_system("tmpfs", "/root/run", "mode=0755")?;
    scratch_tmp()?;
    if Path::new("/sys/kernel/debug").is_dir() {
        file_system("debugfs", "/root/sys/kernel/debug", "")?;
    }
    for (tag, path) in &setup.writable {
        // No cache: what a program wrote is on the machine when its write returns, even if the host is killed then.
        share(tag, path, "cache=none", MountFlags::empty())?;
    }
    setup.drives.iter().try_for_each(|(serial, path)| drive(serial, path))?;
    become_root()
}

/// Puts [`ROOT`] over the root directory, and enters it. A process whose root directory is none of its mount namespace's could make
/// no user namespace, which passt does.
fn become_root() -> Result<(), MountError> {
    let root = Path::new("/");
    // Once it is over the root directory, no path leads to it but the working directory's.
    rustix::process::chdir(ROOT).map_err(|e| failed(ROOT, root, e))?;
    mount_move(".", root).map_err(|e| failed(ROOT, root, e))?;
    rustix::process::chroot(".").map_err(|e| failed(ROOT, root, e))
}

/// /tmp shows the machine's files and takes new ones into memory.
fn scratch_tmp() -> Result<(), MountError> {
    file_system("tmpfs", "/scratch", "")?;
    for part in ["/scratch/upper", "/scratch/work"] {
        directory(Path::new(part))?;
    }
    file_system("overlay", "/root/tmp", "lowerdir=/root/tmp,upperdir=/scratch/upper,workdir=/scratch/work")
}

fn share(tag: &str, path: &Path, cache: &str, flags: MountFlags) -> Result<(), MountError> {
    let target = below_root(path);
    let options = format!("trans=virtio,version=9p2000.L,msize={MSIZE},{cache}");
    mount(tag, &target, "9p", flags, text(&options).as_deref()).map_err(|e| failed(tag, &target, e))
}

/// Binds a virtio block device over the file that it was made from.
fn drive(serial: &str, path: &Path) -> Result<(), MountError> {
    let missing = || MountError::NoDevice { serial: serial.to_owned(), path: path.to_path_buf() };
    let devices = fs::read_dir("/sys/block").map_err(|_| missing())?.filter_map(Result::ok);
    let device = devices
        .map(|entry| entry.path())
        .find(|block| fs::read_to_string(block.join("serial")).is_ok_and(|found| found.trim() == serial))
        .ok_or_else(missing)?;
    let node = Path::new("/dev").join(device.file_name().unwrap_or_default());
    let target = below_root(path);
    mount_bind(&node, &target).map_err(|e| failed(&node.display().to_string(), &target, e))
}

fn file_system(kind: &str, target: &str, options: &str) -> Result<(), MountError> {
    let target = Path::new(target);
    directory(target)?;
    mount(kind, target, kind, MountFlags::empty(), text(options).as_deref()).map_err(|e| failed(kind, target, e))
}

fn directory(path: &Path) -> Result<(), MountError> {
    match fs::create_dir_all(path) {
        Ok(()) => Ok(()),
        Err(_) if path.is_dir() => Ok(()),
        Err(source) => Err(MountError::Directory { path: path.to_path_buf(), source }),
    }
}

/// The path under which a program's absolute `path` is reached from outside its root.
fn below_root(path: &Path) -> PathBuf {
    Path::new(ROOT).join(path.strip_prefix("/").unwrap_or(path))
}

fn text(options: &str) -> Option<CString> {
    CString::new(options.as_bytes()).ok().filter(|options| !options.is_empty())
}

fn failed(what: &str, target: &Path, error: rustix::io::Errno) -> MountError {
    MountError::Mount { what: what.to_owned(), target: target.to_path_buf(), source: error.into() }
}
