// SPDX-License-Identifier: Apache-2.0
//! What the observer is asked to do.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::results::HostPages;

/// What init's first line on the console contains, whatever the VMM.
pub const INIT_LINE: &str = "FLATBOOT {";
/// The guest's check that ends when its kernel's memmap is filled, and what is then looked for on the console.
pub(super) const FILLED_CHECK: &str = "settle";
/// The last thing that init says.
pub(super) const LAST_CHECK: &str = "done";

/// One boot to be observed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// The VMM.
    pub program: String,
    /// Its arguments. The guest's console must be the VMM's standard output.
    pub args: Vec<String>,
    /// Variables of its environment besides those that are there.
    pub env: BTreeMap<String, String>,
    /// Where the marks come from.
    pub marks: MarksFrom,
    /// Files to make before the clock starts.
    pub files: Vec<StagedFile>,
    /// A boot without init after this time has failed.
    pub limit_ms: u64,
    /// How long it is watched.
    pub until: Until,
    /// The pages that the host may back the VMM's memory with.
    pub host_pages: HostPages,
    /// VMs that are started at the same time, if it is a fleet. Where each has files of its own, their names end in its number.
    pub vms: Option<u32>,
    /// The VM that is saved before, if the VMM restores one; the guest answers a line on its console.
    pub template: Option<Template>,
    /// What is timed instead of the boot, if the VM's memory is changed.
    pub resize: Option<Resize>,
}

/// A VM that is saved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Template {
    /// The VMM's arguments.
    pub args: Vec<String>,
    /// Where its server listens.
    pub socket: PathBuf,
    /// Where it is saved.
    pub directory: PathBuf,
}

/// Changes of a VM's memory, one after the other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resize {
    /// Where its server listens.
    pub socket: PathBuf,
    /// Bytes of memory. The last change is timed; what is before it brings the guest there, and lets it get ready.
    pub sizes: Vec<u64>,
}

/// How long a guest is watched.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Until {
    /// To init's first line.
    #[default]
    Init,
    /// Until its init says that the memmap is filled, for [`Order::limit_ms`] after its first line at the most.
    Filled,
    /// Until its init has done all that it was asked for, just as long; the host's end of its work is there.
    #[value(skip)]
    Worked,
}

/// Where the marks come from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MarksFrom {
    /// The VMM writes flatboot's timeline to this file when it is sent SIGTERM.
    Timeline(PathBuf),
    /// The VMM writes every byte of the mark port to this FIFO, which the observer makes.
    Port(PathBuf),
    /// Nowhere.
    Nowhere,
}

/// A file to make before the clock starts, in memory where the host is emulated: every VMM finds its files as fast to read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StagedFile {
    /// The file to make.
    pub path: PathBuf,
    /// What goes into it.
    pub content: Content,
}

/// What goes into a staged file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Content {
    /// A copy of this file.
    Copy(PathBuf),
    /// This text.
    Text(String),
}
