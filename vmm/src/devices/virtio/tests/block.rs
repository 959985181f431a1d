// SPDX-License-Identifier: Apache-2.0
//! The disk.

use std::io::Write;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex};

use proptest::prelude::*;
use vm_memory::{Bytes, GuestAddress};
use vmm_sys_util::tempfile::TempFile;

use super::disk;
use super::driver::{BUFFERS, Driver, INDIRECT_FLAG, MEMORY_SIZE, NEXT, QUEUE_SIZE, WRITE};
use crate::devices::bus::BusDevice;
use crate::devices::virtio::block::{Alignment, Lost, Settings};
use crate::devices::virtio::vectors::{Direction, Vectors};
use crate::devices::virtio::{Block, BlockError, Segment, VirtioDevice};

const IN: u32 = 0;
const OUT: u32 = 1;
const FLUSH: u32 = 4;
const GET_ID: u32 = 8;
const DISCARD: u32 = 11;
const ZEROES: u32 = 13;
const OK: u8 = 0;
const IOERR: u8 = 1;
const UNSUPP: u8 = 2;
const UNTOUCHED: u8 = 0x77;

const SECTORS: u8 = 8;
/// The parts of a request in guest memory.
const HEADER: u64 = BUFFERS;
const DATA: u64 = BUFFERS + 0x1000;
const STATUS: u64 = BUFFERS + 0x100;
/// Bytes from [`BUFFERS`] on that a test compares.
const SNAPSHOT: usize = 0x1_0000;
const F_SIZE_MAX: u64 = 1 << 1;
const F_SEG_MAX: u64 = 1 << 2;
const F_FLUSH: u64 = 1 << 9;

fn block(file: &TempFile, settings: Settings) -> Box<dyn VirtioDevice> {
    Box::new(Block::new(file.as_file().try_clone().unwrap(), settings).unwrap())
}

fn driver(file: &TempFile, readonly: bool) -> Driver {
    let settings = Settings { readonly, serial: "serial-0".to_owned(), ..Settings::default() };
    Driver::running(block(file, settings), 0)
}

fn put_header(driver: &Driver, kind: u32, sector: u64) {
    driver.memory.write_obj(u128::from(kind) | u128::from(sector) << 64, GuestAddress(HEADER)).unwrap();
    driver.memory.write_obj(UNTOUCHED, GuestAddress(STATUS)).unwrap();
}

fn status(driver: &Driver) -> u8 {
    driver.memory.read_obj(GuestAddress(STATUS)).unwrap()
}

/// Header, `data` and status byte as one request: status, and bytes written.
fn request(driver: &mut Driver, kind: u32, sector: u64, data: &[(u64, u32, bool)]) -> (u8, u32) {
    put_header(driver, kind, sector);
    let mut segments = vec![(HEADER, 16, false)];
    segments.extend(data);
    segments.push((STATUS, 1, true));
    let written = driver.request(&segments);
    (status(driver), written)
}

/// A request that erases `ranges`: sector, sectors, flags.
fn erase(driver: &mut Driver, kind: u32, ranges: &[(u64, u32, u32)]) -> u8 {
    let bytes: Vec<u8> = ranges
        .iter()
        .flat_map(|(sector, sectors, flags)| {
            [sector.to_le_bytes().as_slice(), &sectors.to_le_bytes(), &flags.to_le_bytes()].concat()
        })
        .collect();
    driver.memory.write_slice(&bytes, GuestAddress(DATA)).unwrap();
    request(driver, kind, 0, &[(DATA, u32::try_from(bytes.len()).unwrap(), false)]).0
}

/// The bytes of a file, a sector's first one for all of it.
fn sectors(file: &TempFile) -> Vec<u8> {
    let length = usize::try_from(file.as_file().metadata().unwrap().len()).unwrap();
    let mut bytes = vec![0; length];
    file.as_file().read_exact_at(&mut bytes, 0).unwrap();
    bytes
        .chunks(512)
        .map(|sector| if sector.iter().all(|byte| *byte == sector[0]) { sector[0] } else { 0xee })
        .collect()
}

