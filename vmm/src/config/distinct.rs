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

/// The first of `paths` that leads to `file`, if one does.
fn same<P: AsRef<Path>>(file: &File, paths: impl IntoIterator<Item = (Field, P)>) -> io::Result<Option<(Field, P)>> {
    let Some(this) = identity(file)? else { return Ok(None) };
    let is_this = |path: &Path| fs::metadata(path).is_ok_and(|there| identity_of(&there) == Some(this));
    Ok(paths.into_iter().find(|(_, path)| is_this(path.as_ref())))
}

impl OutputFile {
    /// Refuses the first of `paths` that leads to it.
    pub fn is_none_of<P: AsRef<Path>>(&self, paths: impl IntoIterator<Item = (Field, P)>) -> Result<(), ConfigError> {
        let Some(file) = self.file() else { return Ok(()) };
        let used = same(file, paths).map_err(|error| FileFault::Io(error).of(self.field(), self.path()))?;
        let shared = FileFault::Shared { other: self.field() };
        used.map_or(Ok(()), |(field, path)| Err(shared.of(field, path.as_ref()).into()))
    }
}

impl VmConfig {
    /// Refuses it if one of its files is `output`, which is flatboot's own and about to be emptied.
    pub fn leaves_alone(&self, output: &OutputFile) -> Result<(), ConfigError> {
        output.is_none_of(self.paths())
    }

    /// What it uses `file` for, by whatever path, if anything.
    pub fn uses(&self, file: &File) -> io::Result<Option<(Field, &Path)>> {
        same(file, self.paths())
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
