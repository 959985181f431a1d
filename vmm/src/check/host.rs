// SPDX-License-Identifier: Apache-2.0
//! What a host has beside KVM that makes VMs faster, or that an option needs; and what it costs if it is not there.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use io_uring::IoUring;
use serde::Serialize;

use crate::memory::Size;
use crate::sandbox;

/// Something that a host may have.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Fact {
    /// What it is.
    pub name: &'static str,
    /// What there is of it.
    pub found: String,
    /// What that costs; none if nothing is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub costs: Option<&'static str>,
}

impl Fact {
    pub(super) fn new(name: &'static str, found: impl Into<String>, costs: Option<&'static str>) -> Self {
        Self { name, found: found.into(), costs }
    }
}

/// All of them, of the host whose files are below `root`.
pub(super) fn facts(root: &Path) -> Vec<Fact> {
    vec![
        transparent_huge_pages(root),
        huge_page_defrag(root),
        huge_page_pools(root),
        overcommit(root),
        nodes(root),
        nested(root),
        device(root, "network", "dev/net/tun", "--net tap= is refused: passt needs no such device"),
        device(root, "vhost", "dev/vhost-net", "flatboot moves network frames itself, which takes more CPU time"),
        io_uring(),
        landlock(),
    ]
}

pub(super) fn text(root: &Path, path: &str) -> Option<String> {
    fs::read_to_string(root.join(path)).ok().map(|text| text.trim().to_owned())
}

/// Documentation/admin-guide/mm/transhuge.rst: the value in brackets is in effect.
fn huge_page_setting(root: &Path, file: &str) -> String {
    let all = text(root, &format!("sys/kernel/mm/transparent_hugepage/{file}")).unwrap_or_default();
    let value = all.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map_or("none", |(value, _)| value);
    value.to_owned()
}

fn transparent_huge_pages(root: &Path) -> Fact {
    let value = huge_page_setting(root, "enabled");
    let costs = "guest memory comes in pages of 4 KiB: boots take longer, and use more CPU time";
    let lacks = !["always", "madvise"].contains(&&*value);
    Fact::new("transparent huge pages", value, lacks.then_some(costs))
}

/// Whether the host makes room for a huge page when guest memory is touched.
fn huge_page_defrag(root: &Path) -> Fact {
    let value = huge_page_setting(root, "defrag");
    let costs = "guest memory comes in pages of 4 KiB where no huge page is free";
    let lacks = !["always", "defer+madvise", "madvise"].contains(&&*value);
    Fact::new("huge page defrag", value, lacks.then_some(costs))
}

/// Documentation/admin-guide/mm/hugetlbpage.rst.
fn huge_page_pools(root: &Path) -> Fact {
    let directory = "sys/kernel/mm/hugepages";
    let entries = fs::read_dir(root.join(directory)).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut pools: Vec<(u64, u64)> = names
        .filter_map(|name| {
            let kib: u64 = name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
            Some((kib, text(root, &format!("{directory}/{name}/free_hugepages"))?.parse().ok()?))
        })
        .collect();
    pools.sort_unstable();
    let found: Vec<_> = pools.iter().map(|(kib, free)| format!("{free} free of {:#}", Size(kib << 10))).collect();
    let none = pools.iter().all(|(_, free)| *free == 0);
    let found = if found.is_empty() { "none".to_owned() } else { found.join(", ") };
    Fact::new("huge page pools", found, none.then_some("--memory hugepages=on is refused"))
}

/// Documentation/mm/overcommit-accounting.rst.
fn overcommit(root: &Path) -> Fact {
    let mode = text(root, "proc/sys/vm/overcommit_memory").unwrap_or_default();
    let (found, costs) = match mode.as_str() {
        "2" => ("never", Some("all memory of a VM counts when it starts, not what it has touched")),
        "1" => ("always", None),
        "0" => ("as usual", None),
        _ => ("unknown", None),
    };
    Fact::new("memory overcommit", found, costs)
}

fn nodes(root: &Path) -> Fact {
    let online = text(root, "sys/devices/system/node/has_memory").unwrap_or_else(|| "0".to_owned());
    let is_one = online.bytes().all(|byte| byte.is_ascii_digit());
    let costs = "--memory-zone host_numa_node= can be no other node";
    Fact::new("NUMA nodes with memory", online, is_one.then_some(costs))
}

