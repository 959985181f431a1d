// SPDX-License-Identifier: Apache-2.0
//! The map of a VM's memory, for people and as JSON.

use std::cmp::Reverse;
use std::fmt;

use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use super::backing::{HostBacking, total};
use super::e820::E820Kind;
use super::plan::MemoryPlan;
use super::range::GpaRange;
use super::size::Size;
use crate::layout;

/// A plan, to be looked at.
///
/// Its [`Display`](fmt::Display) is a table, sorted by address, in which what lies inside a range is indented below it; its
/// [`Serialize`] has the same content, addresses and sizes in bytes.
#[derive(Debug, Clone, Copy)]
pub struct MemoryMap<'a>(pub &'a MemoryPlan);

struct Row {
    range: GpaRange,
    /// How deep in the tree rows of this kind are; rows of the same range become one.
    depth: usize,
    what: String,
}

impl MemoryMap<'_> {
    fn rows(self) -> Vec<Row> {
        let plan = self.0;
        let mut rows: Vec<_> = self.ram_rows().collect();
        rows.extend(plan.regions().iter().enumerate().map(|(index, region)| {
            let flags = names(region.flags.iter_names().map(|(name, _)| name));
            let node = self.of_node(region.node);
            row(GpaRange::of(region.base, region.length), 2, format!("region {index}{node}{flags}"))
        }));
        rows.extend(
            plan.arenas()
                .iter()
                .enumerate()
                .map(|(index, arena)| (GpaRange::of(arena.base, arena.length), index, self.of_node(arena.node)))
                .map(|(range, index, node)| row(range, 3, format!("memmap arena {index}{node}"))),
        );
        rows.extend(layout::RANGES.map(|(name, range)| {
            let range = GpaRange::from(range);
            let in_ram = plan.ram().iter().any(|ram| ram.contains(range));
            row(range, if in_ram { 3 } else { 0 }, name.to_owned())
        }));
        rows.extend(plan.kernel().map(|range| row(range, 3, "kernel".to_owned())));
        rows.extend(plan.initramfs().map(|range| row(range, 3, "initramfs".to_owned())));
        merge(rows)
    }

    fn ram_rows(&self) -> impl Iterator<Item = Row> {
        let slots = self.0.slots().iter().enumerate();
        let slots = slots.map(|(index, slot)| row(slot.range, 0, format!("KVM slot {index}")));
        let e820 = self.0.e820().iter().map(|entry| {
            let kind = match entry.kind {
                E820Kind::Ram => "RAM",
                E820Kind::Reserved => "reserved",
            };
            row(entry.range, 1, kind.to_owned())
        });
        slots.chain(e820)
    }

    /// Said where there is more than one.
    fn of_node(self, node: u32) -> String {
        if self.nodes() > 1 { format!(" of node {node}") } else { String::new() }
    }

    fn nodes(self) -> usize {
        let mut nodes: Vec<_> = self.0.slots().iter().map(|slot| slot.node).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes.len()
    }

    /// Sizes of the pages that back memory, each once.
    fn pages(self) -> Vec<u64> {
        let mut pages: Vec<_> = self.0.slots().iter().map(|slot| slot.backing.pages.bytes()).collect();
        pages.sort_unstable();
        pages.dedup();
        pages
    }

    fn hand_off_length(self) -> usize {
        flatboot_handoff::encoded_len(self.0.regions().len(), self.0.arenas().len())
    }
}

fn row(range: GpaRange, depth: usize, what: String) -> Row {
    Row { range, depth, what }
}

fn names<'a>(flags: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<_> = flags.collect();
    if names.is_empty() { String::new() } else { format!(" ({})", names.join(", ")) }
}

/// Sorts by address, a range before what lies inside it, and makes one row of those that have the same range.
fn merge(mut rows: Vec<Row>) -> Vec<Row> {
    rows.sort_by_key(|row| (row.range.start(), Reverse(row.range.end()), row.depth));
    let mut merged: Vec<Row> = Vec::with_capacity(rows.len());
    for row in rows {
        match merged.last_mut() {
            Some(last) if last.range == row.range => last.what = format!("{}, {}", last.what, row.what),
            _ => merged.push(row),
        }
    }
    indent(&mut merged);
    merged
}

