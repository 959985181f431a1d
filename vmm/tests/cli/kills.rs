// SPDX-License-Identifier: Apache-2.0
//! Signals at any moment from exec until the guest runs: nothing stays that would be in the way of the next start.

use std::fs;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use libtest_mimic::{Failed, Trial};
use rustix::process::{Pid, WaitOptions, getpid, set_child_subreaper, waitpgid};

use super::FLATBOOT;
use super::host::{Host, Needs};
use super::ignored::is_ignored;
use super::kvm::{RUNS, program};
use super::times::times;

pub(crate) fn trials(host: &Host) -> Vec<Trial> {
    let trial = |name: &'static str, test: fn() -> Result<(), Failed>| {
        Trial::test(name, test).with_ignored_flag(host.skips(name, Needs::OpenKvm))
    };
    vec![
        trial("killed at any moment of its start: the next start finds all as it was", || {
            killed("--shutdown-timeout 1")
        }),
        trial("the keeper of a VM is killed at any moment: the same", || {
            killed("--shutdown-timeout 1 --restart-on-reset")
        }),
        trial("asked to end at any moment of its start: it leaves no socket", || {
            asked_to_end(&["--api-socket path=socket", "--api-socket path=socket --vsock cid=3,socket=vsock"])
        }),
        trial("asked to end at any moment of its start: it leaves no socket of its vsock device", || {
            asked_to_end(&["--vsock cid=3,socket=socket", "--vsock cid=3,socket=socket --restart-on-reset"])
        }),
        trial("asked to end as soon as its socket is there: it is gone", ends_with_its_socket),
        trial("a signal to all of a process group is one wish, passed on by a keeper or not", struck_together),
        hangs_up(host),
        trial("one that was started to ignore SIGHUP lives on", ignores_hang_ups),
    ]
}

/// A start holds the disk's lock, the socket and the console's file. The one after it takes them all, or says what is in its way.
fn killed(options: &str) -> Result<(), Failed> {
    // A VM whose keeper is gone becomes this one's child.
    set_child_subreaper(Some(getpid()))?;
    let directory = tempfile::tempdir()?;
    fs::write(directory.path().join("kernel"), program(RUNS))?;
    fs::write(directory.path().join("disk"), [0; 4096])?;
    let until_it_runs = runs(directory.path(), options)?;
    // The third part of them after the guest has begun.
    let span = u64::try_from(until_it_runs.as_nanos())? * 3 / 2;
    for _ in 0..times(100)? {
        let delay = Duration::from_nanos(random() % span);
        let mut child = start(directory.path(), options)?;
        thread::sleep(delay);
        child.kill()?;
        let (status, said) = ended(child)?;
        // A VM that had not begun when its keeper was gone says that, and nothing else.
        let orphaned = options.contains("--restart-on-reset")
            && said.starts_with("flatboot: error: FLATBOOT_KEPT: process ")
            && said.ends_with(", which has started this one, is gone\n");
        let killed = status.signal() == Some(9) && (orphaned || !said.contains("error"));
        assert!(killed, "killed {delay:?} after its start: {status}: {said}");
    }
    runs(directory.path(), options)?;
    let mut left: Vec<_> = fs::read_dir(directory.path())?.map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["console", "disk", "kernel"]);
    Ok(())
}

/// Before its guest runs, SIGTERM ends it at once. One that comes later finds a guest that does not power off; a second one ends that.
fn asked_to_end(options: &[&str]) -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    fs::write(directory.path().join("kernel"), program(RUNS))?;
    fs::write(directory.path().join("disk"), [0; 4096])?;
    let start = |options: &str| start_with(directory.path(), &format!("--shutdown-timeout 1 {options}"));
    let span = u64::try_from(runs(directory.path(), "--shutdown-timeout 1")?.as_nanos())?;
    for options in options.iter().cycle().take(usize::try_from(times(100)?)?) {
        let delay = Duration::from_nanos(random() % span);
        let mut child = start(options)?;
        thread::sleep(delay);
        while child.try_wait()?.is_none() {
            kill(&child, "TERM")?;
            thread::sleep(Duration::from_millis(20));
        }
        asked(child, directory.path(), &format!("{options}, asked {delay:?} after its start"))?;
    }
    Ok(())
}

/// It has ended as it should, and no socket is there.
fn asked(child: Child, directory: &Path, when: &str) -> Result<(), Failed> {
    let (status, said) = ended(child)?;
    let as_asked = status.signal() == Some(15) || status.code() == Some(6);
    assert!(as_asked, "{when}: {status}: {said}");
    let left = ["socket", "vsock"].map(|name| directory.join(name).exists());
    assert_eq!(left, [false; 2], "{when}: the control socket, the vsock device's");
    Ok(())
}

/// It is there long before the guest is, which has all its memory backed first.
fn ends_with_its_socket() -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    fs::write(directory.path().join("kernel"), program(RUNS))?;
    fs::write(directory.path().join("disk"), [0; 4096])?;
    let vsock = "--vsock cid=3,socket=vsock --memory size=1G,prefault=on";
    let watched = format!("{vsock} --event-monitor path=events");
    let served = format!("{vsock} --api-socket path=socket");
    let landlock = format!("{vsock} --landlock");
    for options in [vsock, &watched, &served, &landlock] {
        let mut child = start_with(directory.path(), options)?;
        while !directory.path().join("vsock").exists() && child.try_wait()?.is_none() {
            thread::sleep(Duration::from_micros(100));
        }
        kill(&child, "TERM")?;
        let (status, said) = ended(child)?;
        assert!(status.signal() == Some(15), "{options}: {status}: {said}");
        let left = ["socket", "vsock"].map(|name| directory.path().join(name).exists());
        assert_eq!(left, [false; 2], "{options}: the control socket, the vsock device's");
    }
    Ok(())
}

