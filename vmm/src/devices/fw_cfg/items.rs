// SPDX-License-Identifier: Apache-2.0
//! The items by key, and the directory of those that are files.

use std::collections::BTreeMap;

use super::content::Content;
use crate::bits::{low16, low32};

/// Keys (QEMU, `include/standard-headers/linux/qemu_fw_cfg.h`). What has a size has it under a key of its own, with 32 bits.
pub mod key {
    /// `QEMU`: that there is such a device.
    pub const SIGNATURE: u16 = 0x00;
    /// What the device can do, 32 bits.
    pub const ID: u16 = 0x01;
    /// How many processors run, 16 bits.
    pub const CPUS: u16 = 0x05;
    /// Bytes of a kernel behind its setup part.
    pub const KERNEL_SIZE: u16 = 0x08;
    /// Bytes of an initramfs.
    pub const INITRD_SIZE: u16 = 0x0b;
    /// How many processors there can be, 16 bits.
    pub const MAX_CPUS: u16 = 0x0f;
    /// A kernel behind its setup part.
    pub const KERNEL_DATA: u16 = 0x11;
    /// An initramfs.
    pub const INITRD_DATA: u16 = 0x12;
    /// Bytes of a kernel's command line, the terminating zero included.
    pub const CMDLINE_SIZE: u16 = 0x14;
    /// A kernel's command line with a terminating zero.
    pub const CMDLINE_DATA: u16 = 0x15;
    /// Bytes of a kernel's setup part.
    pub const SETUP_SIZE: u16 = 0x17;
    /// A kernel's setup part: its boot sector and its setup sectors.
    pub const SETUP_DATA: u16 = 0x18;
    /// The directory of files.
    pub const DIRECTORY: u16 = 0x19;
    /// The first file; others follow, in the order of their names.
    pub const FIRST_FILE: u16 = 0x20;
}

/// The traditional interface, bit 0, and DMA, bit 1.
const FEATURES: u32 = 0b11;
/// Bytes of a file's name in the directory, with at least one zero at the end.
const NAME: usize = 56;

/// The name of a file: at most 55 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileName(&'static str);

impl FileName {
    /// A name for a constant: the compiler refuses one that is too long.
    ///
    /// # Panics
    ///
    /// If it is no constant and too long.
    #[must_use]
    pub const fn new(name: &'static str) -> Self {
        assert!(name.len() < NAME && name.is_ascii(), "no name of an fw_cfg file");
        Self(name)
    }
}

/// All items.
#[derive(Debug)]
pub struct Items(BTreeMap<u16, Content>);

impl Items {
    /// What every machine has, `numbered` besides, and `files`, each at most 4 GiB - 1.
    #[must_use]
    pub fn new(
        numbered: impl IntoIterator<Item = (u16, Content)>,
        files: impl IntoIterator<Item = (FileName, Content)>,
    ) -> Self {
        let files: BTreeMap<_, _> = files.into_iter().collect();
        let directory = directory(&files);
        let mut items: BTreeMap<_, _> = numbered.into_iter().collect();
        items.insert(key::SIGNATURE, Content::Bytes(b"QEMU".to_vec()));
        items.insert(key::ID, Content::word(FEATURES));
        items.insert(key::DIRECTORY, Content::Bytes(directory));
        items.extend((key::FIRST_FILE..).zip(files.into_values()));
        Self(items)
    }

    /// Whether any of them is read from a file.
    pub(super) fn has_files(&self) -> bool {
        self.0.values().any(|content| matches!(content, Content::File { .. }))
    }

    /// The item of `key`, if there is one.
    #[must_use]
    pub fn get(&self, key: u16) -> Option<&Content> {
        self.0.get(&key)
    }
}

/// `struct FWCfgFiles`: how many, then size, key and name of each; numbers are big-endian.
fn directory(files: &BTreeMap<FileName, Content>) -> Vec<u8> {
    let mut bytes = low32(files.len() as u64).to_be_bytes().to_vec();
    for (index, (FileName(name), content)) in (0u64..).zip(files) {
        let end = bytes.len() + 8 + NAME;
        bytes.extend(low32(content.length()).to_be_bytes());
        bytes.extend((key::FIRST_FILE + low16(index)).to_be_bytes());
        bytes.extend([0; 2]);
        bytes.extend(name.bytes());
        bytes.resize(end, 0);
    }
    bytes
}