#[test]
fn what_is_erased_is_zero_and_nothing_else_is() {
    for (kind, flags) in [(DISCARD, 0), (ZEROES, 0), (ZEROES, 1)] {
        let file = disk(SECTORS);
        let mut driver = driver(&file, false);
        assert_eq!(erase(&mut driver, kind, &[(2, 3, flags)]), OK, "{kind} {flags}");
        assert_eq!(sectors(&file), [1, 2, 0, 0, 0, 6, 7, 8], "{kind} {flags}");
    }
    let file = disk(SECTORS);
    let mut driver = driver(&file, false);
    assert_eq!(erase(&mut driver, DISCARD, &[(0, 1, 0), (7, 1, 0), (3, 0, 0)]), OK);
    assert_eq!(sectors(&file), [0, 2, 3, 4, 5, 6, 7, 0]);
}

#[test]
fn what_is_discarded_needs_no_room_unless_it_is_to() {
    use std::os::unix::fs::MetadataExt;
    let blocks = |file: &TempFile| file.as_file().metadata().unwrap().blocks();
    for (sparse, kind, freed) in [(true, DISCARD, true), (true, ZEROES, true), (false, ZEROES, false)] {
        let file = TempFile::new().unwrap();
        file.as_file().write_all(&vec![7; 1 << 20]).unwrap();
        file.as_file().sync_all().unwrap();
        let before = blocks(&file);
        let mut driver = Driver::running(block(&file, Settings { sparse, ..Settings::default() }), 0);
        assert_eq!(erase(&mut driver, kind, &[(0, 2048, u32::from(kind == ZEROES))]), OK);
        assert!(sectors(&file).iter().all(|byte| *byte == 0));
        assert_eq!(blocks(&file) < before, freed, "{sparse} {kind}");
    }
}

#[test]
fn a_request_that_erases_all_or_nothing() {
    let file = disk(SECTORS);
    let before = sectors(&file);
    let mut driver = driver(&file, false);
    for (kind, ranges, status) in [
        (DISCARD, vec![(0, 1, 0), (8, 1, 0)], IOERR),
        (DISCARD, vec![(u64::MAX, 1, 0)], IOERR),
        (DISCARD, vec![(0, u32::MAX, 0)], IOERR),
        (ZEROES, vec![(0, 1 << 17, 0)], IOERR),
        (DISCARD, vec![(0, 1, 1)], UNSUPP),
        (ZEROES, vec![(0, 1, 2)], UNSUPP),
        (ZEROES, vec![(0, 1, 0), (1, 1, 0)], IOERR),
        (DISCARD, vec![(0, 1, 0); 17], IOERR),
        (DISCARD, vec![], IOERR),
    ] {
        assert_eq!(erase(&mut driver, kind, &ranges), status, "{kind} {ranges:?}");
    }
    put_header(&driver, DISCARD, 0);
    assert_eq!(request(&mut driver, DISCARD, 0, &[(DATA, 17, false)]).0, IOERR, "not whole ranges");
    assert_eq!(sectors(&file), before);
}

#[test]
fn what_may_not_be_erased() {
    let file = disk(SECTORS);
    let before = sectors(&file);
    let mut read_only = driver(&file, true);
    assert_eq!(read_only.offered() & (1 << 13 | 1 << 14), 0);
    assert_eq!(
        (erase(&mut read_only, DISCARD, &[(0, 1, 0)]), erase(&mut read_only, ZEROES, &[(0, 1, 0)])),
        (IOERR, IOERR)
    );
    let mut dense = Driver::running(block(&file, Settings { sparse: false, ..Settings::default() }), 0);
    assert_eq!(dense.offered() & (1 << 13 | 1 << 14), 1 << 14);
    assert_eq!(erase(&mut dense, DISCARD, &[(0, 1, 0)]), UNSUPP);
    assert_eq!(sectors(&file), before);
}

