// SPDX-License-Identifier: Apache-2.0
//! Where and when a sweep ran, in words.

use std::collections::BTreeMap;

use super::format::{Facts, HostFacts, Results};
use crate::terminal::{bytes, count, when};

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
        self.boots.iter().filter_map(|boot| boot.node.as_ref()).for_each(|node| *boots.entry(node).or_insert(0) += 1);
        let nodes: Vec<_> = boots.iter().map(|(node, boots)| format!("{node} ({})", count(*boots, "boot"))).collect();
        (!nodes.is_empty()).then(|| nodes.join(", "))
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
