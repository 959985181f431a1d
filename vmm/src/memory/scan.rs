// SPDX-License-Identifier: Apache-2.0
//! Which pages of this process there are, asked of the kernel for a range at once (`PAGEMAP_SCAN`, Linux 6.7): it walks the page
//! tables that there are, so what was never touched costs nothing.
#![expect(unsafe_code, reason = "ioctl(PAGEMAP_SCAN) writes to an array that it is told of by address")]

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;

/// `_IOWR('f', 16, struct pm_scan_arg)` of linux/fs.h.
pub(crate) const PAGEMAP_SCAN: u32 = 0xc060_6610;
/// `PAGE_IS_PRESENT` and `PAGE_IS_SWAPPED`.
const THERE: u64 = 1 << 3 | 1 << 4;
/// Ranges that are told at once; the kernel makes a list of no more.
const RANGES: usize = 512;

/// `struct pm_scan_arg`.
#[repr(C)]
#[derive(Debug, Default)]
struct Argument {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    /// Where the kernel has stopped: the list was full, or `end`.
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

/// `struct page_region`.
#[repr(C)]
#[derive(Debug, Default, Clone, Copy)]
struct PageRegion {
    start: u64,
    end: u64,
    categories: u64,
}

/// Whether the kernel can be asked, by its file `pagemap`.
pub(super) fn is_known(pagemap: &File) -> bool {
    scan(pagemap, &(0..0), &mut []).is_ok()
}

/// Calls `found` with ranges of addresses, in order, that have every page of `addresses` that is there.
pub(super) fn visit<E: From<io::Error>>(
    pagemap: &File,
    addresses: Range<u64>,
    mut found: impl FnMut(Range<u64>) -> Result<(), E>,
) -> Result<(), E> {
    let mut list = [PageRegion::default(); RANGES];
    let mut left = addresses;
    while !left.is_empty() {
        let (count, stopped) = scan(pagemap, &left, &mut list)?;
        list.iter().take(count).try_for_each(|region| found(region.start..region.end))?;
        left.start = stopped;
    }
    Ok(())
}

/// Fills `list` from the start of `addresses`: how many entries, and where it has stopped.
fn scan(pagemap: &File, addresses: &Range<u64>, list: &mut [PageRegion]) -> io::Result<(usize, u64)> {
    let mut argument = Argument {
        size: size_of::<Argument>() as u64,
        start: addresses.start,
        end: addresses.end,
        vec: list.as_mut_ptr() as u64,
        vec_len: list.len() as u64,
        category_anyof_mask: THERE,
        ..Argument::default()
    };
    // SAFETY: the kernel writes to `argument`, whose size it is told, and to `list`, of which it is told the length; both are
    // integers alone.
    let count = unsafe { libc::ioctl(pagemap.as_raw_fd(), PAGEMAP_SCAN.into(), &raw mut argument) };
    let count = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
    Ok((count, argument.walk_end))
}
