// SPDX-License-Identifier: Apache-2.0
//! The format of `results.json`.

use std::collections::BTreeMap;
use std::fmt;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// What [`Results::format`] says.
pub const FORMAT: &str = "flatboot-bench results";
/// The version that this program writes, and the newest that it reads. 1 knew nothing of [`Variant::without`],
/// 2 nothing of [`Sweep::host_pages`], 3 nothing of [`Sweep::work`], 4 nothing of [`Variant::vms`] and [`Boot::node`],
/// 5 nothing of [`Variant::start`].
pub const VERSION: u64 = 6;

/// One file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Results {
    /// [`FORMAT`].
    pub format: String,
    /// [`VERSION`].
    pub version: u64,
    /// What was asked for.
    pub sweep: Sweep,
    /// Where it ran.
    pub facts: Facts,
    /// Every boot, in the order in which they ran.
    pub boots: Vec<Boot>,
}

/// What was asked for. A sweep is resumed only with an equal one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sweep {
    /// What is compared; each round boots each of them once, in this order.
    pub variants: Vec<Variant>,
    /// Rounds that count. One more comes before them and does not.
    pub runs: u32,
    /// A boot without init for so long has failed, in milliseconds.
    pub timeout_ms: u64,
    /// The kernel command line that all variants share.
    pub cmdline: String,
    /// The pages that the host may use.
    #[serde(default)]
    pub host_pages: HostPages,
    /// The names of the workloads ([`crate::work`]) that each guest does, in this order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub work: Vec<String>,
}

/// The pages that the host may back a VMM's memory with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
pub enum HostPages {
    /// Those that host and VMM agree on: transparent huge pages where the VMM asks for them.
    #[default]
    #[serde(rename = "any")]
    Any,
    /// 4 KiB each: transparent huge pages are disabled for the VMM's process (`PR_SET_THP_DISABLE`), whatever it asks for.
    #[serde(rename = "4K")]
    #[value(name = "4K")]
    Small,
}

impl fmt::Display for HostPages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Any => "any",
            Self::Small => "4K",
        })
    }
}

/// How a VM comes to be what it is, if it is not booted so: what is timed is that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Start {
    /// It is restored from a snapshot: from the VMM's exec until the guest has answered a line on its console.
    Restored {
        /// Memory of the VM that was saved, if it was not as large.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        from_bytes: Option<u64>,
    },
    /// Its memory is changed while it runs: from the request until the guest has done it.
    Resized {
        /// Its memory before.
        from_bytes: u64,
    },
}

/// One way to boot.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Variant {
    /// `flatboot`, `qemu`, `firecracker`, `cloud-hypervisor`.
    pub vmm: String,
    /// A name of [`crate::modes::MODES`].
    pub mode: String,
    /// The init thread cap (`2`, `50%`), if one was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threads: Option<String>,
    /// The switch of [`crate::sweep::SWITCHES`] that is off, if one is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub without: Option<String>,
    /// Guest memory.
    pub memory_bytes: u64,
    /// vCPUs.
    pub cpus: u16,
    /// VMs that are started at the same time and run together, if it is a fleet of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vms: Option<u32>,
    /// How it comes to have its memory, if it is not booted with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<Start>,
}

/// Where a sweep ran, and with what.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// The host in which the VMMs ran.
    pub host: HostFacts,
    /// The guest.
    pub guest: GuestFacts,
    /// What each program says of its version, by its name.
    pub versions: BTreeMap<String, String>,
    /// SHA-256 of each VMM, by its name, and of the firmware. Files of before it was recorded have none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub programs: BTreeMap<String, String>,
    /// Revision of the source tree, with `-dirty` if it had changes; none outside a tree.
    pub revision: Option<String>,
    /// When the sweep began, in seconds since 1970.
    pub began_unix_s: u64,
}

/// The host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostFacts {
    /// `real` or `emulated`.
    pub kvm: String,
    /// Of /proc/cpuinfo; in an emulated host the emulated one.
    pub cpu_model: String,
    /// Of the machine that everything ran on, where that is another: below an emulated host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine_cpu_model: Option<String>,
    /// Processors.
    pub cpus: u32,
    /// Memory.
    pub memory_bytes: u64,
    /// Kernel release.
    pub kernel: String,
    /// The chosen word of `/sys/kernel/mm/transparent_hugepage/enabled`, or `none`.
    pub thp: String,
}

