// SPDX-License-Identifier: Apache-2.0
//! The identifiers that IPv4 packets get: one generator for each destination, seeded when it is first used.

use std::collections::HashSet;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketType, ipproto, recv, sendto, socket};

use serde_json::json;

use crate::loopback;
use crate::outcome::Outcome;

/// Destinations, 127.0.1.0 and on.
const DESTINATIONS: u8 = 64;
/// Fewer different ones than this among as many random numbers of 16 bits are not to be expected.
const DIFFERENT: usize = 60;
/// A used generator goes on by less than the kernel's ticks since then: a minute of them, at 250 Hz.
const STEP: u16 = 60 * 250;
/// RFC 791: a header of 20 bytes, here before a datagram without content (RFC 768) to port 9, discard.
const HEADER: usize = 20;
const DATAGRAM: [u8; 8] = [0, 9, 0, 9, 0, 8, 0, 0];
const UDP: u8 = 17;

/// Passes if first identifiers differ from destination to destination, and second ones follow the first.
pub(crate) fn identifiers() -> Outcome {
    loopback::up()?;
    let sockets = Sockets::open().map_err(|error| format!("raw sockets: {error}"))?;
    let round = || (0..DESTINATIONS).map(|host| sockets.identifier(host)).collect::<rustix::io::Result<Vec<_>>>();
    let failed = |error| format!("a packet over the loopback: {error}");
    let first = round().map_err(failed)?;
    let second = round().map_err(failed)?;
    let different = first.iter().collect::<HashSet<_>>().len();
    let follow = first.iter().zip(&second).filter(|(a, b)| (1..=STEP).contains(&b.wrapping_sub(**a))).count();
    let good = different >= DIFFERENT && follow == first.len();
    Ok((good, json!({ "first": first, "second": second, "different": different })))
}

struct Sockets {
    sending: OwnedFd,
    receiving: OwnedFd,
}

impl Sockets {
    fn open() -> rustix::io::Result<Self> {
        let raw = |protocol| socket(AddressFamily::INET, SocketType::RAW, Some(protocol));
        let receiving = raw(ipproto::UDP)?;
        set_socket_timeout(&receiving, Timeout::Recv, Some(Duration::from_secs(10)))?;
        // Its packets bring their header, in which the kernel replaces an identifier of 0 (raw(7)).
        let sending = raw(ipproto::RAW)?;
        Ok(Self { sending, receiving })
    }

    /// That of one packet to 127.0.1.`host`.
    fn identifier(&self, host: u8) -> rustix::io::Result<u16> {
        let to = Ipv4Addr::new(127, 0, 1, host);
        let mut packet = [0; HEADER + DATAGRAM.len()];
        packet[0] = 0x45;
        packet[8] = 64;
        packet[9] = UDP;
        packet[16..20].copy_from_slice(&to.octets());
        packet[HEADER..].copy_from_slice(&DATAGRAM);
        sendto(&self.sending, &packet, SendFlags::empty(), &SocketAddrV4::new(to, 0))?;
        loop {
            let mut got = [0; 64];
            let (length, _) = recv(&self.receiving, &mut got, RecvFlags::empty())?;
            if length >= HEADER && got[16..20] == to.octets() {
                return Ok(u16::from_be_bytes([got[4], got[5]]));
            }
        }
    }
}
