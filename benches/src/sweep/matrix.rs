// SPDX-License-Identifier: Apache-2.0
//! From lists of sizes, vCPUs, modes and VMMs to the variants of a sweep.

use std::fmt;
use std::str::FromStr;

use flatboot_handoff::SECTION_SIZE;

use super::switches::Switch;
use super::vmm::Kind;
use crate::modes::{MODES, Mode};
use crate::once::each_once;
use crate::results::{Start, Variant};
use crate::size;
use crate::terminal::size;

/// Smallest guest, in bytes: what flatboot accepts.
const MEMORY_MIN: u64 = 64 << 20;

/// Guest memory: a whole number of MiB, at least 64.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Memory(u64);

/// vCPUs and memory, as VMs are sold: `2x8G`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Shape {
    /// vCPUs.
    pub cpus: Cpus,
    /// Memory.
    pub memory: Memory,
    /// How it comes to be so, if it is not booted so.
    pub start: Option<Start>,
}

/// A value of `--start`: `boot`, `restore`, or `restore=SIZE`, from a snapshot of a smaller VM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Starts(Option<Start>);

impl Starts {
    /// Whether the VM is booted, as without the option.
    #[must_use]
    pub fn is_boot(&self) -> bool {
        self.0.is_none()
    }
}

/// A value of `--resize`: memory before and after.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resize {
    from: Memory,
    to: Memory,
}

/// Most vCPUs: what flatboot accepts.
const MOST_CPUS: u16 = 1024;

/// vCPUs: 1 to [`MOST_CPUS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cpus(u16);

/// Most VMs of a fleet: each takes several threads of the observer.
const MOST_VMS: u32 = 10_000;

/// VMs of a fleet: 1 to [`MOST_VMS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Vms(u32);

/// A cap on the threads that fill the memmap: `2`, or `50%` of the vCPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Threads(String);

impl Memory {
    /// In bytes.
    #[must_use]
    pub fn bytes(self) -> u64 {
        self.0
    }
}

impl FromStr for Memory {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?}: must be a whole number of MiB from 64M on, such as 512M, 4G or 1T");
        size::of(text, MEMORY_MIN).map(Self).ok_or_else(wrong)
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&size(self.0))
    }
}

/// "flatboot parallel, 4 GiB, 2 vCPUs"
#[must_use]
pub fn describe(variant: &Variant) -> String {
    let plural = if variant.cpus == 1 { "" } else { "s" };
    format!("{}, {}, {} vCPU{plural}", variant.kind(), size(variant.memory_bytes), variant.cpus)
}

impl FromStr for Cpus {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse() {
            Ok(cpus @ 1..=MOST_CPUS) => Ok(Self(cpus)),
            _ => Err(format!("{text:?}: must be a number of vCPUs from 1 to {MOST_CPUS}")),
        }
    }
}

impl FromStr for Vms {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse() {
            Ok(vms @ 1..=MOST_VMS) => Ok(Self(vms)),
            _ => Err(format!("{text:?}: must be a number of VMs from 1 to {MOST_VMS}")),
        }
    }
}

impl FromStr for Shape {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (cpus, memory) =
            text.split_once('x').ok_or_else(|| format!("{text:?}: must be vCPUs and memory, such as 2x8G"))?;
        Ok(Self { cpus: cpus.parse()?, memory: memory.parse()?, start: None })
    }
}

impl FromStr for Starts {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let from_bytes = match text.split_once('=') {
            Some(("restore", size)) => Some(size.parse::<Memory>()?.bytes()),
            None if text == "restore" => None,
            None if text == "boot" => return Ok(Self(None)),
            _ => return Err(format!("{text:?}: must be boot, restore, or restore=SIZE")),
        };
        Ok(Self(Some(Start::Restored { from_bytes })))
    }
}

impl FromStr for Resize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?}: must be two sizes that differ by a multiple of 128M, such as 1G:256G");
        let (from, to) = text.split_once(':').ok_or_else(wrong)?;
        let resize = Self { from: from.parse()?, to: to.parse()? };
        let difference = resize.from.bytes().abs_diff(resize.to.bytes());
        if difference == 0 || !difference.is_multiple_of(SECTION_SIZE) { Err(wrong()) } else { Ok(resize) }
    }
}

impl FromStr for Threads {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (number, most) = text.strip_suffix('%').map_or((text, MOST_CPUS), |number| (number, 100));
        match number.parse::<u16>() {
            Ok(value) if (1..=most).contains(&value) && !number.starts_with('+') => Ok(Self(text.to_owned())),
            _ => {
                Err(format!("{text:?}: must be a number of threads from 1 to {MOST_CPUS}, or 1% to 100% of the vCPUs"))
            }
        }
    }
}

