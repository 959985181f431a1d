// SPDX-License-Identifier: Apache-2.0
//! What a VM has done so far, in numbers that any thread can read while others count.
//!
//! Each vCPU and each device counts for itself, so that none waits for another's processor cache. Numbers of one moment need not fit
//! together.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

use super::devices::DeviceCounters;

/// Why a vCPU left the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// It read from an I/O port.
    PortRead,
    /// It wrote to one.
    PortWrite,
    /// It read from where there is no memory.
    MmioRead,
    /// It wrote there.
    MmioWrite,
    /// It was interrupted from outside.
    Interrupted,
    /// Anything else, which mostly is the end.
    Other,
}

impl Exit {
    /// All of them, with their names, in order.
    pub const ALL: [(Self, &'static str); 6] = [
        (Self::PortRead, "port_read"),
        (Self::PortWrite, "port_write"),
        (Self::MmioRead, "mmio_read"),
        (Self::MmioWrite, "mmio_write"),
        (Self::Interrupted, "interrupted"),
        (Self::Other, "other"),
    ];
}

/// Exits of one vCPU. As large as two cache lines, which processors fetch together: another vCPU's are elsewhere.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Exits([AtomicU64; Exit::ALL.len()]);

impl Exits {
    /// There was one more.
    pub fn count(&self, exit: Exit) {
        if let Some(counter) = self.0.get(exit as usize) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// A device's counters, and its name.
pub type Named = (String, Arc<dyn DeviceCounters>);

/// Everything that is counted.
#[derive(Debug)]
pub struct Counters {
    vcpus: Vec<Exits>,
    devices: Vec<Named>,
}

/// The counters at one moment: `{"vcpu": {"port_read": 1, …}, "_disk0": {"read_bytes": 512, …}, "host": {"faults": 7}}`. Disks have
/// Cloud Hypervisor's names unless they were given others, and so have the first four of their counters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Snapshot(BTreeMap<String, BTreeMap<&'static str, u64>>);

impl Counters {
    /// All zero, for so many vCPUs, and for `devices`.
    #[must_use]
    pub fn new(vcpus: u16, devices: Vec<Named>) -> Self {
        Self { vcpus: (0..vcpus).map(|_| Exits::default()).collect(), devices }
    }

    /// vCPU `index` left the guest because of `exit`.
    pub fn exit(&self, index: u16, exit: Exit) {
        if let Some(exits) = self.vcpus.get(usize::from(index)) {
            exits.count(exit);
        }
    }

    /// What they are now; `host_faults` is how many page faults the host has served for this process.
    #[must_use]
    pub fn snapshot(&self, host_faults: u64) -> Snapshot {
        let sum = |exit: Exit| {
            let of_vcpu =
                |exits: &Exits| exits.0.get(exit as usize).map_or(0, |counter| counter.load(Ordering::Relaxed));
            self.vcpus.iter().map(of_vcpu).sum()
        };
        let devices = self.devices.iter().map(|(name, device)| (name.clone(), device.values()));
        let mut all: BTreeMap<_, _> = devices.collect();
        all.insert("vcpu".to_owned(), Exit::ALL.map(|(exit, name)| (name, sum(exit))).into());
        all.insert("host".to_owned(), BTreeMap::from([("faults", host_faults)]));
        Snapshot(all)
    }
}

#[cfg(test)]
mod tests {
    use super::super::devices::DiskCounters;
    use super::*;

    #[test]
    fn what_is_counted_is_shown() {
        let disk = Arc::new(DiskCounters::default());
        let devices: Vec<Named> =
            vec![("_disk0".to_owned(), Arc::new(DiskCounters::default())), ("data".to_owned(), disk.clone())];
        let counters = Counters::new(2, devices);
        for (index, (exit, _)) in Exit::ALL.into_iter().enumerate() {
            assert_eq!(exit as usize, index);
            counters.exit(0, exit);
        }
        counters.exit(1, Exit::MmioWrite);
        counters.exit(2, Exit::MmioWrite);
        disk.read(512);
        disk.written(1024);
        disk.written(512);
        let json = serde_json::to_value(counters.snapshot(7)).unwrap();
        assert_eq!(
            json,
            serde_json::json!({
                "vcpu": {
                    "port_read": 1, "port_write": 1, "mmio_read": 1, "mmio_write": 2, "interrupted": 1, "other": 1
                },
                "host": { "faults": 7 },
                "_disk0": {
                    "read_bytes": 0, "read_ops": 0, "write_bytes": 0, "write_ops": 0, "errors": 0, "throttled": 0
                },
                "data": {
                    "read_bytes": 512, "read_ops": 1, "write_bytes": 1536, "write_ops": 2, "errors": 0, "throttled": 0
                },
            })
        );
    }
}
