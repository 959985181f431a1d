// SPDX-License-Identifier: Apache-2.0
//! The configuration of a VM as its owner keeps it: what a command line means, and what a JSON file says.

use std::collections::HashSet;
use std::path::PathBuf;
use std::{fs, io};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::convert::{MAX_DEVICES, MAX_SHUTDOWN_TIMEOUT};
use super::disk::DiskOption;
use super::error::{ConfigError, JsonError};
use super::file::{FileError, FileFault};
use super::handoff::HandOffOption;
use super::memory::MemoryConfig;
use super::net::NetOption;
use super::serial::SerialOption;
use super::vcpus::CpusConfig;
use super::vsock::VsockOption;
use crate::devices::virtio::net::Mac;
use crate::keeper;

const OPTION: &str = "--config";
/// Longer is no configuration.
const LENGTH_MAX: u64 = 1 << 20;

/// A VM as its owner describes it. Every value is valid; no file that it names has been looked at. Names are Cloud Hypervisor's
/// where it has the same thing; paths are relative to the directory that flatboot runs in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VmConfig {
    pub(super) payload: PayloadFields,
    #[serde(default)]
    pub(super) cpus: CpusConfig,
    #[serde(default)]
    pub(super) memory: MemoryConfig,
    #[serde(default)]
    pub(super) handoff: HandOffOption,
    #[serde(default)]
    pub(super) disks: Vec<DiskOption>,
    #[serde(default)]
    pub(super) net: Vec<NetOption>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) vsock: Option<VsockOption>,
    /// No device with `null`.
    #[serde(default = "default_rng")]
    pub(super) rng: Option<RngFields>,
    #[serde(default)]
    pub(super) serial: SerialOption,
    /// In bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) serial_limit: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) timeline: Option<PathBuf>,
    #[serde(default)]
    pub(super) restart_on_reset: bool,
    #[serde(default)]
    pub(super) landlock_enable: bool,
    /// In seconds.
    #[serde(default = "default_shutdown_timeout")]
    pub(super) shutdown_timeout: u64,
}

/// What it runs, in any combination.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PayloadFields {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) firmware: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) kernel: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) initramfs: Option<PathBuf>,
    /// The owner's part of it: flatboot's defaults come in front.
    #[serde(default)]
    pub(super) cmdline: String,
}

/// Why a VM gets no more devices.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddError {
    /// There is no room.
    #[error("there are {max} disks, network interfaces and vsock devices: must be at most {max}")]
    TooMany {
        /// As many as there can be.
        max: usize,
    },
    /// It is the second of a kind that there can be one of.
    #[error("there is a vsock device: must be one at most")]
    Second,
    /// Another one has the name.
    #[error("id={0}: is that of another device: must be the id of no other")]
    Taken(String),
}

/// Where the guest's random bytes come from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RngFields {
    pub(super) src: PathBuf,
}

#[expect(clippy::unnecessary_wraps, reason = "the default of an optional device is to be there")]
fn default_rng() -> Option<RngFields> {
    Some(RngFields { src: "/dev/urandom".into() })
}

const fn default_shutdown_timeout() -> u64 {
    10
}

impl VmConfig {
    /// Reads the JSON file of `--config`.
    pub fn read(path: PathBuf) -> Result<Self, ConfigError> {
        let text = match read(&path) {
            Ok(text) => text,
            Err(fault) => return Err(FileError { option: OPTION, path, fault }.into()),
        };
        let named = |what| JsonError { path: format!("{OPTION} {}", path.display()), what };
        Ok(Self::from_json(&text).map_err(named)?)
    }

    /// Takes JSON; what is wrong is said with the path of the field.
    pub(super) fn from_json(text: &str) -> Result<Self, String> {
        let value: Value = serde_json::from_str(text).map_err(|error| format!("is no JSON: {error}"))?;
        Self::from_value(value)
    }

    pub(super) fn from_value(value: Value) -> Result<Self, String> {
        let config: Self = serde_path_to_error::deserialize(value).map_err(|error| {
            let (path, what) = (error.path().to_string(), error.inner().to_string());
            match path.as_str() {
                "." => what,
                // A field of a section begins with its point.
                _ if what.starts_with('.') => format!("{path}{what}"),
                _ => format!("{path}: {what}"),
            }
        })?;
        config.check()?;
        Ok(config)
    }

