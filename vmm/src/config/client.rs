// SPDX-License-Identifier: Apache-2.0
//! The configuration as clients of the control API send it: with all that Cloud Hypervisor has a name for.
//!
//! What flatboot does not have may be there as long as it asks for nothing; so may what only says how much could be asked for
//! later. The rest is refused by its name: a VM is what its owner asked for, or there is none.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::disk::DiskOption;
use super::field::FieldError;
use super::json::{self, object};
use super::net::NetOption;
use super::vm::VmConfig;
use super::vsock::VsockOption;

/// A field that flatboot does not have, and the values of it that ask for nothing. An empty value never does.
type Foreign = (&'static str, fn(&Value) -> bool);

/// The fields of a section.
struct Section {
    own: &'static [&'static str],
    foreign: &'static [Foreign],
}

const VM: Section = Section {
    own: &[
        "payload",
        "cpus",
        "memory",
        "numa",
        "disks",
        "net",
        "vsock",
        "console",
        "balloon",
        "rng",
        "serial",
        "serial_limit",
        "timeline",
        "restart_on_reset",
        "landlock_enable",
        "shutdown_timeout",
        "study",
    ],
    // The port of pvpanic is always there.
    foreign: &[("debug_console", is_off), ("platform", is_plain), ("pvpanic", anything)],
};
const PAYLOAD: Section = Section { own: &["firmware", "kernel", "initramfs", "cmdline"], foreign: &[] };
const CPUS: Section = Section {
    own: &["boot_vcpus", "max_vcpus", "topology", "affinity", "nested"],
    foreign: &[("core_scheduling", |value| value == "Off"), ("features", all_empty), ("max_phys_bits", anything)],
};
const MEMORY: Section = Section {
    own: &["size", "max", "hotplug_size", "hugepages", "hugepage_size", "shared", "zones", "thp", "prefault"],
    // How it is added.
    foreign: &[("hotplug_method", anything)],
};
const ZONE: Section =
    Section { own: &["id", "size", "hugepages", "hugepage_size", "shared", "host_numa_node"], foreign: &[] };
const NUMA: Section = Section { own: &["guest_numa_id", "cpus", "memory_zones", "distances"], foreign: &[] };
const DISK: Section = Section {
    own: &[
        "path",
        "readonly",
        "direct",
        "sparse",
        "serial",
        "id",
        "num_queues",
        "queue_size",
        "image_type",
        "disable_io_uring",
        "rate_limiter_config",
    ],
    foreign: &[("lock_granularity", anything)],
};
const NET: Section = Section {
    own: &[
        "tap",
        "fds",
        "passt",
        "forward",
        "ip",
        "mask",
        "mac",
        "mtu",
        "num_queues",
        "queue_size",
        "offload_tso",
        "offload_ufo",
        "offload_csum",
        "vhost",
        "id",
        "rate_limiter_config",
    ],
    foreign: &[("vhost_mode", |value| value == "Client")],
};
const CONSOLE: Section = Section { own: &["mode", "socket", "file"], foreign: &[] };
const BALLOON: Section = Section {
    own: &["size", "deflate_on_oom", "free_page_reporting"],
    foreign: &[("id", |value| value == "_balloon")],
};
const RNG: Section = Section { own: &["src", "rate_limiter_config"], foreign: &[("id", |value| value == "_rng")] };
const SERIAL: Section = Section { own: &["mode", "file"], foreign: &[] };
/// What a VM goes on from.
const RESTORE: Section = Section {
    own: &["source_url", "prefault", "resume", "config"],
    // When memory is read, is said by `prefault`.
    foreign: &[("memory_restore_mode", |value| value == "Copy" || value == "OnDemand")],
};

/// Null is as good as not said, but for a device that is there unless it is said not to be, and for a limit that was saved.
const NULL_SAYS: [&str; 2] = ["rng", "serial_limit"];

fn anything(_: &Value) -> bool {
    true
}

