// SPDX-License-Identifier: Apache-2.0
//! The guest's nodes: which vCPUs and which parts of memory each has, and how far it is from the others.

use std::collections::{BTreeMap, BTreeSet};

use flatboot_handoff::SECTION_SIZE;
use serde::{Deserialize, Serialize};

use super::field::FieldError;
use super::memory::MemoryConfig;
use super::options::{OptionError, Options, parse_number};
use super::vcpus::CpusConfig;
use super::zone::{self, ZoneOption};
use super::{CpuCount, lists};
use crate::field::Field;
use crate::memory::{Size, Zone};
use crate::numa::{LOCAL, Node, Nodes, REMOTE};

/// Where they are in a configuration.
const OPTION: Field = Field::section("numa");
const KEYS: [&str; 4] = ["guest_numa_id", "cpus", "memory_zones", "distances"];
const MUST_BE_ID: &str = "must be the number of a node, at most 255";
/// What Linux on x86-64 can tell apart, as most distributions build it.
const LAST_ID: u32 = 255;
/// As many as the guest kernel is built for.
const MAX_NODES: usize = 64;
/// More would say that one cannot be reached from the other.
const FARTHEST: u8 = 254;

/// A node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "NumaFields", into = "NumaFields")]
pub struct NumaOption {
    id: u32,
    cpus: BTreeSet<u16>,
    zones: Vec<String>,
    distances: BTreeMap<u32, u8>,
}

/// The same as it is written in JSON.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct NumaFields {
    guest_numa_id: u32,
    #[serde(default)]
    cpus: BTreeSet<u16>,
    #[serde(default)]
    memory_zones: Vec<String>,
    #[serde(default)]
    distances: Vec<DistanceFields>,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct DistanceFields {
    destination: u32,
    distance: u8,
}

impl From<NumaOption> for NumaFields {
    fn from(NumaOption { id, cpus, zones, distances }: NumaOption) -> Self {
        let distances = distances.into_iter();
        let distances = distances.map(|(destination, distance)| DistanceFields { destination, distance }).collect();
        Self { guest_numa_id: id, cpus, memory_zones: zones, distances }
    }
}

impl TryFrom<NumaFields> for NumaOption {
    type Error = FieldError;

    fn try_from(fields: NumaFields) -> Result<Self, FieldError> {
        let NumaFields { guest_numa_id: id, cpus, memory_zones: zones, distances } = fields;
        if id > LAST_ID {
            return Err(FieldError::new("guest_numa_id", &id, MUST_BE_ID));
        }
        let mut all = BTreeMap::new();
        for DistanceFields { destination, distance } in distances {
            let wrong = |must: &str| FieldError::new("distances", &format!("[{destination}@{distance}]"), must);
            if destination == id && distance != LOCAL {
                return Err(wrong(&format!("must be {LOCAL} from a node to itself")));
            }
            if destination != id && !(LOCAL + 1..=FARTHEST).contains(&distance) {
                return Err(wrong(&format!("must be {} to {FARTHEST} from a node to another", LOCAL + 1)));
            }
            if all.insert(destination, distance).is_some() {
                return Err(wrong("must name each node once"));
            }
        }
        all.remove(&id);
        Ok(Self { id, cpus, zones, distances: all })
    }
}

impl NumaOption {
    /// Takes the text of `--numa`.
    pub(super) fn parse(text: &str) -> Result<Self, OptionError> {
        let options = Options::parse(OPTION, text, &KEYS)?;
        let id = options.value("guest_numa_id", |value| number(value).ok_or(MUST_BE_ID))?;
        let must_be_cpus = || format!("must be a list of vCPUs, as in [0-3,7], none above {}", CpuCount::MAX - 1);
        let cpus = options.value("cpus", |value| lists::numbers(value, CpuCount::MAX - 1).ok_or_else(must_be_cpus))?;
        let zones = |value: &str| Some(lists::parts(value)?.into_iter().map(str::to_owned).collect());
        let zones =
            options.value("memory_zones", |value| zones(value).ok_or("must be a list of zones, as in [a,b]"))?;
        let must_be_distances = "must be [ID@DISTANCE,...]";
        let distances = options.value("distances", |value| parse_distances(value).ok_or(must_be_distances))?;
        let fields = NumaFields {
            guest_numa_id: id.ok_or(OptionError::Missing { option: OPTION, keys: "guest_numa_id=ID" })?,
            cpus: cpus.unwrap_or_default(),
            memory_zones: zones.unwrap_or_default(),
            distances: distances.unwrap_or_default(),
        };
        Self::try_from(fields).map_err(|error| options.wrong_field(error))
    }

