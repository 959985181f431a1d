// SPDX-License-Identifier: Apache-2.0
//! Documentation that repeats a claim is held against the claim's home.

use std::fmt::Write;

use flatboot_bench::measure::CLAIMS;

const SPECIFICATION: &str = include_str!("../../docs/SPECIFICATION.md");

#[test]
fn the_specification_lists_every_claim() {
    let mut table = "| Promise | Command |\n|---|---|\n".to_owned();
    for claim in CLAIMS {
        writeln!(table, "| {} | `flatboot-bench measure {}` |", claim.statement, claim.name).unwrap();
    }
    let begin = "<!-- claims: begin -->\n";
    let from = SPECIFICATION.find(begin).map_or(0, |at| at + begin.len());
    let to = SPECIFICATION.find("<!-- claims: end -->").unwrap_or(from);
    assert_eq!(&SPECIFICATION[from..to], table, "copy this into docs/SPECIFICATION.md:\n{table}");
}
