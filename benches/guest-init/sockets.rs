// SPDX-License-Identifier: Apache-2.0
//! TCP connections and UDP sockets, many at once: each is found by what arrives for it, and all of them are listed.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener, TcpStream, UdpSocket};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;

use crate::loopback;
use crate::outcome::Outcome;

/// What /proc/net/tcp says of a connection that is up.
const ESTABLISHED: &str = "01";
/// Descriptors of a process besides those of the connections.
pub(crate) const OTHERS: u64 = 64;

/// Passes if `count` connections over the loopback carry what they should, each its own, and /proc/net/tcp lists both ends of each,
/// and none of them before and after.
pub(crate) fn sockets(count: &str) -> Outcome {
    let count: u16 = count.parse().map_err(|_| format!("sockets={count}: must be a number of connections"))?;
    loopback::up()?;
    let failed = |error: io::Error| format!("TCP over the loopback: {error}");
    may_open(2 * u64::from(count) + OTHERS).map_err(|error| format!("descriptors: {error}"))?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed)?;
    let port = listener.local_addr().map_err(failed)?.port();
    let before = listed(port)?;
    let pairs = (0..count).map(|_| pair(&listener, port)).collect::<io::Result<Vec<_>>>().map_err(failed)?;
    let wrong = pairs.iter().zip(0..).filter(|(pair, number)| carried(pair, *number).is_err()).count();
    let during = listed(port)?;
    drop(pairs);
    let after = listed(port)?;
    let good = wrong == 0 && (before, during, after) == (0, 2 * usize::from(count), 0);
    Ok((good, json!({ "connections": count, "wrong": wrong, "listed": [before, during, after] })))
}

/// Passes if `count` UDP sockets, every other one of IPv6, are all listed in /proc/net, each receives what was sent to it and
/// nothing else, and none of them is listed once they are closed.
pub(crate) fn datagrams(count: &str) -> Outcome {
    let count: u16 = count.parse().map_err(|_| format!("datagrams={count}: must be a number of sockets"))?;
    loopback::up()?;
    let failed = |error: io::Error| format!("UDP over the loopback: {error}");
    may_open(u64::from(count) + OTHERS).map_err(|error| format!("descriptors: {error}"))?;
    let before = bound()?;
    let sockets = (0..count).map(|number| receiver(local(number))).collect::<io::Result<Vec<_>>>().map_err(failed)?;
    let during = bound()?;
    let senders = [receiver(local(0)).map_err(failed)?, receiver(local(1)).map_err(failed)?];
    for (socket, number) in sockets.iter().zip(0..count) {
        let sender = &senders[usize::from(number % 2)];
        let sent = socket.local_addr().and_then(|address| sender.send_to(&number.to_le_bytes(), address));
        sent.map_err(failed)?;
    }
    let wrong = sockets.iter().zip(0..count).filter(|(socket, number)| !only(socket, *number)).count();
    drop((sockets, senders));
    let listed = [before, during - before, bound()?];
    Ok((wrong == 0 && listed == [before, usize::from(count), before], json!({ "wrong": wrong, "listed": listed })))
}

fn local(number: u16) -> IpAddr {
    if number.is_multiple_of(2) { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() }
}

/// A new socket at a port of the kernel's choice, which does not wait.
fn receiver(address: IpAddr) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind((address, 0))?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Whether `number` came to `socket`, and that was all.
fn only(socket: &UdpSocket, number: u16) -> bool {
    let mut came = [0; 8];
    matches!(socket.recv(&mut came), Ok(2))
        && came.starts_with(&number.to_le_bytes())
        && socket.recv(&mut came).is_err()
}

/// UDP sockets that have a port.
fn bound() -> Result<usize, String> {
    let listed = |path: &str| {
        fs::read_to_string(path).map(|table| table.lines().skip(1).count()).map_err(|error| format!("{path}: {error}"))
    };
    Ok(listed("/proc/net/udp")? + listed("/proc/net/udp6")?)
}

pub(crate) fn may_open(descriptors: u64) -> rustix::io::Result<()> {
    let limit = getrlimit(Resource::Nofile);
    let enough = |limit: Option<u64>| limit.map(|limit| limit.max(descriptors));
    setrlimit(Resource::Nofile, Rlimit { current: enough(limit.current), maximum: enough(limit.maximum) })
}

/// Both ends of a new connection.
fn pair(listener: &TcpListener, port: u16) -> io::Result<[TcpStream; 2]> {
    let near = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    let (far, _) = listener.accept()?;
    Ok([near, far])
}

/// A number goes there, and its complement comes back.
fn carried([near, far]: &[TcpStream; 2], number: u16) -> io::Result<()> {
    let (mut near, mut far) = (near, far);
    near.write_all(&number.to_le_bytes())?;
    let mut came = [0; 2];
    far.read_exact(&mut came)?;
    far.write_all(&(!u16::from_le_bytes(came)).to_le_bytes())?;
    near.read_exact(&mut came)?;
    if u16::from_le_bytes(came) == !number { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) }
}

/// Ends of connections with `port` that are up.
fn listed(port: u16) -> Result<usize, String> {
    let table = fs::read_to_string("/proc/net/tcp").map_err(|error| format!("/proc/net/tcp: {error}"))?;
    Ok(count(&table, port))
}

/// Lines of a table as proc(5) has it: number, local and remote address with port, state.
fn count(table: &str, port: u16) -> usize {
    let port = format!(":{port:04X}");
    let is_of = |line: &&str| {
        let mut fields = line.split_whitespace().skip(1);
        let mut next = || fields.next().unwrap_or_default();
        let (local, remote, state) = (next(), next(), next());
        (local.ends_with(&port) || remote.ends_with(&port)) && state == ESTABLISHED
    };
    table.lines().skip(1).filter(is_of).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_that_are_up_count() {
        let table = "  sl  local_address rem_address   st\n   0: 0100007F:1F90 00000000:0000 0A 0\n\
                     1: 0100007F:1F90 0100007F:C350 01 0\n   2: 0100007F:C350 0100007F:1F90 01 0\n\
                     3: 0100007F:C351 0100007F:1F91 01 0\n   4: 0100007F:C352 0100007F:1F90 06 0\n";
        assert_eq!(count(table, 8080), 2);
        assert_eq!(count(table, 8081), 1);
        assert_eq!(count("", 8080), 0);
    }

    #[test]
    fn what_came_alone_is_told_from_what_did_not() {
        let [socket, sender] = [(), ()].map(|()| receiver(local(0)).unwrap());
        let send = |number: u16| sender.send_to(&number.to_le_bytes(), socket.local_addr().unwrap()).unwrap();
        assert!(!only(&socket, 7));
        send(7);
        assert!(only(&socket, 7));
        send(8);
        assert!(!only(&socket, 7));
        for _ in 0..2 {
            send(7);
        }
        assert!(!only(&socket, 7));
    }

    #[test]
    fn what_is_no_number_is_refused() {
        assert_eq!(sockets("many").unwrap_err(), "sockets=many: must be a number of connections");
        assert_eq!(datagrams("65536").unwrap_err(), "datagrams=65536: must be a number of sockets");
    }
}
