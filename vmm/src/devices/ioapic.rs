// SPDX-License-Identifier: Apache-2.0
//! The I/O APIC of a VM with APIC ids that have no room in KVM's own: it turns lines into messages by KVM's routes.
//!
//! KVM's I/O APIC sends interrupts to ids below 256 and no others. This one also has the seven more bits of a destination that guests
//! use when they are told to (`KVM_FEATURE_MSI_EXT_DEST_ID`; Linux, `arch/x86/include/asm/io_apic.h`). All lines of the machine are
//! edges, so nothing is kept of an interrupt: what comes while its pin is masked is lost, as it is in hardware.

use super::bus::{BusDevice, GuestRequest, Unsaved};
use crate::bits::{low8, low32};
use crate::state::{DeviceState, Mismatch};

/// How many pins there are.
pub const PINS: usize = 24;

/// Which register is seen, and the register (82093AA, section 3.1).
const SELECT: u64 = 0x00;
const WINDOW: u64 = 0x10;
const REGISTERS: usize = 4;

const ID: u8 = 0x00;
const VERSION: u8 = 0x01;
const ARBITRATION: u8 = 0x02;
const FIRST_ENTRY: u8 = 0x10;
/// Version 0x11, and the number of the last pin.
const VERSION_AND_LAST_PIN: u32 = 0x11 | 23 << 16;

/// Of the identifier's register.
const ID_MASK: u32 = 0x0f00_0000;

/// Of an entry: vector, delivery mode and destination mode; a mask; what nobody but the device sets.
const MASKED: u64 = 1 << 16;
const READ_ONLY: u64 = 1 << 12 | 1 << 14;
/// Bits 49 to 55 are bits 8 to 14 of the destination, 56 to 63 its lowest eight.
const EXTENSION: u32 = 49;
const DESTINATION: u32 = 56;

/// An interrupt as a write to memory (Intel SDM volume 3A, "Message Signalled Interrupts"), with the destination's upper bits in the
/// upper half of the address, as KVM has it (`KVM_X2APIC_API_USE_32BIT_IDS`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message {
    /// Lower half of the address.
    pub address_low: u32,
    /// Upper half.
    pub address_high: u32,
    /// What is written.
    pub data: u32,
}

/// Takes what each pin sends from now on, if it sends anything.
pub trait Router: Send {
    /// Replaces all routes. Whether that was possible.
    fn route(&mut self, routes: &[Option<Message>; PINS]) -> bool;
}

/// The device.
#[derive(Debug)]
pub struct IoApic<R> {
    select: u8,
    id: u32,
    entries: [u64; PINS],
    routes: [Option<Message>; PINS],
    router: R,
}

impl<R: Router> IoApic<R> {
    /// All pins masked, as after a reset.
    #[must_use]
    pub const fn new(router: R) -> Self {
        Self { select: 0, id: 0, entries: [MASKED; PINS], routes: [None; PINS], router }
    }

    fn register(&self) -> u32 {
        match self.select {
            ID | ARBITRATION => self.id,
            VERSION => VERSION_AND_LAST_PIN,
            select => {
                let entry = pin(select).and_then(|(index, _)| self.entries.get(index)).copied();
                let shift = if select % 2 == 0 { 0 } else { 32 };
                // What is not there reads as nothing.
                entry.map_or(0, |entry| low32(entry >> shift))
            }
        }
    }

    fn set_register(&mut self, value: u32) {
        if self.select == ID {
            self.id = value & ID_MASK;
        }
        let Some((index, upper)) = pin(self.select) else { return };
        let Some(entry) = self.entries.get_mut(index) else { return };
        *entry = if upper {
            *entry & 0xffff_ffff | u64::from(value) << 32
        } else {
            *entry & !0xffff_ffff | u64::from(value) & !READ_ONLY
        };
        let message = message(*entry);
        // Routes are costly to change, and guests mask and unmask: what stays the same stays.
        if let Some(route) = self.routes.get_mut(index).filter(|route| **route != message) {
            let before = std::mem::replace(route, message);
            // What has failed is tried again when the guest writes it again.
            if !self.router.route(&self.routes)
                && let Some(route) = self.routes.get_mut(index)
            {
                *route = before;
            }
        }
    }
}

