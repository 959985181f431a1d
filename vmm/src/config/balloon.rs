// SPDX-License-Identifier: Apache-2.0
//! The balloon: memory that the guest gives up.

use serde::{Deserialize, Serialize};

use super::field::FieldError;
use super::memory::MemoryConfig;
use super::options::{OptionError, Options, parse_size};
use crate::field::Field;
use crate::layout::PAGE_SIZE;

const OPTION: Field = Field::section("balloon");

/// A balloon. A field that is not given asks for nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BalloonConfig {
    /// Bytes that the guest is asked to give up, whole pages.
    pub size: u64,
    /// Whether it takes them back before it ends a program for lack of memory.
    pub deflate_on_oom: bool,
    /// Whether it gives up whatever is free, without being asked.
    pub free_page_reporting: bool,
}

impl BalloonConfig {
    /// Takes the text of `--balloon`, of a VM with that memory.
    pub(super) fn parse(text: &str, memory: &MemoryConfig) -> Result<Self, OptionError> {
        let options = Options::parse(OPTION, text, &["size", "deflate_on_oom", "free_page_reporting"])?;
        let balloon = Self {
            size: options.value("size", parse_size)?.unwrap_or(0),
            deflate_on_oom: options.switch("deflate_on_oom", false)?,
            free_page_reporting: options.switch("free_page_reporting", false)?,
        };
        balloon.check(memory).map_err(|error| match error.value {
            Some(_) => options.wrong_field(error),
            None => error.into(),
        })?;
        Ok(balloon)
    }

    /// Whether it goes with that memory.
    pub(super) fn check(&self, memory: &MemoryConfig) -> Result<(), FieldError> {
        if memory.zones().iter().any(|zone| zone.backing.pages.is_huge()) {
            return Err(FieldError::without_value(OPTION, MUST_BE_BASE));
        }
        self.check_size(memory).map_err(|error| error.within(OPTION))
    }

    /// The same balloon of another size.
    pub(super) fn resized(&self, size: u64, memory: &MemoryConfig) -> Result<Self, FieldError> {
        let resized = Self { size, ..*self };
        resized.check_size(memory).map(|()| resized)
    }

    fn check_size(&self, memory: &MemoryConfig) -> Result<(), FieldError> {
        let all = memory.size.bytes();
        if self.size >= all || !self.size.is_multiple_of(PAGE_SIZE) {
            let must = format!(
                "must be a multiple of {PAGE_SIZE} bytes, and less than the memory that the VM starts with, {all}"
            );
            return Err(FieldError::new("size", &self.size, &must));
        }
        Ok(())
    }
}

/// A page of a hugetlb pool that was given back might not be there again.
const MUST_BE_BASE: &str = "must be with memory that is not of hugepages";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::in_options;

    fn parse(text: &str, memory: &str) -> Result<BalloonConfig, String> {
        let memory = MemoryConfig::parse(memory, &[]).unwrap();
        let parsed = BalloonConfig::parse(text, &memory).map_err(|error| in_options(|| error.to_string()));
        if let Ok(balloon) = parsed {
            assert_eq!(balloon.check(&memory), Ok(()));
        }
        parsed
    }

    #[test]
    fn words_and_json_are_the_same() {
        for (text, json) in [
            ("size=0", "{}"),
            ("size=256M", r#"{"size": 268435456}"#),
            (
                "size=4096,deflate_on_oom=on,free_page_reporting=on",
                r#"{"size": 4096, "deflate_on_oom": true, "free_page_reporting": true}"#,
            ),
            ("free_page_reporting=on", r#"{"free_page_reporting": true}"#),
        ] {
            let expected: BalloonConfig = serde_json::from_str(json).unwrap();
            assert_eq!(parse(text, "size=512M"), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        let must = "must be a multiple of 4096 bytes, and less than the memory that the VM starts with, 536870912";
        for (text, memory, expected) in [
            ("size=512M", "size=512M", format!("--balloon size=512M: {must}")),
            ("size=5", "size=512M", format!("--balloon size=5: {must}")),
            ("size=1M", "size=512M,hugepages=on", format!("--balloon: {MUST_BE_BASE}")),
            ("deflate_on_oom=1", "size=512M", "--balloon deflate_on_oom=1: must be on or off".to_owned()),
        ] {
            assert_eq!(parse(text, memory), Err(expected), "{text}");
        }
        let memory = MemoryConfig::parse("size=512M", &[]).unwrap();
        let wrong = BalloonConfig { size: 1 << 40, ..BalloonConfig::default() };
        let said = |balloon: &BalloonConfig, memory: &MemoryConfig| balloon.check(memory).unwrap_err().to_string();
        assert_eq!(said(&wrong, &memory), format!("balloon.size=1099511627776: {must}"));
        let huge = MemoryConfig::parse("size=512M,hugepages=on", &[]).unwrap();
        assert_eq!(said(&BalloonConfig::default(), &huge), format!("balloon: {MUST_BE_BASE}"));
    }
}
