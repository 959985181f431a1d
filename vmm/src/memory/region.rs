// SPDX-License-Identifier: Apache-2.0
//! A piece of guest memory in this process, which goes when its last user has gone.
#![expect(unsafe_code, reason = "munmap of what was mapped for this region alone")]

use std::fs::File;
use std::sync::Arc;

use vm_memory::bitmap::BS;
use vm_memory::guest_memory::Result;
use vm_memory::{
    FileOffset, GuestAddress, GuestMemoryRegion, GuestMemoryRegionBytes, GuestRegionMmap, GuestUsize,
    MemoryRegionAddress, VolatileSlice,
};

/// Addresses that `mmap` has given to one owner; they are given back when it is dropped.
#[derive(Debug)]
pub(super) struct Mapping {
    start: usize,
    length: usize,
}

/// A piece of guest memory. The fields are dropped in this order: what refers to the mapping before the mapping.
#[derive(Debug)]
pub struct Region {
    memory: GuestRegionMmap,
    source: Option<Source>,
    _mapping: Mapping,
}

/// Where in a file the content of a region comes from that nobody has written to: it is mapped privately, so the file stays as it is,
/// and its pages are shared with whoever maps it, too.
#[derive(Debug, Clone)]
pub struct Source {
    /// The file.
    pub file: Arc<File>,
    /// Where in it the region begins, at a page.
    pub offset: u64,
}

impl Mapping {
    /// Takes over `length` bytes from `start`, which `mmap` returned and nobody else unmaps.
    ///
    /// # Safety
    ///
    /// Nobody may use these addresses when the result has been dropped.
    pub(super) unsafe fn new(start: *mut libc::c_void, length: usize) -> Self {
        Self { start: start.expose_provenance(), length }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let start = std::ptr::with_exposed_provenance_mut(self.start);
        // SAFETY: whoever made this promised that nobody uses these addresses any more. They are whole mappings, so it cannot fail.
        unsafe { libc::munmap(start, self.length) };
    }
}

/// The guest's mapped memory. Cloning shares the mapping, which goes with the last clone.
pub type GuestMemory = vm_memory::GuestRegionCollection<Region>;

impl Region {
    /// `memory` lies in `mapping`, and comes from `source` if there is one.
    pub(super) const fn new(memory: GuestRegionMmap, mapping: Mapping, source: Option<Source>) -> Self {
        Self { memory, source, _mapping: mapping }
    }

    /// Where its content comes from, unless it was zero.
    #[must_use]
    pub const fn source(&self) -> Option<&Source> {
        self.source.as_ref()
    }

    /// Where its first byte is in this process.
    #[must_use]
    pub fn as_ptr(&self) -> *mut u8 {
        self.memory.as_ptr()
    }
}

impl GuestMemoryRegion for Region {
    type B = ();

    fn len(&self) -> GuestUsize {
        self.memory.len()
    }

    fn start_addr(&self) -> GuestAddress {
        self.memory.start_addr()
    }

    fn bitmap(&self) -> BS<'_, ()> {
        self.memory.bitmap();
    }

    fn get_host_address(&self, address: MemoryRegionAddress) -> Result<*mut u8> {
        self.memory.get_host_address(address)
    }

    fn file_offset(&self) -> Option<&FileOffset> {
        self.memory.file_offset()
    }

    fn get_slice(&self, offset: MemoryRegionAddress, count: usize) -> Result<VolatileSlice<'_, BS<'_, ()>>> {
        self.memory.get_slice(offset, count)
    }

    fn is_hugetlbfs(&self) -> Option<bool> {
        self.memory.is_hugetlbfs()
    }
}

impl GuestMemoryRegionBytes for Region {}
