// SPDX-License-Identifier: Apache-2.0
//! The C headers in the repository say what this crate says.

use std::fs;
use std::path::Path;

use flatboot_handoff::c_header;

#[test]
fn the_kernel_series_has_the_headers_that_this_crate_generates() {
    let kernel = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../guest-kernel");
    if !kernel.exists() {
        eprintln!("SKIPPED: {} does not exist, so there is no header to compare", kernel.display());
        return;
    }
    for header in c_header::ALL {
        let path = kernel.join("include").join(header.file_name);
        let found = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert_eq!(
            found,
            header.to_string(),
            "{} is out of date: cargo run -p flatboot-handoff --example c-header -- guest-kernel/include",
            path.display()
        );
    }
}
