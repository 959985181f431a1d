// SPDX-License-Identifier: Apache-2.0
//! From what was typed to what is meant, and from that to what is open: files to read first, files to write last.

use std::fs::File;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::disk::{DiskConfig, DiskOption};
use super::error::ConfigError;
use super::file::{FileFault, identity, kind};
use super::handoff::{HandOff, HandOffOption};
use super::memory::MemoryConfig;
use super::net::{self, NetOption};
use super::numa::{self, NumaOption};
use super::options::{OptionError, Options, parse_number, parse_size};
use super::output::OutputFile;
use super::payload::PayloadOption;
use super::raw::{RawConfig, ShapeArgs};
use super::serial::{SerialConfig, SerialOption, check_console};
use super::vcpus::CpusConfig;
use super::vm::{PayloadFields, RngFields, VmConfig};
use super::vsock::{self, VsockOption};
use super::{Config, MachineConfig};
use crate::layout::VIRTIO_SLOTS;
use crate::memory::Zone;

/// Most disks, network interfaces and vsock devices: one virtio slot is the random number generator's.
pub(super) const MAX_DEVICES: usize = VIRTIO_SLOTS - 1;
/// A day: longer is a mistake.
pub(super) const MAX_SHUTDOWN_TIMEOUT: u64 = 86_400;

impl TryFrom<RawConfig> for VmConfig {
    type Error = ConfigError;

    /// Takes the texts; no file is looked at.
    fn try_from(raw: RawConfig) -> Result<Self, ConfigError> {
        let cpus = CpusConfig::parse(&raw.shape.cpus)?;
        let memory = MemoryConfig::parse(&raw.shape.memory, &raw.shape.memory_zones)?;
        let numa = parse_numa(&raw.shape.numa)?;
        numa::resolved(&numa, &cpus, &memory).map_err(|wrong| wrong.in_options())?;
        let handoff = HandOffOption::parse(&raw.handoff)?;
        let disks = parse_disks(&raw.disks)?;
        let net = parse_nets(&raw.nets, &disks)?;
        let vsock = parse_vsock(raw.vsock.as_deref(), &disks, &net)?;
        let rng = parse_rng(&raw.rng)?.map(|src| RngFields { src });
        check_console(&raw.console)?;
        let serial = SerialOption::parse(&raw.serial)?;
        let serial_limit = parse_serial_limit(raw.serial_limit.as_deref(), &serial)?;
        let RawConfig { firmware, kernel, initramfs, cmdline, timeline, restart_on_reset, landlock, .. } = raw;
        let payload = PayloadFields { firmware, kernel, initramfs, cmdline };
        PayloadOption::parse(&payload, serial.is_console())?;
        let shutdown_timeout = parse_shutdown_timeout(&raw.shutdown_timeout)?;
        Ok(Self {
            payload,
            cpus,
            memory,
            numa,
            handoff,
            disks,
            net,
            vsock,
            rng,
            serial,
            serial_limit,
            timeline,
            restart_on_reset,
            landlock_enable: landlock,
            shutdown_timeout,
        })
    }
}

impl TryFrom<VmConfig> for Config {
    type Error = ConfigError;

