// SPDX-License-Identifier: Apache-2.0
//! A VM in this process, paused and resumed while its guest writes to the serial port as fast as it can.
//!
//! The guest is a loop of a few instructions, which any KVM that opens can run.
#![expect(clippy::unwrap_used, reason = "tests may stop at the first surprise")]

use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use flatboot::config::{RawConfig, ShapeArgs, VmConfig};
use flatboot::ending::Ending;
use flatboot::events::Events;
use flatboot::sandbox::Jail;
use flatboot::vm;
use flatboot::vmm::{Call, Origin, Restart, Vmm};
use libtest_mimic::{Arguments, Failed, Trial};

#[path = "common/images.rs"]
#[expect(dead_code, reason = "one image of several")]
mod images;

/// `mov dx, 0x3f8; mov al, 'R'; 1: out dx, al; jmp 1b`
const WRITER: &[u8] = &[0x66, 0xba, 0xf8, 0x03, 0xb0, b'R', 0xee, 0xeb, 0xfd];
/// It tells pvpanic at port 0x505 that it panics, writes `R`, and so on:
/// `1: mov dx, 0x505; mov al, 1; out dx, al; mov dx, 0x3f8; mov al, 'R'; out dx, al; jmp 1b`
const PANICS: &[u8] = &[0x66, 0xba, 0x05, 0x05, 0xb0, 1, 0xee, 0x66, 0xba, 0xf8, 0x03, 0xb0, b'R', 0xee, 0xeb, 0xf0];
/// It makes the mark of a kernel that has said why it panics, but has not, panics, writes `R`, makes the mark, and writes `X`:
/// `mov al, 0x5f; out 0x80, al; mov dx, 0x505; mov al, 1; out dx, al; mov dx, 0x3f8; mov al, 'R'; out dx, al;
/// mov al, 0x5f; out 0x80, al; mov al, 'X'; 1: out dx, al; jmp 1b`
const HAS_SAID: &[u8] = &[
    0xb0, 0x5f, 0xe6, 0x80, 0x66, 0xba, 0x05, 0x05, 0xb0, 1, 0xee, 0x66, 0xba, 0xf8, 0x03, 0xb0, b'R', 0xee, 0xb0,
    0x5f, 0xe6, 0x80, 0xb0, b'X', 0xee, 0xeb, 0xfd,
];
const PAUSES: usize = 100;
const LIVES: usize = 50;

fn main() -> ExitCode {
    let missing = vm::open_kvm().err();
    let tests = [
        ("a VM pauses and resumes", pauses as fn() -> Result<(), Failed>),
        ("what a VM has made is known until it ends", known),
        ("a guest that panics goes on until it has said why", last_words),
    ];
    let trials = tests.map(|(name, body)| {
        if let Some(error) = &missing {
            eprintln!("SKIPPED: {name}: {error}");
        }
        Trial::test(name, body).with_ignored_flag(missing.is_some())
    });
    // One counts what this process has.
    let arguments = Arguments { test_threads: Some(1), ..Arguments::from_args() };
    libtest_mimic::run(&arguments, trials.into()).exit_code()
}

/// A VM in `directory`, whose guest writes to its serial port, the file `console`.
fn writer(directory: &Path) -> RawConfig {
    guest(directory, WRITER)
}

/// The same with a guest that is `code`.
fn guest(directory: &Path, code: &[u8]) -> RawConfig {
    let kernel = directory.join("kernel");
    fs::write(&kernel, images::vmlinux_of(code)).unwrap();
    RawConfig {
        kernel: Some(kernel),
        // The second vCPU waits for its start all the time.
        shape: ShapeArgs { cpus: "boot=2".to_owned(), memory: Some("size=64M".to_owned()), ..ShapeArgs::default() },
        serial: format!("file={}", directory.join("console").display()),
        ..RawConfig::default()
    }
}

