// SPDX-License-Identifier: Apache-2.0
//! What the VM runs: a kernel, or firmware that finds one.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::cmdline::{Cmdline, KernelConsole};
use super::error::ConfigError;
use super::field::FieldError;
use super::file::{FileError, FileFault, InputFile};
use crate::field::Field;
use crate::layout::{FLASH, PAGE_SIZE};

const PAYLOAD: Field = Field::section("payload");
/// What the boot CPU runs before any kernel.
pub const FIRMWARE: Field = PAYLOAD.member("firmware");
/// The kernel's image.
pub const KERNEL: Field = PAYLOAD.member("kernel");
/// What is handed to the kernel.
pub const INITRAMFS: Field = PAYLOAD.member("initramfs");

/// Bytes of the smallest firmware image.
const FIRMWARE_MIN: u64 = 64 << 10;
/// Bytes of the largest one.
const FIRMWARE_MAX: u64 = FLASH.end - FLASH.start;
/// Firmware learns sizes as 32-bit numbers.
const FETCHED_MAX: u64 = u32::MAX as u64;

/// What a VM runs, in any combination.
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

/// What the boot CPU runs first.
#[derive(Debug)]
pub enum Payload {
    /// A kernel, which flatboot loads into guest memory.
    Kernel(KernelConfig),
    /// Firmware, at the processor's reset vector.
    Firmware(FirmwareConfig),
    /// What it ran when it was saved.
    Saved,
}

/// A kernel and what it gets.
#[derive(Debug)]
pub struct KernelConfig {
    /// The kernel image; its format is not looked at yet.
    pub image: InputFile,
    /// The initramfs.
    pub initramfs: Option<InputFile>,
    /// The kernel's command line, defaults included.
    pub cmdline: Cmdline,
}

/// Firmware and what it boots.
#[derive(Debug)]
pub struct FirmwareConfig {
    /// The image: whole pages, and there is room for it; its content is not looked at yet.
    pub image: InputFile,
    /// The kernel that firmware fetches, at most 4 GiB - 1, its initramfs too; without, it looks for one on the disks.
    pub kernel: Option<KernelConfig>,
}

/// The same, with files still to be opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PayloadOption {
    first: First,
    cmdline: Cmdline,
    initramfs: Option<PathBuf>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum First {
    Kernel(PathBuf),
    Firmware { image: PathBuf, kernel: Option<PathBuf> },
}

impl PayloadOption {
    /// Checks that the fields go together. `console` says where the kernel's messages go.
    pub(super) fn parse(fields: &PayloadFields, console: Option<KernelConsole>) -> Result<Self, ConfigError> {
        let PayloadFields { firmware, kernel, initramfs, cmdline } = fields;
        let first = match (firmware, kernel) {
            (None, Some(kernel)) => First::Kernel(kernel.clone()),
            (Some(image), kernel) => First::Firmware { image: image.clone(), kernel: kernel.clone() },
            (None, None) => {
                let must = "has neither kernel nor firmware: must have one of them";
                return Err(FieldError::without_value(PAYLOAD, must).into());
            }
        };
        let parsed = Self { first, cmdline: Cmdline::new(cmdline, console)?, initramfs: initramfs.clone() };
        if kernel.is_none() {
            check_without_kernel(fields)?;
        }
        Ok(parsed)
    }

    /// Opens the files, what runs first first.
    pub(super) fn open(self) -> Result<Payload, FileError> {
        let Self { first, cmdline, initramfs } = self;
        let kernel = |path: &Path| -> Result<KernelConfig, FileError> {
            let image = InputFile::open(KERNEL, path)?;
            let initramfs = initramfs.map(|path| InputFile::open(INITRAMFS, &path)).transpose()?;
            Ok(KernelConfig { image, initramfs, cmdline })
        };
        Ok(match first {
            First::Kernel(path) => Payload::Kernel(kernel(&path)?),
            First::Firmware { image, kernel: path } => {
                let image = open_firmware(&image)?;
                let kernel = path.map(|path| kernel(&path)).transpose()?;
                kernel.iter().try_for_each(check_fetched)?;
                Payload::Firmware(FirmwareConfig { image, kernel })
            }
        })
    }
}