    /// Opens the files: first those to read, last those to write.
    fn try_from(vm: VmConfig) -> Result<Self, ConfigError> {
        // That it is valid was seen when it was made.
        let (nodes, zones) = numa::resolved(&vm.numa, &vm.cpus, &vm.memory).map_err(|wrong| wrong.in_options())?;
        let VmConfig { cpus, memory, restart_on_reset, landlock_enable: landlock, .. } = vm;
        let payload = PayloadOption::parse(&vm.payload, vm.serial.is_console())?.open()?;
        let hand_off = vm.handoff.open()?;
        let disks = vm.disks.into_iter().map(DiskOption::open).collect::<Result<_, _>>()?;
        let nets = vm.net.into_iter().map(NetOption::open).collect::<Result<_, _>>()?;
        let rng = vm.rng.map(|rng| open_rng(&rng.src)).transpose()?;

        // Last, because opening creates them; an error from here on removes them again as they are dropped.
        let vsock = vm.vsock.map(VsockOption::open).transpose()?;
        let serial = vm.serial.open()?;
        let timeline = vm.timeline.map(|path| OutputFile::open("--timeline", &path)).transpose()?;

        let shutdown_timeout = Duration::from_secs(vm.shutdown_timeout);
        let serial_limit = vm.serial_limit;
        let machine = MachineConfig {
            cpus,
            memory,
            zones,
            nodes,
            hand_off,
            disks,
            nets,
            vsock,
            rng,
            serial,
            serial_limit,
            shutdown_timeout,
        };
        let config = Self { payload, machine, timeline, restart_on_reset, landlock };
        check_files_are_distinct(&config)?;
        // Behind that, or two options that name one file would hold the lock against each other.
        config.machine.disks.iter().try_for_each(DiskConfig::lock)?;
        Ok(config)
    }
}

impl TryFrom<RawConfig> for Config {
    type Error = ConfigError;

    /// A command line that is wrong is wrong whatever files there are.
    fn try_from(raw: RawConfig) -> Result<Self, ConfigError> {
        VmConfig::try_from(raw)?.try_into()
    }
}

fn parse_numa(texts: &[String]) -> Result<Vec<NumaOption>, OptionError> {
    texts.iter().map(|text| NumaOption::parse(text)).collect()
}

/// What `shape` says of vCPUs and memory, and the nodes that follow from it.
pub fn parse_shape(shape: &ShapeArgs) -> Result<(CpusConfig, MemoryConfig, Vec<Zone>), OptionError> {
    let cpus = CpusConfig::parse(&shape.cpus)?;
    let memory = MemoryConfig::parse(&shape.memory, &shape.memory_zones)?;
    let (_, zones) = numa::resolved(&parse_numa(&shape.numa)?, &cpus, &memory).map_err(|wrong| wrong.in_options())?;
    Ok((cpus, memory, zones))
}

fn parse_disks(texts: &[String]) -> Result<Vec<DiskOption>, OptionError> {
    let count = texts.len();
    if count > MAX_DEVICES {
        return Err(OptionError::TooMany { option: "--disk", count, max: MAX_DEVICES });
    }
    let mut disks: Vec<DiskOption> = Vec::with_capacity(count);
    for text in texts {
        let disk = DiskOption::parse(text)?;
        check_id("--disk", disk.id.as_ref(), disks.iter().map(|other| other.id.as_ref()))?;
        disks.push(disk);
    }
    Ok(disks)
}

fn parse_nets(texts: &[String], disks: &[DiskOption]) -> Result<Vec<NetOption>, OptionError> {
    let count = texts.len();
    let max = MAX_DEVICES.saturating_sub(disks.len());
    if count > max {
        return Err(OptionError::TooMany { option: net::OPTION, count, max });
    }
    let mut nets: Vec<NetOption> = Vec::with_capacity(count);
    for text in texts {
        let net = NetOption::parse(text)?;
        let others = disks.iter().map(|disk| disk.id.as_ref()).chain(nets.iter().map(|other| other.id.as_ref()));
        check_id(net::OPTION, net.id.as_ref(), others)?;
        nets.push(net);
    }
    Ok(nets)
}

fn parse_vsock(
    text: Option<&str>,
    disks: &[DiskOption],
    nets: &[NetOption],
) -> Result<Option<VsockOption>, OptionError> {
    let Some(text) = text else { return Ok(None) };
    let vsock = VsockOption::parse(text)?;
    if disks.len() + nets.len() >= MAX_DEVICES {
        let must = format!("must be with at most {} disks and network interfaces", MAX_DEVICES - 1);
        return Err(OptionError::word(vsock::OPTION, text, &must));
    }
    let others = disks.iter().map(|disk| disk.id.as_ref()).chain(nets.iter().map(|net| net.id.as_ref()));
    check_id(vsock::OPTION, vsock.id.as_ref(), others)?;
    Ok(Some(vsock))
}

