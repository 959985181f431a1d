// SPDX-License-Identifier: Apache-2.0
//! Parts of memory, each backed in its own way.

use serde::{Deserialize, Serialize};

use super::field::FieldError;
use super::options::{OptionError, Options, parse_number, parse_size};
use super::pages::{MUST_BE_PAGES, host_pages};
use crate::field::Field;
use crate::memory::{Backing, HostPages, MemorySize, Size};

/// Where they are in a configuration.
pub(super) const OPTION: Field = Field::section("memory.zones");
const KEYS: [&str; 6] = ["id", "size", "hugepages", "hugepage_size", "shared", "host_numa_node"];
/// The guest kernel takes twice as many pieces of memory from the SRAT; one zone can be two of them.
pub(super) const MAX_ZONES: usize = 64;
/// Linux can be built for so many nodes, and no more.
const LAST_HOST_NODE: u64 = 1023;

/// A part of memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "ZoneFields", into = "ZoneFields")]
pub struct ZoneOption {
    /// What nodes call it.
    pub id: String,
    /// Bytes of it: a multiple of the pages that back it.
    pub size: u64,
    /// What backs it.
    pub backing: Backing,
}

/// The same as it is written in JSON.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ZoneFields {
    id: String,
    size: u64,
    #[serde(default)]
    hugepages: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hugepage_size: Option<u64>,
    #[serde(default)]
    shared: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    host_numa_node: Option<u64>,
}

impl From<ZoneOption> for ZoneFields {
    fn from(ZoneOption { id, size, backing }: ZoneOption) -> Self {
        let Backing { pages, shared, host_node } = backing;
        let hugepage_size = pages.is_huge().then_some(pages.bytes());
        Self { id, size, hugepages: pages.is_huge(), hugepage_size, shared, host_numa_node: host_node.map(u64::from) }
    }
}

impl TryFrom<ZoneFields> for ZoneOption {
    type Error = FieldError;

    fn try_from(fields: ZoneFields) -> Result<Self, FieldError> {
        let ZoneFields { id, size, hugepages, hugepage_size, shared, host_numa_node } = fields;
        let is_name =
            |id: &str| !id.is_empty() && id.chars().all(|one| one.is_ascii_alphanumeric() || "-_.".contains(one));
        if !is_name(&id) {
            return Err(FieldError::new("id", &id, "must be a name of letters, digits, -, _ and ."));
        }
        let pages = host_pages(hugepages, hugepage_size)?;
        let step = pages.bytes().max(MemorySize::STEP);
        if size == 0 || !size.is_multiple_of(step) {
            let with = if pages == HostPages::Base { "" } else { " with these huge pages" };
            return Err(FieldError::new(
                "size",
                &size,
                &format!("must be a multiple of {:#}{with}, and not 0", Size(step)),
            ));
        }
        let host_node = match host_numa_node {
            None => None,
            Some(node) => {
                Some(host_node(node).ok_or_else(|| FieldError::new("host_numa_node", &node, &must_be_node()))?)
            }
        };
        Ok(Self { id, size, backing: Backing { pages, shared, host_node } })
    }
}

impl ZoneOption {
    /// Takes the text of `--memory-zone`.
    pub(super) fn parse(text: &str) -> Result<Self, OptionError> {
        let options = Options::parse(OPTION, text, &KEYS)?;
        let missing = || OptionError::Missing { option: OPTION, keys: "id=NAME,size=SIZE" };
        let fields = ZoneFields {
            id: options.get("id").ok_or_else(missing)?.to_owned(),
            size: options.value("size", parse_size)?.ok_or_else(missing)?,
            hugepages: options.switch("hugepages", false)?,
            hugepage_size: options.value("hugepage_size", |value| parse_size(value).map_err(|_| MUST_BE_PAGES))?,
            shared: options.switch("shared", false)?,
            host_numa_node: options.value("host_numa_node", |value| parse_number(value).ok_or_else(must_be_node))?,
        };
        Self::try_from(fields).map_err(|error| options.wrong_field(error))
    }

    /// What is wrong with it as one of several, of which `index` come before it.
    pub(super) fn wrong(&self, index: usize, must: &str) -> FieldError {
        FieldError::of(OPTION.at(index).member("id"), &self.id, must)
    }
}

fn host_node(number: u64) -> Option<u16> {
    if number <= LAST_HOST_NODE { number.try_into().ok() } else { None }
}

fn must_be_node() -> String {
    format!("must be the number of a node of the host, at most {LAST_HOST_NODE}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::in_options;

    #[test]
    fn every_key_is_taken() {
        let zone =
            ZoneOption::parse("id=a.0,size=2G,hugepages=on,hugepage_size=1G,shared=on,host_numa_node=1").unwrap();
        let backing = Backing { pages: HostPages::Huge1G, shared: true, host_node: Some(1) };
        assert_eq!(zone, ZoneOption { id: "a.0".to_owned(), size: 2 << 30, backing });
        let plain = ZoneOption::parse("id=b,size=128M").unwrap();
        assert_eq!(plain, ZoneOption { id: "b".to_owned(), size: 128 << 20, backing: Backing::default() });
    }

    #[test]
    fn wrong_values_are_named() {
        for (text, expected) in [
            ("size=1G", "--memory-zone id=NAME,size=SIZE: is missing: must be given"),
            ("id=a", "--memory-zone id=NAME,size=SIZE: is missing: must be given"),
            ("id=a b,size=1G", "--memory-zone id=a b: must be a name of letters, digits, -, _ and ."),
            ("id=a,size=0", "--memory-zone size=0: must be a multiple of 1M, and not 0"),
            ("id=a,size=1000", "--memory-zone size=1000: must be a multiple of 1M, and not 0"),
            (
                "id=a,size=1025M,hugepages=on",
                "--memory-zone size=1025M: must be a multiple of 2M with these huge pages, and not 0",
            ),
            ("id=a,size=1G,hugepage_size=2M", "--memory-zone hugepage_size=2M: must be with hugepages=on"),
            ("id=a,size=1G,shared=yes", "--memory-zone shared=yes: must be on or off"),
            (
                "id=a,size=1G,host_numa_node=1024",
                "--memory-zone host_numa_node=1024: must be the number of a node of the host, at most 1023",
            ),
            (
                "id=a,size=1G,file=/dev/shm",
                "--memory-zone file=/dev/shm: there is no key file: must be one of id, size, hugepages, hugepage_size, shared, \
                 host_numa_node",
            ),
        ] {
            assert_eq!(in_options(|| ZoneOption::parse(text).unwrap_err().to_string()), expected);
        }
    }
}
