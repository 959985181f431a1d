// SPDX-License-Identifier: Apache-2.0
//! An owner of a VM that is never started: for clients made of bytes, which must get no KVM and no files.

use super::{Message, Vmm, VmmError};
use crate::vmm::Call;

impl Vmm {
    /// Answers all that has been asked so far, and refuses what opens files. Whether there was anything.
    pub(crate) fn answer_asked(&mut self) -> bool {
        let mut any = false;
        while let Ok(message) = self.messages.try_recv() {
            let Message::Call(call, reply) = message else { continue };
            any = true;
            let call = match call {
                Call::Resize(sizes) => {
                    self.resize(sizes, reply);
                    continue;
                }
                call => call,
            };
            reply.send(match call {
                Call::Boot(_) | Call::Snapshot(_) | Call::Restore(_) => {
                    Err(VmmError::Refused("nothing is started here".to_owned()))
                }
                call => self.answer(call),
            });
        }
        any
    }
}
