// SPDX-License-Identifier: Apache-2.0
//! How many vCPUs, in which groups, and where they run.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use super::field::FieldError;
use super::lists;
use super::options::{OptionError, Options, parse_number};
use crate::cpu::topology::CpuTopology;
use crate::field::Field;

const OPTION: Field = Field::section("cpus");
const MUST_BE_TOPOLOGY: &str = "must be THREADS_PER_CORE:CORES_PER_DIE:DIES_PER_PACKAGE:PACKAGES, none of them 0";
/// What the set of CPUs that the C library and rustix have ends with.
const LAST_HOST_CPU: u16 = 1023;
/// Each of four counts at most doubles where it becomes bits, so that APIC ids have 14 bits: destinations of interrupts have 15, and
/// all of those mean every processor.
const _: () = assert!(CpuCount::MAX <= 1 << 10);

/// How many vCPUs a VM has: 1 to 1024, which is what most hosts' KVM is built for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u16")]
pub struct CpuCount(u16);

/// A number that is none of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be a number of vCPUs, 1 to {max}", max = CpuCount::MAX)]
pub struct NoCpuCount;

impl CpuCount {
    /// Most vCPUs.
    pub const MAX: u16 = 1024;

    /// The number, at least 1.
    #[must_use]
    pub const fn get(self) -> u16 {
        self.0
    }
}

/// The vCPUs, and where their threads run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "CpusFields", into = "CpusFields")]
pub struct CpusConfig {
    /// How many.
    pub boot: CpuCount,
    /// In which groups.
    pub topology: CpuTopology,
    /// The host's CPUs that a vCPU's thread runs on; one that is not here runs on all.
    pub affinity: BTreeMap<u16, BTreeSet<u16>>,
    /// Whether the guest may run VMs of its own, where the host's KVM can.
    pub nested: bool,
}

/// The same as it is written in JSON.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct CpusFields {
    boot_vcpus: CpuCount,
    /// How many there could be. There are never more than at the beginning, but who asks for none is given what there is.
    max_vcpus: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    topology: Option<TopologyFields>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    affinity: Vec<AffinityFields>,
    nested: bool,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct TopologyFields {
    threads_per_core: u16,
    cores_per_die: u16,
    dies_per_package: u16,
    packages: u16,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct AffinityFields {
    vcpu: u16,
    host_cpus: BTreeSet<u16>,
}

impl Default for TopologyFields {
    fn default() -> Self {
        Self { threads_per_core: 1, cores_per_die: 1, dies_per_package: 1, packages: 1 }
    }
}

impl From<CpuTopology> for TopologyFields {
    fn from(topology: CpuTopology) -> Self {
        let [threads_per_core, cores_per_die, dies_per_package, packages] = topology.counts();
        Self { threads_per_core, cores_per_die, dies_per_package, packages }
    }
}

impl fmt::Display for TopologyFields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { threads_per_core, cores_per_die, dies_per_package, packages } = self;
        write!(f, "{threads_per_core}:{cores_per_die}:{dies_per_package}:{packages}")
    }
}

impl Default for CpusFields {
    fn default() -> Self {
        let CpusConfig { boot, nested, .. } = CpusConfig::default();
        Self { boot_vcpus: boot, max_vcpus: None, topology: None, affinity: Vec::new(), nested }
    }
}

impl From<CpusConfig> for CpusFields {
    fn from(CpusConfig { boot, topology, affinity, nested }: CpusConfig) -> Self {
        let topology = (!topology.is_flat()).then(|| topology.into());
        let affinity = affinity.into_iter().map(|(vcpu, host_cpus)| AffinityFields { vcpu, host_cpus }).collect();
        Self { boot_vcpus: boot, max_vcpus: Some(boot.get().into()), topology, affinity, nested }
    }
}

impl TryFrom<CpusFields> for CpusConfig {
    type Error = FieldError;

    fn try_from(fields: CpusFields) -> Result<Self, FieldError> {
        let CpusFields { boot_vcpus: boot, max_vcpus, topology, affinity, nested } = fields;
        if let Some(max) = max_vcpus.filter(|max| *max < boot.get().into()) {
            return Err(FieldError::new("max_vcpus", &max, &format!("must be at least boot_vcpus, {boot}")));
        }
        let topology = grouped(boot, max_vcpus, topology)?;
        Ok(Self { boot, topology, affinity: pinned(boot, affinity)?, nested })
    }
}

