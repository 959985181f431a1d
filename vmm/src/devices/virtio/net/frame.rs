// SPDX-License-Identifier: Apache-2.0
//! Frames as a driver has them.

/// `struct virtio_net_hdr_v1`, which comes before each frame in both directions.
pub(super) const HEADER_SIZE: usize = 12;
/// The longest frame: header, Ethernet header with a VLAN's tag, and an IP packet.
pub(super) const FRAME_MAX: usize = HEADER_SIZE + 18 + 65535;
