// SPDX-License-Identifier: Apache-2.0
//! The DSDT: the devices that are found by name, their registers and their interrupt lines.

use acpi_tables::Aml;
use acpi_tables::aml::{
    Arg, Device, EISAName, Equal, IO, If, Interrupt, Memory32Fixed, Method, Name, Notify, Package, Path,
    ResourceTemplate, Scope, ZERO,
};
use acpi_tables::sdt::Sdt;

use super::machine::{Machine, OEM_ID, OEM_REVISION, OEM_TABLE_ID};
use crate::bits::{low16, low32};
use crate::devices::power;
use crate::layout;

/// Value that a VM generation ID notifies its driver with: the number is another one.
const NUMBER_CHANGED: u8 = 0x80;
/// Value that a power button notifies its driver with (ACPI 6.5, section 4.8.3.1).
const BUTTON_PRESSED: u8 = 0x80;

/// The whole table.
pub(super) fn build(machine: &Machine<'_>) -> Sdt {
    const HEADER: u32 = 36;
    let mut aml = Vec::new();
    for slot in 0..machine.virtio_devices {
        virtio(slot, &mut aml);
    }
    if machine.serial {
        serial(&mut aml);
    }
    if machine.held_memory {
        held_memory(&mut aml);
    }
    pvpanic(&mut aml);
    power_button(&mut aml);
    generation(&mut aml);
    events(&mut aml);
    let five = power::SLEEP_TYPE_S5;
    Name::new("_S5_".into(), &Package::new(vec![&five, &five, &ZERO, &ZERO])).to_aml_bytes(&mut aml);
    let mut table = Sdt::new(*b"DSDT", HEADER, 6, OEM_ID, OEM_TABLE_ID, OEM_REVISION);
    table.append_slice(&aml);
    table
}

fn in_system_bus(device: &Device<'_>, aml: &mut Vec<u8>) {
    Scope::new("_SB_".into(), vec![device]).to_aml_bytes(aml);
}

fn edge(gsi: u32) -> Interrupt {
    Interrupt::new(true, true, false, false, gsi)
}

/// A virtio-mmio register block; `LNRO0005` is what Linux's driver looks for.
fn virtio(slot: usize, aml: &mut Vec<u8>) {
    let Ok(index) = u8::try_from(slot) else { return };
    let base = layout::VIRTIO_MMIO.start + u64::from(index) * layout::VIRTIO_MMIO_STRIDE;
    let registers = Memory32Fixed::new(true, low32(base), low32(layout::VIRTIO_MMIO_STRIDE));
    let line = edge(layout::GSI_VIRTIO.start + u32::from(index));
    in_system_bus(
        &Device::new(
            Path::new(&format!("V{index:03}")),
            vec![
                &Name::new("_HID".into(), &"LNRO0005"),
                &Name::new("_UID".into(), &index),
                // Coherent DMA; without it Linux refuses to map buffers.
                &Name::new("_CCA".into(), &1u8),
                &Name::new("_CRS".into(), &ResourceTemplate::new(vec![&registers, &line])),
            ],
        ),
        aml,
    );
}

fn serial(aml: &mut Vec<u8>) {
    let port = low16(layout::PORT_SERIAL.start);
    let length = (layout::PORT_SERIAL.end - layout::PORT_SERIAL.start).to_le_bytes()[0];
    in_system_bus(
        &Device::new(
            "COM1".into(),
            vec![
                &Name::new("_HID".into(), &EISAName::new("PNP0501")),
                &Name::new("_UID".into(), &ZERO),
                &Name::new("_DDN".into(), &"COM1"),
                &Name::new(
                    "_CRS".into(),
                    &ResourceTemplate::new(vec![&IO::new(port, port, 0, length), &edge(layout::GSI_SERIAL)]),
                ),
            ],
        ),
        aml,
    );
}

/// The memory device, of which nobody but flatboot has a driver.
fn held_memory(aml: &mut Vec<u8>) {
    let (base, length) = (layout::HELD_MEMORY.start, layout::HELD_MEMORY.end - layout::HELD_MEMORY.start);
    let registers = Memory32Fixed::new(true, low32(base), low32(length));
    in_system_bus(
        &Device::new(
            "HMEM".into(),
            vec![
                &Name::new("_HID".into(), &"FLTB0002"),
                &Name::new("_UID".into(), &ZERO),
                &Name::new("_CRS".into(), &ResourceTemplate::new(vec![&registers, &edge(layout::GSI_HELD_MEMORY)])),
            ],
        ),
        aml,
    );
}

fn pvpanic(aml: &mut Vec<u8>) {
    let port = low16(layout::PORT_PVPANIC.start);
    in_system_bus(
        &Device::new(
            "PEVT".into(),
            vec![
                &Name::new("_HID".into(), &"QEMU0001"),
                &Name::new("_CRS".into(), &ResourceTemplate::new(vec![&IO::new(port, port, 0, 1)])),
            ],
        ),
        aml,
    );
}

/// The VM generation ID; its address is two numbers of 32 bits.
fn generation(aml: &mut Vec<u8>) {
    const NAME: &str = "VM_Gen_Counter";
    let address = layout::GENERATION.start;
    let (low, high) = (low32(address), low32(address >> 32));
    in_system_bus(
        &Device::new(
            "VGEN".into(),
            vec![
                // Of no vendor that has one registered: the compatible name is what drivers look for.
                &Name::new("_HID".into(), &"FLTB0001"),
                &Name::new("_CID".into(), &NAME),
                &Name::new("_DDN".into(), &NAME),
                &Name::new("ADDR".into(), &Package::new(vec![&low, &high])),
            ],
        ),
        aml,
    );
}

fn power_button(aml: &mut Vec<u8>) {
    in_system_bus(
        &Device::new(
            "PWRB".into(),
            vec![&Name::new("_HID".into(), &EISAName::new("PNP0C0C")), &Name::new("_UID".into(), &ZERO)],
        ),
        aml,
    );
}

/// The generic event device (ACPI 6.5, section 5.6.9): each of its lines says that something has happened to another device.
fn events(aml: &mut Vec<u8>) {
    let (button, number) = (layout::GSI_POWER_BUTTON, layout::GSI_GENERATION);
    let (pressed, changed) = (Path::new("\\_SB_.PWRB"), Path::new("\\_SB_.VGEN"));
    let pressed = Notify::new(&pressed, &BUTTON_PRESSED);
    let changed = Notify::new(&changed, &NUMBER_CHANGED);
    let (of_button, of_number) = (Equal::new(&Arg(0), &button), Equal::new(&Arg(0), &number));
    let (press, change) = (If::new(&of_button, vec![&pressed]), If::new(&of_number, vec![&changed]));
    in_system_bus(
        &Device::new(
            "GED_".into(),
            vec![
                &Name::new("_HID".into(), &"ACPI0013"),
                &Name::new("_UID".into(), &ZERO),
                &Name::new("_CRS".into(), &ResourceTemplate::new(vec![&edge(number), &edge(button)])),
                &Method::new("_EVT".into(), 1, true, vec![&press, &change]),
            ],
        ),
        aml,
    );
}
