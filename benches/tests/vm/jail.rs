// SPDX-License-Identifier: Apache-2.0
//! A real guest's VMM in its jail: docs/threat-model.md.

use std::fs;

use flatboot_bench::{Backend, Kvm, artifact};
use libtest_mimic::{Failed, Trial};

use super::endings::{hanging, wait_for_init};
use super::lab::{Lab, require};
use crate::Body;

pub(crate) const TESTS: &[(&str, Body)] =
    &[("jail::threads", |lab| threads(lab, "")), ("jail::log", |lab| threads(lab, "--seccomp log"))];

/// The one that a host may be too small for: it says so, and counts as ignored.
pub(crate) fn landlock() -> Trial {
    let has_it = has_landlock();
    if !has_it {
        eprintln!("SKIPPED: jail::landlock: the host's kernel has no Landlock (CONFIG_SECURITY_LANDLOCK)");
    }
    Trial::test("jail::landlock", || threads(Lab::get()?, "--landlock")).with_ignored_flag(!has_it)
}

/// Whether the host of guests has it: this machine, or the emulated one.
pub(super) fn has_landlock() -> bool {
    let real = Backend::open(artifact::flatboot(None).as_deref()).is_ok_and(|backend| backend.kvm() == Kvm::Real);
    if real {
        return fs::read_to_string("/sys/kernel/security/lsm").is_ok_and(|modules| modules.contains("landlock"));
    }
    include_str!("../../host/host.config").lines().any(|line| line == "CONFIG_SECURITY_LANDLOCK=y")
}

/// When init has done its checks, every thread has its filter and can gain no rights; then SIGTERM finds all of them in order.
fn threads(lab: &Lab, options: &str) -> Result<(), Failed> {
    let console = lab.path("console");
    let script = format!(
        "rm -f {console}; {run} --shutdown-timeout 1 {options} & pid=$!; {wait}; \
         cat /proc/$pid/task/*/status | grep -E '^(Name|Seccomp|NoNewPrivs):' | tr '\\n\\t' ' '; kill -TERM $pid; wait $pid",
        console = console.display(),
        run = hanging(lab, "256M", 2),
        wait = wait_for_init(lab)
    );
    let outcome = lab.shell(&script)?;
    let (said, stderr) = (outcome.stdout_text(), String::from_utf8_lossy(&outcome.stderr).into_owned());
    let seen = || format!("exit code {}: {said}: {stderr}", outcome.code);
    for thread in ["flatboot", "vcpu0", "vcpu1", "virtio0", "signals"] {
        require(said.contains(&format!("Name: {thread} NoNewPrivs: 1 Seccomp: 2 ")), seen)?;
    }
    require(!said.contains("Seccomp: 0"), seen)?;
    require(outcome.code == 6 && stderr.contains("did not power off within 1 s"), seen)
}
