// SPDX-License-Identifier: Apache-2.0
//! What the kernel has made of CPUID: who is who, and who shares what with whom.

use std::io;
use std::thread;

use rustix::thread::{CpuSet, sched_setaffinity};
use serde_json::{Map, Value, json};

use crate::files;
use crate::outcome::Outcome;

const CPUS: &str = "/sys/devices/system/cpu";
/// Of /proc/cpuinfo, and what they are called in the report.
const NUMBERS: [(&str, &str); 7] = [
    ("processor", "processor"),
    ("apicid", "apic_id"),
    ("initial apicid", "apic_id_of_cpuid"),
    ("physical id", "package"),
    ("core id", "core"),
    ("siblings", "threads_of_package"),
    ("cpu cores", "cores_of_package"),
];

/// Every processor's own words agree on its APIC id.
pub(crate) fn processors() -> Outcome {
    let text = files::text("/proc/cpuinfo")?;
    let mut processors: Vec<_> = text.split("\n\n").filter(|part| !part.trim().is_empty()).map(numbers).collect();
    for (index, processor) in processors.iter_mut().enumerate() {
        processor.insert("caches".to_owned(), caches(index)?);
    }
    let flags = words(&text, "flags");
    let agree = |processor: &Map<String, Value>| {
        processor.contains_key("apic_id") && processor.get("apic_id") == processor.get("apic_id_of_cpuid")
    };
    Ok((!processors.is_empty() && processors.iter().all(agree), json!({ "processors": processors, "flags": flags })))
}

/// How many there are to run on.
pub(crate) fn count() -> Result<usize, String> {
    thread::available_parallelism().map(Into::into).map_err(|error| format!("processors: {error}"))
}

/// From now on this thread runs on that one.
pub(crate) fn run_on(processor: usize) -> io::Result<()> {
    let mut own = CpuSet::new();
    own.set(processor);
    Ok(sched_setaffinity(None, &own)?)
}

/// The numbers of a processor; one that is not said is missing.
fn numbers(part: &str) -> Map<String, Value> {
    let pairs = part.lines().filter_map(|line| line.split_once(':'));
    let pairs = pairs.filter_map(|(name, value)| {
        let (_, name) = NUMBERS.iter().find(|(wanted, _)| *wanted == name.trim())?;
        Some(((*name).to_owned(), Value::from(value.trim().parse::<u64>().ok()?)))
    });
    pairs.collect()
}

/// What the first processor says in a line of that name, word by word.
fn words<'a>(text: &'a str, name: &str) -> Vec<&'a str> {
    let mut pairs = text.lines().filter_map(|line| line.split_once(':'));
    let said = pairs.find(|(found, _)| found.trim() == name).map_or("", |(_, value)| value);
    said.split_whitespace().collect()
}

/// Of each cache its level, and the processors that share it.
fn caches(processor: usize) -> Result<Value, String> {
    let directory = format!("{CPUS}/cpu{processor}/cache");
    let mut caches = Vec::new();
    for name in files::names(&directory).into_iter().filter(|name| name.starts_with("index")) {
        let level = files::number(format!("{directory}/{name}/level"))?;
        let shared = files::text(format!("{directory}/{name}/shared_cpu_list"))?;
        caches.push(json!({ "level": level, "shared": shared.trim() }));
    }
    Ok(Value::Array(caches))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_processors_words() {
        let text = "processor\t: 0\nflags\t\t: fpu svm\nbugs\t\t:\n\nprocessor\t: 1\nflags\t\t: fpu\n";
        assert_eq!(words(text, "flags"), ["fpu", "svm"]);
        assert!(words(text, "bugs").is_empty() && words(text, "vmx flags").is_empty());
    }

    #[test]
    fn what_a_processor_says() {
        let said = numbers("processor\t: 3\nvendor_id\t: AuthenticAMD\nsiblings\t: 4\napicid\t\t: 3\nflags\t\t: fpu\n");
        assert_eq!(Value::from(said), json!({ "processor": 3, "threads_of_package": 4, "apic_id": 3 }));
    }
}
