// SPDX-License-Identifier: Apache-2.0
//! How a VM ends.

use std::fmt;

use crate::devices::bus::GuestRequest;

/// Why the VM is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// The guest powered itself off.
    PowerOff,
    /// The guest asked for a reset.
    Reset,
    /// The guest's kernel panicked and said so.
    Panic,
    /// Firmware found nothing to boot and said so.
    NoLoader,
    /// Firmware said that it cannot go on.
    FirmwareFailed,
    /// A vCPU triple-faulted.
    TripleFault {
        /// Its index.
        vcpu: u16,
    },
    /// KVM cannot go on.
    Kvm {
        /// The vCPU that it happened on.
        vcpu: u16,
        /// What KVM said.
        what: String,
    },
    /// A part of flatboot has failed: a fault in it.
    Internal {
        /// Which, and how.
        what: String,
    },
    /// The guest was asked to power off and did not in time, or the user asked twice.
    Stopped {
        /// What happened.
        why: String,
    },
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PowerOff => write!(f, "guest powered off"),
            Self::Reset => write!(f, "guest asked for a reset"),
            Self::Panic => write!(f, "guest kernel panicked; its console says why"),
            Self::NoLoader => write!(f, "firmware found nothing to boot; its console says where it looked"),
            Self::FirmwareFailed => write!(f, "firmware cannot go on; its console says why"),
            Self::TripleFault { vcpu } => write!(f, "guest triple fault on vCPU {vcpu}"),
            Self::Kvm { vcpu, what } => write!(f, "KVM cannot go on with vCPU {vcpu}: {what}"),
            Self::Internal { what } => write!(f, "flatboot itself has failed: {what}"),
            Self::Stopped { why } => write!(f, "guest stopped: {why}"),
        }
    }
}

impl From<GuestRequest> for Ending {
    fn from(request: GuestRequest) -> Self {
        match request {
            GuestRequest::PowerOff => Self::PowerOff,
            GuestRequest::Reset => Self::Reset,
            GuestRequest::Panic | GuestRequest::PanicSaid => Self::Panic,
            GuestRequest::NoLoader => Self::NoLoader,
            GuestRequest::FirmwareFailed => Self::FirmwareFailed,
        }
    }
}