#[test]
fn the_driver_is_told_how_much_it_may_erase() {
    let mut driver = driver(&disk(SECTORS), false);
    let mut config = [0; 60];
    for (at, bytes) in config.chunks_mut(4).enumerate() {
        bytes.copy_from_slice(&driver.get(0x100 + 4 * at as u64).to_le_bytes());
    }
    let word = |at: usize| u32::from_le_bytes(config[at..at + 4].try_into().unwrap());
    // Capacity; block size; most sectors and ranges to discard; their alignment; most zeros, in one range, which may be unmapped.
    assert_eq!((word(0), word(20)), (8, 512));
    assert_eq!([36, 40, 44, 48, 52, 56].map(word), [1 << 17, 16, 1, 1 << 16, 1, 1]);
}

/// Bytes `at` on of what the driver is told.
fn told(driver: &mut Driver, at: u64, width: usize) -> u64 {
    let mut bytes = [0; 8];
    driver.transport.read(0x100 + at, &mut bytes[..width]);
    u64::from_le_bytes(bytes)
}

#[test]
fn segments_follow_the_size_of_the_queue() {
    for (queue_size, segments) in [(4, 2), (128, 126), (1024, 126)] {
        let file = disk(SECTORS);
        let mut driver = Driver::new(block(&file, Settings { queue_size, ..Settings::default() }));
        driver.set(0x30, 0);
        assert_eq!((driver.get(0x34), told(&mut driver, 12, 4)), (queue_size.into(), segments));
    }
}

#[test]
fn the_driver_is_told_what_the_file_is_best_read_in() {
    use std::os::unix::fs::MetadataExt;
    let file = disk(SECTORS);
    let size = file.as_file().metadata().unwrap().blksize();
    assert!(size.is_power_of_two() && size >= 512, "this test's file system: {size}");
    let mut driver = driver(&file, false);
    assert_ne!(driver.offered() & 1 << 10, 0);
    // As a power of two, the first one's place, and the least: all in blocks of 512 bytes.
    assert_eq!(512 << told(&mut driver, 24, 1), size);
    assert_eq!((told(&mut driver, 25, 1), 512 * told(&mut driver, 26, 2), told(&mut driver, 28, 4)), (0, size, 0));
    // It takes no less than what direct I/O does.
    let direct = Some(Alignment { memory: 512, offset: 4096 });
    let mut large = Driver::new(block(&file, Settings { direct, ..Settings::default() }));
    assert_eq!((told(&mut large, 20, 4), told(&mut large, 44, 4)), (4096, 8));
    assert_eq!(4096 << told(&mut large, 24, 1), size.max(4096));
}

/// The file once more, for direct I/O, and what it wants; none where this file system has none.
fn directly(file: &TempFile) -> Option<(std::fs::File, Alignment)> {
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = std::fs::File::options();
    let opened = options.read(true).write(true).custom_flags(libc::O_DIRECT).open(file.as_path());
    let opened = opened.and_then(|file| Alignment::of(&file).map(|alignment| (file, alignment)));
    opened.map_err(|error| eprintln!("SKIPPED: no direct I/O here: {error}")).ok()
}

