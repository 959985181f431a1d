// SPDX-License-Identifier: Apache-2.0
//! A device whose queues somebody else serves: what is handed over, and taken back.

use std::io;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use proptest::prelude::*;
use vm_memory::{Address, GuestAddress, GuestMemoryBackend, GuestMemoryRegion};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

use super::driver::{Driver, MEMORY_SIZE, QUEUE_SIZE};
use crate::devices::bus::{BusDevice, Unsaved, lock};
use crate::devices::virtio::outside::{Outside, Ring};
use crate::devices::virtio::{Lane, Ready, Request, Source, VirtioDevice, VirtioMmio};
use crate::memory::GuestMemory;
use crate::state::{DeviceState, LaneState};

/// What has come to the one who serves.
#[derive(Debug, Default)]
struct Seen {
    doorbells: Vec<EventFd>,
    interrupt: Option<EventFd>,
    /// Has been served, is served no more, was reset.
    steps: Vec<Step>,
    refuses: bool,
    /// How long it takes to give a queue back.
    slow: Duration,
    /// It does not say how far it is.
    silent: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Took(Vec<Ring>),
    GaveBack(usize),
    Reset,
}

struct Served {
    seen: Arc<Mutex<Seen>>,
    fault: EventFd,
    /// Its last queue is served here, beside it.
    shares: bool,
}

/// What serves that queue: every request is done.
struct Beside;

impl VirtioDevice for Beside {
    fn device_type(&self) -> u32 {
        1
    }

    fn queue_sizes(&self) -> &[u16] {
        &[]
    }

    fn handle(&mut self, queue: usize, _memory: &GuestMemory, _request: &Request) -> u32 {
        u32::try_from(queue).unwrap()
    }
}

impl VirtioDevice for Served {
    fn device_type(&self) -> u32 {
        1
    }

    fn queue_sizes(&self) -> &[u16] {
        &[QUEUE_SIZE, QUEUE_SIZE]
    }

    fn lanes(&mut self) -> Vec<Lane> {
        self.shares.then(|| Lane { queues: 1, device: Box::new(Beside) }).into_iter().collect()
    }

    fn outside(&mut self) -> Option<&mut dyn Outside> {
        Some(self)
    }

    fn sources(&self) -> Vec<Source> {
        vec![Source::readable(self.fault.as_raw_fd(), 0)]
    }

    fn ready(&mut self, _queue: usize) -> Ready {
        panic!("nobody here serves a queue");
    }

    fn handle(&mut self, _queue: usize, _memory: &GuestMemory, _request: &Request) -> u32 {
        panic!("nobody here serves a queue");
    }

    fn save(&mut self) -> Option<LaneState> {
        (!lock(&self.seen).silent).then_some(LaneState::Vhost { available: vec![7, 9] })
    }

    fn reset(&mut self) {
        let steps = &mut lock(&self.seen).steps;
        // However many.
        if steps.last() != Some(&Step::Reset) {
            steps.push(Step::Reset);
        }
    }
}

impl Outside for Served {
    fn connect(&mut self, doorbells: &[EventFd], interrupt: &EventFd) -> io::Result<()> {
        let mut seen = lock(&self.seen);
        seen.doorbells = doorbells.iter().map(EventFd::try_clone).collect::<Result<_, _>>()?;
        seen.interrupt = Some(interrupt.try_clone()?);
        Ok(())
    }

    fn take(&mut self, rings: &[Ring]) -> io::Result<()> {
        let mut seen = lock(&self.seen);
        if seen.refuses {
            return Err(io::ErrorKind::Unsupported.into());
        }
        seen.steps.push(Step::Took(rings.to_vec()));
        Ok(())
    }

    fn give_back(&mut self, queue: usize) {
        let slow = lock(&self.seen).slow;
        std::thread::sleep(slow);
        lock(&self.seen).steps.push(Step::GaveBack(queue));
    }

    fn has_failed(&mut self) -> bool {
        self.fault.read().is_ok()
    }
}

/// A device, what it sees, and what says that a queue is broken.
fn served() -> (Box<Served>, Arc<Mutex<Seen>>, EventFd) {
    let (seen, fault) = (Arc::<Mutex<Seen>>::default(), EventFd::new(EFD_NONBLOCK).unwrap());
    let device = Served { seen: Arc::clone(&seen), fault: fault.try_clone().unwrap(), shares: false };
    (Box::new(device), seen, fault)
}

