// SPDX-License-Identifier: Apache-2.0
//! Frames as a driver has them.

/// `struct virtio_net_hdr_v1`, which comes before each frame in both directions.
pub(super) const HEADER_SIZE: usize = 12;
/// The header of a frame of nothing, which is in one buffer.
pub(super) const EMPTY: [u8; HEADER_SIZE] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0];
/// The longest frame: header, Ethernet header with a VLAN's tag, and an IP packet.
pub(super) const FRAME_MAX: usize = HEADER_SIZE + 18 + 65535;
