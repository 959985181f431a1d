// SPDX-License-Identifier: Apache-2.0
//! The checks by name.
//!
//! | check | passes if | fields |
//! |---|---|---|
//! | `meminfo` | /proc/meminfo and /proc/zoneinfo can be read | `total_kib`, `free_kib`, `available_kib`, `deferred_kib` or null, `zones`, `blocks`: how many memory blocks are in sysfs |
//! | `total=512M` | within ten minutes `MemTotal` is so much more than at the first of these, but for a memmap of that | `base_kib`, `total_kib` |
//! | `rises=N` | `MemTotal` has risen N times, each told at once by mark 0x70 and a line: `rises` | `seen` |
//! | `zeros=0x148000000` | 64 bytes of /dev/mem at that address, where there is no memory, are zero within three minutes | `first`: the first of them |
//! | `short=512M` | with no memory left but what the kernel keeps, pages were given back and taken, as `short` tells, until `MemTotal` rose, then so much more; none is wrong, nothing was killed | `pages`, `full`, `wrong`, `killed`; `longest_short_ns`, `longest_after_ns`: what a page took to come |
//! | `laden=/dev/vda` | memory full of own pages, files and the disk's, as `laden` tells, shrank, and all of them are right | `pages`, `wrong`, `looks`, `before_kib`, `after_kib` |
//! | `pinned=/dev/vda` | a quarter of all memory was full of a file, pages of which a pipe held until the last block of the disk said `go`, as `pinned` and `released` tell; at `stop` all is as it was | `pages`, `wrong`; `part_kib`, `after_kib`: `MemTotal` at `go` and `stop` |
//! | `saved=/dev/vda` | memory stayed as large while it was about to be saved, until the last block of the disk said `go`, and could not be saved when there was more, at `more`; as `saving`, `saved` and `refused` tell; at `stop` it can again | `before_kib`, `meanwhile_kib`, `more_kib`, `after_kib`: `MemTotal`; `again`: the error of the second |
//! | `poisoned=/dev/vda` | a page of memory that had come was taken out of use, as `poisoned` tells, and the kernel knows of none once it has gone, at `stop` in the last block of the disk | `before_kib`, `with_kib`, `after_kib`: `HardwareCorrupted`; `frame`, `total_kib` |
//! | `accounts` | what /proc and /sys say of memory adds up | `settings`: /proc/sys/vm; `meminfo`, `zones`, `nodes`, `free_pages`, `complaints` |
//! | `set=NAME:VALUE` | /proc/sys/vm/NAME takes the value; `:` between several | `name`, `value` |
//! | `steady=60` | node 0's `MemTotal` and `MemFree` stay what they are while memory is filled, at most 60 seconds | `reads`, `total_kib`, `free_kib`: least and most; `deferred_first_kib`, `deferred_last_kib` |
//! | `showmem` | the kernel's report of memory, as it makes it when out of it, adds up | `zones`: name, free and blocks in KiB; `lines` |
//! | `cpus=N` | N CPUs are online | `online`, `possible` |
//! | `alloc` | every page that can be had was written, and read back with its own value | `pages`, `wrong` |
//! | `settle` or `settle=SECONDS` | the kernel has nothing left to fill, and has said so by its mark; waits for it, 600 s unless told otherwise | `deferred_kib`, `nodes`: lines of `memmap_nodes` |
//! | `take=N%` | N % of MemTotal was written to, a word a page, on all CPUs at once | `pages`, `threads`, `ns`; `zone_locked`: how often a zone's lock was taken, where the kernel counts that |
//! | `hog=95%`, `hog=512M` | all CPUs took that much of what is available, found it zero, and read back what they wrote; meanwhile the kernel's counts made sense | `pages`, `not_zero`, `wrong`, `complaints`, `deferred_first_kib`, `deferred_last_kib`, `deferred_falls`, `reclaimed_early` |
//! | `storm=80%` | the same amid connections, programs, drops of caches, compaction, walks and reads of /dev/vda, none of which failed | `pages`, `not_zero`, `wrong`, and how often each of these |
//! | `walk` | all that shows every page can be read, and agrees with what is deferred | `complaints`, `frames`, `no_page`, `deferred_before_kib`, `deferred_after_kib` |
//! | `thp` | from now on memory is taken as huge pages | `enabled` |
//! | `hugepages=2048:64` | the pool of pages of 2048 KiB has 64, all free; they are given back | `pages`, `free`, `left` |
//! | `hugetlb=80%` | a pool of that size can be made, is zero, and can be given back | `wanted`, `got`, `not_zero`, `left` |
//! | `memmap`, `memmap=async` | debugfs says how the memmap is filled, and that it is in that mode | `nodes`: as in `memmap_nodes` |
//! | `filled=60` | it is filled within 60 seconds | the same |
//! | `verify` | the kernel finds its own memmap sound, if it can tell | `present`, `lines` |
//! | `lists` | the free lists can be read, after caches were dropped and memory was compacted | `orders`, `pages`, `per_cpu_pages` |
//! | `watchdog=1` | processors are watched, and locked up after twice so many seconds | `on`, `seconds` |
//! | `calm` | no line of the kernel log says that something broke | `lines` |
//! | `disk=/dev/vda` | its first and last sectors can be read | `bytes`, `read_only`, `first` (hex, 16 bytes), `queues` |
//! | `diskwrite=/dev/vda` | its last 4 KiB take a pattern that was not there, and give it back | `bytes` |
//! | `erase=/dev/vda` | 64 KiB in its middle became zero at once, and what is around them did not | `zero`, `same`, `discard_max`, `zeroes_max` bytes |
//! | `beside=/dev/vda*4` | so many threads wrote all of it at once, and it is there | `blocks`, `wrong` |
//! | `grow=/dev/vda` | it became larger within a minute, and its new end takes a pattern | `before`, `after` bytes |
//! | `nodes` | the kernel says what its nodes have | `nodes`: `node`, `cpus` (a list), `distances`, `total_kib` of each |
//! | `interrupts=/dev/vda@3` | processor 3 takes the interrupts of what is read from it | `irq`, `taken` |
//! | `processors` | every processor has the APIC id that its CPUID says | `processors`: numbers and caches of each; `flags` of the first |
//! | `pulse=/dev/vda` | it took blocks and gave them back, memory stayed what was written to it, and the clock never went back, until its last block said `stop` | `writes`, `wrong`, `pages`, `lost`, `looks`, `backwards`, `jumps` of 50 ms and more, `jumped_ns`: in all, `each`: when and how far, in ns |
//! | `net=OWN/PEER:PORT` | eth0 took the address OWN, and PEER sent back what it was sent by TCP and UDP | `datagrams`, `carried`, `rx_mean` and `tx_mean` bytes of a packet, `lost`: errors and drops |
//! | `channels=4` | eth0 uses so many queues for each direction, as it is told to | `before_rx`, `before_tx`, `rx`, `tx` |
//! | `turns=PEER:PORT` | on each processor in turn, datagrams came back that waited for each other | `processors`, `turns` of each |
//! | `vsock=OUT/IN` | the host's port OUT sent back what it was sent, and got back what it sent to port IN; port OUT + 1 is nobody's | `carried`, `answered` bytes, `nobody`: the error |
//! | `rng` | a hardware generator is chosen and gives bytes that differ | `current`, `bytes` |
//! | `driver=NAME` | that driver of the platform bus has a device | `devices`: their names |
//! | `generation` | the VM generation ID can be read | `id` (hex) |
//! | `clone` | that ID became another one, and the kernel has heard of it; then its interface's driver began anew | `id` (hex), `random`, `mac` or null |
//! | `identifiers` | first IPv4 identifiers differ between destinations, second ones follow the first | `first`, `second`, `different` |
//! | `sockets=2000` | so many TCP connections over the loopback are up at once, each carries its own bytes, and /proc/net/tcp lists just them | `connections`, `wrong`, `listed`: before, meanwhile, after |
//! | `datagrams=2000` | so many UDP sockets of IPv4 and IPv6 are listed in /proc/net, and each receives what is sent to it alone | `wrong`, `listed`: before, how many more meanwhile, after |
//! | `ports=2000` | so many TCP sockets of IPv4, and of IPv6, have a port of their own, listen there, and are listed as bound and as listening | for each: `free`: ports that others could have, `wrong`, `listed`: before, bound, listening, after |
//! | `dentries=100000` | so many files were made and found while others were looked up, renamed and removed | `looked_up`, `renamed`, `missing`, `lost`, `ghosts` |
//! | `inodes` | /sys/devices has the same inode numbers after caches were dropped | `inodes`, `same` |
//! | `mounts` | each of many mounts is found by its path, until it is unmounted | `mounts`, `wrong` |
//! | `handoff` | debugfs has files of the memmap hand-off | `files`: name to content |
//! | `dmesg=TEXT` | a line of the kernel log contains TEXT | `count`, `lines` (the first 32) |
//! | `nodmesg=TEXT` | no line does | the same |
//! | `rest=3` | for three seconds nothing was done, and since the kernel began nobody compacted or reclaimed memory | pages `compacted` and `reclaimed`: looked at for that; `deferred_kib` or null |
//! | `echo` | a line comes from the console; `ready` asks for it | `line` |
//! | `ledger=/dev/vda` | its ext4 takes record after record, each flushed; whoever listens is told of each: `written` | `records` |
//! | `work=WORKLOAD` | the userland on a disk did that workload of benches/src/work.rs; no check comes after it | `name`, `rate` a second |
//! | `readers=4@/dev/vda` | so many threads read an equal part of the disk each, from mark 0x71 on | `bytes`, `ns`, `kswapd_ms`; `stalls`: direct reclaims; pages `scanned_by_kswapd` and `_readers`, `freed_by_` them; `helped`: calls of kswapd's helpers; `too_dear`: how often one left as its pages cost too much |
//! | `waits=10000` | for each two processors, two threads handed each other a byte so often, from mark 0x71 on | `pairs`, `turns`, `ns` |
//! | `programs=100` | so many programs were started and ended on each processor, from mark 0x71 on | `programs`, `ns`; `calls`, `flushes`: interrupts of other processors |
//! | `kmalloc` | the kernel has measured kmalloc() | `sizes`: `size`; cycles to `alloc` one of many, to `free` one of many, for a `pair` of both |
//! | `loaded=NAME:NAME` | each of these modules is loaded | `modules`: all that are |
//! | `text` | the address of the kernel's text can be read | `address` |
//! | `uname` | the kernel says what it is | `release`, `version`, `cmdline` |

