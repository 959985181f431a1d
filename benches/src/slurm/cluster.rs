// SPDX-License-Identifier: Apache-2.0
//! Slurm's own commands. Partition, account, time limit and constraints are those of sbatch's variables, such as
//! `SBATCH_PARTITION`.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

/// How variables begin that would have a command look at other jobs than ours, or ask before it cancels one.
const FILTERS: [&str; 3] = ["SQUEUE_", "SCANCEL_", "SINFO_"];
/// What would have sbatch wait for the job's end, or write what tasks say elsewhere.
const NOT_OURS: [&str; 2] = ["SBATCH_WAIT", "SBATCH_ERROR"];
/// Where jobs are then on a cluster that is not this machine's.
const ELSEWHERE: [&str; 2] = ["SBATCH_CLUSTERS", "SLURM_CLUSTERS"];

/// A job array that was submitted, cancelled when dropped: of one that has ended nothing is left to cancel.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) id: String,
}

/// Names of the nodes that run jobs, or can, of the partition that sbatch takes: without one, sinfo lists all, and marks the one
/// that sbatch takes then with a `*`.
pub(super) fn nodes_up() -> Result<BTreeSet<String>> {
    let partition = env::var("SBATCH_PARTITION").ok().map(|name| format!("--partition={name}"));
    let mut arguments = vec!["--noheader", "--Node", "--format=%P %N", "--responding", "--states=idle,mixed,allocated"];
    arguments.extend(partition.as_deref());
    let lines = output("sinfo", &arguments)?;
    let lines = lines.lines().filter_map(|line| line.trim().split_once(' '));
    let taken = lines.filter(|(name, _)| partition.is_some() || name.ends_with('*'));
    let nodes: BTreeSet<_> = taken.map(|(_, node)| node.trim().to_owned()).collect();
    let of = partition.as_deref().unwrap_or("the default partition");
    ensure!(!nodes.is_empty(), "--on slurm: no node of {of} is up: see sinfo");
    Ok(nodes)
}

/// Submits `script` with `arguments` as an array of so many tasks, each with a node of its own, but none of `without`; what a
/// task prints goes to a file beside the script. A task whose node fails is started again on another.
pub(super) fn submit(
    script: &Path,
    tasks: u32,
    without: &[String],
    arguments: impl Iterator<Item = OsString>,
) -> Result<Job> {
    if let Some((name, value)) = ELSEWHERE.iter().find_map(|name| env::var(name).ok().map(|value| (name, value))) {
        bail!("--on slurm: {name}={value}: a sweep runs on the cluster of the machine it is started on: unset {name}");
    }
    // In a name sbatch replaces what follows a %.
    let directory = script.parent().unwrap_or(script).display().to_string().replace('%', "%%");
    let log = format!("{directory}/%A-%a.log");
    let mut command = Command::new("sbatch");
    command.args([
        "--parsable",
        "--job-name=flatboot-bench",
        "--requeue",
        "--exclusive",
        "--mem=0",
        "--open-mode=append",
    ]);
    command.arg(format!("--array=0-{}", tasks - 1)).arg("--output").arg(log);
    if !without.is_empty() {
        command.arg(format!("--exclude={}", without.join(",")));
    }
    let said = finished(command.arg(script).args(arguments), "sbatch")?;
    // With a cluster's name after it, if there are several.
    let id = said.trim().split(';').next().unwrap_or_default().to_owned();
    ensure!(!id.is_empty() && id.bytes().all(|byte| byte.is_ascii_digit()), "sbatch: no job's number in {said:?}");
    Ok(Job { id })
}

impl Job {
    /// Tasks that are left, by state, and why they are in it: "2 RUNNING", "1 PENDING (Resources)". Where Slurm does not answer,
    /// that: it may be back soon.
    pub(super) fn states(&self) -> Vec<String> {
        match output("squeue", &["--noheader", "--array", "--format=%T (%r)", "--jobs", &self.id]) {
            Ok(states) => {
                let mut counts = BTreeMap::new();
                states
                    .lines()
                    .for_each(|state| *counts.entry(state.trim().trim_end_matches(" (None)")).or_insert(0) += 1);
                counts.into_iter().map(|(state, count)| format!("{count} {state}")).collect()
            }
            // It ended so long ago that Slurm has forgotten it.
            Err(error) if error.to_string().contains("Invalid job id") => Vec::new(),
            Err(error) => vec![error.to_string()],
        }
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        match output("scancel", &[&self.id]) {
            Err(error) if !error.to_string().contains("Invalid job id") => {
                eprintln!("flatboot-bench: job {} may run on: {error:#}", self.id);
            }
            _ => {}
        }
    }
}

fn output(program: &str, arguments: &[&str]) -> Result<String> {
    finished(Command::new(program).args(arguments), program)
}

fn finished(command: &mut Command, name: &str) -> Result<String> {
    let is_filter = |name: &str| FILTERS.iter().any(|start| name.starts_with(start));
    let names = env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    for name in names.filter(|name| is_filter(name) || NOT_OURS.contains(&name.as_str())) {
        command.env_remove(name);
    }
    // A terminal's Ctrl-C is for this program, which has yet to cancel its job.
    let output = command.process_group(0).stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("--on slurm: {name} cannot be run: install Debian's slurm-client"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{name}: {}", said.trim().replace('\n', "; "));
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
