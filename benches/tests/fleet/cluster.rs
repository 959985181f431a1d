// SPDX-License-Identifier: Apache-2.0
//! A Slurm cluster of three nodes on this machine's loopback, ended when dropped.

use std::fmt::Write as _;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// The nodes.
pub(crate) const NODES: [&str; 3] = ["n1", "n2", "n3"];

pub(crate) struct Cluster {
    directory: TempDir,
    /// Each daemon, by name.
    daemons: Vec<(&'static str, Child)>,
}

impl Cluster {
    pub(crate) fn start() -> Self {
        let directory = tempfile::Builder::new().prefix("flatboot-slurm-").tempdir().unwrap();
        let mut cluster = Self { directory, daemons: Vec::new() };
        let path = |name: &str| cluster.path(name).display().to_string();
        fs::set_permissions(cluster.directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let key: Vec<u8> = fs::read("/proc/sys/kernel/random/uuid").unwrap().repeat(4);
        fs::write(cluster.path("munge.key"), key).unwrap();
        fs::set_permissions(cluster.path("munge.key"), fs::Permissions::from_mode(0o600)).unwrap();
        for name in ["state", "tmp"] {
            fs::create_dir(cluster.path(name)).unwrap();
        }
        fs::write(cluster.path("slurm.conf"), cluster.configuration()).unwrap();
        let files = ["key-file", "socket", "pid-file", "log-file", "seed-file"];
        let files =
            files.map(|file| format!("--{file}={}", path(&file.replace("-file", "").replace("key", "munge.key"))));
        cluster.daemon("munged", Command::new("munged").args(["--foreground", "--force"]).args(files));
        wait_for("munged", || cluster.path("socket").exists());
        cluster.daemon("slurmctld", Command::new("slurmctld").arg("-D"));
        for node in NODES {
            cluster.daemon(node, Command::new("slurmd").args(["-D", "-N", node]));
        }
        wait_for("three idle nodes", || cluster.says(&["sinfo", "-hN", "-o", "%T"]).matches("idle").count() == 3);
        cluster
    }

    fn configuration(&self) -> String {
        // Held at the same time, so that no two are alike.
        let listeners: Vec<_> = (0..4).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let ports: Vec<_> = listeners.iter().map(|listener| listener.local_addr().unwrap().port()).collect();
        let user = Command::new("id").arg("-un").output().unwrap().stdout;
        let (user, here) = (String::from_utf8(user).unwrap(), self.directory.path().display());
        let user = user.trim();
        let mut text = format!(
            "ClusterName=flatboot\nSlurmctldHost=localhost(127.0.0.1)\nSlurmctldPort={}\nSlurmUser={user}\nSlurmdUser={user}\n\
             AuthInfo=socket={here}/socket,cred_expire=5\nStateSaveLocation={here}/state\nSlurmdSpoolDir={here}/%n\n\
             SlurmctldPidFile={here}/slurmctld.pid\nSlurmdPidFile={here}/%n.pid\nSlurmctldLogFile={here}/slurmctld.log\n\
             SlurmdLogFile={here}/%n.log\nTaskProlog={here}/prolog\nMailProg=/bin/true\nProctrackType=proctrack/pgid\n\
             TaskPlugin=task/none\nSelectType=select/cons_tres\nMpiDefault=none\nSlurmdParameters=config_overrides\n\
             SlurmdTimeout=6\nKillWait=30\nReturnToService=2\nPartitionName=all Nodes=ALL Default=YES\n",
            ports[0]
        );
        for (node, port) in NODES.iter().zip(&ports[1..]) {
            writeln!(text, "NodeName={node} NodeHostname=localhost NodeAddr=127.0.0.1 Port={port} RealMemory=1000")
                .unwrap();
        }
        // On a node that is bad, no VM can be started.
        let prolog =
            format!("#!/bin/sh\n[ -e {here}/bad-$SLURMD_NODENAME ] && echo export FLATBOOT_KVM=broken\nexit 0\n");
        fs::write(self.path("prolog"), prolog).unwrap();
        fs::set_permissions(self.path("prolog"), fs::Permissions::from_mode(0o755)).unwrap();
        text
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// A command that uses this cluster.
    pub(crate) fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env("SLURM_CONF", self.path("slurm.conf")).env("FLATBOOT_KVM", "real").stdin(Stdio::null());
        // What a task that is killed leaves behind goes with the cluster.
        command.env("TMPDIR", self.path("tmp"));
        command
    }

    /// What Slurm answers.
    pub(crate) fn says(&self, words: &[&str]) -> String {
        let output = self.command(words[0]).args(&words[1..]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    /// Waits until `node` runs a task.
    pub(crate) fn wait_for_task(&self, node: &str) {
        wait_for("a task", || {
            self.says(&["squeue", "-h", "-t", "running", "-o", "%N"]).lines().any(|name| name == node)
        });
    }

    /// Whether the controller's log has `line`, or will soon.
    pub(crate) fn logs(&self, line: &str) -> bool {
        fs::read_to_string(self.path("slurmctld.log")).unwrap().contains(line)
    }

    /// As a loss of power would: its daemon and all that runs on it end at once.
    pub(crate) fn kill(&mut self, node: &str) {
        let (_, slurmd) = self.daemons.iter_mut().find(|(name, _)| *name == node).unwrap();
        slurmd.kill().unwrap();
        slurmd.wait().unwrap();
        self.end_tasks(&format!("SLURMD_NODENAME={node}\0"));
    }

    fn daemon(&mut self, name: &'static str, command: &mut Command) {
        let log = fs::File::create(self.path(&format!("{name}.out"))).unwrap();
        command
            .env("SLURM_CONF", self.path("slurm.conf"))
            .stdin(Stdio::null())
            .stderr(log.try_clone().unwrap())
            .stdout(log);
        let child = command.spawn().unwrap_or_else(|error| panic!("{name}: {error}; make fleet-test installs it"));
        self.daemons.push((name, child));
    }

    /// Ends tasks of this cluster that have `variable`, with slurmstepd above each, which would tell of its end, first.
    fn end_tasks(&self, variable: &str) {
        let own = format!("SLURM_CONF={}\0", self.path("slurm.conf").display());
        let has = |pid: &Pid, words: &[&str]| {
            let environment = fs::read(proc(*pid, "environ")).unwrap_or_default();
            words.iter().all(|word| environment.windows(word.len()).any(|window| window == word.as_bytes()))
        };
        let tasks: Vec<_> = pids().into_iter().filter(|pid| has(pid, &[&own, variable])).collect();
        let above = tasks.iter().filter_map(|task| parent(*task));
        let steps =
            above.filter(|pid| fs::read_to_string(proc(*pid, "comm")).is_ok_and(|name| name.trim() == "slurmstepd"));
        for pid in steps.collect::<Vec<_>>().iter().chain(&tasks) {
            // One that has just ended needs no signal.
            let _ = kill_process(*pid, Signal::KILL);
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.end_tasks("SLURMD_NODENAME=");
        // In the reverse order: nodes before the controller.
        for (_, daemon) in self.daemons.iter_mut().rev() {
            let _ = kill_process(Pid::from_child(daemon), Signal::TERM);
            let _ = daemon.wait();
        }
    }
}

fn pids() -> Vec<Pid> {
    let names = fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.filter_map(|name| Pid::from_raw(name.parse().ok()?)).collect()
}

fn proc(pid: Pid, file: &str) -> PathBuf {
    PathBuf::from(format!("/proc/{}/{file}", pid.as_raw_nonzero()))
}

fn parent(pid: Pid) -> Option<Pid> {
    let status = fs::read_to_string(proc(pid, "status")).ok()?;
    Pid::from_raw(status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()?)
}

/// Waits for what must come.
pub(crate) fn wait_for(what: &str, ready: impl Fn() -> bool) {
    let since = Instant::now();
    while !ready() {
        assert!(since.elapsed() < Duration::from_secs(120), "{what}: it never came");
        thread::sleep(Duration::from_millis(100));
    }
}