impl Default for CpusConfig {
    fn default() -> Self {
        let topology = CpuTopology::flat(1);
        Self { boot: CpuCount(1), topology, affinity: BTreeMap::new(), nested: true }
    }
}

impl CpusConfig {
    /// Takes the text of `--cpus`.
    pub fn parse(text: &str) -> Result<Self, OptionError> {
        let options = Options::parse(OPTION, text, &["boot", "topology", "affinity", "nested"])?;
        let boot = options.value("boot", |value| parse_number(value).ok_or(NoCpuCount).and_then(CpuCount::try_from))?;
        let fields = CpusFields {
            boot_vcpus: boot.ok_or(OptionError::Missing { option: OPTION, keys: "boot=N" })?,
            max_vcpus: None,
            topology: options.value("topology", |value| parse_topology(value).ok_or(MUST_BE_TOPOLOGY))?,
            affinity: options
                .value("affinity", |value| parse_affinity(value).ok_or_else(must_be_affinity))?
                .unwrap_or_default(),
            nested: options.switch("nested", true)?,
        };
        Self::try_from(fields).map_err(|error| options.wrong_field(error))
    }

    /// Where the thread of each vCPU runs, in order; on all of the host's CPUs without a set.
    pub fn affinities(&self) -> impl Iterator<Item = Option<BTreeSet<u16>>> + '_ {
        (0..self.boot.get()).map(|vcpu| self.affinity.get(&vcpu).cloned())
    }
}

/// The groups of all vCPUs; of a VM that could have more, they may be said for all that it could have, if they are none.
fn grouped(boot: CpuCount, max_vcpus: Option<u32>, fields: Option<TopologyFields>) -> Result<CpuTopology, FieldError> {
    let flat = CpuTopology::flat(boot.get());
    let Some(fields) = fields else { return Ok(flat) };
    let wrong = |must: &str| FieldError::new("topology", &fields, must);
    let TopologyFields { threads_per_core, cores_per_die, dies_per_package, packages } = fields;
    let topology = CpuTopology::new(threads_per_core, cores_per_die, dies_per_package, packages);
    let topology = topology.ok_or_else(|| wrong(MUST_BE_TOPOLOGY))?;
    let could_be = max_vcpus.is_some_and(|max| topology.is_flat() && topology.total() == u64::from(max));
    if could_be {
        return Ok(flat);
    }
    if topology.total() != u64::from(boot.get()) {
        return Err(wrong(&format!("must be numbers whose product is that of the vCPUs, {boot}")));
    }
    Ok(topology)
}

/// Each vCPU is there, and is said once; each has somewhere to run.
fn pinned(boot: CpuCount, fields: Vec<AffinityFields>) -> Result<BTreeMap<u16, BTreeSet<u16>>, FieldError> {
    let mut affinity = BTreeMap::new();
    for AffinityFields { vcpu, host_cpus } in fields {
        let wrong =
            |must: &str| FieldError::new("affinity", &format!("[{vcpu}@[{}]]", lists::written(&host_cpus)), must);
        if vcpu >= boot.get() {
            return Err(wrong(&format!("must be of a vCPU below {boot}")));
        }
        if host_cpus.is_empty() || host_cpus.last() > Some(&LAST_HOST_CPU) {
            return Err(wrong(&must_be_affinity()));
        }
        if affinity.contains_key(&vcpu) {
            return Err(wrong("must name each vCPU once"));
        }
        affinity.insert(vcpu, host_cpus);
    }
    Ok(affinity)
}

fn parse_topology(value: &str) -> Option<TopologyFields> {
    let numbers: Option<Vec<u16>> = value.split(':').map(|part| parse_number(part)?.try_into().ok()).collect();
    match numbers?[..] {
        [threads_per_core, cores_per_die, dies_per_package, packages] => {
            Some(TopologyFields { threads_per_core, cores_per_die, dies_per_package, packages })
        }
        _ => None,
    }
}

fn parse_affinity(value: &str) -> Option<Vec<AffinityFields>> {
    let one = |part: &str| {
        let (vcpu, host_cpus) = part.split_once('@')?;
        let vcpu = parse_number(vcpu)?.try_into().ok()?;
        Some(AffinityFields { vcpu, host_cpus: lists::numbers(host_cpus, LAST_HOST_CPU)? })
    };
    lists::parts(value)?.into_iter().map(one).collect()
}

