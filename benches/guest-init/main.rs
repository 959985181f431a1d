// SPDX-License-Identifier: Apache-2.0
//! /init of the tiny guest.
//!
//! It mounts devtmpfs, for /dev/port is needed for the mark and comes with it, and at once reports mark 0x60. Then it
//! does what the kernel command line asks:
//!
//! - `flatboot.check=a,b,…` runs checks in this order ([`checks`] lists them). Each gives one line on the console,
//!   `FLATBOOT ` and a JSON object with at least `check` and `ok`. An argument follows an equals sign: `cpus=4`. Where
//!   it contains spaces the whole parameter is quoted: `"flatboot.check=dmesg=Memory: ,meminfo"`.
//! - `flatboot.end=poweroff|reboot|halt|panic|exit|hang` says how to end; `poweroff` by default. A triple fault is
//!   `flatboot.end=reboot` with the kernel's own `reboot=t`.
//!
//! Before the checks it loads the modules that the initramfs has for the kernel that runs: [`modules`].
//!
//! After the checks it reports mark 0x61 if all passed, else 0x62. It runs on unmodified kernels too: a file that is
//! missing is reported, and fails only a check that is about that file.

mod accounts;
mod buddy;
mod channels;
mod checks;
mod clone;
mod cmdline;
mod devices;
mod elastic;
mod end;
mod files;
mod fill;
mod generation;
mod hog;
mod hugetlb;
mod identifiers;
mod interrupts;
mod kernel;
mod kmalloc;
mod ledger;
mod locks;
mod loopback;
mod mark;
mod memmap;
mod memory;
mod modules;
mod net;
mod nodes;
mod outcome;
mod pinned;
mod poisoned;
mod ports;
mod processors;
mod pulse;
mod readers;
mod report;
mod rtnetlink;
mod saved;
mod showmem;
mod sockets;
mod steady;
mod storm;
mod tables;
mod vsock;
mod waits;
mod walk;
mod watch;
mod work;

use std::process::ExitCode;

use flatboot_handoff::marks;
use mark::mark;
use rustix::mount::{MountFlags, mount};
use serde_json::json;

fn main() -> ExitCode {
    if !rustix::process::getpid().is_init() {
        eprintln!("guest-init: this is the init of a guest; it only runs as PID 1");
        return ExitCode::from(2);
    }
    let dev = mount("devtmpfs", "/dev", "devtmpfs", MountFlags::empty(), None);
    let marked = mark(marks::USER_START);
    report::start(dev, &marked);
    for (kind, target) in [("proc", "/proc"), ("sysfs", "/sys"), ("debugfs", "/sys/kernel/debug")] {
        // A kernel may lack debugfs; what needs a file that is missing then says so.
        let _ = mount(kind, target, kind, MountFlags::empty(), None);
    }
    modules::load();
    let read = cmdline::Parameters::read();
    if let Err(error) = &read {
        report::check("cmdline", false, json!({ "error": error }));
    }
    let (is_read, parameters) = (read.is_ok(), read.unwrap_or_default());
    let passed = checks::run_all(parameters.checks()) && is_read;
    // Without the port there are no marks; `start` has said so.
    let _ = mark(if passed { marks::USER_READY } else { marks::USER_FAILED });
    report::done(passed);
    end::end(parameters.end())
}
