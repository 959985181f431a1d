// SPDX-License-Identifier: Apache-2.0
//! A real userland: what `make boot` does.

use std::net::{Ipv4Addr, TcpListener};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use std::{fs, io};

use libtest_mimic::{Completion, Failed, Trial};
use rustix::process::{Pid, Signal, kill_process};

use super::lab::{Lab, require};
use crate::Body;

pub(crate) const TESTS: &[(&str, Body)] = &[
    ("debian::login_prompt_then_power_button", |lab| login(lab, &[])),
    ("debian::login_prompt_through_firmware", |lab| login(lab, &["--firmware"])),
    ("debian::a_wrong_size_is_refused", wrong_size),
];

/// How long a guest may take to let somebody in.
const LIMIT: Duration = Duration::from_secs(300);

pub(crate) fn trials() -> [Trial; 1] {
    [Trial::ignorable_test("debian::ssh_through_passt", || {
        let lab = Lab::get()?;
        match missing(lab)? {
            Some(reason) => Ok(Completion::ignored_with(reason)),
            None => ssh(lab).map(|()| Completion::Completed),
        }
    })]
}

/// What this machine lacks, if anything.
fn missing(lab: &Lab) -> Result<Option<String>, Failed> {
    for (program, version) in [("passt", "--version"), ("ssh", "-V")] {
        let there = Command::new(program).arg(version).stdout(Stdio::null()).stderr(Stdio::null()).status();
        if there.is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
            return Ok(Some(format!("{program} is not there: benches/packages.sh net")));
        }
    }
    // An emulated host has the route that its own network gives it.
    let routed = lab.is_emulated()
        || fs::read_to_string("/proc/net/route")?
            .lines()
            .any(|line| line.split_whitespace().nth(1) == Some("00000000"));
    Ok((!routed).then(|| "this machine has no default route, by which passt goes".to_owned()))
}

/// `flatboot-bench boot`, ended with its test.
struct Booted(Child);

impl Drop for Booted {
    fn drop(&mut self) {
        let pid = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw);
        // Its host goes with it, and what that runs.
        if self.0.try_wait().is_ok_and(|ended| ended.is_none())
            && let Some(pid) = pid
        {
            let _ = kill_process(pid, Signal::TERM);
            let _ = self.0.wait();
        }
    }
}

/// A guest without anybody's rights is logged into, reaches a port of its own host, which leads back to it, and powers off.
fn ssh(lab: &Lab) -> Result<(), Failed> {
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
    let mut command = Command::new(env!("CARGO_BIN_EXE_flatboot-bench"));
    command.args(["boot", "--ssh-port", &port.to_string(), "--flatboot"]).arg(&lab.flatboot);
    let console = fs::File::create(lab.path("console"))?;
    command.stdin(Stdio::null()).stdout(console.try_clone()?).stderr(console);
    let mut booted = Booted(command.spawn()?);
    let said = || fs::read_to_string(lab.path("console")).unwrap_or_default();

    // The passt of Debian 12 takes a connection to the guest for made only once whoever connects has said something.
    let script = format!(
        "set -e; gateway=$(ip route show default | cut -d ' ' -f 3); exec 3<>/dev/tcp/$gateway/{port}; \
         echo SSH-2.0-guest >&3; read -r -t 60 line <&3; echo \"$(id -un)@$(hostname): $line\"; \
         (sleep 2; systemctl poweroff) >/dev/null 2>&1 &"
    );
    let begin = Instant::now();
    let output = loop {
        let output = log_in(port, &script)?;
        // 255 is ssh's own: nobody has let it in yet.
        if output.status.code() != Some(255) || begin.elapsed() > LIMIT || booted.0.try_wait()?.is_some() {
            break output;
        }
        thread::sleep(Duration::from_millis(500));
    };
    let answer = String::from_utf8_lossy(&output.stdout).into_owned();
    require(answer.starts_with("root@flatboot: SSH-2.0-"), || {
        format!("{}: {answer}\n{}\n{}", output.status, String::from_utf8_lossy(&output.stderr), said())
    })?;
    let status = booted.0.wait()?;
    require(status.success() && said().contains("guest powered off"), || format!("{status}: {}", said()))
}

/// One attempt to have `script` run by the guest's shell, bash.
fn log_in(port: u16, script: &str) -> io::Result<Output> {
    let mut ssh = Command::new("ssh");
    for option in [
        "BatchMode=yes",
        "ConnectTimeout=10",
        "ServerAliveInterval=10",
        "StrictHostKeyChecking=no",
        "UserKnownHostsFile=/dev/null",
        "LogLevel=ERROR",
    ] {
        ssh.args(["-o", option]);
    }
    ssh.args(["-F", "none", "-p", &port.to_string(), "root@127.0.0.1", script]);
    ssh.stdin(Stdio::null()).output()
}

/// `flatboot-bench boot` with `args`: exit code, standard output, standard error.
fn boot(lab: &Lab, args: &[&str]) -> Result<(Option<i32>, String, String), Failed> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flatboot-bench"));
    command.arg("boot").args(args).arg("--flatboot").arg(&lab.flatboot).stdin(Stdio::null());
    let output = command.output()?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok((output.status.code(), text(&output.stdout), text(&output.stderr)))
}

/// systemd brings up a login prompt; the power button, which SIGTERM presses, takes it down again.
fn login(lab: &Lab, more: &[&str]) -> Result<(), Failed> {
    let (code, console, messages) = boot(lab, &[&["--memory", "1G", "--cpus", "2"], more].concat())?;
    let last = messages.lines().last().unwrap_or_default();
    let summary =
        last.starts_with("init reached after ") && last.ends_with(" ms (VMM exec to /sbin/init), 2 vCPUs, 1 GiB");
    require(code == Some(0) && console.contains("flatboot login: ") && summary, || {
        format!("exit code {code:?}\n--- console\n{console}\n--- messages\n{messages}")
    })?;
    require(messages.contains("guest powered off"), || messages.clone())
}

fn wrong_size(lab: &Lab) -> Result<(), Failed> {
    let (code, _, messages) = boot(lab, &["--memory", "lots"])?;
    require(code == Some(2) && messages.contains("flatboot: error: --memory size=lots: "), || {
        format!("exit code {code:?}: {messages}")
    })
}
