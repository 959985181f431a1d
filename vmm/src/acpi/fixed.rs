// SPDX-License-Identifier: Apache-2.0
//! The FADT: which fixed hardware there is (almost none), how to sleep and how to reset.

use acpi_tables::fadt::{FADT, FADTBuilder, Flags, PmProfile};
use acpi_tables::gas::{AccessSize, AddressSpace, GAS};

use super::machine::{OEM_ID, OEM_REVISION, OEM_TABLE_ID};
use crate::devices::power;
use crate::layout;

/// IA-PC boot architecture flags (ACPI 6.5, table 5.11): no VGA, no CMOS clock, MSI works.
const VGA_NOT_PRESENT: u16 = 1 << 2;
const CMOS_RTC_NOT_PRESENT: u16 = 1 << 5;

/// The FADT, pointing to the DSDT at GPA `dsdt`.
pub(super) fn fadt(dsdt: u64) -> FADT {
    let mut table = FADTBuilder::new(OEM_ID, OEM_TABLE_ID, OEM_REVISION)
        .dsdt_64(dsdt)
        .preferred_pm_profile(PmProfile::EnterpriseServer)
        .flag(Flags::HwReducedAcpi)
        .flag(Flags::ResetRegSup)
        // The power button is a device in the DSDT, not a fixed one.
        .flag(Flags::PwrButton)
        .flag(Flags::SlpButton)
        .flag(Flags::Headless);
    table.iapc_boot_arch = (VGA_NOT_PRESENT | CMOS_RTC_NOT_PRESENT).into();
    table.reset_reg = io_byte(layout::PORT_RESET.start);
    table.reset_value = power::RESET_VALUE;
    table.sleep_control_reg = io_byte(layout::PORT_SLEEP.start);
    table.sleep_status_reg = io_byte(layout::PORT_SLEEP.start + 1);
    table.finalize()
}

fn io_byte(port: u64) -> GAS {
    GAS::new(AddressSpace::SystemIo, 8, 0, AccessSize::ByteAccess, port)
}
