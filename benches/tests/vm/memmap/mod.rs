// SPDX-License-Identifier: Apache-2.0
//! Attempts to break `memmap_init=`: whatever the way in which struct pages are set up, and however early and hard memory is
//! asked for, nothing is lost, nothing is given out twice, and in the end memory is what it is in every other way.
//!
//! A scenario is one guest, booted once in each mode; [`judge`] says what must hold.

pub(crate) mod accounts;
mod judge;
mod lists;
mod modes;
mod scenarios;

use std::collections::BTreeMap;
use std::fs;
use std::sync::{Mutex, PoisonError};

use flatboot_bench::guest::{Ended, Guest};
use libtest_mimic::{Completion, Failed, Trial};

use super::lab::Lab;
use judge::Facts;
use modes::{Mode, REFERENCE};
use scenarios::{SCENARIOS, Scenario};

/// Size of the disk that a storm reads: sparse.
const DISK_BYTES: u64 = 256 << 20;

/// Every scenario in every mode that makes sense for it.
pub(crate) fn trials() -> impl Iterator<Item = Trial> {
    let all = SCENARIOS.iter().flat_map(|scenario| scenario.modes().map(move |mode| (scenario, mode)));
    let boots = all.map(|(scenario, mode)| {
        let name = format!("memmap::{}::{}", scenario.name, mode.name);
        Trial::ignorable_test(name, move || one(Lab::get()?, scenario, mode))
    });
    boots.chain([Trial::test("memmap::no_mode_is_forgotten", modes::none_is_forgotten)])
}

fn one(lab: &Lab, scenario: &'static Scenario, mode: &'static Mode) -> Result<Completion, Failed> {
    if let Some(reason) = missing(lab, scenario)? {
        return Ok(Completion::ignored_with(reason));
    }
    let expected = if *mode == REFERENCE { None } else { Some(reference(lab, scenario)?) };
    let facts = boot(lab, scenario, mode, expected.as_ref())?;
    if *mode == REFERENCE {
        known().insert(scenario.name, facts);
    }
    Ok(Completion::Completed)
}

/// What this kernel or this host lacks for the scenario, if anything.
fn missing(lab: &Lab, scenario: &Scenario) -> Result<Option<String>, Failed> {
    if scenario.cpus > 16 && lab.is_emulated() {
        return Ok(Some(format!("{} vCPUs take minutes on the emulated KVM host", scenario.cpus)));
    }
    let configured = |option: &str| -> Result<bool, Failed> {
        let config = fs::read_to_string(lab.kernel.join("config"))?;
        Ok(config.lines().any(|line| line == format!("{option}=y")))
    };
    match scenario.needs {
        Some(option) if !configured(option)? => Ok(Some(format!("the guest kernel has no {option}"))),
        _ => Ok(None),
    }
}

/// Facts of the reference mode by scenario. A run of one test alone boots it for itself.
static REFERENCES: Mutex<BTreeMap<&str, Facts>> = Mutex::new(BTreeMap::new());

fn known() -> std::sync::MutexGuard<'static, BTreeMap<&'static str, Facts>> {
    REFERENCES.lock().unwrap_or_else(PoisonError::into_inner)
}

fn reference(lab: &Lab, scenario: &'static Scenario) -> Result<Facts, Failed> {
    if let Some(facts) = known().get(scenario.name) {
        return Ok(facts.clone());
    }
    let facts = boot(lab, scenario, &REFERENCE, None)?;
    known().insert(scenario.name, facts.clone());
    Ok(facts)
}

/// Boots, and holds what the guest says against what its mode promises and against the reference.
fn boot(lab: &Lab, scenario: &Scenario, mode: &Mode, expected: Option<&Facts>) -> Result<Facts, Failed> {
    let guest = guest(lab, scenario, mode)?;
    let ended = lab.passes(&guest).map_err(|error| in_mode(mode, error.message().unwrap_or_default()))?;
    let wrong = |what: String| {
        let said = lab.describe(&guest, &ended);
        in_mode(mode, &format!("{what}\n{}", said.message().unwrap_or_default()))
    };
    judge::promises(lab, mode, scenario, &ended).map_err(wrong)?;
    let facts = Facts::of(&ended).map_err(wrong)?;
    if let Some(expected) = expected {
        judge::same(mode, scenario, &facts, expected).map_err(wrong)?;
    }
    tell(scenario, mode, &ended);
    Ok(facts)
}

fn in_mode(mode: &Mode, what: &str) -> Failed {
    format!("memmap_init={}: {what}", mode.name).into()
}

fn guest(lab: &Lab, scenario: &Scenario, mode: &Mode) -> Result<Guest, Failed> {
    let guest = lab.guest().cpus(scenario.cpus.into()).memory(&format!("size={},thp=all", scenario.memory));
    let guest = guest.cmdline(&format!("memmap_init={}", mode.name)).cmdline(scenario.cmdline);
    let guest = guest.checks(&format!("{},{},meminfo,lists,verify,calm", scenario.checks, mode.last_check()));
    if !scenario.checks.contains("storm=") {
        return Ok(guest);
    }
    let disk = lab.path("storm.img");
    fs::File::create(&disk)?.set_len(DISK_BYTES)?;
    Ok(guest.options(["--disk".to_owned(), format!("path={}", disk.display())]))
}

/// With `FLATBOOT_TELL` set, what the guest reported goes to the log, for choosing bounds.
fn tell(scenario: &Scenario, mode: &Mode, ended: &Ended) {
    if std::env::var_os("FLATBOOT_TELL").is_some() {
        let reports = ended.reports.iter().filter(|report| report["check"] != "start" && report["check"] != "done");
        reports.for_each(|report| eprintln!("{} {}: {report}", scenario.name, mode.name));
    }
}
