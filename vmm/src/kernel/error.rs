// SPDX-License-Identifier: Apache-2.0
//! Why a file is not a kernel that can be started.

use std::path::PathBuf;

use crate::memory::GpaRange;

/// Why a file is not a kernel that can be started. Each message names the file.
#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    /// The file could not be read.
    #[error("kernel {path}: cannot be read")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file is of no format that can be started.
    #[error("kernel {path}: not a kernel: {found}; an x86-64 ELF vmlinux or a bzImage is needed")]
    Unknown {
        /// The file.
        path: PathBuf,
        /// What it looks like.
        found: String,
    },
    /// The file is a kernel or a program for another machine.
    #[error("kernel {path}: built for {found}; this machine runs x86-64 kernels")]
    WrongMachine {
        /// The file.
        path: PathBuf,
        /// The machine it is for.
        found: String,
    },
    /// The file ends before its contents do.
    #[error("kernel {path}: truncated: {part} ends at byte {needed}, the file has {length}")]
    Truncated {
        /// The file.
        path: PathBuf,
        /// What is cut off.
        part: &'static str,
        /// Bytes that the file should have at least.
        needed: u64,
        /// Bytes that it has.
        length: u64,
    },
    /// The headers contradict themselves.
    #[error("kernel {path}: malformed: {what}")]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The contradiction.
        what: String,
    },
    /// Firmware starts kernels as EFI programs, which this one is not.
    #[error("kernel {path}: {found}; firmware needs a bzImage with an EFI stub (CONFIG_EFI_STUB)")]
    NoEfiStub {
        /// The file.
        path: PathBuf,
        /// What it is.
        found: &'static str,
    },
    /// Loading failed after the checks: memory too small, or the file changed.
    #[error("kernel {path}: cannot be loaded at {range}")]
    Load {
        /// The file.
        path: PathBuf,
        /// Guest memory that it needs.
        range: GpaRange,
        /// Why.
        source: linux_loader::loader::Error,
    },
}
