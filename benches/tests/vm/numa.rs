// SPDX-License-Identifier: Apache-2.0
//! Guests with several nodes, processors in groups, and what the host makes of both.

use std::time::Duration;
use std::{env, fs};

use flatboot_bench::guest::{Ended, Guest};
use flatboot_bench::{Command, HostOptions};
use libtest_mimic::{Failed, Trial};
use serde_json::{Value, json};

use super::firmware;
use super::lab::{Lab, on_emulated_host, require};
use crate::Body;

pub(crate) const TESTS: &[(&str, Body)] = &[
    ("numa::each_node_has_what_it_was_given", |lab| two_nodes(lab, &two())),
    ("numa::a_node_below_4_gib", |lab| two_nodes(lab, &small())),
    ("numa::nodes_of_32_gib", |lab| two_nodes(lab, &large())),
    ("numa::nodes_without_processors_come_last", without_processors),
    ("numa::an_unmodified_kernel", unmodified),
    ("numa::the_same_through_firmware", through_firmware),
    ("numa::groups_of_processors", groups),
    ("numa::the_last_of_288_processors", last_of_288),
    ("numa::a_node_that_the_host_has_not", no_such_node),
];

/// Runs the test that takes many minutes on an emulated host.
const MANY: &str = "FLATBOOT_TEST_MANY";

/// A node that a guest is to have.
struct Node {
    domain: u32,
    cpus: &'static str,
    /// In MiB.
    memory: u64,
}

fn two() -> [Node; 2] {
    [Node { domain: 0, cpus: "0,2", memory: 1024 }, Node { domain: 1, cpus: "1,3", memory: 2048 }]
}

/// The size that the promise `two-nodes` is about.
fn large() -> [Node; 2] {
    two().map(|node| Node { memory: 32 << 10, ..node })
}

/// The first has nothing above 4 GiB, where the second has only a part of its memory.
fn small() -> [Node; 2] {
    [Node { domain: 0, cpus: "1-3", memory: 256 }, Node { domain: 1, cpus: "0", memory: 1280 + 64 }]
}

/// `--memory`, `--memory-zone` and `--numa` for them. Each vCPU is a package: of old processors, as the emulated host's, Linux takes a
/// package to share a cache, whatever they say of caches, and warns if it has several nodes.
fn with_nodes(mut guest: Guest, nodes: &[Node]) -> Guest {
    ",topology=1:1:1:4".clone_into(&mut guest.cpu_keys);
    let options = nodes.iter().flat_map(|Node { domain, cpus, memory }| {
        let cpus = if cpus.is_empty() { String::new() } else { format!(",cpus=[{cpus}]") };
        let distances = if *domain == 0 { ",distances=[1@17]" } else { "" };
        [
            "--memory-zone".to_owned(),
            format!("id=z{domain},size={memory}M"),
            "--numa".to_owned(),
            format!("guest_numa_id={domain}{cpus},memory_zones=[z{domain}]{distances}"),
        ]
    });
    guest.memory("size=0").options(options)
}

const CHECKS: &str = "cpus=4,nodes,settle,meminfo,handoff,nodmesg=memmap_handoff: ignored,nodmesg=is in use from,\
    nodmesg=more than they may have,nodmesg=[Firmware Bug],verify,calm";

fn report<'a>(ended: &'a Ended, name: &str) -> Result<&'a Value, Failed> {
    ended.report(name).ok_or_else(|| format!("no report {name}").into())
}

fn two_nodes(lab: &Lab, nodes: &[Node]) -> Result<(), Failed> {
    let ended = lab.passes(&with_nodes(lab.guest().cpus(4), nodes).checks(CHECKS))?;
    has_nodes(&ended, nodes)?;
    has_regions(&ended, nodes)
}

/// The kernel's nodes have the processors, the distances and the memory, and each has its own memmap on itself.
fn has_nodes(ended: &Ended, nodes: &[Node]) -> Result<(), Failed> {
    let told = report(ended, "nodes")?["nodes"].as_array().cloned().unwrap_or_default();
    let zones = report(ended, "meminfo")?["zones"].as_array().cloned().unwrap_or_default();
    require(told.len() == nodes.len(), || format!("{told:?}"))?;
    for (number, (node, told)) in nodes.iter().zip(&told).enumerate() {
        let distances: Vec<_> = (0..nodes.len()).map(|other| if other == number { 10 } else { 17 }).collect();
        let expected = told["cpus"] == node.cpus && told["distances"] == json!(distances);
        require(expected, || format!("node {number}: {told}, expected {} and {distances:?}", node.cpus))?;
        let own = zones.iter().filter(|zone| zone["node"] == number);
        let sum = |name: &str| own.clone().filter_map(|zone| zone[name].as_u64()).sum::<u64>() * 4;
        let (present, managed) = (sum("present"), sum("managed"));
        // All but the legacy hole of 384 KiB, the first page and what firmware keeps is present.
        require((node.memory << 10) - present < 4096, || format!("node {number} has {present} KiB: {zones:?}"))?;
        // What the allocator does not have is the memmap, one part in 64; on the first node also the kernel and all else, and on
        // each its share of hash tables, which grow with memory.
        let memmap = node.memory.div_ceil(128) * 2048;
        let taken = present - managed;
        let most = if number == 0 { 128 << 10 } else { 24 << 10 } + node.memory * 4;
        require((memmap..memmap + most).contains(&taken), || {
            format!("node {number}: {taken} KiB are taken, its memmap has {memmap}: {zones:?}")
        })?;
    }
    Ok(())
}

