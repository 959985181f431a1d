// SPDX-License-Identifier: Apache-2.0
//! The queues between a driver and its device: the one thing that the transport, on vCPU threads, and the worker share.
//!
//! Their lock is held while a ring is looked at, never while a request is done. So a driver that resets the device does not
//! wait for it; it is told that the reset is over once the last request in flight has left guest memory alone.

use std::mem::discriminant;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use virtio_bindings::virtio_ring::{VIRTIO_RING_F_EVENT_IDX, VRING_AVAIL_F_NO_INTERRUPT};
use virtio_queue::{Queue, QueueOwnedT, QueueT};
use vm_memory::{Bytes, GuestAddress, GuestMemoryBackend};
use vmm_sys_util::eventfd::EventFd;

use super::device::{Ready, Token};
use super::interrupt::Interrupt;
use super::outside::{Outside, Ring};
use super::{Request, VirtioDevice};
use crate::devices::bus::lock;
use crate::memory::GuestMemory;
use crate::state::{LaneState, Mismatch, Position, QueueState};

/// After this many requests the queue waits its turn again, so that no guest keeps the worker from what else it is asked.
const REQUESTS_PER_TURN: u32 = 16;
/// Nothing that is held together needs so many.
const LOOKS_PER_TURN: u32 = 1024;
/// After this many bytes likewise.
const BYTES_PER_TURN: u64 = 16 << 20;

/// How long a vCPU waits for queues that are served outside. It takes a part of a millisecond.
const GIVEN_BACK_WITHIN: Duration = Duration::from_secs(1);

/// A queue that the device cannot use: the driver must reset the device.
#[derive(Debug, thiserror::Error)]
enum QueueError {
    #[error("virtqueue {0} is not inside guest memory")]
    Outside(usize),
    #[error("virtqueue {index} is broken")]
    Broken { index: usize, source: virtio_queue::Error },
    #[error("the host's kernel reports a broken virtqueue")]
    Refused,
    #[error("virtqueues cannot be served by the host's kernel")]
    NotTaken(#[source] std::io::Error),
}

/// A queue as the driver described it, not yet believed.
#[derive(Clone, Debug)]
pub(super) struct QueueSetup {
    pub(super) max_size: u16,
    pub(super) size: u16,
    pub(super) ready: bool,
    pub(super) descriptors: u64,
    pub(super) available: u64,
    pub(super) used: u64,
}

impl QueueSetup {
    pub(super) fn new(max_size: u16) -> Self {
        Self { max_size, size: max_size, ready: false, descriptors: 0, available: 0, used: 0 }
    }

    /// With how far the device is with it.
    pub(super) const fn save(&self, position: Option<Position>) -> QueueState {
        let Self { max_size, size, ready, descriptors, available, used } = *self;
        QueueState { max_size, size, ready, descriptors, available, used, position }
    }

    /// One of a device that has room for `max_size` descriptors in it.
    pub(super) fn restored(state: &QueueState, max_size: u16) -> Result<Self, Mismatch> {
        if state.max_size != max_size {
            return Err(Mismatch::of("room of a queue", state.max_size, max_size));
        }
        let QueueState { size, ready, descriptors, available, used, .. } = *state;
        Ok(Self { max_size, size, ready, descriptors, available, used })
    }

    fn build(&self, event_index: bool) -> Result<Queue, virtio_queue::Error> {
        let mut queue = Queue::new(self.max_size)?;
        queue.try_set_size(self.size)?;
        queue.try_set_desc_table_address(GuestAddress(self.descriptors))?;
        queue.try_set_avail_ring_address(GuestAddress(self.available))?;
        queue.try_set_used_ring_address(GuestAddress(self.used))?;
        queue.set_event_idx(event_index);
        queue.set_ready(true);
        Ok(queue)
    }
}

/// A device's queues, or those of one of its lanes. They have the numbers that the driver knows them by.
pub(super) struct Queues {
    own: Range<usize>,
    memory: GuestMemory,
    interrupt: Arc<dyn Interrupt>,
    /// If they are served outside, wakes the worker for what the driver has done.
    outside: Option<EventFd>,
    state: Mutex<State>,
    /// Queues that were lent are back.
    back: Condvar,
}

#[derive(Default)]
struct State {
    /// By queue index; none between reset and activation, and for a queue that the driver does not use.
    live: Vec<Option<Queue>>,
    /// By queue index, how many requests the device has taken off it and not given back; one for a queue that is served outside, or
    /// just about to be. Counted by the worker alone.
    in_flight: Vec<usize>,
    /// What the device has not been told yet, in this order.
    reset: bool,
    activation: Option<u64>,
    restoration: Option<LaneState>,
    /// What the device keeps, as it was when it paused last,
    kept: LaneState,
    /// unless it could not say so then.
    untold: bool,
}

impl Queues {
    /// Those of a device which is served outside have an event that wakes its worker. It keeps what is `kept`.
    pub(super) fn new(
        own: Range<usize>,
        memory: GuestMemory,
        interrupt: Arc<dyn Interrupt>,
        outside: Option<EventFd>,
        kept: LaneState,
    ) -> Self {
        let state = State { in_flight: vec![0; own.end], kept, ..State::default() };
        Self { own, memory, interrupt, outside, state: Mutex::new(state), back: Condvar::new() }
    }

