// SPDX-License-Identifier: Apache-2.0
//! What is wrong with what was seen of a boot.

use serde_json::Value;

use super::end::End;
use super::order::{SOCKETS, Seen};
use super::plan::{Plan, Serial};
use super::splat;
use crate::guest::reports;

/// All that is wrong, each in a few words; nothing if the boot went as planned.
#[must_use]
pub fn judge(plan: &Plan, seen: &Seen) -> Vec<String> {
    let mut wrong: Vec<_> = ending(plan, seen).into_iter().collect();
    wrong.extend(seen.refused.iter().cloned());
    wrong.extend(init(plan, seen));
    wrong.extend(left(plan, seen));
    wrong.extend(splat::find(own_words(plan, seen)).map(|line| format!("the guest's kernel says: {line}")));
    let panicked = seen.stderr.lines().find(|line| line.contains("panicked at"));
    wrong.extend(panicked.map(|line| format!("flatboot says: {line}")));
    wrong
}

/// The exit code, and the words that go with it.
fn ending(plan: &Plan, seen: &Seen) -> Option<String> {
    let Some(code) = seen.code else {
        // One that a step was refused was not waited for.
        return seen.refused.is_empty().then(|| "time ran out".to_owned());
    };
    let ways = plan.end.ways();
    let said = |words: &str| words.is_empty() || seen.stderr.lines().any(|line| line.contains(words));
    if ways.iter().any(|(right, words)| *right == code && said(words)) {
        return None;
    }
    let expected: Vec<_> = ways.iter().map(|(code, words)| format!("{code} {words}").trim().to_owned()).collect();
    let ours = seen.stderr.lines().rfind(|line| line.starts_with("flatboot: ")).or_else(|| seen.stderr.lines().last());
    Some(format!("exit code {code} ({}), expected {}", ours.unwrap_or("it said nothing"), expected.join(" or ")))
}

/// Whether init came up, was seen to, and found all as it should be.
fn init(plan: &Plan, seen: &Seen) -> Vec<String> {
    let reports = reports(&seen.console);
    let mut wrong: Vec<_> =
        reports.iter().filter(|report| report["ok"] == false).map(|report| format!("check failed: {report}")).collect();
    if plan.end.comes_up() && plan.serial != Serial::Null {
        let has = |name: &str| reports.iter().any(|report| report["check"] == name);
        match (has("start"), has("done")) {
            (false, _) => wrong.push("init has not begun".to_owned()),
            (true, false) => wrong.push("init has not done its checks".to_owned()),
            (true, true) => wrong.extend(memory(plan, &reports)),
        }
    }
    if plan.end.writes_timeline() && seen.init_marked != Some(true) {
        let lacks = if seen.init_marked.is_none() { "no timeline" } else { "no mark of a ready init in the timeline" };
        wrong.push(lacks.to_owned());
    }
    wrong
}

/// `MemTotal` is the memory that was asked for, less what the kernel needs for itself.
fn memory(plan: &Plan, reports: &[Value]) -> Option<String> {
    let asked = plan.memory_mib << 10;
    let total = reports.iter().find_map(|report| report["total_kib"].as_u64()).unwrap_or(0);
    (!(asked * 3 / 4..=asked).contains(&total)).then(|| format!("MemTotal is {total} KiB of {asked}"))
}

/// Only a process that was killed may leave its sockets.
fn left(plan: &Plan, seen: &Seen) -> Vec<String> {
    let wrong = seen.left.iter().filter(|what| !(plan.end.kills() && SOCKETS.contains(&what.as_str())));
    wrong.map(|what| format!("left behind: {what}")).collect()
}

/// The console but for what a guest says that panics because it was told to.
fn own_words<'a>(plan: &Plan, seen: &'a Seen) -> &'a str {
    let console = seen.console.as_str();
    match plan.end {
        End::Panic | End::InitExits => console.split_once("\"check\":\"done\"").map_or(console, |(before, _)| before),
        _ => console,
    }
}

#[cfg(test)]
mod tests {
    use super::super::plan::Api;
    use super::*;

    fn plan(end: End) -> Plan {
        Plan { memory_mib: 512, serial: Serial::File, api: Api::Beside, end, ..Plan::of(1) }
    }

    fn console() -> String {
        ["start", "meminfo", "done"]
            .map(|check| format!("\nFLATBOOT {{\"check\":\"{check}\",\"ok\":true,\"total_kib\":500000}}\n"))
            .concat()
    }

    fn good() -> Seen {
        Seen {
            code: Some(0),
            console: console(),
            stderr: "flatboot: guest powered off\n\na timeline\n".to_owned(),
            init_marked: Some(true),
            ..Seen::default()
        }
    }

