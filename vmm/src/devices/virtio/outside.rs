// SPDX-License-Identifier: Apache-2.0
//! Devices whose queues somebody outside this process serves, as the host's kernel does.

use std::io;

use vmm_sys_util::eventfd::EventFd;

/// A queue of a driver that is ready. Each of its parts is inside one piece of guest memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ring {
    /// Which.
    pub queue: usize,
    /// Descriptors in it, a power of two.
    pub size: u16,
    /// Guest address of the descriptor table,
    pub descriptors: u64,
    /// of the available ring,
    pub available: u64,
    /// and of the used ring.
    pub used: u64,
    /// Where in the available ring the next request is.
    pub next: u16,
}

/// Who serves the queues, called by the device's worker but for [`connect`](Self::connect). Guest memory it has already.
pub trait Outside {
    /// At construction: what the driver rings, by queue, and what interrupts the driver.
    fn connect(&mut self, doorbells: &[EventFd], interrupt: &EventFd) -> io::Result<()>;

    /// The driver is ready, behind [`activate`](super::VirtioDevice::activate): from now on these queues are served, from where
    /// they are. After an error none is.
    fn take(&mut self, rings: &[Ring]) -> io::Result<()>;

    /// Queue `queue` is served no more: guest memory is left alone when this returns.
    fn give_back(&mut self, queue: usize);

    /// Whether the driver has broken a queue since this was asked last, so that it must reset the device.
    fn has_failed(&mut self) -> bool;
}