/// Makes each row's depth the number of rows that it lies in.
fn indent(rows: &mut [Row]) {
    let mut open: Vec<GpaRange> = Vec::new();
    for row in rows {
        while open.pop_if(|outer| !outer.contains(row.range)).is_some() {}
        row.depth = open.len();
        open.push(row.range);
    }
}

impl fmt::Display for MemoryMap<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plan = self.0;
        writeln!(
            f,
            "{} of RAM in {}, {} pages, {}-bit guest physical addresses",
            plan.input().size(),
            count(plan.slots().len(), "KVM slot"),
            self.pages().into_iter().map(|page| Size(page).to_string()).collect::<Vec<_>>().join(" and "),
            plan.address_width().bits()
        )?;
        if let Some(held) = plan.held() {
            writeln!(f, "{} more can be added while the VM runs", Size(held.length()))?;
        }
        writeln!(
            f,
            "hand-off: {}, {}, {} bytes",
            count(plan.regions().len(), "region"),
            count(plan.arenas().len(), "arena"),
            self.hand_off_length()
        )?;
        let HostBacking { thp, prefault, early, ahead } = plan.backing();
        writeln!(
            f,
            "host memory: {} prefaulted, {} backed early by the vCPU threads and {} by all but the first, {} asked for as \
             transparent huge pages\n",
            amount(prefault),
            amount(early),
            amount(ahead),
            amount(thp)
        )?;

        writeln!(f, "{:<15}  {:<15}  {:>11}  WHAT", "START", "END", "SIZE")?;
        for Row { range, depth, what } in self.rows() {
            let size = Size(range.length());
            let indent = 2 * depth;
            writeln!(f, "{:#015x}  {:#015x}  {size:>11}  {:indent$}{what}", range.start(), range.end(), "")?;
        }
        Ok(())
    }
}

fn amount(ranges: &[GpaRange]) -> String {
    let bytes = total(ranges);
    if bytes == 0 { "none".to_owned() } else { Size(bytes).to_string() }
}

fn count(number: usize, of: &str) -> String {
    format!("{number} {of}{}", if number == 1 { "" } else { "s" })
}

impl Serialize for MemoryMap<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let plan = self.0;
        let regions = plan.regions().iter().map(|region| {
            json!({
                "start": region.base,
                "end": region.end(),
                "node": region.node,
                "flags": list(region.flags.iter_names().map(|(name, _)| name)),
            })
        });
        let arenas = plan.arenas().iter().map(|arena| {
            json!({
                "start": arena.base,
                "end": arena.end(),
                "node": arena.node,
            })
        });
        let slots = plan.slots().iter().map(|slot| {
            json!({
                "start": slot.range.start(),
                "end": slot.range.end(),
                "node": slot.node,
                "page_size": slot.backing.pages.bytes(),
                "host_numa_node": slot.backing.host_node,
            })
        });
        json!({
            "size": plan.input().size().0,
            "held": plan.held(),
            "hugepages": plan.slots().iter().any(|slot| slot.backing.pages.is_huge()),
            "page_size": self.pages().first(),
            "address_bits": plan.address_width().bits(),
            "slots": slots.collect::<Vec<_>>(),
            "e820": plan.e820(),
            "hand_off": {
                "length": self.hand_off_length(),
                "regions": regions.collect::<Vec<_>>(),
                "arenas": arenas.collect::<Vec<_>>(),
            },
            "host": {
                "prefault": plan.backing().prefault,
                "early": plan.backing().early,
                "ahead": plan.backing().ahead,
                "thp": plan.backing().thp,
            },
            "kernel": plan.kernel(),
            "initramfs": plan.initramfs(),
        })
        .serialize(serializer)
    }
}

fn list<'a>(names: impl Iterator<Item = &'a str>) -> Vec<Value> {
    names.map(Value::from).collect()
}
