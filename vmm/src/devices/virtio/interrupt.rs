// SPDX-License-Identifier: Apache-2.0
//! How a device gets the driver's attention, whatever transport it is on.

/// The way from a device's queues to its driver. Called under the queues' lock: an implementation takes no lock and never waits.
pub(super) trait Interrupt: Send + Sync {
    /// Requests of a queue are done.
    fn used(&self);

    /// The configuration space is another one.
    fn changed(&self);

    /// The device cannot go on: the driver must reset it (`DEVICE_NEEDS_RESET`; virtio 1.2, section 2.1.2).
    fn needs_reset(&self);

    /// The driver has reset the device: no interrupt is pending any more.
    fn clear(&self);
}
