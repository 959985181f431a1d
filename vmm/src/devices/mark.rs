// SPDX-License-Identifier: Apache-2.0
//! The mark port: the guest's firmware, kernel and init say how far they are, one byte each.

use std::fmt;

use flatboot_handoff::marks;

use super::bus::{BusDevice, GuestRequest};

/// I/O port 0x80. Every byte goes to the sink, on the vCPU thread that wrote it, before that vCPU goes on.
pub struct MarkPort {
    sink: Box<dyn FnMut(u8) + Send>,
}

impl fmt::Debug for MarkPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MarkPort").finish_non_exhaustive()
    }
}

impl MarkPort {
    /// `sink` gets each mark. It takes the time itself, first of all, and must be quick.
    #[must_use]
    pub fn new(sink: Box<dyn FnMut(u8) + Send>) -> Self {
        Self { sink }
    }
}

impl BusDevice for MarkPort {
    fn read(&mut self, _offset: u64, data: &mut [u8]) {
        data.fill(0xff);
    }

    fn write(&mut self, offset: u64, data: &[u8]) -> Option<GuestRequest> {
        let code = *data.first().filter(|_| offset == 0)?;
        (self.sink)(code);
        (code == marks::PANIC).then_some(GuestRequest::Panic)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use proptest::prelude::*;

    use super::*;
    use crate::devices::testing::{Access, accesses, apply};

    proptest! {
        #[test]
        fn every_byte_at_the_port_is_a_mark(accesses in accesses(2)) {
            let (sender, marks) = mpsc::channel();
            let mut port = MarkPort::new(Box::new(move |code| sender.send(code).unwrap()));
            for access in accesses {
                let code = match &access {
                    Access::Write { offset: 0, data } => data.first().copied(),
                    _ => None,
                };
                let panic = code == Some(0x5f);
                prop_assert_eq!(apply(&mut port, &access), panic.then_some(GuestRequest::Panic));
                prop_assert_eq!(marks.try_recv().ok(), code);
            }
        }
    }
}
