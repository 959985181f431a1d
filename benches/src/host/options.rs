// SPDX-License-Identifier: Apache-2.0
//! What an emulated host is made of.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::size;

/// An emulated host.
#[derive(Debug, Clone)]
pub struct HostOptions {
    /// Its memory in MiB, of which only what is used is taken from this machine.
    pub memory_mib: u64,
    /// The processors that programs run on, 1 to 63. The host has one more, for itself.
    pub cpus: u8,
    /// What QEMU's `-cpu` has for them: all that it can emulate, unless something is to be missing.
    pub cpu: &'static str,
    /// The nodes that its memory is divided into, which is not so in truth.
    pub nodes: u8,
    /// Files to give as block devices at their own paths. Writes to them are dropped.
    pub drives: Vec<PathBuf>,
    /// Directories that may be written to; all others are read-only.
    pub writable: Vec<PathBuf>,
    /// TCP ports of this machine's 127.0.0.1 that lead to the same ports of the host. With any, the host has a network interface,
    /// through which it reaches what this machine does; with none it has no network.
    pub ports: Vec<u16>,
    /// Directory with the kernel's `bzImage`; looked for or built if none is given.
    pub kernel: Option<PathBuf>,
    /// How long the host may take to start.
    pub start_limit: Duration,
}

/// MiB of a host's memory as they are typed. In less than 256 the kernel, its init and a program have no room.
pub fn memory_mib(text: &str) -> std::result::Result<u64, String> {
    let wrong = || format!("host memory {text:?}: expected a size of at least 256M, such as 512M or 14G");
    size::of(text, 256 << 20).map(|bytes| bytes >> 20).ok_or_else(wrong)
}

impl Default for HostOptions {
    fn default() -> Self {
        Self {
            // Room for what a 256 GiB stock guest touches, three times over.
            memory_mib: 14 << 10,
            cpus: 2,
            cpu: "max",
            nodes: 1,
            drives: Vec::new(),
            writable: Vec::new(),
            ports: Vec::new(),
            kernel: None,
            start_limit: Duration::from_secs(120),
        }
    }
}

impl HostOptions {
    /// `NR_CPUS` of benches/host/host.config, less the host's own.
    const MAX_CPUS: u8 = 63;

    /// Checks what can be checked before anything starts, and makes the paths absolute.
    pub(crate) fn check(&self) -> Result<Self> {
        let most = Self::MAX_CPUS;
        ensure!((1..=most).contains(&self.cpus), "host cpus {}: expected 1 to {most}", self.cpus);
        let mut checked = self.clone();
        for drive in &mut checked.drives {
            let wrong = || format!("{}: expected a readable disk image or block device", drive.display());
            let path = drive.canonicalize().with_context(wrong)?;
            let is_image = !path.is_dir();
            ensure!(is_image, "{}: is a directory, expected a disk image or block device", path.display());
            File::open(&path).with_context(wrong)?;
            *drive = path;
        }
        for directory in &mut checked.writable {
            let path = directory.canonicalize();
            let path = path.with_context(|| format!("{}: expected a directory", directory.display()))?;
            let is_one = path.is_dir() && path != Path::new("/");
            ensure!(is_one, "{}: expected a directory other than /", path.display());
            *directory = path;
        }
        Ok(checked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (text, mib) in [("256M", 256), ("14G", 14336), ("1T", 1 << 20)] {
            assert_eq!(memory_mib(text), Ok(mib), "{text}");
        }
        for text in
            ["", "G", "0G", "255M", "14", "14g", "-1G", "1.5G", "99999999999999999999G", "18446744073709551615T"]
        {
            let error = memory_mib(text).unwrap_err();
            assert!(error.contains(&format!("{text:?}")), "{error}");
        }
    }

    #[test]
    fn bad_paths_are_named() {
        let missing = HostOptions { drives: vec!["/nowhere/disk.img".into()], ..HostOptions::default() };
        assert!(missing.check().unwrap_err().to_string().starts_with("/nowhere/disk.img: "));
        let directory = HostOptions { drives: vec!["/".into()], ..HostOptions::default() };
        assert!(directory.check().unwrap_err().to_string().contains("is a directory"));
        let file = HostOptions { writable: vec!["/etc/passwd".into()], ..HostOptions::default() };
        assert!(file.check().unwrap_err().to_string().contains("expected a directory"));
        for cpus in [0, 64] {
            let error = HostOptions { cpus, ..HostOptions::default() }.check().unwrap_err().to_string();
            assert_eq!(error, format!("host cpus {cpus}: expected 1 to 63"));
        }
    }

    #[test]
    fn the_host_kernel_takes_one_processor_more_than_programs_get() {
        let option = format!("CONFIG_NR_CPUS={}", HostOptions::MAX_CPUS + 1);
        assert!(include_str!("../../host/host.config").lines().any(|line| line == option), "{option}");
    }
}
