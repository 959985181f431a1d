// SPDX-License-Identifier: Apache-2.0
//! What must hold of a guest that has passed its own checks.

use std::fs;

use flatboot_bench::guest::Ended;
use serde_json::Value;

use super::lists::{self, Lists};
use super::modes::{Filled, Mode};
use super::scenarios::Scenario;
use crate::vm::lab::Lab;

/// KiB that are deferred in a section of 128 MiB.
const SECTION_KIB: u64 = 128 << 10;

/// What must be the same in all modes, and what is compared within a bound.
#[derive(Debug, Clone)]
pub(super) struct Facts {
    /// `MemTotal`, KiB.
    total: Value,
    /// Of each zone: node, name, first page, pages spanned and present.
    zones: Value,
    /// Pages that the allocator has in each zone.
    managed: Vec<u64>,
    /// KiB that are not filled.
    deferred: u64,
    lists: Lists,
}

impl Facts {
    pub(super) fn of(ended: &Ended) -> Result<Self, String> {
        let meminfo = report(ended, "meminfo")?;
        let zones = || meminfo["zones"].as_array().into_iter().flatten();
        let fixed = ["node", "zone", "start_pfn", "spanned", "present"];
        let shape = |zone: &Value| fixed.iter().map(|field| zone[*field].clone()).collect::<Value>();
        Ok(Self {
            total: meminfo["total_kib"].clone(),
            zones: zones().map(shape).collect(),
            managed: zones().filter_map(|zone| zone["managed"].as_u64()).collect(),
            deferred: meminfo["deferred_kib"].as_u64().unwrap_or(0),
            lists: Lists::of(report(ended, "lists")?),
        })
    }
}

/// `holds`, or else `what`.
fn require(holds: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what()) }
}

fn report<'a>(ended: &'a Ended, name: &str) -> Result<&'a Value, String> {
    ended.report(name).ok_or_else(|| format!("the guest did not report {name}"))
}

/// What the mode alone promises.
pub(super) fn promises(lab: &Lab, mode: &Mode, scenario: &Scenario, ended: &Ended) -> Result<(), String> {
    nodes(mode, ended)?;
    if scenario.races && mode.filled == Filled::InBackground {
        raced(ended)?;
    }
    deferred_at_the_end(mode, report(ended, "meminfo")?)?;
    if mode.filled == Filled::WhenNeeded {
        deferred_at_first(ended)?;
    }
    for report in &ended.reports {
        match report["check"].as_str() {
            Some("hog") => hogged(mode, report)?,
            Some("walk") => walked(mode, report)?,
            _ => {}
        }
    }
    verified(lab, report(ended, "verify")?)
}

/// The mode is the one in effect on all nodes, memory was deferred when init began if it is to be, and all that is to be
/// filled is filled.
fn nodes(mode: &Mode, ended: &Ended) -> Result<(), String> {
    let report = report(ended, mode.last_check().split('=').next().unwrap_or_default())?;
    late(mode, report)?;
    for node in report["nodes"].as_array().into_iter().flatten() {
        require(node["mode"] == mode.name, || format!("another mode is in effect: {node}"))?;
        let (filled, sections) = (node["filled"].as_u64(), node["sections"].as_u64());
        // Kernels that fill all before init need not say so.
        require(filled.is_some() || mode.waits(), || format!("no word on how much is filled: {node}"))?;
        let well = if mode.filled == Filled::WhenNeeded {
            filled <= sections
        } else {
            filled.is_none_or(|n| Some(n) == sections)
        };
        require(well, || format!("not filled as it should be: {node}"))?;
    }
    Ok(())
}

/// At least a section was deferred when init began, of all nodes, or nothing where init waits.
fn late(mode: &Mode, report: &Value) -> Result<(), String> {
    let nodes = || report["nodes"].as_array().into_iter().flatten();
    let pages: Option<u64> = nodes().map(|node| node["late"].as_u64()).sum();
    let well = if mode.waits() { pages.unwrap_or(0) == 0 } else { pages >= Some(SECTION_KIB / 4) };
    require(well, || format!("deferred pages when init began: {pages:?}"))
}

/// Memory was asked for while it was still being filled.
fn raced(ended: &Ended) -> Result<(), String> {
    let hog = report(ended, "hog")?;
    require(hog["deferred_first_kib"].as_u64() > Some(0), || {
        format!("all was filled before memory was asked for: {hog}")
    })
}

