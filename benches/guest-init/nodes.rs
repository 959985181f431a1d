// SPDX-License-Identifier: Apache-2.0
//! The kernel's nodes: what each has, and how far it is from the others.

use serde_json::{Value, json};

use crate::files;
use crate::memory::node_meminfo_kib;
use crate::outcome::Outcome;

const NODES: &str = "/sys/devices/system/node";

/// Every node that is online, by its number.
pub(crate) fn nodes() -> Outcome {
    let names = files::names(NODES);
    let mut numbers: Vec<u64> = names.iter().filter_map(|name| name.strip_prefix("node")?.parse().ok()).collect();
    numbers.sort_unstable();
    let nodes: Result<Vec<_>, _> = numbers.into_iter().map(node).collect();
    let nodes = nodes?;
    Ok((!nodes.is_empty(), json!({ "nodes": nodes })))
}

fn node(number: u64) -> Result<Value, String> {
    let file = |name: &str| files::text(format!("{NODES}/node{number}/{name}"));
    let distances = file("distance")?;
    let distances: Vec<u64> = distances.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let total = node_meminfo_kib(&file("meminfo")?, "MemTotal");
    Ok(json!({ "node": number, "cpus": file("cpulist")?.trim(), "distances": distances, "total_kib": total }))
}
