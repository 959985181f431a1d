// SPDX-License-Identifier: Apache-2.0
//! The guest's nodes: which vCPUs they have, and how far they are from each other.

use std::collections::{BTreeMap, BTreeSet};

/// How far a node is from itself, and no other may be (ACPI 6.5, section 5.2.17).
pub const LOCAL: u8 = 10;
/// How far nodes are from each other of which nothing is said, as Linux has it.
pub const REMOTE: u8 = 20;

/// A node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Its proximity domain, which is how ACPI's tables name it.
    pub domain: u32,
    /// Its vCPUs.
    pub cpus: BTreeSet<u16>,
    /// How far each node is from it, in their order.
    pub distances: Vec<u8>,
}

/// All nodes, at least one, in the order in which the guest's kernel numbers them. Linux does so as it comes across them: first by
/// processors, as the SRAT lists these, then by memory. The hand-off has its numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nodes(Vec<Node>);

impl Nodes {
    /// One node with so many vCPUs.
    #[must_use]
    pub fn one(vcpus: u16) -> Self {
        Self(vec![Node { domain: 0, cpus: (0..vcpus).collect(), distances: vec![LOCAL] }])
    }

    /// The same for as long as a test runs.
    #[cfg(test)]
    pub(crate) fn leaked(vcpus: u16) -> &'static Self {
        Box::leak(Box::new(Self::one(vcpus)))
    }

    /// Puts `nodes` into that order, if the vCPUs of each come one after the other: those with vCPUs first. Distances are so far in
    /// the order that they come in.
    #[must_use]
    pub fn in_order(nodes: &[Node]) -> Self {
        let mut order: Vec<usize> = (0..nodes.len()).collect();
        order.sort_by_key(|&index| nodes.get(index).map(|node| (node.cpus.is_empty(), node.domain)));
        let sorted = |distances: &[u8]| order.iter().filter_map(|&to| distances.get(to).copied()).collect();
        let ordered = order.iter().filter_map(|&index| nodes.get(index));
        Self(ordered.map(|node| Node { distances: sorted(&node.distances), ..node.clone() }).collect())
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// They, with their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Node)> {
        (0..).zip(&self.0)
    }

    /// The proximity domain of node `number`.
    #[must_use]
    pub fn domain(&self, number: u32) -> u32 {
        self.iter().find(|(other, _)| *other == number).map_or(0, |(_, node)| node.domain)
    }

    /// Whether vCPUs that `group` gives the same number are all on one node.
    #[must_use]
    pub fn keep_together(&self, group: impl Fn(u16) -> u32) -> bool {
        let mut homes = BTreeMap::new();
        let mut all = self.iter().flat_map(|(number, node)| node.cpus.iter().map(move |cpu| (*cpu, number)));
        all.all(|(cpu, number)| *homes.entry(group(cpu)).or_insert(number) == number)
    }

    /// The number of the node that has vCPU `index`; the first, if none has.
    #[must_use]
    pub fn of_cpu(&self, index: u16) -> u32 {
        self.iter().find(|(_, node)| node.cpus.contains(&index)).map_or(0, |(number, _)| number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_with_processors_come_first() {
        let node = |domain, cpus: &[u16], distances: &[u8]| Node {
            domain,
            cpus: cpus.iter().copied().collect(),
            distances: distances.to_vec(),
        };
        let nodes = Nodes::in_order(&[
            node(3, &[], &[10, 11, 12]),
            node(7, &[0], &[21, 10, 22]),
            node(5, &[1, 2], &[31, 32, 10]),
        ]);
        let expected = [node(5, &[1, 2], &[10, 32, 31]), node(7, &[0], &[22, 10, 21]), node(3, &[], &[12, 11, 10])];
        assert!(nodes.iter().map(|(_, node)| node).eq(&expected), "{nodes:?}");
        assert_eq!([0, 1, 2, 9].map(|cpu| nodes.of_cpu(cpu)), [1, 0, 0, 0]);
        assert_eq!([0, 1, 2].map(|number| nodes.domain(number)), [5, 7, 3]);
        assert!(nodes.keep_together(|cpu| u32::from(cpu > 0)) && !nodes.keep_together(|cpu| u32::from(cpu > 1)));
    }

    #[test]
    fn one_node_has_all() {
        let nodes = Nodes::one(288);
        assert_eq!((nodes.count(), nodes.domain(0), nodes.of_cpu(287)), (1, 0, 0));
        assert!(nodes.iter().all(|(_, node)| node.cpus.len() == 288 && node.distances == [LOCAL]));
    }
}
