// SPDX-License-Identifier: Apache-2.0
//! From a path and a verb to what is asked for.

use std::path::PathBuf;
use std::time::Instant;

use hyper::Method;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::answer::Refusal;
use super::stream::{DESCRIPTORS_MAX, Handed};
use crate::config::{DiskOption, NetOption, VmConfig, VsockOption, of_body, of_restore};
use crate::vmm::{Call, Restore};

/// What all paths begin with.
const ROOT: &str = "/api/v1/";

/// What Cloud Hypervisor can do and flatboot cannot.
const MISSING: [&str; 11] = [
    "vm.add-device",
    "vm.add-fs",
    "vm.add-generic-vhost-user",
    "vm.add-pmem",
    "vm.add-user-device",
    "vm.add-vdpa",
    "vm.coredump",
    "vm.nmi",
    "vm.receive-migration",
    "vm.resize-zone",
    "vm.send-migration",
];

/// What is asked for.
#[derive(Debug, Clone, Copy)]
pub(super) enum Route {
    /// Whether anybody is there.
    Ping,
    /// Something of the owner of the VM, which needs no more to be said.
    Plain(fn() -> Call),
    /// The start of the VM, which is timed.
    Boot,
    /// A VM, described by the body.
    Create,
    /// A disk, described by the body.
    AddDisk,
    /// A network interface, described by the body.
    AddNet,
    /// A vsock device, described by the body.
    AddVsock,
    /// Another size, described by the body.
    Resize,
    /// A device's end, named by the body.
    RemoveDevice,
    /// A disk's size, with its name in the body.
    ResizeDisk,
    /// A snapshot, with its place in the body.
    Snapshot,
    /// A VM that goes on from one, described by the body.
    Restore,
}

/// The body of vm.snapshot.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Snapshot {
    destination_url: String,
}

/// The body of vm.restore, without what asks for nothing.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RestoreBody {
    source_url: String,
    #[serde(default)]
    prefault: bool,
    #[serde(default)]
    resume: bool,
    /// Sections of its configuration that are to be other ones.
    #[serde(default)]
    config: Map<String, Value>,
}

/// The body of vm.remove-device.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RemoveDevice {
    id: String,
}

/// The body of vm.resize-disk.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ResizeDisk {
    id: String,
    /// In bytes.
    desired_size: u64,
}

impl Route {
    /// What `method` asks for at `path`.
    pub(super) fn of(method: &Method, path: &str) -> Result<Self, Refusal> {
        let name = path.strip_prefix(ROOT).unwrap_or_default();
        let (route, verb) = match name {
            "vmm.ping" => (Self::Ping, Method::GET),
            "vm.info" => (Self::Plain(|| Call::Info), Method::GET),
            "vm.counters" => (Self::Plain(|| Call::Counters), Method::GET),
            "vmm.shutdown" => (Self::Plain(|| Call::Quit), Method::PUT),
            "vm.create" => (Self::Create, Method::PUT),
            "vm.boot" => (Self::Boot, Method::PUT),
            "vm.pause" => (Self::Plain(|| Call::Pause), Method::PUT),
            "vm.resume" => (Self::Plain(|| Call::Resume), Method::PUT),
            "vm.shutdown" => (Self::Plain(|| Call::Shutdown), Method::PUT),
            "vm.reboot" => (Self::Plain(|| Call::Reboot), Method::PUT),
            "vm.power-button" => (Self::Plain(|| Call::PowerButton), Method::PUT),
            "vm.delete" => (Self::Plain(|| Call::Delete), Method::PUT),
            "vm.add-disk" => (Self::AddDisk, Method::PUT),
            "vm.add-net" => (Self::AddNet, Method::PUT),
            "vm.add-vsock" => (Self::AddVsock, Method::PUT),
            "vm.resize" => (Self::Resize, Method::PUT),
            "vm.remove-device" => (Self::RemoveDevice, Method::PUT),
            "vm.resize-disk" => (Self::ResizeDisk, Method::PUT),
            "vm.snapshot" => (Self::Snapshot, Method::PUT),
            "vm.restore" => (Self::Restore, Method::PUT),
            _ if MISSING.contains(&name) => return Err(Refusal::not_implemented(name)),
            _ => return Err(Refusal::not_found(path)),
        };
        if *method == verb { Ok(route) } else { Err(Refusal::verb(name, method, &verb)) }
    }

