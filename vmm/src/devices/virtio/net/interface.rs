// SPDX-License-Identifier: Apache-2.0
//! What a guest is told about its interface, whoever serves that.

use std::ops::Range;

use virtio_bindings::virtio_net::{
    VIRTIO_NET_F_CTRL_VQ, VIRTIO_NET_F_MAC, VIRTIO_NET_F_MQ, VIRTIO_NET_F_MRG_RXBUF, VIRTIO_NET_F_MTU,
    VIRTIO_NET_F_STATUS, VIRTIO_NET_S_LINK_UP,
};

use super::control;
use super::mac::Mac;

/// What needs nothing of the host.
const FEATURES: [u32; 3] = [VIRTIO_NET_F_MAC, VIRTIO_NET_F_MRG_RXBUF, VIRTIO_NET_F_STATUS];
/// What goes with several pairs of queues: a driver says how many it uses.
const SEVERAL: [u32; 2] = [VIRTIO_NET_F_MQ, VIRTIO_NET_F_CTRL_VQ];

/// What a guest is told about its interface.
#[derive(Debug, Clone, Copy)]
pub struct Interface {
    /// Its address.
    pub mac: Mac,
    /// The longest packet, if the guest is to keep to one.
    pub mtu: Option<u16>,
    /// Requests that each queue of frames has room for, a power of two.
    pub queue_size: u16,
}

impl Interface {
    /// What needs nothing of the host, where there are so many pairs of queues.
    pub(super) fn features(&self, pairs: u16) -> u64 {
        let several = if pairs > 1 { SEVERAL.as_slice() } else { &[] };
        let mtu = self.mtu.map(|_| VIRTIO_NET_F_MTU);
        FEATURES.iter().chain(several).chain(&mtu).fold(0, |features, bit| features | 1 << bit)
    }

    /// The size of each queue: those of each pair, and behind several pairs the control queue.
    pub(super) fn queue_sizes(&self, pairs: u16) -> Vec<u16> {
        let mut sizes = vec![self.queue_size; 2 * usize::from(pairs)];
        if pairs > 1 {
            sizes.push(control::QUEUE_SIZE);
        }
        sizes
    }

    /// `struct virtio_net_config` up to mtu. One pair of queues is as if several were not known.
    pub(super) fn config(&self, pairs: u16, is_up: bool) -> Vec<u8> {
        let mut config = self.mac.bytes().to_vec();
        config.extend(status(is_up));
        config.extend(if pairs > 1 { pairs } else { 0 }.to_le_bytes());
        config.extend(self.mtu.unwrap_or(0).to_le_bytes());
        config
    }
}

/// Where `status` is in it: behind the address.
pub(super) const STATUS: usize = 6;
/// What may be another one in a VM that is restored: `status`, which a driver asks again when it is told that something has changed;
/// and the address, which it asks when it begins anew.
pub(super) const RENEWED: Range<usize> = 0..STATUS + 2;

/// `status`, of a link that is up or not.
pub(super) fn status(is_up: bool) -> [u8; 2] {
    let [up, ..] = VIRTIO_NET_S_LINK_UP.to_le_bytes();
    [if is_up { up } else { 0 }, 0]
}
