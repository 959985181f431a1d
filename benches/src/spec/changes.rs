// SPDX-License-Identifier: Apache-2.0
//! Changes of VMs that run, for the promises of how long they take.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::bench::Bench;
use super::samples::{Sample, Samples};
use crate::command::Command;
use crate::guest::{Guest, Mark, Timeline};
use crate::progress::Progress;
use crate::resize::{Change, Changed, Control, Machine, Order};
use crate::sweep::{Q35, escaped};

/// The marks of a sample: the request, the guest's `MemTotal`, the VMM's answer.
pub(super) const ASKED: &str = "request";
pub(super) const RISEN: &str = "MemTotal";
pub(super) const DONE: &str = "answer";

/// What is compared.
pub(super) const MORE: &str = "1 GiB more";
pub(super) const LESS: &str = "1 GiB less";
pub(super) const FAR_MORE: &str = "255 GiB more";
pub(super) const FAR_LESS: &str = "255 GiB less";
pub(super) const FREED: &str = "2 GiB less, flatboot";
pub(super) const FREED_QEMU: &str = "2 GiB less, virtio-mem";

const GIB: u64 = 1 << 30;
/// What the guest's check says of each growth, and flatboot's timeline of its mark.
const RISES: &str = "\"rises\":";
const RISE_MARK: &str = "code 0x70";
/// What the guest's check says once `MemTotal` is what it waits for.
const TOTAL: &str = "\"check\":\"total\"";
/// The check that the mode of `memmap_init=ondemand` is in effect. Before all others: a VM is not changed until they have passed.
const ONDEMAND: &str = "memmap=ondemand";
/// What VMs may take to come up and to end.
const OVERHEAD: Duration = Duration::from_secs(300);
const ROUND: Duration = Duration::from_secs(120);

/// VMs, and what is done to them in a round.
#[derive(Debug)]
pub struct Changes {
    machines: Vec<Machine>,
    each_round: Vec<Change>,
    /// The first does not count.
    rounds: usize,
    /// The timeline that has a [`RISE_MARK`] for each growth, if one is to be looked at.
    timeline: Option<PathBuf>,
}

impl Changes {
    /// Makes them, and says how long each took.
    pub(super) fn measure(self, bench: &Bench, progress: &Progress) -> Result<Samples> {
        let rounds = self.rounds;
        progress.show(&format!("{rounds} rounds of {} changes", self.each_round.len()));
        let order = Order { machines: self.machines, changes: self.each_round, rounds };
        let own = env::current_exe().context("flatboot-bench resize")?;
        let limit = OVERHEAD + ROUND * u32::try_from(rounds)?;
        let command = Command::new(own).arg("resize").arg(serde_json::to_string(&order)?).timeout(limit);
        let outcome = bench.host()?.run(&command)?;
        let said = String::from_utf8_lossy(&outcome.stderr);
        ensure!(outcome.code == 0, "flatboot-bench resize: {}", said.lines().next_back().unwrap_or("no word"));
        let done: Vec<Changed> = serde_json::from_slice(&outcome.stdout).context("flatboot-bench resize")?;
        let rises = self.timeline.map(|file| rises(&fs::read(file)?)).transpose()?;
        samples(done, rises.as_deref(), order.changes.len())
    }
}

/// When `MemTotal` rose, on `CLOCK_MONOTONIC`.
fn rises(timeline: &[u8]) -> Result<Vec<u64>> {
    let timeline: Timeline = serde_json::from_slice(timeline).context("timeline")?;
    let marks = timeline.marks.iter().filter(|mark| mark.name == RISE_MARK);
    Ok(marks.map(|mark| timeline.zero_monotonic_ns + mark.ns).collect())
}

/// A sample of each change but the first `warm_up`; to each growth belongs the next of `rises`.
fn samples(done: Vec<Changed>, rises: Option<&[u64]>, warm_up: usize) -> Result<Samples> {
    let mut samples = Samples::default();
    let mut rises = rises.map(|rises| rises.iter().copied());
    for (index, Changed { name, asked_ns, done_ns }) in done.into_iter().enumerate() {
        let grows = name.ends_with("more");
        let risen_ns = rises
            .as_mut()
            .filter(|_| grows)
            .map(|rises| rises.next().with_context(|| format!("{name}: MemTotal has not risen")));
        let risen_ns = risen_ns.transpose()?;
        ensure!(risen_ns.is_none_or(|risen| risen > asked_ns), "{name}: MemTotal has risen before it was asked for");
        let mark =
            |name: &str, ns: u64| Mark { ns: ns - asked_ns, host_faults: None, name: name.to_owned(), source: None };
        let marks = [Some(mark(ASKED, asked_ns)), risen_ns.map(|ns| mark(RISEN, ns)), Some(mark(DONE, done_ns))];
        let timeline =
            Timeline { init_ns: None, zero_monotonic_ns: asked_ns, marks: marks.into_iter().flatten().collect() };
        if index >= warm_up {
            samples.push(Sample { variant: name, timeline });
        }
    }
    Ok(samples)
}

/// `machine` gets so many GiB more than it has started with; what it says `then`.
fn change(machine: usize, name: &str, gib: u64, then: Option<&str>) -> Change {
    Change { machine, name: name.to_owned(), bytes: gib * GIB, then: then.map(str::to_owned) }
}

