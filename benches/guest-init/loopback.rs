// SPDX-License-Identifier: Apache-2.0
//! The loopback interface, which a kernel leaves down until someone sets it up.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::thread;

use rustix::net::sockopt::{Timeout, set_socket_timeout};

use crate::net::PATIENCE;
use crate::rtnetlink;

/// What one connection carries, in bytes: more than its buffers hold, so that the receiver's answers matter.
const CARRIED: usize = 1 << 20;
/// Connections at a time.
const AT_A_TIME: usize = 4;

/// The first interface of a network namespace is always the loopback.
const LOOPBACK: u32 = 1;

/// Sets it up; it gets 127.0.0.1 by itself.
pub(crate) fn up() -> Result<(), String> {
    rtnetlink::up(LOOPBACK)
}

/// A few connections at a time, all bytes through each; how many connections that were.
///
/// Connecting, acknowledging and queueing take memory where nobody can wait for it.
pub(crate) fn connections() -> Result<u64, String> {
    let failed = |error: std::io::Error| format!("TCP over the loopback: {error}");
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    // Who cannot connect says why; whoever waits for it is to end, too.
    set_socket_timeout(&listener, Timeout::Recv, Some(PATIENCE)).map_err(|error| failed(error.into()))?;
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
    fn all_bytes_arrive() {
        assert_eq!(connections(), Ok(AT_A_TIME as u64));
    }
}