/// A name is that of one device.
fn check_id<'a>(
    option: &'static str,
    id: Option<&String>,
    mut others: impl Iterator<Item = Option<&'a String>>,
) -> Result<(), OptionError> {
    match id {
        Some(id) if others.any(|other| other == Some(id)) => {
            let must = "is that of another device: must be the id of no other".to_owned();
            Err(OptionError::Value { option, key: "id", value: id.clone(), must })
        }
        _ => Ok(()),
    }
}

fn parse_rng(text: &str) -> Result<Option<PathBuf>, OptionError> {
    if text == "off" {
        return Ok(None);
    }
    let options = Options::parse("--rng", text, &["src"])?;
    let path = options.get("src").ok_or(OptionError::Missing { option: "--rng", keys: "src=FILE" })?;
    Ok(Some(path.into()))
}

fn parse_serial_limit(text: Option<&str>, serial: &SerialOption) -> Result<Option<u64>, OptionError> {
    const OPTION: &str = "--serial-limit";
    let Some(text) = text else { return Ok(None) };
    if !matches!(serial, SerialOption::File(_)) {
        return Err(OptionError::word(OPTION, text, "must be with --serial file=FILE"));
    }
    parse_size(text).map(Some).map_err(|must| OptionError::word(OPTION, text, must))
}

fn open_rng(path: &Path) -> Result<File, ConfigError> {
    let open = || {
        // Opening a pipe would wait for a writer, so look first.
        let file_type = path.metadata().map_err(FileFault::reading)?.file_type();
        if !file_type.is_char_device() && !file_type.is_file() {
            return Err(FileFault::Kind { found: kind(file_type), must: "a character device or a regular file" });
        }
        File::open(path).map_err(FileFault::reading)
    };
    open().map_err(|fault| fault.of("--rng", path).into())
}

fn parse_shutdown_timeout(text: &str) -> Result<u64, OptionError> {
    let seconds = parse_number(text).filter(|seconds| *seconds <= MAX_SHUTDOWN_TIMEOUT);
    seconds.ok_or_else(|| OptionError::Word {
        option: "--shutdown-timeout",
        value: text.to_owned(),
        must: format!("must be a number of seconds, at most {MAX_SHUTDOWN_TIMEOUT}"),
    })
}

/// One use of a file.
struct Use<'a> {
    option: &'static str,
    path: &'a Path,
    file: &'a File,
    written: bool,
}

/// A file that is written to, by the guest or by flatboot, has no other use: one of the two would destroy the other.
fn check_files_are_distinct(config: &Config) -> Result<(), ConfigError> {
    let mut seen: Vec<(&'static str, (u64, u64), bool)> = Vec::new();
    for Use { option, path, file, written } in uses(config) {
        let fault = |fault: FileFault| fault.of(option, path);
        let Some(this) = identity(file).map_err(|error| fault(FileFault::Io(error)))? else { continue };
        let earlier = seen.iter().find(|(_, other, other_written)| *other == this && (written || *other_written));
        if let Some(&(other, ..)) = earlier {
            return Err(fault(FileFault::Shared { other }).into());
        }
        seen.push((option, this, written));
    }
    Ok(())
}

fn uses(config: &Config) -> impl Iterator<Item = Use<'_>> {
    let machine = &config.machine;
    let table = match &machine.hand_off {
        HandOff::File(table) => Some(("--handoff", table)),
        HandOff::Planned | HandOff::Off => None,
    };
    let inputs = config.payload.files().chain(table);
    let inputs = inputs.map(|(option, input)| Use { option, path: input.path(), file: input.file(), written: false });
    let disks = machine.disks.iter().map(|disk| Use {
        option: "--disk",
        path: disk.path(),
        file: disk.file(),
        written: !disk.readonly(),
    });
    let serial = match &machine.serial {
        SerialConfig::File(output) => Some(output),
        _ => None,
    };
    let outputs = serial.into_iter().chain(&config.timeline).filter_map(|output| {
        Some(Use { option: output.option(), path: output.path(), file: output.file()?, written: true })
    });
    inputs.chain(disks).chain(outputs)
}
