// SPDX-License-Identifier: Apache-2.0
//! From a plan to what the attendant does, and what it sees.

use serde::{Deserialize, Serialize};
use std::path::Path;
use std::time::Duration;

use super::plan::{Api, Balloon, Plan, Second, Serial};
use super::step::Step;
use crate::guest::Guest;

/// The socket of the API, in the attendant's directory, which is flatboot's working directory.
pub(super) const SOCKET: &str = "socket";
/// The socket of the vsock device there, if it has one.
pub(super) const VSOCK: &str = "vsock";
/// That of the virtio console.
pub(super) const SECOND: &str = "second";
/// All that a VMM makes, and is to remove.
pub(super) const SOCKETS: [&str; 3] = [SOCKET, VSOCK, SECOND];
/// The console's file there, if it has one of its own.
pub(super) const CONSOLE: &str = "console";
/// Where standard output goes.
pub(super) const STDOUT: &str = "stdout";
/// Where standard error goes.
pub(super) const STDERR: &str = "stderr";
/// The timeline's file.
pub(super) const TIMELINE: &str = "timeline";
/// Disks are called this and a number.
pub(super) const DISK: &str = "disk";

/// One boot for the attendant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// flatboot.
    pub program: String,
    /// Options of the process, whatever VM it has.
    pub process: Vec<String>,
    /// Options of the VM.
    pub vm: Vec<String>,
    /// Whether the VM is made by a request.
    pub server: bool,
    /// How many disks there are.
    pub disks: usize,
    /// The name of the VM's tap, if it has one, which no other VM of the machine has.
    pub tap: String,
    /// The file with the console.
    pub console: String,
    /// What happens, in this order.
    pub steps: Vec<Step>,
    /// The VMM is ended after this time.
    pub limit_ms: u64,
}

/// What the attendant has seen.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// flatboot's exit code, 128 + n after death by signal n; none if time ran out.
    pub code: Option<u8>,
    /// The guest's console.
    pub console: String,
    /// What flatboot said.
    pub stderr: String,
    /// Whether the timeline has an init in it whose checks passed; none if there is no timeline.
    pub init_marked: Option<bool>,
    /// Steps that could not be taken.
    pub refused: Vec<String>,
    /// What flatboot has left behind.
    pub left: Vec<String>,
}

impl Order {
    /// How `plan` is carried out with `flatboot`, `kernel` and `initramfs`; the VM's tap is called `tap`.
    #[must_use]
    pub fn of(plan: &Plan, flatboot: &Path, kernel: &Path, initramfs: &Path, tap: &str, limit: Duration) -> Self {
        let command = plan.guest(kernel, initramfs, tap).command(flatboot);
        let words = command.args.iter().map(|word| word.to_string_lossy().into_owned());
        let mut process = vec!["--seccomp".to_owned(), plan.seccomp.to_owned()];
        if plan.api != Api::Off {
            process.extend(["--api-socket".to_owned(), format!("path={SOCKET}")]);
        }
        Self {
            program: flatboot.display().to_string(),
            process,
            // Without the verb: it is `run`, or `config` if the VM is made by a request.
            vm: words.skip(1).collect(),
            server: plan.api == Api::Server,
            disks: plan.disks.len(),
            tap: tap.to_owned(),
            console: if plan.serial == Serial::Stdout { STDOUT } else { CONSOLE }.to_owned(),
            steps: plan.steps(),
            limit_ms: u64::try_from(limit.as_millis()).unwrap_or(u64::MAX),
        }
    }
}

impl Plan {
    fn steps(&self) -> Vec<Step> {
        let rest = self.rest.iter().flat_map(|rest| [Step::Sleep(rest.after_ms), Step::Rest(rest.for_ms)]);
        rest.chain(self.end.steps()).collect()
    }

    fn guest(&self, kernel: &Path, initramfs: &Path, tap: &str) -> Guest {
        let memory = [format!("size={}M", self.memory_mib)].into_iter();
        let memory: Vec<_> = memory.chain(self.pages.iter().map(|option| (*option).to_owned())).collect();
        let serial = match self.serial {
            Serial::Stdout => "tty".to_owned(),
            Serial::File => format!("file={CONSOLE}"),
            Serial::Null => "null".to_owned(),
        };
        let rng = if self.rng { "src=/dev/urandom" } else { "off" };
        let switched = [format!("handoff={}", on(self.table)), format!("early={}", on(self.early))];
        let study: Vec<_> = switched.into_iter().chain(self.study.iter().map(|word| (*word).to_owned())).collect();
        let mut guest = Guest::new(kernel, initramfs)
            .memory(&memory.join(","))
            .checks(&self.checks())
            // What comes after the check of the log is seen on the console or nowhere.
            .cmdline(self.log)
            .cmdline(&self.mode.cmdline(self.threads))
            .cmdline(self.end.cmdline())
            .options(["--study", &study.join(","), "--rng", rng, "--serial", &serial])
            .options(["--shutdown-timeout", "1", "--timeline", TIMELINE]);
        for (number, disk) in self.disks.iter().enumerate() {
            let readonly = if disk.readonly { ",readonly=on" } else { "" };
            let limit = if disk.limited { ",bw_size=64K,bw_refill_time=100" } else { "" };
            guest = guest.options(["--disk".to_owned(), format!("path={DISK}{number}{readonly}{limit}")]);
        }
        if self.net {
            guest = guest.options(["--net", &format!("tap={tap},mtu=1400,ops_size=100,ops_refill_time=1000")]);
        }
        guest = self.later(guest);
        if self.end.restarts() {
            guest = guest.options(["--restart-on-reset"]);
        }
        guest.cpus(self.cpus.into())
    }

