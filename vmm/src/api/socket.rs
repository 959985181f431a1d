// SPDX-License-Identifier: Apache-2.0
//! The socket that requests come to.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with, sockopt};

use super::Listen;
use crate::inherited;

/// A socket's file, if this process made one. It goes with this.
#[derive(Debug)]
pub(super) struct Bound(Option<Made>);

#[derive(Debug)]
struct Made {
    path: PathBuf,
    /// Whoever removed it may have put something else there.
    identity: Identity,
}

/// Device, inode, and when it was made, in nanoseconds: numbers of inodes are used again at once.
type Identity = (u64, u64, i64, i64);

fn identity(metadata: &fs::Metadata) -> Identity {
    (metadata.dev(), metadata.ino(), metadata.mtime(), metadata.mtime_nsec())
}

/// The socket of `listen`, which never waits; or what is wrong with it.
pub(super) fn bind(listen: Listen) -> Result<(Bound, UnixListener), String> {
    let (bound, listener) = match listen {
        Listen::Path(path) => make(path)?,
        Listen::Descriptor(number) => (Bound(None), inherit(number)?),
    };
    listener.set_nonblocking(true).map_err(|error| error.to_string())?;
    Ok((bound, listener))
}

fn make(path: PathBuf) -> Result<(Bound, UnixListener), String> {
    let listener = match UnixListener::bind(&path) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            remove_stale(&path)?;
            UnixListener::bind(&path)
        }
        other => other,
    };
    let listener = listener.map_err(|error| cannot_be_made(&error))?;
    let metadata = fs::symlink_metadata(&path).map_err(|error| error.to_string())?;
    let identity = identity(&metadata);
    Ok((Bound(Some(Made { path, identity })), listener))
}

fn cannot_be_made(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::InvalidInput => "is too long: must have less than 108 bytes".to_owned(),
        kind => format!("cannot be created: {kind}: must be in a directory that exists and is writable"),
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
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let probe = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&probe, &SocketAddrUnix::new(path)?)
}

fn inherit(number: i32) -> Result<UnixListener, String> {
    const MUST: &str = "must be a listening UNIX socket that this process was started with";
    let socket = inherited::duplicate(number).map_err(|error| format!("{error}: {MUST}"))?;
    let listens = sockopt::socket_acceptconn(&socket).unwrap_or(false)
        && sockopt::socket_domain(&socket).is_ok_and(|family| family == AddressFamily::UNIX);
    if listens { Ok(socket.into()) } else { Err(format!("is something else: {MUST}")) }
}

impl Bound {
    /// Removes the socket's file, if it is still the one.
    pub(super) fn remove(&self) {
        let Some(Made { path, identity }) = &self.0 else { return };
        if fs::symlink_metadata(path).is_ok_and(|metadata| self::identity(&metadata) == *identity) {
            // There is nobody left to tell.
            let _ = fs::remove_file(path);
        }
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        self.remove();
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn it_is_removed_and_what_others_put_there_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let listen = || bind(Listen::Path(path.clone()));
        let made = listen().unwrap();
        assert_eq!(listen().unwrap_err(), "is in use by another process: must be used by no other");
        drop(made.1);
        // A file system's clock may stand still for so long.
        std::thread::sleep(std::time::Duration::from_millis(20));
        // Nobody listens, but its owner is still there; one that was killed looks the same.
        let taken_over = listen().unwrap();
        drop(made.0);
        assert!(path.exists(), "the second one's");
        drop(taken_over);
        assert!(!path.exists());

        fs::write(&path, "x").unwrap();
        assert_eq!(listen().unwrap_err(), "is there and no socket: must not exist");
        let missing = bind(Listen::Path(directory.path().join("no/socket"))).unwrap_err();
        assert!(missing.starts_with("cannot be created: entity not found: must be in"), "{missing}");
        let long = bind(Listen::Path(directory.path().join("x".repeat(108)))).unwrap_err();
        assert_eq!(long, "is too long: must have less than 108 bytes");
    }

    #[test]
    fn only_a_listening_socket_can_be_inherited() {
        let directory = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(directory.path().join("socket")).unwrap();
        bind(Listen::Descriptor(listener.as_raw_fd())).unwrap();
        let file = tempfile::tempfile().unwrap();
        let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        for number in [1 << 20, file.as_raw_fd(), tcp.as_raw_fd()] {
            let error = bind(Listen::Descriptor(number)).unwrap_err();
            assert!(error.ends_with("must be a listening UNIX socket that this process was started with"), "{error}");
        }
    }
}
