// SPDX-License-Identifier: Apache-2.0
//! The loopback interface, which a kernel leaves down until someone sets it up.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::thread;

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketType, recv, send, socket};

/// What one connection carries, in bytes: more than its buffers hold, so that the receiver's answers matter.
const CARRIED: usize = 1 << 20;
/// Connections at a time.
const AT_A_TIME: usize = 4;

/// linux/rtnetlink.h, linux/netlink.h and linux/if.h.
const RTM_NEWLINK: u16 = 16;
const NLM_F_REQUEST_ACK: u16 = 1 | 4;
const NLMSG_ERROR: u16 = 2;
const IFF_UP: u32 = 1;
/// The first interface of a network namespace is always the loopback.
const LOOPBACK: u32 = 1;

/// Sets it up; it gets 127.0.0.1 by itself.
pub(crate) fn up() -> Result<(), String> {
    let failed = |error: rustix::io::Errno| format!("loopback: {error}");
    // Protocol 0 of netlink is the one for routes and interfaces.
    let route = socket(AddressFamily::NETLINK, SocketType::RAW, None).map_err(failed)?;
    send(&route, &set_up(), SendFlags::empty()).map_err(failed)?;
    let mut answer = [0; 128];
    let (length, _) = recv(&route, &mut answer, RecvFlags::empty()).map_err(failed)?;
    match code(&answer[..length.min(answer.len())]) {
        Some(0) => Ok(()),
        Some(code) => Err(format!("loopback: {}", std::io::Error::from_raw_os_error(-code))),
        None => Err(format!("loopback: not an answer: {:02x?}", &answer[..length.min(answer.len())])),
    }
}

/// A struct nlmsghdr and a struct ifinfomsg.
fn set_up() -> [u8; 32] {
    let mut message = [0; 32];
    message[0..4].copy_from_slice(&32u32.to_ne_bytes());
    message[4..6].copy_from_slice(&RTM_NEWLINK.to_ne_bytes());
    message[6..8].copy_from_slice(&NLM_F_REQUEST_ACK.to_ne_bytes());
    message[20..24].copy_from_slice(&LOOPBACK.to_ne_bytes());
    message[24..28].copy_from_slice(&IFF_UP.to_ne_bytes());
    message[28..32].copy_from_slice(&IFF_UP.to_ne_bytes());
    message
}

/// The error code in an acknowledgement; 0 is none.
fn code(answer: &[u8]) -> Option<i32> {
    let kind = u16::from_ne_bytes(*answer.get(4..)?.first_chunk()?);
    let code = i32::from_ne_bytes(*answer.get(16..)?.first_chunk()?);
    (kind == NLMSG_ERROR).then_some(code)
}

/// A few connections at a time, all bytes through each; how many connections that were.
///
/// Connecting, acknowledging and queueing take memory where nobody can wait for it.
pub(crate) fn connections() -> Result<u64, String> {
    let failed = |error: std::io::Error| format!("TCP over the loopback: {error}");
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    let received = thread::scope(|scope| {
        let servers: Vec<_> = (0..AT_A_TIME).map(|_| scope.spawn(|| serve(&listener))).collect();
        let clients: Vec<_> = (0..AT_A_TIME).map(|_| scope.spawn(move || fill(address))).collect();
        let sent: Vec<_> = clients.into_iter().map(|client| client.join().unwrap_or_else(|_| died())).collect();
        let received: Vec<_> = servers.into_iter().map(|server| server.join().unwrap_or_else(|_| died())).collect();
        sent.into_iter().collect::<std::io::Result<()>>()?;
        received.into_iter().collect::<std::io::Result<Vec<usize>>>()
    });
    let received = received.map_err(failed)?;
    if received.iter().all(|bytes| *bytes == CARRIED) {
        Ok(received.len() as u64)
    } else {
        Err(format!("TCP over the loopback: {received:?} bytes came, {CARRIED} were sent on each connection"))
    }
}

fn died<T>() -> std::io::Result<T> {
    Err(std::io::Error::other("a thread died"))
}

fn serve(listener: &TcpListener) -> std::io::Result<usize> {
    let (mut stream, _) = listener.accept()?;
    stream.read_to_end(&mut Vec::new())
}

fn fill(address: std::net::SocketAddr) -> std::io::Result<()> {
    let mut stream = TcpStream::connect(address)?;
    stream.write_all(&vec![0xa5; CARRIED])?;
    stream.shutdown(Shutdown::Write)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers() {
        let mut answer = [0; 36];
        answer[4] = 2;
        assert_eq!(code(&answer), Some(0));
        answer[16..20].copy_from_slice(&(-1i32).to_ne_bytes());
        assert_eq!(code(&answer), Some(-1));
        answer[4] = 3;
        assert_eq!((code(&answer), code(&answer[..19])), (None, None));
    }

    #[test]
    fn all_bytes_arrive() {
        assert_eq!(connections(), Ok(AT_A_TIME as u64));
    }
}
