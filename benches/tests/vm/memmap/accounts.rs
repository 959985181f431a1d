// SPDX-License-Identifier: Apache-2.0
//! Counts of memory and an administrator's settings: what they are on a kernel without the series, before memory is filled,
//! while it is, and afterwards.

use flatboot_bench::artifact;
use flatboot_bench::guest::Ended;
use libtest_mimic::{Failed, Trial};
use serde_json::Value;

use crate::Body;
use crate::vm::lab::{Lab, require};

const TESTS: &[(&str, Body)] = &[
    ("memmap::accounts::by_default", |lab| compare(lab, &["async", "ondemand"], &DEFAULTS)),
    ("memmap::accounts::of_two_nodes", |lab| compare(lab, &["ondemand"], &NODES)),
    ("memmap::accounts::set_at_boot", |lab| compare(lab, &["ondemand"], &SET_AT_BOOT)),
    ("memmap::accounts::set_before_memory_is_filled", |lab| compare(lab, &["async", "ondemand"], &SET)),
    ("memmap::accounts::steady_while_memory_is_filled", steady),
    ("memmap::accounts::of_a_guest_at_rest", at_rest),
];

/// All of these where there is a kernel of the same configuration without the series. Of a distribution's there is none.
pub(crate) fn trials() -> impl Iterator<Item = Trial> {
    let alone = artifact::guest_modules().is_some();
    if alone {
        eprintln!("SKIPPED: memmap::accounts: this kernel is not built without the series, to compare with");
    }
    TESTS.iter().map(move |(name, body)| Trial::test(*name, move || body(Lab::get()?)).with_ignored_flag(alone))
}

/// One guest: what it is told, and what it checks in the modes and on the kernel without.
struct Case {
    cmdline: &'static str,
    checks: &'static str,
}

const DEFAULTS: Case = Case { cmdline: "", checks: "accounts,showmem,thp,hog=60%,accounts,hog=95%,accounts,showmem" };
const NODES: Case = Case { cmdline: "numa=fake=2", checks: "accounts,showmem,thp,hog=60%,accounts,hog=95%,accounts" };
/// More than by default.
const SET_AT_BOOT: Case = Case {
    cmdline: "sysctl.vm.min_free_kbytes=131072 sysctl.vm.user_reserve_kbytes=77777",
    checks: "accounts,thp,hog=60%,accounts,hog=95%,accounts",
};
/// Less than by default, and whatever else watermarks and lists are made from. Switching huge pages on comes first: any kernel then
/// raises `min_free_kbytes` itself.
const SET: Case = Case {
    cmdline: "",
    checks: "thp,set=min_free_kbytes:4000,set=user_reserve_kbytes:5000,set=admin_reserve_kbytes:6000,accounts,\
        set=watermark_scale_factor:150,set=lowmem_reserve_ratio:64:32:8,set=percpu_pagelist_high_fraction:8,accounts,\
        hog=60%,accounts,set=watermark_scale_factor:20,hog=95%,accounts",
};

/// Zones below and above 4 GiB, both of several sections, on huge pages of the host.
const MEMORY: &str = "size=3G,thp=all";
/// Reports are long: nothing of the kernel's own goes in between.
const QUIET: &str = "quiet";
/// Parts of a thousand by which sizes that are made from memory may differ: memory itself does, by what a kernel's image and
/// the plan take, and free memory by what is under way at that moment.
const APART: u64 = 5;
/// Pages that one kernel may have in a zone more than another: 1 MiB.
const APART_PAGES: u64 = 256;

/// The same guest with the stock kernel, and with ours in each of the modes: each `accounts` says the same.
fn compare(lab: &Lab, modes: &[&str], case: &Case) -> Result<(), Failed> {
    let guest = || lab.guest().memory(MEMORY).cmdline(QUIET).cmdline(case.cmdline);
    let mut stock = guest().checks(&format!("{},calm", case.checks));
    stock.kernel = artifact::kernel("stock")?.join("vmlinux");
    let expected = lab.passes(&stock)?;
    for mode in modes {
        let checks = format!("memmap,{},verify,calm", case.checks);
        let ours = guest().cmdline(&format!("memmap_init={mode}")).checks(&checks);
        let ended = lab.passes(&ours)?;
        in_effect(mode, &ended).and_then(|()| as_on_stock(&all(&ended), &all(&expected))).map_err(|what| {
            let said = lab.describe(&ours, &ended);
            format!("memmap_init={mode}: {what}\n{}", said.message().unwrap_or_default())
        })?;
    }
    Ok(())
}

fn as_on_stock(have: &[&Value], want: &[&Value]) -> Result<(), String> {
    if have.len() != want.len() || have.len() < 2 {
        return Err(format!("{} reports, not {}", have.len(), want.len()));
    }
    let mut pairs = have.iter().zip(want).enumerate();
    pairs.try_for_each(|(at, (have, want))| same(have, want).map_err(|what| format!("`accounts` number {at}: {what}")))
}

