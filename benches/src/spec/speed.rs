// SPDX-License-Identifier: Apache-2.0
//! Promises of speed: which boots are compared, in which step, and what their ratio must be.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;

use super::bench::{Bench, Variant, Variants};
use super::bound::Bound;
use super::changes::Changes;
use super::outcome::{Outcome, Status};
use super::samples::{Samples, milliseconds};
use crate::guest::Guest;

/// How often threads of all processors together wait for each other.
const WAITS: u32 = 40_000;

/// A ratio: the median of those within each round.
#[derive(Debug)]
pub struct Claim {
    /// The step that is timed: from one mark to another.
    pub step: (&'static str, &'static str),
    /// What is run.
    pub source: Source,
    /// The variant whose time is divided …
    pub above: &'static str,
    /// … by that of this one.
    pub below: &'static str,
    /// What the ratio must be.
    pub bound: Bound,
    /// Rounds for each of `--runs`.
    pub rounds: usize,
    /// Processors of this machine without which the comparison means nothing.
    pub cpus: usize,
    /// What the other variants say.
    pub also: fn(&Samples, (&str, &str)) -> String,
}

/// Where samples come from.
#[derive(Debug)]
pub enum Source {
    /// Boots, those that only explain the numbers included.
    Boots(Variants),
    /// So many rounds of changes of VMs that run.
    Changes(fn(&Bench, usize) -> Result<Changes>),
}

impl Claim {
    /// Whether it holds of `samples`, `runs` of each variant.
    #[must_use]
    pub fn judge(&self, samples: &Samples, runs: usize) -> Outcome {
        let ratio = samples.ratio(self.above, self.below, self.step).unwrap_or(f64::NAN);
        let status = if self.bound.holds(ratio) { Status::Held } else { Status::Missed };
        let of = |variant| milliseconds(samples.median(variant, self.step));
        let runs = if runs == 1 { "1 run".to_owned() } else { format!("{runs} runs") };
        let measured = format!("{ratio:.3} ×  ({} / {} ms, {runs})", of(self.above), of(self.below));
        let mut details = vec![format!("from {} to {}:", self.step.0, self.step.1)];
        details.extend(samples.table(self.step).lines().map(str::to_owned));
        details.push(format!("{} / {} = {ratio:.3}{}", self.above, self.below, (self.also)(samples, self.step)));
        Outcome { status, measured, details }
    }
}

/// One thread or two, on memory that was backed beforehand ("warm") and on memory that is backed on first touch.
pub(super) fn threads(bench: &Bench) -> Result<Vec<Variant>> {
    let guest = bench.guest("guest")?;
    let variant = |name, threads: &str, warm: &str| Variant {
        name,
        guest: in_mode(&guest, "parallel")
            .memory("size=64G")
            .options(["--study", &format!("prefault_arenas={warm}")])
            .cmdline(&format!("memmap_init_threads={threads}")),
    };
    Ok(vec![
        variant("warm, 1 thread", "1", "on"),
        variant("warm, 2 threads", "2", "on"),
        variant("cold, 1 thread", "1", "off"),
        variant("cold, 2 threads", "2", "off"),
    ])
}

/// How much of the time on two threads the host's page faults take.
pub(super) fn share_of_faults(samples: &Samples, step: (&str, &str)) -> String {
    let median = |variant| samples.median(variant, step);
    let (Some(cold), Some(warm)) = (median("cold, 2 threads"), median("warm, 2 threads")) else { return String::new() };
    let share = cold.saturating_sub(warm) * 100 / cold.max(1);
    format!("; cold, {share} % of the time on 2 threads goes into the host's page faults")
}

/// Memory in one piece or in many, with this kernel and with one that has the marks alone ("stock").
pub(super) fn holes(bench: &Bench) -> Result<Vec<Variant>> {
    let (ours, stock) = (in_mode(&bench.guest("guest")?, "parallel"), bench.guest("stock")?);
    let variant = |name, guest: &Guest, holes: u32| Variant {
        name,
        guest: guest.clone().memory("size=64G").options(["--study", &format!("prefault_arenas=on,holes={holes}")]),
    };
    Ok(vec![
        variant("1 region", &ours, 0),
        variant("64 regions", &ours, 63),
        variant("stock, 1 region", &stock, 0),
        variant("stock, 64 regions", &stock, 63),
    ])
}

