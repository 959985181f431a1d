// SPDX-License-Identifier: Apache-2.0
//! What the vCPUs' threads have in common.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::devices::Bus;
use crate::ender::Ender;
use crate::ending::Ending;
use crate::memory::GuestMemory;
use crate::observe::counters::Counters;
use crate::sandbox::Jail;
use crate::timeline::Timeline;
use crate::vm::Vm;

/// What every vCPU thread needs.
#[derive(Debug)]
pub struct Shared {
    /// The VM.
    pub vm: Vm,
    /// Its memory.
    pub memory: GuestMemory,
    /// I/O ports.
    pub ports: Bus,
    /// Memory-mapped registers.
    pub mmio: Bus,
    /// Where the end is reported.
    pub ender: Ender,
    /// Where exits are counted.
    pub counters: Arc<Counters>,
    /// What every vCPU's thread enters.
    pub jail: Jail,
    /// Where the boot CPU marks its first run.
    pub timeline: Arc<Timeline>,
    /// Whether the guest has said that its kernel panics.
    pub panicked: AtomicBool,
}

impl Shared {
    /// The guest's kernel panics. It goes on, as it may have more to say; its owner knows for how long.
    pub(super) fn panics(&self) {
        if !self.panicked.swap(true, Ordering::Relaxed) {
            self.ender.end(Ending::Panic);
        }
    }
}
