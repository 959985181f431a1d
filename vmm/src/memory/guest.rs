// SPDX-License-Identifier: Apache-2.0
//! Guest memory in this process: mapped on demand, never prefaulted whole.
#![expect(
    unsafe_code,
    reason = "mmap at an alignment of our choice, madvise and mbind on ranges of it, memfd, getrusage"
)]

use std::fs::File;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd};
use std::ptr::null_mut;
use std::sync::Arc;
use std::{io, thread};

use rustix::process::{Resource, getrlimit};
use vm_memory::mmap::{MmapRegion, MmapRegionBuilder};
use vm_memory::{Address, FileOffset, GuestAddress, GuestMemoryBackend, GuestMemoryRegion, GuestRegionMmap};

use super::pages::{HUGE_PAGE, HostPages};
use super::range::GpaRange;
use super::region::{GuestMemory, Mapping, Region, Source};
use super::zone::{Backing, Slot};
use crate::bits::index;
use crate::field::Field;
#[cfg(test)]
use crate::layout::PAGE_SIZE;

const MEMORY: Field = Field::section("memory");
const HOST_NODE: Field = Field::of("memory.zones", "host_numa_node");

/// Why guest memory could not be mapped.
#[derive(Debug, thiserror::Error)]
pub enum MapError {
    /// mmap failed.
    #[error("{MEMORY}: the host cannot map {size} bytes of guest memory at GPA {gpa:#x}{hint}")]
    Map {
        /// Bytes asked for.
        size: u64,
        /// Where in the guest.
        gpa: u64,
        /// What would help.
        hint: &'static str,
        /// Why.
        source: io::Error,
    },
    /// A range cannot be bound to a node.
    #[error("{HOST_NODE}={node}: this host cannot bind guest memory at GPA {gpa:#x} to it")]
    Bind {
        /// The host's node.
        node: u16,
        /// Where in the guest.
        gpa: u64,
        /// Why.
        source: io::Error,
    },
    /// The regions are not sorted and disjoint, or one is larger than the address space.
    #[error("{MEMORY}: inconsistent memory map: {0}")]
    Inconsistent(String),
}

/// Maps one host range for each of `slots` (sorted, disjoint, page-aligned).
pub fn map(slots: &[Slot]) -> Result<GuestMemory, MapError> {
    map_and_reserve(slots, None)
}

/// The same, and reserves addresses for what is `held`, which comes behind the slots. What of it is not there reads as zero and takes
/// no memory: a kernel reads on behind the last page that it owns (`load_unaligned_zeropad`), and looks at struct pages that it has
/// just given back, whose count of users has to be zero then. Writing to it is an error.
pub fn map_and_reserve(slots: &[Slot], held: Option<GpaRange>) -> Result<GuestMemory, MapError> {
    let mut regions = slots.iter().map(|slot| map_slot(slot, None)).collect::<Result<Vec<_>, _>>()?;
    regions.extend(held.map(|range| reserve(range, 0, None)).transpose()?);
    GuestMemory::from_regions(regions).map_err(|e| MapError::Inconsistent(e.to_string()))
}

/// The same with the content of `file`, in which the slots come one after another from its beginning, and then the first `there` bytes
/// of what is `held`. They are of ordinary pages, and not shared.
pub fn map_file(slots: &[Slot], held: Option<(GpaRange, u64)>, file: &Arc<File>) -> Result<GuestMemory, MapError> {
    let mut offset = 0;
    let mut regions = Vec::with_capacity(slots.len() + 1);
    for slot in slots {
        regions.push(map_slot(slot, Some(Source { file: Arc::clone(file), offset }))?);
        offset += slot.range.length();
    }
    let source = Source { file: Arc::clone(file), offset };
    regions.extend(held.map(|(range, there)| reserve(range, there, Some(source))).transpose()?);
    GuestMemory::from_regions(regions).map_err(|e| MapError::Inconsistent(e.to_string()))
}

/// Ordinary memory at these places, for tests.
#[cfg(any(test, fuzzing))]
pub(crate) fn from_ranges(ranges: &[(GuestAddress, usize)]) -> Result<GuestMemory, MapError> {
    let ranges = ranges.iter().map(|(start, length)| GpaRange::of(start.raw_value(), *length as u64));
    map(&ranges.map(|range| Slot::new(range, Backing::default())).collect::<Vec<_>>())
}

