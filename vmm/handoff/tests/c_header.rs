// SPDX-License-Identifier: Apache-2.0
//! The C headers in the repository say what this crate says.
#![expect(clippy::panic, reason = "tests may stop at the first surprise")]

use std::fs;
use std::path::{Path, PathBuf};

use flatboot_handoff::{TableError, c_header};

#[path = "../examples/c-header/fixture.rs"]
mod fixture;

/// The repository's root, if the folder `part` of it is there: each part of Flatboot can be had alone.
fn root_with(part: &str) -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let found = root.join(part).exists();
    if !found {
        eprintln!("SKIPPED: {part} does not exist, so there is nothing to compare");
    }
    found.then_some(root)
}

#[track_caller]
fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[track_caller]
fn up_to_date(part: &str) {
    let headers: Vec<_> = c_header::ALL.iter().filter(|header| header.path.starts_with(part)).collect();
    assert_eq!(headers.len(), 2, "{part}");
    let Some(root) = root_with(part) else { return };
    for header in headers {
        assert_eq!(
            read(&root.join(header.path)),
            header.to_string(),
            "{} is out of date: cargo run -p flatboot-handoff --example c-header -- .",
            header.path
        );
    }
}

#[test]
fn the_kernel_series_has_the_headers_that_this_crate_generates() {
    up_to_date("guest-kernel/");
}

#[test]
fn the_firmware_has_the_headers_that_this_crate_generates() {
    up_to_date("firmware/");
}

#[test]
fn the_firmware_s_tests_have_the_tables_that_this_crate_encodes() {
    let Some(root) = root_with("firmware/") else { return };
    assert_eq!(
        read(&root.join(fixture::PATH)),
        fixture::content(),
        "{} is out of date: cargo run -p flatboot-handoff --example c-header -- .",
        fixture::PATH
    );
}

#[test]
fn the_firmware_s_tests_have_a_table_for_every_rule() {
    let mut broken: Vec<_> = fixture::cases().iter().filter_map(|case| case.verdict.err()).collect();
    broken.sort_by_key(|error| format!("{error:?}"));
    broken.dedup_by_key(|error| std::mem::discriminant(error));
    // All of them but the one that only the encoder has, about its buffer.
    assert_eq!(broken.len(), 22, "{broken:#?}");
    assert!(!broken.iter().any(|error| matches!(error, TableError::Buffer { .. })));
}

#[test]
fn the_firmware_package_declares_the_table_s_guid() {
    let Some(root) = root_with("firmware/") else { return };
    let declaration = read(&root.join("firmware/FlatbootPkg/FlatbootPkg.dec"))
        .lines()
        .find_map(|line| line.trim().strip_prefix("gFlatbootHandOffGuid").map(|rest| rest.trim().to_owned()));
    assert_eq!(declaration, Some(format!("= {}", c_header::Guid)));
}