fn must_be_affinity() -> String {
    format!("must be [VCPU@[HOST_CPUS],...], host CPUs as in 0-3,7, none above {LAST_HOST_CPU}")
}

impl TryFrom<u64> for CpuCount {
    type Error = NoCpuCount;

    fn try_from(number: u64) -> Result<Self, NoCpuCount> {
        let number = u16::try_from(number).ok().filter(|number| (1..=Self::MAX).contains(number));
        number.map(Self).ok_or(NoCpuCount)
    }
}

impl From<CpuCount> for u16 {
    fn from(count: CpuCount) -> Self {
        count.0
    }
}

impl fmt::Display for CpuCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::in_options;

    fn said(text: &str) -> String {
        in_options(|| CpusConfig::parse(text).unwrap_err().to_string())
    }

    #[test]
    fn one_to_1024() {
        for (text, count) in [("boot=1", 1), ("boot=1024", 1024)] {
            let cpus = CpusConfig::parse(text).unwrap();
            assert_eq!((cpus.boot.get(), cpus.nested), (count, true));
        }
        for value in ["0", "1025", "-1", "4.0", "four", "18446744073709551617"] {
            assert_eq!(
                said(&format!("boot={value}")),
                format!("--cpus boot={value}: must be a number of vCPUs, 1 to 1024")
            );
        }
        assert_eq!(said("max=4"), "--cpus max=4: there is no key max: must be one of boot, topology, affinity, nested");
        assert_eq!(said("4"), "--cpus 4: must be written KEY=VALUE; the keys are boot, topology, affinity, nested");
    }

    #[test]
    fn nesting_can_be_switched_off() {
        assert!(!CpusConfig::parse("boot=2,nested=off").unwrap().nested);
        for (text, expected) in [
            ("boot=2,nested=no", "--cpus nested=no: must be on or off"),
            ("nested=off", "--cpus boot=N: is missing: must be given"),
        ] {
            assert_eq!(said(text), expected);
        }
    }

    #[test]
    fn groups_and_pins_are_taken() {
        let cpus = CpusConfig::parse("boot=8,topology=2:2:1:2,affinity=[0@[0-3,7],1@[2],7@5]").unwrap();
        assert_eq!(cpus.topology, CpuTopology::new(2, 2, 1, 2).unwrap());
        let affinities: Vec<_> = cpus.affinities().collect();
        assert_eq!(affinities.len(), 8);
        assert_eq!(affinities[0], Some([0, 1, 2, 3, 7].into()));
        assert_eq!((&affinities[1], &affinities[2], &affinities[7]), (&Some([2].into()), &None, &Some([5].into())));
        assert_eq!(CpusConfig::parse("boot=3").unwrap().topology, CpuTopology::flat(3));
        assert_eq!(CpusConfig::parse("boot=3,topology=1:3:1:1"), CpusConfig::parse("boot=3"));
    }

    #[test]
    fn wrong_groups_and_pins_are_named() {
        let shape = "must be THREADS_PER_CORE:CORES_PER_DIE:DIES_PER_PACKAGE:PACKAGES, none of them 0";
        for value in ["2", "2:1:1", "2:1:1:0", "2:1:1:1:1", "a:1:1:1", "2:1:1:", "65536:1:1:1"] {
            let error = said(&format!("boot=2,topology={value}"));
            assert_eq!(error, format!("--cpus topology={value}: {shape}"));
        }
        let pins = "must be [VCPU@[HOST_CPUS],...], host CPUs as in 0-3,7, none above 1023";
        for value in ["0", "[0]", "[0@]", "[0@[]]", "[0@[3-1]]", "[0@[1024]]", "[a@[1]]", "[0@[1],]", "[0@1]2"] {
            let error = said(&format!("boot=2,affinity={value}"));
            assert_eq!(error, format!("--cpus affinity={value}: {pins}"));
        }
        for (text, expected) in [
            (
                "boot=2,topology=2:2:1:1",
                "--cpus topology=2:2:1:1: must be numbers whose product is that of the vCPUs, 2",
            ),
            ("boot=2,affinity=[2@[0]]", "--cpus affinity=[2@[0]]: must be of a vCPU below 2"),
            ("boot=2,affinity=[1@[0],1@[1]]", "--cpus affinity=[1@[0],1@[1]]: must name each vCPU once"),
        ] {
            assert_eq!(said(text), expected);
        }
    }
}
