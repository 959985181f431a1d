// SPDX-License-Identifier: Apache-2.0
//! vCPU threads: all of them start at once and early, do useful work, then run the guest.
//!
//! A thread makes its vCPU, says so, backs its share of the memory that the guest touches first, and waits until the boot
//! CPU may start. The boot CPU does. Secondary vCPUs back some of what it will touch next, enter `KVM_RUN` and
//! wait there, in the kernel, for their start-up IPI.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::{iter, thread};

use kvm_ioctls::{VcpuExit, VcpuFd};

use crate::devices::Bus;
use crate::ending::{Ending, EndingSink, PanicGuard};
use crate::memory::{GpaRange, GuestMemory, guest};
use crate::timeline::Timeline;
use crate::vm::{self, Start, Vm, VmError};

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
    pub sink: EndingSink,
    /// Where the boot CPU marks its first run.
    pub timeline: Arc<Timeline>,
}

/// Why the vCPUs did not come up.
#[derive(Debug, thiserror::Error)]
pub enum VcpuError {
    /// The host has no room for another thread.
    #[error("vCPU {index}: its thread cannot be started")]
    Thread {
        /// Index of the vCPU.
        index: u8,
        /// Why.
        source: io::Error,
    },
    /// KVM refused.
    #[error("vCPU {index}")]
    Create {
        /// Index of the vCPU.
        index: u8,
        /// Why.
        source: VmError,
    },
    /// A thread ended before it reported.
    #[error("a vCPU thread ended without a word")]
    Lost,
}

/// The running threads, all waiting for the boot CPU's start.
#[derive(Debug)]
pub struct Waiting {
    vcpus: u8,
    ready: Receiver<Result<(), VcpuError>>,
    starts: Vec<Sender<Start>>,
}

/// Starts a thread for each of `count` vCPUs. Together they back `early`. When the boot CPU starts, the others
/// back `ahead`, and only then wait for theirs.
pub fn start(shared: &Arc<Shared>, count: u8, early: &[GpaRange], ahead: &[GpaRange]) -> Result<Waiting, VcpuError> {
    let backing = shares(early, count);
    // Nothing for the boot CPU.
    let ahead = iter::once(Vec::new()).chain(shares(ahead, count.saturating_sub(1)));
    let (ready_tx, ready) = channel();
    let mut starts = Vec::new();
    let busy = Arc::new(AtomicUsize::new(backing.iter().filter(|share| !share.is_empty()).count()));
    let mut vcpus = 0;
    for (index, (share, ahead)) in (0u8..).zip(backing.into_iter().zip(ahead)) {
        let (start_tx, start) = channel();
        starts.push(start_tx);
        let worker = Worker {
            index,
            shared: Arc::clone(shared),
            share,
            ahead,
            busy: Arc::clone(&busy),
            ready: ready_tx.clone(),
            start,
        };
        thread::Builder::new()
            .name(format!("vcpu{index}"))
            .spawn(move || worker.run())
            .map_err(|source| VcpuError::Thread { index, source })?;
        vcpus = index + 1;
    }
    Ok(Waiting { vcpus, ready, starts })
}

impl Waiting {
    /// Waits until every vCPU exists.
    pub fn until_ready(&mut self) -> Result<(), VcpuError> {
        for _ in 0..std::mem::take(&mut self.vcpus) {
            self.ready.recv().map_err(|_| VcpuError::Lost)??;
        }
        Ok(())
    }

    /// The same, since the guest may send IPIs to any of them, then lets the boot CPU `start`.
    pub fn release(mut self, start: Start) -> Result<(), VcpuError> {
        self.until_ready()?;
        // The boot CPU's thread comes first here, too.
        self.starts.iter().try_for_each(|vcpu| vcpu.send(start)).map_err(|_| VcpuError::Lost)
    }
}

struct Worker {
    index: u8,
    shared: Arc<Shared>,
    share: Vec<GpaRange>,
    ahead: Vec<GpaRange>,
    /// How many threads still have a share to back.
    busy: Arc<AtomicUsize>,
    ready: Sender<Result<(), VcpuError>>,
    start: Receiver<Start>,
}

impl Worker {
    fn run(self) {
        let index = self.index;
        let _guard = PanicGuard::new(&self.shared.sink, format!("vCPU {index}"));
        let created = self.shared.vm.create_vcpu(index).map_err(|source| VcpuError::Create { index, source });
        let mut vcpu = match created {
            Ok(vcpu) => vcpu,
            Err(error) => return drop(self.ready.send(Err(error))),
        };
        // The receiver is gone when another vCPU has failed; then there is nothing to run.
        if self.ready.send(Ok(())).is_err() {
            return;
        }
        self.back_share();
        let Ok(start) = self.start.recv() else { return };
        self.back(&self.ahead);
        if index == 0 {
            if let Err(error) = vm::set_start(&vcpu, start) {
                return self.shared.sink.end(Ending::Kvm { vcpu: index, what: error.to_string() });
            }
            self.shared.timeline.phase("first KVM_RUN");
        }
        let ending = loop {
            if let Some(ending) = step(&mut vcpu, index, &self.shared) {
                break ending;
            }
        };
        self.shared.sink.end(ending);
    }
}

