// SPDX-License-Identifier: Apache-2.0
//! The flash that firmware runs from: memory of its own, which the guest can read and not write.

use vm_memory::{Bytes, GuestAddress};

use super::{FirmwareError, Image};
use crate::bits::index;
use crate::layout;
use crate::memory::guest;
use crate::memory::{Backing, GpaRange, GuestMemory, Slot};

/// Copies the image for a read-only memory slot, so that its last byte is the last one below 4 GiB. It is no part of guest memory: no
/// device reads from it or writes to it.
pub fn flash(image: &Image<'_>) -> Result<GuestMemory, FirmwareError> {
    let file = image.file();
    let range = GpaRange::new(layout::FLASH.end - file.length(), layout::FLASH.end);
    let memory = guest::map(&[Slot::new(range, Backing::default())])?;
    if let Err(error) = guest::advise_huge(&memory, range) {
        // As on a host that has none: it costs a fault a page.
        tracing::info!(%range, %error, "no transparent huge pages");
    }
    // Nobody has read from it but at offsets.
    let mut source = file.file();
    memory
        .read_exact_volatile_from(GuestAddress(range.start()), &mut source, index(file.length()))
        .map_err(|source| FirmwareError::Copy { path: file.path().to_owned(), source })?;
    Ok(memory)
}

#[cfg(test)]
mod tests {
    use vm_memory::{GuestMemoryBackend, GuestMemoryRegion};

    use super::*;
    use crate::config::InputFile;
    use crate::images::firmware;

    #[test]
    fn the_image_ends_at_4_gib_and_the_file_is_not_needed_any_more() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), firmware()).unwrap();
        let input = InputFile::open(crate::config::FIRMWARE, file.path()).unwrap();
        let flash = flash(&Image::inspect(&input).unwrap()).unwrap();
        file.as_file().set_len(0).unwrap();
        let ranges = flash.iter().map(|region| (region.start_addr().0, region.len()));
        assert!(ranges.eq([(0xffff_0000, 64 << 10)]));
        let mut content = vec![0; 64 << 10];
        flash.read_slice(&mut content, GuestAddress(0xffff_0000)).unwrap();
        assert_eq!(content, firmware());
    }
}
