// SPDX-License-Identifier: Apache-2.0
//! Limits of this process and of the host, and what a VM cannot have below them.

use std::path::Path;

use rustix::process::{Resource, getrlimit};

use super::host::{Fact, text};
use crate::config::CpuCount;
use crate::memory::Size;

/// A file and a thread for each vCPU; and those of disks, queues and the process.
const FILES: u64 = CpuCount::MAX as u64 + 512;
const THREADS: u64 = CpuCount::MAX as u64 + 512;
/// A vCPU's thread has its stacks, each with a guard page, a heap, and what it shares with KVM.
const MAPPINGS: u64 = 8 * CpuCount::MAX as u64;

/// All of them, of the host whose files are below `root`.
pub(super) fn facts(root: &Path) -> [Fact; 5] {
    let of = |resource| getrlimit(resource).current;
    [
        file_size(of(Resource::Fsize)),
        // A VMM raises the one that it has to the one that it may have.
        open_files(getrlimit(Resource::Nofile).maximum),
        threads(of(Resource::Nproc)),
        locked_memory(of(Resource::Memlock)),
        mappings(root),
    ]
}

fn file_size(limit: Option<u64>) -> Fact {
    let costs = "snapshots of larger VMs are refused: see ulimit -f";
    let found = limit.map_or_else(|| "any".to_owned(), |bytes| format!("at most {:#}", Size(bytes)));
    Fact::new("file size", found, limit.is_some().then_some(costs))
}

fn open_files(limit: Option<u64>) -> Fact {
    let costs = "VMs with many vCPUs, disks and queues do not start: see ulimit -Hn";
    Fact::new("open files", at_most(limit), is_below(limit, FILES).then_some(costs))
}

fn threads(limit: Option<u64>) -> Fact {
    let costs = "VMs with many vCPUs do not start, each of which is a thread: see ulimit -u";
    Fact::new("threads of a user", at_most(limit), is_below(limit, THREADS).then_some(costs))
}

/// flatboot locks nothing: guest memory may be swapped. But other VMMs that it is compared with may.
fn locked_memory(limit: Option<u64>) -> Fact {
    let found = limit.map_or_else(|| "any".to_owned(), |bytes| format!("at most {:#}", Size(bytes)));
    Fact::new("locked memory", format!("{found}; flatboot locks none"), None)
}

/// Documentation/admin-guide/sysctl/vm.rst.
fn mappings(root: &Path) -> Fact {
    let limit = text(root, "proc/sys/vm/max_map_count").and_then(|text| text.parse().ok());
    let costs = "VMs with hundreds of vCPUs do not start: see vm.max_map_count";
    Fact::new("mappings of a process", at_most(limit), is_below(limit, MAPPINGS).then_some(costs))
}

fn at_most(limit: Option<u64>) -> String {
    limit.map_or_else(|| "any".to_owned(), |limit| format!("at most {limit}"))
}

fn is_below(limit: Option<u64>, needed: u64) -> bool {
    limit.is_some_and(|limit| limit < needed)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn said(fact: &Fact) -> (&str, bool) {
        (&fact.found, fact.costs.is_some())
    }

    #[test]
    fn only_limits_that_a_vm_can_reach_cost_something() {
        for of in [open_files, threads] {
            assert_eq!(said(&of(None)), ("any", false));
            assert_eq!(said(&of(Some(1536))), ("at most 1536", false));
            assert_eq!(said(&of(Some(1535))), ("at most 1535", true));
        }
        assert_eq!(said(&file_size(None)), ("any", false));
        assert_eq!(said(&file_size(Some(1 << 30))), ("at most 1G", true));
        assert_eq!(said(&locked_memory(Some(8 << 20))), ("at most 8M; flatboot locks none", false));
        assert_eq!(said(&locked_memory(None)), ("any; flatboot locks none", false));
    }

    #[test]
    fn mappings_are_limited_by_the_host() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("proc/sys/vm")).unwrap();
        for (content, expected) in
            [("65530\n", ("at most 65530", false)), ("8191\n", ("at most 8191", true)), ("?", ("any", false))]
        {
            fs::write(root.path().join("proc/sys/vm/max_map_count"), content).unwrap();
            assert_eq!(said(&mappings(root.path())), expected);
        }
    }
}
