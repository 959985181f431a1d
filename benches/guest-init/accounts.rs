// SPDX-License-Identifier: Apache-2.0
//! What the kernel says of its memory in all places, whether the places agree, and settings that an administrator makes.

use std::fs;

use serde_json::{Map, Value, json};

use crate::files;
use crate::memory::{meminfo_kib, node_meminfo_kib, vmstat_sum};
use crate::outcome::Outcome;

const SETTINGS: &str = "/proc/sys/vm";
const NODES: &str = "/sys/devices/system/node";
/// Files are read one after the other, and each processor keeps some pages uncounted for a while: 8 MiB.
const APART_KIB: u64 = 8 << 10;
/// Where a processor is held up between two files they are further apart: so many readings may be.
const READINGS: usize = 5;

/// Every setting, every line of /proc/meminfo, every zone, the totals of every node; and what of it does not agree.
pub(crate) fn accounts() -> Outcome {
    let mut reading = Reading::now()?;
    for _ in 1..READINGS {
        if reading.complaints().is_empty() {
            break;
        }
        reading = Reading::now()?;
    }
    let complaints = reading.complaints();
    let report = json!({
        "complaints": complaints, "settings": settings(), "meminfo": lines(&reading.meminfo), "zones": reading.zones,
        "nodes": reading.nodes, "free_pages": vmstat_sum(&reading.vmstat, "nr_free_pages"),
    });
    Ok((complaints.is_empty(), report))
}

/// What the places say, one after the other.
struct Reading {
    meminfo: String,
    vmstat: String,
    zones: Vec<Map<String, Value>>,
    nodes: Vec<Map<String, Value>>,
}

impl Reading {
    fn now() -> Result<Self, String> {
        Ok(Self {
            meminfo: files::text("/proc/meminfo")?,
            vmstat: files::text("/proc/vmstat")?,
            zones: zones(&files::text("/proc/zoneinfo")?),
            nodes: nodes()?,
        })
    }

    fn complaints(&self) -> Vec<String> {
        complaints(&self.meminfo, &self.vmstat, &self.zones, &self.nodes)
    }
}

/// Writes a setting of /proc/sys/vm: `NAME:VALUE`, or `NAME:VALUE:VALUE…` for one that has several.
pub(crate) fn set(argument: &str) -> Outcome {
    let (name, values) = argument.split_once(':').ok_or_else(|| format!("set={argument}: expected NAME:VALUE"))?;
    let path = format!("{SETTINGS}/{name}");
    let wanted = values.replace(':', " ");
    fs::write(&path, &wanted).map_err(|error| format!("{path}: {wanted}: {error}"))?;
    let now = one_line(&files::text(&path)?);
    // Some settings have more values than can be set.
    let is_set = wanted.split(' ').zip(now.split(' ')).all(|(wanted, now)| wanted == now);
    Ok((is_set && !now.is_empty(), json!({ "name": name, "value": now })))
}

/// Sums that are made in different places from the same pages.
fn complaints(meminfo: &str, vmstat: &str, zones: &[Map<String, Value>], nodes: &[Map<String, Value>]) -> Vec<String> {
    let kib = |name| meminfo_kib(meminfo, name).unwrap_or(0);
    let sum =
        |maps: &[Map<String, Value>], name: &str| maps.iter().filter_map(|map| map.get(name)?.as_u64()).sum::<u64>();
    let exact = [
        ("managed pages of zones", sum(zones, "managed") * 4, "MemTotal", kib("MemTotal")),
        ("MemTotal of nodes", sum(nodes, "MemTotal"), "MemTotal", kib("MemTotal")),
    ];
    let near = [
        ("nr_free_pages", vmstat_sum(vmstat, "nr_free_pages") * 4, "MemFree", kib("MemFree")),
        ("free pages of zones", sum(zones, "free") * 4, "MemFree", kib("MemFree")),
        ("MemFree of nodes", sum(nodes, "MemFree"), "MemFree", kib("MemFree")),
    ];
    let wrong = |(one, is, other, should): &(&str, u64, &str, u64), apart: u64| {
        (is.abs_diff(*should) > apart).then(|| format!("{one}: {is} KiB; {other}: {should} KiB"))
    };
    let exact = exact.iter().filter_map(|pair| wrong(pair, 0));
    exact.chain(near.iter().filter_map(|pair| wrong(pair, APART_KIB))).collect()
}

