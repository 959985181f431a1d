// SPDX-License-Identifier: Apache-2.0
//! The events of the control API, as docs/api.md lists them.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

const API: &str = include_str!("../../../docs/api.md");

/// What the owner of a VM says has happened to it, and what the text of events itself says.
fn said() -> BTreeSet<String> {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let owner = fs::read_dir(sources.join("vmm")).expect("a directory").map(|entry| entry.expect("an entry").path());
    let mut said = BTreeSet::new();
    for path in owner.chain([sources.join("events.rs")]) {
        let source = fs::read_to_string(path).expect("a source");
        let source = source.split("#[cfg(test)]").next().expect("what is not for tests");
        for call in [".vm(\"", ".failed(\"", ".say(\"vm\", \""] {
            said.extend(source.split(call).skip(1).filter_map(|rest| rest.split('"').next()).map(str::to_owned));
        }
    }
    said
}

#[test]
fn every_event_of_a_vm_is_listed() {
    let (_, list) = API.split_once("and `vm` for ").expect("the list");
    let list = list.split_once(". ").expect("its end").0;
    let listed = list.split('`').skip(1).step_by(2).map(str::to_owned).collect();
    assert_eq!(said(), listed, "docs/api.md lists the right-hand side");
}
