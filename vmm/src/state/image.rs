// SPDX-License-Identifier: Apache-2.0
//! The content of guest memory in a file: sparse, so that what the guest has never touched takes no room, and laid out so that it can
//! be mapped. Its last page says which state it belongs to.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::{Resource, getrlimit};
use rustix::rand::{GetRandomFlags, getrandom};
use serde::{Deserialize, Serialize};
use vm_memory::{Address, Bytes, GuestAddress, GuestMemoryBackend, GuestMemoryError, GuestMemoryRegion};

use crate::bits::index;
use crate::layout::PAGE_SIZE;
use crate::memory::touched::Pagemap;
use crate::memory::{GpaRange, GuestMemory, Region};

/// Bytes that are copied at once.
const PIECE: u64 = 1 << 20;
/// Bytes in a page.
const PAGE: usize = 4096;
const _: () = assert!(PAGE as u64 == PAGE_SIZE);
/// What the last page begins with; the number of the snapshot follows.
const MAGIC: [u8; 16] = *b"FLATSNAP memory\n";
const MARK: usize = MAGIC.len() + size_of::<Id>();

/// A number that no other snapshot has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Id([u8; 16]);

/// Why there is no image.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// The file does not take it, or does not give it.
    #[error("cannot be written or read")]
    Io(#[from] io::Error),
    /// Longer than this process may make a file.
    #[error("would have {0} bytes: see ulimit -f")]
    Limit(u64),
    /// Memory cannot be read.
    #[error("guest memory cannot be read")]
    Memory(#[from] GuestMemoryError),
    /// Nobody wants it any more.
    #[error("the VM has ended meanwhile")]
    Cancelled,
    /// It is not as long as it was.
    #[error("has {found} bytes: must have {must}")]
    Length {
        /// How many it has.
        found: u64,
        /// How many it had.
        must: u64,
    },
    /// It is another one's, or none.
    #[error("is not the memory of this state: must be what was written with it")]
    Other,
}

impl Id {
    /// Another one each time.
    pub fn new() -> io::Result<Self> {
        let mut id = [0; 16];
        // So few bytes come at once, or not at all.
        getrandom(&mut id, GetRandomFlags::empty())?;
        Ok(Self(id))
    }

    /// The end of an image.
    fn mark(self) -> [u8; MARK] {
        let mut mark = [0; MARK];
        mark.iter_mut().zip(MAGIC.into_iter().chain(self.0)).for_each(|(to, from)| *to = from);
        mark
    }
}

/// Makes `file`, which is empty, as long as the image of `memory` will be, with nothing in it.
pub fn prepare(memory: &GuestMemory, file: &File) -> Result<(), ImageError> {
    let whole = length(memory) + PAGE_SIZE;
    // To make a file longer than that is answered by SIGXFSZ.
    if getrlimit(Resource::Fsize).current.is_some_and(|limit| whole > limit) {
        return Err(ImageError::Limit(whole));
    }
    Ok(file.set_len(whole)?)
}

fn length(memory: &GuestMemory) -> u64 {
    memory.iter().map(Region::there).sum()
}

/// Writes what is in `memory` to `file`, which is prepared for it, unless it is `cancelled`. What was never touched, or is zero, takes
/// no room.
pub fn write(
    memory: &GuestMemory,
    pagemap: &Pagemap,
    file: &File,
    id: Id,
    cancelled: &AtomicBool,
) -> Result<(), ImageError> {
    let mut buffer = vec![0; index(PIECE)];
    let mut offset = 0;
    for region in memory.iter() {
        let from = region.start_addr().raw_value();
        pagemap.visit(region, |range| {
            for piece in pieces(range) {
                if cancelled.load(Ordering::Relaxed) {
                    return Err(ImageError::Cancelled);
                }
                copy(memory, piece, &mut buffer, file, offset + (piece.start() - from))?;
            }
            Ok(())
        })?;
        offset += region.there();
    }
    Ok(file.write_all_at(&id.mark(), length(memory))?)
}

/// Whether `file` is the image of `length` bytes of memory that was written as `id`.
pub fn check(file: &File, length: u64, id: Id) -> Result<(), ImageError> {
    let (found, must) = (file.metadata()?.len(), length.saturating_add(PAGE_SIZE));
    if found != must {
        return Err(ImageError::Length { found, must });
    }
    let mut mark = [0; MARK];
    file.read_exact_at(&mut mark, length)?;
    if mark == id.mark() { Ok(()) } else { Err(ImageError::Other) }
}

fn pieces(range: GpaRange) -> impl Iterator<Item = GpaRange> {
    let starts = (range.start()..range.end()).step_by(index(PIECE));
    starts.map(move |start| GpaRange::new(start, range.end().min(start + PIECE)))
}

/// Copies the pages of `piece` that are not zero to `offset` of `file`.
fn copy(memory: &GuestMemory, piece: GpaRange, buffer: &mut [u8], file: &File, offset: u64) -> Result<(), ImageError> {
    let bytes = buffer.get_mut(..index(piece.length())).unwrap_or_default();
    memory.read_slice(bytes, GuestAddress(piece.start()))?;
    let zero: Vec<bool> = bytes.chunks(PAGE).map(is_zero).collect();
    let mut page = 0;
    // Neighbours that are not, by one call.
    for run in zero.chunk_by(|one, next| one == next) {
        let next = page + run.len();
        if run.first() == Some(&false) {
            let content = bytes.get(page * PAGE..(next * PAGE).min(bytes.len())).unwrap_or_default();
            file.write_all_at(content, offset + (page * PAGE) as u64)?;
        }
        page = next;
    }
    Ok(())
}

/// A page at a time, as fast as memory is.
fn is_zero(bytes: &[u8]) -> bool {
    let (words, rest) = bytes.as_chunks::<16>();
    words.iter().all(|word| *word == [0; 16]) && rest.iter().all(|byte| *byte == 0)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::memory::{Backing, Slot, guest};

    const MIB: u64 = 1 << 20;

    fn slots() -> [Slot; 2] {
        [(0, 64 * MIB), (1 << 32, 4 << 30)]
            .map(|(start, length)| Slot::new(GpaRange::of(start, length), Backing::default()))
    }

    fn image_of(memory: &GuestMemory, id: Id) -> File {
        let file = tempfile::tempfile().unwrap();
        prepare(memory, &file).unwrap();
        write(memory, &Pagemap::open().unwrap(), &file, id, &AtomicBool::new(false)).unwrap();
        file
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]
        #[test]
        fn what_is_written_is_mapped_again(
            writes in prop::collection::vec((prop_oneof![0..64 * MIB - 8, 4096 * MIB..8192 * MIB - 8], any::<u64>()), 0..40),
            later in 0..64 * MIB - 8,
        ) {
            let memory = guest::map(&slots()).unwrap();
            for (at, value) in &writes {
                memory.write_obj(*value, GuestAddress(*at)).unwrap();
            }
            let id = Id::new().unwrap();
            let file = image_of(&memory, id);
            check(&file, 64 * MIB + (4 << 30), id).unwrap();
            // Each page that was written takes one, two where a value is on both; and the last.
            prop_assert!(file.metadata().unwrap().blocks() * 512 <= (2 * writes.len() as u64 + 1) * (64 << 10));
            let again = guest::map_file(&slots(), None, &Arc::new(file)).unwrap();
            for (at, _) in &writes {
                let (is, was): (u64, u64) =
                    (again.read_obj(GuestAddress(*at)).unwrap(), memory.read_obj(GuestAddress(*at)).unwrap());
                prop_assert_eq!(is, was);
            }
            // And once more, with what it has besides.
            again.write_obj(!0u64, GuestAddress(later)).unwrap();
            let third = guest::map_file(&slots(), None, &Arc::new(image_of(&again, id))).unwrap();
            for at in writes.iter().map(|(at, _)| *at).chain([later]) {
                let (is, was): (u64, u64) =
                    (third.read_obj(GuestAddress(at)).unwrap(), again.read_obj(GuestAddress(at)).unwrap());
                prop_assert_eq!(is, was);
            }
        }
    }

    #[test]
    fn what_reads_as_zero_takes_no_room() {
        let memory = guest::map(&slots()).unwrap();
        for page in 0..1024 {
            memory.write_obj(0u64, GuestAddress(page * PAGE_SIZE)).unwrap();
        }
        let file = image_of(&memory, Id::new().unwrap());
        assert!(file.metadata().unwrap().blocks() * 512 <= 64 << 10);
    }

    #[test]
    fn another_image_is_refused() {
        let memory = guest::map(&slots()[..1]).unwrap();
        let (id, other) = (Id::new().unwrap(), Id::new().unwrap());
        let file = image_of(&memory, id);
        let said = |length, id| check(&file, length, id).map_err(|error| error.to_string());
        assert_eq!(said(64 * MIB, id), Ok(()));
        let must = "is not the memory of this state: must be what was written with it";
        assert_eq!(said(64 * MIB, other), Err(must.to_owned()));
        assert_eq!(said(65 * MIB, id), Err("has 67112960 bytes: must have 68161536".to_owned()));
        assert!(said(u64::MAX, id).is_err());
    }

    #[test]
    fn nobody_waits_for_what_nobody_wants() {
        let memory = guest::map(&slots()[..1]).unwrap();
        memory.write_obj(1u8, GuestAddress(0)).unwrap();
        let (file, id) = (tempfile::tempfile().unwrap(), Id::new().unwrap());
        let result = write(&memory, &Pagemap::open().unwrap(), &file, id, &AtomicBool::new(true));
        assert!(matches!(result, Err(ImageError::Cancelled)));
    }
}
