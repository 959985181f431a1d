// SPDX-License-Identifier: Apache-2.0
//! How many vCPUs.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::error::FieldError;
use super::options::{OptionError, Options, parse_number};

/// How many vCPUs a VM has: 1 to 255.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub struct CpuCount(u8);

/// A number that is none of 1 to 255.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be a number of vCPUs, 1 to 255")]
pub struct NoCpuCount;

impl CpuCount {
    /// The number, 1 to 255.
    #[must_use]
    pub const fn get(self) -> u8 {
        self.0
    }
}

/// The vCPUs, and what their threads do before the guest runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "CpusFields", into = "CpusFields")]
pub struct CpusConfig {
    /// How many.
    pub boot: CpuCount,
    /// Whether their threads back what the guest touches first while they wait for their start.
    pub early: bool,
    /// Whether the guest may run VMs of its own, where the host's KVM can.
    pub nested: bool,
}

/// The same as it is written in JSON.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct CpusFields {
    boot_vcpus: CpuCount,
    /// How many there could be. There are never more than at the beginning, but who asks for none is given what there is.
    max_vcpus: Option<u32>,
    early: bool,
    nested: bool,
}

impl Default for CpusFields {
    fn default() -> Self {
        let CpusConfig { boot, early, nested } = CpusConfig::default();
        Self { boot_vcpus: boot, max_vcpus: None, early, nested }
    }
}

impl From<CpusConfig> for CpusFields {
    fn from(CpusConfig { boot, early, nested }: CpusConfig) -> Self {
        Self { boot_vcpus: boot, max_vcpus: Some(boot.get().into()), early, nested }
    }
}

impl TryFrom<CpusFields> for CpusConfig {
    type Error = FieldError;

    fn try_from(fields: CpusFields) -> Result<Self, FieldError> {
        let CpusFields { boot_vcpus: boot, max_vcpus, early, nested } = fields;
        match max_vcpus {
            Some(max) if max < boot.get().into() => {
                Err(FieldError::new("max_vcpus", &max, &format!("must be at least boot_vcpus, {boot}")))
            }
            _ => Ok(Self { boot, early, nested }),
        }
    }
}

impl Default for CpusConfig {
    fn default() -> Self {
        Self { boot: CpuCount(1), early: true, nested: true }
    }
}

impl CpusConfig {
    /// Takes the text of `--cpus`.
    pub fn parse(text: &str) -> Result<Self, OptionError> {
        let options = Options::parse("--cpus", text, &["boot", "early", "nested"])?;
        let boot = options.value("boot", |value| {
            parse_number(value)
                .and_then(|number| u8::try_from(number).ok())
                .and_then(|number| CpuCount::try_from(number).ok())
                .ok_or(NoCpuCount)
        })?;
        Ok(Self {
            boot: boot.ok_or(OptionError::Missing { option: "--cpus", keys: "boot=N" })?,
            early: options.switch("early", true)?,
            nested: options.switch("nested", true)?,
        })
    }
}

impl TryFrom<u8> for CpuCount {
    type Error = NoCpuCount;

    fn try_from(number: u8) -> Result<Self, NoCpuCount> {
        if number == 0 { Err(NoCpuCount) } else { Ok(Self(number)) }
    }
}

impl From<CpuCount> for u8 {
    fn from(count: CpuCount) -> Self {
        count.0
    }
}

impl fmt::Display for CpuCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_to_255() {
        for (text, count) in [("boot=1", 1), ("boot=255", 255)] {
            let cpus = CpusConfig::parse(text).unwrap();
            assert_eq!((cpus.boot.get(), cpus.early, cpus.nested), (count, true, true));
        }
        for value in ["0", "256", "-1", "4.0", "four", "18446744073709551617"] {
            assert_eq!(
                CpusConfig::parse(&format!("boot={value}")).unwrap_err().to_string(),
                format!("--cpus boot={value}: must be a number of vCPUs, 1 to 255")
            );
        }
        assert_eq!(
            CpusConfig::parse("max=4").unwrap_err().to_string(),
            "--cpus max=4: there is no key max: must be one of boot, early, nested"
        );
        assert_eq!(
            CpusConfig::parse("4").unwrap_err().to_string(),
            "--cpus 4: must be written KEY=VALUE; the keys are boot, early, nested"
        );
    }

    #[test]
    fn early_work_and_nesting_can_be_switched_off() {
        assert!(!CpusConfig::parse("boot=2,nested=off").unwrap().nested);
        assert!(!CpusConfig::parse("boot=2,early=off").unwrap().early);
        for (text, expected) in [
            ("boot=2,early=no", "--cpus early=no: must be on or off"),
            ("early=off", "--cpus boot=N: is missing: must be given"),
        ] {
            assert_eq!(CpusConfig::parse(text).unwrap_err().to_string(), expected);
        }
    }
}
