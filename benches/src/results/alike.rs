// SPDX-License-Identifier: Apache-2.0
//! Which files are of one kind.

use std::collections::BTreeMap;

use super::format::{Facts, HostFacts};
use super::words::short;

impl Facts {
    /// In what `other` is of another kind, with what is here and there: samples of two kinds of host, of two kernels or of two
    /// builds of a VMM do not go into one file. Like machines differ a little in the memory that their kernels count. What one of
    /// the two does not know does not differ.
    pub(crate) fn unlike(&self, other: &Self) -> Option<(&'static str, String, String)> {
        let host = |facts: &Self| format!("{:?}", HostFacts { memory_bytes: 0, ..facts.host.clone() });
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
