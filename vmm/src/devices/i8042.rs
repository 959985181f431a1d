// SPDX-License-Identifier: Apache-2.0
//! The one thing that is left of the keyboard controller: its command port resets the machine.

use super::bus::{BusDevice, GuestRequest};

/// Command "pulse output line 0", which is the CPU's reset line (i8042 data sheet, commands 0xf0..0xff).
const PULSE_RESET: u8 = 0xfe;
/// Status: no byte to read, ready for a command.
const STATUS_IDLE: u8 = 0;

/// Port 0x64, one byte. Linux writes here for `reboot=k`, and as a fallback.
#[derive(Debug, Default)]
pub struct I8042;

impl BusDevice for I8042 {
    fn read(&mut self, _offset: u64, data: &mut [u8]) {
        data.fill(STATUS_IDLE);
    }

    fn write(&mut self, offset: u64, data: &[u8]) -> Option<GuestRequest> {
        (offset == 0 && data.first() == Some(&PULSE_RESET)).then_some(GuestRequest::Reset)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::devices::testing::{Access, accesses, apply};

    #[test]
    fn only_the_reset_command_resets() {
        let mut device = I8042;
        for command in 0..=0xffu8 {
            let expected = (command == 0xfe).then_some(GuestRequest::Reset);
            assert_eq!(device.write(0, &[command]), expected, "{command:#x}");
        }
        let mut status = [0xff];
        device.read(0, &mut status);
        assert_eq!(status, [0]);
    }

    proptest! {
        #[test]
        fn any_access_is_harmless(accesses in accesses(4)) {
            for access in accesses {
                let reset = matches!(&access, Access::Write { offset: 0, data } if data.first() == Some(&0xfe));
                prop_assert_eq!(apply(&mut I8042, &access), reset.then_some(GuestRequest::Reset));
            }
        }
    }
}
