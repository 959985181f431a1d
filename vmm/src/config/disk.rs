// SPDX-License-Identifier: Apache-2.0
//! Disks.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::ops::RangeInclusive;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::error::ConfigError;
use super::field::FieldError;
use super::file::{FileError, FileFault, identity, kind};
use super::image::{self, ImageType};
use super::lock::{Lock, lock};
use super::options::{OptionError, Options, parse_number};
use super::rate::{self, RateConfig};
use crate::devices::virtio::block::{Alignment, SECTOR_SIZE};
use crate::field::Field;

/// Where they are in a configuration.
pub(super) const OPTION: Field = Field::section("disks");
/// Where the file of each is.
pub const PATH: Field = OPTION.member("path");

/// Keys besides those of rates.
const KEYS: [&str; 10] = [
    "path",
    "readonly",
    "direct",
    "sparse",
    "serial",
    "id",
    "num_queues",
    "queue_size",
    "image_type",
    "_disable_io_uring",
];
/// How long a disk that does not go by the page cache may be somebody else's: of a process that is no more, until what it has begun
/// is over.
const LET_GO: Duration = Duration::from_secs(5);
const LOOK_AGAIN: Duration = Duration::from_millis(10);
/// Each has a thread.
const QUEUES: RangeInclusive<u16> = 1..=16;
const QUEUES_MUST: &str = "must be a number of queues, 1 to 16";
const QUEUE_SIZE: u16 = 128;
/// A request is at least a header, a piece of data and a status byte; the ring has its size as a power of two.
const QUEUE_SIZES: RangeInclusive<u16> = 4..=1024;
const QUEUE_SIZE_MUST: &str = "must be a power of two, 4 to 1024";

/// A disk whose file is still to be opened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "each is a field of its own in JSON")]
pub struct DiskOption {
    path: PathBuf,
    #[serde(default)]
    readonly: bool,
    /// Its bytes do not go by the host's page cache.
    #[serde(default, skip_serializing_if = "is_off")]
    direct: bool,
    /// What the guest discards needs no room in the file.
    #[serde(default = "default_sparse", skip_serializing_if = "is_sparse")]
    sparse: bool,
    /// What the guest sees as its serial number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    serial: Option<String>,
    /// What it is called by whoever asks for it later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) id: Option<String>,
    /// Queues, each with a thread of its own.
    #[serde(default = "default_num_queues", skip_serializing_if = "is_one")]
    num_queues: u16,
    /// Descriptors in each queue.
    #[serde(default = "default_queue_size", skip_serializing_if = "is_default_queue_size")]
    queue_size: u16,
    #[serde(default, skip_serializing_if = "ImageType::is_default")]
    image_type: ImageType,
    /// One request after another, in each queue.
    #[serde(default, skip_serializing_if = "is_off")]
    disable_io_uring: bool,
    #[serde(default, deserialize_with = "RateConfig::of_field", skip_serializing_if = "Option::is_none")]
    rate_limiter_config: Option<RateConfig>,
}

/// A disk's file, opened for each of its uses.
#[derive(Debug)]
pub struct DiskFiles {
    /// For its bytes.
    pub bytes: File,
    /// For the lock. That ends with it, and not when a ring of the kernel's gives up the file. Without the page cache it is the same as
    /// `bytes`: what a process has begun goes on when it has been killed, and nobody else is to write meanwhile.
    pub locked: File,
    /// For whoever makes safe what was written, if anything can be: the kernel tells each open file once that bytes are lost, and the
    /// guest is to hear it, too.
    pub synced: Option<File>,
}

/// A raw disk: a regular file or block device of whole sectors, not empty, open.
#[derive(Debug)]
pub struct DiskConfig {
    path: PathBuf,
    files: DiskFiles,
    length: u64,
    readonly: bool,
    direct: Option<Alignment>,
    sparse: bool,
    serial: Option<String>,
    id: Option<String>,
    num_queues: u16,
    queue_size: u16,
    io_uring: bool,
    limits: Option<RateConfig>,
}

