// SPDX-License-Identifier: Apache-2.0
//! Files and headings that documents name.

use std::fs;
use std::path::{Path, PathBuf};

use super::shown;

/// What a path in a sentence is relative to, besides the document: the tree, and the sources that most documents are about.
const BASES: [&str; 3] = ["", "vmm/src", "firmware/FlatbootPkg"];
const SOURCES: [&str; 6] = ["rs", "sh", "pl", "md", "h", "config"];
/// In Linux's tree.
const FOREIGN: [&str; 1] = ["scripts/checkpatch.pl"];

/// Whether `span` is the path of a source file.
fn is_source(span: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"./-_".contains(&byte);
    let extension = Path::new(span).extension().and_then(|extension| extension.to_str());
    span.contains('/') && span.bytes().all(plain) && extension.is_some_and(|extension| SOURCES.contains(&extension))
}

fn is_there(document: &str, path: &str) -> bool {
    let beside = Path::new(document).parent().expect("a directory").to_owned();
    let bases = BASES.iter().map(PathBuf::from).chain([beside]);
    FOREIGN.contains(&path) || bases.into_iter().any(|base| shown::root().join(base).join(path).exists())
}

/// The targets of links in `text`, but for other hosts' pages.
fn links(text: &str) -> Vec<&str> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    targets.filter(|target| !target.contains("://")).collect()
}

/// The name by which links reach a heading.
fn anchor(heading: &str) -> String {
    let kept = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = kept.chars().filter(|character| character.is_alphanumeric() || " -_".contains(*character));
    kept.map(|character| if character == ' ' { '-' } else { character }).collect()
}

/// What is wrong with the link to `target` in `document`.
fn broken(document: &str, target: &str) -> Option<String> {
    let (file, heading) = target.split_once('#').unwrap_or((target, ""));
    let path = match file {
        "" => shown::root().join(document),
        file => shown::root().join(document).parent().expect("a directory").join(file),
    };
    if !path.exists() {
        return Some(format!("{document}: {target}: there is no such file"));
    }
    if heading.is_empty() {
        return None;
    }
    let text = fs::read_to_string(path).expect("a document");
    let mut headings = text.lines().filter(|line| line.starts_with('#'));
    let found = headings.any(|line| anchor(line) == heading);
    (!found).then(|| format!("{document}: {target}: there is no such heading"))
}

#[test]
fn files_and_headings_are_there() {
    let (mut found, mut wrong) = (0, Vec::new());
    for (document, text) in shown::documents() {
        let sources = shown::spans(&text).into_iter().filter(|span| is_source(span)).collect::<Vec<_>>();
        let links = links(&text);
        found += sources.len() + links.len();
        let missing = sources.iter().filter(|span| !is_there(&document, span));
        wrong.extend(missing.map(|span| format!("{document}: {span}: there is no such file")));
        wrong.extend(links.iter().filter_map(|target| broken(&document, target)));
    }
    assert!(found > 100, "only {found} were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn what_is_not_there_is_found() {
    assert!(is_source("vmm/src/layout.rs") && !is_source("layout.rs") && !is_source("a b/c.rs"));
    assert!(is_there("docs/design.md", "boot/mod.rs") && !is_there("docs/design.md", "boot/moody.rs"));
    assert_eq!(links("[a](b.md#c) and [d](https://example.com)"), ["b.md#c"]);
    for target in ["design.md", "design.md#one-contract-the-hand-off", "#where-it-runs"] {
        assert_eq!(broken("docs/design.md", target), None, "{target}");
    }
    for target in ["designs.md", "design.md#one-contract", "#where-it-walks"] {
        assert!(broken("docs/design.md", target).is_some(), "{target}");
    }
}