    /// What goes together.
    fn check(&self) -> Result<(), String> {
        let PayloadFields { firmware, kernel, initramfs, cmdline } = &self.payload;
        if firmware.is_none() && kernel.is_none() {
            return Err("payload: has neither kernel nor firmware: must have one of them".to_owned());
        }
        let for_kernel = [("initramfs", initramfs.is_some()), ("cmdline", !cmdline.trim().is_empty())];
        if let Some((field, _)) = for_kernel.into_iter().find(|(_, given)| *given && kernel.is_none()) {
            let why = "what firmware finds on a disk brings its own";
            return Err(format!("payload.{field}: must be with payload.kernel: {why}"));
        }
        let devices = self.devices();
        if devices > MAX_DEVICES {
            return Err(format!("disks, net and vsock: have {devices}: must be at most {MAX_DEVICES} in all"));
        }
        for (index, disk) in self.disks.iter().enumerate() {
            disk.check().map_err(|wrong| format!("disks[{index}].{wrong}"))?;
        }
        for (index, net) in self.net.iter().enumerate() {
            net.check().map_err(|wrong| format!("net[{index}].{wrong}"))?;
        }
        if let Some(vsock) = &self.vsock {
            vsock.check().map_err(|wrong| format!("vsock.{wrong}"))?;
        }
        let mut earlier = HashSet::new();
        if let Some((path, id)) = self.named().find(|(_, id)| !earlier.insert(*id)) {
            return Err(format!("{path}.id={id}: is that of another device: must be the id of no other"));
        }
        if let (Some(limit), false) = (self.serial_limit, matches!(self.serial, SerialOption::File(_))) {
            return Err(format!("serial_limit={limit}: must be with a serial port whose mode is File"));
        }
        if self.shutdown_timeout > MAX_SHUTDOWN_TIMEOUT {
            let seconds = self.shutdown_timeout;
            return Err(format!("shutdown_timeout={seconds}: must be at most {MAX_SHUTDOWN_TIMEOUT}"));
        }
        Ok(())
    }

    /// Whether it is to start again when it resets.
    #[must_use]
    pub const fn restart_on_reset(&self) -> bool {
        self.restart_on_reset
    }

    /// Whether its threads are to open no files.
    #[must_use]
    pub const fn landlock(&self) -> bool {
        self.landlock_enable
    }

    /// Bytes of its memory.
    #[must_use]
    pub const fn memory_size(&self) -> u64 {
        self.memory.size.bytes()
    }

    /// The devices that have a name, where each is, and its name.
    fn named(&self) -> impl Iterator<Item = (String, &str)> {
        let disks = self.disks.iter().enumerate().map(|(index, disk)| (format!("disks[{index}]"), disk.id.as_deref()));
        let nets = self.net.iter().enumerate().map(|(index, net)| (format!("net[{index}]"), net.id.as_deref()));
        let vsock = self.vsock.iter().map(|vsock| ("vsock".to_owned(), vsock.id.as_deref()));
        disks.chain(nets).chain(vsock).filter_map(|(path, id)| Some((path, id?)))
    }

    /// Gives a name to each device that has none, and an address to each network interface, which it has as long as the VM is there.
    pub fn name_devices(&mut self) {
        let seed = keeper::seed();
        for (index, net) in self.net.iter_mut().enumerate() {
            net.mac.get_or_insert_with(|| Mac::of(seed, index));
        }
        for index in 0..self.disks.len() {
            if self.disks.get(index).is_some_and(|disk| disk.id.is_none()) {
                let id = self.free_id("_disk");
                self.disks.iter_mut().skip(index).take(1).for_each(|disk| disk.id = Some(id.clone()));
            }
        }
        for index in 0..self.net.len() {
            if self.net.get(index).is_some_and(|net| net.id.is_none()) {
                let id = self.free_id("_net");
                self.net.iter_mut().skip(index).take(1).for_each(|net| net.id = Some(id.clone()));
            }
        }
        if self.vsock.as_ref().is_some_and(|vsock| vsock.id.is_none()) {
            let id = self.free_id("_vsock");
            self.vsock.iter_mut().for_each(|vsock| vsock.id = Some(id.clone()));
        }
    }

