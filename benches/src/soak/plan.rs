// SPDX-License-Identifier: Apache-2.0
//! One boot: what VM it is, what happens to it, and how it ends.

use super::end::End;
use crate::modes::Mode;

/// One boot, all of it decided by the seed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a thing that is there or not")]
pub struct Plan {
    /// What decides it.
    pub seed: u64,
    /// Guest memory.
    pub memory_mib: u64,
    /// vCPUs.
    pub cpus: u8,
    /// How the guest kernel fills its memmap.
    pub mode: &'static Mode,
    /// A cap on the threads that do.
    pub threads: Option<&'static str>,
    /// Whether the guest gets the table of the hand-off.
    pub table: bool,
    /// More of `--memory`.
    pub pages: Vec<&'static str>,
    /// More of `--study`.
    pub study: Vec<&'static str>,
    /// Whether memory that the guest touches first is backed early.
    pub early: bool,
    /// Disks, in order.
    pub disks: Vec<Disk>,
    /// Whether there is a source of random bytes.
    pub rng: bool,
    /// Whether there is a network interface, over a tap of its own.
    pub net: bool,
    /// Where the console goes.
    pub serial: Serial,
    /// The value of `--seccomp`.
    pub seccomp: &'static str,
    /// Who takes requests.
    pub api: Api,
    /// A rest that the VM is given, if there is an API.
    pub rest: Option<Rest>,
    /// What makes the guest's kernel show warnings on the console, too, which a slow host pays for; or nothing.
    pub log: &'static str,
    /// What the guest does besides its checks of devices: a check of the tiny init, or nothing.
    pub work: &'static str,
    /// Whether there is a vsock device.
    pub vsock: bool,
    /// The virtio console, beside the serial port.
    pub second: Second,
    /// The balloon, if there is one.
    pub balloon: Option<Balloon>,
    /// How it ends.
    pub end: End,
}

/// A disk of 1 MiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Disk {
    /// The guest cannot write it.
    pub readonly: bool,
    /// Its rate is limited.
    pub limited: bool,
}

/// Where the guest's console goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Serial {
    /// flatboot's standard output.
    Stdout,
    /// A file.
    File,
    /// Nowhere: marks alone tell of init.
    Null,
}

/// Where the virtio console leads. The guest's kernel says nothing there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Second {
    /// There is none.
    Off,
    /// There is none, in other words.
    Null,
    /// To a pseudo terminal at which nobody is.
    Pty,
    /// To a socket that nobody connects to.
    Socket,
}

/// Memory that the guest is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Balloon {
    /// So much.
    pub mib: u64,
    /// It also says what is free.
    pub reporting: bool,
}

/// Who takes requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Api {
    /// Nobody.
    Off,
    /// `flatboot run`, besides.
    Beside,
    /// A server, which has the VM by a request.
    Server,
}

/// The VM is paused, and then resumed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rest {
    /// After it has run for so long.
    pub after_ms: u64,
    /// For so long.
    pub for_ms: u64,
}
