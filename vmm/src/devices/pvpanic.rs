// SPDX-License-Identifier: Apache-2.0
//! pvpanic: one I/O port by which a guest kernel says that it panicked (QEMU, docs/specs/pvpanic.rst).

use super::bus::{BusDevice, GuestRequest};

/// Event bit "the guest has panicked", in what the guest writes and in the capabilities that it reads.
pub const PANICKED: u8 = 1 << 0;

/// The pvpanic port. The guest finds it in the DSDT as `QEMU0001`.
#[derive(Debug, Default)]
pub struct PvPanic;

impl BusDevice for PvPanic {
    fn read(&mut self, _offset: u64, data: &mut [u8]) {
        data.fill(PANICKED);
    }

    fn write(&mut self, offset: u64, data: &[u8]) -> Option<GuestRequest> {
        let panicked = offset == 0 && data.first().is_some_and(|event| event & PANICKED != 0);
        panicked.then_some(GuestRequest::Panic)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::devices::testing::{Access, accesses, apply};

    #[test]
    fn capabilities_and_events() {
        let mut capabilities = [0];
        PvPanic.read(0, &mut capabilities);
        assert_eq!(capabilities, [PANICKED]);
        for event in 0..=0xffu8 {
            assert_eq!(PvPanic.write(0, &[event]), (event & 1 != 0).then_some(GuestRequest::Panic), "{event:#x}");
        }
    }

    proptest! {
        #[test]
        fn any_access_is_harmless(accesses in accesses(4)) {
            for access in accesses {
                let panic = matches!(&access, Access::Write { offset: 0, data } if data.first().is_some_and(|b| b & 1 != 0));
                prop_assert_eq!(apply(&mut PvPanic, &access), panic.then_some(GuestRequest::Panic));
            }
        }
    }
}