    /// Whether queue `index` is among them.
    pub(super) fn has(&self, index: usize) -> bool {
        self.own.contains(&index)
    }

    // ---- The transport's side -----------------------------------------------------------------------------------

    /// `DRIVER_OK`. A queue that cannot work makes the whole device ask for a reset; other lanes go on until it comes.
    pub(super) fn activate(&self, features: u64, setups: &[QueueSetup]) {
        let event_index = features & (1 << VIRTIO_RING_F_EVENT_IDX) != 0;
        let queues = setups.iter().enumerate().map(|(index, setup)| {
            if !setup.ready || !self.has(index) {
                return Ok(None);
            }
            let queue = setup.build(event_index).map_err(|source| QueueError::Broken { index, source })?;
            if queue.is_valid(&self.memory) { Ok(Some(queue)) } else { Err(QueueError::Outside(index)) }
        });
        let mut state = lock(&self.state);
        match queues.collect() {
            Ok(queues) => {
                state.live = queues;
                state.activation = Some(features);
                self.tell_outside();
            }
            Err(error) => self.fail(&mut state, &error),
        }
    }

    /// The driver resets the device: no request is begun after this returns, none that is in flight completes, and no
    /// interrupt comes. Guest memory is left alone from when [`is_quiet`](Self::is_quiet) says so.
    pub(super) fn reset(&self) {
        let mut state = lock(&self.state);
        state.live.clear();
        (state.activation, state.restoration) = (None, None);
        state.reset = true;
        // Under the lock, or a late failure would mark the fresh device.
        self.interrupt.clear();
        self.tell_outside();
        self.wait_for(state, State::is_quiet);
    }

    /// The same for one queue.
    pub(super) fn stop(&self, index: usize) {
        let mut state = lock(&self.state);
        if let Some(queue) = state.live.get_mut(index) {
            *queue = None;
        }
        self.tell_outside();
        self.wait_for(state, |state| state.is_stopped(index));
    }

    /// How far the device is with queue `index`, while it rests.
    pub(super) fn position(&self, index: usize) -> Option<Position> {
        let state = lock(&self.state);
        let queue = state.live.get(index)?.as_ref()?;
        let outside = match &state.kept {
            LaneState::Vhost { available } => available.get(index).copied(),
            _ => None,
        };
        let available = outside.unwrap_or_else(|| queue.next_avail());
        Some(Position { available, used: queue.next_used() })
    }

    /// What the device keeps besides.
    pub(super) fn kept(&self) -> LaneState {
        lock(&self.state).kept.clone()
    }

    /// Whether it has said so as it paused last.
    pub(super) fn is_told(&self) -> bool {
        !lock(&self.state).untold
    }

