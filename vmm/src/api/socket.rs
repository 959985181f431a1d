// SPDX-License-Identifier: Apache-2.0
//! The socket that requests come to.

use std::fmt;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;

use rustix::net::{AddressFamily, sockopt};

use crate::inherited;
use crate::listener::{self, Bound};

/// Where requests come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listen {
    /// A socket that is made there, and removed at the end.
    Path(PathBuf),
    /// A listening socket with which this process was started.
    Descriptor(i32),
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => write!(f, "path={}", path.display()),
            Self::Descriptor(number) => write!(f, "fd={number}"),
        }
    }
}

/// The socket of `listen`, which never waits, and its file, if this process has made one; or what is wrong with it.
pub(super) fn bind(listen: Listen) -> Result<(Option<Bound>, UnixListener), String> {
    match listen {
        Listen::Path(path) => listener::bind(path).map(|(bound, listener)| (Some(bound), listener)),
        Listen::Descriptor(number) => Ok((None, inherit(number)?)),
    }
}

fn inherit(number: i32) -> Result<UnixListener, String> {
    const MUST: &str = "must be a listening UNIX socket that this process was started with";
    let socket = inherited::duplicate(number).map_err(|error| format!("{error}: {MUST}"))?;
    let listens = sockopt::socket_acceptconn(&socket).unwrap_or(false)
        && sockopt::socket_domain(&socket).is_ok_and(|family| family == AddressFamily::UNIX);
    if !listens {
        return Err(format!("is something else: {MUST}"));
    }
    let listener = UnixListener::from(socket);
    listener.set_nonblocking(true).map_err(|error| error.to_string())?;
    Ok(listener)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

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
