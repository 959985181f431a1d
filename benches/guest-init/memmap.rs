// SPDX-License-Identifier: Apache-2.0
//! What the kernel's debugfs says of the memmap: how far it is filled, and whether it is sound.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use crate::files;
use crate::outcome::Outcome;

const NODES: &str = "/sys/kernel/debug/memmap_nodes";
const VERIFY: &str = "/sys/kernel/debug/memmap_verify";
const PAUSE: Duration = Duration::from_millis(20);
/// Lines of a bad verdict that are repeated.
const SHOWN_LINES: usize = 16;

/// The nodes as they are now; with a `mode`, all of them are in it.
pub(crate) fn nodes(mode: Option<&str>) -> Outcome {
    let nodes = read()?;
    let as_wanted = mode.is_none_or(|mode| nodes.iter().all(|node| node["mode"] == mode));
    Ok((!nodes.is_empty() && as_wanted, json!({ "nodes": nodes })))
}

/// Waits until every node is filled, at most `seconds`.
pub(crate) fn filled(seconds: &str) -> Outcome {
    let limit = seconds.parse().map(Duration::from_secs);
    let limit = limit.map_err(|_| format!("filled={seconds}: expected a number of seconds"))?;
    let begin = Instant::now();
    loop {
        let nodes = read()?;
        let over = nodes.iter().all(is_filled);
        if over || begin.elapsed() > limit {
            return Ok((over && !nodes.is_empty(), json!({ "nodes": nodes })));
        }
        thread::sleep(PAUSE);
    }
}

/// A kernel that knows no other way than to fill before init has no such column.
fn is_filled(node: &Value) -> bool {
    node["filled"].is_null() || node["filled"] == node["sections"]
}

fn read() -> Result<Vec<Value>, String> {
    parse(&files::text(NODES)?).ok_or_else(|| format!("{NODES}: no line that names its columns"))
}

/// A line `# node a b …`, and for each node a line with its values.
fn parse(text: &str) -> Option<Vec<Value>> {
    let mut lines = text.lines();
    let names: Vec<_> = lines.next()?.strip_prefix("# ")?.split(' ').collect();
    let value = |word: &str| word.parse::<u64>().map_or_else(|_| word.into(), Value::from);
    let node = |line: &str| -> Map<_, _> {
        names.iter().zip(line.split(' ')).map(|(name, word)| ((*name).to_owned(), value(word))).collect()
    };
    Some(lines.map(|line| Value::Object(node(line))).collect())
}

/// The kernel's own verdict on every struct page, zone and free list; `present` says whether this kernel gives one.
pub(crate) fn verify() -> Outcome {
    if !Path::new(VERIFY).exists() {
        return Ok((true, json!({ "present": false })));
    }
    let verdict = files::text(VERIFY)?;
    let lines: Vec<Value> = verdict.lines().take(SHOWN_LINES).map(Value::from).collect();
    Ok((is_sound(&verdict), json!({ "present": true, "lines": lines })))
}

/// Every zone is `ok`: what is wrong with one follows its own line.
fn is_sound(verdict: &str) -> bool {
    !verdict.is_empty() && verdict.lines().all(|line| line.starts_with("ok "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_zone_after_a_sound_one() {
        assert!(is_sound("ok node 0 zone DMA32: 1 pages\nok node 0 zone Normal: 2 pages\n"));
        assert!(!is_sound("ok node 0 zone DMA32: 1 pages\nbad node 0 zone Normal: 2 pages\nbad 0x9: miscounted\n"));
        assert!(!is_sound(""));
    }

    #[test]
    fn nodes_by_the_names_of_their_columns() {
        let nodes = parse("# node sections mode filled\n0 8 async 7\n1 4 async 4\n").unwrap();
        assert_eq!((&nodes[0]["mode"], &nodes[1]["filled"]), (&Value::from("async"), &Value::from(4)));
        assert_eq!(nodes.iter().map(is_filled).collect::<Vec<_>>(), [false, true]);
        assert!(is_filled(&parse("# node sections\n0 8\n").unwrap()[0]));
        assert_eq!(parse("0 8\n"), None);
    }
}