/// The pin whose entry register `select` is a half of, and whether that is the upper one.
fn pin(select: u8) -> Option<(usize, bool)> {
    let half = select.checked_sub(FIRST_ENTRY)?;
    let index = usize::from(half / 2);
    (index < PINS).then_some((index, half % 2 == 1))
}

/// What a pin with that entry sends.
fn message(entry: u64) -> Option<Message> {
    const ADDRESS: u32 = 0xfee0_0000;
    if entry & MASKED != 0 {
        return None;
    }
    let destination = u32::from(low8(entry >> DESTINATION));
    let extension = low32(entry >> EXTENSION) & 0x7f;
    let logical = low32(entry >> 11) & 1;
    let (vector, delivery) = (low32(entry) & 0xff, low32(entry >> 8) & 0x7);
    Some(Message {
        address_low: ADDRESS | destination << 12 | logical << 2,
        address_high: extension << 8,
        data: vector | delivery << 8,
    })
}

impl<R: Router> BusDevice for IoApic<R> {
    fn read(&mut self, offset: u64, data: &mut [u8]) {
        data.fill(0);
        let value = match offset {
            SELECT => self.select.into(),
            WINDOW => self.register(),
            _ => 0,
        };
        data.iter_mut().zip(value.to_le_bytes()).for_each(|(to, from)| *to = from);
    }

    fn write(&mut self, offset: u64, data: &[u8]) -> Option<GuestRequest> {
        let mut bytes = [0; REGISTERS];
        bytes.iter_mut().zip(data).for_each(|(to, from)| *to = *from);
        let value = u32::from_le_bytes(bytes);
        match offset {
            SELECT => self.select = low8(value.into()),
            WINDOW => self.set_register(value),
            _ => {}
        }
        None
    }

    fn save(&mut self) -> Result<Option<DeviceState>, Unsaved> {
        let Self { select, id, entries, .. } = self;
        Ok(Some(DeviceState::IoApic { select: *select, id: *id, entries: entries.to_vec() }))
    }

