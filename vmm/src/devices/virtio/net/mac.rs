// SPDX-License-Identifier: Apache-2.0
//! Addresses of network interfaces.

use std::fmt::{self, Display, Formatter};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// An Ethernet address of one station.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Mac([u8; 6]);

/// What is no such address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be six bytes as in 52:54:00:12:34:56, the first one even and not all of them 0")]
pub struct NoMac;

/// First byte, bit 0: the address of a group.
const GROUP: u8 = 1;
/// First byte, bit 1: given out by whoever runs the network, and by no manufacturer.
const LOCAL: u8 = 2;

impl Mac {
    /// The address of interface `index` of the VM that has `seed`: nobody else is likely to have it.
    #[must_use]
    pub fn of(seed: u64, index: usize) -> Self {
        let mut hasher = DefaultHasher::new();
        (seed, index).hash(&mut hasher);
        let [_, _, mut bytes @ ..] = hasher.finish().to_le_bytes();
        let [first, ..] = &mut bytes;
        *first = *first & !GROUP | LOCAL;
        Self(bytes)
    }

    /// The one that has these bytes, whatever they are.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 6]) -> Self {
        Self(bytes)
    }

    /// Its bytes, in the order in which they are sent.
    #[must_use]
    pub const fn bytes(self) -> [u8; 6] {
        self.0
    }
}

impl FromStr for Mac {
    type Err = NoMac;

    fn from_str(text: &str) -> Result<Self, NoMac> {
        let byte = |part: &str| {
            let digits = part.len() == 2 && part.bytes().all(|digit| digit.is_ascii_hexdigit());
            digits.then(|| u8::from_str_radix(part, 16).ok()).flatten().ok_or(NoMac)
        };
        let bytes: Vec<u8> = text.split(':').map(byte).collect::<Result<_, _>>()?;
        let bytes: [u8; 6] = bytes.try_into().map_err(|_| NoMac)?;
        if bytes[0] & GROUP != 0 || bytes == [0; 6] { Err(NoMac) } else { Ok(Self(bytes)) }
    }
}

impl TryFrom<String> for Mac {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse().map_err(|error: NoMac| format!("{text}: {error}"))
    }
}

impl From<Mac> for String {
    fn from(mac: Mac) -> Self {
        mac.to_string()
    }
}

impl Display for Mac {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let [first, rest @ ..] = self.0;
        write!(f, "{first:02x}")?;
        rest.iter().try_for_each(|byte| write!(f, ":{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_written() {
        let mac: Mac = "52:54:00:aB:34:56".parse().unwrap();
        assert_eq!(mac.to_string(), "52:54:00:ab:34:56");
        for wrong in [
            "",
            "52:54:00:12:34",
            "52:54:00:12:34:56:78",
            "53:54:00:12:34:56",
            "00:00:00:00:00:00",
            "52:54:0:12:34:56",
            "52:54:+0:12:34:56",
            "52-54-00-12-34-56",
            "5g:54:00:12:34:56",
        ] {
            assert_eq!(wrong.parse::<Mac>(), Err(NoMac), "{wrong}");
        }
    }

    #[test]
    fn one_of_a_seed_is_local_and_of_one_station() {
        for seed in 0..100 {
            let text = Mac::of(seed, 0).to_string();
            assert_eq!(text.parse::<Mac>().unwrap().bytes()[0] & 3, 2, "{text}");
        }
        assert_eq!(Mac::of(7, 1), Mac::of(7, 1));
        assert!(Mac::of(7, 1) != Mac::of(7, 0) && Mac::of(7, 1) != Mac::of(8, 1));
    }
}
