// SPDX-License-Identifier: Apache-2.0
//! From JSON to what is meant by it; what is wrong is said as of any other value: which field, its value, what would be right.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use serde_path_to_error::{Path, Segment};

/// Bytes of a text that is still shown in a sentence.
const SHORT: usize = 100;

/// Takes a document.
pub(super) fn take<T: DeserializeOwned>(document: &Value) -> Result<T, String> {
    serde_path_to_error::deserialize(document).map_err(|error| said(document, error.path(), &error.inner().to_string()))
}

/// Takes the body of a request.
pub(crate) fn of_body<T: DeserializeOwned>(body: &[u8]) -> Result<T, String> {
    take(&Value::Object(object(body)?))
}

/// The fields of the body of a request.
pub(super) fn object(body: &[u8]) -> Result<Map<String, Value>, String> {
    match serde_json::from_slice(body) {
        Ok(Value::Object(fields)) => Ok(fields),
        Ok(_) => Err("must be a JSON object".to_owned()),
        Err(_) if body.is_empty() => Err("has no body: must have a JSON object".to_owned()),
        Err(error) => Err(format!("is no JSON: {error}")),
    }
}

/// `what` serde says about the field at `path`, in flatboot's words. Where serde has others than those that are known here, they
/// are left as they are.
fn said(document: &Value, path: &Path, what: &str) -> String {
    let at = path.to_string();
    let at = if at == "." { "" } else { at.as_str() };
    if what.starts_with('.') || is_below(what, at) {
        // An error of a section says which of its fields it is about.
        return what.strip_prefix(at).map_or_else(|| format!("{at}{what}"), |rest| format!("{at}{rest}"));
    }
    let field = |name: &str| if at.is_empty() { name.to_owned() } else { format!("{at}.{name}") };
    if let Some((name, _)) = quoted(what, "missing field ") {
        return format!("{}: is missing: must be given", field(name));
    }
    if let Some((name, rest)) = quoted(what, "unknown field ") {
        // It is part of the path already, but where serde has kept it for later.
        let at = if is_last(at, name) { at.to_owned() } else { field(name) };
        return format!("{at}: there is no such field: must be {}", one_of(rest));
    }
    let is = value(document, path);
    let is = if is.is_empty() || at.is_empty() { at.to_owned() } else { format!("{at}={is}") };
    let must = match (quoted(what, "unknown variant "), what.strip_prefix("invalid ")) {
        (Some((_, rest)), _) => format!("must be {}", one_of(rest)),
        (None, Some(invalid)) => {
            invalid.rsplit_once(", expected ").map_or_else(|| what.to_owned(), |(_, expected)| must_be(expected))
        }
        _ => what.to_owned(),
    };
    if is.is_empty() { must } else { format!("{is}: {must}") }
}

/// Whether `what` begins with the path of something in what is at `at`.
fn is_below(what: &str, at: &str) -> bool {
    !at.is_empty() && what.strip_prefix(at).is_some_and(|rest| rest.starts_with(['.', '[']))
}

fn is_last(at: &str, name: &str) -> bool {
    at.strip_suffix(name).is_some_and(|before| before.is_empty() || before.ends_with('.'))
}

/// The name that is between backquotes behind `begin`, and what follows.
fn quoted<'a>(what: &'a str, begin: &str) -> Option<(&'a str, &'a str)> {
    what.strip_prefix(begin)?.strip_prefix('`')?.split_once('`')
}

/// What serde lists, without its backquotes.
fn one_of(rest: &str) -> String {
    rest.strip_prefix(", expected ").map_or_else(|| "absent".to_owned(), |list| list.replace('`', ""))
}

fn must_be(expected: &str) -> String {
    let number = |most: u64| format!("must be a whole number, 0 to {most}");
    match expected {
        "u8" => number(u8::MAX.into()),
        "u16" => number(u16::MAX.into()),
        "u32" => number(u32::MAX.into()),
        "u64" => "must be a whole number, 0 or more".to_owned(),
        "i32" => format!("must be a whole number, at most {}", i32::MAX),
        "a boolean" => "must be true or false".to_owned(),
        "path string" => "must be a string".to_owned(),
        "a sequence" => "must be a list".to_owned(),
        "a map" => "must be an object".to_owned(),
        _ if ["struct ", "internally tagged enum ", "adjacently tagged enum "]
            .iter()
            .any(|kind| expected.starts_with(kind)) =>
        {
            "must be an object".to_owned()
        }
        _ => format!("must be {expected}"),
    }
}

/// What is at `path`, if that is short.
fn value(document: &Value, path: &Path) -> String {
    let found = path.iter().try_fold(document, |value, segment| match segment {
        Segment::Seq { index } => value.get(index),
        Segment::Map { key } => value.get(key),
        Segment::Enum { .. } | Segment::Unknown => Some(value),
    });
    match found {
        Some(Value::String(text)) if text.len() <= SHORT => text.clone(),
        Some(value @ (Value::Bool(_) | Value::Number(_))) => value.to_string(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "it is there to be read")]
    struct Document {
        list: Vec<Item>,
        #[serde(default)]
        mode: Mode,
        #[serde(default)]
        pair: Option<[u8; 2]>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "it is there to be read")]
    struct Item {
        path: PathBuf,
        #[serde(default)]
        on: bool,
        #[serde(default)]
        size: u16,
        #[serde(default)]
        number: i32,
    }

    #[derive(Debug, Default, Deserialize)]
    enum Mode {
        #[default]
        One,
        Two,
        Three,
    }

    #[test]
    fn what_is_wrong_is_said_in_flatboots_words() {
        for (json, expected) in [
            ("{}", "list: is missing: must be given"),
            ("5", "must be an object"),
            (r#"{"list": 5}"#, "list=5: must be a list"),
            (r#"{"list": [], "more": 1}"#, "more: there is no such field: must be one of list, mode, pair"),
            (r#"{"list": [{}]}"#, "list[0].path: is missing: must be given"),
            (
                r#"{"list": [{"path": "a", "siez": 1}]}"#,
                "list[0].siez: there is no such field: must be one of path, on, size, number",
            ),
            (r#"{"list": [{"path": 5}]}"#, "list[0].path=5: must be a string"),
            (r#"{"list": [{"path": []}]}"#, "list[0].path: must be a string"),
            (r#"{"list": [5]}"#, "list[0]=5: must be an object"),
            (r#"{"list": [{"path": "a", "on": "yes"}]}"#, "list[0].on=yes: must be true or false"),
            (r#"{"list": [{"path": "a", "size": 70000}]}"#, "list[0].size=70000: must be a whole number, 0 to 65535"),
            (r#"{"list": [{"path": "a", "size": -1}]}"#, "list[0].size=-1: must be a whole number, 0 to 65535"),
            (r#"{"list": [{"path": "a", "size": 1.5}]}"#, "list[0].size=1.5: must be a whole number, 0 to 65535"),
            (r#"{"list": [{"path": "a", "size": "1G"}]}"#, "list[0].size=1G: must be a whole number, 0 to 65535"),
            (
                r#"{"list": [{"path": "a", "number": 4294967296}]}"#,
                "list[0].number=4294967296: must be a whole number, at most 2147483647",
            ),
            (r#"{"list": [], "mode": "Four"}"#, "mode=Four: must be one of One, Two, Three"),
            (r#"{"list": [], "pair": [1]}"#, "pair: must be an array of length 2"),
        ] {
            let document: Value = serde_json::from_str(json).unwrap();
            assert_eq!(take::<Document>(&document).unwrap_err(), expected, "{json}");
        }
    }
}