    fn restore(&mut self, state: &DeviceState) -> Result<(), Mismatch> {
        let DeviceState::IoApic { select, id, entries } = state else { return Err(Mismatch::Kind) };
        let pins = <&[u64; PINS]>::try_from(entries.as_slice());
        let pins = pins.map_err(|_| Mismatch::of("number of pins", entries.len(), PINS))?;
        (self.select, self.id, self.entries) = (*select, id & ID_MASK, pins.map(|entry| entry & !READ_ONLY));
        self.routes = self.entries.map(message);
        if self.router.route(&self.routes) {
            return Ok(());
        }
        Err(Mismatch::of("a redirection entry", "one that KVM does not take", "one that it takes"))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Every change of routes; and whether the next ones fail.
    #[derive(Debug, Default)]
    struct Routes(Vec<[Option<Message>; PINS]>, bool);

    impl Router for Routes {
        fn route(&mut self, routes: &[Option<Message>; PINS]) -> bool {
            self.0.push(*routes);
            !self.1
        }
    }

    fn device() -> IoApic<Routes> {
        IoApic::new(Routes::default())
    }

    fn write(device: &mut IoApic<Routes>, register: u8, value: u32) {
        assert_eq!(device.write(SELECT, &u32::from(register).to_le_bytes()), None);
        assert_eq!(device.write(WINDOW, &value.to_le_bytes()), None);
    }

    fn read(device: &mut IoApic<Routes>, register: u8) -> u32 {
        let _ = device.write(SELECT, &[register, 0, 0, 0]);
        let mut data = [0; 4];
        device.read(WINDOW, &mut data);
        u32::from_le_bytes(data)
    }

    #[test]
    fn a_guest_finds_pins_that_are_masked() {
        let mut device = device();
        assert_eq!(read(&mut device, VERSION), 0x0017_0011);
        for pin in 0..24 {
            assert_eq!((read(&mut device, 0x10 + 2 * pin), read(&mut device, 0x11 + 2 * pin)), (0x1_0000, 0));
        }
        assert_eq!((read(&mut device, 0x40), read(&mut device, 0xff), read(&mut device, 3)), (0, 0, 0));
        write(&mut device, ID, 0xffff_ffff);
        assert_eq!((read(&mut device, ID), read(&mut device, ARBITRATION)), (0x0f00_0000, 0x0f00_0000));
        assert!(device.router.0.is_empty());
    }

    #[test]
    fn what_is_restored_sends_what_was_saved() {
        let mut one = device();
        write(&mut one, 0x10 + 2 * 5 + 1, 0x23 << 24);
        write(&mut one, 0x10 + 2 * 5, 0x31);
        let (state, mut other) = (one.save().unwrap().unwrap(), device());
        other.restore(&state).unwrap();
        assert_eq!(other.router.0.last(), one.router.0.last());
        assert_eq!(other.save(), Ok(Some(state)));
        let few = DeviceState::IoApic { select: 0, id: 0, entries: vec![0; 3] };
        assert_eq!(other.restore(&few).unwrap_err().to_string(), "number of pins is 3: must be 24");
        assert_eq!(other.restore(&DeviceState::Sleep { sleep_type: 0 }), Err(Mismatch::Kind));
    }

    /// As Linux programs a pin for the processor with APIC id 0x123: the upper half first, then the lower one without its mask.
    #[test]
    fn an_entry_is_a_message_to_any_processor() {
        let mut device = device();
        write(&mut device, 0x10 + 2 * 5 + 1, 0x23 << 24 | 0x01 << 17);
        assert!(device.router.0.is_empty(), "it is masked");
        write(&mut device, 0x10 + 2 * 5, 0x31);
        let message = Message { address_low: 0xfee2_3000, address_high: 0x100, data: 0x31 };
        let routes = device.router.0.last().unwrap();
        assert_eq!(routes[5], Some(message));
        assert_eq!(routes.iter().flatten().count(), 1);
        // The same again is no change; a mask ends it.
        write(&mut device, 0x10 + 2 * 5, 0x31);
        assert_eq!(device.router.0.len(), 1);
        write(&mut device, 0x10 + 2 * 5, 0x1_0031);
        assert_eq!((device.router.0.len(), device.router.0[1]), (2, [None; PINS]));
        // Lowest priority, logical destination.
        write(&mut device, 0x10, 0x941);
        let message = Message { address_low: 0xfee0_0004, address_high: 0, data: 0x141 };
        assert_eq!(device.router.0[2][0], Some(message));
    }

    #[test]
    fn a_route_that_fails_is_tried_again() {
        let mut device = device();
        device.router.1 = true;
        write(&mut device, 0x10, 0x31);
        device.router.1 = false;
        write(&mut device, 0x10, 0x31);
        write(&mut device, 0x10, 0x31);
        assert_eq!(device.router.0.len(), 2);
    }

    #[test]
    fn what_is_the_devices_a_guest_cannot_set() {
        let mut device = device();
        write(&mut device, 0x12, 0xffff_ffff);
        assert_eq!(read(&mut device, 0x12), 0xffff_afff);
        assert!(device.router.0.is_empty());
    }

    proptest! {
        #[test]
        fn any_access_is_answered(accesses in prop::collection::vec((any::<bool>(), 0..0x30u64, any::<u64>(), 1..=8usize), 0..200)) {
            let mut device = device();
            for (is_write, offset, value, width) in accesses {
                let bytes = value.to_le_bytes();
                if is_write {
                    prop_assert_eq!(device.write(offset, &bytes[..width]), None);
                } else {
                    let mut data = vec![0xa5; width];
                    device.read(offset, &mut data);
                    prop_assert!(offset == SELECT || offset == WINDOW || data.iter().all(|byte| *byte == 0));
                }
            }
            // What KVM was told last is what the entries say, and no address is anything but an interrupt's.
            let routes = device.router.0.last().copied().unwrap_or([None; PINS]);
            for (entry, route) in device.entries.iter().zip(routes) {
                prop_assert_eq!(message(*entry), route);
                if let Some(Message { address_low, address_high, .. }) = route {
                    prop_assert_eq!((address_low >> 20, address_high & 0xff, address_high >> 15), (0xfee, 0, 0));
                }
            }
        }
    }
}
