// SPDX-License-Identifier: Apache-2.0
//! How much memory, and how the host backs it.

use std::collections::HashSet;

use flatboot_handoff::SECTION_SIZE;
use serde::{Deserialize, Serialize};

use super::field::FieldError;
use super::options::{OptionError, Options, parse_size};
use super::pages::{MUST_BE_PAGES, host_pages};
use super::zone::{self, MAX_ZONES, ZoneOption};
use crate::field::Field;
use crate::memory::{Backing, HostPages, MemorySize, Size, Thp};

const OPTION: Field = Field::section("memory");
const MAX: Field = OPTION.member("max");
/// What the only zone is called where nothing is said of any.
const ZONE: &str = "mem0";
const KEYS: [&str; 8] = ["size", "max", "hotplug_size", "hugepages", "hugepage_size", "shared", "thp", "prefault"];

/// How much memory, and how the host backs it.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "MemoryFields", into = "MemoryFields")]
pub struct MemoryConfig {
    /// All of the RAM that the VM starts with: a multiple of the pages that back it.
    pub size: MemorySize,
    /// The most that it can have while it runs, if that can change: more than `size` by whole sections.
    pub max: Option<MemorySize>,
    /// What backs it, where it has no parts.
    pub backing: Backing,
    /// Its parts, which add up to its size.
    pub zones: Vec<ZoneOption>,
    /// Where to ask the host for transparent huge pages.
    pub thp: Thp,
    /// Whether all of it is backed before the guest runs.
    pub prefault: bool,
}

/// The same as it is written, as options or as JSON: each value by itself is possible, together they may not be.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct MemoryFields {
    /// None, or 0, is what the zones have together.
    size: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max: Option<u64>,
    /// Cloud Hypervisor's spelling of `max`: how much more than `size` it is. 0 is nothing.
    #[serde(skip_serializing)]
    hotplug_size: Option<u64>,
    hugepages: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    hugepage_size: Option<u64>,
    shared: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    zones: Vec<ZoneOption>,
    thp: Thp,
    prefault: bool,
}

impl From<MemoryConfig> for MemoryFields {
    fn from(memory: MemoryConfig) -> Self {
        let MemoryConfig { size, max, backing: Backing { pages, shared, .. }, zones, thp, prefault } = memory;
        let hugepage_size = pages.is_huge().then_some(pages.bytes());
        // Zones say it all.
        let size = Some(if zones.is_empty() { size.bytes() } else { 0 });
        let max = max.map(MemorySize::bytes);
        Self { size, max, hotplug_size: None, hugepages: pages.is_huge(), hugepage_size, shared, zones, thp, prefault }
    }
}

impl TryFrom<MemoryFields> for MemoryConfig {
    type Error = FieldError;

    fn try_from(fields: MemoryFields) -> Result<Self, FieldError> {
        let pages = host_pages(fields.hugepages, fields.hugepage_size)?;
        let size = if fields.zones.is_empty() {
            memory_size(fields.size.unwrap_or(MemorySize::default().bytes()), pages)?
        } else {
            zoned_size(&fields)?
        };
        let max = most(&fields, size)?;
        let MemoryFields { shared, zones, thp, prefault, .. } = fields;
        let backing = Backing { pages, shared, host_node: None };
        Ok(Self { size, max, backing, zones, thp, prefault })
    }
}

impl MemoryConfig {
    /// Takes the text of `--memory`, and of each `--memory-zone`.
    pub fn parse(text: &str, zones: &[String]) -> Result<Self, OptionError> {
        let options = Options::parse(OPTION, text, &KEYS)?;
        let size = options.value("size", parse_size)?;
        if size.is_none() && zones.is_empty() {
            return Err(OptionError::Missing { option: OPTION, keys: "size=SIZE" });
        }
        let fields = MemoryFields {
            size,
            max: options.value("max", parse_size)?,
            hotplug_size: options.value("hotplug_size", parse_size)?,
            hugepages: options.switch("hugepages", false)?,
            hugepage_size: options.value("hugepage_size", |value| parse_size(value).map_err(|_| MUST_BE_PAGES))?,
            shared: options.switch("shared", false)?,
            zones: zones.iter().map(|zone| ZoneOption::parse(zone)).collect::<Result<_, _>>()?,
            thp: options.value("thp", parse_thp)?.unwrap_or_default(),
            prefault: options.switch("prefault", false)?,
        };
        Self::try_from(fields).map_err(|error| options.wrong_field(error))
    }

    /// Bytes that it can have beyond what it starts with.
    #[must_use]
    pub const fn held(&self) -> u64 {
        match self.max {
            Some(max) => max.bytes() - self.size.bytes(),
            None => 0,
        }
    }

