// SPDX-License-Identifier: Apache-2.0
//! Whether a file is firmware.

use std::io;
use std::os::unix::fs::FileExt;

use super::FirmwareError;
use crate::bits::index;
use crate::config::InputFile;
use crate::layout::PAGE_SIZE;

/// Bytes at the end that the processor starts in.
const RESET_VECTOR: usize = 16;
/// Signature of a firmware volume, and its offset in the volume's header (UEFI Platform Initialization 1.7, volume 3,
/// section 3.2.1).
const VOLUME_SIGNATURE: [u8; 4] = *b"_FVH";
const VOLUME_SIGNATURE_OFFSET: u64 = 40;

/// A firmware image that passed every check which needs no guest.
#[derive(Debug)]
pub struct Image<'a>(&'a InputFile);

impl<'a> Image<'a> {
    /// Checks what gives a wrong file away: its end, and that there is a firmware volume in it.
    pub fn inspect(file: &'a InputFile) -> Result<Self, FirmwareError> {
        let found = look(file).map_err(|source| FirmwareError::Read { path: file.path().to_owned(), source })?;
        match found {
            None => Ok(Self(file)),
            Some(found) => Err(FirmwareError::Unknown { path: file.path().to_owned(), found }),
        }
    }

    /// The file.
    #[must_use]
    pub fn file(&self) -> &InputFile {
        self.0
    }
}

/// What is wrong with the file, if anything is.
fn look(file: &InputFile) -> io::Result<Option<&'static str>> {
    let mut end = [0; RESET_VECTOR];
    file.file().read_exact_at(&mut end, file.length().saturating_sub(RESET_VECTOR as u64))?;
    for (byte, found) in [
        (0x00, "its last 16 bytes, where the processor starts, are all 0x00"),
        (0xff, "its last 16 bytes, where the processor starts, are all 0xff"),
    ] {
        if end == [byte; RESET_VECTOR] {
            return Ok(Some(found));
        }
    }
    for page in (0..file.length()).step_by(index(PAGE_SIZE)) {
        let mut signature = [0; 4];
        file.file().read_exact_at(&mut signature, page + VOLUME_SIGNATURE_OFFSET)?;
        if signature == VOLUME_SIGNATURE {
            return Ok(None);
        }
    }
    Ok(Some("no EFI firmware volume (_FVH) begins at a multiple of 4 KiB"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::images::firmware;

    fn verdict(bytes: &[u8]) -> Result<(), String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        let input = InputFile::open(crate::config::FIRMWARE, file.path()).unwrap();
        let path = file.path().display().to_string();
        Image::inspect(&input).map(|_| ()).map_err(|error| error.to_string().replace(&path, "@"))
    }

    #[test]
    fn what_is_no_firmware_is_named() {
        assert_eq!(verdict(&firmware()), Ok(()));
        let not = |found: &str| {
            Err(format!("firmware @: not firmware: {found}; an EDK2 image for QEMU's microvm machine is needed"))
        };
        for (byte, shown) in [(0, "0x00"), (0xff, "0xff")] {
            let mut image = firmware();
            let end = image.len() - 16;
            image[end..].fill(byte);
            assert_eq!(
                verdict(&image),
                not(&format!("its last 16 bytes, where the processor starts, are all {shown}"))
            );
        }
        let mut image = firmware();
        image.retain(|byte| *byte != b'_');
        image.resize(64 << 10, 1);
        assert_eq!(verdict(&image), not("no EFI firmware volume (_FVH) begins at a multiple of 4 KiB"));
    }

    #[test]
    fn a_volume_may_begin_at_any_page() {
        for page in 0..16 {
            let mut image = vec![0; 64 << 10];
            image[page * 4096 + 40..][..4].copy_from_slice(b"_FVH");
            image[(64 << 10) - 16] = 0x90;
            assert_eq!(verdict(&image), Ok(()));
        }
    }

    #[test]
    fn a_file_that_has_shrunk_is_an_error() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), firmware()).unwrap();
        let input = InputFile::open(crate::config::FIRMWARE, file.path()).unwrap();
        file.as_file().set_len(100).unwrap();
        let error = Image::inspect(&input).unwrap_err().to_string();
        assert_eq!(error, format!("firmware {}: cannot be read", file.path().display()));
    }
}
