// SPDX-License-Identifier: Apache-2.0
//! A plan in words.

use std::fmt;

use super::end::End;
use super::plan::{Api, Balloon, Disk, Plan, Second, Serial};

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.cpus == 1 { "" } else { "s" };
        write!(f, "{} MiB, {} vCPU{plural}, {}", self.memory_mib, self.cpus, self.mode.name)?;
        if let Some(threads) = self.threads {
            write!(f, " with {threads} threads")?;
        }
        write!(f, ", {}", if self.table { "hand-off" } else { "no hand-off" })?;
        for option in self.pages.iter().chain(&self.study).chain((!self.early).then_some(&"early=off")) {
            write!(f, ", {option}")?;
        }
        for disk in &self.disks {
            write!(f, ", {disk}")?;
        }
        write!(f, ", {}", if self.rng { "rng" } else { "no rng" })?;
        if self.net {
            f.write_str(", net")?;
        }
        if self.vsock {
            f.write_str(", vsock")?;
        }
        f.write_str(match self.second {
            Second::Off => "",
            Second::Null => ", console null",
            Second::Pty => ", console pty",
            Second::Socket => ", console socket",
        })?;
        if let Some(Balloon { mib, reporting }) = self.balloon {
            write!(f, ", {}balloon of {mib} MiB", if reporting { "reporting " } else { "" })?;
        }
        write!(f, ", {}, seccomp {}, {}", self.serial, self.seccomp, self.api)?;
        for word in [self.log, self.work].iter().filter(|word| !word.is_empty()) {
            write!(f, ", {word}")?;
        }
        if let Some(rest) = self.rest {
            write!(f, ", paused after {} ms for {} ms", rest.after_ms, rest.for_ms)?;
        }
        write!(f, ", {}", self.end)
    }
}

impl fmt::Display for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match (self.readonly, self.limited) {
            (false, false) => "disk",
            (true, false) => "read-only disk",
            (false, true) => "slow disk",
            (true, true) => "slow read-only disk",
        })
    }
}

impl fmt::Display for Serial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stdout => "console to standard output",
            Self::File => "console to a file",
            Self::Null => "no console",
        })
    }
}

impl fmt::Display for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Off => "no API",
            Self::Beside => "run with API",
            Self::Server => "API server",
        })
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::PowerOff => "ends by power-off",
            Self::Reset => "ends by reset",
            Self::KeyboardReset => "ends by reset through the keyboard controller",
            Self::Panic => "ends by panic",
            Self::InitExits => "ends by exit of init",
            Self::TripleFault => "ends by triple fault",
            Self::Terminated => "ends by SIGTERM",
            Self::TerminatedTwice => "ends by two SIGTERMs",
            Self::TerminatedEarly(ms) => return write!(f, "ends by SIGTERM after {ms} ms"),
            Self::Killed(ms) => return write!(f, "ends by SIGKILL after {ms} ms"),
            Self::RestartsKilled => "restarts, ends by SIGKILL",
            Self::RestartsTerminated => "restarts, ends by SIGTERM",
            Self::RestartsShutdown => "restarts, ends by vmm.shutdown",
            Self::Shutdown => "ends by vmm.shutdown",
            Self::PowerButton => "ends by vmm.shutdown after vm.power-button",
            Self::Rebooted => "vm.reboot, ends by vmm.shutdown",
            Self::Deleted => "ends by vmm.shutdown after vm.delete",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::plan::Rest;
    use super::*;

    #[test]
    fn all_of_a_plan_is_told() {
        let disk = Disk { readonly: true, limited: false };
        let plan = Plan {
            memory_mib: 513,
            cpus: 1,
            threads: Some("2"),
            table: false,
            pages: vec!["thp=off"],
            study: vec!["layout=pc"],
            early: false,
            disks: vec![disk, Disk { limited: true, ..disk }],
            rng: true,
            net: true,
            serial: Serial::File,
            seccomp: "log",
            api: Api::Beside,
            rest: Some(Rest { after_ms: 7, for_ms: 8 }),
            log: "loglevel=5",
            work: "hog=64M",
            vsock: true,
            second: Second::Pty,
            balloon: Some(Balloon { mib: 32, reporting: true }),
            end: End::Killed(812),
            mode: crate::modes::Mode::named("async").unwrap(),
            seed: 1,
        };
        let expected = "513 MiB, 1 vCPU, async with 2 threads, no hand-off, thp=off, layout=pc, early=off, \
            read-only disk, slow read-only disk, rng, net, vsock, console pty, reporting balloon of 32 MiB, console to a file, seccomp log, run with API, \
            loglevel=5, hog=64M, \
            paused after 7 ms for 8 ms, ends by SIGKILL after 812 ms";
        assert_eq!(plan.to_string(), expected);
    }
}
