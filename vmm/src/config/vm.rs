// SPDX-License-Identifier: Apache-2.0
//! The configuration of a VM as its owner keeps it: what a command line means, and what a JSON file says.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::{fs, io};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::balloon::BalloonConfig;
use super::cmdline::KernelConsole;
use super::console::ConsoleOption;
use super::disk::{self, DiskOption};
use super::error::{ConfigError, ReadError};
use super::field::FieldError;
use super::file::FileFault;
use super::json;
use super::limits::{MAX_DEVICES, MAX_SHUTDOWN_TIMEOUT};
use super::memory::MemoryConfig;
use super::net::{self, NetOption};
use super::numa::{self, NumaOption};
use super::payload::{PayloadFields, PayloadOption};
use super::rng::{self, RngOption};
use super::serial::SerialOption;
use super::study::StudyConfig;
use super::vcpus::CpusConfig;
use super::vsock::{self, VsockOption};
use crate::devices::virtio::net::Mac;
use crate::field::Field;
use crate::keeper;
use crate::memory::Size;

pub(super) const TIMELINE: Field = Field::section("timeline");
const SERIAL_LIMIT: Field = Field::section("serial_limit");
const SHUTDOWN_TIMEOUT: Field = Field::section("shutdown_timeout");
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
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) numa: Vec<NumaOption>,
    #[serde(default)]
    pub(super) disks: Vec<DiskOption>,
    #[serde(default)]
    pub(super) net: Vec<NetOption>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) vsock: Option<VsockOption>,
    #[serde(default)]
    pub(super) console: ConsoleOption,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) balloon: Option<BalloonConfig>,
    /// No device with `null`.
    #[serde(default = "default_rng")]
    pub(super) rng: Option<RngOption>,
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
    /// Nothing that a user needs.
    #[serde(default, skip_serializing_if = "StudyConfig::is_default")]
    pub(super) study: StudyConfig,
}

/// Why a VM gets no more devices.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddError {
    /// There is no room.
    #[error("there are {max} disks, network interfaces and other devices: must be at most {max}")]
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

#[expect(clippy::unnecessary_wraps, reason = "the default of an optional device is to be there")]
fn default_rng() -> Option<RngOption> {
    Some(RngOption::default())
}

const fn default_shutdown_timeout() -> u64 {
    10
}

impl VmConfig {
    /// Reads a JSON file.
    pub fn read(path: &Path) -> Result<Self, ReadError> {
        Self::from_json(&read(path)?).map_err(ReadError::Json)
    }

    /// Takes JSON; what is wrong is said with the path of the field.
    pub(super) fn from_json(text: &str) -> Result<Self, String> {
        let value: Value = serde_json::from_str(text).map_err(|error| format!("is no JSON: {error}"))?;
        Self::from_value(&value)
    }

    pub(super) fn from_value(value: &Value) -> Result<Self, String> {
        let config: Self = json::take(value)?;
        config.check().map_err(|error| error.to_string())?;
        Ok(config)
    }

