// SPDX-License-Identifier: Apache-2.0
//! The kinds of threads.

use std::fmt;

/// What a thread is for, and so what it may do. A new kind needs a line here, one in [`ALL`](Self::ALL), a list in `lists.rs`, and
/// a row in docs/threat-model.md.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The one that owns the VM: it waits for the end, and says how it was.
    Vmm,
    /// The same of one with a vsock device or a console at a socket, which goes when the VM does.
    VmmWithSocket,
    /// Runs the guest and answers its exits.
    Vcpu,
    /// Does the requests of a virtio device.
    Device,
    /// The same of a disk, by a ring of the kernel's that takes nothing else.
    Disk,
    /// The same of a device that connects programs of the guest and of the host.
    Vsock,
    /// The same of a virtio console, which others of this host come to.
    Console,
    /// The same of a network interface that the host's kernel serves.
    Vhost,
    /// Takes what is typed to the serial port.
    SerialInput,
    /// Writes what comes from the serial port to a file.
    SerialOutput,
    /// Reads files for firmware.
    FwCfg,
    /// Waits for signals from outside.
    Signals,
    /// The same in a server, whose socket goes when a signal ends it.
    ServerSignals,
    /// Takes requests from the server's socket.
    Api,
    /// Writes what happens for whoever watches.
    Events,
    /// Gives the guest more memory, and takes back what it has given up.
    Memory,
    /// Writes what is in guest memory to a file, while the VM rests.
    Snapshot,
    /// The one that owns a server's VMs, starts them and what they need, and ends them: as wide as all of that.
    Owner,
}

impl Kind {
    /// All of them, in order.
    pub const ALL: [Self; 18] = [
        Self::Vmm,
        Self::VmmWithSocket,
        Self::Vcpu,
        Self::Device,
        Self::Disk,
        Self::Vsock,
        Self::Console,
        Self::Vhost,
        Self::SerialInput,
        Self::SerialOutput,
        Self::FwCfg,
        Self::Signals,
        Self::ServerSignals,
        Self::Api,
        Self::Events,
        Self::Memory,
        Self::Snapshot,
        Self::Owner,
    ];
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Vmm => "vmm",
            Self::VmmWithSocket => "vmm-with-socket",
            Self::Vcpu => "vcpu",
            Self::Device => "device",
            Self::Disk => "disk",
            Self::Vsock => "vsock",
            Self::Console => "console",
            Self::Vhost => "vhost",
            Self::SerialInput => "serial-input",
            Self::SerialOutput => "serial-output",
            Self::FwCfg => "fw_cfg",
            Self::Signals => "signals",
            Self::ServerSignals => "server-signals",
            Self::Api => "api",
            Self::Events => "events",
            Self::Memory => "memory",
            Self::Snapshot => "snapshot",
            Self::Owner => "owner",
        })
    }
}
