// SPDX-License-Identifier: Apache-2.0
//! A piece of guest memory in this process, which goes when its last user has gone. One that is held is address space, of which only
//! a part is there.
#![expect(unsafe_code, reason = "munmap of what was mapped for this region alone")]

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use vm_memory::bitmap::BS;
use vm_memory::guest_memory::{Error, Result};
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
    /// Bytes from its start that are there, if not all are.
    there: Option<AtomicU64>,
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
        Self { memory, source, there: None, _mapping: mapping }
    }

    /// The same of which only the first `there` bytes are there.
    pub(super) fn held(memory: GuestRegionMmap, mapping: Mapping, source: Option<Source>, there: u64) -> Self {
        Self { there: Some(AtomicU64::new(there)), ..Self::new(memory, mapping, source) }
    }

    /// Whether it is held: more or less of it may be there at another time.
    #[must_use]
    pub const fn is_held(&self) -> bool {
        self.there.is_some()
    }

    /// Bytes from its start that are there.
    #[must_use]
    pub fn there(&self) -> u64 {
        self.there.as_ref().map_or_else(|| self.len(), |there| there.load(Ordering::Acquire))
    }

    /// So many are there, of one that is held: none that is not may be used from now on.
    pub(super) fn set_there(&self, bytes: u64) {
        self.there.iter().for_each(|there| there.store(bytes, Ordering::Release));
    }

    /// Whether `count` bytes at `offset` are there.
    fn check(&self, offset: MemoryRegionAddress, count: usize) -> Result<()> {
        let Some(there) = &self.there else { return Ok(()) };
        let end = offset.0.checked_add(count as u64);
        let fits = end.is_some_and(|end| end <= there.load(Ordering::Acquire));
        if fits { Ok(()) } else { Err(Error::InvalidBackendAddress) }
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
        self.check(address, 1)?;
        self.memory.get_host_address(address)
    }

    fn file_offset(&self) -> Option<&FileOffset> {
        self.memory.file_offset()
    }

    fn get_slice(&self, offset: MemoryRegionAddress, count: usize) -> Result<VolatileSlice<'_, BS<'_, ()>>> {
        self.check(offset, count)?;
        self.memory.get_slice(offset, count)
    }

    fn is_hugetlbfs(&self) -> Option<bool> {
        self.memory.is_hugetlbfs()
    }
}

impl GuestMemoryRegionBytes for Region {}