/// What 6.12 itself makes of the same holes.
pub(super) fn stock_ratio(samples: &Samples, step: (&str, &str)) -> String {
    let ratio = samples.ratio("stock, 64 regions", "stock, 1 region", step);
    ratio.map_or_else(String::new, |ratio| format!("; stock 6.12: {ratio:.2}"))
}

/// 64 GiB, filled while init waits, or behind its back; init does nothing until it is over.
pub(super) fn background(bench: &Bench) -> Result<Vec<Variant>> {
    let guest = bench.guest("guest")?.memory("size=64G").checks("settle");
    Ok(modes(["async", "parallel"], &guest))
}

/// Init takes 90 % of so much at once. On huge pages of the host, whose faults would else be most of the time.
pub(super) fn taking(bench: &Bench, size: &str) -> Result<Vec<Variant>> {
    let mut guest = bench.guest("guest")?.memory(&format!("size={size},thp=all")).checks("take=90%");
    guest.limit = Duration::from_secs(900);
    Ok(modes(["async", "parallel"], &guest))
}

/// 1 GiB and 256 GiB through UEFI firmware, and 1 GiB as flatboot boots a kernel itself.
pub(super) fn firmware(bench: &Bench) -> Result<Vec<Variant>> {
    let (direct, uefi) = (in_mode(&bench.guest("guest")?, "async"), in_mode(&bench.uefi_guest()?, "async"));
    let variant = |name, guest: &Guest, memory| Variant { name, guest: guest.clone().memory(memory) };
    Ok(vec![
        variant("1 GiB", &uefi, "size=1G"),
        variant("256 GiB", &uefi, "size=256G"),
        variant("1 GiB, direct", &direct, "size=1G"),
    ])
}

/// What firmware costs against a direct boot.
pub(super) fn cost_of_firmware(samples: &Samples, step: (&str, &str)) -> String {
    let ratio = samples.ratio("1 GiB", "1 GiB, direct", step);
    ratio.map_or_else(String::new, |ratio| format!("; 1 GiB through firmware / direct = {ratio:.2}"))
}

/// Watched and jailed as a cloud runs it, and as free as it can be.
pub(super) fn controlled(bench: &Bench) -> Result<Vec<Variant>> {
    let guest = bench.guest("guest")?;
    let (socket, events) = bench.control();
    let path = |path: PathBuf| format!("path={}", path.display());
    let on = ["--api-socket", &path(socket), "--event-monitor", &path(events), "--seccomp", "true", "--landlock"];
    Ok(vec![
        Variant { name: "all on", guest: guest.clone().options(on) },
        Variant { name: "all off", guest: guest.options(["--seccomp", "false"]) },
    ])
}

/// What a VM is commonly given, and the least that one is. The host has the tap before either starts: to make one is no VMM's work.
/// And it has started such a VM before: else much of the difference is code of devices that the emulated host has never run.
pub(super) fn devices(bench: &Bench) -> Result<Vec<Variant>> {
    const TAP: &str = "flatboot-spec";
    let disks = ["one.disk", "two.disk"].map(|name| bench.own(name));
    let [first, second] = disks.each_ref().map(|path| ["--disk".to_owned(), format!("path={}", path.display())]);
    let guest = bench.guest("guest")?;
    let one = Guest { tap: Some(TAP), disks: disks.into(), rehearsed: true, ..guest }.options(first);
    let vsock = format!("cid=3,socket={}", bench.own("flatboot.vsock").display());
    let net = format!("tap={TAP}");
    let more = ["--net", &net, "--vsock", &vsock, "--balloon", "size=0"];
    let all = one.clone().options(second).options(more);
    Ok(vec![Variant { name: "all devices", guest: all }, Variant { name: "one disk", guest: one }])
}

