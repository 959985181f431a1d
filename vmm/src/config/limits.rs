// SPDX-License-Identifier: Apache-2.0
//! How much of something a VM may have.

use crate::layout::VIRTIO_SLOTS;

/// Most disks, network interfaces, and devices that there are one of: one virtio slot is the random number generator's.
pub(super) const MAX_DEVICES: usize = VIRTIO_SLOTS - 1;
/// A day: longer is a mistake.
pub(super) const MAX_SHUTDOWN_TIMEOUT: u64 = 86_400;
