// SPDX-License-Identifier: Apache-2.0
//! passt: a program that is a network for a guest, and makes of the guest's connections connections of its own, as any program may.
//! Nobody needs rights for it. Where it runs as root it becomes nobody; it ends when its VM does, however that ends.

use std::fmt::{self, Display, Formatter};
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsRawFd;
use std::process::{Command, Output, Stdio};
use std::str::FromStr;
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::FdFlags;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair, sockopt};
use serde::{Deserialize, Serialize};

use super::stream::Stream;

const PROGRAM: &str = "passt";
/// What a forwarded port takes connections at, if nothing else is said: this host's own.
const HOME: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// What the socket may keep of each direction, as far as the host lets it: some segments of 64 KiB.
const SOCKET_BUFFER: usize = 4 << 20;
/// How long one that ends may keep its ports, and how often it is looked whether it does.
const GIVES_UP_WITHIN: Duration = Duration::from_secs(5);
const LOOK_AGAIN: Duration = Duration::from_millis(10);
/// What it says where there is no system log, which is no fault.
const NO_LOG: &str = "to syslog";

/// A port of the host that leads to one of the guest's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Forward {
    datagrams: bool,
    /// Of the host; 0.0.0.0 for all that it has.
    address: IpAddr,
    host: u16,
    guest: u16,
}

/// What is no such thing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be [udp/][ADDRESS/]PORT:PORT, a port of the host and one of the guest, 1 to 65535, as in 2222:22")]
pub struct NoForward;

/// Why there is no passt.
#[derive(Debug, thiserror::Error)]
pub enum PasstError {
    /// It is not installed.
    #[error("the program passt was not found: must be installed (Debian: apt-get install passt)")]
    Missing,
    /// It does not start.
    #[error("the program passt cannot be started: {0}")]
    Start(#[from] io::Error),
    /// A port is in use.
    #[error("passt cannot use a port: {0}: must be free, and allowed for this user")]
    Port(String),
    /// It has ended.
    #[error("passt has failed: {0}")]
    Refused(String),
}

impl Forward {
    /// In passt's own words, behind `-t` or `-u`.
    fn argument(&self) -> [String; 2] {
        let option = if self.datagrams { "-u" } else { "-t" };
        [option.to_owned(), format!("{}/{}:{}", self.address, self.host, self.guest)]
    }
}

impl Display for Forward {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.datagrams {
            f.write_str("udp/")?;
        }
        if self.address != HOME {
            write!(f, "{}/", self.address)?;
        }
        write!(f, "{}:{}", self.host, self.guest)
    }
}

impl FromStr for Forward {
    type Err = NoForward;

    fn from_str(text: &str) -> Result<Self, NoForward> {
        let (datagrams, text) = text.strip_prefix("udp/").map_or((false, text), |rest| (true, rest));
        let (address, ports) = match text.split_once('/') {
            Some((address, ports)) => (address.parse().map_err(|_| NoForward)?, ports),
            None => (HOME, text),
        };
        let port = |text: &str| {
            let digits = text.bytes().all(|digit| digit.is_ascii_digit());
            digits.then(|| text.parse().ok()).flatten().filter(|port| *port > 0).ok_or(NoForward)
        };
        let (host, guest) = ports.split_once(':').ok_or(NoForward)?;
        Ok(Self { datagrams, address, host: port(host)?, guest: port(guest)? })
    }
}

impl TryFrom<String> for Forward {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse().map_err(|error| format!("{text}: {error}"))
    }
}

impl From<Forward> for String {
    fn from(forward: Forward) -> Self {
        forward.to_string()
    }
}

/// Starts it, and returns once it takes frames. The guest's packets have `mtu` bytes at most, if that is given.
///
/// With `again`, there was one just before, whose VM has reset: it may need a moment to give up its ports.
pub fn start(forwards: &[Forward], mtu: Option<u16>, again: bool) -> Result<Stream, PasstError> {
    let begin = Instant::now();
    loop {
        match start_once(forwards, mtu) {
            Err(PasstError::Port(_)) if again && begin.elapsed() < GIVES_UP_WITHIN => thread::sleep(LOOK_AGAIN),
            other => return other,
        }
    }
}

fn start_once(forwards: &[Forward], mtu: Option<u16>) -> Result<Stream, PasstError> {
    let (ours, theirs) =
        socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).map_err(io::Error::from)?;
    for end in [&ours, &theirs] {
        // The host bounds it anyway.
        let _ = sockopt::set_socket_send_buffer_size(end, SOCKET_BUFFER);
    }
    // For this one program; nothing else is started meanwhile.
    rustix::io::fcntl_setfd(&theirs, FdFlags::empty()).map_err(io::Error::from)?;
    let mut command = Command::new(PROGRAM);
    // It goes on in the background once all is ready, and until the socket is closed.
    command.args(["--quiet", "--one-off", "--fd", &theirs.as_raw_fd().to_string()]);
    command.args(forwards.iter().flat_map(Forward::argument));
    if let Some(mtu) = mtu {
        command.args(["--mtu", &mtu.to_string()]);
    }
    let output = command.stdin(Stdio::null()).output().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => PasstError::Missing,
        _ => error.into(),
    })?;
    judge(&output)?;
    Ok(Stream::new(ours)?)
}

fn judge(output: &Output) -> Result<(), PasstError> {
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let why = said.lines().rfind(|line| !line.trim().is_empty() && !line.ends_with(NO_LOG));
    let why = why.map_or_else(|| output.status.to_string(), |line| line.trim_end_matches(", exiting").to_owned());
    Err(if why.contains("bind") { PasstError::Port(why) } else { PasstError::Refused(why) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forwards_are_said_as_they_are_read() {
        for (text, argument) in [
            ("2222:22", ["-t", "127.0.0.1/2222:22"]),
            ("0.0.0.0/80:8080", ["-t", "0.0.0.0/80:8080"]),
            ("udp/53:5353", ["-u", "127.0.0.1/53:5353"]),
            ("udp/::1/53:53", ["-u", "::1/53:53"]),
        ] {
            let forward: Forward = text.parse().unwrap();
            assert_eq!((forward.to_string().as_str(), forward.argument()), (text, argument.map(str::to_owned)));
        }
        assert_eq!("127.0.0.1/1:2".parse::<Forward>().unwrap().to_string(), "1:2");
    }

    #[test]
    fn what_is_no_forward_is_refused() {
        for text in
            ["", "22", ":22", "22:", "0:22", "22:0", "+1:22", "65536:1", "x/1:2", "1:2:3", "tcp/1:2", "udp/", "1:2/3"]
        {
            assert_eq!(text.parse::<Forward>(), Err(NoForward), "{text}");
        }
    }
}