    /// What is to be asked of the owner of the VM, by a request that came at `asked`. `body` is looked at if there is to be
    /// one; so is what was `handed` over with it.
    pub(super) fn call(self, asked: Instant, body: &[u8], handed: Handed) -> Result<Option<Call>, Refusal> {
        Ok(Some(match self {
            Self::Ping => return Ok(None),
            Self::Plain(call) => call(),
            Self::Boot => Call::Boot(asked),
            Self::Create => Call::Create(Box::new(VmConfig::from_client(body).map_err(Refusal::body("vm.create"))?)),
            Self::AddDisk => Call::AddDisk(DiskOption::from_client(body).map_err(Refusal::body("vm.add-disk"))?),
            Self::AddNet => Call::AddNet(net(body, handed).map_err(Refusal::body("vm.add-net"))?),
            Self::AddVsock => Call::AddVsock(VsockOption::from_client(body).map_err(Refusal::body("vm.add-vsock"))?),
            Self::Resize => Call::Resize(of_body(body).map_err(Refusal::body("vm.resize"))?),
            Self::RemoveDevice => {
                let RemoveDevice { id } = of_body(body).map_err(Refusal::body("vm.remove-device"))?;
                Call::RemoveDevice(id)
            }
            Self::ResizeDisk => {
                let ResizeDisk { id, desired_size: size } = of_body(body).map_err(Refusal::body("vm.resize-disk"))?;
                Call::ResizeDisk { id, size }
            }
            Self::Snapshot => {
                let Snapshot { destination_url } = of_body(body).map_err(Refusal::body("vm.snapshot"))?;
                let path = path_of("destination_url", &destination_url).map_err(Refusal::body("vm.snapshot"))?;
                Call::Snapshot(path)
            }
            Self::Restore => {
                let RestoreBody { source_url, prefault, resume, config: sections } =
                    of_restore(body).map_err(Refusal::body("vm.restore"))?;
                let path = path_of("source_url", &source_url).map_err(Refusal::body("vm.restore"))?;
                Call::Restore(Box::new(Restore { path, prefault, resume, sections }))
            }
        }))
    }
}

/// The path in a URL of a directory of this host. As Cloud Hypervisor has it, nothing in it is escaped.
fn path_of(field: &str, url: &str) -> Result<PathBuf, String> {
    let path = url.strip_prefix("file://").map(PathBuf::from).filter(|path| path.is_absolute());
    path.ok_or_else(|| format!("{field}={url}: must be file:// and the absolute path of a directory"))
}

fn net(body: &[u8], handed: Handed) -> Result<NetOption, String> {
    if handed.lost && handed.descriptors.len() >= DESCRIPTORS_MAX {
        return Err(format!(
            "more than {DESCRIPTORS_MAX} descriptors came with the request: must be one for each pair of queues"
        ));
    }
    if handed.lost {
        return Err(format!(
            "of the descriptors that came with the request this process can have only {}: ulimit -Hn must be larger",
            handed.descriptors.len()
        ));
    }
    NetOption::from_client(body)?.handed(handed.descriptors)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn restore(body: &str) -> Result<Restore, Refusal> {
        match Route::Restore.call(Instant::now(), body.as_bytes(), Handed::default())? {
            Some(Call::Restore(restore)) => Ok(*restore),
            other => panic!("{other:?}"),
        }
    }

    /// As several versions of ch-remote send it, and other clients of theirs.
    #[test]
    fn a_restore_may_have_what_asks_for_nothing() {
        for rest in [
            r#""prefault":false"#,
            r#""prefault":true,"net_fds":null,"resume":true"#,
            r#""prefault":false,"memory_restore_mode":"Copy","net_fds":null,"resume":false"#,
            r#""prefault":false,"memory_restore_mode":"OnDemand","net_fds":null,"vfio_fds":null,"iommufd_fd":null,"resume":false"#,
            r#""prefault":false,"net_fds":[],"zone_updates":[],"config":null"#,
        ] {
            let restore = restore(&format!(r#"{{"source_url":"file:///s",{rest}}}"#)).unwrap();
            assert_eq!((restore.path, restore.sections), (PathBuf::from("/s"), Map::new()), "{rest}");
            assert_eq!(
                (restore.prefault, restore.resume),
                (rest.contains("prefault\":true"), rest.contains("resume\":true"))
            );
        }
        for (rest, named) in [
            (r#""net_fds":[{"id":"net0","fds":[7]}]"#, "net_fds"),
            (r#""memory_restore_mode":"CopyOnWrite""#, "memory_restore_mode=\"CopyOnWrite\""),
            (r#""config":{"disks":[{"path":"/d","iommu":true}]}"#, "disks[0].iommu=true"),
        ] {
            let refusal = format!("{:?}", restore(&format!(r#"{{"source_url":"file:///s",{rest}}}"#)).unwrap_err());
            let words = format!("{:?}", format!("vm.restore: {named}: flatboot does not support this"));
            assert!(refusal.contains(words.trim_matches('"')), "{refusal}");
        }
    }

    #[test]
    fn so_may_the_sections_of_one() {
        let sections = json!({
            "disks": [{"path": "/d", "iommu": false, "pci_segment": 0, "vhost_socket": null, "id": null}],
            "console": {"mode": "Off", "iommu": false}, "memory": {"size": 1 << 30, "hotplug_method": "Acpi", "zones": null},
            "payload": null, "fs": null, "pvpanic": true, "rng": null, "serial_limit": null, "timeline": null,
        });
        let body = json!({"source_url": "file:///s", "config": sections}).to_string();
        let expected = json!({
            "disks": [{"path": "/d"}], "console": {"mode": "Off"}, "memory": {"size": 1 << 30}, "rng": null, "serial_limit": null,
        });
        assert_eq!(Value::Object(restore(&body).unwrap().sections), expected);
    }
}