/// Nothing at all, or nothing of anything.
fn all_empty(value: &Value) -> bool {
    match value {
        Value::Object(fields) => fields.values().all(all_empty),
        other => is_empty(other),
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Number(number) => number.as_u64() == Some(0),
        Value::String(text) => text.is_empty(),
        Value::Array(values) => values.is_empty(),
        // With nothing in it, it still is a device.
        Value::Bool(true) | Value::Object(_) => false,
    }
}

/// A console that is not there.
fn is_off(value: &Value) -> bool {
    ["Off", "Null"].iter().any(|mode| value.get("mode").is_some_and(|found| found == mode))
}

/// Nothing but room for devices that nobody adds.
fn is_plain(value: &Value) -> bool {
    const ROOM: [&str; 3] = ["num_pci_segments", "iommu_address_width_bits", "vfio_p2p_dma"];
    let fields = value.as_object();
    fields.is_some_and(|fields| fields.iter().all(|(name, value)| ROOM.contains(&name.as_str()) || all_empty(value)))
}

const VSOCK: Section = Section { own: &["cid", "socket", "id", "rate_limiter_config"], foreign: &[] };

impl Section {
    /// Leaves in `fields` what is flatboot's own; `path` is where they are.
    fn settle(&self, path: &str, fields: &mut Map<String, Value>) -> Result<(), String> {
        for (name, value) in std::mem::take(fields) {
            let asks = |(field, nothing): &Foreign| *field == name && nothing(&value);
            if self.own.contains(&name.as_str()) {
                if !value.is_null() || NULL_SAYS.contains(&name.as_str()) {
                    fields.insert(name, value);
                }
            } else if !is_empty(&value) && !self.foreign.iter().any(asks) {
                return Err(refused(&format!("{path}{name}"), &value));
            }
        }
        Ok(())
    }

    /// The same of the field `name` of `fields`, if it is there.
    fn settle_in(&self, name: &str, fields: &mut Map<String, Value>) -> Result<(), String> {
        match fields.get_mut(name) {
            Some(Value::Object(inner)) => self.settle(&format!("{name}."), inner),
            // Whoever looks at its type will say what is wrong.
            _ => Ok(()),
        }
    }
}

impl Section {
    /// The same of a device whose rate may be limited. A bucket without size limits nothing.
    fn settle_limited(&self, path: &str, device: &mut Map<String, Value>) -> Result<(), String> {
        self.settle(path, device)?;
        if let Some(Value::Object(buckets)) = device.get_mut("rate_limiter_config") {
            buckets.retain(|_, bucket| !all_empty(bucket));
            if buckets.is_empty() {
                device.remove("rate_limiter_config");
            }
        }
        Ok(())
    }

    /// The device that `body` describes, which `check` has found nothing wrong with.
    fn device<T: DeserializeOwned>(
        &self,
        body: &[u8],
        check: impl FnOnce(&T) -> Result<(), FieldError>,
    ) -> Result<T, String> {
        let mut fields = object(body)?;
        self.settle_limited("", &mut fields)?;
        let device = json::take(&Value::Object(fields))?;
        check(&device).map_err(|error| error.alone())?;
        Ok(device)
    }

    /// The same of each of those in the list `name` of `fields`, if it is there.
    fn settle_each(&self, path: &str, name: &str, fields: &mut Map<String, Value>) -> Result<(), String> {
        let Some(Value::Array(devices)) = fields.get_mut(name) else { return Ok(()) };
        for (index, device) in devices.iter_mut().enumerate() {
            if let Value::Object(device) = device {
                self.settle_limited(&format!("{path}{name}[{index}]."), device)?;
            }
        }
        Ok(())
    }
}

fn refused(path: &str, value: &Value) -> String {
    let value = match value {
        Value::Object(_) | Value::Array(_) => String::new(),
        scalar => format!("={scalar}"),
    };
    format!("{path}{value}: flatboot does not support this: must be absent, null, false, 0 or empty")
}

