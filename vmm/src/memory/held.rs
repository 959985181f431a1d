// SPDX-License-Identifier: Apache-2.0
//! Held memory in this process: address space of which the first bytes are there, more or fewer as the guest comes to own them and
//! gives them back. What is not there cannot be touched by anybody, and takes no host memory.
#![expect(unsafe_code, reason = "mprotect, madvise and mmap on ranges of guest memory that nobody uses")]

use std::io;

use vm_memory::{Address, GuestMemoryBackend, GuestMemoryRegion};

use super::range::GpaRange;
use super::region::{GuestMemory, Region};
use crate::bits::index;

/// The held memory of a VM.
#[derive(Debug, Clone)]
pub struct HeldMemory {
    memory: GuestMemory,
    range: GpaRange,
}

impl HeldMemory {
    /// That of `memory`, if it has any.
    #[must_use]
    pub fn of(memory: &GuestMemory) -> Option<Self> {
        let region = memory.iter().find(|region| region.is_held())?;
        let range = GpaRange::of(region.start_addr().raw_value(), region.len());
        Some(Self { memory: memory.clone(), range })
    }

    /// Where in the guest all of it is or can be.
    #[must_use]
    pub const fn range(&self) -> GpaRange {
        self.range
    }

    /// Bytes of it that are there, from its start.
    #[must_use]
    pub fn there(&self) -> u64 {
        self.region().map_or(0, Region::there)
    }

    /// Where its first byte is in this process, whether it is there or not.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.region().map_or(0, |region| region.as_ptr() as u64)
    }

    /// From now on the first `to` bytes are there, if not more are. What is new is zero, and takes host memory once it is touched.
    pub fn grow(&self, to: u64) -> io::Result<()> {
        let Some(region) = self.region() else { return Ok(()) };
        let from = region.there();
        if to > region.len() || !to.is_multiple_of(crate::layout::PAGE_SIZE) {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        }
        if to <= from {
            return Ok(());
        }
        let start = region.as_ptr().wrapping_add(index(from));
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: `from..to` lies inside the region's mapping, at whole pages; nobody has used it, since it was not there.
        if unsafe { libc::mprotect(start.cast(), index(to - from), prot) } != 0 {
            return Err(io::Error::last_os_error());
        }
        region.set_there(to);
        Ok(())
    }

    /// From now on only the first `to` bytes are there. Host memory behind the others goes. A device that uses them at this moment gets
    /// a fault, and the process ends with it: only a guest that gives back what it still uses can come to that. If it fails, as much
    /// is there as before.
    pub fn shrink(&self, to: u64) -> io::Result<()> {
        let Some((region, from)) = self.fewer(to)? else { return Ok(()) };
        region.set_there(to);
        replace(region, to, from).inspect_err(|_| region.set_there(from))
    }

    fn region(&self) -> Option<&Region> {
        self.memory.iter().find(|region| region.is_held())
    }

    /// The region, and what is there of it, if `to` is fewer and can be.
    fn fewer(&self, to: u64) -> io::Result<Option<(&Region, u64)>> {
        let Some(region) = self.region() else { return Ok(None) };
        let from = region.there();
        if to >= from || !to.is_multiple_of(crate::layout::PAGE_SIZE) {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        }
        Ok(Some((region, from)))
    }
}