fn hangs_up(host: &Host) -> Trial {
    let name = "a terminal that closes is one wish: the guest is asked, and not ended";
    let ignored = is_ignored(1);
    if ignored {
        eprintln!("SKIPPED: {name}: this test was started to ignore SIGHUP");
    }
    Trial::test(name, hung_up).with_ignored_flag(ignored || host.skips(name, Needs::OpenKvm))
}

/// The kernel and the shell both say it.
fn hung_up() -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    fs::write(directory.path().join("kernel"), program(RUNS))?;
    fs::write(directory.path().join("disk"), [0; 4096])?;
    let child = until_it_runs(directory.path(), "--shutdown-timeout 2")?;
    let begin = Instant::now();
    for _ in 0..3 {
        kill(&child, "HUP")?;
        thread::sleep(Duration::from_millis(50));
    }
    let (status, said) = ended(child)?;
    let waited = begin.elapsed() >= Duration::from_secs(2) && !said.contains("second signal");
    assert!(waited && status.code() == Some(6), "{status}: {said}");
    Ok(())
}

/// A shell and systemd send it to the keeper and to the VM's process, to which the keeper passes it on. The second one is another.
fn struck_together() -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    fs::write(directory.path().join("kernel"), program(RUNS))?;
    fs::write(directory.path().join("disk"), [0; 4096])?;
    for signals in [1, 2] {
        let child = until_it_runs(directory.path(), "--shutdown-timeout 2 --restart-on-reset")?;
        let begin = Instant::now();
        for _ in 0..signals {
            send(&format!("-{}", child.id()), "TERM")?;
            thread::sleep(Duration::from_millis(500));
        }
        let (status, said) = ended(child)?;
        let waited = begin.elapsed() >= Duration::from_secs(2);
        let ended_by_second = said.contains("second signal");
        let as_told = status.code() == Some(6) && ended_by_second == (signals == 2) && waited != ended_by_second;
        assert!(as_told, "{signals}: {status} after {:?}: {said}", begin.elapsed());
    }
    Ok(())
}

/// As nohup(1) has it: the guest is not even asked, so SIGTERM is the first wish.
fn ignores_hang_ups() -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    fs::write(directory.path().join("kernel"), program(RUNS))?;
    let script = format!(
        "trap '' HUP; exec {FLATBOOT} run --kernel kernel --memory size=64M --rng off --serial file=console \
         --shutdown-timeout 1"
    );
    let mut shell = Command::new("sh");
    shell.args(["-c", &script]).current_dir(directory.path()).stdin(Stdio::null()).stdout(Stdio::null());
    let mut child = shell.stderr(Stdio::piped()).spawn()?;
    while fs::read(directory.path().join("console")).map_or(true, |said| said.is_empty()) && child.try_wait()?.is_none()
    {
        thread::sleep(Duration::from_millis(1));
    }
    for _ in 0..3 {
        kill(&child, "HUP")?;
        thread::sleep(Duration::from_millis(50));
    }
    // Longer than a guest that was asked would have.
    thread::sleep(Duration::from_millis(1500));
    assert!(child.try_wait()?.is_none(), "it has ended");
    kill(&child, "TERM")?;
    let (status, said) = ended(child)?;
    let asked_once = said.contains("did not power off within 1 s") && !said.contains("second signal");
    assert!(status.code() == Some(6) && asked_once, "{status}: {said}");
    Ok(())
}

fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

fn start(directory: &Path, options: &str) -> Result<Child, Failed> {
    // What serves requests has no keeper.
    let socket = if options.contains("--restart-on-reset") { "" } else { "--api-socket path=socket" };
    start_with(directory, &format!("{socket} {options}"))
}

fn start_with(directory: &Path, options: &str) -> Result<Child, Failed> {
    let memory = if options.contains("--memory") { "" } else { "--memory size=64M" };
    let arguments = format!("run --kernel kernel {memory} --disk path=disk --rng off --serial file=console {options}");
    let mut flatboot = Command::new(FLATBOOT);
    flatboot.args(arguments.split_whitespace()).current_dir(directory);
    // A group of its own, as a shell gives it.
    let flatboot = flatboot.process_group(0);
    Ok(flatboot.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?)
}

/// How it ended and what it said, when the last of its processes has: what they had is free then.
fn ended(child: Child) -> Result<(ExitStatus, String), Failed> {
    let group = Pid::from_child(&child);
    let output = child.wait_with_output()?;
    while waitpgid(group, WaitOptions::empty()).is_ok() {}
    Ok((output.status, String::from_utf8(output.stderr)?))
}

fn kill(child: &Child, signal: &str) -> Result<(), Failed> {
    send(&child.id().to_string(), signal)
}

fn send(to: &str, signal: &str) -> Result<(), Failed> {
    Command::new("kill").args(["-s", signal, "--", to]).status()?;
    Ok(())
}

/// One whose guest has said something.
fn until_it_runs(directory: &Path, options: &str) -> Result<Child, Failed> {
    let console = directory.join("console");
    // It may be there from an earlier start.
    let _ = fs::remove_file(&console);
    let mut child = start(directory, options)?;
    while fs::read(&console).map_or(true, |said| said.is_empty()) && child.try_wait()?.is_none() {
        thread::sleep(Duration::from_millis(1));
    }
    Ok(child)
}

/// How long it takes until the guest runs, which SIGTERM ends.
fn runs(directory: &Path, options: &str) -> Result<Duration, Failed> {
    let begin = Instant::now();
    let child = until_it_runs(directory, options)?;
    let took = begin.elapsed();
    kill(&child, "TERM")?;
    let (status, said) = ended(child)?;
    assert!(status.code() == Some(6), "{status}: {said}");
    Ok(took)
}