/// The hand-off was taken, and says the same of each node.
fn has_regions(ended: &Ended, nodes: &[Node]) -> Result<(), Failed> {
    let (regions, arenas) = firmware::described(ended)?;
    let sum = |lines: &[String], node: usize| -> u64 {
        let words = lines.iter().map(|line| line.split(' ').collect::<Vec<_>>());
        let own = words.filter(|words| words.get(2) == Some(&node.to_string().as_str()));
        let lengths = own.filter_map(|words| u64::from_str_radix(words.get(1)?.trim_start_matches("0x"), 16).ok());
        lengths.sum::<u64>() >> 20
    };
    for (number, node) in nodes.iter().enumerate() {
        let low = u64::from(number == 0);
        require(sum(&regions, number) + low == node.memory, || format!("node {number}: {regions:?}"))?;
        let memmap = node.memory.div_ceil(128) * 2;
        require(sum(&arenas, number) == memmap, || format!("node {number}: {arenas:?}, expected {memmap} MiB"))?;
    }
    Ok(())
}

/// Linux finds processors first, and numbers nodes as it finds them; the hand-off has its numbers.
fn without_processors(lab: &Lab) -> Result<(), Failed> {
    let nodes = [
        Node { domain: 9, cpus: "", memory: 384 },
        Node { domain: 0, cpus: "1-3", memory: 640 },
        Node { domain: 1, cpus: "0", memory: 512 },
    ];
    let guest = with_nodes(lab.guest().cpus(4), &nodes).checks(CHECKS);
    let ended = lab.passes(&guest)?;
    let told = report(&ended, "nodes")?["nodes"].as_array().cloned().unwrap_or_default();
    let cpus: Vec<_> = told.iter().map(|node| node["cpus"].as_str().unwrap_or_default()).collect();
    require(cpus == ["1-3", "0", ""], || format!("{told:?}"))?;
    let [first, second, third] = nodes;
    has_regions(&ended, &[second, third, first])
}

/// What knows nothing of the hand-off has the nodes, too.
fn unmodified(lab: &Lab) -> Result<(), Failed> {
    let mut guest = with_nodes(lab.guest().cpus(4), &two()).checks("cpus=4,nodes,meminfo,nodmesg=[Firmware Bug],calm");
    guest.kernel = flatboot_bench::artifact::kernel("stock")?.join("vmlinux");
    has_nodes(&lab.passes(&guest)?, &two())
}

fn through_firmware(lab: &Lab) -> Result<(), Failed> {
    let direct = firmware::described(&lab.passes(&with_nodes(lab.guest().cpus(4), &two()).checks(CHECKS))?)?;
    let ended = lab.passes(&with_nodes(firmware::guest(lab)?.cpus(4), &two()).checks(CHECKS))?;
    has_nodes(&ended, &two())?;
    let through = firmware::described(&ended)?;
    require(direct == through, || format!("direct: {direct:?}, firmware: {through:?}"))
}

/// Two packages of two dies of a core with two threads, and one of three cores, whose ids have gaps.
fn groups(lab: &Lab) -> Result<(), Failed> {
    for (cpus, topology, packages, cores) in
        [(8, "2:1:2:2", [0, 0, 0, 0, 1, 1, 1, 1], 2), (6, "1:3:1:2", [0, 0, 0, 1, 1, 1, 9, 9], 3)]
    {
        let mut guest = lab.guest().cpus(cpus).checks("processors,nodmesg=[Firmware Bug],calm");
        guest.cpu_keys = format!(",topology={topology}");
        let ended = lab.passes(&guest)?;
        let told = report(&ended, "processors")?["processors"].as_array().cloned().unwrap_or_default();
        require(told.len() == usize::from(cpus), || format!("{topology}: {told:?}"))?;
        let threads = u64::from(cpus) / 2;
        for (processor, package) in told.iter().zip(packages) {
            let right = processor["package"] == package
                && processor["cores_of_package"] == cores
                && processor["threads_of_package"] == threads;
            require(right, || format!("{topology}: {processor}"))?;
        }
        let shared = |cache: &Value| cache["shared"].as_str().map(str::to_owned);
        let caches = |index: usize, level: u64| {
            let caches = told[index]["caches"].as_array().into_iter().flatten();
            caches.filter(|cache| cache["level"] == level).filter_map(shared).collect::<Vec<_>>()
        };
        let (own, die) = if cpus == 8 { ("2-3", "2-3") } else { ("2", "0-2") };
        // Of a processor that does not say who shares what, Linux takes that to be nobody.
        require(caches(2, 2).iter().all(|list| list == own || list == "2"), || format!("{topology}: {told:?}"))?;
        require(caches(2, 3).iter().all(|list| list == die), || format!("{topology}: {told:?}"))?;
    }
    Ok(())
}

