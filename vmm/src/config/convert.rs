// SPDX-License-Identifier: Apache-2.0
//! From what was typed to what is meant, and from that to what is open: files to read first, files to write last.

use std::fs::File;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::balloon::BalloonConfig;
use super::console::ConsoleOption;
use super::disk::{DiskConfig, DiskOption};
use super::error::ConfigError;
use super::file::{FileFault, identity, kind};
use super::handoff::{HandOff, HandOffOption};
use super::limits::{MAX_DEVICES, MAX_SHUTDOWN_TIMEOUT};
use super::memory::MemoryConfig;
use super::net::{self, NetOption};
use super::numa;
use super::options::{OptionError, Options, parse_number, parse_size};
use super::output::OutputFile;
use super::payload::{Payload, PayloadOption};
use super::raw::RawConfig;
use super::serial::{SerialConfig, SerialOption};
use super::shape::parse_numa;
use super::vcpus::CpusConfig;
use super::vm::{PayloadFields, RngFields, VmConfig};
use super::vsock::{self, VsockOption};
use super::{Config, MachineConfig};
use crate::leave::Leave;
use crate::memory::{AddressWidth, PlanInput};

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
        let console = ConsoleOption::parse(&raw.console)?;
        let balloon = raw.balloon.as_deref().map(|text| BalloonConfig::parse(text, &memory)).transpose()?;
        check_count(&disks, &net, [vsock.is_some(), console.is_there(), balloon.is_some()])?;
        let rng = parse_rng(&raw.rng)?.map(|src| RngFields { src });
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
            console,
            balloon,
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

impl VmConfig {
    /// Opens what it runs.
    fn open_payload(&self) -> Result<Payload, ConfigError> {
        Ok(PayloadOption::parse(&self.payload, self.serial.is_console())?.open()?)
    }

    /// Looks at the files as they are now, while a VM has them that was made from this: whether another one could open them. It
    /// locks no disk, attaches to no network, makes no socket and leaves no file. What is to run is returned, with what
    /// its memory follows from.
    pub fn look_again(&self) -> Result<(Payload, PlanInput), ConfigError> {
        let vm = self.clone();
        let (_, zones) = numa::resolved(&vm.numa, &vm.cpus, &vm.memory).map_err(|wrong| wrong.in_options())?;
        let payload = vm.open_payload()?;
        vm.handoff.open()?;
        vm.disks.into_iter().try_for_each(|disk| disk.open().map(drop))?;
        vm.rng.iter().try_for_each(|rng| open_rng(&rng.src).map(drop))?;
        // One that is not there is created, and removed again.
        vm.serial.open()?;
        vm.timeline.map(|path| OutputFile::open("--timeline", &path)).transpose()?;
        Ok((payload, vm.memory.plan_input(&zones, AddressWidth::reported(AddressWidth::MAX))))
    }
}

impl TryFrom<VmConfig> for Config {
    type Error = ConfigError;

    fn try_from(vm: VmConfig) -> Result<Self, ConfigError> {
        Self::open(vm, &Leave::default())
    }
}

impl Config {
    /// Opens the files: first those to read, last those to write. `leave` gets to know what a signal must not leave behind.
    pub fn open(vm: VmConfig, leave: &Leave) -> Result<Self, ConfigError> {
        // That it is valid was seen when it was made.
        let (nodes, zones) = numa::resolved(&vm.numa, &vm.cpus, &vm.memory).map_err(|wrong| wrong.in_options())?;
        let payload = vm.open_payload()?;
        let VmConfig { cpus, memory, restart_on_reset, landlock_enable: landlock, .. } = vm;
        let hand_off = vm.handoff.open()?;
        let disks = vm.disks.into_iter().map(DiskOption::open).collect::<Result<_, _>>()?;
        let nets = vm.net.into_iter().map(NetOption::open).collect::<Result<_, _>>()?;
        let rng = vm.rng.map(|rng| open_rng(&rng.src)).transpose()?;

        // Last, because opening creates them; an error from here on removes them again as they are dropped.
        let vsock = vm.vsock.map(|vsock| vsock.open(leave)).transpose()?;
        let console = vm.console.open(leave)?;
        let serial = vm.serial.open()?;
        let timeline = vm.timeline.map(|path| OutputFile::open("--timeline", &path)).transpose()?;

        let shutdown_timeout = Duration::from_secs(vm.shutdown_timeout);
        let serial_limit = vm.serial_limit;
        let balloon = vm.balloon;
        let machine = MachineConfig {
            cpus,
            memory,
            zones,
            nodes,
            hand_off,
            disks,
            nets,
            vsock,
            console,
            balloon,
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
    let others = disks.iter().map(|disk| disk.id.as_ref()).chain(nets.iter().map(|net| net.id.as_ref()));
    check_id(vsock::OPTION, vsock.id.as_ref(), others)?;
    Ok(Some(vsock))
}

/// That there are not more devices than there is room for.
fn check_count(disks: &[DiskOption], nets: &[NetOption], others: [bool; 3]) -> Result<(), OptionError> {
    const OPTIONS: &str = "--disk, --net, --vsock, --console and --balloon";
    let count = disks.len() + nets.len() + others.into_iter().filter(|there| *there).count();
    if count > MAX_DEVICES { Err(OptionError::TooMany { option: OPTIONS, count, max: MAX_DEVICES }) } else { Ok(()) }
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
