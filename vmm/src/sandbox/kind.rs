// SPDX-License-Identifier: Apache-2.0
//! The kinds of threads.

use std::fmt;

/// What a thread is for, and so what it may do. A new kind needs a line here, one in [`ALL`](Self::ALL), a list in `lists.rs`, and
/// a row in docs/threat-model.md.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The one that owns the VM: it waits for the end, and says how it was.
    Vmm,
    /// Runs the guest and answers its exits.
    Vcpu,
    /// Does the requests of a virtio device.
    Device,
    /// Takes what is typed to the serial port.
    SerialInput,
    /// Reads files for firmware.
    FwCfg,
    /// Waits for signals from outside.
    Signals,
}

impl Kind {
    /// All of them, in order.
    pub const ALL: [Self; 6] = [Self::Vmm, Self::Vcpu, Self::Device, Self::SerialInput, Self::FwCfg, Self::Signals];
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Vmm => "vmm",
            Self::Vcpu => "vcpu",
            Self::Device => "device",
            Self::SerialInput => "serial-input",
            Self::FwCfg => "fw_cfg",
            Self::Signals => "signals",
        })
    }
}