    /// The driver was ready, with `features`, and the device as far as `positions` say, by queue; it is told that by `kept`, too.
    /// Without them the device waits for its reset.
    pub(super) fn restore(
        &self,
        features: u64,
        setups: &[QueueSetup],
        positions: &[Option<Position>],
        kept: LaneState,
    ) -> Result<(), Mismatch> {
        if discriminant(&self.kept()) != discriminant(&kept) {
            return Err(Mismatch::Kind);
        }
        let event_index = features & (1 << VIRTIO_RING_F_EVENT_IDX) != 0;
        let mut live = Vec::with_capacity(setups.len());
        for (index, (setup, position)) in setups.iter().zip(positions).enumerate() {
            let Some(position) = position.filter(|_| self.has(index)) else {
                live.push(None);
                continue;
            };
            let queue = setup.build(event_index).ok().filter(|queue| setup.ready && queue.is_valid(&self.memory));
            let wrong = || Mismatch::of("queue", index, "one inside guest memory");
            let mut queue = queue.ok_or_else(wrong)?;
            queue.set_next_avail(position.available);
            queue.set_next_used(position.used);
            live.push(Some(queue));
        }
        let mut state = lock(&self.state);
        (state.live, state.activation) = (live, Some(features));
        (state.restoration, state.kept) = (Some(kept.clone()), kept);
        self.tell_outside();
        Ok(())
    }

    fn tell_outside(&self) {
        if let Some(outside) = &self.outside {
            // A full counter has woken it already.
            let _ = outside.write(1);
        }
    }

