// SPDX-License-Identifier: Apache-2.0
//! Options whose text or value is wrong.

use crate::refusal::{ERROR, Row, USAGE};

const SIZE: &str = "must be a number of bytes, with K, M, G or T after it for 2^10, 2^20, 2^30 or 2^40 of them";

pub(crate) fn rows() -> Vec<Row> {
    [memory(), cpus(), cmdline(), keys(), usage(), several()].concat()
}

fn usage_rows(rows: &[(&str, &str)]) -> Vec<Row> {
    rows.iter().map(|(arguments, line)| Row::new(&name(arguments), arguments, USAGE, line)).collect()
}

/// A name for a test: the arguments, shortened.
fn name(arguments: &str) -> String {
    let shown = arguments.replace(|character: char| character.is_control(), "?");
    if shown.chars().count() > 60 { shown.chars().take(60).chain(['…']).collect() } else { shown }
}

fn memory() -> Vec<Row> {
    let mut rows = usage_rows(&[
        (
            "run --memory size=1G --balloon size=1G",
            "--balloon size=1G: must be a multiple of 4096 bytes, and less than the memory that the VM starts with, 1073741824",
        ),
        (
            "run --memory size=1G,hugepages=on --balloon size=1M",
            "--balloon: must be with memory that is not of hugepages",
        ),
        ("run --balloon 1M", "--balloon 1M: must be written KEY=VALUE; the keys are size, …"),
        ("run --memory size=0", "--memory size=0: must be at least 64M"),
        ("run --memory size=63M", "--memory size=63M: must be at least 64M"),
        ("run --memory size=65537K", "--memory size=65537K: must be a multiple of 1M"),
        ("run --memory size=65M,hugepages=on", "--memory size=65M: must be a multiple of 2M with hugepages=on"),
        (
            "run --memory size=1026M,hugepages=on,hugepage_size=1G",
            "--memory size=1026M: must be a multiple of 1G with hugepage_size=1G",
        ),
        ("run --memory size=1G,hugepages=on,hugepage_size=4K", "--memory hugepage_size=4K: must be 2M or 1G"),
        ("run --memory size=1G,hugepage_size=1G", "--memory hugepage_size=1G: must be with hugepages=on"),
        ("run --memory size=1G,prefault=all", "--memory prefault=all: must be on or off"),
        (
            "run --memory size=1G --study prefault_arenas=on,arenas=off",
            "--study prefault_arenas=on: must be off with arenas=off",
        ),
        ("run --study layout=q35", "--study layout=q35: must be split or pc"),
        ("run --study zeroed=1", "--study zeroed=1: must be on or off"),
        ("run --study arenas=off early=no", "--study early=no: must be on or off"),
        ("run --study layout=pc --study layout=pc", "--study layout=pc: layout is given twice: must be given once"),
        (
            "run --memory size=2G,hugepages=on,hugepage_size=1G --study holes=1",
            "--study holes=1: must be 0 with hugepage_size=1G",
        ),
        ("run --study holes=125", "--study holes=125: must be a number, at most 124"),
        (
            "run --memory size=1G --study holes=4",
            "--study holes=4: must be fewer than the whole sections of 128M above 4 GiB, which are 4",
        ),
        (
            "run --memory size=16777215T",
            "--memory size=16777215T: must be between 64M and …, which is what …-bit physical addresses have room for",
        ),
        ("run --memory size=16777216T", "--memory size=16777216T: must be less than 2^64 bytes"),
        ("run --memory 1G", "--memory 1G: must be written KEY=VALUE; the keys are size, …"),
        (
            "map --memory size=16777215T",
            "--memory size=16777215T: must be between 64M and …, which is what …-bit physical addresses have room for",
        ),
        ("map --memory size=0", "--memory size=0: must be at least 64M"),
        ("map --cpus boot=0", "--cpus boot=0: must be a number of vCPUs, 1 to 1024"),
    ]);
    for value in ["lots", "-1", "1.5G", "0x10000000", "64GB"] {
        let line = format!("--memory size={value}: {SIZE}");
        rows.extend(usage_rows(&[(&format!("run --memory size={value}"), &line)]));
    }
    rows
}