#[test]
fn direct_requests_may_lie_anywhere_in_memory() {
    let file = TempFile::new().unwrap();
    file.as_file().write_all(&(0..1u32 << 18).flat_map(u32::to_le_bytes).collect::<Vec<_>>()).unwrap();
    let Some((opened, alignment)) = directly(&file) else { return };
    let settings = Settings { direct: Some(alignment), ..Settings::default() };
    let mut driver = Driver::running(Box::new(Block::new(opened, settings).unwrap()), 0);
    let sectors = u64::from(alignment.offset) / 512;
    let bytes = std::fs::read(file.as_path()).unwrap();
    for odd in [0, 1, 4, 100, 512] {
        // In two pieces, which together are more than is moved at once, and of which neither is a whole number of sectors.
        let (first, second) = (DATA + odd, DATA + odd + 0x2_0101);
        let parts = [(first, 0x2_0101, true), (second, 0x1_feff, true)];
        assert_eq!(request(&mut driver, IN, sectors, &parts), (OK, 0x4_0001), "{odd}");
        let expected = &bytes[alignment.offset as usize..][..0x4_0000];
        assert!(driver.bytes(first, 0x4_0000) == expected, "{odd}");
        let parts = parts.map(|(address, length, _)| (address, length, false));
        assert_eq!(request(&mut driver, OUT, 8 * sectors, &parts), (OK, 1), "{odd}");
        let content = std::fs::read(file.as_path()).unwrap();
        assert!(content[8 * alignment.offset as usize..][..0x4_0000] == *expected, "{odd}");
        file.as_file().write_all_at(&bytes, 0).unwrap();
    }
    assert_eq!(erase(&mut driver, ZEROES, &[(0, 8, 0)]), OK);
    assert!(std::fs::read(file.as_path()).unwrap()[..4096].iter().all(|byte| *byte == 0));
}

/// As the host's blocks of 4 KiB are: a piece that is no multiple of one is not for the file as it lies.
#[test]
fn pieces_are_whole_blocks_of_the_host() {
    let file = disk(8);
    let driver = driver(&file, false);
    for (parts, expected) in [([3584, 512], false), ([4096, 4096], true), ([4096, 8192], true)] {
        let mut at = DATA + 512;
        let segments = parts.map(|length| {
            at += u64::from(length);
            Segment { address: GuestAddress(at - u64::from(length)), length }
        });
        let vectors = Vectors::new(&driver.memory, &segments, Direction::Read).unwrap();
        assert_eq!(vectors.are_aligned(512, 4096), expected, "{parts:?}");
        assert!(!vectors.are_aligned(4096, 512), "{parts:?}");
    }
}

#[test]
fn what_direct_requests_cannot_do_is_refused() {
    let file = disk(16);
    let direct = Some(Alignment { memory: 512, offset: 4096 });
    let mut driver = Driver::running(block(&file, Settings { direct, ..Settings::default() }), 0);
    assert_eq!(request(&mut driver, IN, 1, &[(DATA, 4096, true)]).0, IOERR);
    assert_eq!(request(&mut driver, IN, 0, &[(DATA, 512, true)]).0, IOERR);
    assert_eq!(request(&mut driver, IN, 8, &[(DATA, 4096, true)]), (OK, 4097));
}

#[test]
fn files_that_are_no_disks() {
    let file = TempFile::new().unwrap();
    let open = |file: &TempFile| Block::new(file.as_file().try_clone().unwrap(), Settings::default());
    assert!(matches!(open(&file), Err(BlockError::Empty)));
    file.as_file().write_all(&[0; 513]).unwrap();
    assert_eq!(open(&file).unwrap_err().to_string(), "the disk has 513 bytes, which is not a multiple of 512");
}

#[test]
fn read_write_flush() {
    let file = disk(SECTORS);
    let mut driver = driver(&file, false);
    assert_eq!(request(&mut driver, IN, 2, &[(DATA, 1024, true)]), (OK, 1025));
    assert_eq!(driver.bytes(DATA, 1024), [[3; 512], [4; 512]].concat());
    driver.memory.write_slice(&[0xab; 512], GuestAddress(DATA)).unwrap();
    assert_eq!(request(&mut driver, OUT, 7, &[(DATA, 512, false)]), (OK, 1));
    assert_eq!(request(&mut driver, FLUSH, 0, &[]), (OK, 1));
    let content = std::fs::read(file.as_path()).unwrap();
    assert_eq!(content.len(), 8 * 512);
    assert_eq!(content[6 * 512..], [[7; 512], [0xab; 512]].concat());
}

#[test]
fn a_driver_without_flush_writes_through() {
    let file = disk(SECTORS);
    let mut driver = Driver::running(block(&file, Settings::default()), F_FLUSH);
    assert_eq!(request(&mut driver, OUT, 0, &[(DATA, 512, false)]), (OK, 1));
}

