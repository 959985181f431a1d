// SPDX-License-Identifier: Apache-2.0
//! State as bytes of a file: a header that says whose they are, and of which version; then JSON. A checksum is over all of it.

use std::io::{self, Read, Write};

use crc::{CRC_32_ISCSI, Crc, Table};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// What every state begins with.
const MAGIC: [u8; 8] = *b"FLATSNAP";
/// What is written and read here. Another content is another version.
pub const VERSION: u32 = 4;
/// Longer is no state: one of 1024 vCPUs has a tenth of that.
const LENGTH_MAX: u64 = 1 << 30;
/// Magic, version, checksum, and the length of what follows; little-endian.
const HEADER: usize = 24;
const VERSION_AT: std::ops::Range<usize> = 8..12;
const CHECKSUM_AT: std::ops::Range<usize> = 12..16;
const LENGTH_AT: std::ops::Range<usize> = 16..24;

/// CRC-32C: every change of 32 neighbouring bits or fewer is seen.
const CRC32C: Crc<u32, Table<16>> = Crc::<u32, Table<16>>::new(&CRC_32_ISCSI);

/// Why a file has no state in it.
#[derive(Debug, thiserror::Error)]
pub enum StateFileError {
    /// It cannot be read.
    #[error("cannot be read")]
    Read(#[source] io::Error),
    /// It is something else.
    #[error("is no state of a VM: must be a file that vm.snapshot has written")]
    Magic,
    /// Another flatboot has written it.
    #[error("is of version {found}: must be of version {VERSION}, which this flatboot has")]
    Version {
        /// Which it is of.
        found: u32,
    },
    /// It is cut off, or longer than it was.
    #[error("has {found} bytes: must have {must}, as it says of itself")]
    Length {
        /// How many it has.
        found: u64,
        /// How many it had.
        must: u64,
    },
    /// It has been changed.
    #[error("is damaged: its checksum is {is:#010x}, must be {must:#010x}")]
    Checksum {
        /// What its bytes have.
        is: u32,
        /// What it says.
        must: u32,
    },
    /// It says what no flatboot of this version writes.
    #[error("has something in it that is no state of a VM")]
    Content(#[source] serde_json::Error),
}

/// Writes `state` to `file`.
pub fn write(state: &impl Serialize, mut file: impl Write) -> io::Result<()> {
    let content = serde_json::to_vec(state).map_err(io::Error::other)?;
    file.write_all(&header(&content))?;
    file.write_all(&content)
}

/// What is before `content` in a file.
pub(crate) fn header(content: &[u8]) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    put(&mut header, 0..MAGIC.len(), &MAGIC);
    put(&mut header, VERSION_AT, &VERSION.to_le_bytes());
    put(&mut header, LENGTH_AT, &(content.len() as u64).to_le_bytes());
    let checksum = checksum(&header, content);
    put(&mut header, CHECKSUM_AT, &checksum.to_le_bytes());
    header
}

/// Reads what [`write`] has written to `file`, and nothing that differs from it in a byte.
pub fn read<T: DeserializeOwned>(file: impl Read) -> Result<T, StateFileError> {
    let mut bytes = Vec::new();
    file.take(LENGTH_MAX).read_to_end(&mut bytes).map_err(StateFileError::Read)?;
    let (header, content) = bytes.split_first_chunk::<HEADER>().ok_or(StateFileError::Magic)?;
    if header.get(..MAGIC.len()) != Some(&MAGIC) {
        return Err(StateFileError::Magic);
    }
    match u32::from_le_bytes(get(header, VERSION_AT)) {
        VERSION => {}
        found => return Err(StateFileError::Version { found }),
    }
    let (found, must) = (content.len() as u64, u64::from_le_bytes(get(header, LENGTH_AT)));
    if found != must {
        let whole = |content: u64| content.saturating_add(HEADER as u64);
        return Err(StateFileError::Length { found: whole(found), must: whole(must) });
    }
    let (is, must) = (checksum(header, content), u32::from_le_bytes(get(header, CHECKSUM_AT)));
    if is != must {
        return Err(StateFileError::Checksum { is, must });
    }
    serde_json::from_slice(content).map_err(StateFileError::Content)
}

/// Of all bytes but its own.
fn checksum(header: &[u8; HEADER], content: &[u8]) -> u32 {
    let mut digest = CRC32C.digest();
    digest.update(header.get(..CHECKSUM_AT.start).unwrap_or_default());
    digest.update(header.get(CHECKSUM_AT.end..).unwrap_or_default());
    digest.update(content);
    digest.finalize()
}

fn put(header: &mut [u8; HEADER], at: std::ops::Range<usize>, bytes: &[u8]) {
    header.iter_mut().skip(at.start).zip(bytes).for_each(|(to, from)| *to = *from);
}

fn get<const N: usize>(header: &[u8; HEADER], at: std::ops::Range<usize>) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.iter_mut().zip(header.iter().skip(at.start)).for_each(|(to, from)| *to = *from);
    bytes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn written(state: &impl Serialize) -> Vec<u8> {
        let mut bytes = Vec::new();
        write(state, &mut bytes).unwrap();
        bytes
    }

    fn read_back(bytes: &[u8]) -> Result<Vec<String>, String> {
        read(bytes).map_err(|error| error.to_string())
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(state in proptest::collection::vec(".*", 0..20)) {
            prop_assert_eq!(read_back(&written(&state)), Ok(state));
        }

        #[test]
        fn a_change_is_refused(
            state in proptest::collection::vec(".*", 1..20),
            at in any::<prop::sample::Index>(),
            change in 1..=u8::MAX,
        ) {
            let mut bytes = written(&state);
            let at = at.index(bytes.len());
            bytes[at] ^= change;
            prop_assert!(read_back(&bytes).is_err());
        }

        #[test]
        fn no_bytes_are_a_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..200), begins in any::<bool>()) {
            if begins && bytes.len() >= 12 {
                bytes[..8].copy_from_slice(&MAGIC);
                bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
            }
            prop_assert!(read_back(&bytes).is_err());
        }
    }

    #[test]
    fn every_damaged_byte_and_every_cut_is_refused() {
        let bytes = written(&["some", "state"]);
        for at in 0..bytes.len() {
            for change in [1, 0x80, 0xff] {
                let mut damaged = bytes.clone();
                damaged[at] ^= change;
                assert!(read_back(&damaged).is_err(), "byte {at} by {change:#x}");
            }
            assert!(read_back(&bytes[..at]).is_err(), "cut at {at}");
        }
        assert!(read_back(&[bytes, vec![0]].concat()).is_err(), "a byte more");
    }

    #[test]
    fn what_is_wrong_is_said() {
        let bytes = written(&["state"]);
        let with = |at: usize, byte: u8| {
            let mut bytes = bytes.clone();
            bytes[at] = byte;
            read_back(&bytes).unwrap_err()
        };
        assert_eq!(with(0, b'X'), "is no state of a VM: must be a file that vm.snapshot has written");
        assert_eq!(with(8, 9), "is of version 9: must be of version 4, which this flatboot has");
        assert!(with(26, b'S').starts_with("is damaged: its checksum is 0x"));
        assert_eq!(read_back(&bytes[..30]).unwrap_err(), "has 30 bytes: must have 33, as it says of itself");
        assert_eq!(read_back(&[]).unwrap_err(), "is no state of a VM: must be a file that vm.snapshot has written");
        assert_eq!(read_back(&written(&7)).unwrap_err(), "has something in it that is no state of a VM");
    }
}
