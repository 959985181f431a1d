// SPDX-License-Identifier: Apache-2.0
//! From what was typed to what is meant, and from that to what is open: files to read first, files to write last.

use std::time::Duration;

use super::balloon::BalloonConfig;
use super::console::ConsoleOption;
use super::disk::DiskOption;
use super::distinct::check_files_are_distinct;
use super::error::ConfigError;
use super::handoff::HandOff;
use super::memory::MemoryConfig;
use super::net::NetOption;
use super::numa;
use super::options::{OptionError, parse_number, parse_size};
use super::output::OutputFile;
use super::payload::{Payload, PayloadFields, PayloadOption};
use super::raw::RawConfig;
use super::rng::RngOption;
use super::serial::SerialOption;
use super::shape::parse_numa;
use super::study::StudyConfig;
use super::vcpus::CpusConfig;
use super::vm::{TIMELINE, VmConfig, must_be_timeout};
use super::vsock::VsockOption;
use super::{Config, MachineConfig};
use crate::cpu::topology::CpuTopology;
use crate::field::Field;
use crate::leave::Leave;
use crate::memory::PlanInput;

impl TryFrom<RawConfig> for VmConfig {
    type Error = ConfigError;

    /// Takes the texts; no file is looked at.
    fn try_from(raw: RawConfig) -> Result<Self, ConfigError> {
        let cpus = CpusConfig::parse(&raw.shape.cpus)?;
        let memory = MemoryConfig::parse(raw.shape.memory(), &raw.shape.memory_zones)?;
        let balloon = raw.balloon.as_deref().map(|text| BalloonConfig::parse(text, &memory)).transpose()?;
        let RawConfig { firmware, kernel, initramfs, cmdline, .. } = raw;
        let vm = Self {
            payload: PayloadFields { firmware, kernel, initramfs, cmdline },
            cpus,
            memory,
            numa: parse_numa(&raw.shape.numa)?,
            disks: raw.disks.iter().map(|text| DiskOption::parse(text)).collect::<Result<_, _>>()?,
            net: raw.nets.iter().map(|text| NetOption::parse(text)).collect::<Result<_, _>>()?,
            vsock: raw.vsock.as_deref().map(VsockOption::parse).transpose()?,
            console: ConsoleOption::parse(&raw.console)?,
            balloon,
            rng: RngOption::parse(&raw.rng)?,
            serial: SerialOption::parse(&raw.serial)?,
            serial_limit: raw.serial_limit.as_deref().map(parse_serial_limit).transpose()?,
            timeline: raw.timeline,
            restart_on_reset: raw.restart_on_reset,
            landlock_enable: raw.landlock,
            shutdown_timeout: parse_shutdown_timeout(&raw.shutdown_timeout)?,
            study: StudyConfig::parse(&raw.shape.study)?,
        };
        vm.check()?;
        Ok(vm)
    }
}

impl VmConfig {
    /// Opens what it runs.
    fn open_payload(&self) -> Result<Payload, ConfigError> {
        Ok(PayloadOption::parse(&self.payload, self.kernel_console())?.open()?)
    }

    /// Looks at the files as they are now, while a VM has them that was made from this: whether another one could open them. It
    /// locks no disk, attaches to no network, makes no socket and leaves no file. What is to run is returned, on
    /// which processors, and what its memory follows from.
    pub fn look_again(&self) -> Result<(Payload, CpuTopology, PlanInput), ConfigError> {
        let vm = self.clone();
        let (_, zones) = numa::resolved(&vm.numa, &vm.cpus, &vm.memory)?;
        let payload = vm.open_payload()?;
        HandOff::open(&vm.study)?;
        vm.disks.into_iter().enumerate().try_for_each(|(index, disk)| disk.open(index).map(drop))?;
        vm.rng.map(RngOption::open).transpose()?;
        // One that is not there is created, and removed again.
        vm.serial.open()?;
        vm.console.look_again()?;
        vm.timeline.map(|path| OutputFile::open(TIMELINE, &path)).transpose()?;
        Ok((payload, vm.cpus.topology, vm.study.plan_input(&vm.memory, zones)))
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
        let payload = vm.open_payload()?;
        Self::with(payload, vm, leave)
    }

    /// The same for a VM that goes on from what was saved, and needs neither kernel nor initramfs. What its guest said before is kept.
    pub fn open_saved(vm: VmConfig, leave: &Leave) -> Result<Self, ConfigError> {
        let mut config = Self::with(Payload::Saved, vm, leave)?;
        config.machine.append();
        Ok(config)
    }

    fn with(payload: Payload, vm: VmConfig, leave: &Leave) -> Result<Self, ConfigError> {
        // That it is valid was seen when it was made.
        let (nodes, zones) = numa::resolved(&vm.numa, &vm.cpus, &vm.memory)?;
        let VmConfig { cpus, memory, study, restart_on_reset, landlock_enable: landlock, .. } = vm;
        let hand_off = HandOff::open(&study)?;
        let disks = vm.disks.into_iter().enumerate();
        let disks = disks.map(|(index, disk)| disk.open(index)).collect::<Result<_, _>>()?;
        let nets = vm.net.into_iter().enumerate().map(|(index, net)| net.open(index)).collect::<Result<_, _>>()?;
        let rng = vm.rng.map(RngOption::open).transpose()?;

        // Last, because opening creates them; an error from here on removes them again as they are dropped.
        let vsock = vm.vsock.map(|vsock| vsock.open(leave)).transpose().map_err(ConfigError::Host)?;
        let console = vm.console.open(leave)?;
        let serial = vm.serial.open()?;
        let timeline = vm.timeline.map(|path| OutputFile::open(TIMELINE, &path)).transpose()?;

        let shutdown_timeout = Duration::from_secs(vm.shutdown_timeout);
        let serial_limit = vm.serial_limit;
        let balloon = vm.balloon;
        let machine = MachineConfig {
            memory: study.plan_input(&memory, zones),
            cpus,
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
        config.machine.disks.iter().enumerate().try_for_each(|(index, disk)| disk.lock(index))?;
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

fn parse_serial_limit(text: &str) -> Result<u64, OptionError> {
    parse_size(text).map_err(|must| OptionError::word(Field::section("serial_limit"), text, must))
}

fn parse_shutdown_timeout(text: &str) -> Result<u64, OptionError> {
    let wrong = || OptionError::word(Field::section("shutdown_timeout"), text, &must_be_timeout());
    parse_number(text).ok_or_else(wrong)
}