fn pauses() -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    let console = directory.path().join("console");
    let config = VmConfig::try_from(writer(directory.path()))?;

    let mut vmm = Vmm::new(Restart::Outside, Events::default(), Jail::none());
    let caller = vmm.caller();
    let booted = thread::spawn(move || {
        vmm.create(config)?;
        vmm.boot(Origin::default())?;
        vmm.serve()
    });
    let written = || fs::metadata(&console).map_or(0, |console| console.len());
    let goes_on = |before: u64| {
        while written() <= before {
            assert!(!booted.is_finished(), "the VM is over");
            thread::yield_now();
        }
    };
    goes_on(0);
    for pause in 0..PAUSES {
        caller.ask(Call::Pause)?;
        let before = written();
        if pause % 10 == 0 {
            thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(written(), before, "the guest runs in pause {pause}");
        assert_eq!(caller.ask(Call::Pause).unwrap_err().to_string(), "the VM is paused: must be running");
        caller.ask(Call::Resume)?;
        goes_on(before);
        assert_eq!(caller.ask(Call::Resume).unwrap_err().to_string(), "the VM is running: must be created or paused");
    }
    caller.ask(Call::Pause)?;
    caller.ask(Call::Shutdown)?;
    let last = written();
    thread::sleep(Duration::from_millis(20));
    assert_eq!(written(), last, "no vCPU is left");

    // It can be had again, and again there is nothing left of it.
    let before = usage();
    for _ in 0..LIVES {
        caller.ask(Call::Boot(Instant::now()))?;
        goes_on(0);
        caller.ask(Call::Shutdown)?;
    }
    // A thread that was joined may be seen for a moment yet.
    let mut after = usage();
    for _ in 0..100 {
        if after.same(&before) {
            break;
        }
        thread::sleep(Duration::from_millis(50));
        after = usage();
    }
    assert!(after.same(&before), "{after:?}, and before {LIVES} lives {before:?}");
    caller.ask(Call::Quit)?;
    assert!(booted.join().map_err(|_| "the VM's thread has panicked")??.is_none());
    assert_eq!(caller.ask(Call::Pause).unwrap_err().to_string(), "the VMM is about to end");
    Ok(())
}

/// A signal that ends the process at once, as it does while a VM that runs is looked at before it starts again, removes its sockets.
fn known() -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    let socket = directory.path().join("vsock");
    let vsock = Some(format!("cid=3,socket={}", socket.display()));
    let config = VmConfig::try_from(RawConfig { vsock, ..writer(directory.path()) })?;
    let vmm = Vmm::new(Restart::Here, Events::default(), Jail::none());
    let (caller, leave) = (vmm.caller(), vmm.leave());
    let owner = thread::spawn(move || vmm.serve());
    let has = |number: usize, call: &str| {
        assert_eq!((leave.making().vm.len(), socket.exists()), (number, number == 1), "{call}");
    };
    caller.ask(Call::Create(Box::new(config)))?;
    caller.ask(Call::Boot(Instant::now()))?;
    has(1, "boot");
    caller.ask(Call::Reboot)?;
    has(1, "reboot");
    leave.making().vm.iter().for_each(|remove| remove());
    assert!(!socket.exists(), "it is not removed");
    caller.ask(Call::Shutdown)?;
    has(0, "shutdown");
    caller.ask(Call::Boot(Instant::now()))?;
    has(1, "another boot");
    caller.ask(Call::Delete)?;
    has(0, "delete");
    caller.ask(Call::Quit)?;
    owner.join().map_err(|_| "the VM's thread has panicked")??;
    Ok(())
}

/// pvpanic is told before the console, so who hears of a panic there waits: for a moment, or for the mark that all has been said.
fn last_words() -> Result<(), Failed> {
    for (code, has_said) in [(PANICS, false), (HAS_SAID, true)] {
        let directory = tempfile::tempdir()?;
        let mut vmm = Vmm::new(Restart::Outside, Events::default(), Jail::none());
        vmm.create(VmConfig::try_from(guest(directory.path(), code))?)?;
        vmm.boot(Origin::default())?;
        let over = vmm.serve()?.ok_or("it was ended")?;
        assert_eq!(over.ending, Ending::Panic);
        let console = fs::read(directory.path().join("console"))?;
        assert!(console.iter().all(|byte| *byte == b'R'), "it ran on after the mark");
        assert!(if has_said { console.len() == 1 } else { !console.is_empty() }, "{} bytes, {has_said}", console.len());
    }
    Ok(())
}

/// What this process has of the host.
#[derive(Debug)]
struct Usage {
    descriptors: usize,
    threads: usize,
    resident_kib: usize,
}

fn usage() -> Usage {
    let count = |directory: &str| fs::read_dir(directory).unwrap().count();
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    let resident_kib = resident.trim().trim_end_matches(" kB").parse().unwrap();
    Usage { descriptors: count("/proc/self/fd"), threads: count("/proc/self/task"), resident_kib }
}

impl Usage {
    /// But for what an allocator keeps, which is less than any one VM has.
    fn same(&self, before: &Self) -> bool {
        const ALLOCATOR_KIB: usize = 1024;
        self.descriptors == before.descriptors
            && self.threads == before.threads
            && self.resident_kib < before.resident_kib + ALLOCATOR_KIB
    }
}