/// 64 GiB that belong to one node of the guest, or half to each of two.
pub(super) fn nodes(bench: &Bench) -> Result<Vec<Variant>> {
    let mut guest = bench.guest("guest")?.memory("size=0");
    // A package each: no cache is shared across nodes.
    ",topology=1:1:1:2".clone_into(&mut guest.cpu_keys);
    let one = ["--memory-zone", "id=a,size=64G", "--numa", "guest_numa_id=0,cpus=[0-1],memory_zones=[a]"];
    let two = [
        "--memory-zone",
        "id=a,size=32G",
        "id=b,size=32G",
        "--numa",
        "guest_numa_id=0,cpus=[0],memory_zones=[a]",
        "guest_numa_id=1,cpus=[1],memory_zones=[b]",
    ];
    Ok(vec![
        Variant { name: "two nodes", guest: guest.clone().options(two) },
        Variant { name: "one node", guest: guest.options(one) },
    ])
}

/// Pairs of threads that wait for each other, a thread on each of so many processors: with the series, and as 6.12 has it.
pub(super) fn waiting(bench: &Bench, cpus: u16, cmdline: &str) -> Result<Vec<Variant>> {
    let times = WAITS / u32::from(cpus);
    let waits = |guest: Guest| guest.cpus(cpus).checks(&format!("waits={times}")).cmdline(cmdline);
    Ok(vec![
        Variant { name: "series", guest: waits(bench.guest("guest")?) },
        Variant { name: "stock", guest: waits(bench.guest("stock")?) },
    ])
}

/// A command line, and a request to a server that has been told of the VM before.
pub(super) fn served(bench: &Bench) -> Result<Vec<Variant>> {
    let guest = bench.guest("guest")?;
    Ok(vec![
        Variant { name: "vm.boot", guest: Guest { served: true, ..guest.clone() } },
        Variant { name: "flatboot run", guest },
    ])
}

/// Behind what is timed it shows that the mode is in effect: a kernel without it would be compared with itself.
fn in_mode(guest: &Guest, mode: &str) -> Guest {
    let checks = [guest.checks.as_str(), &format!("memmap={mode}")];
    let checks = checks.into_iter().filter(|check| !check.is_empty()).collect::<Vec<_>>().join(",");
    guest.clone().checks(&checks).cmdline(&format!("memmap_init={mode}"))
}

fn modes(names: [&'static str; 2], guest: &Guest) -> Vec<Variant> {
    names.map(|name| Variant { name, guest: in_mode(guest, name) }).to_vec()
}

#[cfg(test)]
mod tests {
    use super::super::samples::tests::samples;
    use super::*;

    fn claim(bound: Bound) -> Claim {
        Claim {
            step: ("a", "b"),
            source: Source::Boots(|_| Ok(Vec::new())),
            above: "x",
            below: "y",
            bound,
            rounds: 1,
            cpus: 1,
            also: |_, _| String::new(),
        }
    }

    #[test]
    fn a_ratio_beyond_its_bound_is_missed() {
        let samples = samples(&[("x", 30_000_000), ("y", 20_000_000)]);
        let outcome = claim(Bound::AtLeast(1.5)).judge(&samples, 1);
        assert_eq!((outcome.status, outcome.measured.as_str()), (Status::Held, "1.500 ×  (30.00 / 20.00 ms, 1 run)"));
        assert_eq!(claim(Bound::AtLeast(1.51)).judge(&samples, 1).status, Status::Missed);
        assert_eq!(claim(Bound::AtMost(1.49)).judge(&samples, 1).status, Status::Missed);
    }

    #[test]
    fn what_misses_a_bound_does_not_look_like_it() {
        let outcome = claim(Bound::AtMost(1.03)).judge(&samples(&[("x", 103_200_000), ("y", 100_000_000)]), 1);
        assert_eq!(
            (outcome.status, outcome.measured.split_once(" ×").map(|(ratio, _)| ratio)),
            (Status::Missed, Some("1.032"))
        );
    }

    #[test]
    fn no_samples_never_hold() {
        assert_eq!(claim(Bound::AtMost(9.0)).judge(&samples(&[("x", 1)]), 1).status, Status::Missed);
    }
}
