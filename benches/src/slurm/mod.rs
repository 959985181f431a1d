// SPDX-License-Identifier: Apache-2.0
//! A sweep that is spread over the nodes of a Slurm cluster: each task of a job array runs some of its rounds, as a sweep of its
//! own; what they measured is merged into one file as they end.

mod cluster;
mod merge;

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::progress::Progress;
use crate::results::{self, Output, Results, Sweep};
use crate::sweep::{self, Finished, Request, Stop};
use cluster::Job;

/// How often Slurm is asked.
const LOOK: Duration = Duration::from_secs(2);

/// How a sweep is spread.
#[derive(Debug, Clone)]
pub struct Spread {
    /// Tasks of the job array; one for each node that is up if none is given.
    pub tasks: Option<u32>,
    /// This program's arguments, which each task gets too.
    pub arguments: Vec<OsString>,
}

/// Runs the sweep that `request` describes, or the rest of it, on the cluster.
pub fn run(request: &Request, spread: &Spread, stop: &Stop) -> Result<Finished> {
    let out = Output::open(&request.out, request.resume)?;
    let sweep = sweep::prepare(request)?;
    let mut merged = Merged { out, sweep: &sweep, results: None };
    if request.resume {
        merged.results = merge::whole_rounds(sweep::resumed(&request.out, &sweep)?);
    }
    let parts = Parts::at(&request.out, request.resume)?;
    parts.pass_over_unlike(merged.results.as_ref())?;
    match merged.complete(&parts, spread, stop) {
        Err(error) if parts.names(".log")?.is_empty() => parts.remove().and(Err(error))?,
        Err(error) => bail!("{error:#}; see {}", parts.directory.display()),
        Ok(()) => parts.remove().unwrap_or_else(|error| eprintln!("flatboot-bench: {error:#}: may be removed")),
    }
    let results = merged.results.context("no round was complete")?;
    Ok(if results.is_complete() { Finished::Complete(results) } else { Finished::Stopped(results) })
}

/// What has been measured so far; the file is written as it grows.
struct Merged<'a> {
    out: Output<'a>,
    sweep: &'a Sweep,
    results: Option<Results>,
}

impl Merged<'_> {
    /// Submits the rounds that are missing, until there are none or nothing comes of it.
    fn complete(&mut self, parts: &Parts, spread: &Spread, stop: &Stop) -> Result<()> {
        let progress = Progress::begin("sweep".to_owned());
        progress.expect(self.sweep.runs.saturating_sub(self.rounds()) as usize);
        while self.rounds() < self.sweep.runs && !stop.is_asked() {
            let before = self.rounds();
            let job = parts.submit(self.sweep.runs - before, spread)?;
            let left = job.follow(parts, self, &progress, stop)?;
            if self.rounds() == before && !stop.is_asked() {
                bail!("no task was completed: {}{}", left.join(", "), parts.last_words(&format!("{}-", job.id)));
            }
        }
        Ok(())
    }

    /// Rounds that count.
    fn rounds(&self) -> u32 {
        self.results.as_ref().map_or(0, merge::rounds)
    }

    /// The rounds of `part`, which came in the file `taken`: that gets its name back where they cannot be saved.
    fn add(&mut self, part: Results, taken: &Path) -> Result<()> {
        let results = merge::merge(self.sweep, self.results.take(), part)?;
        if let Err(error) = self.out.save(&results) {
            fs::rename(taken, taken.with_extension("part")).with_context(|| taken.display().to_string())?;
            return Err(error);
        }
        self.results = Some(results);
        Ok(())
    }
}

/// The directory beside the results file, which all nodes see, to which tasks write.
struct Parts {
    directory: PathBuf,
}

