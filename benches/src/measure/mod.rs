// SPDX-License-Identifier: Apache-2.0
//! Measurements: claims, each a ratio of medians within one run, with the raw samples kept.
//!
//! Machines are shared and noisy, so variants are interleaved (A B C A B C …), the first round is dropped, and each sample
//! gets a host of its own: the second guest in one emulated host runs on pages that held translated code, and is slower.

mod claims;
mod samples;

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use std::{fs, io};

use crate::artifact::{self, ArtifactError};
use crate::door::{Door, Error};
use crate::guest::{Guest, GuestError};
use crate::host::HostOptions;
use crate::initramfs::{self, InitramfsError};

pub use claims::{CLAIMS, Claim, Verdict};
pub use samples::{Sample, Samples};

/// A measurement did not come about. One that did and missed its bound is a [`Verdict`].
#[derive(Debug, thiserror::Error)]
pub enum MeasureError {
    /// No claim of that name.
    #[error("{0}: no such claim; there are: {names}", names = CLAIMS.iter().map(|c| c.name).collect::<Vec<_>>().join(", "))]
    Unknown(String),
    /// Too few samples to speak of a median.
    #[error("--runs {0}: must be 1 to 1000 (claims are made from 10 or more)")]
    Runs(usize),
    /// Something to run is missing.
    #[error(transparent)]
    Artifact(#[from] ArtifactError),
    /// The initramfs.
    #[error(transparent)]
    Initramfs(#[from] InitramfsError),
    /// The door.
    #[error(transparent)]
    Door(#[from] Error),
    /// A guest.
    #[error(transparent)]
    Guest(#[from] GuestError),
    /// A guest failed, or reported no marks.
    #[error("{variant}: the guest failed with exit code {code}: {tail}")]
    Failed {
        /// The variant.
        variant: &'static str,
        /// flatboot's exit code.
        code: u8,
        /// What it said last.
        tail: String,
    },
    /// The samples cannot be kept.
    #[error("{path}: cannot be written")]
    Keep {
        /// The file.
        path: String,
        /// Why.
        source: io::Error,
    },
}

/// One way to boot, to be compared with others.
#[derive(Debug, Clone)]
pub struct Variant {
    /// Its name in tables and in the samples.
    pub name: &'static str,
    /// The guest.
    pub guest: Guest,
}

/// What measurements need: built once.
#[derive(Debug)]
pub struct Bench {
    door: Door,
    flatboot: PathBuf,
    /// The emulated host's kernel, if that is what is used.
    host_kernel: Option<PathBuf>,
    scratch: tempfile::TempDir,
}

impl Bench {
    /// Finds flatboot, decides about KVM, and writes the tiny initramfs.
    pub fn open() -> Result<Self, MeasureError> {
        let flatboot = artifact::flatboot(None).ok_or(Error::NoFlatboot)?;
        let door = Door::open(Some(&flatboot))?;
        let keep = |source| MeasureError::Keep { path: "temporary directory".to_owned(), source };
        let scratch = tempfile::tempdir().map_err(keep)?;
        initramfs::write_guest(&scratch.path().join("tiny.cpio"))?;
        eprintln!("==> {door}");
        let host_kernel = door.host_kernel()?;
        Ok(Self { door, flatboot, host_kernel, scratch })
    }

    /// A guest with the kernel that `guest-kernel/build.sh` calls `kernel`, and the tiny initramfs.
    pub fn guest(&self, kernel: &str) -> Result<Guest, MeasureError> {
        let vmlinux = artifact::kernel(kernel)?.join("vmlinux");
        let timeline = self.scratch.path().join("timeline.json");
        Ok(Guest::new(&vmlinux, &self.scratch.path().join("tiny.cpio")).timeline(&timeline))
    }

    /// `runs` samples of each variant, interleaved, after one round that does not count.
    pub fn measure(&self, variants: &[Variant], runs: usize) -> Result<Samples, MeasureError> {
        let mut samples = Samples::default();
        for round in 0..=runs {
            for variant in variants {
                progress(&format!("round {round} of {runs}: {}", variant.name), false);
                let sample = self.sample(variant)?;
                if round > 0 {
                    samples.push(sample);
                }
            }
        }
        progress(&format!("{runs} rounds of {} variants", variants.len()), true);
        Ok(samples)
    }

    fn sample(&self, variant: &Variant) -> Result<Sample, MeasureError> {
        let writable = vec![self.scratch.path().to_path_buf()];
        let options = HostOptions { writable, kernel: self.host_kernel.clone(), ..HostOptions::default() };
        let mut session = self.door.start(&options)?;
        let ended = variant.guest.run(&mut session, &self.flatboot)?;
        match ended.timeline {
            Some(timeline) if ended.outcome.code == 0 && timeline.init_ns.is_some() => {
                Ok(Sample { variant: variant.name.to_owned(), timeline })
            }
            _ => Err(MeasureError::Failed {
                variant: variant.name,
                code: ended.outcome.code,
                tail: String::from_utf8_lossy(&ended.outcome.stderr).lines().next_back().unwrap_or_default().to_owned(),
            }),
        }
    }
}

/// One line that is written over on a terminal, a line each time elsewhere.
fn progress(what: &str, last: bool) {
    if io::stderr().is_terminal() {
        eprint!("\r==> {what:<60}{}", if last { "\n" } else { "" });
    } else {
        eprintln!("==> {what}");
    }
}

/// Measures the claim called `name`, or all of them; prints a table and the verdict; keeps the samples under `keep`.
/// True if every bound holds.
pub fn run(name: &str, runs: usize, keep: &Path, out: &mut impl Write) -> Result<bool, MeasureError> {
    if !(1..=1000).contains(&runs) {
        return Err(MeasureError::Runs(runs));
    }
    let chosen: Vec<_> = CLAIMS.iter().filter(|claim| name == "all" || claim.name == name).collect();
    if chosen.is_empty() {
        return Err(MeasureError::Unknown(name.to_owned()));
    }
    let bench = Bench::open()?;
    let mut held = true;
    for claim in chosen {
        eprintln!("==> {}: {}", claim.name, claim.statement);
        let samples = bench.measure(&(claim.variants)(&bench)?, runs)?;
        let verdict = (claim.judge)(&samples);
        store(&samples, claim.name, keep)?;
        held &= verdict.holds;
        let _ = writeln!(out, "\n{}\n{}\n{}", claim.statement, samples.table(claim.step), verdict);
    }
    Ok(held)
}

fn store(samples: &Samples, claim: &str, directory: &Path) -> Result<(), MeasureError> {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
    let path = directory.join(format!("{claim}-{seconds}.json"));
    let failed = |source: io::Error| MeasureError::Keep { path: path.display().to_string(), source };
    fs::create_dir_all(directory).map_err(failed)?;
    let json = serde_json::to_vec(samples).map_err(|error| failed(error.into()))?;
    fs::write(&path, json).map_err(failed)?;
    eprintln!("==> raw samples: {}", path.display());
    Ok(())
}
