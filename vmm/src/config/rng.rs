// SPDX-License-Identifier: Apache-2.0
//! Where the guest's random bytes come from.

use std::fs::File;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::field::FieldError;
use super::file::{FileError, FileFault, kind};
use super::options::{OptionError, Options};
use super::rate::{self, RateConfig};
use crate::field::Field;

pub(super) const OPTION: Field = Field::section("rng");

/// A source that is still to be opened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RngOption {
    src: PathBuf,
    #[serde(default, deserialize_with = "RateConfig::of_field", skip_serializing_if = "Option::is_none")]
    rate_limiter_config: Option<RateConfig>,
}

/// A source that is open.
#[derive(Debug)]
pub struct RngConfig {
    /// Where the bytes come from.
    pub source: File,
    /// How many of them, and how many requests for some, in a time.
    pub limits: Option<RateConfig>,
}

impl Default for RngOption {
    fn default() -> Self {
        Self { src: "/dev/urandom".into(), rate_limiter_config: None }
    }
}

impl RngOption {
    /// Takes the text of `--rng`; `off` is none.
    pub(super) fn parse(text: &str) -> Result<Option<Self>, OptionError> {
        if text == "off" {
            return Ok(None);
        }
        let options = Options::parse(OPTION, text, &[["src"].as_slice(), &rate::KEYS].concat())?;
        let src = options.get("src").ok_or(OptionError::Missing { option: OPTION, keys: "src=FILE" })?;
        Ok(Some(Self { src: src.into(), rate_limiter_config: RateConfig::parse(&options)? }))
    }

    /// Whether its limits are some.
    pub(super) fn check(&self) -> Result<(), FieldError> {
        self.rate_limiter_config.map_or(Ok(()), |limits| limits.check())
    }

    pub(super) fn open(self) -> Result<RngConfig, FileError> {
        let source = open(&self.src).map_err(|fault| fault.of(OPTION.member("src"), &self.src))?;
        Ok(RngConfig { source, limits: self.rate_limiter_config })
    }
}

fn open(path: &Path) -> Result<File, FileFault> {
    // Opening a pipe would wait for a writer, so look first.
    let file_type = path.metadata().map_err(FileFault::reading)?.file_type();
    if !file_type.is_char_device() && !file_type.is_file() {
        return Err(FileFault::Kind { found: kind(file_type), must: "a character device or a regular file" });
    }
    File::open(path).map_err(FileFault::reading)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::in_options;

    #[test]
    fn words_and_json_are_the_same() {
        for (text, json) in [
            ("off", "null"),
            ("src=/dev/urandom", r#"{"src": "/dev/urandom"}"#),
            (
                "src=a,bw_size=1K,bw_refill_time=100",
                r#"{"src": "a", "rate_limiter_config": {"bandwidth": {"size": 1024, "refill_time": 100}}}"#,
            ),
        ] {
            let rng: Option<RngOption> = serde_json::from_str(json).unwrap();
            assert_eq!(RngOption::parse(text), Ok(rng), "{text}");
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        let parse = |text: &str| in_options(|| RngOption::parse(text).unwrap_err().to_string());
        assert!(parse("src=a,bw_size=0,bw_refill_time=1").starts_with("--rng bw_size=0: must be"));
        let never: RngOption =
            serde_json::from_str(r#"{"src": "a", "rate_limiter_config": {"ops": {"size": 0, "refill_time": 1}}}"#)
                .unwrap();
        let error = never.check().unwrap_err().within(OPTION).to_string();
        assert_eq!(error, "rng.rate_limiter_config.ops.size=0: must be at least 1");
    }
}
