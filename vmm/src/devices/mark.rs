// SPDX-License-Identifier: Apache-2.0
//! The mark port: the guest's firmware, kernel and init say how far they are, one byte each.

use std::fmt;

use flatboot_handoff::marks::{self, Origin};

use super::bus::{BusDevice, GuestRequest};

/// I/O port 0x80. Every byte goes to the sink, on the vCPU thread that wrote it, before that vCPU goes on.
pub struct MarkPort {
    sink: Box<dyn FnMut(u8) + Send>,
    /// Whether the guest starts with firmware, and nothing else has taken over.
    firmware: bool,
    /// Whether it has said that it is the one which knows these marks: then its word counts.
    known: bool,
    /// Whether it has complained.
    warned: bool,
}

impl fmt::Debug for MarkPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MarkPort").field("firmware", &self.firmware).finish_non_exhaustive()
    }
}

impl MarkPort {
    /// `sink` gets each mark. It takes the time itself, first of all, and must be quick. `firmware` says whether the guest starts
    /// with firmware, which can end the VM by a mark once it has said by one that it has begun, and until something else has
    /// taken over. Others cannot: firmware writes how far it is to this port, and kernels any byte, for delays. One that panics says
    /// so by pvpanic; the mark then says that it has said why.
    #[must_use]
    pub fn new(firmware: bool, sink: Box<dyn FnMut(u8) + Send>) -> Self {
        Self { sink, firmware, known: false, warned: false }
    }
}

impl BusDevice for MarkPort {
    fn read(&mut self, _offset: u64, data: &mut [u8]) {
        data.fill(0xff);
    }

    fn write(&mut self, offset: u64, data: &[u8]) -> Option<GuestRequest> {
        let code = *data.first().filter(|_| offset == 0)?;
        (self.sink)(code);
        if code == marks::FIRMWARE_END || Origin::of(code) != Origin::Firmware {
            self.firmware = false;
        }
        self.known = self.firmware && (self.known || code == marks::FIRMWARE_ENTRY);
        if self.known && code == marks::FIRMWARE_PLAN_INVALID && !std::mem::replace(&mut self.warned, true) {
            tracing::warn!("firmware ignores the memory hand-off: it breaks a rule");
        }
        match code {
            marks::FIRMWARE_NO_LOADER if self.known => Some(GuestRequest::NoLoader),
            marks::FIRMWARE_FAILED if self.known => Some(GuestRequest::FirmwareFailed),
            marks::PANIC => Some(GuestRequest::PanicSaid),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use proptest::prelude::*;

    use super::*;
    use crate::devices::testing::{Access, accesses, apply};

    /// What a port that has got `before` answers to `code`.
    fn after(firmware: bool, before: &[u8], code: u8) -> Option<GuestRequest> {
        let mut port = MarkPort::new(firmware, Box::new(drop));
        for code in before {
            assert_eq!(port.write(0, &[*code]), None);
        }
        port.write(0, &[code])
    }

    #[test]
    fn firmware_ends_the_vm_until_something_else_runs() {
        for (code, request) in [
            (marks::FIRMWARE_NO_LOADER, GuestRequest::NoLoader),
            (marks::FIRMWARE_FAILED, GuestRequest::FirmwareFailed),
        ] {
            let entry = marks::FIRMWARE_ENTRY;
            for before in [&[entry][..], &[entry, marks::FIRMWARE_LOADER, marks::FIRMWARE_PLAN_INVALID]] {
                assert_eq!(after(true, before, code), Some(request));
                assert_eq!(after(false, before, code), None, "without firmware");
            }
            assert_eq!(after(true, &[], code), None, "of firmware that has its own marks");
            assert_eq!(after(true, &[marks::FIRMWARE_LOADER], code), None, "of firmware that has its own marks");
            for other in [marks::FIRMWARE_END, marks::KERNEL_ENTRY, marks::INIT_EXEC, 0x20, 0x80, 0xff] {
                assert_eq!(after(true, &[entry, other], code), None, "after {other:#x}");
            }
        }
    }

    proptest! {
        #[test]
        fn every_byte_at_the_port_is_a_mark(accesses in accesses(2)) {
            let (sender, marks) = mpsc::channel();
            let mut port = MarkPort::new(false, Box::new(move |code| sender.send(code).unwrap()));
            for access in accesses {
                let code = match &access {
                    Access::Write { offset: 0, data } => data.first().copied(),
                    _ => None,
                };
                // Kernels that know no marks write any byte here, to wait a moment: none of it ends a VM whose kernel has not panicked.
                let said = (code == Some(marks::PANIC)).then_some(GuestRequest::PanicSaid);
                prop_assert_eq!(apply(&mut port, &access), said);
                prop_assert_eq!(marks.try_recv().ok(), code);
            }
        }
    }
}
