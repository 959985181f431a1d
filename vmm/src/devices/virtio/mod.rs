// SPDX-License-Identifier: Apache-2.0
//! virtio devices (virtio 1.2), split queues, on the MMIO transport, found by the guest through ACPI.
//!
//! A device is cut in two by who runs it. [`VirtioMmio`] is what vCPU threads meet: registers and status.
//! [`VirtioWorker`] is an event-loop subscriber that takes requests off the queues and gives them to the
//! [`VirtioDevice`]. They share the interrupt status, which needs no lock, and the engine, whose lock a vCPU takes only
//! to start and to reset the device; so a vCPU never waits for a disk.

pub mod block;
mod engine;
#[cfg(any(test, fuzzing))]
pub mod exercise;
pub mod mmio;
mod request;
pub mod rng;
#[cfg(test)]
mod tests;

pub use block::{Block, BlockError};
pub use engine::VirtioWorker;
pub use mmio::VirtioMmio;
pub use request::{Request, Segment, cut, length};
pub use rng::Rng;

use crate::memory::GuestMemory;

/// The part of a virtio device that differs from kind to kind.
///
/// Order: the transport asks for type, features, configuration and queues once, at construction. Each time the driver
/// sets `DRIVER_OK` it calls [`activate`](Self::activate), then [`handle`](Self::handle) for every request until the
/// driver resets the device; no call comes between a reset and the next activation. All calls are made under one lock.
pub trait VirtioDevice: Send {
    /// Device type (virtio 1.2, section 5).
    fn device_type(&self) -> u32;

    /// Feature bits of this kind of device. The transport adds those of the queues and the transport itself.
    fn features(&self) -> u64;

    /// The device's configuration space, little-endian; it never changes and cannot be written.
    fn config(&self) -> Vec<u8>;

    /// Largest size of each queue, in descriptors, each a power of two.
    fn queue_sizes(&self) -> &[u16];

    /// The driver is ready, having accepted `features`.
    fn activate(&mut self, features: u64);

    /// Does one request from queue `queue` and returns how many bytes it wrote to the request's writable segments.
    ///
    /// The guest chose everything in `request`: any number of segments, up to the size of the queue, anywhere, of any
    /// length. The call must return after a bounded amount of work, which is no more than that request asks for.
    fn handle(&mut self, queue: usize, memory: &GuestMemory, request: &Request) -> u32;
}