fn steps(seen: &Mutex<Seen>) -> Vec<Step> {
    std::mem::take(&mut lock(seen).steps)
}

/// All queues that were handed over.
fn took(seen: &Mutex<Seen>) -> Vec<Ring> {
    let rings = |step| if let Step::Took(rings) = step { rings } else { Vec::new() };
    steps(seen).into_iter().flat_map(rings).collect()
}

fn ring(queue: usize) -> Ring {
    Ring { queue, size: QUEUE_SIZE, descriptors: 0x1000, available: 0x4000, used: 0x6000, next: 0 }
}

fn wait(holds: impl Fn() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < Duration::from_secs(20), "nobody does it");
        std::thread::yield_now();
    }
}

#[test]
fn queues_are_handed_over_and_back() {
    let (device, seen, _fault) = served();
    let mut driver = Driver::running(device, 0);
    let _running = driver.start_worker();
    wait(|| lock(&seen).steps.len() == 2);
    assert_eq!(steps(&seen), [Step::Reset, Step::Took(vec![ring(0)])]);
    // The driver rings those who serve, and is interrupted by them.
    driver.set(0x50, 0);
    assert_eq!(lock(&seen).doorbells[0].read().unwrap(), 1);
    lock(&seen).interrupt.as_ref().unwrap().write(1).unwrap();
    assert_eq!(driver.irq.read().unwrap(), 1);
    assert_eq!(driver.get(0x60), 1, "so it looks at its queues");
    driver.set(0x64, 1);
    assert_eq!(driver.get(0x60), 1, "each time");
    assert!(driver.transport.ignores_acknowledgements(), "so nobody needs to hear that it has");

    lock(&seen).slow = Duration::from_millis(50);
    driver.set(0x70, 0);
    assert_eq!([0x70, 0x60].map(|register| driver.get(register)), [0, 0], "it was waited for");
    driver.start(0);
    wait(|| lock(&seen).steps.len() == 3);
    assert_eq!(steps(&seen), [Step::GaveBack(0), Step::Reset, Step::Took(vec![ring(0)])]);

    // One queue alone.
    driver.set(0x44, 0);
    assert_eq!((steps(&seen), driver.get(0x44)), (vec![Step::GaveBack(0)], 0));
    driver.set(0x70, 0);
    wait(|| lock(&seen).steps == [Step::Reset]);
}

/// Another VM would begin with the ring anew, and the driver would wait for ever.
#[test]
fn who_does_not_say_how_far_it_is_is_not_saved() {
    let paused = |silent| {
        let (device, seen, _fault) = served();
        let mut driver = Driver::running(device, 0);
        let running = driver.start_worker();
        lock(&seen).silent = silent;
        running.ask_to_pause();
        running.await_pause(Duration::from_secs(20)).unwrap();
        driver.transport.save()
    };
    assert_eq!(paused(true), Err(Unsaved::Untold));
    let Ok(Some(DeviceState::Virtio(state))) = paused(false) else { panic!("it says so") };
    assert_eq!(state.queues[0].position.map(|position| position.available), Some(7));
}

/// A queue that is served here, of a device whose others are not.
#[test]
fn a_lane_beside_serves_its_own_queue() {
    let (mut device, seen, _fault) = served();
    device.shares = true;
    let mut driver = Driver::running_on(1, device, 0);
    assert_eq!(driver.request(&[(0x1_0000, 16, true)]), 1, "the queue's number");
    assert_eq!(driver.get(0x60) & 1, 1);
    assert_eq!((took(&seen), lock(&seen).doorbells.len()), (vec![], 2));
    driver.set(0x70, 0);
    assert_eq!(driver.get(0x70), 0);
    // The other one, as ever.
    driver.select(0);
    driver.start(0);
    driver.serve();
    assert_eq!(took(&seen), [ring(0)]);
}

#[test]
fn a_reset_is_over_when_all_is_back() {
    let (device, seen, _fault) = served();
    let mut driver = Driver::running(device, 0);
    assert!(driver.serve());
    let begin = Instant::now();
    driver.set(0x70, 0);
    assert!(begin.elapsed() < Duration::from_secs(10), "a vCPU waits for nobody for ever");
    assert_eq!([0x70, 0x44].map(|register| driver.get(register)), [3, 1], "features are refused");
    driver.set(0x70, 1);
    assert_eq!(driver.get(0x70), 3, "and nothing counts");
    assert!(driver.serve());
    assert_eq!(driver.get(0x70), 0);
    assert_eq!(steps(&seen), [Step::Reset, Step::Took(vec![ring(0)]), Step::GaveBack(0), Step::Reset]);
}