    /// Whether the rest of the VM lets its memory grow: its payload is `firmware`, it has so many `nodes`, and a `hand_off` says what
    /// could be there.
    pub(super) fn check_max(&self, firmware: bool, nodes: usize, hand_off: bool) -> Result<(), FieldError> {
        let Some(max) = self.max.filter(|_| self.held() > 0) else { return Ok(()) };
        let wrong = |must: &str| Err(FieldError::of(MAX, &format_args!("{max:#}"), must));
        if firmware {
            return wrong("must be absent with firmware, which does not know memory that is not there yet");
        }
        if nodes > 1 {
            return wrong("must be absent with more than one NUMA node");
        }
        if !hand_off {
            return wrong("must be absent with handoff=off: the hand-off is what tells the kernel of it");
        }
        Ok(())
    }

    /// Its parts; all of it where nothing is said of any.
    #[must_use]
    pub fn zones(&self) -> Vec<ZoneOption> {
        if !self.zones.is_empty() {
            return self.zones.clone();
        }
        vec![ZoneOption { id: ZONE.to_owned(), size: self.size.bytes(), backing: self.backing }]
    }
}

fn memory_size(bytes: u64, pages: HostPages) -> Result<MemorySize, FieldError> {
    let wrong = |must: &str| FieldError::new("size", &bytes, must);
    let size = MemorySize::try_from(bytes).map_err(|must| wrong(&must.to_string()))?;
    if !bytes.is_multiple_of(pages.bytes()) {
        let by = if pages == HostPages::Huge1G { "hugepage_size=1G" } else { "hugepages=on" };
        return Err(wrong(&format!("must be a multiple of {:#} with {by}", Size(pages.bytes()))));
    }
    Ok(size)
}

/// The most that memory of `size` can become, whichever way that is written.
fn most(fields: &MemoryFields, size: MemorySize) -> Result<Option<MemorySize>, FieldError> {
    let more = fields.hotplug_size.filter(|more| *more != 0);
    let (name, value, max) = match (fields.max, more) {
        (None, None) => return Ok(None),
        (Some(max), None) => ("max", max, Some(max)),
        (None, Some(more)) => ("hotplug_size", more, size.bytes().checked_add(more)),
        (Some(_), Some(more)) => {
            let must = "must be absent with max, of which it is another spelling";
            return Err(FieldError::new("hotplug_size", &more, must));
        }
    };
    let wrong = |must: &str| Err(FieldError::new(name, &value, must));
    for (on, of) in
        [(!fields.zones.is_empty(), "zones"), (fields.hugepages, "hugepages=on"), (fields.shared, "shared=on")]
    {
        if on {
            return wrong(&format!("must be absent with {of}"));
        }
    }
    let fits = |max: &u64| max.checked_sub(size.bytes()).is_some_and(|more| more.is_multiple_of(SECTION_SIZE));
    match max.filter(fits).map(MemorySize::try_from) {
        Some(Ok(max)) => Ok(Some(max)),
        _ if name == "max" => {
            wrong(&format!("must be more than size, {size:#}, by a multiple of {:#}", Size(SECTION_SIZE)))
        }
        _ => wrong(&format!("must be a multiple of {:#}", Size(SECTION_SIZE))),
    }
}

/// The size of all zones together; what they say of themselves cannot be said of all.
fn zoned_size(fields: &MemoryFields) -> Result<MemorySize, FieldError> {
    const EACH: &str = "must be off with zones, each of which has its own";
    if let Some(size) = fields.size.filter(|size| *size != 0) {
        return Err(FieldError::new("size", &size, "must be absent or 0 with zones, whose sizes add up"));
    }
    for (field, on) in [("hugepages", fields.hugepages), ("shared", fields.shared)] {
        if on {
            return Err(FieldError::new(field, &"on", EACH));
        }
    }
    // Before anybody compares them with one another.
    if let Some(zone) = fields.zones.get(MAX_ZONES) {
        return Err(zone.wrong(MAX_ZONES, &format!("must be one of at most {MAX_ZONES} zones")));
    }
    let mut seen = HashSet::new();
    let mut sum = 0u64;
    for (index, zone) in fields.zones.iter().enumerate() {
        let wrong = |must: &str| zone.wrong(index, must);
        if !seen.insert(zone.id.as_str()) {
            return Err(wrong("is the id of two zones: must be the id of one"));
        }
        sum = sum.checked_add(zone.size).ok_or_else(|| wrong("makes all zones together too large: must be less"))?;
    }
    MemorySize::try_from(sum)
        .map_err(|must| FieldError::without_value(zone::OPTION, &format!("all together have {:#}: {must}", Size(sum))))
}