/// Leaves in `fields`, the sections of a VM, what is flatboot's own.
fn settle_vm(fields: &mut Map<String, Value>) -> Result<(), String> {
    VM.settle("", fields)?;
    for (name, section) in [
        ("payload", PAYLOAD),
        ("cpus", CPUS),
        ("memory", MEMORY),
        ("console", CONSOLE),
        ("balloon", BALLOON),
        ("serial", SERIAL),
    ] {
        section.settle_in(name, fields)?;
    }
    if let Some(Value::Object(memory)) = fields.get_mut("memory") {
        ZONE.settle_each("memory.", "zones", memory)?;
    }
    NUMA.settle_each("", "numa", fields)?;
    DISK.settle_each("", "disks", fields)?;
    NET.settle_each("", "net", fields)?;
    if let Some(Value::Object(rng)) = fields.get_mut("rng") {
        RNG.settle_limited("rng.", rng)?;
    }
    if let Some(Value::Object(vsock)) = fields.get_mut("vsock") {
        VSOCK.settle_limited("vsock.", vsock)?;
    }
    Ok(())
}

/// Takes the body of a request for a VM that goes on from what was saved; other sections of its configuration are in `config`.
pub(crate) fn of_restore<T: DeserializeOwned>(body: &[u8]) -> Result<T, String> {
    let mut fields = object(body)?;
    RESTORE.settle("", &mut fields)?;
    if let Some(Value::Object(sections)) = fields.get_mut("config") {
        settle_vm(sections)?;
    }
    json::take(&Value::Object(fields))
}

impl VmConfig {
    /// Takes the body of a request; what is wrong is said with the path of the field. A guest that resets starts again unless it
    /// is said that it is not to: that is what clients know.
    pub fn from_client(body: &[u8]) -> Result<Self, String> {
        let mut fields = object(body)?;
        settle_vm(&mut fields)?;
        fields.entry("restart_on_reset").or_insert(Value::Bool(true));
        Self::from_value(&Value::Object(fields))
    }
}

impl DiskOption {
    /// Takes the body of a request.
    pub fn from_client(body: &[u8]) -> Result<Self, String> {
        DISK.device(body, Self::check)
    }
}

impl NetOption {
    /// Takes the body of a request.
    pub fn from_client(body: &[u8]) -> Result<Self, String> {
        NET.device(body, Self::check)
    }
}

