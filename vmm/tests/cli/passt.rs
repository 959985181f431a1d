// SPDX-License-Identifier: Apache-2.0
//! The network that is a program: one that does not start, and one that comes and goes with its VM.

use std::fs::{self, Permissions};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use libtest_mimic::{Failed, Trial};

use crate::FLATBOOT;
use crate::host::{Host, Needs};
use crate::kvm::{RESET, RUNS, program};
use crate::net::wait;
use crate::refusal::{ERROR, Files};

/// What a test does.
type Body = fn() -> Result<(), Failed>;

/// What a test puts in passt's place, and what flatboot says then.
const REFUSALS: [(&str, Option<&str>, &str); 4] = [
    (
        "is not there",
        None,
        "--net passt: the program passt was not found: must be installed (Debian: apt-get install passt)",
    ),
    (
        "finds a port in use",
        Some(
            "[ \"$*\" = \"--quiet --one-off --fd $4 -t 127.0.0.1/2222:22 --mtu 1500\" ] && [ -S /proc/self/fd/$4 ] || exit 9
             echo \"Failed to bind any port for '-t 127.0.0.1/2222:22', exiting\" >&2
             echo 'Failed to send 31 bytes to syslog' >&2; exit 1",
        ),
        "--net passt: passt cannot use a port: Failed to bind any port for '-t 127.0.0.1/2222:22': must be \
         free, and allowed for this user",
    ),
    (
        "has nowhere to go",
        Some("echo \"Couldn't get any routable interface\" >&2; exit 1"),
        "--net passt: passt has failed: Couldn't get any routable interface",
    ),
    ("dies without a word", Some("kill -KILL $$"), "--net passt: passt has failed: signal: 9 (SIGKILL)"),
];

pub(crate) fn trials(host: &Host) -> Vec<Trial> {
    let refusal = |(name, script, line)| Trial::test(format!("passt {name}"), move || is_refused(script, line));
    let mut trials: Vec<_> = REFUSALS.into_iter().map(refusal).collect();
    let real: [(&str, Body); 2] =
        [("passt comes and goes with its VM", comes_and_goes), ("passt keeps its ports when the guest resets", resets)];
    trials.extend(real.map(|(name, body)| {
        let ignored = host.skips(name, Needs::OpenKvm) || lacks(name);
        Trial::test(name, body).with_ignored_flag(ignored)
    }));
    trials
}

/// Whether this machine has no passt, or nowhere for it to go.
fn lacks(name: &str) -> bool {
    let there = Command::new("passt").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok();
    let table = fs::read_to_string("/proc/net/route").unwrap_or_default();
    let routed = table.lines().any(|line| line.split_whitespace().nth(1) == Some("00000000"));
    if !(there && routed) {
        eprintln!("SKIPPED: {name}: takes passt (Debian: apt-get install passt) and a default route");
    }
    !(there && routed)
}

fn is_refused(script: Option<&str>, line: &str) -> Result<(), Failed> {
    let programs = tempfile::tempdir()?;
    if let Some(script) = script {
        let path = programs.path().join("passt");
        fs::write(&path, format!("#!/bin/sh\n{script}\n"))?;
        fs::set_permissions(path, Permissions::from_mode(0o755))?;
    }
    let files = Files::new();
    let arguments = "run --net passt,forward=2222:22,mtu=1500".split(' ').map(Into::into).collect();
    let mut command = Command::new(FLATBOOT);
    command.env("PATH", programs.path());
    files.refused(command, &files.with_defaults(arguments), ERROR, line)
}

/// Its port takes connections as long as the VM is there, however that ends.
fn comes_and_goes() -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    fs::write(directory.path().join("kernel"), program(RUNS))?;
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
    for signal in ["TERM", "KILL"] {
        let mut vm = start(directory.path(), port, "file=console").stderr(Stdio::null()).spawn()?;
        wait("the guest runs", || fs::read(directory.path().join("console")).is_ok_and(|said| !said.is_empty()))?;
        TcpStream::connect(port)?;
        let second = start(directory.path(), port, "null").output()?;
        let said = String::from_utf8(second.stderr)?;
        assert!(said.contains("--net passt: passt cannot use a port: "), "{said}");
        Command::new("kill").args(["-s", signal, &vm.id().to_string()]).status()?;
        vm.wait()?;
        wait("passt goes", || TcpStream::connect(port).is_err())?;
        fs::remove_file(directory.path().join("console"))?;
    }
    Ok(())
}

/// Each VM has a passt of its own, whose ports are those of the one before.
fn resets() -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    let path = |name: &str| directory.path().join(name);
    fs::write(path("kernel"), program(RESET))?;
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
    let mut flatboot = start(directory.path(), port, "null");
    let mut vm = flatboot.arg("--restart-on-reset").stderr(fs::File::create(path("said"))?).spawn()?;
    let said = || fs::read_to_string(path("said")).unwrap_or_default();
    let resets = || said().matches("asked for a reset\n").count();
    let lives = wait("the guest resets", || resets() >= 5 || vm.try_wait().is_ok_and(|ended| ended.is_some()));
    Command::new("kill").arg(vm.id().to_string()).status()?;
    vm.wait()?;
    assert!(lives.is_ok() && resets() >= 5 && !said().contains("error"), "{}", said());
    wait("passt goes", || TcpStream::connect(port).is_err())
}

fn start(directory: &Path, port: SocketAddr, serial: &str) -> Command {
    let mut flatboot = Command::new(FLATBOOT);
    flatboot.args("run --kernel kernel --rng off --shutdown-timeout 1".split_whitespace()).current_dir(directory);
    flatboot.args(["--net", &format!("passt,forward={}:22", port.port())]).stdin(Stdio::null());
    flatboot.args(["--serial", serial]).stdout(Stdio::null());
    flatboot
}