impl FromStr for &'static Mode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let names = || MODES.iter().map(|mode| mode.name).collect::<Vec<_>>().join(", ");
        Mode::named(text).ok_or_else(|| format!("{text:?}: must be one of {}", names()))
    }
}

/// What is to be combined.
#[derive(Debug, Clone)]
pub struct Matrix {
    /// Sizes of VMs: memory × vCPUs, or shapes.
    pub shapes: Vec<Shape>,
    /// VMMs.
    pub vmms: Vec<Kind>,
    /// memmap modes.
    pub modes: Vec<&'static Mode>,
    /// Thread caps, for modes that have threads; none is no cap.
    pub threads: Vec<Threads>,
    /// Sizes of fleets; none is single VMs.
    pub vms: Vec<Vms>,
    /// Switches, each of which is turned off alone in variants of its own, where it takes something away.
    pub without: Vec<&'static Switch>,
}

impl Matrix {
    /// Every memory size with every number of vCPUs.
    #[must_use]
    pub fn shapes(memory: &[Memory], cpus: &[Cpus]) -> Vec<Shape> {
        let shape = |memory, cpus| Shape { cpus, memory, start: None };
        memory.iter().flat_map(|memory| cpus.iter().map(|cpus| shape(*memory, *cpus))).collect()
    }

    /// Each of `shapes` in each of these ways; and the VMs whose memory is changed, with every number of vCPUs.
    #[must_use]
    pub fn started(shapes: &[Shape], starts: &[Starts], resizes: &[Resize], cpus: &[Cpus]) -> Vec<Shape> {
        let mut all = Vec::new();
        for shape in shapes {
            all.extend(starts.iter().map(|Starts(start)| Shape { start: *start, ..*shape }));
        }
        for Resize { from, to } in resizes {
            let start = Some(Start::Resized { from_bytes: from.bytes() });
            all.extend(cpus.iter().map(|cpus| Shape { cpus: *cpus, memory: *to, start }));
        }
        all
    }

    /// Every combination, once.
    #[must_use]
    pub fn variants(&self) -> Vec<Variant> {
        let mut variants = Vec::new();
        for shape in &self.shapes {
            for vmm in &self.vmms {
                for mode in &self.modes {
                    for ((threads, without), vms) in self.ways(*vmm, mode).into_iter().flat_map(|way| self.fleets(way))
                    {
                        variants.push(Variant {
                            vmm: vmm.name().to_owned(),
                            mode: mode.name.to_owned(),
                            threads,
                            without: without.map(|switch| switch.name.to_owned()),
                            memory_bytes: shape.memory.0,
                            cpus: shape.cpus.0,
                            vms,
                            start: shape.start,
                        });
                    }
                }
            }
        }
        each_once(variants)
    }

    /// The switches of which nothing asked for has anything to turn off.
    #[must_use]
    pub fn idle_switches(&self) -> Vec<&'static Switch> {
        let is_idle = |switch: &&Switch| {
            !self.vmms.iter().any(|vmm| self.modes.iter().any(|mode| takes_away(switch, *vmm, mode)))
        };
        self.without.iter().copied().filter(is_idle).collect()
    }

    /// Thread caps, the full set first for each, then each switch off alone.
    fn ways(&self, vmm: Kind, mode: &Mode) -> Vec<(Option<String>, Option<&'static Switch>)> {
        let switches = self.without.iter().copied().filter(|switch| takes_away(switch, vmm, mode));
        let without: Vec<_> = [None].into_iter().chain(switches.map(Some)).collect();
        let caps = self.caps(mode).into_iter();
        caps.flat_map(|cap| without.iter().map(move |switch| (cap.clone(), *switch))).collect()
    }

    /// The way, with each size of a fleet.
    fn fleets<Way: Clone>(&self, way: Way) -> Vec<(Way, Option<u32>)> {
        let sizes = self.vms.iter().map(|vms| Some(vms.0));
        let single = self.vms.is_empty().then_some(None);
        sizes.chain(single).map(|vms| (way.clone(), vms)).collect()
    }

    fn caps(&self, mode: &Mode) -> Vec<Option<String>> {
        if self.threads.is_empty() || !mode.threads {
            return vec![None];
        }
        self.threads.iter().map(|threads| Some(threads.0.clone())).collect()
    }
}

fn takes_away(switch: &Switch, vmm: Kind, mode: &Mode) -> bool {
    switch.applies_to(mode) && (vmm.is_flatboot() || !switch.is_of_flatboot())
}

#[cfg(test)]
mod tests {
    use super::super::switches::SWITCHES;
    use super::*;

