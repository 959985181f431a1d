// SPDX-License-Identifier: Apache-2.0
//! Where and when a sweep ran, in words.

use std::collections::BTreeMap;

use super::format::{Facts, HostFacts, Results};
use crate::terminal::{bytes, count, when};

/// What ran without Slurm has no node.
const NO_NODE: &str = "outside the cluster";
/// Hexadecimal digits that tell builds apart.
const DIGITS: usize = 12;

impl Facts {
    /// When, and from which sources.
    pub(crate) fn started(&self) -> String {
        let revision = self.revision.as_ref().map(|revision| format!(", revision {}", short(revision)));
        when(self.began_unix_s) + &revision.unwrap_or_default()
    }
}

impl Results {
    /// The nodes of the cluster that the sweep was spread over: "a (11 boots), b (8 boots)"; none if it was not.
    pub(crate) fn nodes(&self) -> Option<String> {
        let mut boots = BTreeMap::new();
        self.boots.iter().for_each(|boot| *boots.entry(boot.node.as_deref()).or_insert(0) += 1);
        let words =
            |(node, boots): (Option<&str>, usize)| format!("{} ({})", node.unwrap_or(NO_NODE), count(boots, "boot"));
        boots.keys().any(Option::is_some).then(|| boots.into_iter().map(words).collect::<Vec<_>>().join(", "))
    }
}

impl HostFacts {
    /// One line.
    pub(crate) fn words(&self) -> String {
        let Self { kvm, cpu_model, kernel, thp, .. } = self;
        let (cpus, memory) = (self.cpus, bytes(self.memory_bytes));
        format!("{kvm} KVM, {cpus} × {cpu_model}, {memory}, Linux {kernel}, THP {thp}")
    }
}

/// The beginning of a long hexadecimal number; anything else as it is.
pub(crate) fn short(hash: &str) -> String {
    let digits = hash.bytes().take_while(u8::is_ascii_hexdigit).count();
    if digits > DIGITS { format!("{}{}", &hash[..DIGITS], &hash[digits..]) } else { hash.to_owned() }
}