fn cpus() -> Vec<Row> {
    let values = ["0", "1025", "x", "-1", "18446744073709551617", "1.5"];
    let rows = values.map(|value| {
        let line = format!("--cpus boot={value}: must be a number of vCPUs, 1 to 1024");
        (format!("run --cpus boot={value}"), line)
    });
    rows.iter().flat_map(|(arguments, line)| usage_rows(&[(arguments, line)])).collect()
}

fn cmdline() -> Vec<Row> {
    let long = "x".repeat(2048);
    let too_long = "--cmdline: … bytes with flatboot's defaults: must be at most 2047 (the kernel's COMMAND_LINE_SIZE)";
    let byte =
        |byte, position| format!("--cmdline: has byte {byte} at {position}: must be printable ASCII, spaces and tabs");
    usage_rows(&[
        (&format!("run --cmdline {long}"), too_long),
        // With the defaults alone it is too long.
        (&format!("run --cmdline {}", &long[..2040]), too_long),
        ("run --cmdline quiet\nro", &byte("0x0a", 5)),
        ("run --cmdline \u{1b}[31m", &byte("0x1b", 0)),
        ("run --cmdline ro\u{7f}", &byte("0x7f", 2)),
        ("run --cmdline é", &byte("0xc3", 0)),
    ])
}