impl VsockOption {
    /// Takes the body of a request.
    pub fn from_client(body: &[u8]) -> Result<Self, String> {
        VSOCK.device(body, Self::check)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(value: &Value) -> Result<VmConfig, String> {
        VmConfig::from_client(value.to_string().as_bytes())
    }

    #[test]
    fn what_asks_for_nothing_is_taken() {
        let plain = json!({"payload": {"kernel": "/k", "cmdline": "quiet"}, "cpus": {"boot_vcpus": 2},
            "memory": {"size": 1 << 30}, "disks": [{"path": "/d", "id": "root"}], "serial": {"mode": "Null"}});
        let wordy = json!({
            "payload": {"kernel": "/k", "cmdline": "quiet", "initramfs": null, "igvm": null, "host_data": ""},
            "cpus": {"boot_vcpus": 2, "max_vcpus": 8, "kvm_hyperv": false, "max_phys_bits": 46, "affinity": [],
                "topology": {"threads_per_core": 1, "cores_per_die": 8, "dies_per_package": 1, "packages": 1},
                "features": {"amx": false}, "core_scheduling": "Off", "nested": true},
            "memory": {"size": 1 << 30, "hotplug_size": null, "hotplugged_size": 0, "mergeable": false,
                "hotplug_method": "VirtioMem", "shared": false, "hugepages": false, "hugepage_size": null,
                "prefault": false, "thp": true, "zones": null, "reserve": false}, "numa": null,
            "disks": [{"path": "/d", "id": "root", "readonly": false, "direct": false, "iommu": false, "num_queues": 1,
                "queue_size": 128, "vhost_user": false, "vhost_socket": null, "pci_segment": 0, "image_type": "Unknown",
                "rate_limiter_config": {"ops": {"size": 0, "refill_time": 0}}, "sparse": true}],
            "net": null, "fs": [], "vsock": null, "rng": {"src": "/dev/urandom", "iommu": false},
            "serial": {"mode": "Null", "file": null, "socket": null}, "console": {"mode": "Off", "iommu": false},
            "debug_console": {"mode": "Off", "iobase": 233}, "watchdog": false, "iommu": false, "pvpanic": true,
            "platform": {"num_pci_segments": 10, "iommu_segments": [], "tdx": false}, "landlock_enable": false,
        });
        assert_eq!(of(&wordy), of(&plain));
        assert!(of(&plain).unwrap().restart_on_reset());
    }

    #[test]
    fn what_asks_for_something_is_named() {
        for (field, value, expected) in [
            ("vsock", json!({"cid": 3, "socket": "/s", "iommu": true}), "vsock.iommu=true"),
            ("balloon", json!({"size": 0, "statistics": true}), "balloon.statistics=true"),
            ("net", json!([{"tap": "a", "vhost_user": true}]), "net[0].vhost_user=true"),
            ("rtc", json!({}), "rtc"),
            ("watchdog", json!(true), "watchdog=true"),
            ("platform", json!({"uuid": "x"}), "platform"),
            ("cpus", json!({"core_scheduling": "Vm"}), "cpus.core_scheduling=\"Vm\""),
            ("disks", json!([{"path": "/d"}, {"path": "/e", "backing_files": true}]), "disks[1].backing_files=true"),
            (
                "memory",
                json!({"zones": [{"id": "a", "size": 1, "file": "/dev/shm"}]}),
                "memory.zones[0].file=\"/dev/shm\"",
            ),
            ("memory", json!({"zones": [{"id": "a", "size": 1, "hotplug_size": 2}]}), "memory.zones[0].hotplug_size=2"),
            ("numa", json!([{"guest_numa_id": 0, "pci_segments": [1]}]), "numa[0].pci_segments"),
            ("nonsense", json!(1), "nonsense=1"),
        ] {
            let mut config = json!({"payload": {"kernel": "/k"}});
            config[field] = value;
            let must = "flatboot does not support this: must be absent, null, false, 0 or empty";
            assert_eq!(of(&config).unwrap_err(), format!("{expected}: {must}"), "{config}");
        }
    }

    #[test]
    fn what_is_wrong_otherwise_is_said_as_of_a_file() {
        for (body, expected) in [
            ("", "has no body: must have a JSON object"),
            ("[]", "must be a JSON object"),
            ("{", "is no JSON: EOF while parsing an object at line 1 column 1"),
            ("{}", "payload: is missing: must be given"),
            (
                r#"{"payload": {"kernel": "k"}, "cpus": {"boot_vcpus": 4, "max_vcpus": 2}}"#,
                "cpus.max_vcpus=2: must be at least boot_vcpus, 4",
            ),
            (
                r#"{"payload": {"kernel": "k"}, "disks": [{"path": "d", "image_type": "Qcow2"}]}"#,
                "disks[0].image_type=Qcow2: must be a raw disk, which \"qemu-img convert -O raw\" makes of an image",
            ),
            (
                r#"{"payload": {"kernel": "k"}, "disks": [{"path": "d", "num_queues": 17}]}"#,
                "disks[0].num_queues=17: must be a number of queues, 1 to 16",
            ),
            (
                r#"{"payload": {"kernel": "k"}, "net": [{"tap": "a", "num_queues": 1}]}"#,
                "net[0].num_queues=1: must be an even number of queues, 2 to 32",
            ),
            (
                r#"{"payload": {"kernel": "k"}, "net": [{"fds": [7, 8], "num_queues": 2}]}"#,
                "net[0].num_queues=2: must be 4, two for each of 2 descriptor(s)",
            ),
            (
                r#"{"payload": {"kernel": "k"}, "disks": [{"path": "d", "queue_size": 100}]}"#,
                "disks[0].queue_size=100: must be a power of two, 4 to 1024",
            ),
            (
                r#"{"payload": {"kernel": "k"}, "cpus": {"boot_vcpus": 2, "max_vcpus": 4, "topology": {"threads_per_core": 4}}}"#,
                "cpus.topology=4:1:1:1: must be numbers whose product is that of the vCPUs, 2",
            ),
            (
                r#"{"payload": {"kernel": "k"}, "cpus": {"affinity": [{"vcpu": 1, "host_cpus": [0, 2]}]}}"#,
                "cpus.affinity=[1@[0,2]]: must be of a vCPU below 1",
            ),
            (r#"{"payload": {"kernel": "k"}, "memory": 5}"#, "memory=5: must be an object"),
            (
                r#"{"payload": {"kernel": "k"}, "memory": {"thp": "sometimes"}}"#,
                "memory.thp=sometimes: must be true, false or \"all\"",
            ),
        ] {
            assert_eq!(VmConfig::from_client(body.as_bytes()).unwrap_err(), expected, "{body}");
        }
        let deep = "[".repeat(100_000);
        assert!(VmConfig::from_client(deep.as_bytes()).unwrap_err().contains("recursion limit"));
    }

    #[test]
    fn what_a_vm_says_of_itself_makes_the_same_vm() {
        let config = of(&json!({"payload": {"kernel": "/k"}, "rng": null, "memory": {"size": 1 << 30, "thp": "all"}}));
        let config = config.unwrap();
        assert_eq!(VmConfig::from_client(config.to_json().unwrap().as_bytes()), Ok(config));
    }

    #[test]
    fn devices_have_names_of_their_own() {
        let mut config = of(&json!({"payload": {"kernel": "/k"},
            "disks": [{"path": "/a"}, {"path": "/b", "id": "_disk0"}, {"path": "/c"}]}));
        let config = config.as_mut().unwrap();
        config.name_devices();
        let disk = |text: &str| DiskOption::from_client(text.as_bytes());
        config.add_disk(disk(r#"{"path": "/d"}"#).unwrap()).unwrap();
        let ids: Vec<_> = config.disks.iter().filter_map(|disk| disk.id.as_deref()).collect();
        assert_eq!(ids, ["_disk1", "_disk0", "_disk2", "_disk3"]);
        let taken = config.add_disk(disk(r#"{"path": "/e", "id": "_disk2"}"#).unwrap()).unwrap_err();
        assert_eq!(taken.to_string(), "id=_disk2: is that of another device: must be the id of no other");
        assert!(config.remove_device("_disk2") && !config.remove_device("_disk2"));
        config.add_net(NetOption::from_client(br#"{"tap": "a", "num_queues": 2}"#).unwrap()).unwrap();
        let taken = config.add_net(NetOption::from_client(br#"{"id": "_disk1"}"#).unwrap()).unwrap_err();
        assert_eq!(taken.to_string(), "id=_disk1: is that of another device: must be the id of no other");
        assert!(config.net.iter().all(|net| net.mac.is_some()));
        assert!(config.remove_device("_net0"));
        assert_eq!(disk("{}").unwrap_err(), "path: is missing: must be given");
        let wide = disk(r#"{"path": "/e", "num_queues": 70000}"#).unwrap_err();
        assert_eq!(wide, "num_queues=70000: must be a whole number, 0 to 65535");
        let never = disk(r#"{"path": "/e", "rate_limiter_config": {"ops": {"size": 1, "refill_time": 0}}}"#);
        assert!(never.unwrap_err().starts_with("rate_limiter_config.ops.refill_time=0: must be"));
    }
}
