// SPDX-License-Identifier: Apache-2.0
//! Boots for the promises that are numbers.
//!
//! Machines are shared and noisy, so variants are interleaved (A B C A B C …), the first round is dropped, and each sample
//! gets a host of its own: the second guest in one emulated host runs on pages that held translated code, and is slower.

use std::path::{Path, PathBuf};
use std::{fs, mem};

use anyhow::{Context, Result, bail, ensure};

use super::footprint;
use super::rehearsal;
use super::samples::{Sample, Samples};
use super::stop::Stop;
use crate::backend::{Backend, Kvm, Session};
use crate::command::Command;
use crate::guest::Guest;
use crate::host::HostOptions;
use crate::progress::Progress;
use crate::{artifact, initramfs};

/// What a host does before a sample: flatboot and what it reads are in its memory, as they are where another VM runs already, and
/// there are the disks and the tap that are named. Arguments: flatboot, the tap or nothing, files each with where it is copied to,
/// --, disks.
const PREPARE: &str = r#"
    set -e
    PATH=$PATH:/usr/sbin:/sbin
    cat "$1" >/dev/null
    tap=$2; shift 2
    while [ "$1" != -- ]; do cp -- "$1" "$2"; shift 2; done
    shift
    for disk; do rm -f -- "$disk"; truncate -s 64M -- "$disk"; done
    [ -n "$tap" ] || exit 0
    ip link delete "$tap" 2>/dev/null || :
    ip tuntap add dev "$tap" mode tap vnet_hdr
    ip link set "$tap" up
"#;
/// And behind it.
const TIDY: &str = r#"
    tap=$2; shift 2
    while [ "$1" != -- ]; do rm -f -- "$2"; shift 2; done
    shift
    for disk; do rm -f -- "$disk"; done
    [ -z "$tap" ] || PATH=$PATH:/usr/sbin:/sbin ip link delete "$tap"
"#;

/// Makes what is compared.
pub type Variants = fn(&Bench) -> Result<Vec<Variant>>;

/// One way to boot, to be compared with others.
#[derive(Debug, Clone)]
pub struct Variant {
    /// Its name in tables and in the samples.
    pub name: &'static str,
    /// The guest.
    pub guest: Guest,
}

/// What boots need: found and built once.
#[derive(Debug)]
pub struct Bench {
    backend: Backend,
    flatboot: PathBuf,
    /// The emulated host's kernel, if that is what is used.
    host_kernel: Option<PathBuf>,
    /// Writable on the host, too.
    scratch: PathBuf,
}

impl Bench {
    /// Finds flatboot, decides about KVM, and writes the tiny initramfs into a directory below `scratch`.
    pub fn open(scratch: &Path) -> Result<Self> {
        let flatboot = artifact::needed_flatboot(None)?;
        let backend = Backend::open(Some(&flatboot))?;
        let scratch = scratch.join("bench");
        fs::create_dir_all(&scratch).with_context(|| format!("{}: cannot be written", scratch.display()))?;
        initramfs::write_guest(&scratch.join("tiny.cpio"))?;
        let host_kernel = backend.host_kernel()?;
        Ok(Self { backend, flatboot, host_kernel, scratch })
    }

    /// Which KVM is used, and why.
    #[must_use]
    pub fn backend(&self) -> &Backend {
        &self.backend
    }

    /// Bytes of the program.
    pub fn size_of_flatboot(&self) -> Result<u64> {
        let size = fs::metadata(&self.flatboot).map(|metadata| metadata.len());
        size.with_context(|| format!("{}: cannot be read", self.flatboot.display()))
    }

    /// A guest with the kernel that `guest-kernel/build.sh` calls `kernel`, and the tiny initramfs.
    pub fn guest(&self, kernel: &str) -> Result<Guest> {
        let vmlinux = artifact::kernel(kernel)?.join("vmlinux");
        Ok(Guest::new(&vmlinux, &self.scratch.join("tiny.cpio")))
    }

    /// A guest whose kernel UEFI firmware fetches from flatboot and starts.
    pub fn uefi_guest(&self) -> Result<Guest> {
        let mut guest = self.guest("guest")?;
        guest.kernel.set_file_name("bzImage");
        guest.firmware = Some(artifact::firmware()?);
        Ok(guest)
    }

    /// Where a control socket and a file of events can be made.
    pub(super) fn control(&self) -> (PathBuf, PathBuf) {
        (self.own("flatboot.socket"), self.scratch.join("events"))
    }