/// The one that takes a host with two nodes, which only an emulated one has for sure.
pub(crate) fn bound() -> Trial {
    let why = "it takes the emulated host, which has two nodes for it";
    on_emulated_host("numa::memory_is_bound_and_threads_are_pinned", why, on_two_nodes)
}

/// Pages of each zone come from the node that it is bound to, threads run where they are told to.
fn on_two_nodes(lab: &Lab) -> Result<(), Failed> {
    let console = lab.path("console");
    let script = format!(
        "rm -f {console}; {flatboot} run --kernel {kernel} --initramfs {initramfs} --serial file={console} \
         --cpus 'boot=2,affinity=[0@[2],1@[1]]' --memory size=0,thp=off \
         --memory-zone id=a,size=512M,host_numa_node=1 id=b,size=256M,host_numa_node=0,shared=on \
         --numa guest_numa_id=0,cpus=[0],memory_zones=[a] guest_numa_id=1,cpus=[1],memory_zones=[b] \
         --shutdown-timeout 1 --cmdline 'quiet flatboot.check=hog=50% flatboot.end=hang' & pid=$!; {wait}; \
         grep -E ' bind:' /proc/$pid/numa_maps; \
         for vcpu in 0 1; do grep -l \"^vcpu$vcpu$\" /proc/$pid/task/*/comm | while read comm; do \
         grep Cpus_allowed_list ${{comm%comm}}status; done; done; cat {console}; kill -TERM $pid; wait $pid",
        console = console.display(),
        flatboot = lab.flatboot.display(),
        kernel = lab.kernel.join("vmlinux").display(),
        initramfs = lab.initramfs.display(),
        wait = super::endings::wait_for_init(lab),
    );
    let host = HostOptions { nodes: 2, ..HostOptions::default() };
    let outcome = lab.on_host(host, &Command::new("/bin/sh").args(["-c", &script]))?;
    let said = outcome.stdout_text();
    let all = || format!("{said}\n{}", String::from_utf8_lossy(&outcome.stderr));
    let pages = |policy: &str, node: u32| -> u64 {
        let lines = said.lines().filter(|line| line.contains(&format!(" {policy} ")));
        let words = lines.flat_map(|line| line.split(' ')).filter_map(|word| word.strip_prefix(&format!("N{node}=")));
        words.filter_map(|number| number.parse::<u64>().ok()).sum()
    };
    // Half of what is free was taken of all, a page each.
    for (here, other) in [(1, 0), (0, 1)] {
        let policy = format!("bind:{here}");
        require(pages(&policy, here) > 1000 && pages(&policy, other) == 0, all)?;
    }
    let lists: Vec<_> =
        said.lines().filter_map(|line| line.strip_prefix("Cpus_allowed_list:")).map(str::trim).collect();
    require(lists == ["2", "1"], all)
}

fn no_such_node(lab: &Lab) -> Result<(), Failed> {
    let guest = lab.guest().memory("size=0").options(["--memory-zone", "id=a,size=512M,host_numa_node=63"]);
    lab.ends(&guest, 1, "host_numa_node=63: this host has no node 63 with memory: must be one of 0").map(drop)
}

/// So many that APIC ids have more than 8 bits. Two are brought up, for all of them take an emulated host longer than anybody waits;
/// then the last one is, and takes the disk's interrupts.
fn last_of_288(lab: &Lab) -> Result<(), Failed> {
    many(lab, "maxcpus=2", "cpus=2,interrupts=/dev/vda@287,cpus=3,interrupts=/dev/vda@1,nodmesg=[Firmware Bug],calm")
}

fn many(lab: &Lab, cmdline: &str, checks: &str) -> Result<(), Failed> {
    let disk = lab.path("many.img");
    fs::File::create(&disk)?.set_len(8 << 20)?;
    let mut guest = lab.guest().cpus(288).memory("size=4G").cmdline(cmdline).checks(checks);
    guest.limit = Duration::from_secs(1800);
    lab.passes(&guest.options(["--disk".to_owned(), format!("path={}", disk.display())])).map(drop)
}

/// All of them, on a host that is up to it.
pub(crate) fn all_of_288() -> Trial {
    let wanted = env::var_os(MANY).is_some();
    let body = || many(Lab::get()?, "", "cpus=288,interrupts=/dev/vda@287,interrupts=/dev/vda@1,calm");
    Trial::test("numa::all_of_288_processors", body).with_ignored_flag(!wanted)
}