    /// How many devices there are whose number is limited.
    fn devices(&self) -> usize {
        self.disks.len() + self.net.len() + usize::from(self.vsock.is_some())
    }

    /// A name that no device has: of one more name than there are devices, one is free.
    fn free_id(&self, kind: &str) -> String {
        let names = (0..=MAX_DEVICES).map(|number| format!("{kind}{number}"));
        let free = |name: &String| !self.has(name);
        names.into_iter().find(free).unwrap_or_default()
    }

    fn has(&self, id: &str) -> bool {
        self.named().any(|(_, other)| other == id)
    }

    /// Whether there is room for one more device called `id`.
    fn room_for(&self, id: &str) -> Result<(), AddError> {
        if self.devices() >= MAX_DEVICES {
            return Err(AddError::TooMany { max: MAX_DEVICES });
        }
        if self.has(id) { Err(AddError::Taken(id.to_owned())) } else { Ok(()) }
    }

    /// One more disk, behind the others.
    pub fn add_disk(&mut self, mut disk: DiskOption) -> Result<(), AddError> {
        let id = disk.id.get_or_insert_with(|| self.free_id("_disk"));
        self.room_for(id)?;
        self.disks.push(disk);
        Ok(())
    }

    /// One more network interface, behind the others.
    pub fn add_net(&mut self, mut net: NetOption) -> Result<(), AddError> {
        net.mac.get_or_insert_with(|| Mac::of(keeper::seed(), self.net.len()));
        let id = net.id.get_or_insert_with(|| self.free_id("_net"));
        self.room_for(id)?;
        self.net.push(net);
        Ok(())
    }

    /// A vsock device, if there is none.
    pub fn add_vsock(&mut self, mut vsock: VsockOption) -> Result<(), AddError> {
        if self.vsock.is_some() {
            return Err(AddError::Second);
        }
        let id = vsock.id.get_or_insert_with(|| self.free_id("_vsock"));
        self.room_for(id)?;
        self.vsock = Some(vsock);
        Ok(())
    }

    /// Takes away the device of that name. Whether there was one.
    pub fn remove_device(&mut self, id: &str) -> bool {
        let before = self.devices();
        self.disks.retain(|disk| disk.id.as_deref() != Some(id));
        self.net.retain(|net| net.id.as_deref() != Some(id));
        self.vsock.take_if(|vsock| vsock.id.as_deref() == Some(id));
        self.devices() < before
    }

    /// The same as JSON, every default written out; fails on paths that are not UTF-8.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }
}

