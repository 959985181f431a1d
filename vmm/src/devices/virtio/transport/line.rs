// SPDX-License-Identifier: Apache-2.0
//! An interrupt line of the MMIO transport: an edge, and a register that says why.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use virtio_bindings::virtio_mmio::{VIRTIO_MMIO_INT_CONFIG, VIRTIO_MMIO_INT_VRING};
use vmm_sys_util::eventfd::EventFd;

use crate::devices::virtio::interrupt::Interrupt;

/// The interrupt line, and what the driver reads to know why it was raised.
pub(super) struct Line {
    /// The `InterruptStatus` register.
    status: AtomicU32,
    needs_reset: AtomicBool,
    event: EventFd,
}

impl Line {
    pub(super) fn new(event: EventFd) -> Self {
        Self { status: AtomicU32::new(0), needs_reset: AtomicBool::new(false), event }
    }

    /// For whoever else interrupts the driver.
    pub(super) fn event(&self) -> &EventFd {
        &self.event
    }

    pub(super) fn status(&self) -> u32 {
        self.status.load(Ordering::SeqCst)
    }

    pub(super) fn acknowledge(&self, causes: u32) {
        self.status.fetch_and(!causes, Ordering::SeqCst);
    }

    /// Whether the device cannot go on.
    pub(super) fn wants_reset(&self) -> bool {
        self.needs_reset.load(Ordering::SeqCst)
    }

    /// What it was when it was saved; nobody is interrupted for that.
    pub(super) fn restore(&self, status: u32, needs_reset: bool) {
        self.status.store(status & (VIRTIO_MMIO_INT_VRING | VIRTIO_MMIO_INT_CONFIG), Ordering::SeqCst);
        self.needs_reset.store(needs_reset, Ordering::SeqCst);
    }

    /// The cause is set before the line is raised: the line is an edge, and the handler looks once.
    fn raise(&self, cause: u32) {
        self.status.fetch_or(cause, Ordering::SeqCst);
        // A full counter has an interrupt pending already.
        let _ = self.event.write(1);
    }
}

impl Interrupt for Line {
    fn used(&self) {
        self.raise(VIRTIO_MMIO_INT_VRING);
    }

    fn changed(&self) {
        self.raise(VIRTIO_MMIO_INT_CONFIG);
    }

    /// A configuration change tells of it.
    fn needs_reset(&self) {
        self.needs_reset.store(true, Ordering::SeqCst);
        self.changed();
    }

    fn clear(&self) {
        self.status.store(0, Ordering::SeqCst);
        self.needs_reset.store(false, Ordering::SeqCst);
    }
}
