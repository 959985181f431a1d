// SPDX-License-Identifier: Apache-2.0
//! Interfaces, which a kernel leaves down and without addresses until someone sets them up (rtnetlink(7)).

use std::net::Ipv4Addr;

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketType, recv, send, socket};

/// linux/rtnetlink.h, linux/netlink.h, linux/if.h and `linux/if_addr.h`.
const RTM_NEWLINK: u16 = 16;
const RTM_NEWADDR: u16 = 20;
pub(crate) const NLM_F_REQUEST: u16 = 1;
pub(crate) const NLM_F_REQUEST_ACK: u16 = 1 | 4;
const NLM_F_REPLACE: u16 = 0x100;
const NLM_F_CREATE: u16 = 0x400;
const NLMSG_ERROR: u16 = 2;
const IFF_UP: u32 = 1;
const AF_INET: u8 = 2;
const IFA_LOCAL: u16 = 2;
/// Bits of the network's part of an address.
const PREFIX: u8 = 24;

/// Switches interface `index` on.
pub(crate) fn up(index: u32) -> Result<(), String> {
    ask(&set_up(index)).map_err(|error| format!("interface {index} cannot be switched on: {error}"))
}

/// Gives interface `index` an address, whose network has 24 bits.
pub(crate) fn address(index: u32, address: Ipv4Addr) -> Result<(), String> {
    ask(&new_address(index, address)).map_err(|error| format!("interface {index} cannot have {address}: {error}"))
}

fn ask(message: &[u8]) -> Result<(), String> {
    let failed = |error: rustix::io::Errno| error.to_string();
    // Protocol 0 of netlink is the one for routes and interfaces.
    let route = socket(AddressFamily::NETLINK, SocketType::RAW, None).map_err(failed)?;
    send(&route, message, SendFlags::empty()).map_err(failed)?;
    let mut answer = [0; 128];
    let (length, _) = recv(&route, &mut answer, RecvFlags::empty()).map_err(failed)?;
    match code(&answer[..length.min(answer.len())]) {
        Some(0) => Ok(()),
        Some(code) => Err(std::io::Error::from_raw_os_error(-code).to_string()),
        None => Err(format!("not an answer: {:02x?}", &answer[..length.min(answer.len())])),
    }
}

/// A struct nlmsghdr and a struct ifinfomsg.
fn set_up(index: u32) -> [u8; 32] {
    let mut message = [0; 32];
    message[0..4].copy_from_slice(&32u32.to_ne_bytes());
    message[4..6].copy_from_slice(&RTM_NEWLINK.to_ne_bytes());
    message[6..8].copy_from_slice(&NLM_F_REQUEST_ACK.to_ne_bytes());
    message[20..24].copy_from_slice(&index.to_ne_bytes());
    message[24..28].copy_from_slice(&IFF_UP.to_ne_bytes());
    message[28..32].copy_from_slice(&IFF_UP.to_ne_bytes());
    message
}

/// A struct nlmsghdr, a struct ifaddrmsg, and a struct rtattr with the address.
fn new_address(index: u32, address: Ipv4Addr) -> [u8; 32] {
    let mut message = [0; 32];
    message[0..4].copy_from_slice(&32u32.to_ne_bytes());
    message[4..6].copy_from_slice(&RTM_NEWADDR.to_ne_bytes());
    message[6..8].copy_from_slice(&(NLM_F_REQUEST_ACK | NLM_F_REPLACE | NLM_F_CREATE).to_ne_bytes());
    message[16..18].copy_from_slice(&[AF_INET, PREFIX]);
    message[20..24].copy_from_slice(&index.to_ne_bytes());
    message[24..26].copy_from_slice(&8u16.to_ne_bytes());
    message[26..28].copy_from_slice(&IFA_LOCAL.to_ne_bytes());
    message[28..32].copy_from_slice(&address.octets());
    message
}

/// The error code in an acknowledgement; 0 is none.
pub(crate) fn code(answer: &[u8]) -> Option<i32> {
    let kind = u16::from_ne_bytes(*answer.get(4..)?.first_chunk()?);
    let code = i32::from_ne_bytes(*answer.get(16..)?.first_chunk()?);
    (kind == NLMSG_ERROR).then_some(code)
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
}
