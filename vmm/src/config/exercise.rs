// SPDX-License-Identifier: Apache-2.0
//! Hostile configurations made of bytes: what the fuzz target and a property test both run.
//!
//! Bytes that begin with a dash are a command line. Others are a file of `--config`, and the body of a request. No file is looked
//! at.

use std::path::PathBuf;
use std::str;

use super::disk::DiskOption;
use super::raw::RawConfig;
use super::vm::VmConfig;

/// Takes `bytes` in each of the ways to write a configuration. Panics if one panics, and if what is valid does not print as JSON
/// that means the same.
pub fn exercise(bytes: &[u8]) {
    match str::from_utf8(bytes) {
        Ok(line) if line.starts_with('-') => {
            return check(VmConfig::try_from(options(line)).map_err(|error| error.to_string()));
        }
        Ok(text) => check(VmConfig::from_json(text)),
        Err(_) => {}
    }
    match VmConfig::from_client(bytes) {
        Ok(config) => check(Ok(config)),
        Err(_) => check_disk(DiskOption::from_client(bytes)),
    }
}

/// A file, and a client, can say what `config` is.
fn check(config: Result<VmConfig, String>) {
    let Some(config) = valid(config) else { return };
    let json = config.to_json().unwrap_or_default();
    for again in [VmConfig::from_json(&json), VmConfig::from_client(json.as_bytes())] {
        assert_eq!(again.as_ref(), Ok(&config), "{json}");
    }
}

fn check_disk(disk: Result<DiskOption, String>) {
    let Some(disk) = valid(disk) else { return };
    let json = serde_json::to_string(&disk).unwrap_or_default();
    assert_eq!(DiskOption::from_client(json.as_bytes()), Ok(disk), "{json}");
}

/// What is not valid, has a reason.
fn valid<T>(taken: Result<T, String>) -> Option<T> {
    if let Err(what) = &taken {
        assert!(!what.is_empty(), "nobody says what is wrong");
    }
    taken.ok()
}

/// A command line of which every line of `text` is an option and, behind a space, what it is given.
fn options(text: &str) -> RawConfig {
    let mut raw = RawConfig::default();
    for line in text.lines() {
        let (option, value) = line.split_once(' ').unwrap_or((line, ""));
        let (text, path) = (value.to_owned(), Some(PathBuf::from(value)));
        match option {
            "--kernel" => raw.kernel = path,
            "--firmware" => raw.firmware = path,
            "--initramfs" => raw.initramfs = path,
            "--cmdline" => raw.cmdline = text,
            "--cpus" => raw.shape.cpus = text,
            "--memory" => raw.shape.memory = Some(text),
            "--memory-zone" => raw.shape.memory_zones.push(text),
            "--numa" => raw.shape.numa.push(text),
            "--study" => raw.shape.study.push(text),
            "--disk" => raw.disks.push(text),
            "--net" => raw.nets.push(text),
            "--vsock" => raw.vsock = Some(text),
            "--balloon" => raw.balloon = Some(text),
            "--rng" => raw.rng = text,
            "--serial" => raw.serial = text,
            "--serial-limit" => raw.serial_limit = Some(text),
            "--console" => raw.console = text,
            "--timeline" => raw.timeline = path,
            "--restart-on-reset" => raw.restart_on_reset = true,
            "--landlock" => raw.landlock = true,
            "--shutdown-timeout" => raw.shutdown_timeout = text,
            _ => {}
        }
    }
    raw
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Map, Value, json};

    use super::*;

    /// Names of fields and values, right and wrong.
    const WORDS: [&str; 47] = [
        "payload",
        "kernel",
        "cmdline",
        "cpus",
        "boot_vcpus",
        "numa",
        "guest_numa_id",
        "memory_zones",
        "mem0",
        "distances",
        "destination",
        "zones",
        "host_numa_node",
        "topology",
        "threads_per_core",
        "packages",
        "affinity",
        "vcpu",
        "host_cpus",
        "1:2:1:1",
        "memory",
        "size",
        "thp",
        "all",
        "prefault",
        "arenas",
        "disks",
        "net",
        "fds",
        "num_queues",
        "passt",
        "forward",
        "1:2",
        "mac",
        "path",
        "id",
        "rate_limiter_config",
        "ops",
        "refill_time",
        "rng",
        "src",
        "serial",
        "mode",
        "File",
        "Off",
        "study",
        "layout",
    ];
    const OPTIONS: [&str; 37] = [
        "\n--vsock cid=3,socket=s",
        "\n--balloon size=0",
        "\n--disk ",
        "\n--disk path=a,id=a",
        "\n--memory ",
        "\n--cpus ",
        "\n--serial ",
        "\n--serial-limit ",
        "\n--study ",
        "layout=pc",
        "\n--rng ",
        "\n--landlock",
        "path=a",
        "id=a",
        "size=1G",
        "boot=2",
        "boot=256",
        "\n--memory size=0\n--memory-zone id=a,size=128M",
        "\n--memory-zone id=b,size=129M",
        "\n--numa guest_numa_id=0,cpus=[0],memory_zones=[a]",
        "\n--numa guest_numa_id=1,memory_zones=[b]",
        ",distances=[0@20]",
        ",host_numa_node=1",
        "-1",
        ",topology=",
        ":1",
        ",affinity=[",
        "@[0-3]",
        "]",
        "file=x",
        "hugepages=on",
        "readonly=on",
        "off",
        ",",
        "\"",
        "1M",
        "=",
    ];

    /// One that is valid, with something else in the place of a section.
    fn documents() -> impl Strategy<Value = Value> {
        let word = || prop::sample::select(&WORDS[..]);
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            prop::sample::select(&[0, 1, 255, 256, 1 << 30, u64::MAX][..]).prop_map(Value::from),
            word().prop_map(Value::from),
        ];
        let value = leaf.prop_recursive(3, 24, 4, move |inner| {
            let fields = prop::collection::vec((word(), inner.clone()), 0..4);
            let object = fields.prop_map(|fields| fields.into_iter().map(|(name, value)| (name.to_owned(), value)));
            prop_oneof![
                prop::collection::vec(inner, 0..3).prop_map(Value::from),
                object.prop_map(|fields| Value::from(fields.collect::<Map<_, _>>())),
            ]
        });
        prop::collection::vec((word(), value), 0..3).prop_map(|fields| {
            let mut document = json!({"payload": {"kernel": "k"}, "disks": [{"path": "d", "id": "a"}]});
            for (name, value) in fields {
                document[name] = value;
            }
            document
        })
    }

    #[test]
    fn options_come_one_a_line() {
        let config = VmConfig::try_from(options("--kernel k\n--disk path=a,id=b\nnonsense\n--memory size=1G")).unwrap();
        assert_eq!((config.memory_size(), config.disks.len()), (1 << 30, 1));
    }

    #[test]
    fn limits_of_nothing_are_none() {
        exercise(br#"{"payload": {"kernel": "k"}, "disks": [{"path": "d", "rate_limiter_config": {}}]}"#);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2048))]

        #[test]
        fn no_bytes_break_a_configuration(bytes in prop::collection::vec(any::<u8>(), 0..512)) {
            exercise(&bytes);
        }

        #[test]
        fn no_document_means_two_things(document in documents()) {
            exercise(document.to_string().as_bytes());
        }

        #[test]
        fn no_command_line_means_two_things(pieces in prop::collection::vec(prop::sample::select(&OPTIONS[..]), 0..24)) {
            exercise(["--kernel k", &pieces.concat()].concat().as_bytes());
        }
    }
}