fn deferred_at_the_end(mode: &Mode, meminfo: &Value) -> Result<(), String> {
    let deferred = &meminfo["deferred_kib"];
    match mode.filled {
        Filled::BeforeInit => require(deferred.is_null() || *deferred == 0, || format!("MemDeferred: {deferred}")),
        Filled::InBackground => require(*deferred == 0, || format!("all is filled, but MemDeferred: {deferred}")),
        Filled::WhenNeeded => require(deferred.is_u64(), || "no MemDeferred".to_owned()),
    }
}

/// Before anyone has asked for much, at least a third of memory is deferred: of the smallest guest's six sections the kernel
/// itself needs one or two, and each of its zones begins with one.
fn deferred_at_first(ended: &Ended) -> Result<(), String> {
    let is_first = |report: &&Value| !matches!(report["check"].as_str(), Some("start" | "thp"));
    let Some(first) = ended.reports.iter().find(is_first) else { return Ok(()) };
    let deferred = match first["check"].as_str() {
        Some("hog") => &first["deferred_first_kib"],
        Some("walk") => &first["deferred_before_kib"],
        _ => return Ok(()),
    };
    let total = report(ended, "meminfo")?["total_kib"].as_u64().unwrap_or(u64::MAX);
    require(deferred.as_u64() > Some(total / 3), || {
        format!("of {total} KiB only {deferred} KiB were deferred at first")
    })
}

/// Memory was set up before any was taken back, and by the section as it was asked for.
fn hogged(mode: &Mode, hog: &Value) -> Result<(), String> {
    if mode.waits() {
        let none = hog["deferred_first_kib"].as_u64().unwrap_or(0) == 0;
        return require(none, || format!("memory was deferred when init ran: {hog}"));
    }
    require(hog["deferred_first_kib"].is_u64(), || format!("no MemDeferred: {hog}"))?;
    require(hog["reclaimed_early"] == 0, || format!("pages were taken back while memory was deferred: {hog}"))?;
    let (first, last) = (hog["deferred_first_kib"].as_u64(), hog["deferred_last_kib"].as_u64());
    let fell = first.unwrap_or(0).saturating_sub(last.unwrap_or(0));
    // It is looked at many times a second, so of four sections some are seen to come one by one.
    let steps =
        mode.filled != Filled::WhenNeeded || fell < 4 * SECTION_KIB || hog["deferred_falls"].as_u64() >= Some(2);
    require(steps, || format!("memory came all at once: {hog}"))
}

/// Looking at memory does not set it up.
fn walked(mode: &Mode, walk: &Value) -> Result<(), String> {
    let (before, after) = (walk["deferred_before_kib"].as_u64(), walk["deferred_after_kib"].as_u64());
    let (before, after) = (before.unwrap_or(0), after.unwrap_or(0));
    let kept = mode.filled != Filled::WhenNeeded || after + 2 * SECTION_KIB >= before;
    require(kept, || format!("a walk set up memory: {walk}"))
}

/// A kernel that can tell has told.
fn verified(lab: &Lab, verify: &Value) -> Result<(), String> {
    let config =
        fs::read_to_string(lab.kernel.join("config")).map_err(|error| format!("the kernel's config: {error}"))?;
    let can = config.lines().any(|line| line == "CONFIG_MEMMAP_INIT_VERIFY=y");
    require(verify["present"] == can, || format!("CONFIG_MEMMAP_INIT_VERIFY is {can}: {verify}"))
}

/// Memory is what it is in the reference mode.
pub(super) fn same(mode: &Mode, scenario: &Scenario, facts: &Facts, expected: &Facts) -> Result<(), String> {
    require(facts.zones == expected.zones, || format!("zones {} instead of {}", facts.zones, expected.zones))?;
    if !scenario.same_memory {
        return Ok(());
    }
    let both = |what: &str| format!("{what}:\n  {facts:?}\ninstead of\n  {expected:?}");
    require(facts.total == expected.total, || both("MemTotal"))?;
    require(facts.managed == expected.managed, || both("managed pages"))?;
    lists::agree(&facts.lists, &expected.lists, facts.deferred)
        .map_err(|what| format!("{}: {}", mode.name, both(&what)))
}
