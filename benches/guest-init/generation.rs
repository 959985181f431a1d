// SPDX-License-Identifier: Apache-2.0
//! The VM generation ID, where the DSDT says it is.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use serde_json::json;

use crate::outcome::Outcome;

const TABLE: &str = "/sys/firmware/acpi/tables/DSDT";
const MEMORY: &str = "/dev/mem";
/// AML: a name, and what begins a package and a number of 32 bits (ACPI 6.5, section 20.2).
const NAME: &[u8] = b"ADDR";
const PACKAGE: u8 = 0x12;
const DWORD: u8 = 0x0c;

/// The VM generation ID, found.
pub(crate) struct Generation {
    memory: File,
    address: u64,
}

impl Generation {
    pub(crate) fn find() -> Result<Self, String> {
        let table = fs::read(TABLE).map_err(|error| format!("{TABLE}: {error}"))?;
        let address = address(&table).ok_or_else(|| format!("{TABLE}: no VM generation ID"))?;
        Ok(Self { memory: File::open(MEMORY).map_err(|error| format!("{MEMORY}: {error}"))?, address })
    }

    /// Nobody is told that it is another one by this.
    pub(crate) fn read(&self) -> Result<[u8; 16], String> {
        let mut id = [0; 16];
        let read = self.memory.read_exact_at(&mut id, self.address);
        read.map_err(|error| format!("{MEMORY} at {:#x}: {error}", self.address))?;
        Ok(id)
    }
}

/// What it is.
pub(crate) fn generation() -> Outcome {
    let id = Generation::find()?.read()?;
    let text = format!("{:032x}", u128::from_be_bytes(id));
    Ok((id != [0; 16], json!({ "id": text })))
}

/// The low half of the address: `Name(ADDR, Package() { LOW, HIGH })`, below 4 GiB.
fn address(table: &[u8]) -> Option<u64> {
    let at = table.windows(NAME.len()).position(|window| window == NAME)?;
    match table.get(at + NAME.len()..)? {
        &[PACKAGE, _length, 2, DWORD, a, b, c, d, ..] => Some(u32::from_le_bytes([a, b, c, d]).into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_found_in_its_package() {
        let table = b"xxADDR\x12\x08\x02\x0c\x00\x10\xa0\xfe\x00rest";
        assert_eq!(address(table), Some(0xfea0_1000));
        assert_eq!(address(b"ADDR\x12\x08"), None);
        assert_eq!(address(b""), None);
    }
}
