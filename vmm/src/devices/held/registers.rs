// SPDX-License-Identifier: Apache-2.0
//! The registers of the memory device. Nothing that a guest writes is trusted: what makes no sense is ignored and counted.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use super::control::{HeldControl, Inner};
use crate::bits::low32;
use crate::devices::bus::{BusDevice, GuestRequest, Unsaved, lock};
use crate::state::{DeviceState, HeldState, Mismatch};

/// What [`MAGIC`] reads as: "FLBM".
pub const MAGIC_VALUE: u32 = u32::from_le_bytes(*b"FLBM");
/// What [`VERSION`] reads as.
pub const VERSION_VALUE: u32 = 1;

/// Identifies the device.
pub const MAGIC: u64 = 0x00;
/// The version of this interface.
pub const VERSION: u64 = 0x04;
/// Bytes of held memory in all (64 bits).
pub const MAX: u64 = 0x08;
/// Bytes that the guest is to own (64 bits).
pub const WANTED: u64 = 0x10;
/// Bytes that the guest owns (64 bits).
pub const OWNED: u64 = 0x18;
/// How the guest ends a request.
pub const OUTCOME: u64 = 0x20;
/// The number of the last request.
pub const REQUEST: u64 = 0x24;
/// Whether an interrupt is pending; to write [`ACKNOWLEDGE`] acknowledges it.
pub const EVENT: u64 = 0x28;

/// Written to [`OUTCOME`]: the guest owns what was wanted.
pub const DONE: u32 = 0;
/// Written to [`OUTCOME`]: it could not; [`OWNED`] says how far it came.
pub const FAILED: u32 = 1;
/// Written to [`EVENT`].
pub const ACKNOWLEDGE: u32 = 1;

/// A register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Register {
    /// Bytes from the start of the device's page.
    pub offset: u64,
    /// How many bits it has.
    pub bits: u32,
    /// What the guest can do to it: `r`, `w` or both.
    pub access: &'static str,
    /// Its name.
    pub name: &'static str,
    /// What it means, in a sentence.
    pub meaning: &'static str,
}

const fn register(offset: u64, bits: u32, access: &'static str, name: &'static str, meaning: &'static str) -> Register {
    Register { offset, bits, access, name, meaning }
}

/// Every register, by offset.
pub const ALL: [Register; 8] = [
    register(MAGIC, 32, "r", "magic", "0x4d424c46 (\"FLBM\")"),
    register(VERSION, 32, "r", "version", "1"),
    register(MAX, 64, "r", "max", "bytes of held memory in all"),
    register(WANTED, 64, "r", "wanted", "bytes that the guest is to own, a multiple of 128 MiB"),
    register(OWNED, 64, "rw", "owned", "bytes that the guest owns, a multiple of 128 MiB"),
    register(OUTCOME, 32, "w", "outcome", "ends a request: 0, the guest owns what was wanted; 1, it could not"),
    register(REQUEST, 32, "r", "request", "number of the last request, 0 if there was none"),
    register(EVENT, 32, "rw", "event", "1 while an interrupt is pending; write 1 to acknowledge it"),
];

/// From the low half of a register of 64 bits to the high one.
const HIGH: u64 = 4;

/// The registers, on a bus.
pub struct HeldRegisters {
    control: Arc<HeldControl>,
    /// The low half of what the guest is about to say that it owns.
    owned_low: Option<u32>,
    /// The high half of what is wanted, as it was when the low one was read.
    wanted_high: u32,
}

impl fmt::Debug for HeldRegisters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HeldRegisters")
    }
}

impl HeldRegisters {
    /// Those of `control`.
    #[must_use]
    pub const fn new(control: Arc<HeldControl>) -> Self {
        Self { control, owned_low: None, wanted_high: 0 }
    }

    /// What the guest reads in 32 bits.
    fn read32(&mut self, offset: u64) -> u32 {
        let mut inner = lock(&self.control.inner);
        let state = &mut inner.state;
        match offset {
            MAGIC => MAGIC_VALUE,
            VERSION => VERSION_VALUE,
            MAX => low32(state.max),
            MAX_HIGH => low32(state.max >> 32),
            WANTED => {
                let wanted = see(&mut inner);
                self.wanted_high = low32(wanted >> 32);
                low32(wanted)
            }
            WANTED_HIGH => self.wanted_high,
            OWNED => low32(state.owned),
            OWNED_HIGH => low32(state.owned >> 32),
            REQUEST => state.request,
            EVENT => state.event.into(),
            _ => 0,
        }
    }

