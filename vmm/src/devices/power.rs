// SPDX-License-Identifier: Apache-2.0
//! Power registers of a hardware-reduced ACPI machine: sleep control, sleep status, reset (ACPI 6.5, section 4.8.3).
//!
//! FADT and DSDT describe them with the constants here; all registers are one byte in I/O space.

use super::bus::{BusDevice, GuestRequest, Unsaved};
use crate::state::{DeviceState, Mismatch};

/// Value that `\_S5` in the DSDT gives for the sleep type "soft off".
pub const SLEEP_TYPE_S5: u8 = 5;
/// Value that the guest writes to the reset register (FADT `RESET_VALUE`).
pub const RESET_VALUE: u8 = 1;
/// The same, for the register that firmware for QEMU's microvm knows (EDK2, `OvmfPkg/Include/IndustryStandard/Microvm.h`).
pub const FIRMWARE_RESET_VALUE: u8 = 0x42;
/// Offset of the sleep control register in its device's range.
pub const SLEEP_CONTROL: u64 = 0;
/// Offset of the sleep status register in its device's range.
pub const SLEEP_STATUS: u64 = 1;

/// `SLP_TYPx`, bits 2..=4 of the sleep control register.
const SLP_TYP_SHIFT: u8 = 2;
const SLP_TYP_MASK: u8 = 0b111 << SLP_TYP_SHIFT;
/// `SLP_EN`, bit 5: act on `SLP_TYPx` now. Always reads as zero.
const SLP_EN: u8 = 1 << 5;

/// Sleep control and sleep status registers. Soft off is the only sleep that this machine knows.
#[derive(Debug, Default)]
pub struct SleepRegisters {
    sleep_type: u8,
}

impl SleepRegisters {
    fn write_control(&mut self, value: u8) -> Option<GuestRequest> {
        self.sleep_type = value & SLP_TYP_MASK;
        let off = value & SLP_EN != 0 && self.sleep_type >> SLP_TYP_SHIFT == SLEEP_TYPE_S5;
        off.then_some(GuestRequest::PowerOff)
    }
}

impl BusDevice for SleepRegisters {
    fn read(&mut self, offset: u64, data: &mut [u8]) {
        for (register, byte) in (offset..).zip(data) {
            // WAK_STS in the status register stays clear: nothing ever woke this machine.
            *byte = if register == SLEEP_CONTROL { self.sleep_type } else { 0 };
        }
    }

    fn write(&mut self, offset: u64, data: &[u8]) -> Option<GuestRequest> {
        if offset != SLEEP_CONTROL {
            return None;
        }
        data.first().and_then(|&value| self.write_control(value))
    }

    fn save(&mut self) -> Result<Option<DeviceState>, Unsaved> {
        Ok(Some(DeviceState::Sleep { sleep_type: self.sleep_type }))
    }

    fn restore(&mut self, state: &DeviceState) -> Result<(), Mismatch> {
        let DeviceState::Sleep { sleep_type } = state else { return Err(Mismatch::Kind) };
        self.sleep_type = sleep_type & SLP_TYP_MASK;
        Ok(())
    }
}

/// A reset register: it acts on one value. The FADT names one, firmware knows another.
#[derive(Debug)]
pub struct ResetRegister(pub u8);

impl BusDevice for ResetRegister {
    fn read(&mut self, _offset: u64, data: &mut [u8]) {
        data.fill(0);
    }

    fn write(&mut self, offset: u64, data: &[u8]) -> Option<GuestRequest> {
        (offset == 0 && data.first() == Some(&self.0)).then_some(GuestRequest::Reset)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::devices::testing::{Access, accesses, apply};

    #[test]
    fn soft_off_needs_the_type_and_the_enable_bit() {
        for value in 0..=0xffu8 {
            let mut device = SleepRegisters::default();
            let expected = (value & 0b11_1100 == 0b11_0100).then_some(GuestRequest::PowerOff);
            assert_eq!(device.write(SLEEP_CONTROL, &[value]), expected, "{value:#x}");
            assert_eq!(device.write(SLEEP_STATUS, &[value]), None);
            let mut registers = [0xff; 2];
            device.read(SLEEP_CONTROL, &mut registers);
            assert_eq!(registers, [value & 0b1_1100, 0]);
        }
    }

    #[test]
    fn only_the_reset_value_resets() {
        for value in 0..=0xffu8 {
            for reset in [RESET_VALUE, FIRMWARE_RESET_VALUE] {
                let expected = (value == reset).then_some(GuestRequest::Reset);
                assert_eq!(ResetRegister(reset).write(0, &[value]), expected, "{value:#x}");
            }
        }
    }

    proptest! {
        #[test]
        fn any_access_is_harmless(accesses in accesses(4)) {
            let mut sleep = SleepRegisters::default();
            for access in accesses {
                let control = match &access {
                    Access::Write { offset: 0, data } => data.first().copied(),
                    _ => None,
                };
                let off = control.is_some_and(|value| value & 0b11_1100 == 0b11_0100);
                prop_assert_eq!(apply(&mut sleep, &access), off.then_some(GuestRequest::PowerOff));
                let reset = control == Some(RESET_VALUE);
                prop_assert_eq!(apply(&mut ResetRegister(RESET_VALUE), &access), reset.then_some(GuestRequest::Reset));
            }
        }
    }
}
