// SPDX-License-Identifier: Apache-2.0
//! What a guest is told about its interface, whoever serves that.

use virtio_bindings::virtio_net::{
    VIRTIO_NET_F_MAC, VIRTIO_NET_F_MRG_RXBUF, VIRTIO_NET_F_MTU, VIRTIO_NET_F_STATUS, VIRTIO_NET_S_LINK_UP,
};

use super::mac::Mac;

/// What needs nothing of the host.
const FEATURES: [u32; 4] = [VIRTIO_NET_F_MAC, VIRTIO_NET_F_MRG_RXBUF, VIRTIO_NET_F_STATUS, VIRTIO_NET_F_MTU];

/// What a guest is told about its interface.
#[derive(Debug, Clone, Copy)]
pub struct Interface {
    /// Its address.
    pub mac: Mac,
    /// The longest packet, if the guest is to keep to one.
    pub mtu: Option<u16>,
    /// Requests that each queue has room for, a power of two.
    pub queue_size: u16,
}

impl Interface {
    /// What needs nothing of the host.
    pub(super) fn features(&self) -> u64 {
        let offered = FEATURES.iter().filter(|bit| **bit != VIRTIO_NET_F_MTU || self.mtu.is_some());
        offered.fold(0, |features, bit| features | 1 << bit)
    }

    /// `struct virtio_net_config` up to mtu; several queues are not offered.
    pub(super) fn config(&self, is_up: bool) -> Vec<u8> {
        let mut config = self.mac.bytes().to_vec();
        config.extend(status(is_up));
        config.extend([0, 0]);
        config.extend(self.mtu.unwrap_or(0).to_le_bytes());
        config
    }
}

/// Where `status` is in it: behind the address.
pub(super) const STATUS: usize = 6;

/// `status`, of a link that is up or not.
pub(super) fn status(is_up: bool) -> [u8; 2] {
    let [up, ..] = VIRTIO_NET_S_LINK_UP.to_le_bytes();
    [if is_up { up } else { 0 }, 0]
}
