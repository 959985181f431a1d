// SPDX-License-Identifier: Apache-2.0
//! Memory taken by all processors at once, written, and read back.

use std::hint::black_box;
use std::iter::Sum;
use std::num::NonZero;
use std::panic::resume_unwind;
use std::sync::Barrier;
use std::thread;

use serde_json::{Value, json};

use crate::memory::{self, PAGE};
use crate::outcome::Outcome;
use crate::watch::Watch;

/// Bytes from one written word to the next. Eight words a page show a page that was given out twice, or a part of it.
const STRIDE: usize = 512;

/// What the threads found, together.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Taken {
    /// Pages written and read back.
    pub(crate) pages: u64,
    /// Words that were not zero when the page was new.
    pub(crate) not_zero: u64,
    /// Words that were no longer what had been written.
    pub(crate) wrong: u64,
}

impl Sum for Taken {
    fn sum<I: Iterator<Item = Self>>(parts: I) -> Self {
        parts.fold(Self::default(), |sum, part| Self {
            pages: sum.pages + part.pages,
            not_zero: sum.not_zero + part.not_zero,
            wrong: sum.wrong + part.wrong,
        })
    }
}

impl Taken {
    /// Whether all was as it should be.
    pub(crate) fn is_good(&self) -> bool {
        self.pages > 0 && self.not_zero == 0 && self.wrong == 0
    }

    /// The same of `asked_kib` in a report.
    pub(crate) fn report(&self, asked_kib: u64) -> Value {
        let Self { pages, not_zero, wrong } = self;
        json!({ "asked_kib": asked_kib, "pages": pages, "not_zero": not_zero, "wrong": wrong })
    }
}

/// Takes `amount`, `N%` of what is available or `NM` (MiB), while the kernel's own counts are watched.
pub(crate) fn hog(amount: &str) -> Outcome {
    let kib = memory::amount_kib(amount)?;
    let watch = Watch::begin()?;
    let taken = take(kib);
    let seen = watch.end();
    let ok = taken.is_good() && seen.complaints.is_empty();
    let mut report = taken.report(kib);
    seen.report(&mut report);
    Ok((ok, report))
}

/// Takes `kib` KiB, an equal part on each processor; holds all of it until all of it has been read back.
pub(crate) fn take(kib: u64) -> Taken {
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    let pages = usize::try_from(kib).unwrap_or(usize::MAX) / (PAGE / 1024) / threads;
    let all = Barrier::new(threads);
    thread::scope(|scope| {
        let parts: Vec<_> = (0..threads).map(|_| scope.spawn(|| part(pages, &all))).collect();
        parts.into_iter().map(|part| part.join().unwrap_or_else(|panic| resume_unwind(panic))).sum()
    })
}

/// One thread's pages. The barrier is passed when everyone has written, and when everyone has read.
fn part(pages: usize, all: &Barrier) -> Taken {
    let mut memory = vec![0; pages * PAGE];
    // The compiler knows such memory to be zero. Whether it is, is the question.
    let not_zero = write(black_box(&mut memory));
    all.wait();
    let wrong = count_wrong(black_box(&memory));
    all.wait();
    Taken { pages: pages as u64, not_zero, wrong }
}

/// Gives every word at [`STRIDE`] its value; how many of them, but for the first of each page, were not zero before.
///
/// The first is written unseen: reading a page that was never written maps the kernel's page of zeros, which the write
/// then has to take away again, from all processors.
fn write(memory: &mut [u8]) -> u64 {
    let mut not_zero = 0;
    for page in memory.chunks_exact_mut(PAGE) {
        for (n, piece) in page.chunks_exact_mut(STRIDE).enumerate() {
            let value = value_at(piece);
            if let Some(word) = piece.first_chunk_mut::<8>() {
                not_zero += u64::from(n > 0 && *word != [0; 8]);
                *word = value;
            }
        }
    }
    not_zero
}

/// How many words at [`STRIDE`] do not have their value.
fn count_wrong(memory: &[u8]) -> u64 {
    let pieces = memory.chunks_exact(STRIDE);
    pieces.map(|piece| u64::from(piece.first_chunk::<8>() != Some(&value_at(piece)))).sum()
}

/// The value for the word at the start of `piece`, made from its address: distinct for each, and never zero, as an odd
/// number times an odd number is odd.
fn value_at(piece: &[u8]) -> [u8; 8] {
    let address = piece.as_ptr().addr() as u64;
    (2 * address + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_is_sound() {
        assert_eq!(part(3, &Barrier::new(1)), Taken { pages: 3, not_zero: 0, wrong: 0 });
        assert_eq!(take(0).pages, 0);
    }

    #[test]
    fn damage_is_counted() {
        let mut memory = vec![0; 4 * PAGE];
        memory[PAGE + STRIDE] = 1;
        assert_eq!(write(&mut memory), 1);
        assert_eq!(count_wrong(&memory), 0);
        memory.copy_within(0..PAGE, 3 * PAGE);
        assert_eq!(count_wrong(&memory), (PAGE / STRIDE) as u64);
    }
}