fn map_slot(slot: &Slot, source: Option<Source>) -> Result<Region, MapError> {
    let &Slot { range, backing, .. } = slot;
    let (size, gpa) = (range.length(), range.start());
    let failed = |source| MapError::Map { size, gpa, hint: hint(backing, &source), source };
    let (region, mapping) = map_one(size, backing, source.as_ref()).map_err(failed)?;
    if let Some(node) = backing.host_node {
        // Before anybody touches it: what is there already stays where it is.
        let length = index(size.next_multiple_of(backing.pages.bytes()));
        bind(region.as_ptr(), length, node).map_err(|source| MapError::Bind { node, gpa, source })?;
    }
    GuestRegionMmap::new(region, GuestAddress(gpa))
        .map(|region| Region::new(region, mapping, source))
        .ok_or_else(|| MapError::Inconsistent(format!("range {range} wraps")))
}

/// Reserves addresses for `range`. The first `there` bytes of it are there, and have the content of `source`.
fn reserve(range: GpaRange, there: u64, source: Option<Source>) -> Result<Region, MapError> {
    let (size, gpa) = (range.length(), range.start());
    let failed = |source| MapError::Map { size, gpa, hint: "; see ulimit -v", source };
    let (region, mapping) = reserve_one(size, there, source.as_ref()).map_err(failed)?;
    let source = source.filter(|_| there > 0);
    GuestRegionMmap::new(region, GuestAddress(gpa))
        .map(|region| Region::held(region, mapping, source, there))
        .ok_or_else(|| MapError::Inconsistent(format!("range {range} wraps")))
}

fn reserve_one(size: u64, there: u64, source: Option<&Source>) -> io::Result<(MmapRegion, Mapping)> {
    let length = index(size);
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let (start, mapping) = map_aligned(length, HUGE_PAGE, libc::PROT_READ, flags, None)?;
    if let Some(Source { file, offset }) = source.filter(|_| there > 0) {
        let offset = i64::try_from(*offset).map_err(|_| io::Error::from_raw_os_error(libc::EOVERFLOW))?;
        let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_NORESERVE);
        let flags = flags | libc::MAP_FIXED;
        // SAFETY: `start..start + there` lies inside what was reserved above, which nothing else uses.
        let mapped = unsafe { libc::mmap(start.cast(), index(there), prot, flags, file.as_raw_fd(), offset) };
        if mapped == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
    }
    keep_out_of_core_dumps(start, length)?;
    let builder = MmapRegionBuilder::new(length).with_mmap_prot(libc::PROT_READ).with_mmap_flags(flags);
    // SAFETY: `start..start + length` was mapped above for this region alone, and is unmapped behind it: see `Region`. What of it is
    // not there is not used: see `Region::check`.
    let region = unsafe { builder.with_raw_mmap_pointer(start) }.build().map_err(io::Error::other)?;
    Ok((region, mapping))
}

/// Bits of a word of the kernel's sets.
const WORD: usize = 64;
/// Nodes that a set can hold: as many as Linux can be built for.
const NODES: usize = 1024;

/// Has the memory of `length` bytes from `start` come from the host's node `node`, and from no other (mbind(2), `MPOL_BIND`).
fn bind(start: *mut u8, length: usize, node: u16) -> io::Result<()> {
    let mut nodes = [0u64; NODES / WORD];
    let (word, bit) = (usize::from(node) / WORD, usize::from(node) % WORD);
    *nodes.get_mut(word).ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))? = 1 << bit;
    // The kernel takes one bit less than it is told.
    let bits = NODES + 1;
    // SAFETY: the call reads `nodes`, which has as many bits, and changes where pages of a mapping of ours will come from, not what
    // is in them.
    let result = unsafe { libc::syscall(libc::SYS_mbind, start, length, libc::MPOL_BIND, nodes.as_ptr(), bits, 0) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// What would help against `error`.
fn hint(backing: Backing, error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        _ if backing.pages.is_huge() => "; reserve pages in /sys/kernel/mm/hugepages",
        Some(libc::EFBIG) => "; see ulimit -f",
        _ => "; see ulimit -v and vm.overcommit_memory",
    }
}

