// SPDX-License-Identifier: Apache-2.0
//! TCP ports, many at once: whose they are, who listens at them, and what the kernel says of them (`sock_diag(7)`).

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketType, bind, listen, netlink, recv, send, socket};
use serde_json::{Value, json};

use crate::loopback;
use crate::outcome::Outcome;
use crate::rtnetlink::{NLM_F_REQUEST, code};
use crate::sockets::{OTHERS, may_open};

/// linux/netlink.h, `linux/sock_diag.h` and `net/tcp_states.h`.
const NLM_F_DUMP: u16 = 0x300;
const NLMSG_DONE: u16 = 3;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const IPPROTO_TCP: u8 = 6;
const LISTENING: u32 = 1 << 10;
const BOUND: u32 = 1 << 13;

/// Passes if `count` sockets have a port each, of IPv4 and then of IPv6: nobody else can have it, what connects to it comes to that
/// socket, and the kernel lists them as bound, then as listening, and none of them once they are closed.
pub(crate) fn ports(count: &str) -> Outcome {
    let count: u16 = count.parse().map_err(|_| format!("ports={count}: must be a number of sockets"))?;
    loopback::up()?;
    may_open(u64::from(count) + OTHERS).map_err(|error| format!("descriptors: {error}"))?;
    let (ipv4, ipv4_report) = of(Ipv4Addr::LOCALHOST.into(), Ipv4Addr::UNSPECIFIED.into(), count)?;
    let (ipv6, ipv6_report) = of(Ipv6Addr::LOCALHOST.into(), Ipv6Addr::UNSPECIFIED.into(), count)?;
    Ok((ipv4 && ipv6, json!({ "ipv4": ipv4_report, "ipv6": ipv6_report })))
}

fn of(local: IpAddr, any: IpAddr, count: u16) -> Result<(bool, Value), String> {
    let failed = |error: io::Error| format!("TCP on {local}: {error}");
    let before = listed(local, BOUND | LISTENING)?;
    let sockets = (0..count).map(|_| at(SocketAddr::new(local, 0))).collect::<io::Result<Vec<_>>>().map_err(failed)?;
    let addresses = sockets.iter().map(TcpListener::local_addr).collect::<io::Result<Vec<_>>>().map_err(failed)?;
    let bound = listed(local, BOUND)?;
    let free = addresses.iter().filter(|own| !is_taken(**own) || !is_taken(SocketAddr::new(any, own.port()))).count();
    sockets.iter().try_for_each(|socket| Ok(listen(socket, 1)?)).map_err(failed)?;
    let listening = listed(local, LISTENING)?;
    let wrong =
        sockets.iter().zip(&addresses).filter(|(socket, own)| !matches!(reached(socket, **own), Ok(true))).count();
    drop(sockets);
    let after = listed(local, BOUND | LISTENING)?;
    let all = usize::from(count);
    let good = (free, wrong) == (0, 0) && (bound, listening, after) == (before + all, before + all, before);
    Ok((good, json!({ "free": free, "wrong": wrong, "listed": [before, bound, listening, after] })))
}

/// A new socket with `address`, or with a port of the kernel's choice.
fn at(address: SocketAddr) -> io::Result<TcpListener> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket(family, SocketType::STREAM, None)?;
    bind(&socket, &address)?;
    Ok(socket.into())
}

fn is_taken(address: SocketAddr) -> bool {
    at(address).is_err_and(|error| error.kind() == io::ErrorKind::AddrInUse)
}

/// Whether it is `socket` to which a connection to its address comes.
fn reached(socket: &TcpListener, address: SocketAddr) -> io::Result<bool> {
    let near = TcpStream::connect(address)?;
    let (_far, from) = socket.accept()?;
    Ok(from == near.local_addr()?)
}

/// How many TCP sockets of the family of `local` are in one of `states`.
fn listed(local: IpAddr, states: u32) -> Result<usize, String> {
    let failed = |error: Errno| format!("sock_diag: {error}");
    let diag = socket(AddressFamily::NETLINK, SocketType::RAW, Some(netlink::SOCK_DIAG)).map_err(failed)?;
    let family = if local.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    send(&diag, &request(family, states), SendFlags::empty()).map_err(failed)?;
    let (mut answer, mut sockets) = (vec![0; 1 << 16], 0);
    loop {
        let (length, _) = recv(&diag, &mut answer, RecvFlags::empty()).map_err(failed)?;
        let (some, done) = count(&answer[..length.min(answer.len())])?;
        sockets += some;
        if done {
            return Ok(sockets);
        }
    }
}

/// A struct nlmsghdr and a struct `inet_diag_req_v2`.
fn request(family: AddressFamily, states: u32) -> [u8; 72] {
    let mut message = [0; 72];
    message[0..4].copy_from_slice(&72u32.to_ne_bytes());
    message[4..6].copy_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    message[6..8].copy_from_slice(&(NLM_F_REQUEST | NLM_F_DUMP).to_ne_bytes());
    message[16..18].copy_from_slice(&[family.as_raw().to_le_bytes()[0], IPPROTO_TCP]);
    message[20..24].copy_from_slice(&states.to_ne_bytes());
    message
}

/// How many sockets a part of the answer lists, and whether it is the last part.
fn count(mut rest: &[u8]) -> Result<(usize, bool), String> {
    let mut sockets = 0;
    while let Some((head, _)) = rest.split_first_chunk::<6>() {
        let length = u32::from_ne_bytes([head[0], head[1], head[2], head[3]]) as usize;
        match u16::from_ne_bytes([head[4], head[5]]) {
            SOCK_DIAG_BY_FAMILY => sockets += 1,
            NLMSG_DONE => return Ok((sockets, true)),
            _ => return Err(format!("sock_diag: error {}", code(rest).unwrap_or_default())),
        }
        rest = rest.get(length.max(16).next_multiple_of(4)..).unwrap_or_default();
    }
    Ok((sockets, false))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_are_counted_until_the_last_part() {
        let message = |kind: u16| [&20u32.to_ne_bytes()[..], &kind.to_ne_bytes(), &[0; 14]].concat();
        let [listed, done, error] = [SOCK_DIAG_BY_FAMILY, NLMSG_DONE, 2].map(message);
        assert_eq!(count(&[listed.clone(), listed.clone()].concat()), Ok((2, false)));
        assert_eq!(count(&[listed.clone(), done, listed.clone()].concat()), Ok((1, true)));
        assert_eq!(count(&[]), Ok((0, false)));
        assert!(count(&[listed, error].concat()).is_err());
    }

    #[test]
    fn a_port_is_taken_while_somebody_has_it() {
        let socket = at((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let own = socket.local_addr().unwrap();
        assert!(is_taken(own) && is_taken((Ipv4Addr::UNSPECIFIED, own.port()).into()));
        listen(&socket, 1).unwrap();
        assert!(reached(&socket, own).unwrap());
    }

    #[test]
    fn what_is_no_number_is_refused() {
        assert_eq!(ports("all").unwrap_err(), "ports=all: must be a number of sockets");
    }
}