#[test]
fn what_is_broken_is_taken_back_and_said() {
    let (device, seen, fault) = served();
    let mut driver = Driver::running(device, 0);
    let _running = driver.start_worker();
    wait(|| lock(&seen).steps.len() == 2);
    assert!(!driver.needs_reset());
    fault.write(1).unwrap();
    wait(|| lock(&seen).steps.len() == 3);
    assert_eq!(steps(&seen)[2], Step::GaveBack(0));
    assert!(driver.needs_reset());
    assert_eq!(driver.get(0x60), 3, "a configuration change tells of it");
    driver.set(0x70, 0);
    driver.start(0);
    wait(|| lock(&seen).steps.len() == 2);
    assert!(!driver.needs_reset());
    assert_eq!(steps(&seen), [Step::Reset, Step::Took(vec![ring(0)])]);
}

#[test]
fn who_does_not_take_them_leaves_a_device_that_needs_a_reset() {
    let (device, seen, _fault) = served();
    lock(&seen).refuses = true;
    let mut driver = Driver::running(device, 0);
    driver.serve();
    assert!(driver.needs_reset());
    lock(&seen).refuses = false;
    driver.set(0x70, 0);
    driver.start(0);
    driver.serve();
    assert!(!driver.needs_reset());
    assert_eq!(steps(&seen), [Step::Reset, Step::Took(vec![ring(0)])]);
}

#[test]
fn a_ring_is_in_one_piece_of_memory() {
    // Whoever serves it knows where it begins: behind the end of a piece is something else of this process.
    let pieces = [(GuestAddress(0), 0x1_0000), (GuestAddress(0x1_0000), 0x1_0000)];
    let memory = crate::memory::guest::from_ranges(&pieces).unwrap();
    let used = u64::from(6 + 8 * QUEUE_SIZE);
    for (at, taken) in
        [(0x1_0000, true), (0x1_0000 - used, true), (0x1_0000 - used + 4, false), (0x2_0000 - used, true)]
    {
        let (device, seen, _fault) = served();
        let irq = EventFd::new(EFD_NONBLOCK).unwrap();
        let (transport, workers) = VirtioMmio::new(device, &memory, irq.try_clone().unwrap()).unwrap();
        let mut driver = Driver::with(transport, workers, memory.clone(), irq);
        for status in [0, 1, 3] {
            driver.set(0x70, status);
        }
        driver.accept(1 << 32);
        driver.set(0x70, 11);
        let at = at & !3;
        driver.describe_queue(QUEUE_SIZE.into(), [0x1000, 0x4000, at]);
        driver.set(0x70, 15);
        driver.serve();
        assert_eq!((driver.needs_reset(), took(&seen).len() == 1), (!taken, taken), "{at:#x}");
    }
}

proptest! {
    /// Wherever a driver says that its queue is, what is handed over is inside memory.
    #[test]
    fn nothing_outside_of_memory_is_handed_over(
        size in prop_oneof![Just(0u32), Just(1), Just(32), any::<u32>()],
        at in prop::array::uniform3(prop_oneof![0..MEMORY_SIZE as u64, MEMORY_SIZE as u64 - 0x200..MEMORY_SIZE as u64, any::<u64>()]),
    ) {
        let (device, seen, _fault) = served();
        let mut driver = Driver::new(device);
        for status in [0, 1, 3] {
            driver.set(0x70, status);
        }
        driver.accept(1 << 32);
        driver.set(0x70, 11);
        driver.describe_queue(size, at);
        driver.set(0x70, 15);
        driver.serve();
        let memory = driver.memory.clone();
        let inside = |start: u64, length: u64| memory.iter().any(|region| {
            let first = region.start_addr().raw_value();
            start >= first && start.checked_add(length).is_some_and(|end| end <= first + region.len())
        });
        let taken = took(&seen);
        prop_assert_eq!(taken.is_empty(), driver.needs_reset());
        for Ring { size, descriptors, available, used, .. } in taken {
            let size = u64::from(size);
            prop_assert!(size.is_power_of_two() && size <= QUEUE_SIZE.into());
            prop_assert!(inside(descriptors, 16 * size) && inside(available, 6 + 2 * size) && inside(used, 6 + 8 * size));
        }
    }
}
