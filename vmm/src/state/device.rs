// SPDX-License-Identifier: Apache-2.0
//! What devices keep of what their guest has told them.

use serde::{Deserialize, Serialize};

/// A device at an address of a bus.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Placed {
    /// Where the device's range begins.
    pub address: u64,
    /// What it keeps.
    pub state: DeviceState,
}

/// What a device keeps, by its kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum DeviceState {
    /// A virtio device behind virtio-mmio.
    Virtio(Box<VirtioState>),
    /// The serial port.
    Serial(SerialState),
    /// The sleep control register.
    Sleep {
        /// What the guest has written last.
        sleep_type: u8,
    },
    /// Held memory's registers.
    Held(HeldState),
    /// The I/O APIC, where it is not KVM's.
    IoApic {
        /// Which register is seen.
        select: u8,
        /// Its identifier.
        id: u32,
        /// Its redirection entries.
        entries: Vec<u64>,
    },
}

/// A virtio device: what its driver has said to the transport, its queues, and what each of its lanes keeps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VirtioState {
    /// Which kind of device (virtio 1.2, section 5).
    pub device_type: u32,
    /// Features that the driver has accepted.
    pub accepted: u64,
    /// Which half of the offered features is read,
    pub device_features_select: u32,
    /// and which of the accepted ones is written.
    pub driver_features_select: u32,
    /// Which queue is described.
    pub queue_select: u32,
    /// The status register, without what follows.
    pub status: u32,
    /// Whether the driver must reset the device.
    pub needs_reset: bool,
    /// Why it was interrupted.
    pub interrupt_status: u32,
    /// The configuration space.
    pub config: Vec<u8>,
    /// How often that has changed.
    pub config_generation: u32,
    /// The queues, as the driver has described them.
    pub queues: Vec<QueueState>,
    /// What serves them, in the order of their queues.
    pub lanes: Vec<LaneState>,
}

/// A queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QueueState {
    /// Most descriptors that it can have.
    pub max_size: u16,
    /// How many it has.
    pub size: u16,
    /// Whether the driver has described it.
    pub ready: bool,
    /// Guest address of its descriptor table,
    pub descriptors: u64,
    /// of its available ring,
    pub available: u64,
    /// and of its used ring.
    pub used: u64,
    /// How far the device is, if it serves the queue.
    pub position: Option<Position>,
}

/// How far a device is with a queue, none of whose requests is in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Position {
    /// Where in the available ring the next request is,
    pub available: u16,
    /// and where in the used ring the next element goes.
    pub used: u16,
}

/// What a device keeps beside its queues and its configuration space.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum LaneState {
    /// All of it follows from features and queues.
    #[default]
    Nothing,
    /// A network interface, or its control queue.
    Net {
        /// How many pairs of queues the driver uses.
        pairs: u16,
    },
    /// One that the host's kernel serves.
    Vhost {
        /// By queue, where in the available ring the kernel goes on.
        available: Vec<u16>,
    },
    /// A console.
    Console {
        /// What was typed and has not been read,
        typed: Vec<u8>,
        /// and what was written and nobody has taken.
        written: Vec<u8>,
    },
}

/// How much of its held memory a guest owns, in bytes, and what is asked of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeldState {
    /// What it is to own next, of which it has not been told,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<u64>,
    /// what it is to own now,
    pub wanted: u64,
    /// what it says that it owns,
    pub owned: u64,
    /// what it may come to own,
    pub promised: u64,
    /// and what there is, in the image too.
    pub there: u64,
    /// The number of the last request,
    pub request: u32,
    /// whether the guest has not ended it yet,
    pub open: bool,
    /// and whether it knows what is wanted.
    pub seen: bool,
    /// Whether an interrupt is not acknowledged.
    pub event: bool,
    /// The low half of what it is about to say that it owns.
    pub owned_low: Option<u32>,
    /// The high half of what is wanted, as it was when it read the low one.
    pub wanted_high: u32,
}

/// The registers of a 16550A.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SerialState {
    /// Divisor latch, low,
    pub divisor_low: u8,
    /// and high.
    pub divisor_high: u8,
    /// Interrupt enable.
    pub interrupt_enable: u8,
    /// Interrupt identification.
    pub interrupt_identification: u8,
    /// Line control.
    pub line_control: u8,
    /// Line status.
    pub line_status: u8,
    /// Modem control.
    pub modem_control: u8,
    /// Modem status.
    pub modem_status: u8,
    /// Scratch.
    pub scratch: u8,
    /// What was received and has not been read.
    pub received: Vec<u8>,
}

/// Why a device cannot be what was saved.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Mismatch {
    /// It is a device of another kind, or there is none.
    #[error("is another device than the one that was saved: must be the same")]
    Kind,
    /// A part of it has another value than the device can have.
    #[error("{what} is {is}: must be {must}")]
    Value {
        /// Which part.
        what: &'static str,
        /// What was saved.
        is: String,
        /// What can be.
        must: String,
    },
}

impl Mismatch {
    /// That `what` was saved as `is`, and must be `must`.
    #[expect(clippy::needless_pass_by_value, reason = "texts and numbers, written where they are")]
    pub fn of(what: &'static str, is: impl ToString, must: impl ToString) -> Self {
        Self::Value { what, is: is.to_string(), must: must.to_string() }
    }
}