impl Worker {
    /// Backs this thread's share; the last one that had any marks the end.
    fn back_share(&self) {
        if self.share.is_empty() {
            return;
        }
        self.back(&self.share);
        if self.busy.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.shared.timeline.phase("early memory backed");
        }
    }

    fn back(&self, ranges: &[GpaRange]) {
        for &range in ranges {
            if let Err(error) = guest::populate(&self.shared.memory, range) {
                tracing::warn!(vcpu = self.index, %range, %error, "memory is backed on first touch instead");
            }
        }
    }
}

/// One `KVM_RUN` and what it asks for; an [`Ending`] when the vCPU must not run again.
fn step(vcpu: &mut VcpuFd, index: u8, shared: &Shared) -> Option<Ending> {
    let over = |what: String| Some(Ending::Kvm { vcpu: index, what });
    match vcpu.run() {
        Ok(VcpuExit::IoIn(port, data)) => {
            shared.ports.read(u64::from(port), data);
            None
        }
        Ok(VcpuExit::IoOut(port, data)) => shared.ports.write(u64::from(port), data).map(Ending::from),
        Ok(VcpuExit::MmioRead(address, data)) => {
            shared.mmio.read(address, data);
            None
        }
        Ok(VcpuExit::MmioWrite(address, data)) => shared.mmio.write(address, data).map(Ending::from),
        Ok(VcpuExit::Shutdown) => Some(Ending::TripleFault { vcpu: index }),
        Ok(VcpuExit::InternalError) => {
            over("internal error, as for an instruction that it cannot emulate; see `flatboot check`".to_owned())
        }
        Ok(VcpuExit::FailEntry(reason, cpu)) => {
            over(format!("hardware refused entry, reason {reason:#x} on CPU {cpu}"))
        }
        Ok(VcpuExit::Intr | VcpuExit::IrqWindowOpen) => None,
        Ok(other) => over(format!("unexpected exit {other:?}")),
        Err(error) => match error.errno() {
            // EAGAIN: a waiting vCPU was sent its INIT; the next KVM_RUN goes on from there.
            libc::EINTR | libc::EAGAIN => None,
            libc::EFAULT | libc::ENOMEM => over("the host could not back a page of guest memory".to_owned()),
            _ => over(error.to_string()),
        },
    }
}

/// Splits `ranges` into `count` shares of about equal size, cut at huge-page boundaries: no two threads back one huge page.
fn shares(ranges: &[GpaRange], count: u8) -> Vec<Vec<GpaRange>> {
    let total: u64 = ranges.iter().map(|range| range.length()).sum();
    let quota = total.div_ceil(u64::from(count.max(1))).next_multiple_of(guest::HUGE_PAGE).max(guest::HUGE_PAGE);
    let mut out = vec![Vec::new(); usize::from(count)];
    let (mut worker, mut room) = (0, quota);
    for range in ranges {
        let mut start = range.start();
        while start < range.end() {
            let end = range.end().min((start + room).next_multiple_of(guest::HUGE_PAGE));
            if let Some(share) = out.get_mut(worker) {
                share.push(GpaRange::new(start, end));
            }
            room = room.saturating_sub(end - start);
            start = end;
            if room == 0 {
                (worker, room) = (worker + 1, quota);
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn shares_cover_everything_once(
            sizes in proptest::collection::vec(1u64..64, 0..8),
            count in 1u8..=255,
        ) {
            let mut at = 0;
            let ranges: Vec<_> = sizes.iter().map(|pages| {
                let range = GpaRange::of(at, pages * 0x10_0000);
                    at = range.end() + 0x20_0000;
                range
            }).collect();
            let shares = shares(&ranges, count);
            prop_assert_eq!(shares.len(), usize::from(count));
            let mut all: Vec<_> = shares.into_iter().flatten().collect();
            all.sort_by_key(|range| range.start());
            let mut merged: Vec<GpaRange> = Vec::new();
            for range in all {
                match merged.last_mut() {
                    Some(last) if last.end() == range.start() => {
                        prop_assert!(range.start().is_multiple_of(guest::HUGE_PAGE), "a huge page is cut");
                        *last = GpaRange::new(last.start(), range.end());
                    }
                    _ => merged.push(range),
                }
            }
            prop_assert_eq!(merged, ranges);
        }
    }
}