/// What is for the kernel would be lost on one that firmware finds on a disk.
fn check_without_kernel(fields: &PayloadFields) -> Result<(), FieldError> {
    const MUST: &str = "must be with a kernel: what firmware finds on a disk brings its own";
    if let Some(path) = &fields.initramfs {
        return Err(FieldError::of(INITRAMFS, &path.display(), MUST));
    }
    if fields.cmdline.trim().is_empty() {
        return Ok(());
    }
    Err(FieldError::of(PAYLOAD.member("cmdline"), &fields.cmdline, MUST))
}

fn open_firmware(path: &Path) -> Result<InputFile, FileError> {
    let image = InputFile::open(FIRMWARE, path)?;
    let length = image.length();
    let fault = match length {
        FIRMWARE_MIN..=FIRMWARE_MAX if length.is_multiple_of(PAGE_SIZE) => return Ok(image),
        FIRMWARE_MIN..=FIRMWARE_MAX => FileFault::Length { length, multiple: PAGE_SIZE },
        ..FIRMWARE_MIN => FileFault::TooShort { length, min: FIRMWARE_MIN },
        _ => FileFault::TooLong { length, max: FIRMWARE_MAX },
    };
    Err(fault.of(FIRMWARE, path))
}

fn check_fetched(kernel: &KernelConfig) -> Result<(), FileError> {
    for (field, file) in [(KERNEL, Some(&kernel.image)), (INITRAMFS, kernel.initramfs.as_ref())] {
        if let Some(file) = file.filter(|file| file.length() > FETCHED_MAX) {
            return Err(FileFault::TooLong { length: file.length(), max: FETCHED_MAX }.of(field, file.path()));
        }
    }
    Ok(())
}

impl Payload {
    /// Its files, with the fields that name them.
    pub(super) fn files(&self) -> impl Iterator<Item = (Field, &InputFile)> {
        let (firmware, kernel) = match self {
            Self::Kernel(kernel) => (None, Some(kernel)),
            Self::Firmware(firmware) => (Some(&firmware.image), firmware.kernel.as_ref()),
            Self::Saved => (None, None),
        };
        let firmware = firmware.into_iter().map(|image| (FIRMWARE, image));
        let kernel = kernel.into_iter().flat_map(|kernel| {
            let initramfs = kernel.initramfs.iter().map(|initramfs| (INITRAMFS, initramfs));
            [(KERNEL, &kernel.image)].into_iter().chain(initramfs)
        });
        firmware.chain(kernel)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The files that are given, and the command line.
    fn fields(firmware: &str, kernel: &str, initramfs: &str, cmdline: &str) -> PayloadFields {
        let path = |text: &str| Some(text).filter(|text| !text.is_empty()).map(PathBuf::from);
        let (firmware, kernel, initramfs) = (path(firmware), path(kernel), path(initramfs));
        PayloadFields { firmware, kernel, initramfs, cmdline: cmdline.to_owned() }
    }

    #[test]
    fn what_goes_together() {
        for fields in [
            fields("", "k", "i", "quiet"),
            fields("f", "k", "i", "quiet"),
            fields("f", "", "", ""),
            fields("f", "", "", " \t"),
        ] {
            PayloadOption::parse(&fields, None).unwrap();
        }
        for (fields, expected) in [
            (fields("", "", "", ""), "payload: has neither kernel nor firmware: must have one of them"),
            (
                fields("f", "", "i", ""),
                "payload.initramfs=i: must be with a kernel: what firmware finds on a disk brings its own",
            ),
            (
                fields("f", "", "", "quiet"),
                "payload.cmdline=quiet: must be with a kernel: what firmware finds on a disk brings its own",
            ),
        ] {
            let error = PayloadOption::parse(&fields, None).unwrap_err();
            assert!(error.is_usage());
            assert_eq!(error.to_string(), expected);
        }
    }

    #[test]
    fn firmware_is_whole_pages_that_have_room() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let open = |length: u64| {
            file.as_file().set_len(length).unwrap();
            open_firmware(file.path()).map(|image| image.length()).map_err(|error| error.fault.to_string())
        };
        for length in [64 << 10, 68 << 10, 2 << 20, 16 << 20] {
            assert_eq!(open(length), Ok(length));
        }
        for (length, fault) in [
            (0, "is empty: must not be"),
            (60 << 10, "has 61440 bytes: must be at least 65536"),
            ((64 << 10) + 512, "has 66048 bytes: must be a multiple of 4096"),
            ((16 << 20) + 4096, "has 16781312 bytes: must be at most 16777216"),
        ] {
            assert_eq!(open(length), Err(fault.to_owned()));
        }
    }
}