#[test]
fn the_serial_number_is_padded_and_cut() {
    let file = disk(SECTORS);
    let mut driver = driver(&file, false);
    assert_eq!(request(&mut driver, GET_ID, 0, &[(DATA, 20, true)]), (OK, 21));
    assert_eq!(driver.bytes(DATA, 20), *b"serial-0\0\0\0\0\0\0\0\0\0\0\0\0");
    assert_eq!(request(&mut driver, GET_ID, 0, &[(DATA + 100, 4, true), (DATA + 200, 100, true)]), (OK, 21));
    assert_eq!(driver.bytes(DATA + 100, 5), *b"seri\0");
    assert_eq!(driver.bytes(DATA + 200, 5), *b"al-0\0");
}

#[test]
fn a_readonly_disk_is_never_written() {
    let file = disk(SECTORS);
    let mut driver = driver(&file, true);
    assert_ne!(driver.offered() & 1 << 5, 0);
    assert_eq!(request(&mut driver, OUT, 0, &[(DATA, 512, false)]), (IOERR, 1));
    assert_eq!(request(&mut driver, FLUSH, 0, &[]), (OK, 1));
    assert_eq!(request(&mut driver, IN, 0, &[(DATA, 512, true)]), (OK, 513));
    assert_eq!(std::fs::read(file.as_path()).unwrap(), std::fs::read(disk(SECTORS).as_path()).unwrap());
}

#[test]
fn requests_that_leave_the_disk_or_its_units_fail() {
    let file = disk(SECTORS);
    let mut driver = driver(&file, false);
    for write in [true, false] {
        let kind = if write { IN } else { OUT };
        for (sector, length) in
            [(8, 512), (7, 1024), (u64::MAX, 512), (u64::MAX / 512, 512), (1 << 55, 512), (0, 511), (0, 1)]
        {
            assert_eq!(request(&mut driver, kind, sector, &[(DATA, length, write)]), (IOERR, 1), "{sector} {length}");
        }
        assert_eq!(request(&mut driver, kind, 8, &[]), (OK, 1), "nothing, from the very end");
        assert_eq!(request(&mut driver, kind, 0, &[(DATA, u32::MAX - 100, write)]), (IOERR, 1));
    }
    assert_eq!(std::fs::metadata(file.as_path()).unwrap().len(), 8 * 512);
}

#[test]
fn a_disk_that_shrank_fails() {
    let file = disk(SECTORS);
    let mut driver = driver(&file, false);
    file.as_file().set_len(512).unwrap();
    assert_eq!(request(&mut driver, IN, 3, &[(DATA, 512, true)]), (IOERR, 1));
}

#[test]
fn memory_that_is_not_there_fails() {
    let file = disk(SECTORS);
    let mut driver = driver(&file, false);
    let end = MEMORY_SIZE as u64;
    for address in [end, end - 511, u64::MAX, u64::MAX - 511] {
        for (kind, write) in [(IN, true), (OUT, false), (GET_ID, true)] {
            // The serial number is short enough to fit before the end.
            let status = if kind == GET_ID && address == end - 511 { OK } else { IOERR };
            assert_eq!(request(&mut driver, kind, 0, &[(address, 512, write)]).0, status, "{address:#x} {kind}");
        }
    }
    put_header(&driver, IN, 0);
    assert_eq!(driver.request(&[(end - 8, 16, false), (DATA, 512, true), (STATUS, 1, true)]), 1);
    assert_eq!(status(&driver), IOERR);
    assert_eq!(driver.request(&[(HEADER, 16, false), (DATA, 512, true), (end, 1, true)]), 0, "no status byte");
    assert!(!driver.needs_reset());
}