fn map_one(size: u64, backing: Backing, source: Option<&Source>) -> io::Result<(MmapRegion, Mapping)> {
    let length = index(size);
    let mut flags = if backing.shared { libc::MAP_SHARED } else { libc::MAP_PRIVATE };
    // Without a reservation, hugetlb faults would end in SIGBUS; ordinary memory is overcommitted on purpose.
    flags |= match backing.pages {
        HostPages::Base => libc::MAP_NORESERVE,
        HostPages::Huge2M => libc::MAP_HUGETLB | libc::MAP_HUGE_2MB,
        HostPages::Huge1G => libc::MAP_HUGETLB | libc::MAP_HUGE_1GB,
    };
    // A file of the pool has only whole pages, as the mapping will.
    let file_size = size.next_multiple_of(backing.pages.bytes());
    let file = if backing.shared { Some(memfd(file_size, backing.pages)?) } else { None };
    if file.is_none() && source.is_none() {
        flags |= libc::MAP_ANONYMOUS;
    }
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    let align = backing.pages.bytes().max(HUGE_PAGE);
    let from = source.map(|source| (&*source.file, source.offset)).or(file.as_ref().map(|file| (file, 0)));
    let (start, mapping) = map_aligned(length, align, prot, flags, from)?;
    keep_out_of_core_dumps(start, length)?;
    let mut builder = MmapRegionBuilder::new(length)
        .with_mmap_prot(prot)
        .with_mmap_flags(flags)
        .with_hugetlbfs(backing.pages.is_huge());
    if let Some(file) = file {
        builder = builder.with_file_offset(FileOffset::new(file, 0));
    }
    // SAFETY: `start..start + length` was mapped above for this region alone, and is unmapped behind it: see `Region`.
    let region = unsafe { builder.with_raw_mmap_pointer(start) }.build().map_err(io::Error::other)?;
    Ok((region, mapping))
}

/// Maps `length` bytes at a multiple of `align`, those of a file from an offset on if there is one; the kernel only promises page alignment. The last page is a whole one.
fn map_aligned(
    length: usize,
    align: u64,
    prot: i32,
    flags: i32,
    from: Option<(&File, u64)>,
) -> io::Result<(*mut u8, Mapping)> {
    let slack = index(align);
    let reserved = length.checked_next_multiple_of(slack).and_then(|whole| whole.checked_add(slack));
    let reserved = reserved.ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))?;
    let reserve_flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: an anonymous mapping at an address of the kernel's choice touches no memory that exists.
    let base = unsafe { libc::mmap(null_mut(), reserved, libc::PROT_NONE, reserve_flags, -1, 0) };
    if base == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the reservation and what is mapped into it is used by the caller's region alone, which is dropped first.
    let mapping = unsafe { Mapping::new(base, reserved) };
    let offset = base.align_offset(slack);
    let target = base.wrapping_byte_add(offset);
    let (fd, offset) = from.map_or((-1, 0), |(file, offset)| (file.as_raw_fd(), offset));
    let offset = i64::try_from(offset).map_err(|_| io::Error::from_raw_os_error(libc::EOVERFLOW))?;
    // SAFETY: `target..target + length`, rounded up to pages of at most `align`, lies inside the reservation made above, which
    // nothing else uses.
    let mapped = unsafe { libc::mmap(target, length, prot, flags | libc::MAP_FIXED, fd, offset) };
    if mapped == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    Ok((mapped.cast(), mapping))
}

