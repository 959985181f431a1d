// SPDX-License-Identifier: Apache-2.0
//! Results that can be given away: names of machines, paths and addresses are replaced.
//!
//! Names can be in [`Boot::node`], and in what a failed boot and its VMM have said. What is left of the host is the kind of its
//! processors, its memory and its kernel.

mod text;

use std::collections::BTreeMap;

use crate::results::{Boot, End, Results};
use text::Text;

pub use text::Replaced;

/// Replaces all of them in `results`. Nodes are called node1, node2 and so on, in the order in which they come first; `host`, the
/// name of the machine that this runs on, is called host.
pub fn scrub(results: &mut Results, host: &str) -> Replaced {
    let mut replaced = Replaced::default();
    let mut nodes = BTreeMap::new();
    for name in results.boots.iter().filter_map(|boot| boot.node.clone()) {
        let next = format!("node{}", nodes.len() + 1);
        nodes.entry(name).or_insert(next);
    }
    for Boot { node, .. } in &mut results.boots {
        if let Some(name) = node {
            replaced.names += 1;
            name.clone_from(&nodes[name.as_str()]);
        }
    }
    let mut text = Text::new(nodes, host, &mut replaced);
    for Boot { end, .. } in &mut results.boots {
        if let End::Failed { why, console } = end {
            text.scrub(why);
            for line in console {
                text.scrub(line);
            }
        }
    }
    results.facts.versions.values_mut().for_each(|version| text.scrub(version));
    text.scrub_release(&mut results.facts.host.kernel);
    replaced
}