#[test]
fn unknown_types_are_unsupported() {
    let file = disk(SECTORS);
    let mut driver = driver(&file, false);
    for kind in [2, 3, 5, 12, 14, 0x8000_0000, u32::MAX] {
        assert_eq!(request(&mut driver, kind, 0, &[]), (UNSUPP, 1), "{kind}");
    }
}

#[test]
fn malformed_chains_complete() {
    let file = disk(SECTORS);
    let mut driver = driver(&file, false);
    // No status byte, in several ways.
    put_header(&driver, FLUSH, 0);
    for segments in [&[(HEADER, 16, false)][..], &[(HEADER, 16, false), (STATUS, 0, true)], &[(HEADER, 0, false)]] {
        assert_eq!(driver.request(segments), 0);
        assert_eq!(status(&driver), UNTOUCHED);
    }
    // A status byte, but something before it is wrong.
    for segments in [
        &[(STATUS, 1, true)][..],
        &[(HEADER, 15, false), (STATUS, 1, true)],
        &[(DATA, 512, true), (HEADER, 16, false), (STATUS, 1, true)],
    ] {
        put_header(&driver, IN, 0);
        assert_eq!(driver.request(segments), 1);
        assert_eq!(status(&driver), IOERR, "{segments:x?}");
    }
    // Chains without an end: their last byte is not known.
    let broken = [
        vec![(HEADER, 16, NEXT, 1), (STATUS, 1, NEXT | WRITE, 0)],
        vec![(HEADER, 16, NEXT, 1), (STATUS, 1, NEXT | WRITE, QUEUE_SIZE)],
        vec![(HEADER, 16, NEXT, 1), (DATA, 8, INDIRECT_FLAG, 0)],
        vec![(MEMORY_SIZE as u64 - 8, 16, INDIRECT_FLAG, 0)],
        vec![(DATA, 0xffff_fff0, INDIRECT_FLAG, 0)],
        vec![(HEADER, u32::MAX, NEXT, 1), (DATA, u32::MAX, NEXT | WRITE, 2), (STATUS, 1, WRITE, 0)],
    ];
    for chain in broken {
        put_header(&driver, IN, 0);
        driver.table(0, &chain);
        let index = driver.used_index();
        driver.offer(0);
        driver.kick();
        assert_eq!(driver.used(index), (0, 0), "{chain:x?}");
        assert_eq!(status(&driver), UNTOUCHED, "{chain:x?}");
    }
    assert_eq!(request(&mut driver, IN, 0, &[(DATA, 512, true)]), (OK, 513), "and the next one works");
}

/// Takes what is logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn what_the_host_fails_is_said_once_in_a_while() {
    let file = disk(SECTORS);
    // It takes no writes: EBADF, as a full or broken file system would have ENOSPC or EIO.
    let source = std::fs::File::open(file.as_path()).unwrap();
    let device = Block::new(source, Settings { name: "data.img".to_owned(), ..Settings::default() }).unwrap();
    let mut driver = Driver::running(Box::new(device), 0);
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt().without_time().with_writer(move || writer.clone()).finish();
    tracing::subscriber::with_default(subscriber, || {
        for _ in 0..100 {
            assert_eq!(request(&mut driver, OUT, 0, &[(DATA, 512, false)]), (IOERR, 1));
            assert_eq!(request(&mut driver, OUT, 99, &[(DATA, 512, false)]), (IOERR, 1), "the guest's own fault");
        }
    });
    let said = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(
        said.contains("WARN") && said.contains("disk data.img: the host fails 1 request(s) with: Bad file"),
        "{said}"
    );
}

/// The host has failed one flush, and fails no more: it has forgotten.
#[test]
fn what_is_lost_is_not_forgotten() {
    let file = disk(SECTORS);
    for io_uring in [true, false] {
        for refused in [0, F_FLUSH] {
            let lost = Lost::default();
            let settings = Settings { io_uring, lost: lost.clone(), ..Settings::default() };
            let device = Block::new(file.as_file().try_clone().unwrap(), settings).unwrap();
            lost.flushed(Err(std::io::ErrorKind::Other.into())).unwrap_err();
            let mut driver = Driver::running(Box::new(device), refused);
            assert_eq!(request(&mut driver, FLUSH, 0, &[]).0, IOERR);
            assert_eq!(request(&mut driver, IN, 0, &[(DATA, 512, true)]).0, OK);
            let written = request(&mut driver, OUT, 0, &[(DATA, 512, false)]).0;
            assert_eq!(written, if refused == 0 { OK } else { IOERR }, "io_uring {io_uring}");
        }
    }
}