fn keys() -> Vec<Row> {
    let disks = |count| format!("run{}", " --disk path=@/disk,readonly=on".repeat(count));
    usage_rows(&[
        (
            "run --memory size=1G,mergeable=on",
            "--memory mergeable=on: there is no key mergeable: must be one of size, max, hotplug_size, hugepages, \
             hugepage_size, shared, thp, prefault",
        ),
        ("run --memory size=1G,size=2G", "--memory size=2G: size is given twice: must be given once"),
        ("run --memory thp=on", "--memory size=SIZE: is missing: must be given"),
        ("run --memory size=", "--memory size=: has no value: must be size=VALUE"),
        ("run --memory size=1G,thp=yes", "--memory thp=yes: must be on, off or all"),
        ("run --cpus max=4", "--cpus max=4: there is no key max: must be one of boot, topology, affinity, nested"),
        ("run --cpus boot=2,nested=no", "--cpus nested=no: must be on or off"),
        (
            "run --cpus boot=2,topology=1:1",
            "--cpus topology=1:1: must be THREADS_PER_CORE:CORES_PER_DIE:…, none of them 0",
        ),
        ("map --cpus boot=2,affinity=[2]", "--cpus affinity=[2]: must be [VCPU…, none above 1023"),
        (
            "map --cpus boot=2,affinity=[0",
            "--cpus boot=2,affinity=[0: has a list without end: must close every bracket",
        ),
        ("run --memory size=1G --memory-zone id=a,size=1G", "--memory size=1G: must be absent or 0 with zones, …"),
        ("map --memory-zone id=a,size=32M", "--memory-zone: all together have 32M: must be at least 64M"),
        ("map --memory thp=all --memory-zone id=a,size=32M", "--memory-zone: all together have 32M: must be …"),
        ("map --memory size=0 --memory-zone size=1G", "--memory-zone id=NAME,size=SIZE: is missing: must be given"),
        (
            "map --memory size=0 --memory-zone id=a,size=200M id=b,size=200M",
            "--memory-zone id=a: has 200M and is not the last in memory: its size must be a multiple of 128M",
        ),
        ("run --numa guest_numa_id=0", "--numa cpus=: leaves vCPUs 0 on no node: each vCPU must be on a node"),
        ("map --numa guest_numa_id=0,cpus=0", "--numa memory_zones=: must be at least one zone"),
        ("run --cpus boot=1,boot=1", "--cpus boot=1: boot is given twice: must be given once"),
        ("run --cpus 4", "--cpus 4: must be written KEY=VALUE; the keys are boot, topology, affinity, nested"),
        (
            "run --disk file=@/disk",
            "--disk file=@/disk: there is no key file: must be one of path, readonly, direct, sparse, serial, id, num_queues, queue_size, image_type, _disable_io_uring, bw_size, bw_one_time_burst, bw_refill_time, ops_size, ops_one_time_burst, ops_refill_time",
        ),
        (
            "run --serial-limit 1M --serial null",
            "--serial-limit 1M: must be with a serial port or a console that writes to a file",
        ),
        ("run --serial-limit 1X", "--serial-limit 1X: must be a number of bytes, …"),
        (
            "run --disk path=@/disk,ops_size=1",
            "--disk ops_size=NUMBER and ops_refill_time=MILLISECONDS: is missing: must be given",
        ),
        ("run --disk path=@/disk,path=@/link", "--disk path=@/link: path is given twice: must be given once"),
        ("run --disk path=@/disk,readonly=1", "--disk readonly=1: must be on or off"),
        ("run --disk path=@/disk,sparse=no", "--disk sparse=no: must be on or off"),
        (
            "run --disk path=@/disk,serial=123456789012345678901",
            "--disk serial=123456789012345678901: must have 1 to 20 letters, digits and signs",
        ),
        ("run --disk path=@/disk,queue_size=100", "--disk queue_size=100: must be a power of two, 4 to 1024"),
        ("run --disk path=@/disk,queue_size=2", "--disk queue_size=2: must be a power of two, 4 to 1024"),
        ("run --disk path=@/disk,queue_size=2048", "--disk queue_size=2048: must be a power of two, 4 to 1024"),
        ("run --disk path=@/disk,queue_size=131072", "--disk queue_size=131072: must be a power of two, 4 to 1024"),
        ("run --disk path=@/disk,num_queues=0", "--disk num_queues=0: must be a number of queues, 1 to 16"),
        ("run --disk path=@/disk,num_queues=x", "--disk num_queues=x: must be a number of queues, 1 to 16"),
        ("run --disk path=@/disk,direct=yes", "--disk direct=yes: must be on or off"),
        ("run --disk path=@/disk,image_type=Raw", "--disk image_type=Raw: must be raw or unknown"),
        (
            "run --disk path=@/disk,image_type=qcow2",
            "--disk image_type=qcow2: must be a raw disk, which \"qemu-img convert -O raw\" makes of an image",
        ),
        ("run --disk path=\"@/disk", "--disk path=\"@/disk: has an odd number of quotes: must close every one"),
        ("run --disk readonly=on", "--disk path=FILE: is missing: must be given"),
        (&disks(14), "--disk, --net, --vsock, --console and --balloon: 14 given: must be at most 13"),
        (
            "run --net vm0",
            "--net vm0: must be written KEY=VALUE; the keys are tap, fd, forward, ip, mask, mac, mtu, num_queues, queue_size, …",
        ),
        ("run --net tap=a,num_queues=3", "--net num_queues=3: must be an even number of queues, 2 to 32"),
        ("run --net passt,num_queues=4", "--net num_queues=4: must be 2 with passt, which is one connection"),
        ("run --net fd=[3,4],num_queues=2", "--net num_queues=2: must be 4, two for each of 2 descriptor(s)"),
        ("run --net tap=a,mac=1", "--net mac=1: must be six bytes as in 52:54:00:12:34:56, …"),
        ("run --net tap=a,tap=b", "--net tap=b: tap is given twice: must be given once"),
        ("run --net tap=a,id=x --net tap=b,id=x", "--net id=x: is that of another device: must be the id of no other"),
        ("run --disk path=@/disk,id=x --net tap=b,id=x", "--net id=x: is that of another device: …"),
        (&format!("{} --net tap=a", disks(13)), "--disk, --net, …: 14 given: must be at most 13"),
        ("run --rng /dev/urandom", "--rng /dev/urandom: must be written KEY=VALUE; the keys are src, …"),
        ("run --rng on=1", "--rng on=1: there is no key on: must be one of src, …"),
        ("run --serial pty", "--serial pty: must be tty, file=FILE, null or off"),
        ("run --serial file=", "--serial file=: must be tty, file=FILE, null or off"),
        ("run --console tty=x", "--console tty=x: must be tty, pty, file=FILE, socket=PATH, null or off"),
        (
            "run --serial tty --console tty",
            "--console tty: must be with a serial port that is null, off or a file: the serial port has the terminal",
        ),
        ("run --study handoff=planned", "--study handoff=planned: must be on or off"),
        ("run --study handoff=off,handoff_file=x", "--study handoff_file=x: must not be with handoff=off"),
        ("map --study handoff=off", "--study handoff: map shows what is planned: must be without …"),
        ("run --shutdown-timeout 5s", "--shutdown-timeout 5s: must be a number of seconds, at most 86400"),
        ("run --shutdown-timeout 86401", "--shutdown-timeout 86401: must be a number of seconds, at most 86400"),
    ])
}