/// What the guest has in its memory is nobody's business, and may be larger than every disk.
fn keep_out_of_core_dumps(start: *mut u8, length: usize) -> io::Result<()> {
    // SAFETY: `start..start + length` is a mapping of its own, of whole pages but for the end, which the kernel rounds up within it;
    // the advice does not change its contents.
    let result = unsafe { libc::madvise(start.cast(), length, libc::MADV_DONTDUMP) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn memfd(size: u64, pages: HostPages) -> io::Result<File> {
    // To make a file longer than that is answered by SIGXFSZ.
    if getrlimit(Resource::Fsize).current.is_some_and(|limit| size > limit) {
        return Err(io::Error::from_raw_os_error(libc::EFBIG));
    }
    let flags = libc::MFD_CLOEXEC
        | match pages {
            HostPages::Base => 0,
            HostPages::Huge2M => libc::MFD_HUGETLB | libc::MFD_HUGE_2MB,
            HostPages::Huge1G => libc::MFD_HUGETLB | libc::MFD_HUGE_1GB,
        };
    // SAFETY: the name is a terminated string; the call touches no other memory.
    let fd = unsafe { libc::memfd_create(c"flatboot-guest-memory".as_ptr(), flags) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `fd` is new and owned by nobody else.
    let file = unsafe { File::from_raw_fd(fd) };
    file.set_len(size)?;
    Ok(file)
}

/// Asks for transparent huge pages behind `range` (GPA). Failure costs speed, nothing else.
pub fn advise_huge(memory: &GuestMemory, range: GpaRange) -> io::Result<()> {
    advise(memory, range, libc::MADV_HUGEPAGE)
}

/// Backs `range` (GPA) with host memory now, keeping what is in it (`MADV_POPULATE_WRITE`, Linux 5.14). What comes from a file is
/// read and mapped, and not copied before somebody writes to it (`MADV_POPULATE_READ`): others map the same pages.
///
/// It goes in steps of a huge page: each holds the lock of this process's address space, which whoever makes a thread or a vCPU
/// waits for, and after each the processor goes to whoever else wants it: the boot CPU's thread may be about to run.
pub fn populate(memory: &GuestMemory, range: GpaRange) -> io::Result<()> {
    let mut start = range.start();
    while start < range.end() {
        let end = range.end().min((start / HUGE_PAGE + 1) * HUGE_PAGE);
        advise_by(memory, GpaRange::new(start, end), |region| match region.source() {
            Some(_) => libc::MADV_POPULATE_READ,
            None => libc::MADV_POPULATE_WRITE,
        })?;
        thread::yield_now();
        start = end;
    }
    Ok(())
}

/// Gives what is behind `range` (GPA, whole pages) back to the host: it reads as zero from now on, or as the file has it that it
/// comes from, and is backed again when it is written. Not for memory from a hugetlb pool, whose pages would not be reserved any more. Returns how many bytes of the range are
/// memory.
pub fn discard(memory: &GuestMemory, range: GpaRange) -> io::Result<u64> {
    advise_by(memory, range, |region| {
        // Of a file's pages the first would only take this process's view.
        if region.file_offset().is_some() { libc::MADV_REMOVE } else { libc::MADV_DONTNEED }
    })
}

fn advise(memory: &GuestMemory, range: GpaRange, advice: i32) -> io::Result<()> {
    advise_by(memory, range, |_| advice).map(drop)
}

/// Advises what is mapped of `range`, each region as `advice` has it. Bytes that were.
fn advise_by(memory: &GuestMemory, range: GpaRange, advice: impl Fn(&Region) -> i32) -> io::Result<u64> {
    let mut advised = 0;
    for region in memory.iter() {
        let start = range.start().max(region.start_addr().raw_value());
        let end = range.end().min(region.last_addr().raw_value().saturating_add(1));
        if start >= end {
            continue;
        }
        let offset = start - region.start_addr().raw_value();
        let address = region.as_ptr().wrapping_add(index(offset));
        loop {
            // SAFETY: `start..end` was clipped to this region's mapping, which stays. Its contents, which only the last advices
            // change, are the guest's: nothing of this process depends on them.
            let result = unsafe { libc::madvise(address.cast(), index(end - start), advice(region)) };
            let error = io::Error::last_os_error();
            match error.kind() {
                _ if result == 0 => break,
                io::ErrorKind::Interrupted => {}
                _ => return Err(error),
            }
        }
        advised += end - start;
    }
    Ok(advised)
}

/// Page faults that the host has served for this process so far, guest memory's included; threads add to it at once.
#[must_use]
pub fn page_faults() -> u64 {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the pointer is to memory of the right size and alignment, which the call fills.
    let result = unsafe { libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr()) };
    // SAFETY: `rusage` is integers, for which zeroes are a value, too, should the call have failed.
    let usage = unsafe { usage.assume_init() };
    if result == 0 { u64::try_from(usage.ru_minflt + usage.ru_majflt).unwrap_or(0) } else { 0 }
}

/// Pages that are there, of those of this process's memory that are behind `range` (GPA, inside one region).
#[cfg(test)]
pub(crate) fn present(memory: &GuestMemory, range: GpaRange) -> u64 {
    use std::os::unix::fs::FileExt;
    const ENTRY: usize = 8;
    const CHUNK: u64 = 1 << 16;
    // Documentation/admin-guide/mm/pagemap.rst: bit 63, present; bit 62, swapped out.
    const THERE: u64 = 3 << 62;

    let pagemap = File::open("/proc/self/pagemap").unwrap();
    let region = memory.find_region(GuestAddress(range.start())).unwrap();
    let page = |gpa: u64| (region.as_ptr() as u64 + gpa - region.start_addr().0) / PAGE_SIZE;
    let (mut next, end) = (page(range.start()), page(range.end()));
    let mut there = 0;
    while next < end {
        let count = (end - next).min(CHUNK);
        let mut bytes = vec![0; index(count) * ENTRY];
        pagemap.read_exact_at(&mut bytes, next * ENTRY as u64).unwrap();
        let (entries, _) = bytes.as_chunks::<ENTRY>();
        there += entries.iter().filter(|entry| u64::from_le_bytes(**entry) & THERE != 0).count() as u64;
        next += count;
    }
    there
}

#[cfg(test)]
mod tests {
    use super::*;
    use vm_memory::Bytes;

    const MIB: u64 = 1 << 20;

    const fn one(start: u64, length: u64) -> Slot {
        let backing = Backing { pages: HostPages::Base, shared: false, host_node: None };
        Slot::new(GpaRange::of(start, length), backing)
    }

    /// What binds the memory at `address`: a policy, and the first of the nodes.
    fn policy(address: *mut u8) -> (i32, u64) {
        const MPOL_F_ADDR: usize = 2;
        let (mut mode, mut nodes) = (0i32, [0u64; NODES / WORD]);
        // SAFETY: the call writes a number and a set of as many bits as it is told, both of which are there.
        let result = unsafe {
            libc::syscall(libc::SYS_get_mempolicy, &raw mut mode, nodes.as_mut_ptr(), NODES, address, MPOL_F_ADDR)
        };
        assert_eq!(result, 0, "{}", io::Error::last_os_error());
        (mode, nodes[0])
    }

    #[test]
    fn memory_is_bound_to_the_node_that_is_named_and_to_no_other() {
        if !std::path::Path::new("/sys/devices/system/node/node0").exists() {
            eprintln!("this host knows no nodes");
            return;
        }
        for shared in [false, true] {
            let backing = |host_node| Backing { shared, host_node, ..Backing::default() };
            let slot = |start, host_node| Slot::new(GpaRange::of(start, 4 * MIB), backing(host_node));
            let memory = map(&[slot(0, Some(0)), slot(4 * MIB, None)]).unwrap();
            let regions: Vec<_> = memory.iter().map(Region::as_ptr).collect();
            assert_eq!(policy(regions[0]), (libc::MPOL_BIND, 1));
            assert_eq!(policy(regions[0].wrapping_add(index(4 * MIB) - 1)), (libc::MPOL_BIND, 1));
            assert_eq!(policy(regions[1]), (libc::MPOL_DEFAULT, 0));
            for address in [0, 4 * MIB, 8 * MIB - 8] {
                memory.write_obj(7u64, GuestAddress(address)).unwrap();
            }
        }
    }

    #[test]
    fn a_node_that_is_not_there_is_an_error() {
        for node in [1023, 1024, u16::MAX] {
            let backing = Backing { host_node: Some(node), ..Backing::default() };
            let error = map(&[Slot::new(GpaRange::of(1 << 32, 4 * MIB), backing)]).unwrap_err().to_string();
            let expected = format!(
                "memory.zones.host_numa_node={node}: this host cannot bind guest memory at GPA 0x100000000 to it"
            );
            assert_eq!(error, expected);
        }
    }

    #[test]
    fn mapping_is_huge_page_aligned_and_readable_at_both_ends() {
        let ranges = [GpaRange::of(0, 64 * MIB), GpaRange::of(1 << 32, 5 * MIB)];
        for shared in [false, true] {
            let backing = Backing { shared, ..Backing::default() };
            let memory = map(&ranges.map(|range| Slot::new(range, backing))).unwrap();
            for (region, slot) in memory.iter().zip(&ranges) {
                assert_eq!(region.as_ptr().align_offset(index(HUGE_PAGE)), 0);
                for at in [slot.start(), slot.end() - 8] {
                    memory.write_obj(at, GuestAddress(at)).unwrap();
                    assert_eq!(memory.read_obj::<u64>(GuestAddress(at)).unwrap(), at);
                }
            }
        }
    }

    #[test]
    fn it_goes_with_the_last_clone() {
        let mapped = |pointer: *mut u8| {
            let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
            let holds = |line: &str| {
                let (start, rest) = line.split_once('-').unwrap();
                let (end, _) = rest.split_once(' ').unwrap();
                let [start, end] = [start, end].map(|text| usize::from_str_radix(text, 16).unwrap());
                (start..end).contains(&pointer.addr())
            };
            maps.lines().any(holds)
        };
        // So large that nothing else is put there meanwhile.
        let memory = map(&[one(0, 1 << 40)]).unwrap();
        let middle = memory.find_region(GuestAddress(0)).unwrap().as_ptr().wrapping_add(1 << 39);
        let clone = memory.clone();
        drop(memory);
        assert!(mapped(middle));
        drop(clone);
        assert!(!mapped(middle));
    }

    #[test]
    fn populate_keeps_contents_and_clips_to_what_is_mapped() {
        let memory = map(&[one(0, 4 * MIB)]).unwrap();
        memory.write_obj(7u64, GuestAddress(MIB)).unwrap();
        populate(&memory, GpaRange::new(MIB, 8 * MIB)).unwrap();
        assert_eq!(memory.read_obj::<u64>(GuestAddress(MIB)).unwrap(), 7);
    }

    #[test]
    fn what_is_discarded_is_zero_and_takes_no_room() {
        let slots = [GpaRange::of(0, 4 * MIB), GpaRange::of(1 << 32, 4 * MIB)];
        for shared in [false, true] {
            let backing = Backing { shared, ..Backing::default() };
            let memory = map(&slots.map(|range| Slot::new(range, backing))).unwrap();
            let words = [MIB, 3 * MIB, (1 << 32) + MIB];
            for at in words {
                memory.write_obj(7u64, GuestAddress(at)).unwrap();
            }
            // From the middle of the first slot to the middle of the other.
            let range = GpaRange::new(2 * MIB, (1 << 32) + 2 * MIB);
            assert_eq!(discard(&memory, range).unwrap(), 4 * MIB);
            assert_eq!(words.map(|at| memory.read_obj::<u64>(GuestAddress(at)).unwrap()), [7, 0, 0]);
            assert_eq!(discard(&memory, GpaRange::of(1 << 40, MIB)).unwrap(), 0);
            if let Some(file) = memory.find_region(GuestAddress(0)).unwrap().file_offset() {
                use std::os::unix::fs::MetadataExt;
                // The page that is left, and what the look behind it has taken.
                let blocks = file.file().metadata().unwrap().blocks() * 512;
                assert!(blocks <= 2 * MIB, "{blocks} bytes are still there");
            }
        }
    }

    #[test]
    fn touching_fresh_memory_is_counted() {
        let memory = map(&[one(0, 4 * MIB)]).unwrap();
        let before = page_faults();
        memory.write_obj(7u64, GuestAddress(MIB)).unwrap();
        assert!(page_faults() > before);
    }

    #[test]
    fn more_than_the_address_space_is_an_error() {
        let error = map(&[one(0, 1 << 60)]).unwrap_err();
        assert!(error.to_string().contains("cannot map"), "{error}");
    }
}