const fn default_sparse() -> bool {
    true
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
const fn is_sparse(sparse: &bool) -> bool {
    *sparse
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
const fn is_off(switch: &bool) -> bool {
    !*switch
}

const fn default_num_queues() -> u16 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
const fn is_one(number: &u16) -> bool {
    *number == 1
}

const fn default_queue_size() -> u16 {
    QUEUE_SIZE
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
const fn is_default_queue_size(size: &u16) -> bool {
    *size == QUEUE_SIZE
}

impl DiskOption {
    /// Takes the text of one `--disk`.
    pub(super) fn parse(text: &str) -> Result<Self, OptionError> {
        let keys = [KEYS.as_slice(), &rate::KEYS].concat();
        let options = Options::parse(OPTION, text, &keys)?;
        let path = options.get("path").ok_or(OptionError::Missing { option: OPTION, keys: "path=FILE" })?;
        let text = |key: &str| options.get(key).map(str::to_owned);
        let disk = Self {
            path: path.into(),
            readonly: options.switch("readonly", false)?,
            direct: options.switch("direct", false)?,
            sparse: options.switch("sparse", true)?,
            serial: text("serial"),
            id: text("id"),
            num_queues: options.value("num_queues", |text| number(text).ok_or(QUEUES_MUST))?.unwrap_or(1),
            queue_size: options.value("queue_size", |text| number(text).ok_or(QUEUE_SIZE_MUST))?.unwrap_or(QUEUE_SIZE),
            image_type: options.value("image_type", ImageType::parse)?.unwrap_or_default(),
            disable_io_uring: options.switch("_disable_io_uring", false)?,
            rate_limiter_config: RateConfig::parse(&options)?,
        };
        disk.check_fields().map_err(|error| options.wrong_field(error))?;
        Ok(disk)
    }

    /// Whether its fields have values that they can have.
    pub(super) fn check(&self) -> Result<(), FieldError> {
        self.check_fields()?;
        self.rate_limiter_config.map_or(Ok(()), |limits| limits.check())
    }

    fn check_fields(&self) -> Result<(), FieldError> {
        if let Some(serial) = self.serial.as_ref().filter(|serial| !is_serial(serial)) {
            return Err(FieldError::new("serial", serial, "must have 1 to 20 letters, digits and signs"));
        }
        if !QUEUES.contains(&self.num_queues) {
            return Err(FieldError::new("num_queues", &self.num_queues, QUEUES_MUST));
        }
        if !QUEUE_SIZES.contains(&self.queue_size) || !self.queue_size.is_power_of_two() {
            return Err(FieldError::new("queue_size", &self.queue_size, QUEUE_SIZE_MUST));
        }
        if !self.image_type.is_known() {
            return Err(FieldError::new("image_type", &self.image_type.name(), ImageType::CONVERT));
        }
        Ok(())
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Opens it, for reading only if so asked; `index` others come before it.
    pub(super) fn open(self, index: usize) -> Result<DiskConfig, ConfigError> {
        let opened = self.open_file();
        let Self { path, readonly, sparse, serial, id, num_queues, queue_size, .. } = self;
        let (io_uring, limits) = (!self.disable_io_uring, self.rate_limiter_config);
        match opened {
            Ok((files, length, direct)) => Ok(DiskConfig {
                path,
                files,
                length,
                readonly,
                direct,
                sparse,
                serial,
                id,
                num_queues,
                queue_size,
                io_uring,
                limits,
            }),
            Err(fault) => Err(FileError { field: PATH.at(index), path, fault }.into()),
        }
    }

    /// The file, its length, and, if nothing is to go by the page cache, what it wants for that.
    fn open_file(&self) -> Result<(DiskFiles, u64, Option<Alignment>), FileFault> {
        // Opening a pipe would wait for its other end, so look first.
        let file_type = self.path.metadata().map_err(FileFault::reading)?.file_type();
        if !file_type.is_file() && !file_type.is_block_device() {
            return Err(FileFault::Kind { found: kind(file_type), must: "a regular file or a block device" });
        }
        // Readable first: a file that is neither must not be answered with "use readonly=on".
        let readable = File::open(&self.path).map_err(FileFault::reading)?;
        if self.image_type != ImageType::Raw
            && let Some(format) = image::format(&readable).map_err(FileFault::Io)?
        {
            return Err(FileFault::Image { format });
        }
        let mut options = OpenOptions::new();
        options.read(true).write(!self.readonly);
        let locked = options.open(&self.path).map_err(writing)?;
        if self.direct {
            options.custom_flags(libc::O_DIRECT);
        }
        let mut bytes = options.open(&self.path).map_err(directly)?;
        let [one, two, three] = [&bytes, &locked, &readable].map(|file| identity(file).map_err(FileFault::Io));
        let one = one?;
        if one != two? || one != three? {
            return Err(FileFault::Replaced);
        }
        // Metadata knows no length of a block device.
        let length =
            bytes.seek(SeekFrom::End(0)).and_then(|end| bytes.rewind().map(|()| end)).map_err(FileFault::Io)?;
        if length == 0 {
            return Err(FileFault::Empty);
        }
        let direct = self.direct.then(|| Alignment::of(&bytes)).transpose().map_err(directly)?;
        let multiple = direct.map_or(SECTOR_SIZE, |alignment| alignment.offset.into());
        if !length.is_multiple_of(multiple) {
            return Err(FileFault::Length { length, multiple });
        }
        let locked = if self.direct { bytes.try_clone().map_err(FileFault::Io)? } else { locked };
        let synced = Some(readable).filter(|_| !self.readonly);
        Ok((DiskFiles { bytes, locked, synced }, length, direct))
    }
}

/// What no u16 can be is no number here.
fn number(text: &str) -> Option<u16> {
    parse_number(text).and_then(|number| number.try_into().ok())
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

/// What opening a file so that nothing goes by the page cache has come to.
fn directly(error: io::Error) -> FileFault {
    match error.raw_os_error() {
        Some(libc::EINVAL | libc::EOPNOTSUPP) => FileFault::NotDirect,
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
        &self.files.bytes
    }

    /// How much it may do in a time.
    #[must_use]
    pub const fn limits(&self) -> Option<RateConfig> {
        self.limits
    }

    /// Gives up the configuration for the open file.
    #[must_use]
    pub fn into_files(self) -> DiskFiles {
        self.files
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

    /// Locks it as long as its file is open: against everybody else, or if it is only read, against writers. `index` others come
    /// before it.
    pub(super) fn lock(&self, index: usize) -> Result<(), ConfigError> {
        let patience = if self.direct.is_some() { LET_GO } else { Duration::ZERO };
        let until = Instant::now() + patience;
        let mut found = lock(&self.files.locked, !self.readonly);
        while matches!(found, Ok(Lock::Taken)) && Instant::now() < until {
            thread::sleep(LOOK_AGAIN);
            found = lock(&self.files.locked, !self.readonly);
        }
        let fault = match found {
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
        Err(fault.of(PATH.at(index), &self.path).into())
    }

    /// Whether what the guest discards needs no room in the file.
    #[must_use]
    pub const fn sparse(&self) -> bool {
        self.sparse
    }

    /// What its file wants of a transfer, if nothing is to go by the page cache.
    #[must_use]
    pub const fn direct(&self) -> Option<Alignment> {
        self.direct
    }

    /// Its queues.
    #[must_use]
    pub const fn num_queues(&self) -> u16 {
        self.num_queues
    }

    /// Whether a queue's requests are to be done several at once.
    #[must_use]
    pub const fn io_uring(&self) -> bool {
        self.io_uring
    }

    /// Descriptors in each queue.
    #[must_use]
    pub const fn queue_size(&self) -> u16 {
        self.queue_size
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
