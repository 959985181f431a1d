// SPDX-License-Identifier: Apache-2.0
//! Whether each file has one use, if one of its uses is to be written to.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use super::Config;
use super::console::ConsoleOption;
use super::disk;
use super::error::ConfigError;
use super::file::{FileFault, identity, identity_of};
use super::handoff::HandOff;
use super::output::OutputFile;
use super::payload::{FIRMWARE, INITRAMFS, KERNEL};
use super::serial::SerialOption;
use super::study::HANDOFF_FILE;
use super::vm::{TIMELINE, VmConfig};
use super::{console, serial};
use crate::field::Field;

/// One use of a file.
struct Use<'a> {
    field: Field,
    path: &'a Path,
    file: &'a File,
    written: bool,
}

/// A file that is written to, by the guest or by flatboot, has no other use: one of the two would destroy the other.
pub(super) fn check_files_are_distinct(config: &Config) -> Result<(), ConfigError> {
    let mut seen: Vec<(Field, (u64, u64), bool)> = Vec::new();
    for Use { field, path, file, written } in uses(config) {
        let fault = |fault: FileFault| fault.of(field, path);
        let Some(this) = identity(file).map_err(|error| fault(FileFault::Io(error)))? else { continue };
        let earlier = seen.iter().find(|(_, other, other_written)| *other == this && (written || *other_written));
        if let Some(&(other, ..)) = earlier {
            return Err(fault(FileFault::Shared { other }).into());
        }
        seen.push((field, this, written));
    }
    Ok(())
}

fn uses(config: &Config) -> impl Iterator<Item = Use<'_>> {
    let machine = &config.machine;
    let table = match &machine.hand_off {
        HandOff::File(table) => Some((HANDOFF_FILE, table)),
        HandOff::Planned | HandOff::Off => None,
    };
    let inputs = config.payload.files().chain(table);
    let inputs = inputs.map(|(field, input)| Use { field, path: input.path(), file: input.file(), written: false });
    let disks = machine.disks.iter().enumerate().map(|(index, disk)| Use {
        field: disk::PATH.at(index),
        path: disk.path(),
        file: disk.file(),
        written: !disk.readonly(),
    });
    let outputs = machine.outputs().chain(&config.timeline).filter_map(|output| {
        Some(Use { field: output.field(), path: output.path(), file: output.file()?, written: true })
    });
    inputs.chain(disks).chain(outputs)
}

impl VmConfig {
    /// Refuses it if one of its files is `output`, which is flatboot's own and about to be emptied.
    pub fn leaves_alone(&self, output: &OutputFile) -> Result<(), ConfigError> {
        let Some(file) = output.file() else { return Ok(()) };
        let used = self.uses(file).map_err(|error| FileFault::Io(error).of(output.field(), output.path()))?;
        used.map_or(Ok(()), |(field, path)| Err(FileFault::Shared { other: output.field() }.of(field, path).into()))
    }

    /// What it uses `file` for, by whatever path, if anything.
    pub fn uses(&self, file: &File) -> io::Result<Option<(Field, &Path)>> {
        let Some(this) = identity(file)? else { return Ok(None) };
        let is_this = |path: &Path| fs::metadata(path).is_ok_and(|there| identity_of(&there) == Some(this));
        Ok(self.paths().find(|(_, path)| is_this(path)))
    }

    /// The files that it names.
    fn paths(&self) -> impl Iterator<Item = (Field, &Path)> {
        let payload = &self.payload;
        let serial = if let SerialOption::File(path) = &self.serial { Some(path) } else { None };
        let console = if let ConsoleOption::File { file } = &self.console { Some(file) } else { None };
        let named = [
            (FIRMWARE, payload.firmware.as_ref()),
            (KERNEL, payload.kernel.as_ref()),
            (INITRAMFS, payload.initramfs.as_ref()),
            (HANDOFF_FILE, self.study.handoff_file.as_ref()),
            (serial::FILE, serial),
            (console::FILE, console),
            (TIMELINE, self.timeline.as_ref()),
        ];
        let named = named.into_iter().filter_map(|(field, path)| Some((field, path?.as_path())));
        named.chain(self.disks.iter().enumerate().map(|(index, disk)| (disk::PATH.at(index), disk.path())))
    }
}
