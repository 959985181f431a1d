// SPDX-License-Identifier: Apache-2.0
//! What each kind of device counts.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counters with names.
pub trait DeviceCounters: fmt::Debug + Send + Sync {
    /// What they are now.
    fn values(&self) -> BTreeMap<&'static str, u64>;
}

fn add(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}

fn values<const N: usize>(counters: [(&'static str, &AtomicU64); N]) -> BTreeMap<&'static str, u64> {
    counters.map(|(name, counter)| (name, counter.load(Ordering::Relaxed))).into()
}

/// What a disk has done.
#[derive(Debug, Default)]
pub struct DiskCounters {
    /// Bytes that the guest has read.
    pub read_bytes: AtomicU64,
    /// Requests that did so.
    pub read_ops: AtomicU64,
    /// Bytes that it has written.
    pub write_bytes: AtomicU64,
    /// Requests that did so.
    pub write_ops: AtomicU64,
    /// Requests that have failed, the guest's fault or not.
    pub errors: AtomicU64,
    /// Times that the disk's limit made it wait.
    pub throttled: AtomicU64,
}

impl DiskCounters {
    /// `bytes` were read.
    pub fn read(&self, bytes: u64) {
        add(&self.read_bytes, bytes);
        add(&self.read_ops, 1);
    }

    /// `bytes` were written.
    pub fn written(&self, bytes: u64) {
        add(&self.write_bytes, bytes);
        add(&self.write_ops, 1);
    }
}

impl DeviceCounters for DiskCounters {
    fn values(&self) -> BTreeMap<&'static str, u64> {
        values([
            ("read_bytes", &self.read_bytes),
            ("read_ops", &self.read_ops),
            ("write_bytes", &self.write_bytes),
            ("write_ops", &self.write_ops),
            ("errors", &self.errors),
            ("throttled", &self.throttled),
        ])
    }
}

/// What has gone both ways between a guest and others, in pieces.
#[derive(Debug)]
pub struct TrafficCounters {
    /// What pieces for the guest, and those from it, are called.
    names: [&'static str; 2],
    /// Bytes that the guest has received.
    rx_bytes: AtomicU64,
    /// The pieces that they came in.
    rx_pieces: AtomicU64,
    /// Bytes that it has sent.
    tx_bytes: AtomicU64,
    /// Pieces likewise.
    tx_pieces: AtomicU64,
    /// Pieces that are lost or make no sense, in either direction.
    errors: AtomicU64,
    /// Times that a limit made one wait.
    throttled: AtomicU64,
}

impl TrafficCounters {
    /// Those of a network interface.
    #[must_use]
    pub const fn of_frames() -> Self {
        Self::named(["rx_frames", "tx_frames"])
    }

    /// Those of connections: packets of data, and of all that goes with it.
    #[must_use]
    pub const fn of_packets() -> Self {
        Self::named(["rx_packets", "tx_packets"])
    }

    const fn named(names: [&'static str; 2]) -> Self {
        let [rx_bytes, rx_pieces, tx_bytes, tx_pieces, errors, throttled] = [const { AtomicU64::new(0) }; 6];
        Self { names, rx_bytes, rx_pieces, tx_bytes, tx_pieces, errors, throttled }
    }

    /// A piece with so many bytes has gone to the guest.
    pub fn received(&self, bytes: u64) {
        add(&self.rx_bytes, bytes);
        add(&self.rx_pieces, 1);
    }

    /// A piece with so many bytes has come from the guest.
    pub fn sent(&self, bytes: u64) {
        add(&self.tx_bytes, bytes);
        add(&self.tx_pieces, 1);
    }

    /// A piece is lost.
    pub fn lost(&self) {
        add(&self.errors, 1);
    }

    /// A piece has to wait.
    pub fn throttled(&self) {
        add(&self.throttled, 1);
    }
}

impl DeviceCounters for TrafficCounters {
    fn values(&self) -> BTreeMap<&'static str, u64> {
        let [rx_pieces, tx_pieces] = self.names;
        values([
            ("rx_bytes", &self.rx_bytes),
            (rx_pieces, &self.rx_pieces),
            ("tx_bytes", &self.tx_bytes),
            (tx_pieces, &self.tx_pieces),
            ("errors", &self.errors),
            ("throttled", &self.throttled),
        ])
    }
}

/// What has gone into a balloon and out of it, in bytes.
#[derive(Debug, Default)]
pub struct BalloonCounters {
    /// Given up because the guest was asked to.
    inflated: AtomicU64,
    /// Taken back of that.
    deflated: AtomicU64,
    /// Given up because it was free.
    reported: AtomicU64,
    /// Requests, or ranges in them, that make no sense or that the host has failed.
    errors: AtomicU64,
}

impl BalloonCounters {
    /// The guest has given up `bytes`, as it was asked to.
    pub fn inflated(&self, bytes: u64) {
        add(&self.inflated, bytes);
    }

    /// The guest has taken `bytes` back.
    pub fn deflated(&self, bytes: u64) {
        add(&self.deflated, bytes);
    }

    /// The guest has given up `bytes` that are free.
    pub fn reported(&self, bytes: u64) {
        add(&self.reported, bytes);
    }

    /// Something is wrong.
    pub fn wrong(&self) {
        add(&self.errors, 1);
    }
}

impl DeviceCounters for BalloonCounters {
    fn values(&self) -> BTreeMap<&'static str, u64> {
        values([
            ("inflated_bytes", &self.inflated),
            ("deflated_bytes", &self.deflated),
            ("reported_bytes", &self.reported),
            ("errors", &self.errors),
        ])
    }
}

/// What an entropy device has done.
#[derive(Debug, Default)]
pub struct RngCounters {
    /// Random bytes that the guest has been given.
    read_bytes: AtomicU64,
    /// Requests for some.
    read_ops: AtomicU64,
    /// Those of them that got less than they asked for and could have.
    errors: AtomicU64,
    /// How often a limit delayed one.
    throttled: AtomicU64,
}

impl RngCounters {
    /// A request was given `bytes`; `short` if it should have been given more.
    pub fn given(&self, bytes: u64, short: bool) {
        add(&self.read_bytes, bytes);
        add(&self.read_ops, 1);
        add(&self.errors, short.into());
    }

    /// A limit delays a request.
    pub fn throttled(&self) {
        add(&self.throttled, 1);
    }
}

impl DeviceCounters for RngCounters {
    fn values(&self) -> BTreeMap<&'static str, u64> {
        values([
            ("read_bytes", &self.read_bytes),
            ("read_ops", &self.read_ops),
            ("errors", &self.errors),
            ("throttled", &self.throttled),
        ])
    }
}

/// What the serial port has done.
#[derive(Debug, Default)]
pub struct SerialCounters {
    /// Bytes that the guest has written.
    write_bytes: AtomicU64,
    /// Those that a limit, or a file that is full or too slow, has dropped.
    dropped_bytes: AtomicU64,
}

impl SerialCounters {
    /// `bytes` were written.
    pub fn written(&self, bytes: u64) {
        add(&self.write_bytes, bytes);
    }

    /// `bytes` were dropped.
    pub fn dropped(&self, bytes: u64) {
        add(&self.dropped_bytes, bytes);
    }
}

impl DeviceCounters for SerialCounters {
    fn values(&self) -> BTreeMap<&'static str, u64> {
        values([("write_bytes", &self.write_bytes), ("dropped_bytes", &self.dropped_bytes)])
    }
}