/// A disk of `size` bytes of nothing, the driver of which has `refused` some of its features, and a request for `segments` times
/// `length` bytes from its start.
fn large_request(size: u64, segments: usize, length: u32, refused: u64) -> (Driver, Vec<(u64, u32, bool)>) {
    let file = TempFile::new().unwrap();
    file.as_file().set_len(size).unwrap();
    let driver = Driver::running(block(&file, Settings::default()), refused);
    put_header(&driver, IN, 0);
    let mut request = vec![(HEADER, 16, false)];
    request.extend(vec![(DATA, length, true); segments]);
    request.push((STATUS, 1, true));
    (driver, request)
}

#[test]
fn a_request_has_a_most() {
    // 28 of these are SIZE_MAX times SEG_MAX, 126 MiB. Who does not accept both has not been told of them.
    for (segments, refused, expected) in
        [(28, 0, OK), (29, 0, IOERR), (29, F_SIZE_MAX, OK), (29, F_SEG_MAX, OK), (29, F_SIZE_MAX | F_SEG_MAX, OK)]
    {
        let (mut driver, request) = large_request(256 << 20, segments, (126 << 20) / 28, refused);
        driver.request(&request);
        assert_eq!(status(&driver), expected, "{segments} segments, without {refused:#x}");
    }
}

#[test]
fn many_requests_take_turns() {
    let (mut driver, request) = large_request(512, 1, 512, 0);
    driver.chain(0, &request);
    (0..QUEUE_SIZE).for_each(|_| driver.offer(0));
    assert!((3..=4).contains(&driver.kick()), "16, 16, and a look or two whether there is more");
    assert_eq!(driver.used_index(), QUEUE_SIZE);
}

#[test]
fn large_requests_take_turns() {
    let (mut driver, request) = large_request(4 << 20, 8, 512 << 10, 0);
    driver.chain(0, &request);
    (0..10).for_each(|_| driver.offer(0));
    // And one more look, since what was over at once has made room in the ring.
    assert!((3..=4).contains(&driver.kick()), "16 MiB, 16 MiB, 8 MiB");
    assert_eq!(driver.used_index(), 10);
}

/// One valid request: kind, sector, sectors, how to cut header, data and status, and whether by an indirect table.
type Plan = (u32, u8, u8, Vec<u16>, bool);

fn plan() -> impl Strategy<Value = Plan> {
    (
        prop_oneof![Just(IN), Just(OUT), Just(FLUSH), Just(GET_ID)],
        0..SECTORS,
        1..=SECTORS,
        prop::collection::vec(1u16..600, 0..6),
        any::<bool>(),
    )
}

/// Cuts `length` bytes at `address` where `cuts` says.
fn cut_up(address: u64, length: u32, cuts: &[u16], write: bool, segments: &mut Vec<(u64, u32, bool)>) {
    let mut at = 0;
    for cut in cuts.iter().map(|&cut| u32::from(cut)) {
        if at + cut < length {
            segments.push((address + u64::from(at), cut, write));
            at += cut;
        }
    }
    segments.push((address + u64::from(at), length - at, write));
}