/// All that can be read, as text in one line.
fn settings() -> Value {
    let names = files::names(SETTINGS).into_iter();
    let readable = names.filter_map(|name| Some((name.clone(), files::text(format!("{SETTINGS}/{name}")).ok()?)));
    readable.map(|(name, text)| (name, Value::String(one_line(&text)))).collect::<Map<_, _>>().into()
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// KiB of every line of /proc/meminfo by name.
fn lines(meminfo: &str) -> Value {
    let names = meminfo.lines().filter_map(|line| line.split_once(':')).map(|(name, _)| name);
    names.filter_map(|name| Some((name.to_owned(), meminfo_kib(meminfo, name)?.into()))).collect::<Map<_, _>>().into()
}

/// `node` and totals of each node, KiB.
fn nodes() -> Result<Vec<Map<String, Value>>, String> {
    let numbers = files::names(NODES).into_iter().filter_map(|name| name.strip_prefix("node")?.parse::<u64>().ok());
    let node = |number: u64| {
        let text = files::text(format!("{NODES}/node{number}/meminfo"))?;
        let names = ["MemTotal", "MemFree", "MemUsed", "MemDeferred"].into_iter();
        let values = names.filter_map(|name| Some((name.to_owned(), node_meminfo_kib(&text, name)?.into())));
        Ok(values.chain([("node".to_owned(), number.into())]).collect())
    };
    numbers.map(node).collect()
}

/// Each zone that spans any pages: its name, and every number that has a name, the first one of each. What is said of its node
/// comes before its own pages, and does not count; of the processors' lists those of the first do.
fn zones(zoneinfo: &str) -> Vec<Map<String, Value>> {
    let mut zones: Vec<Map<String, Value>> = Vec::new();
    for line in zoneinfo.lines() {
        if line.starts_with("Node ") {
            zones.push(Map::from_iter([("zone".to_owned(), one_line(line).into())]));
        }
        let Some(zone) = zones.last_mut() else { continue };
        let line = line.trim();
        if let Some(free) = line.strip_prefix("pages free") {
            zone.retain(|name, _| name == "zone");
            zone.insert("free".to_owned(), free.trim().parse::<u64>().map_or(Value::Null, Value::from));
        } else if let Some(list) = line.strip_prefix("protection:") {
            zone.insert("protection".to_owned(), list.trim().into());
        } else if let Some((name, value)) = line.rsplit_once(' ') {
            let name = name.trim().trim_end_matches(':').to_owned();
            if let Ok(value) = value.parse::<u64>() {
                zone.entry(name).or_insert(value.into());
            }
        }
    }
    zones.retain(|zone| zone.get("spanned").and_then(Value::as_u64).is_some_and(|spanned| spanned > 0));
    zones
}

#[cfg(test)]
mod tests {
    use super::*;

    const ZONEINFO: &str = "\
Node 0, zone   Normal
  per-node stats
      nr_inactive_anon 7
  pages free     100
        boost    0
        min      33
        low      41
        spanned  400
        present  300
        managed  250
        protection: (0, 0, 12)
      nr_free_pages 100
  pagesets
    cpu: 0
              count:    5
              high_min: 252
  vm stats threshold: 6
    cpu: 1
              count:    9
  start_pfn:           1048576
Node 0, zone  Movable
  pages free     0
        spanned  0
";

    #[test]
    fn zones_with_all_their_numbers() {
        let zones = zones(ZONEINFO);
        assert_eq!(zones.len(), 1);
        let zone = Value::Object(zones[0].clone());
        assert_eq!((&zone["zone"], &zone["protection"]), (&json!("Node 0, zone Normal"), &json!("(0, 0, 12)")));
        let numbers =
            ["free", "min", "low", "managed", "nr_free_pages", "count", "high_min", "start_pfn", "vm stats threshold"];
        assert_eq!(numbers.map(|name| zone[name].as_u64().unwrap()), [100, 33, 41, 250, 100, 5, 252, 1_048_576, 6]);
        assert!(zone["nr_inactive_anon"].is_null());
    }

    #[test]
    fn sums_that_do_not_agree() {
        let said = |total: u64, free: u64, node: u64| {
            let meminfo = format!("MemTotal: {total} kB\nMemFree: {free} kB\n");
            let nodes = [Map::from_iter([("MemTotal".to_owned(), node.into()), ("MemFree".to_owned(), 400.into())])];
            complaints(&meminfo, "nr_free_pages 100\n", &zones(ZONEINFO), &nodes).len()
        };
        assert_eq!(said(1000, 400, 1000), 0);
        assert_eq!(said(1000, 400 + APART_KIB, 1000), 0);
        assert_eq!(said(1000, 404 + APART_KIB, 1000), 3);
        assert_eq!(said(1004, 400, 1000), 2);
        assert_eq!(said(1000, 400, 996), 1);
    }

    #[test]
    fn settings_in_one_line() {
        assert_eq!(one_line("256\t256\t32\t0\t0\n"), "256 256 32 0 0");
        assert!(set("min_free_kbytes").is_err_and(|error| error.contains("expected NAME:VALUE")));
    }
}
