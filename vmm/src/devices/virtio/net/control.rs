// SPDX-License-Identifier: Apache-2.0
//! The control queue (virtio 1.2, section 5.1.6.5), on which a driver says one thing: how many pairs of queues it uses.

use std::sync::Arc;
use std::time::{Duration, Instant};

use virtio_bindings::virtio_ids::VIRTIO_ID_NET;
use virtio_bindings::virtio_net::{
    VIRTIO_NET_CTRL_MQ, VIRTIO_NET_CTRL_MQ_VQ_PAIRS_SET, VIRTIO_NET_ERR, VIRTIO_NET_F_MQ, VIRTIO_NET_OK,
};

use super::pairs::Pairs;
use crate::devices::virtio::limit::{Limiter, Rate};
use crate::devices::virtio::{ConfigSpace, Ready, Request, VirtioDevice, gather, scatter};
use crate::memory::GuestMemory;
use crate::sandbox::Kind;
use crate::state::LaneState;

/// Room of the queue: a command has three pieces, and Linux waits for the answer to one before the next.
pub(super) const QUEUE_SIZE: u16 = 64;
/// Each pair that comes into use, or out of it, takes the lock that all interfaces of the host have in common.
const CHANGES: Rate = Rate { size: 16, one_time_burst: 0, refill_time: Duration::from_secs(1) };

/// `struct virtio_net_ctrl_hdr`, class and command, and `struct virtio_net_ctrl_mq`.
type Command = [u8; 4];

/// What answers a driver's commands.
#[derive(Debug)]
pub(super) struct Control {
    pairs: Arc<Pairs>,
    /// Who is there, and whether it may use several pairs.
    driver: u32,
    several: bool,
    changes: Limiter,
}

impl Control {
    pub(super) fn new(pairs: Arc<Pairs>) -> Self {
        Self { pairs, driver: 0, several: false, changes: Limiter::new(None, Some(CHANGES)) }
    }

    /// `driver` is there, having accepted `features`.
    pub(super) fn activate(&mut self, driver: u32, features: u64) {
        self.driver = driver;
        self.several = features & (1 << VIRTIO_NET_F_MQ) != 0;
    }

    /// Whether the next command can be looked at.
    pub(super) fn ready(&mut self) -> Ready {
        let wait = self.changes.wait(Instant::now());
        if wait.is_zero() { Ready::Now } else { Ready::In(wait) }
    }

    /// Does the command that `request` is, and answers. How many bytes that took: one.
    pub(super) fn handle(&mut self, memory: &GuestMemory, request: &Request) -> u32 {
        let mut command = Command::default();
        let is_whole = gather(memory, &request.readable, 0, &mut command).is_ok_and(|bytes| bytes == command.len());
        // Nothing is done for whoever does not want to hear of it.
        if request.writable.is_empty() {
            return 0;
        }
        let done = request.is_well_formed() && is_whole && self.obey(command);
        let [answer, ..] = if done { VIRTIO_NET_OK } else { VIRTIO_NET_ERR }.to_le_bytes();
        let written = scatter(memory, &request.writable, 0, &[answer]).unwrap_or(0);
        u32::try_from(written).unwrap_or(0)
    }

    fn obey(&mut self, [class, command, low, high]: Command) -> bool {
        let pairs = u16::from_le_bytes([low, high]);
        let is_known = (u32::from(class), u32::from(command)) == (VIRTIO_NET_CTRL_MQ, VIRTIO_NET_CTRL_MQ_VQ_PAIRS_SET);
        if !is_known || !self.several || !(1..=self.pairs.most()).contains(&pairs) {
            return false;
        }
        let before = self.pairs.used(self.driver);
        (0..pairs.abs_diff(before)).for_each(|_| self.changes.pay(0));
        pairs == before || self.pairs.use_so_many(self.driver, pairs)
    }
}

/// The control queue of a device whose other queues somebody outside serves, as a lane of it.
#[derive(Debug)]
pub(super) struct Lane {
    control: Control,
    space: ConfigSpace,
}

impl Lane {
    pub(super) fn new(pairs: Arc<Pairs>, space: ConfigSpace) -> Self {
        Self { control: Control::new(pairs), space }
    }
}

impl VirtioDevice for Lane {
    fn device_type(&self) -> u32 {
        VIRTIO_ID_NET
    }

    /// The device says.
    fn queue_sizes(&self) -> &[u16] {
        &[]
    }

    fn thread(&self) -> Kind {
        Kind::Vhost
    }

    fn activate(&mut self, features: u64) {
        self.control.activate(self.space.driver(), features);
    }

    fn ready(&mut self, _queue: usize) -> Ready {
        self.control.ready()
    }

    fn handle(&mut self, _queue: usize, memory: &GuestMemory, request: &Request) -> u32 {
        self.control.handle(memory, request)
    }

    /// This thread is the one that knows: what serves frames may have been saved before the last command was done.
    fn save(&mut self) -> Option<LaneState> {
        Some(LaneState::Net { pairs: self.control.pairs.used(self.space.driver()) })
    }

    fn restore(&mut self, state: LaneState) {
        if let LaneState::Net { pairs } = state {
            self.control.pairs.restore(self.space.driver(), pairs);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lane(driver: u32) -> Lane {
        let space = ConfigSpace::from(vec![0; 10]);
        (0..driver).for_each(|_| space.count_reset());
        let mut lane = Lane::new(Arc::new(Pairs::new(vec![None, None])), space);
        lane.activate(1 << VIRTIO_NET_F_MQ);
        lane
    }

    /// What serves the frames may rest before the last command is done.
    #[test]
    fn the_lane_that_is_told_a_number_keeps_it() {
        let [class, command] =
            [VIRTIO_NET_CTRL_MQ, VIRTIO_NET_CTRL_MQ_VQ_PAIRS_SET].map(|code| u8::try_from(code).unwrap());
        let mut saved = lane(1);
        assert!(saved.control.obey([class, command, 3, 0]));
        let state = saved.save().unwrap();
        assert_eq!(state, LaneState::Net { pairs: 3 });
        let mut restored = lane(7);
        restored.restore(state);
        assert_eq!(restored.control.pairs.used(7), 3);
        restored.restore(LaneState::Net { pairs: 9 });
        assert_eq!(restored.control.pairs.used(7), 3, "there are not so many");
    }
}