fn read(path: &PathBuf) -> Result<String, FileFault> {
    let metadata = path.metadata().map_err(FileFault::reading)?;
    if !metadata.is_file() {
        return Err(FileFault::Kind { found: super::file::kind(metadata.file_type()), must: "a regular file" });
    }
    match metadata.len() {
        0 => Err(FileFault::Empty),
        length if length > LENGTH_MAX => Err(FileFault::TooLong { length, max: LENGTH_MAX }),
        _ => fs::read_to_string(path).map_err(|error| match error.kind() {
            io::ErrorKind::InvalidData => FileFault::Io(error),
            _ => FileFault::reading(error),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{RawConfig, ShapeArgs};

    fn raw(memory: &str, cpus: &str) -> RawConfig {
        RawConfig {
            kernel: Some("vmlinux".into()),
            initramfs: Some("init.cpio".into()),
            cmdline: "quiet ro".to_owned(),
            shape: ShapeArgs { cpus: cpus.to_owned(), memory: memory.to_owned() },
            ..RawConfig::default()
        }
    }

    fn of(raw: RawConfig) -> VmConfig {
        VmConfig::try_from(raw).unwrap()
    }

    #[test]
    fn both_ways_lead_to_the_same() {
        let whole = RawConfig {
            firmware: Some("fw".into()),
            handoff: "file=table".to_owned(),
            disks: vec![
                "path=a,readonly=on,serial=x-1".to_owned(),
                "path=c,sparse=off,direct=on,num_queues=4,queue_size=256,image_type=raw,_disable_io_uring=on"
                    .to_owned(),
                "path=b,ops_size=9,ops_refill_time=1".to_owned(),
            ],
            vsock: Some("cid=3,socket=vsock".to_owned()),
            nets: vec!["tap=vm0,mac=52:54:00:12:34:56".to_owned(), "fd=9,mtu=9000".to_owned()],
            rng: "off".to_owned(),
            serial: "file=console".to_owned(),
            serial_limit: Some("1M".to_owned()),
            timeline: Some("boot.json".into()),
            restart_on_reset: true,
            landlock: true,
            shutdown_timeout: "0".to_owned(),
            ..raw(
                "size=64G,hugepages=on,hugepage_size=1G,shared=on,thp=all,prefault=arenas,layout=pc,zeroed=off",
                "boot=255,early=off,nested=off",
            )
        };
        for raw in [whole, raw("size=512M", "boot=1"), raw("size=1G,arenas=off,holes=3,prefault=on", "boot=2")] {
            let config = of(raw);
            let json = config.to_json().unwrap();
            assert_eq!(VmConfig::from_json(&json), Ok(config), "{json}");
        }
    }

    #[test]
    fn what_is_not_said_is_as_with_options() {
        let json = r#"{"payload": {"kernel": "vmlinux", "initramfs": "init.cpio", "cmdline": "quiet ro"}}"#;
        assert_eq!(VmConfig::from_json(json), Ok(of(raw("size=512M", "boot=1"))));
    }

    #[test]
    fn what_is_wrong_is_named_by_its_field() {
        let with = |rest: &str| format!(r#"{{"payload": {{"kernel": "k"}}, {rest}}}"#);
        for (json, expected) in [
            ("{".to_owned(), "is no JSON: EOF while parsing an object at line 1 column 1"),
            ("{}".to_owned(), "missing field `payload`"),
            (r#"{"payload": {}}"#.to_owned(), "payload: has neither kernel nor firmware: must have one of them"),
            (
                r#"{"payload": {"firmware": "f", "initramfs": "i"}}"#.to_owned(),
                "payload.initramfs: must be with payload.kernel: what firmware finds on a disk brings its own",
            ),
            (with(r#""memory": {"size": 1000}"#), "memory.size=1000: must be at least 64M"),
            (
                with(r#""memory": {"size": 68157440, "hugepages": true}"#),
                "memory.size=68157440: must be a multiple of 2M with hugepages=on",
            ),
            (
                with(r#""memory": {"prefault": "arenas", "arenas": false}"#),
                "memory.prefault=arenas: must be on or off with arenas=off",
            ),
            (with(r#""cpus": {"boot_vcpus": 0}"#), "cpus.boot_vcpus: must be a number of vCPUs, 1 to 255"),
            (with(r#""disks": [{"path": "a"}, {"readonly": true}]"#), "disks[1]: missing field `path`"),
            (
                with(r#""serial": {"mode": "Pty"}"#),
                "serial.mode: unknown variant `Pty`, expected one of `Tty`, `File`, `Null`, `Off`",
            ),
            (
                with(r#""disks": [{"path": "a", "rate_limiter_config": {"ops": {"size": 0, "refill_time": 1}}}]"#),
                "disks[0].rate_limiter_config.ops.size=0: must be at least 1",
            ),
            (
                with(r#""net": [{"tap": "a"}, {"tap": "a b"}]"#),
                "net[1].tap=a b: must be the name of an interface: 1 to 15 letters and digits",
            ),
            (
                with(r#""disks": [{"path": "a", "id": "x"}], "net": [{"id": "x"}]"#),
                "net[0].id=x: is that of another device: must be the id of no other",
            ),
            (with(r#""vsock": {"cid": 2, "socket": "a"}"#), "vsock.cid=2: must be a context id, 3 to 4294967294"),
            (with(r#""shutdown_timeout": 86401"#), "shutdown_timeout=86401: must be at most 86400"),
        ] {
            assert_eq!(VmConfig::from_json(&json).unwrap_err(), expected, "{json}");
        }
        let unknown = VmConfig::from_json(&with(r#""network": []"#)).unwrap_err();
        assert!(unknown.contains("unknown field `network`"), "{unknown}");
    }
}
