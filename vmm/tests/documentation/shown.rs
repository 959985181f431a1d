// SPDX-License-Identifier: Apache-2.0
//! What documents show: commands in blocks of code and in sentences. benches/tests/documentation reads them by this file, too.

use std::fs;
use std::path::{Path, PathBuf};

/// The directories with documents, below the tree's root. CHANGELOG.md tells of options that have other names since, and is
/// left out.
const DIRECTORIES: [&str; 6] = ["", "docs", "benches", "benches/results", "guest-kernel", "firmware"];

/// The tree's root, from a package's directory.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Every document and its text, by its path below the root.
pub(crate) fn documents() -> Vec<(String, String)> {
    let markdown = DIRECTORIES.iter().flat_map(|directory| {
        let entries = fs::read_dir(root().join(directory)).expect("a directory of documents");
        let names = entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("UTF-8"));
        let names = names.filter(|name| Path::new(name).extension().is_some_and(|extension| extension == "md"));
        names.map(move |name| if directory.is_empty() { name } else { format!("{directory}/{name}") })
    });
    let paths = markdown.chain(["vmm/debian/README".to_owned()]).filter(|path| path != "CHANGELOG.md");
    let documents: Vec<_> =
        paths.map(|path| (path.clone(), fs::read_to_string(root().join(&path)).expect("a document"))).collect();
    assert!(documents.len() > 15, "only {} documents were found", documents.len());
    documents
}

/// The blocks of code of `text`: those that are fenced as `sh`, and those that are indented by four columns.
pub(crate) fn blocks(text: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut fence: Option<&str> = None;
    let mut block = String::new();
    for line in text.lines() {
        let code = match (fence, line.strip_prefix("```")) {
            (None, Some(language)) => {
                fence = Some(language);
                None
            }
            (Some(_), Some(_)) => {
                fence = None;
                None
            }
            (None, None) => line.strip_prefix("    "),
            (Some(language), None) => Some(line).filter(|_| language == "sh"),
        };
        match code {
            Some(code) => block.extend([code, "\n"]),
            None if !block.is_empty() => blocks.push(std::mem::take(&mut block)),
            None => (),
        }
    }
    blocks.extend(Some(block).filter(|block| !block.is_empty()));
    blocks
}

/// The commands of `program` in the blocks of code of `text`, each with the lines that continue it.
pub(crate) fn commands(text: &str, program: &str) -> Vec<String> {
    let mut commands = Vec::new();
    for block in blocks(text) {
        let mut lines = block.lines();
        while let Some(line) = lines.next() {
            if !is_of(line, program) {
                continue;
            }
            let mut command = line.to_owned();
            while command.ends_with('\\') {
                command.truncate(command.len() - 1);
                command.push_str(lines.next().unwrap_or_default().trim_start());
            }
            commands.push(command);
        }
    }
    commands
}

/// The mentions of `program` in the sentences and tables of `text`: code between backticks. An ellipsis, which stands for
/// options that do not matter there, is left out.
pub(crate) fn mentions(text: &str, program: &str) -> Vec<String> {
    let spans = spans(text).into_iter().map(|span| span.replace(" …", ""));
    spans.filter(|span| is_of(span, program)).collect()
}

/// Whatever is between backticks outside of blocks of code, on one line.
pub(crate) fn spans(text: &str) -> Vec<String> {
    let prose: Vec<_> = text.split("```").step_by(2).collect();
    let prose = prose.join("\n\n");
    let paragraphs = prose.split("\n\n").filter(|paragraph| !paragraph.starts_with("    "));
    let pieces = paragraphs.flat_map(|paragraph| paragraph.split('`').skip(1).step_by(2));
    pieces.map(|piece| piece.split_whitespace().collect::<Vec<_>>().join(" ").replace("\\|", "|")).collect()
}

fn is_of(code: &str, program: &str) -> bool {
    code.strip_prefix(program).is_some_and(|rest| rest.starts_with(' '))
}

#[test]
fn code_is_told_from_sentences() {
    let text = "Try `flatboot\ncheck`.\n\n    flatboot run \\\n        b\n\n```\nflatboot map\n```\n\n```sh\nflatboot-bench x\n\
                flatboot check\n```\n\nOr `flatboot run … --cpus a\\|b`, not `flatboots x`.\n";
    assert_eq!(commands(text, "flatboot"), ["flatboot run b", "flatboot check"]);
    assert_eq!(commands(text, "flatboot-bench"), ["flatboot-bench x"]);
    assert_eq!(mentions(text, "flatboot"), ["flatboot check", "flatboot run --cpus a|b"]);
}
