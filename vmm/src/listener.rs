// SPDX-License-Identifier: Apache-2.0
//! UNIX sockets with a path that others connect to: made, and gone with whoever made them.

use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, Mode, flock};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

/// How many connections wait to be accepted, as of Rust's own listeners.
const BACKLOG: i32 = 128;

/// How long other flatboots may take to make their sockets,
const OTHERS: Duration = Duration::from_secs(1);
/// and how often it is looked whether they have.
const LOOK: Duration = Duration::from_millis(1);

/// A socket's file. It goes with this.
#[derive(Debug)]
pub struct Bound {
    path: PathBuf,
    /// Device and inode: whoever removed it may have put something else there.
    identity: (u64, u64),
    /// As long as it is open, no other file gets the inode.
    _open: File,
}

/// Whether a socket can have that path, of at most `most` bytes; or what would be right.
pub fn check(path: &Path, most: usize) -> Result<(), String> {
    let bytes = path.as_os_str().as_bytes();
    if !(1..=most).contains(&bytes.len()) {
        return Err(format!("must have 1 to {most} bytes"));
    }
    if bytes.contains(&0) { Err("has a zero byte: must have none".to_owned()) } else { Ok(()) }
}

/// Listens at `path`, where there may be a socket that nobody listens at any more; or what is wrong with it.
pub fn bind(path: PathBuf) -> Result<(Bound, UnixListener), String> {
    let _alone = alone_beside(&path);
    let listener = match listen(&path) {
        Err(Errno::ADDRINUSE) => {
            remove_stale(&path)?;
            listen(&path)
        }
        other => other,
    };
    let listener = listener.map_err(cannot_be_made)?;
    let open = File::options().read(true).custom_flags(libc::O_PATH | libc::O_NOFOLLOW).open(&path);
    let open = open.map_err(|error| error.to_string())?;
    let metadata = open.metadata().map_err(|error| error.to_string())?;
    let identity = (metadata.dev(), metadata.ino());
    Ok((Bound { path, identity, _open: open }, listener))
}

/// As long as it is there no other flatboot makes a socket in that directory: two that find a stale one would each remove what is
/// there, and one of them the other's. Whoever else holds that lock is not waited for.
fn alone_beside(path: &Path) -> Option<File> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let directory = File::open(parent).ok()?;
    let until = Instant::now() + OTHERS;
    while flock(&directory, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK)
        && Instant::now() < until
    {
        thread::sleep(LOOK);
    }
    Some(directory)
}

/// Listens at `path` for processes of this user, whatever the umask is: to whoever connects, flatboot does what its user may.
fn listen(path: &Path) -> Result<UnixListener, Errno> {
    let socket = new_socket()?;
    // Before it has a path, from which time on others may find it; its file takes this over.
    rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket.into())
}

fn new_socket() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
}

fn cannot_be_made(error: Errno) -> String {
    match error {
        Errno::NAMETOOLONG => "is too long: must have less than 108 bytes".to_owned(),
        error => {
            let kind = io::Error::from(error).kind();
            format!("cannot be created: {kind}: must be in a directory that exists and is writable")
        }
    }
}

/// Removes what a process that was killed has left behind. Nothing else is touched.
fn remove_stale(path: &Path) -> Result<(), String> {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|metadata| metadata.file_type().is_socket());
    if !is_socket {
        return Err("is there and no socket: must not exist".to_owned());
    }
    match try_connect(path) {
        Err(Errno::CONNREFUSED) => fs::remove_file(path).map_err(|error| format!("cannot be removed: {error}")),
        Err(Errno::NOENT) => Ok(()),
        // One whose queue is full is alive, too.
        Ok(()) | Err(Errno::AGAIN) => Err("is in use by another process: must be used by no other".to_owned()),
        Err(error) => Err(format!("is there and may be in use: {error}: must not exist")),
    }
}

fn try_connect(path: &Path) -> Result<(), Errno> {
    connect(&new_socket()?, &SocketAddrUnix::new(path)?)
}

impl Bound {
    /// Removes the socket's file, if it is still the one.
    pub fn remove(&self) {
        remove(&self.path, self.identity);
    }

    /// Does so for whoever is about to end the process.
    pub fn remover(&self) -> impl Fn() + Send + use<> {
        let (path, identity) = (self.path.clone(), self.identity);
        move || remove(&path, identity)
    }
}

fn remove(path: &Path, identity: (u64, u64)) {
    if fs::symlink_metadata(path).is_ok_and(|metadata| (metadata.dev(), metadata.ino()) == identity) {
        // There is nobody left to tell.
        let _ = fs::remove_file(path);
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        self.remove();
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn only_its_user_connects() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let _socket = bind(path.clone()).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o177, 0);
    }

    #[test]
    fn one_of_many_takes_over_what_is_stale() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        for round in 0..300 {
            drop(UnixListener::bind(&path));
            let together = Barrier::new(4);
            let bind = || {
                together.wait();
                bind(path.clone())
            };
            let bound: Vec<_> = thread::scope(|scope| {
                let threads: Vec<_> = (0..4).map(|_| scope.spawn(bind)).collect();
                threads.into_iter().filter_map(|thread| thread.join().unwrap().ok()).collect()
            });
            assert_eq!(bound.len(), 1, "round {round}");
            assert_eq!(try_connect(&path), Ok(()), "round {round}");
        }
    }

    #[test]
    fn it_is_removed_and_what_others_put_there_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let listen = || bind(path.clone());
        let made = listen().unwrap();
        assert_eq!(listen().unwrap_err(), "is in use by another process: must be used by no other");
        drop(made.1);
        // Nobody listens, but its owner is still there; one that was killed looks the same.
        let taken_over = listen().unwrap();
        drop(made.0);
        assert!(path.exists(), "the second one's");
        drop(taken_over);
        assert!(!path.exists());

        fs::write(&path, "x").unwrap();
        assert_eq!(listen().unwrap_err(), "is there and no socket: must not exist");
        let missing = bind(directory.path().join("no/socket")).unwrap_err();
        assert!(missing.starts_with("cannot be created: entity not found: must be in"), "{missing}");
        let long = bind(directory.path().join("x".repeat(108))).unwrap_err();
        assert_eq!(long, "is too long: must have less than 108 bytes");
    }
}