fn parse_thp(value: &str) -> Result<Thp, &'static str> {
    match value {
        "off" => Ok(Thp::Off),
        "on" => Ok(Thp::Early),
        "all" => Ok(Thp::All),
        _ => Err("must be on, off or all"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::in_options;

    fn said(parsed: Result<MemoryConfig, OptionError>) -> String {
        in_options(|| parsed.unwrap_err().to_string())
    }

    #[test]
    fn defaults_are_those_of_an_ordinary_vm() {
        let memory = MemoryConfig::parse("size=1G", &[]).unwrap();
        let expected = MemoryConfig {
            size: MemorySize::try_from(1 << 30).unwrap(),
            max: None,
            backing: Backing::default(),
            zones: vec![],
            thp: Thp::Early,
            prefault: false,
        };
        assert_eq!(memory, expected);
    }

    #[test]
    fn every_key_is_taken() {
        let text = "size=64G,hugepages=on,hugepage_size=2M,shared=on,thp=off,prefault=on";
        let memory = MemoryConfig::parse(text, &[]).unwrap();
        let expected = MemoryConfig {
            size: MemorySize::try_from(64 << 30).unwrap(),
            max: None,
            backing: Backing { pages: HostPages::Huge2M, shared: true, host_node: None },
            zones: vec![],
            thp: Thp::Off,
            prefault: true,
        };
        assert_eq!(memory, expected);
    }

    /// Before anybody looks at their sizes, or compares them.
    #[test]
    fn there_are_so_many_zones_at_most() {
        let zones = |count| (0..count).map(|zone| format!("id=z{zone},size=128M")).collect::<Vec<_>>();
        assert_eq!(MemoryConfig::parse("size=0", &zones(64)).unwrap().zones.len(), 64);
        let error = said(MemoryConfig::parse("size=0", &zones(65)));
        assert!(error.ends_with("z64: must be one of at most 64 zones"), "{error}");
    }

    #[test]
    fn pool_pages_have_two_sizes() {
        for (text, pages) in [
            ("size=1G,hugepages=on", HostPages::Huge2M),
            ("size=1G,hugepages=on,hugepage_size=2M", HostPages::Huge2M),
            ("size=1G,hugepages=on,hugepage_size=1G", HostPages::Huge1G),
            ("size=1G,hugepages=on,hugepage_size=1073741824", HostPages::Huge1G),
            ("size=1G,hugepages=off", HostPages::Base),
        ] {
            assert_eq!(MemoryConfig::parse(text, &[]).unwrap().backing.pages, pages, "{text}");
        }
    }

    #[test]
    fn wrong_values_are_named() {
        for (text, expected) in [
            ("size=0", "--memory size=0: must be at least 64M"),
            ("size=63M", "--memory size=63M: must be at least 64M"),
            ("size=67108865", "--memory size=67108865: must be a multiple of 1M"),
            ("size=65M,hugepages=on", "--memory size=65M: must be a multiple of 2M with hugepages=on"),
            (
                "size=1026M,hugepages=on,hugepage_size=1G",
                "--memory size=1026M: must be a multiple of 1G with hugepage_size=1G",
            ),
            (
                "size=lots",
                "--memory size=lots: must be a number of bytes, with K, M, G or T after it for 2^10, 2^20, 2^30 or 2^40 of them",
            ),
            ("thp=on", "--memory size=SIZE: is missing: must be given"),
            ("size=1G,prefault=yes", "--memory prefault=yes: must be on or off"),
            ("size=1G,hugepages=on,hugepage_size=4M", "--memory hugepage_size=4M: must be 2M or 1G"),
            ("size=1G,hugepage_size=2M", "--memory hugepage_size=2M: must be with hugepages=on"),
            ("size=1G,shared=1", "--memory shared=1: must be on or off"),
            (
                "size=1G,mergeable=on",
                "--memory mergeable=on: there is no key mergeable: must be one of size, max, hotplug_size, hugepages, \
                 hugepage_size, shared, thp, prefault",
            ),
        ] {
            assert_eq!(said(MemoryConfig::parse(text, &[])), expected);
        }
    }

    #[test]
    fn memory_that_can_grow_has_two_spellings() {
        for text in ["size=1G,max=1T", "size=1G,hotplug_size=1023G"] {
            let memory = MemoryConfig::parse(text, &[]).unwrap();
            assert_eq!((memory.max.map(MemorySize::bytes), memory.held()), (Some(1 << 40), 1023 << 30), "{text}");
            let json = serde_json::to_value(&memory).unwrap();
            assert_eq!((&json["max"], json.get("hotplug_size")), (&(1u64 << 40).into(), None));
            assert_eq!(serde_json::from_value::<MemoryConfig>(json).unwrap(), memory);
        }
        let json = r#"{"size": 1073741824, "hotplug_size": 134217728}"#;
        assert_eq!(serde_json::from_str::<MemoryConfig>(json).unwrap().held(), 128 << 20);
        for text in ["size=1G,hotplug_size=0", "size=1G,max=1G", "size=1G"] {
            assert_eq!(MemoryConfig::parse(text, &[]).unwrap().held(), 0, "{text}");
        }
    }

    #[test]
    fn memory_that_cannot_grow_is_said() {
        for (text, expected) in [
            ("size=1G,max=512M", "--memory max=512M: must be more than size, 1G, by a multiple of 128M"),
            ("size=1G,max=1100M", "--memory max=1100M: must be more than size, 1G, by a multiple of 128M"),
            ("size=1G,hotplug_size=1M", "--memory hotplug_size=1M: must be a multiple of 128M"),
            (
                "size=1G,max=2G,hotplug_size=1G",
                "--memory hotplug_size=1G: must be absent with max, of which it is another spelling",
            ),
            ("size=1G,max=2G,hugepages=on", "--memory max=2G: must be absent with hugepages=on"),
            ("size=1G,max=2G,shared=on", "--memory max=2G: must be absent with shared=on"),
        ] {
            assert_eq!(said(MemoryConfig::parse(text, &[])), expected);
        }
        let zoned = MemoryConfig::parse("max=2G", &["id=a,size=1G".to_owned()]);
        assert_eq!(said(zoned), "--memory max=2G: must be absent with zones");
        let memory = MemoryConfig::parse("size=1G,max=2G", &[]).unwrap();
        for (firmware, nodes, hand_off, expected) in [
            (true, 1, true, "memory.max=2G: must be absent with firmware, "),
            (false, 2, true, "memory.max=2G: must be absent with more than one NUMA node"),
            (false, 1, false, "memory.max=2G: must be absent with handoff=off: "),
        ] {
            let error = memory.check_max(firmware, nodes, hand_off).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
        assert_eq!(memory.check_max(false, 1, true), Ok(()));
        assert_eq!(MemoryConfig::parse("size=1G", &[]).unwrap().check_max(true, 2, false), Ok(()));
    }

    #[test]
    fn zones_add_up_and_say_it_all() {
        let zones = ["id=a,size=128M,shared=on".to_owned(), "id=b,size=1G".to_owned()];
        let memory = MemoryConfig::parse("size=0,thp=all", &zones).unwrap();
        assert_eq!((memory.size.bytes(), memory.zones().len(), memory.thp), (1152 << 20, 2, Thp::All));
        let json = serde_json::to_value(&memory).unwrap();
        assert_eq!((&json["size"], &json["zones"][1]["id"]), (&0.into(), &"b".into()));
        assert_eq!(serde_json::from_value::<MemoryConfig>(json).unwrap(), memory);
        for (text, expected) in [
            ("size=1152M", "--memory size=1152M: must be absent or 0 with zones, whose sizes add up"),
            ("size=0,hugepages=on", "--memory hugepages=on: must be off with zones, each of which has its own"),
            ("size=0,shared=on", "--memory shared=on: must be off with zones, each of which has its own"),
        ] {
            assert_eq!(said(MemoryConfig::parse(text, &zones)), expected);
        }
        for (zones, expected) in [
            (["id=a,size=1G", "id=a,size=1G"], "--memory-zone id=a: is the id of two zones: must be the id of one"),
            (["id=a,size=16M", "id=b,size=16M"], "--memory-zone: all together have 32M: must be at least 64M"),
            (
                ["id=a,size=16777215T", "id=b,size=16777215T"],
                "--memory-zone id=b: makes all zones together too large: must be less",
            ),
        ] {
            assert_eq!(said(MemoryConfig::parse("size=0", &zones.map(str::to_owned))), expected);
        }
        let unsaid = MemoryConfig::parse("thp=all", &["id=a,size=1G".to_owned()]).unwrap();
        assert_eq!((unsaid.size.bytes(), unsaid.thp), (1 << 30, Thp::All));
        let json = serde_json::from_str::<MemoryConfig>(r#"{"zones": [{"id": "a", "size": 1073741824}]}"#).unwrap();
        assert_eq!(json.size.bytes(), 1 << 30);
        let alone = MemoryConfig::parse("size=1G,shared=on", &[]).unwrap().zones();
        assert_eq!((alone[0].id.as_str(), alone[0].size, alone[0].backing.shared), ("mem0", 1 << 30, true));
    }
}