impl Parts {
    fn at(out: &Path, resume: bool) -> Result<Self> {
        let mut name = std::path::absolute(out)?.into_os_string();
        name.push(".parts");
        let directory = PathBuf::from(name);
        let name = directory.display().to_string();
        match fs::create_dir(&directory) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                ensure!(resume, "{name}: is there, of a sweep that has failed or still runs; remove it if none runs");
            }
            made => made.with_context(|| format!("{name}: cannot be made"))?,
        }
        let parts = Self { directory };
        // Nodes may be better by now.
        parts.names(".failed")?.iter().try_for_each(|name| fs::remove_file(parts.directory.join(name)))?;
        Ok(parts)
    }

    /// Of those that a sweep left behind, what cannot be read, or is of nodes unlike those of `merged`, would fail each that
    /// goes on with it.
    fn pass_over_unlike(&self, merged: Option<&Results>) -> Result<()> {
        for path in self.names(".part")?.iter().map(|name| self.directory.join(name)) {
            let fits =
                results::load(&path).and_then(|part| merged.map_or(Ok(()), |merged| merge::alike(merged, &part)));
            if let Err(error) = fits {
                eprintln!("flatboot-bench: {} does not count: {error:#}", path.display());
                fs::remove_file(&path).with_context(|| path.display().to_string())?;
            }
        }
        Ok(())
    }

    /// Submits `rounds` rounds, to nodes on which no task has failed.
    fn submit(&self, rounds: u32, spread: &Spread) -> Result<Job> {
        let failed: Vec<_> = self.names(".failed")?.iter().map(|name| name.replace(".failed", "")).collect();
        let tasks = match spread.tasks {
            // Slurm may start nodes for them.
            Some(tasks) if failed.is_empty() => tasks,
            tasks => {
                let left = cluster::nodes_up()?.iter().filter(|node| !failed.contains(node)).count();
                ensure!(left > 0, "tasks have failed on every node that is up: {}", self.last_words(""));
                tasks.map_or_else(|| left.try_into(), Ok)?
            }
        };
        let tasks = tasks.clamp(1, rounds);
        let script = self.directory.join("task.sh");
        fs::write(&script, include_str!("task.sh")).with_context(|| script.display().to_string())?;
        let words = [rounds / tasks, rounds % tasks].map(|number| OsString::from(number.to_string()));
        let program = std::env::current_exe().context("this program's path")?;
        let command = [self.directory.clone().into(), words[0].clone(), words[1].clone(), program.into()];
        let arguments = spread.arguments.iter().filter(|word| *word != "--resume").cloned();
        cluster::submit(&script, tasks, &failed, command.into_iter().chain(arguments))
    }

    /// The files whose names end in `end`, in the same order each time.
    fn names(&self, end: &str) -> Result<Vec<String>> {
        let entries = fs::read_dir(&self.directory).with_context(|| self.directory.display().to_string())?;
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut names: Vec<_> = names.filter(|name| name.ends_with(end)).collect();
        names.sort();
        Ok(names)
    }

    /// The node of `part` gets no more tasks.
    fn fail(&self, part: &Results, why: &str) -> Result<()> {
        let node = part.boots.iter().find_map(|boot| boot.node.as_deref()).unwrap_or("a node");
        let path = self.directory.join(format!("{node}.failed"));
        fs::write(&path, format!("{node}: {why}\n")).with_context(|| path.display().to_string())
    }

    /// Why a node has failed, or what a task that failed said at last, of those whose names begin with `job`.
    fn last_words(&self, job: &str) -> String {
        let last = |name: String| {
            let text = fs::read_to_string(self.directory.join(name)).ok()?;
            text.lines().rfind(|line| !line.trim().is_empty()).map(str::to_owned)
        };
        let of = |end| self.names(end).unwrap_or_default().into_iter().rev();
        let mut logs = of(".log").filter(|name| name.starts_with(job));
        of(".failed").find_map(last).or_else(|| logs.find_map(last)).unwrap_or_else(|| "none said anything".to_owned())
    }

    fn remove(&self) -> Result<()> {
        fs::remove_dir_all(&self.directory).with_context(|| self.directory.display().to_string())
    }
}

impl Job {
    /// Merges what its tasks write until none is left that Slurm does not hold, or there is enough, or it is to stop. Returns
    /// those that are left, each with a colon: Slurm holds a task whose node could not begin it, for a person to look.
    fn follow(&self, parts: &Parts, merged: &mut Merged<'_>, progress: &Progress, stop: &Stop) -> Result<Vec<String>> {
        let mut counted = HashSet::new();
        loop {
            // Before the look for files: what is no longer there has written its file.
            let states = self.states();
            for name in parts.names(".part")? {
                let path = parts.directory.join(&name);
                let before = merged.rounds();
                let part = results::load(&path)?;
                // Before it counts: what cannot be merged must not come back, and what is merged must not count twice.
                let taken = path.with_extension("taken");
                fs::rename(&path, &taken).with_context(|| path.display().to_string())?;
                if let Some(why) = merge::failure(&part) {
                    parts.fail(&part, &why)?;
                } else if counted.insert(name) {
                    // A node that was taken for lost may end its task, too.
                    merged.add(part, &taken)?;
                }
                fs::remove_file(&taken).with_context(|| taken.display().to_string())?;
                progress.done((merged.rounds() - before) as usize);
            }
            let all_held = states.iter().all(|state| state.contains("Held") || state.contains("held"));
            if all_held || merged.rounds() >= merged.sweep.runs || stop.is_asked() {
                return Ok(states.into_iter().map(|state| format!("{state}: ")).collect());
            }
            progress.show(&format!("job {}: {}", self.id, states.join(", ")));
            thread::sleep(LOOK);
        }
    }
}
