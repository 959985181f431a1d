// SPDX-License-Identifier: Apache-2.0
//! Documentation that repeats a promise is held against the promise's home.

use flatboot_bench::spec::Section;

const SPECIFICATION: &str = include_str!("../../docs/SPECIFICATION.md");

#[test]
fn the_specification_lists_every_promise() {
    for section in Section::ALL {
        let (name, table) = (section.name(), section.table());
        let (begin, end) = (format!("<!-- {name}: begin -->\n"), format!("<!-- {name}: end -->"));
        let from = SPECIFICATION.find(&begin).map(|at| at + begin.len());
        let shown = from.and_then(|from| SPECIFICATION[from..].split(&end).next()).unwrap_or_default();
        assert_eq!(shown, table, "copy this between the comments of {name} in docs/SPECIFICATION.md:\n{table}");
    }
}