    /// What goes together, and what each value can be that has no type of its own.
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        numa::resolved(&self.numa, &self.cpus, &self.memory)?;
        PayloadOption::parse(&self.payload, self.kernel_console())?;
        self.check_devices()?;
        self.study.check(&self.memory)?;
        self.memory.check_max(self.payload.firmware.is_some(), self.numa.len(), self.study.handoff)?;
        let writes_a_file = matches!(self.serial, SerialOption::File(_)) || self.console.is_file();
        if let Some(limit) = self.serial_limit.filter(|_| !writes_a_file) {
            let must = "must be with a serial port or a console that writes to a file";
            return Err(FieldError::of(SERIAL_LIMIT, &format_args!("{:#}", Size(limit)), must).into());
        }
        let seconds = self.shutdown_timeout;
        if seconds > MAX_SHUTDOWN_TIMEOUT {
            return Err(FieldError::of(SHUTDOWN_TIMEOUT, &seconds, &must_be_timeout()).into());
        }
        Ok(())
    }

    fn check_devices(&self) -> Result<(), ConfigError> {
        let devices = self.devices();
        if devices > MAX_DEVICES {
            return Err(ConfigError::TooMany(devices));
        }
        for (index, disk) in self.disks.iter().enumerate() {
            disk.check().map_err(|wrong| wrong.within(disk::OPTION.at(index)))?;
        }
        for (index, net) in self.net.iter().enumerate() {
            net.check().map_err(|wrong| wrong.within(net::OPTION.at(index)))?;
        }
        if let Some(vsock) = &self.vsock {
            vsock.check().map_err(|wrong| wrong.within(vsock::OPTION))?;
        }
        if let Some(rng) = &self.rng {
            rng.check().map_err(|wrong| wrong.within(rng::OPTION))?;
        }
        self.console.check()?;
        self.console.check_terminal(self.serial == SerialOption::Tty)?;
        self.balloon.iter().try_for_each(|balloon| balloon.check(&self.memory))?;
        let mut earlier = HashSet::new();
        if let Some((device, id)) = self.named().find(|(_, id)| !earlier.insert(*id)) {
            let must = "is that of another device: must be the id of no other";
            return Err(FieldError::of(device.member("id"), &id, must).into());
        }
        Ok(())
    }

    /// Where the messages of a kernel go.
    pub(super) fn kernel_console(&self) -> Option<KernelConsole> {
        if self.serial.is_console() {
            Some(KernelConsole::Serial)
        } else {
            self.console.is_console().then_some(KernelConsole::Virtio)
        }
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

    /// The sockets that its start makes.
    pub fn sockets(&self) -> impl Iterator<Item = &Path> {
        self.vsock.iter().map(VsockOption::socket).chain(self.console.socket())
    }

    /// Bytes of its memory.
    #[must_use]
    pub const fn memory_size(&self) -> u64 {
        self.memory.size.bytes()
    }

    /// Bytes that it can have beyond those.
    #[must_use]
    pub const fn held_memory(&self) -> u64 {
        self.memory.held()
    }

    /// How many processors it has.
    #[must_use]
    pub fn cpus(&self) -> u64 {
        self.cpus.boot.get().into()
    }

    /// Says where the console's pseudo terminal is.
    pub fn locate_console(&mut self, path: &Path) {
        self.console.locate(path);
    }

    /// From now on the guest is to give up `size` bytes; what is wrong is said of `field`.
    pub fn resize_balloon(&mut self, size: u64, field: Field) -> Result<(), FieldError> {
        let Some(balloon) = &mut self.balloon else {
            if size == 0 {
                return Ok(());
            }
            return Err(FieldError::of(field, &size, "there is no balloon: must be absent, or 0"));
        };
        *balloon = balloon.resized(size, &self.memory).map_err(|error| FieldError { field, ..error })?;
        Ok(())
    }

    /// The devices that have a name, where each is, and its name.
    fn named(&self) -> impl Iterator<Item = (Field, &str)> {
        let disks = self.disks.iter().enumerate().map(|(index, disk)| (disk::OPTION.at(index), disk.id.as_deref()));
        let nets = self.net.iter().enumerate().map(|(index, net)| (net::OPTION.at(index), net.id.as_deref()));
        let vsock = self.vsock.iter().map(|vsock| (vsock::OPTION, vsock.id.as_deref()));
        disks.chain(nets).chain(vsock).filter_map(|(device, id)| Some((device, id?)))
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
        let single = [self.vsock.is_some(), self.console.is_there(), self.balloon.is_some()];
        self.disks.len() + self.net.len() + single.into_iter().filter(|there| *there).count()
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

/// How long a guest may take to power off.
pub(super) fn must_be_timeout() -> String {
    format!("must be a number of seconds, at most {MAX_SHUTDOWN_TIMEOUT}")
}

fn read(path: &Path) -> Result<String, FileFault> {
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
            shape: ShapeArgs { cpus: cpus.to_owned(), memory: Some(memory.to_owned()), ..ShapeArgs::default() },
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
                "size=64G,hugepages=on,hugepage_size=1G,shared=on,thp=all,prefault=on",
                "boot=12,topology=2:3:1:2,affinity=[0@[0-3],11@[7]],nested=off",
            )
        };
        let balloon = Some("size=256M,free_page_reporting=on".to_owned());
        let small = RawConfig { balloon, console: "socket=a".to_owned(), ..raw("size=512M", "boot=1") };
        let mut nodes = raw("size=0", "boot=4");
        nodes.shape.memory_zones = vec![
            "id=a,size=1G,hugepages=on,hugepage_size=1G,host_numa_node=3".to_owned(),
            "id=b,size=129M,shared=on".to_owned(),
        ];
        nodes.shape.numa = vec![
            "guest_numa_id=5,cpus=[0,2-3],memory_zones=[b]".to_owned(),
            "guest_numa_id=2,cpus=1,memory_zones=a,distances=[5@17]".to_owned(),
        ];
        let mut studied = raw("size=1G,prefault=on", "boot=2");
        studied.shape.study = vec!["layout=pc,arenas=off".to_owned(), "zeroed=off,early=off,handoff_file=a".to_owned()];
        let elastic = raw("size=1G,max=1T", "boot=1");
        for raw in [whole, small, nodes, studied, elastic] {
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
            ("{}".to_owned(), "payload: is missing: must be given"),
            (r#"{"payload": {}}"#.to_owned(), "payload: has neither kernel nor firmware: must have one of them"),
            (
                r#"{"payload": {"firmware": "f", "initramfs": "i"}}"#.to_owned(),
                "payload.initramfs=i: must be with a kernel: what firmware finds on a disk brings its own",
            ),
            (with(r#""memory": {"size": 1000}"#), "memory.size=1000: must be at least 64M"),
            (
                with(r#""memory": {"size": 68157440, "hugepages": true}"#),
                "memory.size=68157440: must be a multiple of 2M with hugepages=on",
            ),
            (
                with(r#""study": {"prefault_arenas": true, "arenas": false}"#),
                "study.prefault_arenas=on: must be off with arenas=off",
            ),
            (with(r#""cpus": {"boot_vcpus": 0}"#), "cpus.boot_vcpus=0: must be a number of vCPUs, 1 to 1024"),
            (with(r#""cpus": {"boot_vcpus": 70000}"#), "cpus.boot_vcpus=70000: must be a number of vCPUs, 1 to 1024"),
            (with(r#""cpus": {"boot_vcpus": -1}"#), "cpus.boot_vcpus=-1: must be a whole number, 0 or more"),
            (with(r#""disks": [{"path": "a"}, {"readonly": true}]"#), "disks[1].path: is missing: must be given"),
            (with(r#""serial": {"mode": "Pty"}"#), "serial.mode=Pty: must be one of Tty, File, Null, Off"),
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
            (
                with(r#""memory": {"size": 0, "zones": [{"id": "a", "size": 5}]}"#),
                "memory.zones[0].size=5: must be a multiple of 1M, and not 0",
            ),
            (
                with(r#""memory": {"size": 536870912, "zones": [{"id": "a", "size": 134217728}]}"#),
                "memory.size=536870912: must be absent or 0 with zones, whose sizes add up",
            ),
            (
                with(r#""numa": [{"guest_numa_id": 0, "memory_zones": ["mem0"]}]"#),
                "numa[0].cpus=: leaves vCPUs 0 on no node: each vCPU must be on a node",
            ),
            (
                with(r#""shutdown_timeout": 86401"#),
                "shutdown_timeout=86401: must be a number of seconds, at most 86400",
            ),
        ] {
            assert_eq!(VmConfig::from_json(&json).unwrap_err(), expected, "{json}");
        }
        let unknown = VmConfig::from_json(&with(r#""network": []"#)).unwrap_err();
        assert!(unknown.starts_with("network: there is no such field: must be one of payload, "), "{unknown}");
    }
}