/// A VM of 1 GiB that has 2 GiB, 1, 256 and 1 again, and then in the other order: what was done before leaves its traces. So half of
/// `samples` rounds do.
pub(super) fn sizes(bench: &Bench, samples: usize) -> Result<Changes> {
    let rounds = samples / 2 + 1;
    let timeline = bench.shared("timeline.json");
    let guest = bench.guest("guest")?.memory("size=1G,max=256G").cmdline("memmap_init=ondemand").timeline(&timeline);
    let machine = flatboot(bench, &guest.checks(&format!("{ONDEMAND},rises={}", 4 * rounds)), RISES);
    let near = [change(0, MORE, 1, Some(RISES)), change(0, LESS, 0, None)];
    let far = [change(0, FAR_MORE, 255, Some(RISES)), change(0, FAR_LESS, 0, None)];
    let each_round = [&near, &far, &far, &near].map(|two| two.to_vec()).concat();
    Ok(Changes { machines: vec![machine], each_round, rounds, timeline: Some(timeline) })
}

/// Two VMs of 1 GiB that get 2 GiB, fill them, empty them and give them back: flatboot's and one of stock 6.12 under QEMU with
/// virtio-mem, in zones from which memory can always be taken.
pub(super) fn freed(bench: &Bench, rounds: usize) -> Result<Changes> {
    let checks = format!("total=0M{}", ",total=2048M,hog=2304M,total=0M".repeat(rounds));
    let ours = bench.guest("guest")?.memory("size=1G,max=3G").cmdline("memmap_init=ondemand memmap_held=movable");
    let stock = bench.guest("stock")?.cmdline("memhp_default_state=online_movable");
    let ours = ours.checks(&format!("{ONDEMAND},{checks}"));
    let machines = [flatboot(bench, &ours, TOTAL), virtio_mem(bench, &stock.checks(&checks))];
    let of = |machine, filled: &str, freed: &str| {
        [change(machine, filled, 2, Some("\"check\":\"hog\"")), change(machine, freed, 0, Some(TOTAL))]
    };
    let changes = [of(0, "2 GiB more, flatboot", FREED), of(1, "2 GiB more, virtio-mem", FREED_QEMU)].concat();
    Ok(Changes { machines: machines.to_vec(), each_round: changes, rounds, timeline: None })
}

/// QEMU with `guest`, which has 1 GiB, and 2 GiB of virtio-mem that it does not have yet.
fn virtio_mem(bench: &Bench, guest: &Guest) -> Machine {
    const DEVICE: &str = "more";
    let (socket, console) = (bench.own("qemu.qmp"), bench.own("qemu.console"));
    let fixed = format!(
        "-M {Q35} -object memory-backend-ram,id=ram,reserve=off,size=1G -m 1G,maxmem=4G \
         -object memory-backend-ram,id=extra,reserve=off,size=2G -device virtio-mem-pci,id={DEVICE},memdev=extra,requested-size=0 \
         -cpu host -smp {} -nodefaults -no-user-config -display none -no-reboot",
        guest.cpus,
    );
    let own = [
        ("-kernel", guest.kernel.display().to_string()),
        ("-initrd", guest.initramfs.as_deref().map(|path| path.display().to_string()).unwrap_or_default()),
        (
            "-append",
            format!("console=ttyS0 quiet {} \"flatboot.check={}\" flatboot.end=hang", guest.cmdline, guest.checks),
        ),
        ("-serial", format!("file:{}", console.display())),
        ("-qmp", format!("unix:{},server=on,wait=off", escaped(&socket.display().to_string()))),
    ];
    let own = own.into_iter().flat_map(|(option, value)| [option.to_owned(), value]);
    Machine {
        program: "qemu-system-x86_64".to_owned(),
        args: fixed.split_whitespace().map(str::to_owned).chain(own).collect(),
        console,
        ready: TOTAL.to_owned(),
        control: Control::Qmp { socket, device: DEVICE.to_owned() },
    }
}

/// flatboot with `guest`, which has 1 GiB and says `ready` when it may be changed.
fn flatboot(bench: &Bench, guest: &Guest, ready: &str) -> Machine {
    let (socket, console) = (bench.control().0, bench.own("flatboot.console"));
    let guest = guest.clone().options([
        "--api-socket".to_owned(),
        format!("path={}", socket.display()),
        "--serial".to_owned(),
        format!("file={}", console.display()),
    ]);
    let run = guest.cmdline("flatboot.end=hang").command(bench.flatboot());
    let text = |word: OsString| word.to_string_lossy().into_owned();
    Machine {
        program: text(run.program),
        args: run.args.into_iter().map(text).collect(),
        console,
        ready: ready.to_owned(),
        control: Control::Flatboot { socket, size: GIB },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(name: &str, asked_ns: u64) -> Changed {
        Changed { name: name.to_owned(), asked_ns, done_ns: asked_ns + 50 }
    }

    #[test]
    fn a_growth_has_the_rise_that_follows_it() {
        let done = || vec![changed(MORE, 100), changed(LESS, 200), changed(MORE, 300), changed(LESS, 400)];
        let of = |rises: &[u64]| samples(done(), Some(rises), 2);
        let found = of(&[130, 340]).unwrap();
        assert_eq!(found.median(MORE, (ASKED, RISEN)), Some(40));
        assert_eq!((found.median(LESS, (ASKED, DONE)), found.median(LESS, (ASKED, RISEN))), (Some(50), None));
        assert_eq!(of(&[130]).unwrap_err().to_string(), "1 GiB more: MemTotal has not risen");
        assert!(of(&[130, 140]).is_err());
    }

    #[test]
    fn rises_are_on_the_clock_of_the_requests() {
        let timeline = r#"{"init_ns": 5, "zero_monotonic_ns": 1000, "marks": [
            {"ns": 5, "host_faults": 1, "name": "init-exec"}, {"ns": 7, "host_faults": 1, "name": "code 0x70"}]}"#;
        assert_eq!(rises(timeline.as_bytes()).unwrap(), [1007]);
        assert!(rises(b"{}").is_err());
    }
}