    /// Devices that the tiny init has no use for: what matters is how they come and go.
    fn later(&self, mut guest: Guest) -> Guest {
        if self.vsock {
            guest = guest.options(["--vsock".to_owned(), format!("cid=3,socket={VSOCK}")]);
        }
        let second = match self.second {
            Second::Off => None,
            Second::Null => Some("null".to_owned()),
            Second::Pty => Some("pty".to_owned()),
            Second::Socket => Some(format!("socket={SECOND}")),
        };
        if let Some(second) = second {
            guest = guest.options(["--console", &second]);
        }
        if let Some(Balloon { mib, reporting }) = self.balloon {
            let reporting = on(reporting);
            guest = guest.options(["--balloon".to_owned(), format!("size={mib}M,free_page_reporting={reporting}")]);
        }
        guest
    }

    /// What the tiny init checks; the kernel's log comes last.
    fn checks(&self) -> String {
        let mut checks = vec![format!("cpus={}", self.cpus), "meminfo".to_owned()];
        for (letter, disk) in ('a'..='z').zip(&self.disks) {
            checks.push(format!("disk=/dev/vd{letter}"));
            if !disk.readonly {
                checks.push(format!("diskwrite=/dev/vd{letter}"));
            }
        }
        checks.extend(self.rng.then(|| "rng".to_owned()));
        checks.extend(Some(self.work.to_owned()).filter(|work| !work.is_empty()));
        checks.push("calm".to_owned());
        checks.join(",")
    }
}

const fn on(is: bool) -> &'static str {
    if is { "on" } else { "off" }
}

#[cfg(test)]
mod tests {
    use super::super::end::End;
    use super::super::plan::{Disk, Rest};
    use super::*;

    fn order(plan: &Plan) -> Order {
        Order::of(plan, Path::new("/f"), Path::new("/k"), Path::new("/i"), "soak7", Duration::from_secs(7))
    }

    #[test]
    fn what_is_planned_is_ordered() {
        let disk = Disk { readonly: false, limited: true };
        let plan = Plan {
            memory_mib: 513,
            cpus: 3,
            pages: vec!["thp=off"],
            study: vec!["layout=pc"],
            table: false,
            early: false,
            rng: true,
            net: true,
            disks: vec![disk, Disk { readonly: true, limited: false }],
            serial: Serial::File,
            api: Api::Server,
            rest: Some(Rest { after_ms: 5, for_ms: 6 }),
            work: "hog=64M",
            vsock: true,
            second: Second::Socket,
            balloon: Some(Balloon { mib: 32, reporting: true }),
            end: End::RestartsShutdown,
            ..Plan::of(1)
        };
        let order = order(&plan);
        let said = order.vm.join(" ");
        for words in [
            "--memory size=513M,thp=off ",
            "--study handoff=off,early=off,layout=pc --rng src=/dev/urandom --serial file=console ",
            "--disk path=disk0,bw_size=64K,bw_refill_time=100 --disk path=disk1,readonly=on ",
            "--net tap=soak7,mtu=1400,",
            "--vsock cid=3,socket=vsock --console socket=second --balloon size=32M,free_page_reporting=on ",
            "--restart-on-reset",
            "flatboot.check=cpus=3,meminfo,disk=/dev/vda,diskwrite=/dev/vda,disk=/dev/vdb,rng,hog=64M,calm",
            "flatboot.end=reboot",
        ] {
            assert!(said.contains(words), "{words} in {said}");
        }
        assert!(order.server && order.disks == 2 && order.console == CONSOLE);
        assert_eq!(order.process[2..], ["--api-socket", "path=socket"]);
        let put = Step::Put("vmm.shutdown".to_owned());
        assert_eq!(order.steps, [Step::Sleep(5), Step::Rest(6), Step::Inits(2), put]);
        let without = Plan { vsock: false, second: Second::Off, balloon: None, ..plan };
        let said = self::order(&without).vm.join(" ");
        assert!(["--vsock", "--console", "--balloon"].iter().all(|option| !said.contains(option)), "{said}");
    }

    #[test]
    fn an_order_survives_its_way() {
        for seed in 0..50 {
            let order = order(&Plan::of(seed));
            assert_eq!(serde_json::from_str::<Order>(&serde_json::to_string(&order).unwrap()).unwrap(), order);
        }
    }
}
