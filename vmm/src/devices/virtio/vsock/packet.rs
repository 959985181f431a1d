// SPDX-License-Identifier: Apache-2.0
//! Headers of packets (virtio 1.2, section 5.10.6), little-endian.
//!
//! rust-vmm's `virtio-vsock` (0.12) has such headers, and nothing of connections. It is not used because it takes a packet only
//! from one descriptor or two, where a driver may cut it as it likes (section 2.7.4), and Linux does for `MSG_ZEROCOPY`.

/// `struct virtio_vsock_hdr`.
pub(super) const HEADER_SIZE: usize = 44;
/// The context id of the host.
pub(super) const HOST_CID: u64 = 2;
/// The only type of connection that is offered.
pub(super) const STREAM: u16 = 1;
/// Flags of [`Op::Shutdown`]: whoever sends it receives no more,
pub(super) const SHUTDOWN_RECEIVE: u32 = 1;
/// and sends no more.
pub(super) const SHUTDOWN_SEND: u32 = 2;

/// What a packet is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Op {
    /// To connect.
    Request,
    /// The connection is there.
    Response,
    /// It is not, or not any more.
    Reset,
    /// One direction or both are over.
    Shutdown,
    /// Bytes.
    Data,
    /// There is room for more of them.
    CreditUpdate,
    /// Is there?
    CreditRequest,
}

impl Op {
    const ALL: [Self; 7] = [
        Self::Request,
        Self::Response,
        Self::Reset,
        Self::Shutdown,
        Self::Data,
        Self::CreditUpdate,
        Self::CreditRequest,
    ];

    /// By its number, of which 0 is none.
    fn of(number: u16) -> Option<Self> {
        Self::ALL.get(usize::from(number).checked_sub(1)?).copied()
    }

    fn number(self) -> u16 {
        self as u16 + 1
    }
}

/// The two ends of a connection, each by its port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Ports {
    pub(super) host: u32,
    pub(super) guest: u32,
}

/// How much its sender can take.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Credit {
    /// Bytes that it keeps room for.
    pub(super) room: u32,
    /// Bytes that it has passed on so far, modulo 2^32.
    pub(super) passed: u32,
}

/// A header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) source: u64,
    pub(super) destination: u64,
    pub(super) source_port: u32,
    pub(super) destination_port: u32,
    /// Bytes behind it.
    pub(super) length: u32,
    pub(super) kind: u16,
    /// None if there is no such number.
    pub(super) op: Option<Op>,
    pub(super) flags: u32,
    pub(super) credit: Credit,
}

impl Header {
    /// One from the host to the guest `cid`.
    pub(super) fn to_guest(cid: u64, ports: Ports, op: Op, credit: Credit) -> Self {
        Self {
            source: HOST_CID,
            destination: cid,
            source_port: ports.host,
            destination_port: ports.guest,
            length: 0,
            kind: STREAM,
            op: Some(op),
            flags: 0,
            credit,
        }
    }

    /// The ends of the connection that one from the guest is about.
    pub(super) const fn ports(&self) -> Ports {
        Ports { host: self.destination_port, guest: self.source_port }
    }

    pub(super) fn read(bytes: &[u8; HEADER_SIZE]) -> Self {
        let mut left = bytes.as_slice();
        let mut number = |size: usize| {
            let (field, rest) = left.split_at(size);
            left = rest;
            field.iter().rev().fold(0u64, |number, byte| number << 8 | u64::from(*byte))
        };
        let (source, destination) = (number(8), number(8));
        let mut word = || crate::bits::low32(number(4));
        let (source_port, destination_port, length, kinds) = (word(), word(), word(), word());
        let (flags, room, passed) = (word(), word(), word());
        let [kind_low, kind_high, op_low, op_high] = kinds.to_le_bytes();
        Self {
            source,
            destination,
            source_port,
            destination_port,
            length,
            kind: u16::from_le_bytes([kind_low, kind_high]),
            op: Op::of(u16::from_le_bytes([op_low, op_high])),
            flags,
            credit: Credit { room, passed },
        }
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        let words = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>();
        let op = self.op.map_or(0, Op::number);
        [
            self.source.to_le_bytes().to_vec(),
            self.destination.to_le_bytes().to_vec(),
            words(&[self.source_port, self.destination_port, self.length]),
            self.kind.to_le_bytes().to_vec(),
            op.to_le_bytes().to_vec(),
            words(&[self.flags, self.credit.room, self.credit.passed]),
        ]
        .concat()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn fields_are_where_the_specification_has_them() {
        let credit = Credit { room: 0x0102_0304, passed: 0x0506_0708 };
        let header = Header {
            length: 9,
            flags: 3,
            ..Header::to_guest(0x1_0000_0003, Ports { host: 0xaabb, guest: 0xccdd }, Op::Data, credit)
        };
        let expected = [
            [2, 0, 0, 0, 0, 0, 0, 0].as_slice(),
            &[3, 0, 0, 0, 1, 0, 0, 0],
            &[0xbb, 0xaa, 0, 0],
            &[0xdd, 0xcc, 0, 0],
            &[9, 0, 0, 0],
            &[1, 0],
            &[5, 0],
            &[3, 0, 0, 0],
            &[4, 3, 2, 1],
            &[8, 7, 6, 5],
        ];
        assert_eq!(header.bytes(), expected.concat());
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(bytes in prop::array::uniform32(any::<u8>()), rest in prop::array::uniform12(any::<u8>()), op in 0u8..9) {
            let mut all = [0; HEADER_SIZE];
            all[..32].copy_from_slice(&bytes);
            all[32..].copy_from_slice(&rest);
            (all[30], all[31]) = (op, 0);
            let header = Header::read(&all);
            let known = (1..=7).contains(&op);
            prop_assert_eq!(header.op.is_some(), known);
            prop_assert!(!known || header.bytes() == all);
        }
    }
}
