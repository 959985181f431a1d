// SPDX-License-Identifier: Apache-2.0
//! The order in which variants are read.

use std::collections::{BTreeSet, HashMap};

use super::format::{Start, Variant};
use crate::modes::MODES;
use crate::terminal::size;

/// What has VMM, mode, init threads, switch and number of VMs in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block<T> {
    /// What it has in common.
    pub title: String,
    /// By vCPUs, then by memory, ascending.
    pub items: Vec<T>,
}

/// `items` in blocks: VMMs in the order in which they first occur, modes in that of [`MODES`], the full set before those
/// without a part of it.
pub fn blocks<T>(mut items: Vec<T>, variant: impl Fn(&T) -> &Variant) -> Vec<Block<T>> {
    let mut vmms = HashMap::new();
    let mut threads = HashMap::new();
    let mut without = HashMap::new();
    for (index, item) in items.iter().enumerate() {
        let variant = variant(item);
        vmms.entry(variant.vmm.clone()).or_insert(index);
        threads.entry(variant.threads.clone()).or_insert(index);
        without.entry(variant.without.clone()).or_insert(index);
    }
    items.sort_by_cached_key(|item| {
        let variant = variant(item);
        let mode = MODES.iter().position(|mode| mode.name == variant.mode).unwrap_or(MODES.len());
        let kind =
            (vmms.get(&variant.vmm).copied(), mode, variant.mode.clone(), threads.get(&variant.threads).copied());
        let switch = variant.without.as_ref().map(|_| without.get(&variant.without).copied());
        (kind, switch, variant.start, variant.vms, variant.cpus, variant.memory_bytes)
    });
    let mut blocks: Vec<Block<T>> = Vec::new();
    for item in items {
        let title = variant(&item).kind();
        match blocks.last_mut() {
            Some(block) if block.title == title => block.items.push(item),
            _ => blocks.push(Block { title, items: vec![item] }),
        }
    }
    blocks
}

/// Whether (vCPUs, bytes) are VM sizes as people buy them: more than one, and no two alike in vCPUs or in memory.
pub(crate) fn is_shapes(shapes: impl Iterator<Item = (u16, u64)>) -> bool {
    let shapes: BTreeSet<_> = shapes.collect();
    let distinct = |mut keys: Vec<u64>| {
        keys.sort_unstable();
        keys.dedup();
        keys.len() == shapes.len()
    };
    shapes.len() > 1
        && distinct(shapes.iter().map(|(cpus, _)| u64::from(*cpus)).collect())
        && distinct(shapes.iter().map(|(_, memory)| *memory).collect())
}

impl Variant {
    /// ", restored", ", restored from 512 MiB", ", resized from 1 GiB"; nothing if it is booted.
    #[must_use]
    pub fn started(&self) -> String {
        match self.start {
            None => String::new(),
            Some(Start::Restored { from_bytes: None }) => ", restored".to_owned(),
            Some(Start::Restored { from_bytes: Some(from) }) => format!(", restored from {}", size(from)),
            Some(Start::Resized { from_bytes }) => format!(", resized from {}", size(from_bytes)),
        }
    }

    /// All but the VM's size: "flatboot parallel (2 threads)", "flatboot async without arenas", "100 × flatboot async".
    #[must_use]
    pub fn kind(&self) -> String {
        let threads = self.threads.as_ref().map(|threads| format!(" ({threads} threads)")).unwrap_or_default();
        let without = self.without.as_ref().map(|switch| format!(" without {switch}")).unwrap_or_default();
        let vms = self.vms.map(|vms| format!("{vms} × ")).unwrap_or_default();
        format!("{vms}{} {}{threads}{without}{}", self.vmm, self.mode, self.started())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_in_reading_order() {
        let variant = |vmm: &str, mode: &str, threads: Option<&str>, cpus, memory_bytes| Variant {
            vmm: vmm.to_owned(),
            mode: mode.to_owned(),
            threads: threads.map(str::to_owned),
            memory_bytes,
            cpus,
            ..Variant::default()
        };
        let list = vec![
            variant("qemu", "parallel", None, 2, 9),
            variant("flatboot", "later", None, 1, 1),
            variant("flatboot", "parallel", Some("50%"), 1, 1),
            variant("qemu", "serial", None, 2, 1),
            variant("qemu", "parallel", None, 1, 9),
            variant("qemu", "parallel", None, 2, 1),
            variant("flatboot", "parallel", Some("1"), 1, 1),
            Variant { without: Some("x".into()), ..variant("qemu", "parallel", None, 1, 9) },
        ];
        let blocks = blocks(list, |variant| variant);
        let titles: Vec<_> = blocks.iter().map(|block| block.title.as_str()).collect();
        let expected = [
            "qemu serial",
            "qemu parallel",
            "qemu parallel without x",
            "flatboot parallel (50% threads)",
            "flatboot parallel (1 threads)",
            "flatboot later",
        ];
        assert_eq!(titles, expected);
        let sizes: Vec<_> = blocks[1].items.iter().map(|variant| (variant.cpus, variant.memory_bytes)).collect();
        assert_eq!(sizes, [(1, 9), (2, 1), (2, 9)]);
    }

    #[test]
    fn what_is_booted_comes_before_what_is_restored_or_resized() {
        let variant = |start, memory_bytes| Variant {
            vmm: "flatboot".to_owned(),
            mode: "ondemand".to_owned(),
            threads: None,
            without: None,
            memory_bytes,
            cpus: 2,
            vms: None,
            start,
        };
        let restored = |from_bytes| Some(Start::Restored { from_bytes });
        let list = vec![
            variant(Some(Start::Resized { from_bytes: 1 << 30 }), 4 << 30),
            variant(restored(Some(512 << 20)), 4 << 30),
            variant(restored(None), 4 << 30),
            variant(restored(None), 1 << 30),
            variant(None, 4 << 30),
        ];
        let blocks = blocks(list, |variant| variant);
        let shown: Vec<_> = blocks.iter().map(|block| (block.title.as_str(), block.items.len())).collect();
        let expected = [
            ("flatboot ondemand", 1),
            ("flatboot ondemand, restored", 2),
            ("flatboot ondemand, restored from 512 MiB", 1),
            ("flatboot ondemand, resized from 1 GiB", 1),
        ];
        assert_eq!(shown, expected);
    }

    #[test]
    fn shapes_differ_in_both() {
        assert!(is_shapes([(2, 8), (4, 16), (2, 8)].into_iter()));
        assert!(!is_shapes([(2, 8)].into_iter()));
        assert!(!is_shapes([(2, 8), (4, 8)].into_iter()));
        assert!(!is_shapes([(2, 8), (2, 16)].into_iter()));
    }
}
