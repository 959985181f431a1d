// SPDX-License-Identifier: Apache-2.0
//! virtio devices (virtio 1.2), split queues, on the MMIO transport, found by the guest through ACPI.
//!
//! A device is in three parts, which know little of each other:
//!
//! - the transport ([`VirtioMmio`]) is what vCPU threads meet: registers and status;
//! - the queues, with a way to interrupt the driver, are what transport and worker share, under a lock that nobody holds while
//!   a request is done: no vCPU ever waits for a disk;
//! - the worker ([`VirtioWorker`]) takes requests off the queues and gives them to the [`VirtioDevice`], in a thread of the
//!   device's own: no device waits for another one, and neither does the end of the VM.

pub mod balloon;
pub mod block;
mod config_space;
pub mod console;
mod device;
#[cfg(any(test, fuzzing))]
pub mod exercise;
mod interrupt;
pub mod limit;
pub mod net;
pub mod outside;
mod queues;
mod request;
mod resizer;
pub mod rng;
#[cfg(test)]
mod tests;
pub mod transport;
pub mod vectors;
pub mod vsock;
mod worker;

pub use balloon::{Balloon, BalloonControl};
pub use block::{Block, BlockError};
pub use config_space::ConfigSpace;
pub use console::Console;
pub use device::{Lane, Ready, ResizeError, Source, Token, VirtioDevice};
pub use net::Net;
pub use request::{Request, Segment, cut, gather, length, scatter};
pub use resizer::Resizer;
pub use rng::Rng;
pub use transport::mmio::{self, VirtioMmio};
pub use vsock::Vsock;
pub use worker::VirtioWorker;
