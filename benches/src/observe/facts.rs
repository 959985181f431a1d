// SPDX-License-Identifier: Apache-2.0
//! What kind of host this is, and which versions its programs have.

use std::collections::BTreeMap;
use std::fs;
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

/// What a program finds around it: in an emulated host what is emulated.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Surroundings {
    /// `model name` of /proc/cpuinfo.
    pub cpu_model: String,
    /// Processors that are on.
    pub cpus: u32,
    /// `MemTotal`.
    pub memory_bytes: u64,
    /// Kernel release.
    pub kernel: String,
    /// The chosen word of `/sys/kernel/mm/transparent_hugepage/enabled`, or `none`.
    pub thp: String,
    /// Width of a physical address.
    pub physical_address_bits: u32,
    /// First line that each program prints for `--version`.
    pub versions: BTreeMap<String, String>,
}

/// Looks around. `programs` are asked for their versions; one that says nothing is left out.
#[must_use]
pub fn surroundings(programs: &[String]) -> Surroundings {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let cpuinfo = read("/proc/cpuinfo");
    let memory =
        value(&read("/proc/meminfo"), "MemTotal").and_then(|text| text.trim_end_matches(" kB").parse::<u64>().ok());
    Surroundings {
        cpu_model: value(&cpuinfo, "model name").unwrap_or("unknown").to_owned(),
        cpus: u32::try_from(cpuinfo.lines().filter(|line| line.starts_with("processor")).count()).unwrap_or(0),
        memory_bytes: memory.unwrap_or(0) * 1024,
        kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
        thp: chosen(&read("/sys/kernel/mm/transparent_hugepage/enabled")),
        physical_address_bits: address_bits(&cpuinfo),
        versions: programs.iter().filter_map(|program| Some((program.clone(), version(program)?))).collect(),
    }
}

/// `name : value`
fn value<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines()
        .find_map(|line| line.split_once(':').filter(|(key, _)| key.trim() == name))
        .map(|(_, value)| value.trim())
}

fn chosen(words: &str) -> String {
    let word = words.split_whitespace().find_map(|word| word.strip_prefix('[')?.strip_suffix(']'));
    word.unwrap_or("none").to_owned()
}

/// Of "address sizes : 40 bits physical, 48 bits virtual"; 36 bits is what every x86-64 processor has.
fn address_bits(cpuinfo: &str) -> u32 {
    let sizes = value(cpuinfo, "address sizes").and_then(|text| text.split_once(" bits physical"));
    sizes.and_then(|(bits, _)| bits.trim().parse().ok()).unwrap_or(36)
}

fn version(program: &str) -> Option<String> {
    let output = Command::new(program).arg("--version").stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().map(str::trim).find(|line| !line.is_empty()).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_proc_are_read() {
        let cpuinfo = "processor\t: 0\nmodel name\t: A : B\naddress sizes\t: 46 bits physical, 57 bits virtual\n";
        assert_eq!(value(cpuinfo, "model name"), Some("A : B"));
        assert_eq!((address_bits(cpuinfo), address_bits("x")), (46, 36));
        assert_eq!((chosen("always [madvise] never\n").as_str(), chosen("").as_str()), ("madvise", "none"));
    }

    #[test]
    fn this_host_has_facts() {
        let here = surroundings(&["/nonexistent".to_owned()]);
        assert!(
            here.cpus > 0 && here.memory_bytes > 0 && !here.kernel.is_empty() && here.versions.is_empty(),
            "{here:?}"
        );
    }
}