    /// One thing that is wrong, which `words` name.
    fn is_wrong(end: End, seen: &Seen, words: &str) {
        let wrong = judge(&plan(end), seen);
        assert!(wrong.len() == 1 && wrong[0].contains(words), "{words}: {wrong:?}");
    }

    #[test]
    fn a_boot_as_planned_has_nothing_wrong() {
        assert!(judge(&plan(End::PowerOff), &good()).is_empty());
        let silent = Plan { serial: Serial::Null, ..plan(End::PowerOff) };
        assert!(judge(&silent, &Seen { console: String::new(), ..good() }).is_empty());
        let killed = Seen { code: Some(137), left: SOCKETS.map(str::to_owned).to_vec(), ..Seen::default() };
        assert!(judge(&plan(End::Killed(3)), &killed).is_empty());
    }

    #[test]
    fn every_end_of_a_guest_has_its_own_exit_code_and_words() {
        is_wrong(End::PowerOff, &Seen { code: Some(3), ..good() }, "exit code 3 (flatboot: guest powered off)");
        is_wrong(End::Reset, &good(), "expected 0 guest asked for a reset");
        is_wrong(End::Panic, &good(), "expected 3 panicked");
        is_wrong(End::TripleFault, &good(), "expected 4 triple fault");
        is_wrong(End::Terminated, &good(), "expected 6");
        is_wrong(End::Killed(1), &good(), "expected 137");
        is_wrong(End::TerminatedEarly(1), &Seen { code: Some(1), ..good() }, "expected 6");
        is_wrong(End::PowerOff, &Seen { code: None, ..good() }, "time ran out");
    }

    #[test]
    fn init_must_have_been_seen() {
        let said = |console: &str| Seen { console: console.to_owned(), ..good() };
        is_wrong(End::PowerOff, &said(""), "init has not begun");
        is_wrong(End::PowerOff, &said("FLATBOOT {\"check\":\"start\",\"ok\":true}"), "init has not done its checks");
        is_wrong(End::PowerOff, &Seen { init_marked: Some(false), ..good() }, "no mark of a ready init");
        is_wrong(End::PowerOff, &Seen { init_marked: None, ..good() }, "no timeline");
        let failed = console() + "FLATBOOT {\"check\":\"rng\",\"ok\":false}";
        is_wrong(End::PowerOff, &said(&failed), "check failed: {\"check\":\"rng\"");
        is_wrong(End::PowerOff, &said(&console().replace("500000", "5000")), "MemTotal is 5000 KiB of 524288");
        is_wrong(End::PowerOff, &said(&console().replace("500000", "600000")), "MemTotal is 600000 KiB");
    }

    #[test]
    fn nothing_may_be_left_behind() {
        for what in ["socket", "vsock", "second", "lock on disk0", "processes"] {
            let seen = Seen { left: vec![what.to_owned()], ..good() };
            is_wrong(End::PowerOff, &seen, &format!("left behind: {what}"));
        }
        let killed = Seen { code: Some(137), left: vec!["processes".to_owned()], ..good() };
        is_wrong(End::Killed(1), &killed, "left behind: processes");
    }

    #[test]
    fn a_step_that_was_refused_and_a_splat_are_wrong() {
        let refused = Seen { refused: vec!["vm.resume: 500".to_owned()], ..good() };
        is_wrong(End::PowerOff, &refused, "vm.resume: 500");
        is_wrong(End::PowerOff, &Seen { code: None, ..refused }, "vm.resume: 500");
        let splat = Seen { console: console() + "[ 2.0] BUG: Bad page state\n", ..good() };
        is_wrong(End::PowerOff, &splat, "the guest's kernel says: [ 2.0] BUG: Bad page state");
        let stderr = format!("thread 'vcpu0' panicked at vmm/src/x.rs:1:1:\n{}", good().stderr);
        is_wrong(End::PowerOff, &Seen { stderr, ..good() }, "flatboot says: thread 'vcpu0' panicked at");
    }

    #[test]
    fn a_planned_panic_is_no_splat_but_one_before_it_is() {
        let trace = "[ 3.0] Call Trace:\n";
        let stderr = "flatboot: guest kernel panicked; its console says why\n".to_owned();
        let planned = Seen { code: Some(3), console: console() + trace, stderr, ..good() };
        assert!(judge(&plan(End::Panic), &planned).is_empty());
        let early = Seen { console: trace.to_owned() + &console(), ..planned };
        is_wrong(End::Panic, &early, "the guest's kernel says: [ 3.0] Call Trace:");
    }
}