fn all(ended: &Ended) -> Vec<&Value> {
    ended.reports.iter().filter(|report| report["check"] == "accounts").collect()
}

/// The mode is in effect, and in the one that leaves memory alone at least a third of it is deferred.
fn in_effect(mode: &str, ended: &Ended) -> Result<(), String> {
    let nodes = ended.report("memmap").and_then(|report| report["nodes"].as_array()).ok_or("no word on the mode")?;
    if nodes.iter().any(|node| node["mode"] != mode) {
        return Err(format!("another mode is in effect: {nodes:?}"));
    }
    let meminfo = &all(ended).first().ok_or("no accounts")?["meminfo"];
    let (deferred, total) = (meminfo["MemDeferred"].as_u64(), meminfo["MemTotal"].as_u64().unwrap_or(u64::MAX));
    if mode == "ondemand" && deferred < Some(total / 3) {
        return Err(format!("of {total} KiB only {deferred:?} KiB are deferred"));
    }
    Ok(())
}

fn same(have: &Value, want: &Value) -> Result<(), String> {
    let empty = serde_json::Map::new();
    let object = |value: &Value| value.as_object().unwrap_or(&empty).clone();
    for (name, value) in object(&want["settings"]) {
        near(&name, &have["settings"][&name], &value, u64::MAX)?;
    }
    near("MemTotal", &have["meminfo"]["MemTotal"], &want["meminfo"]["MemTotal"], APART_PAGES * 4)?;
    let zones = |of: &Value| of["zones"].as_array().cloned().unwrap_or_default();
    if zones(have).len() != zones(want).len() {
        return Err(format!("zones {} instead of {}", have["zones"], want["zones"]));
    }
    zones(have).iter().zip(&zones(want)).try_for_each(|(have, want)| same_zone(have, want))
}

/// What a zone keeps back, and what is made from that. Where its pages are, is settled before.
fn same_zone(have: &Value, want: &Value) -> Result<(), String> {
    let exact = ["zone", "spanned", "present", "start_pfn", "batch", "vm stats threshold"];
    if let Some(name) = exact.iter().find(|name| have[**name] != want[**name]) {
        return Err(format!("{name} {} instead of {}, in {have}", have[*name], want[*name]));
    }
    ["min", "low", "high", "managed", "protection", "high_min", "high_max"]
        .iter()
        .try_for_each(|name| near(&format!("{}: {name}", want["zone"]), &have[*name], &want[*name], APART_PAGES))
}

/// Numbers, or texts of numbers, that hardly differ: by no more than `most`.
fn near(what: &str, have: &Value, want: &Value, most: u64) -> Result<(), String> {
    let parts = |value: &Value| {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        text.split([' ', '(', ')', ',']).filter(|part| !part.is_empty()).map(str::to_owned).collect::<Vec<_>>()
    };
    let (is, should) = (parts(have), parts(want));
    let all = is.len() == should.len() && is.iter().zip(&should).all(|(is, should)| is_near(is, should, most));
    if all { Ok(()) } else { Err(format!("{what}: {have} instead of {want}")) }
}

fn is_near(is: &str, should: &str, most: u64) -> bool {
    match (is.parse::<u64>(), should.parse::<u64>()) {
        (Ok(is), Ok(should)) => {
            let apart = is.abs_diff(should);
            apart <= 2 || (apart <= most && apart * 1000 <= should * APART)
        }
        _ => is == should,
    }
}

/// Much memory, so that it is read many times while threads fill it.
fn steady(lab: &Lab) -> Result<(), Failed> {
    let guest = lab.guest().memory("size=48G").cmdline(QUIET).cmdline("memmap_init=async");
    let guest = guest.checks("steady=120,filled=120,accounts,calm");
    let ended = lab.passes(&guest)?;
    let seen = ended.report("steady").ok_or("no report")?;
    let deferred = seen["deferred_first_kib"].as_u64() > Some(1 << 20) && seen["deferred_last_kib"] == 0;
    require(deferred && seen["reads"].as_u64() > Some(100), || format!("nothing was filled meanwhile: {seen}"))
}

/// What is deferred is free in large blocks: nobody takes the little that is set up for all there is, and compacts it.
fn at_rest(lab: &Lab) -> Result<(), Failed> {
    let guest = lab.guest().memory("size=64G").cmdline(QUIET).cmdline("memmap_init=ondemand");
    let ended = lab.passes(&guest.checks("rest=3,calm"))?;
    let seen = ended.report("rest").ok_or("no report")?;
    require(seen["deferred_kib"].as_u64() > Some(48 << 20), || format!("memory is not deferred: {seen}"))
}
