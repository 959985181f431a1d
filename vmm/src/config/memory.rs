// SPDX-License-Identifier: Apache-2.0
//! How much memory, and how the host backs it.

use super::options::{OptionError, Options, parse_number, parse_size};
use crate::memory::{AddressWidth, MAX_HOLES, MemorySize, PlanInput, Size};

const OPTION: &str = "--memory";
const KEYS: [&str; 6] = ["size", "hugepages", "shared", "thp", "prefault", "holes"];

/// Bytes of the huge pages that hugetlbfs gives by default.
const HUGE_PAGE: u64 = 2 << 20;

/// What host memory is there before the guest touches it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prefault {
    /// None.
    Off,
    /// That of the memmap's arenas.
    Arenas,
}

/// Where transparent huge pages are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Thp {
    /// Nowhere.
    Off,
    /// Where they pay at boot: behind the kernel and the memmap's arenas.
    Early,
    /// Behind all memory: fewer page faults for a guest that uses it all, 2 MiB of the host's for each page touched alone.
    All,
}

/// How much memory, and how the host backs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryConfig {
    /// All of the VM's RAM.
    pub size: MemorySize,
    /// Huge pages from the host's reserved pool (hugetlbfs); then the size is a multiple of 2 MiB.
    pub hugepages: bool,
    /// Backed by a file that other processes can map (memfd), not by anonymous memory.
    pub shared: bool,
    /// Where to ask the host for transparent huge pages.
    pub thp: Thp,
    /// What host memory is there before the guest touches it.
    pub prefault: Prefault,
    /// Gaps cut into the memory above 4 GiB, at most [`MAX_HOLES`].
    pub holes: u16,
}

impl MemoryConfig {
    /// Takes the text of `--memory`.
    pub fn parse(text: &str) -> Result<Self, OptionError> {
        let options = Options::parse(OPTION, text, &KEYS)?;
        let hugepages = options.switch("hugepages", false)?;
        let size = options.value("size", |value| parse_memory_size(value, hugepages))?;
        let prefault = options.value("prefault", |value| match value {
            "off" => Ok(Prefault::Off),
            "arenas" => Ok(Prefault::Arenas),
            _ => Err("must be off or arenas"),
        })?;
        let thp = options.value("thp", |value| match value {
            "off" => Ok(Thp::Off),
            "on" => Ok(Thp::Early),
            "all" => Ok(Thp::All),
            _ => Err("must be on, off or all"),
        })?;
        Ok(Self {
            size: size.ok_or(OptionError::Missing { option: OPTION, keys: "size=SIZE" })?,
            hugepages,
            shared: options.switch("shared", false)?,
            thp: thp.unwrap_or(Thp::Early),
            prefault: prefault.unwrap_or(Prefault::Off),
            holes: options.value("holes", parse_holes)?.unwrap_or(0),
        })
    }

    /// What the memory plan follows from, with guest physical addresses of that width.
    #[must_use]
    pub const fn plan_input(&self, address_width: AddressWidth) -> PlanInput {
        PlanInput { size: self.size, holes: self.holes, hugepages: self.hugepages, address_width }
    }
}

fn parse_memory_size(value: &str, hugepages: bool) -> Result<MemorySize, String> {
    let bytes = parse_size(value)?;
    let size = MemorySize::try_from(bytes).map_err(|must| must.to_string())?;
    if hugepages && !bytes.is_multiple_of(HUGE_PAGE) {
        return Err(format!("must be a multiple of {:#} with hugepages=on", Size(HUGE_PAGE)));
    }
    Ok(size)
}

fn parse_holes(value: &str) -> Result<u16, String> {
    let holes = parse_number(value).and_then(|number| u16::try_from(number).ok());
    holes.filter(|holes| *holes <= MAX_HOLES).ok_or_else(|| format!("must be a number, at most {MAX_HOLES}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_those_of_an_ordinary_vm() {
        let memory = MemoryConfig::parse("size=1G").unwrap();
        let expected = MemoryConfig {
            size: MemorySize::try_from(1 << 30).unwrap(),
            hugepages: false,
            shared: false,
            thp: Thp::Early,
            prefault: Prefault::Off,
            holes: 0,
        };
        assert_eq!(memory, expected);
        let all = MemoryConfig::parse("size=64G,hugepages=on,shared=on,thp=off,prefault=arenas,holes=63").unwrap();
        assert_eq!(all.holes, 63);
        assert!(all.hugepages && all.shared && all.thp == Thp::Off && all.prefault == Prefault::Arenas);
    }

    #[test]
    fn wrong_values_are_named() {
        for (text, expected) in [
            ("size=0", "--memory size=0: must be at least 64M"),
            ("size=63M", "--memory size=63M: must be at least 64M"),
            ("size=67108865", "--memory size=67108865: must be a multiple of 1M"),
            ("size=65M,hugepages=on", "--memory size=65M: must be a multiple of 2M with hugepages=on"),
            (
                "size=lots",
                "--memory size=lots: must be a number of bytes, with K, M, G or T after it for 2^10, 2^20, 2^30 or 2^40 of them",
            ),
            ("thp=on", "--memory size=SIZE: is missing: must be given"),
            ("size=1G,prefault=on", "--memory prefault=on: must be off or arenas"),
            ("size=1G,holes=125", "--memory holes=125: must be a number, at most 124"),
            ("size=1G,holes=-1", "--memory holes=-1: must be a number, at most 124"),
            ("size=1G,shared=1", "--memory shared=1: must be on or off"),
            (
                "size=1G,mergeable=on",
                "--memory mergeable=on: there is no key mergeable: must be one of size, hugepages, shared, thp, prefault, holes",
            ),
        ] {
            assert_eq!(MemoryConfig::parse(text).unwrap_err().to_string(), expected);
        }
    }
}
