// SPDX-License-Identifier: Apache-2.0
//! The fuzz targets have a workspace, and so a Cargo.lock, of their own. It is held against what is built.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::{env, fs};

use serde_json::Value;

/// A crate in a Cargo.lock: name and version, and the names of what it depends on.
struct Locked {
    name: String,
    version: String,
    needs: BTreeSet<String>,
}

/// Those in the file at `path`, from this crate's directory.
fn locked(path: &str) -> Vec<Locked> {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).expect(path);
    text.split("[[package]]").skip(1).map(package).collect()
}

fn package(text: &str) -> Locked {
    let field = |name: &str| {
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(" = "));
        value.expect(name).trim_matches('"').to_owned()
    };
    let (_, needs) = text.split_once("dependencies = [").unwrap_or_default();
    let names = needs.lines().filter_map(|line| line.trim().strip_prefix('"')?.split([' ', '"']).next());
    Locked { name: field("name"), version: field("version"), needs: names.map(str::to_owned).collect() }
}

/// What flatboot is built of, tests apart.
fn needed() -> BTreeSet<String> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let args = ["metadata", "--no-deps", "--offline", "--format-version", "1"];
    let output = Command::new(cargo).args(args).current_dir(env!("CARGO_MANIFEST_DIR")).output().expect("cargo");
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("JSON of cargo");
    let packages = metadata["packages"].as_array().expect("packages");
    let flatboot = packages.iter().find(|package| package["name"] == "flatboot").expect("flatboot");
    let needs = flatboot["dependencies"].as_array().expect("dependencies").iter();
    needs.filter(|need| need["kind"].is_null()).filter_map(|need| need["name"].as_str()).map(str::to_owned).collect()
}

#[test]
fn what_is_fuzzed_is_what_is_built() {
    let (built, fuzzed, needed) = (locked("../Cargo.lock"), locked("fuzz/Cargo.lock"), needed());
    assert!(needed.len() > 20 && built.len() > fuzzed.len(), "{needed:?}");
    let flatboot = fuzzed.iter().find(|package| package.name == "flatboot").expect("flatboot");
    let how = "cargo update --workspace --manifest-path vmm/fuzz/Cargo.toml";
    assert_eq!(flatboot.needs, needed, "vmm/fuzz/Cargo.lock is out of date: {how}");
    for Locked { name, version, .. } in &fuzzed {
        let versions: Vec<_> =
            built.iter().filter(|package| package.name == *name).map(|package| &package.version).collect();
        let how = "cargo update --manifest-path vmm/fuzz/Cargo.toml --package NAME --precise VERSION";
        assert!(versions.is_empty() || versions.contains(&version), "{name} {version}, built with {versions:?}: {how}");
    }
}