/// The guest.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestFacts {
    /// File name of the kernel image.
    pub kernel: String,
    /// The image's GNU build id, in hexadecimal, if it has one.
    pub build_id: Option<String>,
    /// SHA-256 of the kernel configuration beside the image, if there is one.
    pub config_sha256: Option<String>,
    /// The build id of the kernel without the series, if the sweep boots that too and it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stock_build_id: Option<String>,
    /// SHA-256 of the initramfs.
    pub initramfs_sha256: String,
    /// The userland that workloads are done in: its directory in the cache, whose name is a hash of its recipe.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub userland: Option<String>,
}

/// One boot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Boot {
    /// Index into [`Sweep::variants`].
    pub variant: usize,
    /// 0 is the warm-up round, which does not count.
    pub round: u32,
    /// The node of a cluster that it was on, if the sweep was spread over one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// What came of it.
    #[serde(flatten)]
    pub end: End,
}

/// What came of a boot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "end", rename_all = "lowercase")]
pub enum End {
    /// The guest reached init.
    Init(Sample),
    /// It did not.
    Failed {
        /// Why, in one line.
        why: String,
        /// The last lines of its console.
        console: Vec<String>,
    },
}

/// A boot that reached init.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// When init was reached: the kernel's mark, or init's first console line where there are no marks; or what [`Start`] says.
    pub init_ns: u64,
    /// Whether that was a mark.
    pub by_mark: bool,
    /// When the first word of init's first line came over the console, seen from outside the VMM.
    pub console_ns: u64,
    /// When the first vCPU began to run the guest, from VMMs that say so.
    pub first_instruction_ns: Option<u64>,
    /// Memory of the VMM's process that the host had backed when init's first line came (`Rss` of `smaps_rollup`).
    pub host_memory_bytes: u64,
    /// What VMM and guest reported, in time order.
    pub marks: Vec<Mark>,
    /// The rate of each workload, in a second.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub work: BTreeMap<String, u64>,
    /// Of a VM of a fleet: when its VMM was started, since just before the fleet's first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub began_ns: Option<u64>,
}

/// One moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// When.
    pub ns: u64,
    /// What was reached.
    pub name: String,
    /// Whether the guest said so, and not the VMM.
    pub guest: bool,
}

impl Sample {
    /// The first of the workloads `work` of which it tells no rate.
    pub(crate) fn lacks<'a>(&self, work: &'a [String]) -> Option<&'a String> {
        work.iter().find(|name| !self.work.contains_key(*name))
    }
}

impl Boot {
    /// The sample of a boot that counts: one that reached init, after the warm-up round.
    #[must_use]
    pub fn sample(&self) -> Option<&Sample> {
        match &self.end {
            End::Init(sample) if self.round > 0 => Some(sample),
            _ => None,
        }
    }
}

impl Variant {
    /// Boots of one turn: the VMs of a fleet, else one.
    #[must_use]
    pub fn boots(&self) -> usize {
        self.vms.map_or(1, |vms| vms as usize)
    }
}

impl Sweep {
    /// Number of boots of the sweep, warm-up included.
    #[must_use]
    pub fn boots_wanted(&self) -> u64 {
        (u64::from(self.runs) + 1) * self.boots_of_a_round()
    }

    /// Number of boots of a round.
    pub(crate) fn boots_of_a_round(&self) -> u64 {
        self.variants.iter().map(|variant| variant.boots() as u64).sum()
    }

    /// All turns of the sweep, warm-up included: round by round, each as (variant, round).
    pub fn turns(&self) -> impl Iterator<Item = (usize, u32)> + use<> {
        let variants = self.variants.len();
        (0..=self.runs).flat_map(move |round| (0..variants).map(move |variant| (variant, round)))
    }

    /// All boots of the sweep: those turns, a fleet's once for each of its VMs.
    pub fn boots(&self) -> impl Iterator<Item = (usize, u32)> + '_ {
        self.turns().flat_map(|turn| std::iter::repeat_n(turn, self.variants[turn.0].boots()))
    }
}

impl Results {
    /// Whether every boot of the sweep is there.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.boots.len() as u64 == self.sweep.boots_wanted()
    }

    /// Whole rounds in it, the warm-up round included.
    pub(crate) fn rounds(&self) -> u32 {
        u32::try_from(self.boots.len() as u64 / self.sweep.boots_of_a_round()).unwrap_or(u32::MAX)
    }

    /// Without boots of a round that is not whole: the boots of a round run right after one another, on one node.
    pub(crate) fn cut_to_whole_rounds(&mut self) {
        let rounds = self.rounds();
        self.boots.retain(|boot| boot.round < rounds);
    }
}