    /// What it reads in 64.
    fn read64(&self, offset: u64) -> u64 {
        let mut inner = lock(&self.control.inner);
        match offset {
            MAX => inner.state.max,
            WANTED => see(&mut inner),
            OWNED => inner.state.owned,
            _ => 0,
        }
    }

    /// Takes what it writes in 32 bits. Whether that makes sense.
    fn write32(&mut self, inner: &mut Inner, offset: u64, value: u32) -> bool {
        match (offset, value) {
            (OWNED, low) => {
                self.owned_low = Some(low);
                true
            }
            (OWNED_HIGH, high) => {
                let low = self.owned_low.take();
                low.is_some_and(|low| own(inner, u64::from(high) << 32 | u64::from(low)))
            }
            (OUTCOME, DONE | FAILED) => inner.state.end(value == DONE).is_ok(),
            (EVENT, ACKNOWLEDGE) => {
                inner.state.event = false;
                true
            }
            _ => false,
        }
    }
}

const MAX_HIGH: u64 = MAX + HIGH;
const WANTED_HIGH: u64 = WANTED + HIGH;
const OWNED_HIGH: u64 = OWNED + HIGH;

/// The guest reads what is wanted. That it does so again is no progress.
fn see(inner: &mut Inner) -> u64 {
    let before = inner.state.is_seen();
    let wanted = inner.state.see();
    if inner.state.is_seen() != before {
        inner.since = Instant::now();
    }
    wanted
}

/// The guest says that it owns `bytes`. Whether that makes sense.
fn own(inner: &mut Inner, bytes: u64) -> bool {
    let before = inner.state.owned;
    let makes_sense = inner.state.own(bytes).is_ok();
    if inner.state.owned != before {
        inner.since = Instant::now();
    }
    makes_sense
}

impl BusDevice for HeldRegisters {
    fn read(&mut self, offset: u64, data: &mut [u8]) {
        lock(&self.control.inner).driver = true;
        if let Ok(data) = <&mut [u8; 4]>::try_from(&mut *data) {
            *data = self.read32(offset).to_le_bytes();
        } else if let Ok(data) = <&mut [u8; 8]>::try_from(&mut *data) {
            *data = self.read64(offset).to_le_bytes();
        } else {
            data.fill(0);
        }
    }

    fn write(&mut self, offset: u64, data: &[u8]) -> Option<GuestRequest> {
        let control = Arc::clone(&self.control);
        let complaint = {
            let mut inner = lock(&control.inner);
            inner.driver = true;
            let makes_sense = if let Ok(data) = <[u8; 4]>::try_from(data) {
                self.write32(&mut inner, offset, u32::from_le_bytes(data))
            } else if let Ok(data) = <[u8; 8]>::try_from(data) {
                offset == OWNED && own(&mut inner, u64::from_le_bytes(data))
            } else {
                false
            };
            let complaint = if makes_sense { None } else { control.complaint(&mut inner) };
            inner.report_end();
            complaint
        };
        if let Some(count) = complaint {
            tracing::warn!(count, register = offset, "the guest's writes to the memory device make no sense: ignored");
        }
        // Behind the lock, which the thread takes while it holds that of its orders.
        control.orders.has_more();
        None
    }

    fn save(&mut self) -> Result<Option<DeviceState>, Unsaved> {
        let state = lock(&self.control.inner).state.save();
        let (owned_low, wanted_high) = (self.owned_low, self.wanted_high);
        Ok(Some(DeviceState::Held(HeldState { owned_low, wanted_high, ..state })))
    }

    fn restore(&mut self, state: &DeviceState) -> Result<(), Mismatch> {
        let DeviceState::Held(state) = state else { return Err(Mismatch::Kind) };
        let mut inner = lock(&self.control.inner);
        inner.state.restore(state)?;
        // Whose driver was there is there, and goes on from now.
        inner.driver = state.seen || state.owned > 0;
        inner.since = Instant::now();
        drop(inner);
        (self.owned_low, self.wanted_high) = (state.owned_low, state.wanted_high);
        Ok(())
    }

    fn awake(&mut self) {
        if lock(&self.control.inner).state.event {
            self.control.interrupt();
        }
    }
}
