// SPDX-License-Identifier: Apache-2.0
//! No module needs a module that needs it: each can be read, and changed, with only those below it in mind.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod graph;
mod source;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use graph::Graph;
use serde_json::Value;

/// Imports that are part of a cycle and cannot be removed yet: by the first, or what is in it, of the second. What closes no cycle
/// any more must go from here.
const KNOWN: &[(&str, &str)] = &[];

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// The root files of all libraries and programs of the workspace.
fn roots() -> Vec<PathBuf> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let args = ["metadata", "--no-deps", "--offline", "--format-version", "1"];
    let output = Command::new(cargo).args(args).current_dir(workspace()).output().unwrap();
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let targets =
        metadata["packages"].as_array().unwrap().iter().flat_map(|package| package["targets"].as_array().unwrap());
    let built =
        targets.filter(|target| target["kind"].as_array().unwrap().iter().any(|kind| kind == "lib" || kind == "bin"));
    built.map(|target| target["src_path"].as_str().unwrap().into()).collect()
}

/// What is wrong with the crates: cycles, and known imports that close none.
fn complaints(graphs: &mut [Graph], known: &[(&str, &str)]) -> Vec<String> {
    let mut complaints = Vec::new();
    // All are taken out first: an import may be in a cycle only by another that is known.
    let removed: Vec<_> = known
        .iter()
        .map(|(from, to)| graphs.iter_mut().map(|graph| graph.remove(from, to)).collect::<Vec<_>>())
        .collect();
    for ((from, to), removed) in known.iter().zip(removed) {
        let mut imports =
            graphs.iter().zip(&removed).flat_map(|(graph, imports)| imports.iter().map(move |ends| (graph, ends)));
        if !imports.any(|(graph, (from, to))| graph.leads_back(from, to)) {
            complaints.push(format!("{from} -> {to} is in no cycle: take it out of KNOWN"));
        }
    }
    for graph in graphs {
        complaints.extend(graph.cycles().iter().map(|cycle| {
            let names: Vec<_> = cycle.iter().map(|name| name.display().to_string()).collect();
            format!("a cycle of {}:\n{}", names.join(", "), graph.tell(cycle))
        }));
    }
    complaints
}

#[test]
fn modules_do_not_import_each_other_in_a_cycle() {
    let (workspace, roots) = (workspace(), roots());
    assert!(roots.len() > 4, "{roots:?}");
    let mut graphs: Vec<_> = roots.iter().map(|root| source::imports(&workspace, root)).collect();
    let complaints = complaints(&mut graphs, KNOWN);
    assert!(
        complaints.is_empty(),
        "what two modules share belongs into one that both import\n{}",
        complaints.join("\n")
    );
}

/// What is wrong with a crate of these files; the first is its root.
fn found(files: &[(&str, &str)], known: &[(&str, &str)]) -> Vec<String> {
    let tree = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = tree.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    complaints(&mut [source::imports(tree.path(), &tree.path().join(files[0].0))], known)
}

const ROOT: (&str, &str) = ("lib.rs", "mod a; mod b { pub mod deep; } mod c; pub use c::C; pub struct Root;");

#[test]
fn a_tree_without_a_cycle_has_none() {
    let files = [
        ROOT,
        ("a.rs", "use crate::C; use super::b; struct A(C, b::deep::Deep, crate::Root);"),
        (
            "b/deep.rs",
            "pub struct Deep; #[cfg(test)] mod tests { use crate::a; } #[cfg(all(unix, test))] fn f() { crate::a::f() }",
        ),
        ("c/mod.rs", "mod part; pub use part::C; pub use std::io::Error;"),
        ("c/part.rs", "use std::fmt::{self, Display}; pub struct C; fn f(a: i32) { println!(\"{}\", a.crate_a) }"),
    ];
    assert_eq!(found(&files, &[]), [""; 0]);
}

#[test]
fn every_way_to_name_a_thing_is_an_import() {
    let ways = [
        "use crate::a::A;",
        "use crate::a::{self, A as B};",
        "use super::super::a as other; fn f() { other::f() }",
        "use crate::a; fn f(a: a::A) {}",
        "fn f() { use crate::a::A; }",
        "fn f() -> Option<crate::a::A> { None }",
        "fn f() { println!(\"{}\", [crate::a::f(1)]); }",
        "#[cfg(not(test))] fn f() { let x = 1 + crate::a::CONST; }",
        "pub use crate::a::A; pub fn f(a: A) {}",
        "use crate::passed::A;",
        "use crate::passed; fn f() { passed::A }",
        "mod inner { use crate::a::A; }",
        "mod inner { use super::super::super::a::A; }",
    ];
    for way in ways {
        let files = [
            ("lib.rs", "mod a; mod b { pub mod deep; } mod passed { pub use crate::a::A; }"),
            ("a.rs", "use crate::b::deep::g; pub struct A;"),
            ("b/deep.rs", way),
        ];
        let found = found(&files, &[]);
        assert!(matches!(&found[..], [cycle] if cycle.starts_with("a cycle of a.rs, b:\n")), "{way}: {found:?}");
    }
}

#[test]
fn a_child_and_its_parent_can_be_a_cycle() {
    let child = ("c/part.rs", "use super::Shared; pub fn part(_: Shared) {}");
    let only_passes_on = "mod part; mod shared; pub use part::part; pub use shared::Shared;";
    assert_eq!(found(&[("lib.rs", "mod c;"), ("c/mod.rs", only_passes_on), child, ("c/shared.rs", "")], &[]), [""; 0]);
    for import in ["use part::part;", "pub use part::part;", "fn whole() { part::part(Shared) }"] {
        let parent = format!("mod part; pub struct Shared; {import}");
        assert_eq!(found(&[("lib.rs", "mod c;"), ("c/mod.rs", &parent), child], &[]).len(), 1, "{import}");
    }
}

#[test]
fn what_is_known_must_still_be_in_a_cycle() {
    let files = [
        ("lib.rs", "mod a; mod b; mod c;"),
        ("a.rs", "use crate::b::B; use crate::c::C; pub struct A;"),
        ("b.rs", "use crate::c::C; pub struct B;"),
        ("c.rs", "use crate::a::A; pub struct C;"),
    ];
    assert_eq!(found(&files, &[]).len(), 1);
    assert_eq!(found(&files, &[("c.rs", "a.rs")]), [""; 0]);
    assert_eq!(found(&files, &[("a.rs", "c.rs")]).len(), 1);
    assert_eq!(found(&files, &[("a.rs", "c.rs"), ("a.rs", "b.rs")]), [""; 0]);
    for (from, to) in [("a.rs", "b.rs"), ("c.rs", "b.rs"), ("d", "d/mod.rs")] {
        let expected = format!("{from} -> {to} is in no cycle: take it out of KNOWN");
        assert_eq!(found(&files, &[("c.rs", "a.rs"), (from, to)]), [expected]);
    }
}
