// SPDX-License-Identifier: Apache-2.0
//! Reading and writing results files.

use std::path::Path;

use anyhow::{anyhow, ensure};
use serde::Deserialize;
use serde_json::Value;
use serde_json::error::Category;

use crate::json_file;
use crate::terminal::{plain, size};

use super::check;
use super::format::{FORMAT, Results, VERSION};

/// No sweep comes near this. What is larger is something else, or endless.
const MOST_BYTES: u64 = 512 << 20;
/// Of a boot, with room to spare: three kilobytes are usual, and one that failed has its console with it.
const BYTES_OF_A_BOOT: u64 = 4 << 10;
/// A file has room for so many boots.
pub(crate) const MOST_BOOTS: u64 = MOST_BYTES / BYTES_OF_A_BOOT;

/// What every version says of itself. Any JSON may come here.
#[derive(Deserialize)]
struct Head {
    format: Option<Value>,
    version: Option<Value>,
}

/// Reads `path`, compressed by zstd or not.
pub fn load(path: &Path) -> anyhow::Result<Results> {
    let name = path.display();
    let bytes = json_file::read(path, MOST_BYTES)?;
    ensure!(bytes.len() as u64 <= MOST_BYTES, "{name}: larger than {}, which no results file is", size(MOST_BYTES));
    parse(&bytes).map_err(|why| anyhow!("{name}: {why}"))
}

fn parse(bytes: &[u8]) -> Result<Results, String> {
    if bytes.trim_ascii().is_empty() {
        return Err("empty".to_owned());
    }
    check_head(bytes)?;
    let results: Results = read(bytes)?;
    check::sweep(&results.sweep)?;
    check::boots(&results).map_err(|(boot, why)| format!("boot {boot}: {why}"))?;
    Ok(results)
}

/// Before anything else is read: a newer version may have everything else differently.
fn check_head(bytes: &[u8]) -> Result<(), String> {
    if bytes.trim_ascii_start().first() != Some(&b'{') {
        return Err(other("it is not a JSON object"));
    }
    let head: Head = read(bytes)?;
    match head.format {
        Some(Value::String(is)) if is == FORMAT => {}
        Some(is) => return Err(other(&format!("its format is {}, not {FORMAT:?}", brief(&is)))),
        None => return Err(other("it does not name its format")),
    }
    let version = head.version.ok_or_else(|| other("it does not say its version"))?;
    match version.as_u64() {
        Some(1..=VERSION) => Ok(()),
        Some(newer @ 1..) => {
            Err(format!("version {newer}, but this flatboot-bench reads up to {VERSION}: a newer one wrote it"))
        }
        _ => Err(other(&format!("its version is {}, not a whole number from 1", brief(&version)))),
    }
}

/// It is something else. What gave it away may quote the file, which may hold what a terminal obeys.
fn other(why: &str) -> String {
    format!("not a results file of flatboot-bench: {}", plain(why))
}

/// As JSON, but not the whole of a large one.
fn brief(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

fn read<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, String> {
    serde_json::from_slice(bytes).map_err(|error| match error.classify() {
        Category::Eof => format!("cut short: it ends at line {}, in the middle of a value", error.line()),
        _ => other(&error.to_string()),
    })
}

/// Writes `path` whole or not at all: a power cut leaves the old file or the new one. It is compressed if its name ends in `.zst`.
pub fn save(results: &Results, path: &Path) -> anyhow::Result<()> {
    json_file::write(results, path)
}