/// Of the processor's module, which says `Y`, `N`, `1` or `0`.
fn nested(root: &Path) -> Fact {
    let modules = ["kvm_intel", "kvm_amd"];
    let value = modules.iter().find_map(|module| text(root, &format!("sys/module/{module}/parameters/nested")));
    let on = matches!(value.as_deref(), Some("Y" | "1"));
    // The option hides what there is, and cannot add to it.
    let costs = "guests cannot run VMs of their own, whatever --cpus nested= says";
    Fact::new("nested virtualization", if on { "on" } else { "off" }, (!on).then_some(costs))
}

fn device(root: &Path, name: &'static str, path: &str, costs: &'static str) -> Fact {
    match File::options().read(true).write(true).open(root.join(path)) {
        Ok(_) => Fact::new(name, format!("/{path} opens"), None),
        Err(error) => Fact::new(name, format!("/{path}: {}", reason(&error)), Some(costs)),
    }
}

fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "missing".to_owned(),
        io::ErrorKind::PermissionDenied => "no permission".to_owned(),
        _ => error.to_string(),
    }
}

fn io_uring() -> Fact {
    match IoUring::new(1) {
        Ok(_) => Fact::new("io_uring", "works", None),
        Err(error) => Fact::new("io_uring", reason(&error), Some("disks are read and written by threads")),
    }
}

fn landlock() -> Fact {
    let there = sandbox::has_landlock();
    let found = if there { "works" } else { "missing" };
    Fact::new("Landlock", found, (!there).then_some("--landlock is refused"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A host with these files.
    fn host(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, content) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        root
    }

    fn of(root: &tempfile::TempDir, name: &str) -> (String, bool) {
        let fact = facts(root.path()).into_iter().find(|fact| fact.name == name).unwrap();
        (fact.found, fact.costs.is_some())
    }

    #[test]
    fn a_host_with_everything_lacks_nothing() {
        let host = host(&[
            ("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n"),
            ("sys/kernel/mm/transparent_hugepage/defrag", "always defer [defer+madvise] madvise never\n"),
            ("sys/kernel/mm/hugepages/hugepages-1048576kB/free_hugepages", "0\n"),
            ("sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "512\n"),
            ("proc/sys/vm/overcommit_memory", "1\n"),
            ("sys/devices/system/node/has_memory", "0-1\n"),
            ("sys/module/kvm_intel/parameters/nested", "Y\n"),
            ("dev/net/tun", ""),
            ("dev/vhost-net", ""),
        ]);
        for (name, found) in [
            ("transparent huge pages", "madvise"),
            ("huge page defrag", "defer+madvise"),
            ("huge page pools", "512 free of 2M, 0 free of 1G"),
            ("memory overcommit", "always"),
            ("NUMA nodes with memory", "0-1"),
            ("nested virtualization", "on"),
            ("network", "/dev/net/tun opens"),
            ("vhost", "/dev/vhost-net opens"),
        ] {
            assert_eq!(of(&host, name), (found.to_owned(), false));
        }
    }

    #[test]
    fn what_is_missing_is_named_with_its_cost() {
        let bare = host(&[]);
        for (name, found) in [
            ("transparent huge pages", "none"),
            ("huge page defrag", "none"),
            ("huge page pools", "none"),
            ("NUMA nodes with memory", "0"),
            ("nested virtualization", "off"),
            ("network", "/dev/net/tun: missing"),
            ("vhost", "/dev/vhost-net: missing"),
        ] {
            assert_eq!(of(&bare, name), (found.to_owned(), true));
        }
        // What is refused says so elsewhere, and this is not.
        let nested = nested(bare.path()).costs.unwrap();
        assert!(nested.starts_with("guests cannot run VMs") && !nested.contains("refused"), "{nested}");
        let strict = host(&[
            ("sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n"),
            ("sys/kernel/mm/transparent_hugepage/defrag", "always [defer] defer+madvise madvise never\n"),
            ("sys/devices/system/node/has_memory", "2\n"),
            ("proc/sys/vm/overcommit_memory", "2\n"),
            ("sys/module/kvm_amd/parameters/nested", "0\n"),
        ]);
        for (name, found) in [
            ("transparent huge pages", "never"),
            ("huge page defrag", "defer"),
            ("memory overcommit", "never"),
            ("NUMA nodes with memory", "2"),
            ("nested virtualization", "off"),
        ] {
            assert_eq!(of(&strict, name), (found.to_owned(), true));
        }
    }
}