fn usage() -> Vec<Row> {
    let mut rows = usage_rows(&[
        ("start", "unrecognized subcommand 'start'"),
        ("map --kernel", "a value is required for '--kernel <FILE>' but none was supplied"),
        ("map --initramfs @/initramfs", "the following required arguments were not provided: --kernel <FILE>"),
        ("run --bios @/kernel", "unexpected argument '--bios' found"),
        ("run @/kernel", "unexpected argument '@/kernel' found"),
        ("run --kernel @/kernel --kernel @/kernel", "the argument '--kernel <FILE>' cannot be used multiple times"),
        ("run --restart-on-reset=yes", "unexpected value 'yes' for '--restart-on-reset' found; no more were expected"),
        ("check --kernel @/kernel", "unexpected argument '--kernel' found"),
        ("--jsn", "unexpected argument '--jsn' found"),
    ]);
    let log = "--log-file @/directory: must be a file that can be written: …";
    rows.push(Row::new("a log that is no file", "run --log-file @/directory", ERROR, log));
    let pipe = "--log-file @/pipe: must be a file that can be written: nobody reads this pipe";
    rows.push(Row::new("a log that nobody reads", "run --log-file @/pipe", ERROR, pipe));
    let same = "--table @/kernel: must be another file than the kernel and the initramfs";
    rows.push(Row::new("a table over the kernel", "map --kernel @/kernel --table @/kernel", USAGE, same));
    rows.push(Row::new("map: usage of memory with a kernel", "map --kernel @/missing", ERROR, "--kernel @/missing: …"));
    rows
}

/// The first wrong thing in flatboot's own order is told, in whatever order things are typed.
fn several() -> Vec<Row> {
    let mut rows = Vec::new();
    let cases: [(&str, &[&str], i32, &str); 4] = [
        (
            "everything",
            &[
                "--cpus boot=0",
                "--memory size=0",
                "--kernel @/missing",
                "--disk path=@/ragged",
                "--serial file=@/no/file",
            ],
            USAGE,
            "--cpus boot=0: must be a number of vCPUs, 1 to 1024",
        ),
        (
            "a value and files",
            &["--kernel @/missing", "--study handoff=maybe", "--disk path=@/empty"],
            USAGE,
            "--study handoff=maybe: must be on or off",
        ),
        (
            "files",
            &["--disk path=@/ragged", "--initramfs @/directory", "--timeline @/no/file"],
            ERROR,
            "--initramfs @/directory: is a directory: must be a regular file",
        ),
        (
            "outputs and an image",
            &["--kernel @/text", "--timeline @/no/file", "--serial file=@/new"],
            ERROR,
            "--timeline @/no/file: cannot be created: …: must be in a directory that exists and is writable",
        ),
    ];
    for (name, options, status, line) in cases {
        let mut options = options.to_vec();
        for order in ["as typed", "reversed"] {
            let arguments = format!("run {}", options.join(" "));
            rows.push(Row::new(&format!("several wrong: {name}, {order}"), &arguments, status, line));
            options.reverse();
        }
    }
    rows
}