    fn wrong(index: usize, name: &'static str, value: &str, must: &str) -> FieldError {
        FieldError::of(OPTION.at(index).member(name), &value, must)
    }
}

fn number<T: TryFrom<u64>>(digits: &str) -> Option<T> {
    parse_number(digits)?.try_into().ok()
}

fn parse_distances(value: &str) -> Option<Vec<DistanceFields>> {
    let one = |part: &str| {
        let (destination, distance) = part.split_once('@')?;
        Some(DistanceFields { destination: number(destination)?, distance: number(distance)? })
    };
    lists::parts(value)?.into_iter().map(one).collect()
}

/// The nodes as the guest's kernel will number them, and the parts of memory in the order of its addresses. All that must hold
/// between nodes, vCPUs and memory is checked here.
pub(super) fn resolved(
    options: &[NumaOption],
    cpus: &CpusConfig,
    memory: &MemoryConfig,
) -> Result<(Nodes, Vec<Zone>), FieldError> {
    let nodes = if options.is_empty() {
        Nodes::one(cpus.boot.get())
    } else {
        check_ids(options)?;
        check_cpus(options, cpus.boot)?;
        check_cores(options, cpus)?;
        check_zones(options, &memory.zones())?;
        Nodes::in_order(&distant(options)?)
    };
    let zones = placed(options, &nodes, &memory.zones());
    check_sections(&zones, &memory.zones())?;
    Ok((nodes, zones.into_iter().map(|(_, zone)| zone).collect()))
}

fn check_ids(options: &[NumaOption]) -> Result<(), FieldError> {
    let mut seen = BTreeSet::new();
    for (index, NumaOption { id, .. }) in options.iter().enumerate() {
        let wrong = |must: &str| NumaOption::wrong(index, "guest_numa_id", &id.to_string(), must);
        if !seen.insert(*id) {
            return Err(wrong("is that of another node: must be the id of no other"));
        }
        if index >= MAX_NODES {
            return Err(wrong(&format!("must be one of at most {MAX_NODES} nodes")));
        }
    }
    Ok(())
}

/// Each vCPU is on one node.
fn check_cpus(options: &[NumaOption], boot: CpuCount) -> Result<(), FieldError> {
    let mut left: BTreeSet<u16> = (0..boot.get()).collect();
    for (index, NumaOption { cpus, .. }) in options.iter().enumerate() {
        let written = lists::written(cpus);
        let wrong = |must: &str| NumaOption::wrong(index, "cpus", &written, must);
        if let Some(cpu) = cpus.iter().find(|cpu| **cpu >= boot.get()) {
            return Err(wrong(&format!("has vCPU {cpu}: must be vCPUs below {boot}")));
        }
        if let Some(cpu) = cpus.iter().find(|cpu| !left.remove(cpu)) {
            return Err(wrong(&format!("has vCPU {cpu}, which another node has: must be vCPUs of no other node")));
        }
    }
    match options.iter().enumerate().next_back() {
        Some((index, last)) if !left.is_empty() => {
            let must = format!("leaves vCPUs {} on no node: each vCPU must be on a node", lists::written(&left));
            Err(NumaOption::wrong(index, "cpus", &lists::written(&last.cpus), &must))
        }
        _ => Ok(()),
    }
}

/// Threads of a core are on one node.
fn check_cores(options: &[NumaOption], cpus: &CpusConfig) -> Result<(), FieldError> {
    let core = |cpu: u16| cpus.topology.core_of(cpu);
    for (index, option) in options.iter().enumerate() {
        let others = || options.iter().skip(index + 1).flat_map(|other| &other.cpus);
        let split = option.cpus.iter().find_map(|cpu| Some((cpu, others().find(|other| core(**other) == core(*cpu))?)));
        if let Some((cpu, other)) = split {
            let must = format!("has vCPU {cpu} and not {other}, a thread of the same core: must be whole cores");
            return Err(NumaOption::wrong(index, "cpus", &lists::written(&option.cpus), &must));
        }
    }
    Ok(())
}

