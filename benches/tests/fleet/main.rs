// SPDX-License-Identifier: Apache-2.0
//! Fleets, and sweeps that are spread over a Slurm cluster of three nodes on this machine. Slurm is real; all VMs but those of one
//! test are fakes that reach init after half a second.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod cluster;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use cluster::{Cluster, NODES, wait_for};
use flatboot_bench::results::{self, End, Results};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

const BENCH: &str = env!("CARGO_BIN_EXE_flatboot-bench");

/// A fake that takes the part of QEMU, and reaches init after the seconds that stand in its place.
const FAKE: &str = r#"#!/bin/sh
[ "$1" = --version ] && { echo "fake 1.0"; exit 0; }
for word; do case $word in file,id=marks,path=*) marks=${word#file,id=marks,path=};; esac; done
sleep SECONDS
printf '\100\101' > "$marks"; echo 'FLATBOOT {"check":"start"}'; exec sleep 1000
"#;

/// A directory with fakes, which is where results go.
struct Lab {
    directory: TempDir,
}

impl Lab {
    fn new() -> Self {
        let lab = Self { directory: tempfile::tempdir().unwrap() };
        fs::write(lab.path("vmlinux"), "not read by a fake").unwrap();
        for (name, seconds) in [("vmm", "0.5"), ("slow", "0.8")] {
            fs::write(lab.path(name), FAKE.replace("SECONDS", seconds)).unwrap();
            fs::set_permissions(lab.path(name), fs::Permissions::from_mode(0o755)).unwrap();
        }
        lab
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn results(&self, name: &str) -> Results {
        results::load(&self.path(name)).unwrap()
    }

    /// A sweep of two variants in the cluster, or on this machine alone.
    fn sweep(&self, cluster: &Cluster, words: &[&str]) -> Command {
        let mut command = cluster.command(BENCH);
        command.current_dir(self.directory.path()).args(["run", "--memory", "1G,2G", "--mode", "serial"]);
        command.args(["--kernel", "vmlinux"]).args(words).stderr(Stdio::piped());
        command
    }

    /// Exit code of `compare --fail-above 1.25 --if-shown`, and what it says.
    fn compared(&self, a: &str, b: &str) -> (Option<i32>, String) {
        let mut command = Command::new(BENCH);
        command.args(["compare", a, b, "--fail-above", "1.25", "--if-shown"]).current_dir(self.directory.path());
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn ended(child: Child) -> Output {
    child.wait_with_output().unwrap()
}

/// The node of each round; all boots of a round were on one, and every boot reached init.
fn nodes(results: &Results) -> BTreeMap<u32, String> {
    let mut nodes = BTreeMap::new();
    for boot in &results.boots {
        assert!(matches!(boot.end, End::Init(_)), "{boot:?}");
        let node = boot.node.clone().unwrap();
        assert_eq!(*nodes.entry(boot.round).or_insert_with(|| node.clone()), node, "round {}", boot.round);
    }
    nodes
}

fn all_of(nodes: &BTreeMap<u32, String>) -> BTreeSet<&str> {
    nodes.values().map(String::as_str).collect()
}

#[test]
fn three_nodes_of_which_one_is_lost_measure_what_one_does() {
    let (lab, mut cluster) = (Lab::new(), Cluster::start());
    let spread = ["--vmm", "qemu=vmm", "--runs", "8", "--tasks", "4", "--on", "slurm", "--out", "spread.json.zst"];
    let sweep = lab.sweep(&cluster, &spread).spawn().unwrap();
    let parts = || fs::read_dir(lab.path("spread.json.zst.parts")).into_iter().flatten().filter_map(Result::ok);
    let has_begun = |node: &str| parts().any(|part| part.file_name().to_string_lossy().ends_with(node));
    wait_for("a boot on n2", || has_begun(".n2-0"));
    cluster.kill("n2");
    let output = ended(sweep);
    assert!(output.status.success(), "{}", said(&output));
    assert!(cluster.logs("due to failure of node n2"), "no task was started again");
    let results = lab.results("spread.json.zst");
    let nodes = nodes(&results);
    assert!(results.is_complete() && all_of(&nodes) == BTreeSet::from(["n1", "n3"]), "{nodes:?}");
    assert!(!lab.path("spread.json.zst.parts").exists());

    for (name, vmm) in [("alone.json", "qemu=vmm"), ("slow.json", "qemu=slow")] {
        let output = lab.sweep(&cluster, &["--vmm", vmm, "--runs", "8", "--out", name]).output().unwrap();
        assert!(output.status.success(), "{}", said(&output));
    }
    for (a, b) in [("alone.json", "spread.json.zst"), ("spread.json.zst", "alone.json")] {
        let (code, text) = lab.compared(a, b);
        assert_eq!(code, Some(0), "{text}");
    }
    // It does find what differs.
    let (code, text) = lab.compared("spread.json.zst", "slow.json");
    assert_eq!(code, Some(1), "{text}");
}

#[test]
fn a_drained_node_gets_no_more_rounds() {
    let (lab, cluster) = (Lab::new(), Cluster::start());
    let spread = ["--vmm", "qemu=vmm", "--runs", "9", "--tasks", "9", "--on", "slurm", "--out", "r.json"];
    let sweep = lab.sweep(&cluster, &spread).spawn().unwrap();
    cluster.wait_for_task("n3");
    cluster.says(&["scontrol", "update", "nodename=n3", "state=drain", "reason=test"]);
    assert!(cluster.says(&["sinfo", "-hN", "-n", "n3", "-o", "%T"]).contains("drain"));
    let output = ended(sweep);
    assert!(output.status.success(), "{}", said(&output));
    let results = lab.results("r.json");
    let nodes = nodes(&results);
    assert!(results.is_complete());
    // The warm-up round in the file is the first task's.
    let on_n3 = nodes.iter().filter(|(round, node)| **round > 0 && *node == "n3").count();
    assert_eq!((on_n3, all_of(&nodes).len()), (1, 3), "{nodes:?}");
}

#[test]
fn a_stopped_sweep_goes_on_where_it_was() {
    let (lab, cluster) = (Lab::new(), Cluster::start());
    let spread = ["--vmm", "qemu=vmm", "--runs", "9", "--tasks", "9", "--on", "slurm", "--out", "r.json"];
    // With these squeue would know of no job, and scancel would ask before it cancels one.
    let user = [("SQUEUE_STATES", "SUSPENDED"), ("SCANCEL_INTERACTIVE", "1"), ("SBATCH_WAIT", "1")];
    let sweep = lab.sweep(&cluster, &spread).envs(user).spawn().unwrap();
    wait_for("the first rounds", || lab.path("r.json").exists());
    kill_process(Pid::from_child(&sweep), Signal::INT).unwrap();
    let output = ended(sweep);
    assert_eq!(output.status.code(), Some(3), "{}", said(&output));
    wait_for("an empty queue", || cluster.says(&["squeue", "-h"]).is_empty());
    // A task that is cancelled cleans up, which Slurm gives it time for.
    wait_for("an empty directory", || fs::read_dir(cluster.path("tmp")).unwrap().count() == 0);
    let stopped = lab.results("r.json");
    assert!(!stopped.is_complete() && stopped.boots.len().is_multiple_of(2), "{}", stopped.boots.len());
    assert!(!lab.path("r.json.parts").exists());

    let other = ["--vmm", "qemu=vmm", "--runs", "8", "--on", "slurm", "--out", "r.json", "--resume"];
    let output = lab.sweep(&cluster, &other).output().unwrap();
    assert!(output.status.code() == Some(2) && said(&output).contains("--runs differ: 9 in the file, 8 now"));
    let output = lab.sweep(&cluster, &[&spread[..], &["--resume"]].concat()).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let resumed = lab.results("r.json");
    assert!(resumed.is_complete() && resumed.boots[..stopped.boots.len()] == stopped.boots[..]);
    nodes(&resumed);
}

#[test]
fn rounds_of_a_bad_node_are_run_on_others() {
    let (lab, cluster) = (Lab::new(), Cluster::start());
    fs::write(cluster.path("bad-n1"), "").unwrap();
    // Without --tasks: one for each node.
    let spread = ["--vmm", "qemu=vmm", "--runs", "6", "--on", "slurm", "--out", "r.json"];
    let output = lab.sweep(&cluster, &spread).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let results = lab.results("r.json");
    let nodes = nodes(&results);
    assert!(results.is_complete() && all_of(&nodes) == BTreeSet::from(["n2", "n3"]), "{nodes:?}");
    // Where all are bad, it says why.
    for node in NODES {
        fs::write(cluster.path(&format!("bad-{node}")), "").unwrap();
    }
    let output = lab.sweep(&cluster, &[&spread[..], &["--out", "none.json"]].concat()).output().unwrap();
    let text = said(&output);
    assert!(output.status.code() == Some(2) && text.contains("FLATBOOT_KVM=broken: expected real"), "{text}");
    assert!(cluster.says(&["squeue", "-h"]).is_empty() && !lab.path("none.json").exists());
    let output = lab.sweep(&cluster, &[&spread[..], &["--out", "none.json"]].concat()).output().unwrap();
    assert!(said(&output).contains("none.json.parts: is there, of a sweep that has failed"), "{}", said(&output));
}

#[test]
fn a_cluster_that_is_not_there_is_told_of() {
    let lab = Lab::new();
    let mut command = Command::new(BENCH);
    command
        .args(["run", "--vmm", "qemu=vmm", "--kernel", "vmlinux", "--on", "slurm"])
        .current_dir(lab.directory.path());
    let output = command.env("PATH", "/nowhere").env("FLATBOOT_KVM", "real").output().unwrap();
    assert!(said(&output).contains("sinfo cannot be run: install Debian's slurm-client"), "{}", said(&output));
    assert!(output.status.code() == Some(2) && !lab.path("results.json").exists());
    assert!(!lab.path("results.json.parts").exists());
}

/// Nodes are counted where sbatch will look for them: here in vain, and so they are told of.
#[test]
fn nodes_are_those_of_the_partition() {
    let asked = "--states=idle,mixed,allocated";
    for (partition, prints, words) in [
        (Some("metal"), ">&2; exit 1", format!("{asked} --partition=metal")),
        (Some("metal"), ">/dev/null", "no node of --partition=metal is up".to_owned()),
        (None, ">&2; exit 1", asked.to_owned()),
        (None, ">/dev/null; echo 'metal n1'; echo 'all n2'", "no node of the default partition is up".to_owned()),
    ] {
        let lab = Lab::new();
        let bin = lab.path("bin");
        fs::create_dir(&bin).unwrap();
        fs::write(bin.join("sinfo"), format!("#!/bin/sh\necho \"$*\" {prints}\n")).unwrap();
        fs::set_permissions(bin.join("sinfo"), fs::Permissions::from_mode(0o755)).unwrap();
        let mut command = Command::new(BENCH);
        command
            .args(["run", "--vmm", "qemu=vmm", "--kernel", "vmlinux", "--on", "slurm"])
            .current_dir(lab.directory.path());
        command.env_remove("SBATCH_PARTITION").envs(partition.map(|name| ("SBATCH_PARTITION", name)));
        let output = command.env("PATH", bin).env("FLATBOOT_KVM", "real").output().unwrap();
        assert!(said(&output).contains(&words), "{prints}: {}", said(&output));
    }
}

#[test]
fn fleets_are_spread_too() {
    let (lab, cluster) = (Lab::new(), Cluster::start());
    let mut command = cluster.command(BENCH);
    command.current_dir(lab.directory.path()).args(["fleet", "--vms", "4", "--vmm", "qemu=vmm", "--kernel", "vmlinux"]);
    let output = command.args(["--runs", "3", "--on", "slurm", "--out", "r.json"]).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let results = lab.results("r.json");
    assert_eq!(results.boots.len(), 4 * (3 + 1));
    assert_eq!(all_of(&nodes(&results)).len(), 3);
}

/// Real VMs, on this machine's KVM or on the emulated host's.
#[test]
fn six_vms_boot_together() {
    let lab = Lab::new();
    let mut command = Command::new(BENCH);
    command.args([
        "fleet",
        "--vms",
        "6",
        "--memory",
        "256M",
        "--cpus",
        "1",
        "--runs",
        "1",
        "--timeout",
        "300",
        "--out",
    ]);
    let output = command.arg(lab.path("r.json")).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let results = lab.results("r.json");
    assert_eq!(results.boots.len(), 6 * 2);
    let mut began = BTreeSet::new();
    for boot in &results.boots {
        let End::Init(sample) = &boot.end else { panic!("{boot:?}") };
        assert!(
            sample.by_mark && sample.init_ns < sample.console_ns && sample.host_memory_bytes > 16 << 20,
            "{sample:?}"
        );
        began.insert((boot.round, sample.began_ns.unwrap()));
        // All were started before the first was at init.
        assert!(
            sample.began_ns.unwrap()
                < results.boots.iter().filter_map(results::Boot::sample).map(|one| one.init_ns).min().unwrap()
        );
    }
    assert_eq!(began.len(), 12, "each is a VM of its own");
}
