// SPDX-License-Identifier: Apache-2.0
//! How many pairs of queues an interface uses, as `ethtool -L` sets it: by generic netlink (Documentation/networking/ethtool-netlink.rst).

use std::fs;

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketType, netlink, recv, send, socket};

use serde_json::json;

use crate::net::{INTERFACE, statistic};
use crate::outcome::Outcome;
use crate::rtnetlink::{NLM_F_REQUEST, NLM_F_REQUEST_ACK, code};

/// linux/genetlink.h and `linux/ethtool_netlink.h`.
const GENL_ID_CTRL: u16 = 16;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;
const ETHTOOL_MSG_CHANNELS_SET: u8 = 18;
const ETHTOOL_A_CHANNELS_HEADER: u16 = 1;
const ETHTOOL_A_CHANNELS_COMBINED_COUNT: u16 = 9;
const ETHTOOL_A_HEADER_DEV_INDEX: u16 = 1;
const NLA_F_NESTED: u16 = 0x8000;
/// Both headers of a message.
const HEADERS: usize = 20;

/// `pairs`: the interface uses so many from now on.
pub(crate) fn channels(argument: &str) -> Outcome {
    let pairs: u32 = argument.parse().map_err(|_| format!("channels={argument}: must be a number of pairs"))?;
    let index = u32::try_from(statistic("ifindex")?).map_err(|error| error.to_string())?;
    let before = queues()?;
    set(index, pairs).map_err(|error| format!("channels={pairs}: {error}"))?;
    let [receive, send] = queues()?;
    let report = json!({ "before_rx": before[0], "before_tx": before[1], "rx": receive, "tx": send });
    Ok((receive == u64::from(pairs) && send == receive, report))
}

/// How many queues for each direction are used, as sysfs says.
fn queues() -> Result<[u64; 2], String> {
    let path = format!("/sys/class/net/{INTERFACE}/queues");
    let mut queues = [0; 2];
    for entry in fs::read_dir(&path).map_err(|error| format!("{path}: {error}"))? {
        let name = entry.map_err(|error| format!("{path}: {error}"))?.file_name();
        let name = name.to_string_lossy();
        queues[0] += u64::from(name.starts_with("rx-"));
        queues[1] += u64::from(name.starts_with("tx-"));
    }
    Ok(queues)
}

fn set(index: u32, pairs: u32) -> Result<(), String> {
    let family = family(&ask(&message(GENL_ID_CTRL, NLM_F_REQUEST, CTRL_CMD_GETFAMILY, &name("ethtool")))?)
        .ok_or("the kernel has no ethtool by netlink")?;
    let header = attribute(
        ETHTOOL_A_CHANNELS_HEADER | NLA_F_NESTED,
        &attribute(ETHTOOL_A_HEADER_DEV_INDEX, &index.to_ne_bytes()),
    );
    let count = attribute(ETHTOOL_A_CHANNELS_COMBINED_COUNT, &pairs.to_ne_bytes());
    let answer = ask(&message(family, NLM_F_REQUEST_ACK, ETHTOOL_MSG_CHANNELS_SET, &[header, count].concat()))?;
    match code(&answer) {
        Some(0) => Ok(()),
        Some(code) => Err(std::io::Error::from_raw_os_error(-code).to_string()),
        None => Err(format!("not an answer: {answer:02x?}")),
    }
}

fn ask(message: &[u8]) -> Result<Vec<u8>, String> {
    let failed = |error: rustix::io::Errno| error.to_string();
    let generic = socket(AddressFamily::NETLINK, SocketType::RAW, Some(netlink::GENERIC)).map_err(failed)?;
    send(&generic, message, SendFlags::empty()).map_err(failed)?;
    let mut answer = vec![0; 8192];
    let (length, _) = recv(&generic, &mut answer, RecvFlags::empty()).map_err(failed)?;
    answer.truncate(length);
    Ok(answer)
}

/// A struct nlmsghdr and a struct genlmsghdr before `attributes`.
fn message(kind: u16, flags: u16, command: u8, attributes: &[u8]) -> Vec<u8> {
    let length = u32::try_from(HEADERS + attributes.len()).unwrap_or(u32::MAX);
    let mut message = length.to_ne_bytes().to_vec();
    message.extend(kind.to_ne_bytes());
    message.extend(flags.to_ne_bytes());
    // Its number, whose it is, and the version of the command.
    message.extend([0; 8]);
    message.extend([command, 1, 0, 0]);
    message.extend(attributes);
    message
}

/// A struct nlattr, what is in it, and what fills the last word.
fn attribute(kind: u16, content: &[u8]) -> Vec<u8> {
    let length = u16::try_from(4 + content.len()).unwrap_or(u16::MAX);
    let mut attribute = length.to_ne_bytes().to_vec();
    attribute.extend(kind.to_ne_bytes());
    attribute.extend(content);
    attribute.resize(attribute.len().next_multiple_of(4), 0);
    attribute
}

fn name(family: &str) -> Vec<u8> {
    attribute(CTRL_ATTR_FAMILY_NAME, &[family.as_bytes(), &[0]].concat())
}

/// The family's number in what the kernel says of it.
fn family(answer: &[u8]) -> Option<u16> {
    if code(answer).is_some() {
        return None;
    }
    let mut rest = answer.get(HEADERS..)?;
    while let Some((head, _)) = rest.split_first_chunk::<4>() {
        let (length, kind) = (u16::from_ne_bytes([head[0], head[1]]), u16::from_ne_bytes([head[2], head[3]]));
        if kind == CTRL_ATTR_FAMILY_ID {
            return rest.get(4..6)?.try_into().ok().map(u16::from_ne_bytes);
        }
        rest = rest.get(usize::from(length).max(4).next_multiple_of(4)..)?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_fill_words() {
        let name = name("ethtool");
        assert_eq!((name.len(), &name[..4], &name[4..]), (12, &[12, 0, 2, 0][..], &b"ethtool\0"[..]));
        assert_eq!(attribute(1, &[7]), [5, 0, 1, 0, 7, 0, 0, 0]);
        assert_eq!(message(16, 1, 3, &[9; 4]).first_chunk(), Some(&24u32.to_ne_bytes()));
    }

    #[test]
    fn a_family_is_found() {
        let attributes = [name("ethtool"), attribute(CTRL_ATTR_FAMILY_ID, &21u16.to_ne_bytes())].concat();
        let answer = message(GENL_ID_CTRL, 0, 1, &attributes);
        assert_eq!(family(&answer), Some(21));
        for length in 0..answer.len() - 4 {
            assert_eq!(family(&answer[..length]), None);
        }
        let mut none = message(2, 0, 0, &[]);
        none[16..20].copy_from_slice(&(-2i32).to_ne_bytes());
        assert_eq!(family(&none), None);
    }
}
