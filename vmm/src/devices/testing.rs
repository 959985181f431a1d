// SPDX-License-Identifier: Apache-2.0
//! What the devices' tests share: accesses as an arbitrary guest makes them.

use proptest::prelude::*;

use super::bus::{BusDevice, GuestRequest};

/// One access of a guest.
#[derive(Clone, Debug)]
pub(crate) enum Access {
    /// A read of `width` bytes.
    Read {
        /// From the start of the device's range.
        offset: u64,
        /// Bytes.
        width: usize,
    },
    /// A write.
    Write {
        /// From the start of the device's range.
        offset: u64,
        /// Little-endian.
        data: Vec<u8>,
    },
}

/// Sequences of accesses, most of them in the first `range` bytes, some anywhere.
pub(crate) fn accesses(range: u64) -> impl Strategy<Value = Vec<Access>> {
    let offset = prop_oneof![8 => 0..range, 1 => any::<u64>()];
    let access = prop_oneof![
        (offset.clone(), 0usize..9).prop_map(|(offset, width)| Access::Read { offset, width }),
        (offset, prop::collection::vec(any::<u8>(), 0..9)).prop_map(|(offset, data)| Access::Write { offset, data }),
    ];
    prop::collection::vec(access, 0..64)
}

/// Does one access.
pub(crate) fn apply(device: &mut dyn BusDevice, access: &Access) -> Option<GuestRequest> {
    match access {
        Access::Write { offset, data } => device.write(*offset, data),
        Access::Read { offset, width } => {
            device.read(*offset, &mut vec![0; *width]);
            None
        }
    }
}