/// Puts zeros that take no memory in the place of bytes `to..from` of `region`: see [`super::guest::map_and_reserve`].
fn replace(region: &Region, to: u64, from: u64) -> io::Result<()> {
    let (start, length) = (region.as_ptr().wrapping_add(index(to)).cast(), index(from - to));
    // First what takes long, under a lock of this address space that lets vCPUs go on; what it fails at, the second step does.
    // SAFETY: the range lies inside the region's mapping; the guest has given up what is in it.
    unsafe { libc::madvise(start, length, libc::MADV_DONTNEED) };
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
    // SAFETY: the same; the new mapping takes the place of the old one, whatever that was of, and has nothing in it.
    if unsafe { libc::mmap(start, length, libc::PROT_READ, flags, -1, 0) } == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the same. That it fails costs no more than a longer core dump, of what comes to be there.
    unsafe { libc::madvise(start, length, libc::MADV_DONTDUMP) };
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;
    use std::sync::Arc;

    use vm_memory::{Bytes, GuestAddress};

    use super::*;
    use crate::memory::guest::{self, present};
    use crate::memory::{Backing, Slot};

    const MIB: u64 = 1 << 20;
    const START: u64 = 5 << 30;

    fn slots() -> [Slot; 1] {
        [Slot::new(GpaRange::of(0, 64 * MIB), Backing::default())]
    }

    /// A range of 1 TiB: only addresses are reserved.
    fn memory() -> (GuestMemory, HeldMemory) {
        let memory = guest::map_and_reserve(&slots(), Some(GpaRange::of(START, 1 << 40))).unwrap();
        let held = HeldMemory::of(&memory).unwrap();
        (memory, held)
    }

    #[test]
    fn what_is_not_there_cannot_be_used() {
        let (memory, held) = memory();
        let at = |offset: u64| GuestAddress(START + offset);
        assert_eq!((held.there(), held.range()), (0, GpaRange::of(START, 1 << 40)));
        assert!(memory.read_obj::<u8>(at(0)).is_err());
        assert!(memory.get_host_address(at(0)).is_err() && memory.get_slice(at(0), 1).is_err());
        held.grow(256 * MIB).unwrap();
        memory.write_obj(7u64, at(256 * MIB - 8)).unwrap();
        assert_eq!(memory.read_obj::<u64>(at(256 * MIB - 8)).unwrap(), 7);
        assert!(memory.write_obj(7u64, at(256 * MIB - 4)).is_err(), "half of it is not there");
        assert!(memory.read_obj::<u8>(at(256 * MIB)).is_err());
        held.shrink(128 * MIB).unwrap();
        assert!(memory.read_obj::<u8>(at(256 * MIB - 8)).is_err());
        assert_eq!(held.there(), 128 * MIB);
    }

    #[test]
    fn what_is_given_back_takes_no_host_memory_and_is_zero_when_it_is_there_again() {
        let (memory, held) = memory();
        held.grow(64 * MIB).unwrap();
        for page in 0..64 * 256 {
            memory.write_obj(1u8, GuestAddress(START + page * 4096)).unwrap();
        }
        let whole = GpaRange::of(START, 64 * MIB);
        assert_eq!(present(&memory, whole), 64 * 256);
        held.shrink(32 * MIB).unwrap();
        assert_eq!(present(&memory, whole), 32 * 256);
        held.grow(64 * MIB).unwrap();
        assert_eq!(memory.read_obj::<u8>(GuestAddress(START + 48 * MIB)).unwrap(), 0);
        assert_eq!(memory.read_obj::<u8>(GuestAddress(START + 16 * MIB)).unwrap(), 1);
    }

    /// A processor may read on behind what a kernel owns, and a kernel that has just given back a page may still look at it.
    #[test]
    fn what_is_not_there_reads_as_zero() {
        let (memory, held) = memory();
        held.grow(64 * MIB).unwrap();
        memory.write_obj(7u64, GuestAddress(START + 48 * MIB)).unwrap();
        held.shrink(32 * MIB).unwrap();
        let first = memory.get_host_address(GuestAddress(START)).unwrap();
        for at in [32 * MIB, 48 * MIB, 64 * MIB, 1 << 39, (1 << 40) - 8] {
            // SAFETY: inside the region's mapping, which lives as long as `memory`.
            let byte = unsafe { first.wrapping_add(index(at)).read_volatile() };
            assert_eq!(byte, 0, "{at:#x}");
        }
    }

    #[test]
    fn what_comes_from_a_file_does_not_come_back() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(66 * MIB).unwrap();
        file.write_all_at(&[9; 4096], 64 * MIB).unwrap();
        file.write_all_at(&[8; 4096], 65 * MIB).unwrap();
        let range = GpaRange::of(START, 1 << 30);
        let memory = guest::map_file(&slots(), Some((range, 2 * MIB)), &Arc::new(file)).unwrap();
        let held = HeldMemory::of(&memory).unwrap();
        let read = |offset: u64| memory.read_obj::<u8>(GuestAddress(START + offset)).unwrap();
        assert_eq!((read(0), read(MIB), held.there()), (9, 8, 2 * MIB));
        held.shrink(MIB).unwrap();
        held.grow(4 * MIB).unwrap();
        assert_eq!((read(0), read(MIB), read(3 * MIB)), (9, 0, 0));
    }

    #[test]
    fn sizes_that_make_no_sense_change_nothing() {
        let (_, held) = memory();
        for to in [0, 1, (1 << 40) + 4096, u64::MAX] {
            assert_eq!(held.grow(to).is_err(), to > 0, "{to}");
            assert!(held.shrink(to).is_err(), "{to}");
        }
        held.grow(1 << 40).unwrap();
        assert_eq!(held.there(), 1 << 40);
        held.shrink(0).unwrap();
    }

    /// As it is where the host could not take it back.
    #[test]
    fn what_is_there_already_is_not_taken_by_growing_less() {
        let (memory, held) = memory();
        held.grow(4 * MIB).unwrap();
        for at in [0, 2 * MIB] {
            memory.write_obj(9u8, GuestAddress(START + at)).unwrap();
        }
        held.grow(2 * MIB).unwrap();
        assert_eq!(held.there(), 4 * MIB);
        let read = |offset: u64| memory.read_obj::<u8>(GuestAddress(START + offset)).unwrap();
        assert_eq!((read(0), read(2 * MIB)), (9, 9));
        held.grow(8 * MIB).unwrap();
        assert_eq!((held.there(), read(7 * MIB)), (8 * MIB, 0));
    }
}
