// SPDX-License-Identifier: Apache-2.0
//! Writes the archive format that Linux unpacks as an initramfs: cpio "newc".
//!
//! Format: Documentation/driver-api/early-userspace/buffer-format.rst of the Linux source. Every header field is eight
//! hexadecimal digits; the name and the data are each padded to four bytes. Owners are root and times zero, so that the
//! same content gives the same bytes.

const MAGIC: &str = "070701";
const DIRECTORY: u32 = 0o040_000;
const REGULAR: u32 = 0o100_000;
const CHARACTER_DEVICE: u32 = 0o020_000;
/// The archive's last entry.
const TRAILER: &str = "TRAILER!!!";

/// An archive that grows in memory.
#[derive(Debug, Default)]
pub struct Archive {
    bytes: Vec<u8>,
    next_inode: u32,
}

/// A file is too large for the format, whose sizes have 32 bits.
#[derive(Debug, thiserror::Error)]
#[error("{name}: {length} bytes do not fit in an initramfs (limit 4 GiB - 1)")]
pub struct TooLarge {
    name: String,
    length: usize,
}

impl Archive {
    /// Adds a directory with the permission bits `mode`. Parents come first.
    pub fn directory(&mut self, name: &str, mode: u32) {
        self.entry(name, DIRECTORY | mode, (0, 0), 0);
    }

    /// Adds a regular file with the permission bits `mode`.
    pub fn file(&mut self, name: &str, mode: u32, data: &[u8]) -> Result<(), TooLarge> {
        let length = u32::try_from(data.len()).map_err(|_| TooLarge { name: name.to_owned(), length: data.len() })?;
        self.entry(name, REGULAR | mode, (0, 0), length);
        self.bytes.extend_from_slice(data);
        self.pad();
        Ok(())
    }

    /// Adds a character device node `major:minor` with the permission bits `mode`.
    pub fn character_device(&mut self, name: &str, mode: u32, major: u32, minor: u32) {
        self.entry(name, CHARACTER_DEVICE | mode, (major, minor), 0);
    }

    /// Ends the archive and gives its bytes.
    #[must_use]
    pub fn finish(mut self) -> Vec<u8> {
        self.entry(TRAILER, 0, (0, 0), 0);
        self.bytes
    }

    fn entry(&mut self, name: &str, mode: u32, (major, minor): (u32, u32), length: u32) {
        self.next_inode += 1;
        let links = if mode & DIRECTORY != 0 { 2 } else { 1 };
        // The name's length counts its NUL. A name is a constant of this crate: it fits.
        let name_length = u32::try_from(name.len() + 1).unwrap_or(u32::MAX);
        // inode, mode, uid, gid, nlink, mtime, size, device major and minor, node major and minor, name length, checksum
        let fields = [self.next_inode, mode, 0, 0, links, 0, length, 0, 0, major, minor, name_length, 0];
        self.bytes.extend_from_slice(MAGIC.as_bytes());
        for field in fields {
            self.bytes.extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_is_padded_to_four_bytes() {
        for length in 0..9 {
            let mut archive = Archive::default();
            archive.file("init", 0o755, &vec![b'x'; length]).unwrap();
            assert_eq!(archive.bytes.len() % 4, 0, "file of {length} bytes");
            assert_eq!(archive.finish().len() % 4, 0);
        }
    }

    #[test]
    fn header_is_110_bytes_of_magic_and_hexadecimal() {
        let mut archive = Archive::default();
        archive.character_device("dev/console", 0o600, 5, 1);
        let header = String::from_utf8(archive.bytes[..110].to_vec()).unwrap();
        assert_eq!(
            header,
            "07070100000001000021800000000000000000000000010000000000000000000000000000000000000005000000010000000c00000000"
        );
        assert_eq!(&archive.bytes[110..122], b"dev/console\0");
    }

    #[test]
    fn ends_with_the_trailer() {
        let bytes = Archive::default().finish();
        assert!(bytes.windows(11).any(|w| w == b"TRAILER!!!\0"));
    }
}
