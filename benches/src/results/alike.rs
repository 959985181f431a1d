// SPDX-License-Identifier: Apache-2.0
//! Which files are of one kind.

use std::collections::BTreeMap;

use super::format::{Facts, HostFacts};
use super::words::short;

impl HostFacts {
    /// What makes a host another one: times of two of them are not compared. Not the memory, which the kernels of like machines, and
    /// of one machine after its next start, count a little differently; nor a setting, which may be the very thing that is compared.
    pub(crate) fn identity(&self) -> [(&'static str, Option<String>); 5] {
        [
            ("KVM", Some(self.kvm.clone())),
            ("CPU", Some(self.cpu_model.clone())),
            ("CPU of the machine below", self.machine_cpu_model.clone()),
            ("CPUs", Some(self.cpus.to_string())),
            ("host kernel", Some(self.kernel.clone())),
        ]
    }
}

impl Facts {
    /// In what `other` is of another kind, with what is here and there: samples of two kinds of host, of two kernels or of two
    /// builds of a VMM do not go into one file. What one of the two does not know does not differ.
    pub(crate) fn unlike(&self, other: &Self) -> Option<(&'static str, String, String)> {
        let host = |facts: &Self| {
            let identity = facts.host.identity().into_iter().filter_map(|(name, is)| Some(format!("{name} {}", is?)));
            identity.chain([format!("THP {}", facts.host.thp)]).collect::<Vec<_>>().join(", ")
        };
        let revision = |facts: &Self| facts.revision.clone().unwrap_or_default();
        let facts = [
            ("the host", host(self), host(other)),
            ("the guest", format!("{:?}", self.guest), format!("{:?}", other.guest)),
            ("the versions", format!("{:?}", self.versions), format!("{:?}", other.versions)),
            ("the programs", hashes(&self.programs), hashes(&other.programs)),
            ("the revisions", revision(self), revision(other)),
        ];
        facts.into_iter().find(|(_, here, there)| here != there && !here.is_empty() && !there.is_empty())
    }
}

fn hashes(programs: &BTreeMap<String, String>) -> String {
    programs.iter().map(|(name, hash)| format!("{name} {}", short(hash))).collect::<Vec<_>>().join(", ")
}