    /// Waits until queues that are served outside are back, or some time; for no other ones.
    fn wait_for(&self, state: MutexGuard<'_, State>, holds: impl Fn(&State) -> bool) {
        if self.outside.is_some() {
            let waited = self.back.wait_timeout_while(state, GIVEN_BACK_WITHIN, |state| !holds(state));
            drop(waited.unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// Whether no request is in flight.
    pub(super) fn is_quiet(&self) -> bool {
        lock(&self.state).is_quiet()
    }

    /// Whether no request of queue `index` is in flight.
    pub(super) fn is_stopped(&self, index: usize) -> bool {
        lock(&self.state).is_stopped(index)
    }

    // ---- The worker's side --------------------------------------------------------------------------------------

    /// Gives queue `index` one turn with `device`; says when the next one is to be. `request` lends its buffers.
    pub(super) fn turn(&self, index: usize, device: &mut dyn VirtioDevice, request: &mut Request) -> Next {
        if self.outside.is_some() {
            self.lend(device);
            return Next::WhenNotified;
        }
        self.reap(device);
        self.tell(device);
        let (mut turn, mut full) = (Turn::default(), false);
        self.quieten(index);
        let mut next = loop {
            if turn.is_over() {
                break Next::After(Duration::ZERO);
            }
            // Notifications stay off meanwhile: the queue is looked at without them.
            match device.ready(index) {
                Ready::Now => {}
                Ready::In(wait) => break Next::After(wait),
                Ready::WhenWoken => {
                    full = true;
                    break Next::WhenNotified;
                }
            }
            turn.looks += 1;
            match self.take(index, request) {
                Taken::Request(head) => {
                    turn.bytes += request.bytes();
                    let Some(written) = device.begin(Token { queue: index, head }, &self.memory, request) else {
                        turn.done += 1;
                        continue;
                    };
                    turn.held.push((head, written));
                    if !device.holds() {
                        self.give(index, &mut turn);
                    }
                }
                // An available index that the driver turns back while we look could keep us here: that counts too.
                Taken::Again => turn.done += 1,
                Taken::Untold => break Next::After(Duration::ZERO),
                Taken::Nothing => break Next::WhenNotified,
            }
        };
        if !turn.held.is_empty() {
            let forever = self.put_back(index, turn.held.len());
            device.put_back(forever);
            if forever {
                // It has lost what was too large, and there may be more; the driver has nothing to notify it of.
                next = Next::After(Duration::ZERO);
            }
        }
        if turn.announce {
            self.announce(index);
        }
        // What is over at once may have been what the device had no room for more of.
        if self.reap(device) && full {
            next = Next::After(Duration::ZERO);
        }
        match (device.retry(), next) {
            (Some(wait), Next::WhenNotified) => Next::After(wait),
            (Some(wait), Next::After(other)) => Next::After(wait.min(other)),
            (None, next) => next,
        }
    }

    /// Gives back what `device` has begun and is over by now. Whether there was anything.
    fn reap(&self, device: &mut dyn VirtioDevice) -> bool {
        let (mut any, mut wanted) = (false, None);
        while let Some((Token { queue: index, head }, written)) = device.over(&self.memory) {
            any = true;
            if self.land(index, 1, |queue| give(queue, &self.memory, &[(head, written)])) == Some(true)
                && let Some(other) = wanted.replace(index).filter(|other| *other != index)
            {
                self.announce(other);
            }
        }
        if let Some(index) = wanted {
            self.announce(index);
        }
        any
    }

    /// Gives back what `device` has begun and is over by now. Whether nothing of it is in flight any more; what is served outside it
    /// stops as it pauses.
    pub(super) fn settles(&self, device: &mut dyn VirtioDevice) -> bool {
        if self.outside.is_some() {
            return true;
        }
        self.reap(device);
        self.is_quiet()
    }

    /// `device` rests: it hears all that there is to tell, and says what it keeps.
    pub(super) fn keep(&self, device: &mut dyn VirtioDevice) {
        if self.outside.is_some() {
            self.lend(device);
        } else {
            self.tell(device);
        }
        let kept = device.save();
        let mut state = lock(&self.state);
        state.untold = kept.is_none();
        state.kept = kept.unwrap_or_else(|| std::mem::take(&mut state.kept));
    }

    /// Tells `device` what the driver has done since the last time: once what it did for the driver before is over.
    fn tell(&self, device: &mut dyn VirtioDevice) {
        let (reset, activation, restoration) = {
            let mut state = lock(&self.state);
            if !state.is_quiet() {
                return;
            }
            (std::mem::take(&mut state.reset), state.activation.take(), state.restoration.take())
        };
        if reset {
            device.reset();
        }
        if let Some(features) = activation {
            device.activate(features);
            if let Some(state) = restoration {
                device.restore(state);
            }
        }
    }

    /// Takes back from who serves `device` outside what the driver has taken back, and hands over what it has given.
    fn lend(&self, device: &mut dyn VirtioDevice) {
        let failed = device.outside().is_some_and(Outside::has_failed);
        let (reset, activation, restoration, back, rings) = {
            let mut state = lock(&self.state);
            if failed && !state.reset {
                self.fail(&mut state, &QueueError::Refused);
            }
            let (reset, activation) = (std::mem::take(&mut state.reset), state.activation.take());
            let restoration = state.restoration.take();
            let rings = if activation.is_some() { self.rings(&mut state) } else { Vec::new() };
            let State { live, in_flight, .. } = &mut *state;
            let is_live = |queue: usize| live.get(queue).is_some_and(Option::is_some);
            // A driver that has reset the device cannot be ready again before all of them are back.
            let lent = in_flight.iter().enumerate().filter(|(_, count)| **count > 0).map(|(queue, _)| queue);
            let back: Vec<_> = lent.filter(|queue| !is_live(*queue)).collect();
            for ring in &rings {
                in_flight.iter_mut().skip(ring.queue).take(1).for_each(|count| *count = 1);
            }
            (reset, activation, restoration, back, rings)
        };
        if let Some(outside) = device.outside() {
            for queue in &back {
                outside.give_back(*queue);
            }
        }
        if reset {
            device.reset();
        }
        if let Some(features) = activation {
            device.activate(features);
            if let Some(state) = restoration {
                device.restore(state);
            }
        }
        let taken =
            device.outside().map_or(Ok(()), |outside| if rings.is_empty() { Ok(()) } else { outside.take(&rings) });
        let mut state = lock(&self.state);
        for queue in back {
            state.in_flight.iter_mut().skip(queue).take(1).for_each(|count| *count = 0);
        }
        if let Err(error) = taken {
            tracing::warn!(%error, "the queues of a virtio device cannot be served by the host's kernel");
            state.in_flight.fill(0);
            if !state.reset {
                self.fail(&mut state, &QueueError::NotTaken(error));
            }
        }
        drop(state);
        self.back.notify_all();
    }

    /// The queues of a driver that is ready; none if one of them is not all inside pieces of guest memory: whoever serves them looks
    /// up where a part begins, and no further.
    fn rings(&self, state: &mut State) -> Vec<Ring> {
        let mut rings = Vec::new();
        for (queue, live) in (0..).zip(&state.live) {
            let Some(live) = live else { continue };
            let size = usize::from(live.size());
            let (descriptors, available, used) = (live.desc_table(), live.avail_ring(), live.used_ring());
            // virtio 1.2, section 2.7, with the event indices.
            let parts = [(descriptors, 16 * size), (available, 6 + 2 * size), (used, 6 + 8 * size)];
            if parts.iter().any(|(start, length)| self.memory.get_slice(GuestAddress(*start), *length).is_err()) {
                self.fail(state, &QueueError::Outside(queue));
                return Vec::new();
            }
            let next = live.next_avail();
            rings.push(Ring { queue, size: live.size(), descriptors, available, used, next });
        }
        rings
    }

    /// No notifications while the queue is looked at anyway.
    fn quieten(&self, index: usize) {
        self.with(index, |queue, _| queue.disable_notification(&self.memory));
    }

    /// Takes the next request off queue `index`; it is in flight from here on. None of a driver that the device has not been told
    /// of: it may have become ready since this turn began.
    fn take(&self, index: usize, request: &mut Request) -> Taken {
        let mut state = lock(&self.state);
        if state.activation.is_some() {
            return Taken::Untold;
        }
        let taken = self.act(&mut state, index, |queue, in_flight| {
            let Some(chain) = queue.iter(&self.memory)?.next() else {
                let again = queue.enable_notification(&self.memory)?;
                return Ok(if again { Taken::Again } else { Taken::Nothing });
            };
            let head = chain.head_index();
            request.load(chain, queue.size());
            *in_flight += 1;
            Ok(Taken::Request(head))
        });
        taken.unwrap_or(Taken::Nothing)
    }

    /// The requests that `turn` has held are done, all at once. If the driver has taken the queue back meanwhile, nobody is told.
    fn give(&self, index: usize, turn: &mut Turn) {
        let asked = self.land(index, turn.held.len(), |queue| give(queue, &self.memory, &turn.held));
        turn.announce |= asked.unwrap_or(false);
        turn.done += 1;
        turn.held.clear();
    }

    /// Interrupts the driver, unless it has taken queue `index` back.
    fn announce(&self, index: usize) {
        self.with(index, |_, _| {
            self.interrupt.used();
            Ok(())
        });
    }

    /// The last `count` requests of queue `index` are not done, and will be taken again. Whether there cannot be more of them.
    fn put_back(&self, index: usize, count: usize) -> bool {
        let full = self.land(index, count, |queue| {
            (0..count).for_each(|_| queue.go_to_previous_position());
            Ok(count >= usize::from(queue.size()))
        });
        full.unwrap_or(false)
    }

    /// The last of `count` requests of queue `index` has left guest memory alone. What is to be done with that queue then, if it
    /// is still there, is under the same lock.
    fn land<T>(
        &self,
        index: usize,
        count: usize,
        action: impl FnOnce(&mut Queue) -> Result<T, virtio_queue::Error>,
    ) -> Option<T> {
        let mut state = lock(&self.state);
        if let Some(in_flight) = state.in_flight.get_mut(index) {
            *in_flight = in_flight.saturating_sub(count);
        }
        self.act(&mut state, index, |queue, _| action(queue))
    }

    /// Does something with queue `index`, if there is one, and with what is in flight of it.
    fn with<T>(
        &self,
        index: usize,
        action: impl FnOnce(&mut Queue, &mut usize) -> Result<T, virtio_queue::Error>,
    ) -> Option<T> {
        self.act(&mut lock(&self.state), index, action)
    }

    /// The same. A queue that breaks takes the device with it, under the same lock: the queues of a driver that has reset the device
    /// meanwhile are other ones.
    fn act<T>(
        &self,
        state: &mut State,
        index: usize,
        action: impl FnOnce(&mut Queue, &mut usize) -> Result<T, virtio_queue::Error>,
    ) -> Option<T> {
        let State { live, in_flight, .. } = state;
        let (Some(Some(queue)), Some(in_flight)) = (live.get_mut(index), in_flight.get_mut(index)) else { return None };
        match action(queue, in_flight) {
            Ok(value) => Some(value),
            Err(source) => {
                self.fail(state, &QueueError::Broken { index, source });
                None
            }
        }
    }

    fn fail(&self, state: &mut State, error: &QueueError) {
        tracing::debug!(error = error as &dyn std::error::Error, "virtio device needs a reset");
        state.live.clear();
        self.interrupt.needs_reset();
    }
}

impl State {
    fn is_quiet(&self) -> bool {
        self.in_flight.iter().all(|count| *count == 0)
    }

    fn is_stopped(&self, index: usize) -> bool {
        self.in_flight.get(index).is_none_or(|count| *count == 0)
    }
}

/// How far a turn is.
#[derive(Default)]
struct Turn {
    looks: u32,
    /// Requests that it has begun, those that are held together counted as one.
    done: u32,
    bytes: u64,
    /// Requests that are done, which the driver has not been told: first descriptor and bytes written.
    held: Vec<(u16, u32)>,
    /// The driver wants to be interrupted for some of those that it has been told.
    announce: bool,
}

impl Turn {
    /// Whether it is somebody else's. What is held together is not cut: a queue has only so many requests for it.
    fn is_over(&self) -> bool {
        self.held.is_empty() && (self.done >= REQUESTS_PER_TURN || self.bytes >= BYTES_PER_TURN)
            || self.looks > LOOKS_PER_TURN
    }
}

/// Puts `done` into the used ring, where the driver sees all of it or nothing. Whether it wants an interrupt for that.
fn give(queue: &mut Queue, memory: &GuestMemory, done: &[(u16, u32)]) -> Result<bool, virtio_queue::Error> {
    let Some((&(last, written), others)) = done.split_last() else { return Ok(false) };
    let before = queue.next_used();
    let first = usize::from(before % queue.size());
    let (to_the_end, from_the_start) = others.split_at(others.len().min(usize::from(queue.size()) - first));
    for (at, part) in [(first, to_the_end), (0, from_the_start)] {
        // `struct virtq_used` begins with flags and index; elements are head and length (virtio 1.2, section 2.7.8).
        let address = queue.used_ring().checked_add(4 + 8 * at as u64).ok_or(virtio_queue::Error::AddressOverflow)?;
        let element = |&(head, written): &(u16, u32)| (u64::from(head) | u64::from(written) << 32).to_le_bytes();
        let elements: Vec<u8> = part.iter().flat_map(element).collect();
        memory.write_slice(&elements, GuestAddress(address)).map_err(virtio_queue::Error::GuestMemory)?;
    }
    // A queue holds fewer requests than there are positions.
    queue.set_next_used(before.wrapping_add(u16::try_from(others.len()).unwrap_or(0)));
    // Which writes the index, behind all elements.
    queue.add_used(memory, last, written)?;
    let last_is_wanted = queue.needs_notification(memory)?;
    if !queue.event_idx_enabled() {
        // Of which the crate knows nothing; it has put a barrier before this (virtio 1.2, section 2.7.7.2).
        let flags = memory.read_obj(GuestAddress(queue.avail_ring())).map_err(virtio_queue::Error::GuestMemory)?;
        return Ok(u32::from(u16::from_le(flags)) & VRING_AVAIL_F_NO_INTERRUPT == 0);
    }
    if last_is_wanted || others.is_empty() {
        return Ok(last_is_wanted);
    }
    // The crate has counted the last one alone. `used_event` is behind flags, index and elements of the available ring.
    let offset = 4 + 2 * u64::from(queue.size());
    let address = queue.avail_ring().checked_add(offset).ok_or(virtio_queue::Error::AddressOverflow)?;
    let used_event = u16::from_le(memory.read_obj(GuestAddress(address)).map_err(virtio_queue::Error::GuestMemory)?);
    Ok(is_wanted(used_event, before, queue.next_used()))
}

/// Whether a driver that wants to hear of the element `event` hears of it, once those from `old` up to `new` are used: what
/// virtio 1.2, section 2.7.7.1 asks for, and Linux's `vring_need_event()`.
const fn is_wanted(event: u16, old: u16, new: u16) -> bool {
    new.wrapping_sub(event).wrapping_sub(1) < new.wrapping_sub(old)
}

/// When a queue is to have its next turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// When the driver says so.
    WhenNotified,
    /// Requests may be left; in so long.
    After(Duration),
}

/// What a look at a queue gives.
enum Taken {
    /// A request, with the index of its first descriptor.
    Request(u16),
    /// One came while notifications were being switched on.
    Again,
    /// The device does not know of its driver yet.
    Untold,
    /// None, or no queue.
    Nothing,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_hears_of_the_element_that_it_waits_for() {
        for (event, old, new, expected) in [
            (5, 3, 6, true),
            (5, 3, 5, false),
            (5, 5, 6, true),
            (5, 6, 9, false),
            (2, 3, 6, false),
            (u16::MAX, 65_530, 2, true),
            (3, 65_530, 2, false),
        ] {
            assert_eq!(is_wanted(event, old, new), expected, "{event}: {old} to {new}");
        }
    }
}