    /// Where the host has a file system of its own: a socket needs one, and a disk of another would be timed with that.
    pub(super) fn own(&self, name: &str) -> PathBuf {
        let sockets = if self.backend.kvm() == Kvm::Real { &self.scratch } else { Path::new("/run") };
        sockets.join(name)
    }

    /// KiB of flatboot's own memory while `guest` runs ([`footprint`]).
    pub fn footprint(&self, guest: Guest) -> Result<u64> {
        let console = self.scratch.join("console");
        footprint::measure(&mut self.host()?, &self.flatboot, guest, &console)
    }

    /// `runs` samples of each variant, interleaved, after one round that does not count. Those of before a failure are in `samples`,
    /// too.
    pub(super) fn measure(
        &self,
        variants: &[Variant],
        runs: usize,
        (stop, progress): (&Stop, &Progress),
        samples: &mut Samples,
    ) -> Result<()> {
        progress.expect((runs + 1) * variants.len());
        for round in 0..=runs {
            for variant in variants {
                let rounds = if round == 0 { "warm-up".to_owned() } else { format!("round {round} of {runs}") };
                progress.show(&format!("{rounds}: {}", variant.name));
                let sample = self.sample(variant);
                if let Some(signal) = stop.signal() {
                    bail!("stopped by signal {signal}");
                }
                progress.done(1);
                if round > 0 {
                    samples.push(sample?);
                }
            }
        }
        Ok(())
    }

    fn sample(&self, variant: &Variant) -> Result<Sample> {
        let timeline = self.scratch.join("timeline.json");
        let mut host = self.host()?;
        self.script(&mut host, PREPARE, variant)?;
        if variant.guest.rehearsed {
            self.rehearse(&mut host, variant)?;
        }
        let mut guest = variant.guest.clone().timeline(&timeline);
        self.stage(&mut guest);
        let ended = guest.run(&mut host, &self.flatboot);
        let tidied = self.script(&mut host, TIDY, variant);
        let ended = ended?;
        tidied?;
        let passed = ended.passed();
        match ended.timeline {
            Some(timeline) if passed && timeline.init_ns.is_some() => {
                Ok(Sample { variant: variant.name.to_owned(), timeline })
            }
            _ => {
                let (name, code) = (variant.name, ended.outcome.code);
                bail!("{name}: the guest failed with exit code {code}: {}", ended.complaint().unwrap_or_default())
            }
        }
    }

    fn rehearse(&self, host: &mut Session, variant: &Variant) -> Result<()> {
        let kernel = self.scratch.join("rehearsal");
        fs::write(&kernel, rehearsal::kernel()).with_context(|| format!("{}: cannot be written", kernel.display()))?;
        let outcome = rehearsal::of(&variant.guest, &kernel).run(host, &self.flatboot)?.outcome;
        let said = String::from_utf8_lossy(&outcome.stderr);
        ensure!(outcome.code == 0, "{}: its rehearsal failed with exit code {}: {said}", variant.name, outcome.code);
        Ok(())
    }

    /// Has `guest` read copies that the host has of its own, as in the emulated one every read of a shared file waits for this
    /// machine. Says which file is copied where.
    fn stage(&self, guest: &mut Guest) -> Vec<[PathBuf; 2]> {
        let copy = |(number, file): (usize, &mut PathBuf)| {
            let own = self.own(&format!("staged-{number}"));
            [mem::replace(file, own.clone()), own]
        };
        guest.files().enumerate().map(copy).collect()
    }

    /// Does what is around a sample of `variant`.
    fn script(&self, host: &mut Session, script: &str, variant: &Variant) -> Result<()> {
        let command = Command::new("/bin/sh").args(["-c", script, "sample"]).arg(&self.flatboot);
        let copied = self.stage(&mut variant.guest.clone());
        let command = command.arg(variant.guest.tap.unwrap_or_default()).args(copied.iter().flatten());
        let command = command.arg("--").args(&variant.guest.disks);
        let outcome = host.run(&command)?;
        let said = String::from_utf8_lossy(&outcome.stderr);
        ensure!(outcome.code == 0, "{}: the host is not ready for it: {}", variant.name, said.trim());
        Ok(())
    }

    /// The program.
    pub(super) fn flatboot(&self) -> &Path {
        &self.flatboot
    }

    /// A file that is written on the host and read here.
    pub(super) fn shared(&self, name: &str) -> PathBuf {
        self.scratch.join(name)
    }

    /// A fresh host.
    pub(super) fn host(&self) -> Result<Session> {
        let writable = vec![self.scratch.clone()];
        Ok(self.backend.start(&HostOptions { writable, kernel: self.host_kernel.clone(), ..HostOptions::default() })?)
    }
}