/// Each zone is on one node, and each node has memory.
fn check_zones(options: &[NumaOption], zones: &[ZoneOption]) -> Result<(), FieldError> {
    let mut left: Vec<&str> = zones.iter().map(|zone| zone.id.as_str()).collect();
    for (index, option) in options.iter().enumerate() {
        let wrong = |must: &str| NumaOption::wrong(index, "memory_zones", &option.zones.join(","), must);
        if option.zones.is_empty() {
            return Err(wrong("must be at least one zone"));
        }
        for zone in &option.zones {
            if !zones.iter().any(|there| there.id == *zone) {
                return Err(wrong(&format!("there is no zone {zone}: must be ids of zones")));
            }
            let Some(at) = left.iter().position(|id| id == zone) else {
                return Err(wrong(&format!("has zone {zone} a second time: must be zones of no other node")));
            };
            left.remove(at);
        }
    }
    match (options.iter().enumerate().next_back(), left.first()) {
        (Some((index, last)), Some(zone)) => {
            let must = format!("leaves zone {zone} on no node: each zone must be on a node");
            Err(NumaOption::wrong(index, "memory_zones", &last.zones.join(","), &must))
        }
        _ => Ok(()),
    }
}

/// The nodes with all distances: what is said of one direction is true of the other, too.
fn distant(options: &[NumaOption]) -> Result<Vec<Node>, FieldError> {
    for (index, NumaOption { id, distances, .. }) in options.iter().enumerate() {
        for (to, distance) in distances {
            let wrong = |must: &str| NumaOption::wrong(index, "distances", &format!("[{to}@{distance}]"), must);
            let other = options.iter().find(|other| other.id == *to);
            let other =
                other.ok_or_else(|| wrong(&format!("there is no node {to}: must be of nodes that are there")))?;
            if let Some(back) = other.distances.get(id).filter(|back| *back != distance) {
                return Err(wrong(&format!("must be {back}, as from node {to} to node {id}")));
            }
        }
    }
    let distance = |from: &NumaOption, to: &NumaOption| {
        let said = from.distances.get(&to.id).or_else(|| to.distances.get(&from.id));
        if from.id == to.id { LOCAL } else { said.copied().unwrap_or(REMOTE) }
    };
    let node = |from: &NumaOption| Node {
        domain: from.id,
        cpus: from.cpus.clone(),
        distances: options.iter().map(|to| distance(from, to)).collect(),
    };
    Ok(options.iter().map(node).collect())
}

/// All zones with their names, those of the first node first.
fn placed(options: &[NumaOption], nodes: &Nodes, zones: &[ZoneOption]) -> Vec<(String, Zone)> {
    let zone = |zone: &ZoneOption, node| (zone.id.clone(), Zone { size: zone.size, node, backing: zone.backing });
    if options.is_empty() {
        return zones.iter().map(|one| zone(one, 0)).collect();
    }
    let of_node = |(number, node): (u32, &Node)| {
        let ids = options.iter().filter(move |option| option.id == node.domain).flat_map(|option| &option.zones);
        let found = ids.filter_map(|id| zones.iter().find(|zone| zone.id == *id));
        found.map(|one| zone(one, number)).collect::<Vec<_>>()
    };
    nodes.iter().flat_map(of_node).collect()
}

/// A section is the unit in which the guest sets up its memory, so zones meet between sections.
fn check_sections(zones: &[(String, Zone)], in_order: &[ZoneOption]) -> Result<(), FieldError> {
    let wrong = |id: &str, must: &str| {
        let found = in_order.iter().enumerate().find(|(_, zone)| zone.id == *id);
        found.map_or_else(|| FieldError::without_value(zone::OPTION, must), |(index, zone)| zone.wrong(index, must))
    };
    let (_, all_but_last) = zones.split_last().unzip();
    let all_but_last: &[_] = all_but_last.unwrap_or_default();
    match all_but_last.iter().find(|(_, zone)| !zone.size.is_multiple_of(SECTION_SIZE)) {
        None => Ok(()),
        Some((id, zone)) => {
            let (size, section) = (Size(zone.size), Size(SECTION_SIZE));
            let must =
                format!("has {size:#} and is not the last in memory: its size must be a multiple of {section:#}");
            Err(wrong(id, &must))
        }
    }
}

#[cfg(test)]
mod tests;
