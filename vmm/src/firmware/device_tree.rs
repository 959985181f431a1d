// SPDX-License-Identifier: Apache-2.0
//! The device tree in which firmware finds the virtio devices, as QEMU's microvm has it (`hw/i386/microvm-dt.c`).
//!
//! EDK2 reads of it what it needs for its own drivers (`OvmfPkg/Fdt/VirtioFdtDxe`); the guest's kernel goes by ACPI.

use vm_fdt::{Error, FdtWriter};

use crate::bits::low32;
use crate::layout;

/// The I/O APIC's handle, by which interrupts name it.
const IOAPIC_HANDLE: u32 = 1;

/// The blob for a machine with `virtio_devices` devices, in slot order.
pub(super) fn build(virtio_devices: usize) -> Result<Vec<u8>, Error> {
    let mut tree = FdtWriter::new()?;
    let root = tree.begin_node("")?;
    tree.property_string("compatible", "linux,microvm")?;
    tree.property_u32("#address-cells", 2)?;
    tree.property_u32("#size-cells", 2)?;
    ioapic(&mut tree)?;
    for slot in 0..virtio_devices {
        virtio(&mut tree, slot as u64)?;
    }
    tree.end_node(root)?;
    tree.finish()
}

fn ioapic(tree: &mut FdtWriter) -> Result<(), Error> {
    let range = layout::IOAPIC;
    let node = tree.begin_node(&format!("ioapic@{:x}", range.start))?;
    tree.property_string("compatible", "intel,ce4100-ioapic")?;
    tree.property_array_u64("reg", &[range.start, range.end - range.start])?;
    tree.property_null("interrupt-controller")?;
    tree.property_u32("#interrupt-cells", 2)?;
    tree.property_u32("#address-cells", 2)?;
    tree.property_phandle(IOAPIC_HANDLE)?;
    tree.end_node(node)
}

fn virtio(tree: &mut FdtWriter, slot: u64) -> Result<(), Error> {
    let start = layout::VIRTIO_MMIO.start + slot * layout::VIRTIO_MMIO_STRIDE;
    let node = tree.begin_node(&format!("virtio_mmio@{start:x}"))?;
    tree.property_string("compatible", "virtio,mmio")?;
    tree.property_array_u64("reg", &[start, layout::VIRTIO_MMIO_STRIDE])?;
    tree.property_u32("interrupt-parent", IOAPIC_HANDLE)?;
    // Edge, rising.
    tree.property_array_u32("interrupts", &[layout::GSI_VIRTIO.start + low32(slot), 0])?;
    tree.property_null("dma-coherent")?;
    tree.end_node(node)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A node: its name, and its properties by name.
    type Node = (String, Vec<(String, Vec<u8>)>);

    fn word(bytes: &[u8], at: usize) -> usize {
        u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap()) as usize
    }

    fn text(bytes: &[u8]) -> String {
        let end = bytes.iter().position(|byte| *byte == 0).expect("a terminated name");
        String::from_utf8(bytes[..end].to_vec()).unwrap()
    }

    /// All nodes, by the flattened format (Devicetree specification 0.4, chapter 5).
    fn parse(blob: &[u8]) -> Vec<Node> {
        assert_eq!((word(blob, 0), word(blob, 4), word(blob, 20)), (0xd00d_feed, blob.len(), 17));
        let (mut at, strings) = (word(blob, 8), &blob[word(blob, 12)..]);
        let (mut nodes, mut open): (Vec<Node>, Vec<usize>) = (Vec::new(), Vec::new());
        loop {
            let token = word(blob, at);
            at += 4;
            match token {
                1 => {
                    let name = text(&blob[at..]);
                    at += (name.len() + 1).next_multiple_of(4);
                    open.push(nodes.len());
                    nodes.push((name, Vec::new()));
                }
                2 => drop(open.pop().expect("an open node")),
                3 => {
                    let (length, name) = (word(blob, at), text(&strings[word(blob, at + 4)..]));
                    let value = blob[at + 8..at + 8 + length].to_vec();
                    nodes[*open.last().unwrap()].1.push((name, value));
                    at += 8 + length.next_multiple_of(4);
                }
                4 => {}
                9 => break,
                other => panic!("token {other}"),
            }
        }
        assert!(open.is_empty());
        nodes
    }

    fn property<'a>(node: &'a Node, name: &str) -> &'a [u8] {
        &node.1.iter().find(|(known, _)| known == name).unwrap_or_else(|| panic!("{}: no {name}", node.0)).1
    }

    #[test]
    fn every_device_is_a_node_that_edk2_finds() {
        for count in [0, 1, layout::VIRTIO_SLOTS] {
            let nodes = parse(&build(count).unwrap());
            let found: Vec<_> = nodes
                .iter()
                .filter(|node| node.1.contains(&("compatible".into(), b"virtio,mmio\0".to_vec())))
                .collect();
            assert_eq!(found.len(), count);
            for (slot, node) in (0u64..).zip(found) {
                let start = 0xd000_0000 + slot * 0x1000;
                assert_eq!(node.0, format!("virtio_mmio@{start:x}"));
                // VirtioFdtDxe takes nothing but two 64-bit numbers.
                assert_eq!(property(node, "reg"), [start.to_be_bytes(), 0x1000u64.to_be_bytes()].concat());
                let interrupt = 10 + u32::try_from(slot).unwrap();
                assert_eq!(property(node, "interrupts"), [interrupt.to_be_bytes(), [0; 4]].concat());
                assert_eq!(property(node, "interrupt-parent"), 1u32.to_be_bytes());
            }
            assert_eq!(property(&nodes[0], "#address-cells"), 2u32.to_be_bytes());
            assert_eq!(property(&nodes[1], "phandle"), 1u32.to_be_bytes());
        }
    }
}
