// SPDX-License-Identifier: Apache-2.0

use std::io::Write;

use proptest::prelude::*;
use vm_memory::Bytes;

use super::*;
use crate::images::{ENTRY, TEXT, bzimage, efi_bzimage, vmlinux};

/// A file that vanishes with the test.
fn file(bytes: &[u8]) -> File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    file
}

fn inspect(bytes: &[u8]) -> Result<Image, KernelError> {
    Image::inspect(Path::new("vmlinux"), &file(bytes))
}

fn refusal(bytes: &[u8]) -> String {
    inspect(bytes).unwrap_err().to_string()
}

#[test]
fn vmlinux_loads_where_its_segments_say() {
    let mut image = inspect(&vmlinux()).unwrap();
    assert_eq!((image.entry(), image.footprint()), (ENTRY, GpaRange::of(ENTRY, 0x10_0000)));
    assert!(image.setup_header().is_none());
    let memory = crate::memory::guest::from_ranges(&[(GuestAddress(0), 32 << 20)]).unwrap();
    image.load(&memory).unwrap();
    let mut text = vec![0; TEXT.len()];
    memory.read_slice(&mut text, GuestAddress(ENTRY)).unwrap();
    assert_eq!(text, TEXT);
}

#[test]
fn bzimage_loads_at_one_mib_and_needs_room_at_its_preferred_address() {
    let mut image = inspect(&bzimage()).unwrap();
    assert_eq!(image.entry(), 0x10_0200);
    assert_eq!(image.footprint(), GpaRange::new(0x10_0000, ENTRY + 0x20_0000));
    let memory = crate::memory::guest::from_ranges(&[(GuestAddress(0), 32 << 20)]).unwrap();
    image.load(&memory).unwrap();
    assert_eq!(memory.read_obj::<u64>(GuestAddress(0x10_0000)).unwrap(), 0x9090_9090_9090_9090);
}

#[test]
fn either_format_truncated_at_any_byte_is_refused() {
    for image in [vmlinux(), bzimage()] {
        for length in 0..image.len() {
            let message = refusal(&image[..length]);
            assert!(message.starts_with("kernel vmlinux: "), "{length}: {message}");
        }
    }
}

#[test]
fn a_signature_that_is_cut_off_is_noticed() {
    let mut image = bzimage();
    image[..2].copy_from_slice(b"MZ");
    image[0x3c..0x40].copy_from_slice(&0x40u32.to_le_bytes());
    image[0x40..0x44].copy_from_slice(b"PE\0\0");
    image[0x40 + 24..0x40 + 26].copy_from_slice(&0x20bu16.to_le_bytes());
    let directory = 0x40 + 24 + 112 + 4 * 8;
    image[directory..directory + 4].copy_from_slice(&1088u32.to_le_bytes());
    image[directory + 4..directory + 8].copy_from_slice(&100u32.to_le_bytes());
    assert_eq!(refusal(&image), "kernel vmlinux: truncated: signature ends at byte 1188, the file has 1088");
    image.resize(1188, 0);
    inspect(&image).unwrap();
}

#[test]
fn firmware_starts_what_has_an_efi_stub() {
    let refused = |image: &[u8]| inspect(image).unwrap().efi_setup_length().unwrap_err().to_string();
    let needed = "firmware needs a bzImage with an EFI stub (CONFIG_EFI_STUB)";
    assert_eq!(refused(&vmlinux()), format!("kernel vmlinux: an ELF vmlinux; {needed}"));
    assert_eq!(refused(&bzimage()), format!("kernel vmlinux: a bzImage without an EFI stub; {needed}"));
    let mut image = efi_bzimage();
    assert_eq!(inspect(&image).unwrap().efi_setup_length().unwrap(), 1024);
    // The field's default is 4 sectors.
    image[0x1f1] = 0;
    image.resize(5 * 512 + 64, 0);
    assert_eq!(inspect(&image).unwrap().efi_setup_length().unwrap(), 2560);
}

/// A file whose only segment is of so many bytes of notes; it has 256 KiB.
fn notes(bytes: u64) -> Vec<u8> {
    let mut image = vmlinux();
    image.resize(256 << 10, 0);
    image[64..68].copy_from_slice(&4u32.to_le_bytes());
    image[64 + 32..64 + 40].copy_from_slice(&bytes.to_le_bytes());
    image
}

#[test]
fn what_is_no_kernel_is_named() {
    let patched = |at: usize, bytes: &[u8]| {
        let mut image = vmlinux();
        image[at..at + bytes.len()].copy_from_slice(bytes);
        image
    };
    let text = vec![b'x'; 4096];
    let gzip = [&[0x1f, 0x8b, 8, 0][..], &text].concat();
    let cpio = [b"070701", &text[..]].concat();
    let arm = [&text[..56], b"ARM\x64", &text].concat();
    let mut bzimage32 = bzimage();
    bzimage32[0x236] = 0;
    for (image, expected) in [
        (text.clone(), "no ELF and no Linux setup header"),
        (gzip, "gzip-compressed data"),
        (cpio, "a cpio archive"),
        (arm, "built for 64-bit Arm"),
        (patched(18, &183u16.to_le_bytes()), "built for 64-bit Arm"),
        (patched(18, &3u16.to_le_bytes()), "built for i386"),
        (patched(4, &[1]), "32-bit machine"),
        (patched(5, &[2]), "big-endian"),
        (patched(16, &1u16.to_le_bytes()), "of type 1, not an executable"),
        (patched(64 + 16, &0x40_0000u64.to_le_bytes()), "linked for user space"),
        (patched(64 + 40, &[0; 8]), "in the file and 0x0 in memory"),
        (notes(1 << 44), "truncated: note segment ends at byte"),
        (notes(0x1_0001), "65537 bytes of notes: must be at most 65536"),
        (patched(64, &3u32.to_le_bytes()), "dynamically linked program"),
        (patched(24, &0x1234u64.to_le_bytes()), "entry point 0x1234 is in no segment"),
        (patched(64 + 24, &0x1000u64.to_le_bytes()), "segment at physical 0x1000"),
        (patched(64 + 40, &u64::MAX.to_le_bytes()), "segment at physical 0x1000000"),
        (bzimage32, "32-bit x86"),
    ] {
        let message = refusal(&image);
        assert!(message.contains(expected), "{message:?} should say {expected:?}");
        assert!(!message.contains('\n'));
    }
}

proptest! {
    /// Whatever the bytes are: a verdict, no panic, and what is accepted can be loaded or fails cleanly.
    #[test]
    fn arbitrary_headers_get_a_verdict(
        start in prop_oneof![Just(vmlinux()), Just(bzimage())],
        changes in proptest::collection::vec((0usize..0x300, any::<u8>()), 0..12),
    ) {
        let mut bytes = start;
        for (at, value) in changes {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = value;
            }
        }
        let memory = crate::memory::guest::from_ranges(&[(GuestAddress(0), 32 << 20)]).unwrap();
        if let Ok(mut image) = inspect(&bytes) {
            let _ = image.load(&memory);
        }
    }
}