proptest! {
    /// Valid requests, cut into descriptors in any way, do to disk and memory what they say and nothing else.
    #[test]
    fn valid_requests_do_what_they_say(
        plans in prop::collection::vec(plan(), 1..40),
        fill: u8,
        io_uring: bool,
        refused in prop_oneof![Just(0), Just(F_FLUSH)],
    ) {
        let file = disk(SECTORS);
        let settings = Settings { io_uring, serial: "serial-0".to_owned(), ..Settings::default() };
        let mut driver = Driver::running(block(&file, settings), refused);
        let mut model = std::fs::read(file.as_path()).unwrap();
        for (index, (kind, sector, count, cuts, indirect)) in (0u16..).zip(plans) {
            let count = count.min(SECTORS - sector);
            let length = match kind { IN | OUT => u32::from(count) * 512, GET_ID => 20, _ => 0 };
            put_header(&driver, kind, sector.into());
            let data = vec![fill.wrapping_add(index as u8); length as usize];
            driver.memory.write_slice(&data, GuestAddress(DATA)).unwrap();
            let mut segments = Vec::new();
            cut_up(HEADER, 16, &cuts, false, &mut segments);
            if length > 0 {
                cut_up(DATA, length, &cuts, kind != OUT, &mut segments);
            }
            segments.push((STATUS, 1, true));
            if indirect {
                driver.indirect_chain(0, &segments);
            } else {
                driver.chain(0, &segments);
            }
            let mut before = driver.bytes(BUFFERS, SNAPSHOT);
            driver.offer(0);
            driver.kick();
            let disk = usize::from(sector) * 512..usize::from(sector + count) * 512;
            let written = match kind {
                IN => {
                    before[0x1000..][..length as usize].copy_from_slice(&model[disk]);
                    length
                }
                OUT => {
                    model[disk].copy_from_slice(&data);
                    0
                }
                GET_ID => {
                    before[0x1000..][..20].copy_from_slice(b"serial-0\0\0\0\0\0\0\0\0\0\0\0\0");
                    20
                }
                _ => 0,
            };
            before[0x100] = OK;
            prop_assert_eq!(driver.used_index(), index + 1);
            prop_assert_eq!(driver.used(index), (0, written + 1));
            prop_assert!(driver.bytes(BUFFERS, SNAPSHOT) == before, "memory differs");
            prop_assert!(std::fs::read(file.as_path()).unwrap() == model, "disk differs");
        }
        prop_assert!(!driver.needs_reset());
    }
}

/// Says to this test binary that it is the process of its own that the test below needs.
const WITHOUT_RING: &str = "FLATBOOT_TEST_WITHOUT_RING";

/// Where no ring can be had, requests are done one after another.
#[test]
fn a_disk_does_without_a_ring() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    if std::env::var_os(WITHOUT_RING).is_none() {
        let mut again = std::process::Command::new(std::env::current_exe().unwrap());
        again.args(["--exact", "--test-threads=1", "devices::virtio::tests::block::a_disk_does_without_a_ring"]);
        let output = again.env(WITHOUT_RING, "1").output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("1 passed"), "{said}");
        return;
    }
    let file = disk(SECTORS);
    let opened = file.as_file().try_clone().unwrap();
    // As if the host had no descriptor left for it.
    let before = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(0), ..before }).unwrap();
    let block = Block::new(opened, Settings::default()).unwrap();
    setrlimit(Resource::Nofile, before).unwrap();
    assert!(block.sources().is_empty(), "it has no ring to wait for");
    let mut driver = Driver::running(Box::new(block), 0);
    assert_eq!(request(&mut driver, IN, 2, &[(DATA, 512, true)]), (OK, 513));
    assert_eq!(driver.bytes(DATA, 512), [3; 512]);
}

/// The kernel has what it is asked for in memory: the request is over before its turn is, and there is nothing to look at again.
#[test]
fn what_is_over_at_once_takes_one_turn() {
    let file = TempFile::new().unwrap();
    file.as_file().write_all(&[7; 4096]).unwrap();
    let mut driver = driver(&file, false);
    put_header(&driver, IN, 0);
    driver.chain(0, &[(HEADER, 16, false), (DATA, 512, true), (STATUS, 1, true)]);
    driver.offer(0);
    assert_eq!((driver.kick(), status(&driver)), (1, OK));
}
