// SPDX-License-Identifier: Apache-2.0
//! The checksum of a table.

use crc::{CRC_32_ISCSI, Crc, Table};

use crate::wire;

/// CRC-32C (Castagnoli), the one that Linux's `crc32c()` and SSE 4.2 compute, with its usual initial value and final inversion.
const CRC32C: Crc<u32, Table<1>> = Crc::<u32, Table<1>>::new(&CRC_32_ISCSI);

/// Checksum of a whole table with its checksum field taken as zero.
pub(crate) fn of_table(table: &[u8]) -> u32 {
    let (before, rest) = table.split_at(wire::CRC32C_OFFSET.min(table.len()));
    let after = rest.get(size_of::<u32>()..).unwrap_or_default();

    let mut digest = CRC32C.digest();
    digest.update(before);
    digest.update(&[0; size_of::<u32>()]);
    digest.update(after);
    digest.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_the_castagnoli_crc() {
        // Check value of the CRC catalogue, and RFC 3720 B.4: 32 bytes of zeroes.
        assert_eq!(CRC32C.checksum(b"123456789"), 0xe306_9283);
        assert_eq!(CRC32C.checksum(&[0; 32]), 0x8a91_36aa);
    }

    #[test]
    fn ignores_what_the_checksum_field_holds() {
        let mut table = [7; 64];
        let sum = of_table(&table);
        table[wire::CRC32C_OFFSET..][..4].copy_from_slice(&[1, 2, 3, 4]);
        assert_eq!(of_table(&table), sum);
        table[0] = 6;
        assert_ne!(of_table(&table), sum);
    }
}
