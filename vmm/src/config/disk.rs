// SPDX-License-Identifier: Apache-2.0
//! Disks.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::error::{ConfigError, FieldError};
use super::file::{FileError, FileFault, kind};
use super::lock::{Lock, lock};
use super::options::{OptionError, Options};
use super::rate::{self, RateConfig};

const OPTION: &str = "--disk";

/// Bytes of a virtio block sector: disks are whole numbers of them.
pub const SECTOR_SIZE: u64 = 512;

/// A disk whose file is still to be opened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiskOption {
    path: PathBuf,
    #[serde(default)]
    readonly: bool,
    /// What the guest discards needs no room in the file.
    #[serde(default = "default_sparse", skip_serializing_if = "is_sparse")]
    sparse: bool,
    /// What the guest sees as its serial number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    serial: Option<String>,
    /// What it is called by whoever asks for it later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) id: Option<String>,
    #[serde(default, deserialize_with = "RateConfig::of_field", skip_serializing_if = "Option::is_none")]
    rate_limiter_config: Option<RateConfig>,
}

/// A raw disk: a regular file or block device of whole sectors, not empty, open.
#[derive(Debug)]
pub struct DiskConfig {
    path: PathBuf,
    file: File,
    length: u64,
    readonly: bool,
    sparse: bool,
    serial: Option<String>,
    id: Option<String>,
    limits: Option<RateConfig>,
}

const fn default_sparse() -> bool {
    true
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
const fn is_sparse(sparse: &bool) -> bool {
    *sparse
}

impl DiskOption {
    /// Takes the text of one `--disk`.
    pub(super) fn parse(text: &str) -> Result<Self, OptionError> {
        let keys = [["path", "readonly", "sparse", "serial", "id"].as_slice(), &rate::KEYS].concat();
        let options = Options::parse(OPTION, text, &keys)?;
        let path = options.get("path").ok_or(OptionError::Missing { option: OPTION, keys: "path=FILE" })?;
        let text = |key: &str| options.get(key).map(str::to_owned);
        let disk = Self {
            path: path.into(),
            readonly: options.switch("readonly", false)?,
            sparse: options.switch("sparse", true)?,
            serial: text("serial"),
            id: text("id"),
            rate_limiter_config: RateConfig::parse(&options)?,
        };
        disk.check_fields().map_err(|error| options.wrong_field(&error))?;
        Ok(disk)
    }

    /// What is wrong with one of a JSON file, as the path of a field and what would be right.
    pub(super) fn check(&self) -> Result<(), String> {
        self.check_fields().map_err(|error| error.alone())?;
        self.rate_limiter_config.map_or(Ok(()), |limits| limits.check())
    }

    fn check_fields(&self) -> Result<(), FieldError> {
        match &self.serial {
            Some(serial) if !is_serial(serial) => {
                Err(FieldError::new("serial", serial, "must have 1 to 20 letters, digits and signs"))
            }
            _ => Ok(()),
        }
    }

    /// Opens it, for reading only if so asked.
    pub(super) fn open(self) -> Result<DiskConfig, ConfigError> {
        let Self { path, readonly, sparse, serial, id, rate_limiter_config: limits } = self;
        match open(&path, readonly) {
            Ok((file, length)) => Ok(DiskConfig { path, file, length, readonly, sparse, serial, id, limits }),
            Err(fault) => Err(FileError { option: OPTION, path, fault }.into()),
        }
    }
}

fn open(path: &Path, readonly: bool) -> Result<(File, u64), FileFault> {
    // Opening a pipe would wait for its other end, so look first.
    let file_type = path.metadata().map_err(FileFault::reading)?.file_type();
    if !file_type.is_file() && !file_type.is_block_device() {
        return Err(FileFault::Kind { found: kind(file_type), must: "a regular file or a block device" });
    }
    // Readable first: a file that is neither must not be answered with "use readonly=on".
    let mut file = File::open(path).map_err(FileFault::reading)?;
    if !readonly {
        file = OpenOptions::new().read(true).write(true).open(path).map_err(writing)?;
    }
    // Metadata knows no length of a block device.
    let length = file.seek(SeekFrom::End(0)).and_then(|end| file.rewind().map(|()| end)).map_err(FileFault::Io)?;
    match length {
        0 => Err(FileFault::Empty),
        _ if !length.is_multiple_of(SECTOR_SIZE) => Err(FileFault::Length { length, multiple: SECTOR_SIZE }),
        _ => Ok((file, length)),
    }
}

/// What fits into the 20 bytes that a guest is told, and can be read there.
fn is_serial(text: &str) -> bool {
    (1..=20).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}

fn writing(error: io::Error) -> FileFault {
    match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => FileFault::ReadOnlyDisk,
        _ => FileFault::Io(error),
    }
}

impl DiskConfig {
    /// Its path, for messages.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The open file.
    #[must_use]
    pub const fn file(&self) -> &File {
        &self.file
    }

    /// How much it may do in a time.
    #[must_use]
    pub const fn limits(&self) -> Option<RateConfig> {
        self.limits
    }

    /// Gives up the configuration for the open file.
    #[must_use]
    pub fn into_file(self) -> File {
        self.file
    }

    /// Bytes in it: a multiple of [`SECTOR_SIZE`], not 0.
    #[must_use]
    pub const fn length(&self) -> u64 {
        self.length
    }

    /// What it is called.
    #[must_use]
    pub fn id(&self) -> Option<&str> {
        self.id.as_deref()
    }

    /// Locks it as long as its file is open: against everybody else, or if it is only read, against writers.
    pub(super) fn lock(&self) -> Result<(), ConfigError> {
        let fault = match lock(&self.file, !self.readonly) {
            Ok(Lock::Held) => return Ok(()),
            Ok(Lock::None) => {
                let path = self.path.display();
                tracing::warn!(%path, "its file system has no locks: nothing keeps another VM from using this disk");
                return Ok(());
            }
            Ok(Lock::Taken) if self.readonly => FileFault::BeingWritten,
            Ok(Lock::Taken) => FileFault::InUse,
            Err(error) => FileFault::Io(error),
        };
        Err(FileError { option: OPTION, path: self.path.clone(), fault }.into())
    }

    /// Whether what the guest discards needs no room in the file.
    #[must_use]
    pub const fn sparse(&self) -> bool {
        self.sparse
    }

    /// What the guest sees as its serial number, if its owner has said so.
    #[must_use]
    pub fn serial(&self) -> Option<&str> {
        self.serial.as_deref()
    }

    /// Whether the guest may only read it.
    #[must_use]
    pub const fn readonly(&self) -> bool {
        self.readonly
    }
}