    #[test]
    fn sizes_have_a_unit_and_are_not_too_small() {
        for (text, bytes) in [("64M", 64 << 20), ("4G", 4 << 30), ("1T", 1 << 40), ("512MiB", 512 << 20)] {
            assert_eq!(text.parse::<Memory>().unwrap().bytes(), bytes, "{text}");
        }
        for wrong in ["", "4", "4g", "4GB", "1.5G", "-1G", "+1G", "63M", "0G", "99999999T", "G", "4 G", "４G"] {
            assert!(wrong.parse::<Memory>().is_err(), "{wrong}");
        }
        assert_eq!((size(1 << 40), size(1536 << 20), size(0)), ("1 TiB".into(), "1536 MiB".into(), "0 bytes".into()));
    }

    #[test]
    fn shapes_threads_and_modes() {
        let shape: Shape = "2x8G".parse().unwrap();
        assert_eq!((shape.cpus, shape.memory), (Cpus(2), Memory(8 << 30)));
        for right in ["boot", "restore", "restore=512M"] {
            assert!(right.parse::<Starts>().is_ok(), "{right}");
        }
        for wrong in ["", "Boot", "restore=", "restore=1", "boot=1G"] {
            assert!(wrong.parse::<Starts>().is_err(), "{wrong}");
        }
        assert!("1G:256G".parse::<Resize>().is_ok() && "256G:1G".parse::<Resize>().is_ok());
        for wrong in ["", "1G", "1G:1G", "1G:1100M", "1G-2G", ":1G"] {
            assert!(wrong.parse::<Resize>().is_err(), "{wrong}");
        }
        for wrong in ["2", "x8G", "0x8G", "1025x8G", "2x8", "8Gx2"] {
            assert!(wrong.parse::<Shape>().is_err(), "{wrong}");
        }
        for right in ["1", "1024", "1%", "100%"] {
            assert!(right.parse::<Threads>().is_ok(), "{right}");
        }
        for wrong in ["0", "1025", "0%", "101%", "%", "", "+1", "1 %"] {
            assert!(wrong.parse::<Threads>().is_err(), "{wrong}");
        }
        assert!("serial".parse::<&'static Mode>().is_ok() && "Serial".parse::<&'static Mode>().is_err());
    }

    #[test]
    fn every_combination_occurs_once() {
        let sizes: Vec<Memory> = ["1G", "4G", "1024M"].map(|text| text.parse().unwrap()).to_vec();
        let matrix = Matrix {
            shapes: Matrix::shapes(&sizes, &[Cpus(1), Cpus(2)]),
            vmms: vec![Kind::Flatboot, Kind::Qemu],
            modes: Mode::named("serial").into_iter().chain(Mode::named("parallel")).collect(),
            threads: vec![Threads("1".into()), Threads("50%".into())],
            vms: Vec::new(),
            without: SWITCHES.iter().collect(),
        };
        let variants = matrix.variants();
        // Two sizes (1 GiB twice), two numbers of vCPUs, two VMMs, and serial, parallel on one thread and on half of them.
        assert_eq!(variants.len(), 2 * 2 * 2 * 3);
        assert!(variants.iter().all(|variant| (variant.mode == "serial") == variant.threads.is_none()));
        assert_eq!(matrix.idle_switches().len(), SWITCHES.len(), "there is nothing in those modes to turn off");
    }

    #[test]
    fn switches_are_off_alone_and_only_where_they_turn_something_off() {
        let one: Memory = "1G".parse().unwrap();
        let matrix = |vmms: Vec<Kind>| Matrix {
            shapes: Matrix::shapes(&[one], &[Cpus(2)]),
            vmms,
            modes: MODES.iter().collect(),
            threads: Vec::new(),
            vms: Vec::new(),
            without: SWITCHES.iter().collect(),
        };
        let of = |vmm: &str, variants: &[Variant]| -> Vec<Option<String>> {
            let has = |variant: &&Variant| variant.vmm == vmm && variant.mode == "async";
            variants.iter().filter(has).map(|variant| variant.without.clone()).collect()
        };
        let both = matrix(vec![Kind::Flatboot, Kind::Qemu]);
        let variants = both.variants();
        let all: Vec<_> =
            [None].into_iter().chain(SWITCHES.iter().map(|switch| Some(switch.name.to_owned()))).collect();
        assert_eq!(of("flatboot", &variants), all);
        assert_eq!(of("qemu", &variants), [None, Some("low-zones".to_owned()), Some("async".to_owned())]);
        assert!(variants.iter().all(|variant| variant.mode == "async" || variant.without.is_none()));
        assert!(both.idle_switches().is_empty());
        let idle: Vec<_> = matrix(vec![Kind::Qemu]).idle_switches().iter().map(|switch| switch.name).collect();
        assert_eq!(idle, ["arenas", "early-threads", "known-zero", "memory-plan"]);
    }
}
