// SPDX-License-Identifier: Apache-2.0
//! Cloud Hypervisor's option syntax: `key=value,key=value`, a value with commas in double quotes or, if it is a list, in brackets,
//! sizes with K, M, G or T.

use std::fmt::Display;

use super::field::FieldError;
use crate::field::Field;

/// What is wrong with the text of an option.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(
    missing_docs,
    reason = "each variant's message is its documentation, and its fields are what the message names"
)]
pub enum OptionError {
    #[error("{option} {part}: must be written KEY=VALUE; the keys are {keys}")]
    NotAPair { option: Field, part: String, keys: String },
    #[error("{option} {key}=: has no value: must be {key}=VALUE")]
    NoValue { option: Field, key: String },
    #[error("{option} {key}={value}: there is no key {key}: must be one of {keys}")]
    UnknownKey { option: Field, key: String, value: String, keys: String },
    #[error("{option} {key}={value}: {key} is given twice: must be given once")]
    Duplicate { option: Field, key: String, value: String },
    #[error("{option} {text}: has an odd number of quotes: must close every one")]
    OpenQuote { option: Field, text: String },
    #[error("{option} {text}: has a list without end: must close every bracket")]
    OpenBracket { option: Field, text: String },
    #[error("{option} {keys}: is missing: must be given")]
    Missing { option: Field, keys: &'static str },
    #[error("{option} {key}={value}: {must}")]
    Value { option: Field, key: &'static str, value: String, must: String },
    #[error("{option} {value}: {must}")]
    Word { option: Field, value: String, must: String },
    #[error(transparent)]
    Field(#[from] FieldError),
}

impl OptionError {
    /// That the text of `option` is none of the words it can be.
    #[must_use]
    pub fn word(option: Field, text: &str, must: &str) -> Self {
        Self::Word { option, value: quoted_if_empty(text), must: must.to_owned() }
    }
}

/// The pairs of one option, each of a known key, none twice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    option: Field,
    pairs: Vec<(&'static str, String)>,
}

impl Options {
    /// Splits the text of `option`, whose keys are `keys`.
    pub fn parse(option: Field, text: &str, keys: &[&'static str]) -> Result<Self, OptionError> {
        let mut pairs: Vec<(&'static str, String)> = Vec::new();
        let list = || keys.join(", ");
        for part in split(option, text)? {
            let Some((key, value)) = part.split_once('=') else {
                return Err(OptionError::NotAPair { option, part: quoted_if_empty(&part), keys: list() });
            };
            let (key, value) = (key.to_owned(), value.to_owned());
            let Some(known) = keys.iter().find(|known| **known == key) else {
                return Err(OptionError::UnknownKey { option, key, value, keys: list() });
            };
            if value.is_empty() {
                return Err(OptionError::NoValue { option, key });
            }
            if pairs.iter().any(|(earlier, _)| earlier == known) {
                return Err(OptionError::Duplicate { option, key, value });
            }
            pairs.push((known, value));
        }
        Ok(Self { option, pairs })
    }

    /// The option without any pair.
    #[must_use]
    pub const fn none(option: Field) -> Self {
        Self { option, pairs: Vec::new() }
    }

    /// The option.
    #[must_use]
    pub const fn option(&self) -> Field {
        self.option
    }

    /// The value of `key`, if it is given.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        self.pairs.iter().find(|(known, _)| *known == key).map(|(_, value)| value.as_str())
    }

    /// The value of `key`, converted; `parse` says what would be right, as in "must be 1 to 255".
    pub fn value<T, E: Display>(
        &self,
        key: &'static str,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Result<Option<T>, OptionError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        parse(value).map(Some).map_err(|must| self.wrong(key, value, &must))
    }

    /// The value of `key`, `on` or `off`.
    pub fn switch(&self, key: &'static str, default: bool) -> Result<bool, OptionError> {
        Ok(self.choice(key)?.unwrap_or(default))
    }

    /// The same where it makes a difference whether it is given.
    pub fn choice(&self, key: &'static str) -> Result<Option<bool>, OptionError> {
        self.value(key, |value| match value {
            "on" => Ok(true),
            "off" => Ok(false),
            _ => Err("must be on or off"),
        })
    }

    /// What is wrong with the value of a field of this option: as it was typed, not as it was understood.
    pub(super) fn wrong_field(&self, error: FieldError) -> OptionError {
        let typed = self.get(error.field.name()).map(str::to_owned);
        let error = error.within(self.option);
        FieldError { value: typed.or(error.value), ..error }.into()
    }

    fn wrong(&self, key: &'static str, value: &str, must: &impl Display) -> OptionError {
        OptionError::Value { option: self.option, key, value: value.to_owned(), must: must.to_string() }
    }
}

/// Splits at commas outside double quotes, which are taken away, and outside lists, whose bracket follows the equals sign.
fn split(option: Field, text: &str) -> Result<Vec<String>, OptionError> {
    let mut parts = vec![String::new()];
    let (mut quoted, mut depth) = (false, 0u32);
    for character in text.chars() {
        let Some(part) = parts.last_mut() else { break };
        match character {
            '"' => quoted = !quoted,
            ',' if !quoted && depth == 0 => parts.push(String::new()),
            other => {
                match other {
                    '[' if !quoted && (depth > 0 || part.ends_with('=')) => depth += 1,
                    ']' if !quoted => depth = depth.saturating_sub(1),
                    _ => {}
                }
                part.push(other);
            }
        }
    }
    match (quoted, depth) {
        (true, _) => Err(OptionError::OpenQuote { option, text: text.to_owned() }),
        (false, 1..) => Err(OptionError::OpenBracket { option, text: text.to_owned() }),
        (false, 0) => Ok(parts),
    }
}

fn quoted_if_empty(part: &str) -> String {
    if part.is_empty() { "\"\"".to_owned() } else { part.to_owned() }
}

/// Bytes from a number with an optional binary suffix: K, M, G or T, in either case.
pub fn parse_size(text: &str) -> Result<u64, &'static str> {
    const MUST: &str = "must be a number of bytes, with K, M, G or T after it for 2^10, 2^20, 2^30 or 2^40 of them";

    let (digits, shift) = match text.as_bytes().last().map(u8::to_ascii_uppercase) {
        Some(b'K') => (&text[..text.len() - 1], 10),
        Some(b'M') => (&text[..text.len() - 1], 20),
        Some(b'G') => (&text[..text.len() - 1], 30),
        Some(b'T') => (&text[..text.len() - 1], 40),
        _ => (text, 0),
    };
    let number = parse_number(digits).ok_or(MUST)?;
    number.checked_mul(1 << shift).ok_or("must be less than 2^64 bytes")
}

/// Decimal digits and nothing else: unlike `str::parse`, no plus sign.
pub(super) fn parse_number(digits: &str) -> Option<u64> {
    if digits.bytes().all(|byte| byte.is_ascii_digit()) { digits.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPTION: Field = Field::section("x");
    const KEYS: [&str; 3] = ["size", "path", "thp"];

    fn message(text: &str) -> String {
        Options::parse(OPTION, text, &KEYS).unwrap_err().to_string()
    }

    #[test]
    fn pairs_are_found_by_key() {
        let options = Options::parse(OPTION, r#"path="a,b=c.img",size=1"#, &KEYS).unwrap();
        assert_eq!(options.get("path"), Some("a,b=c.img"));
        assert_eq!(options.get("size"), Some("1"));
        assert_eq!(options.get("thp"), None);
        assert_eq!(options.switch("thp", true), Ok(true));
    }

    #[test]
    fn lists_hold_commas() {
        let get = |text| Options::parse(OPTION, text, &KEYS).unwrap().get("path").map(str::to_owned);
        for (text, value) in [
            ("path=[a,[b,c],d],size=1", "[a,[b,c],d]"),
            ("size=1,path=[]", "[]"),
            // Names of files may have brackets elsewhere, and anywhere in quotes.
            ("path=a[,size=1", "a["),
            ("path=]a,size=1", "]a"),
            ("path=\"[a\",size=1", "[a"),
        ] {
            assert_eq!(get(text).as_deref(), Some(value), "{text}");
        }
    }

    #[test]
    fn wrong_text_is_named() {
        for (text, expected) in [
            ("64G", "x 64G: must be written KEY=VALUE; the keys are size, path, thp"),
            ("", "x \"\": must be written KEY=VALUE; the keys are size, path, thp"),
            ("size=1,", "x \"\": must be written KEY=VALUE; the keys are size, path, thp"),
            ("size=", "x size=: has no value: must be size=VALUE"),
            ("sise=1", "x sise=1: there is no key sise: must be one of size, path, thp"),
            ("size=1,size=2", "x size=2: size is given twice: must be given once"),
            ("path=\"a", "x path=\"a: has an odd number of quotes: must close every one"),
            ("path=[a,[b],size=1", "x path=[a,[b],size=1: has a list without end: must close every bracket"),
        ] {
            assert_eq!(message(text), expected);
        }
        let options = Options::parse(OPTION, "thp=yes", &KEYS).unwrap();
        assert_eq!(options.switch("thp", true).unwrap_err().to_string(), "x thp=yes: must be on or off");
    }

    #[test]
    fn sizes_have_binary_suffixes() {
        for (text, bytes) in [("0", 0), ("17", 17), ("4k", 4096), ("3M", 3 << 20), ("64G", 64 << 30), ("1T", 1 << 40)] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for text in ["", "G", "-1", "+1", "1.5G", "64GB", "64GiB", "0x10", " 1", "99999999999999999999", "é"] {
            assert!(parse_size(text).is_err_and(|must| must.starts_with("must be a number")), "{text}");
        }
        assert_eq!(parse_size("16777216T"), Err("must be less than 2^64 bytes"));
    }
}