use serde_json::json;

use crate::outcome::Outcome;
use crate::{
    accounts, buddy, channels, clone, devices, elastic, fill, generation, hog, hugetlb, identifiers, interrupts,
    kernel, kmalloc, ledger, memmap, memory, modules, net, nodes, pinned, poisoned, ports, processors, pulse, readers,
    report, saved, showmem, sockets, steady, storm, tables, vsock, waits, walk, work,
};

/// Runs the checks in order, reports each, and says whether all passed.
pub(crate) fn run_all<'a>(checks: impl Iterator<Item = (&'a str, Option<&'a str>)>) -> bool {
    let mut passed = true;
    for (name, argument) in checks {
        let (ok, fields) = run(name, argument).unwrap_or_else(|error| (false, json!({ "error": error })));
        report::check(name, ok, fields);
        passed &= ok;
    }
    passed
}

fn run(name: &str, argument: Option<&str>) -> Outcome {
    let needed = |what: &str| argument.ok_or_else(|| format!("{name}: expected {name}={what}"));
    match name {
        "meminfo" => memory::meminfo(),
        "total" => memory::total(needed("AMOUNT")?),
        "rises" => elastic::rises(needed("TIMES")?),
        "zeros" => elastic::zeros(needed("GPA")?),
        "short" => elastic::short(needed("AMOUNT")?),
        "laden" => elastic::laden(needed("DEVICE")?),
        "pinned" => pinned::pinned(needed("DEVICE")?),
        "poisoned" => poisoned::poisoned(needed("DEVICE")?),
        "saved" => saved::saved(needed("DEVICE")?),
        "alloc" => memory::alloc(),
        "accounts" => accounts::accounts(),
        "set" => accounts::set(needed("NAME:VALUE")?),
        "showmem" => showmem::show_mem(),
        "steady" => steady::steady(needed("SECONDS")?),
        "rest" => memory::rest(needed("SECONDS")?),
        "settle" => fill::settle(argument),
        "take" => fill::take(needed("N%")?),
        "hog" => hog::hog(needed("AMOUNT")?),
        "storm" => storm::storm(needed("AMOUNT")?),
        "walk" => walk::walk(),
        "lists" => buddy::lists(),
        "thp" => hugetlb::transparent(),
        "hugepages" => hugetlb::pool(needed("SIZE_KIB:COUNT")?),
        "hugetlb" => hugetlb::grow(needed("AMOUNT")?),
        "memmap" => memmap::nodes(argument),
        "filled" => memmap::filled(needed("SECONDS")?),
        "verify" => memmap::verify(),
        "cpus" => kernel::cpus(needed("N")?),
        "handoff" => kernel::handoff(),
        "dmesg" => kernel::dmesg(needed("TEXT")?, true),
        "nodmesg" => kernel::dmesg(needed("TEXT")?, false),
        "watchdog" => kernel::watchdog(needed("SECONDS")?),
        "calm" => kernel::calm(),
        "uname" => kernel::uname(),
        "loaded" => modules::loaded(needed("NAME")?),
        "text" => kernel::text(),
        "disk" => devices::disk(needed("DEVICE")?),
        "diskwrite" => devices::disk_write(needed("DEVICE")?),
        "interrupts" => interrupts::interrupts(needed("DEVICE@CPU")?),
        "erase" => devices::erase(needed("DEVICE")?),
        "beside" => devices::beside(needed("DEVICE*THREADS")?),
        "grow" => devices::grow(needed("DEVICE")?),
        "nodes" => nodes::nodes(),
        "processors" => processors::processors(),
        "pulse" => pulse::pulse(needed("DEVICE")?),
        "net" => net::net(needed("OWN/PEER:PORT")?),
        "channels" => channels::channels(needed("PAIRS")?),
        "turns" => net::turns(needed("PEER:PORT")?),
        "rebind" => net::rebind(),
        "vsock" => vsock::vsock(needed("OUT/IN")?),
        "rng" => devices::rng(),
        "driver" => devices::driver(needed("NAME")?),
        "generation" => generation::generation(),
        "clone" => clone::clone(),
        "identifiers" => identifiers::identifiers(),
        "sockets" => sockets::sockets(needed("2000")?),
        "datagrams" => sockets::datagrams(needed("2000")?),
        "ports" => ports::ports(needed("2000")?),
        "dentries" => tables::dentries(needed("COUNT")?),
        "inodes" => tables::inodes(),
        "mounts" => tables::mounts(),
        "echo" => devices::echo(),
        "ledger" => ledger::ledger(needed("DEVICE")?),
        "readers" => readers::readers(needed("N@DEVICE")?),
        "waits" => waits::turns(needed("TIMES")?),
        "kmalloc" => kmalloc::kmalloc(),
        "programs" => waits::programs(needed("TIMES")?),
        "work" => work::work(needed("WORKLOAD")?),
        _ => Err(format!("{name}: no such check")),
    }
}
