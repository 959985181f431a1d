// SPDX-License-Identifier: Apache-2.0
//! The memory device with a guest that writes its registers, and a host that only counts.

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use flatboot_handoff::SECTION_SIZE;
use proptest::prelude::*;
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

use super::registers::{
    ACKNOWLEDGE, ALL, DONE, EVENT, FAILED, MAGIC, MAGIC_VALUE, MAX, OUTCOME, OWNED, REQUEST, Register, VERSION,
    VERSION_VALUE, WANTED,
};
use super::{Asked, Ended, HeldControl, HeldRegisters, Provider, Report};
use crate::bits::low32;
use crate::devices::bus::{BusDevice, lock};
use crate::devices::running::Running;
use crate::devices::testing::{Access, accesses, apply};
use crate::observe::devices::DeviceCounters;
use crate::state::{DeviceState, Mismatch};

const S: u64 = SECTION_SIZE;
const LONG: Duration = Duration::from_secs(60);

/// A host that has so much memory, and says what it is asked for.
struct Host {
    most: u64,
    told: Sender<u64>,
}

impl Provider for Host {
    fn grow(&mut self, to: u64) -> io::Result<()> {
        if to > self.most {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        self.shrink(to)
    }

    fn shrink(&mut self, to: u64) -> io::Result<()> {
        self.told.send(to).map_err(io::Error::other)
    }
}

struct Machine {
    control: Arc<HeldControl>,
    device: HeldRegisters,
    irq: EventFd,
    there: Receiver<u64>,
    reports: Receiver<Report>,
    worker: Running,
}

fn machine() -> Machine {
    let irq = EventFd::new(EFD_NONBLOCK).unwrap();
    let control = HeldControl::new(64 * S, 0, irq.try_clone().unwrap()).unwrap();
    let ((told, there), (tell, reports)) = (channel(), channel());
    control.tell(move |report| drop(tell.send(report)));
    let host = Box::new(Host { most: 32 * S, told });
    let worker = control.serve("memory".to_owned(), host, || Some(())).unwrap();
    Machine { device: HeldRegisters::new(Arc::clone(&control)), control, irq, there, reports, worker }
}

impl Machine {
    fn read32(&mut self, offset: u64) -> u32 {
        let mut data = [0xa5; 4];
        self.device.read(offset, &mut data);
        u32::from_le_bytes(data)
    }

    fn read64(&mut self, offset: u64) -> u64 {
        let mut data = [0xa5; 8];
        self.device.read(offset, &mut data);
        u64::from_le_bytes(data)
    }

    fn write32(&mut self, offset: u64, value: u32) {
        assert_eq!(self.device.write(offset, &value.to_le_bytes()), None);
    }

    fn write64(&mut self, offset: u64, value: u64) {
        assert_eq!(self.device.write(offset, &value.to_le_bytes()), None);
    }

    /// Waits for the interrupt, as a driver does.
    fn interrupted(&mut self) {
        let deadline = std::time::Instant::now() + LONG;
        while self.irq.read().is_err() {
            assert!(std::time::Instant::now() < deadline, "no interrupt");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(self.read32(EVENT), 1);
        self.write32(EVENT, ACKNOWLEDGE);
        assert_eq!(self.read32(EVENT), 0);
    }

    fn ended(&self) -> (u64, u64) {
        match self.reports.recv_timeout(LONG).unwrap() {
            Report::Ended(Ended { wanted, owned }) => (wanted / S, owned / S),
            other @ Report::Host { .. } => panic!("{other:?}"),
        }
    }

    fn host(&self) -> u64 {
        self.there.recv_timeout(LONG).unwrap() / S
    }

    fn errors(&self) -> u64 {
        self.control.values()["errors"]
    }

    /// Has the guest own so many sections.
    fn grow(&mut self, sections: u64) {
        assert_eq!(self.control.ask(sections * S), Asked::Waits);
        assert_eq!(self.host(), sections);
        self.interrupted();
        assert_eq!(self.read64(WANTED), sections * S);
        self.write64(OWNED, sections * S);
        self.write32(OUTCOME, DONE);
        assert_eq!(self.ended(), (sections, sections));
    }
}

#[test]
fn it_says_what_it_is() {
    let mut machine = machine();
    assert!(!machine.control.progress().driver);
    assert_eq!((machine.read32(MAGIC), machine.read32(VERSION)), (0x4d42_4c46, 1));
    assert!(machine.control.progress().driver);
    assert_eq!(machine.read64(MAX), 64 * S);
    assert_eq!((machine.read32(MAX), machine.read32(MAX + 4)), (0, 2));
    assert_eq!((MAGIC_VALUE, VERSION_VALUE), (0x4d42_4c46, 1));
    for Register { offset, bits, name, .. } in ALL {
        assert!(offset.is_multiple_of(u64::from(bits) / 8), "{name}");
    }
}

#[test]
fn a_guest_grows_and_shrinks() {
    let mut machine = machine();
    machine.grow(20);
    assert_eq!(machine.read32(REQUEST), 1);
    assert_eq!(machine.control.ask(4 * S), Asked::Waits);
    machine.interrupted();
    assert_eq!((machine.read64(WANTED), machine.read32(REQUEST)), (4 * S, 2));
    machine.write64(OWNED, 18 * S);
    assert_eq!(machine.host(), 18);
    machine.write64(OWNED, 4 * S);
    machine.write32(OUTCOME, DONE);
    // In one piece or two: that depends on how long the one before has taken.
    assert_eq!(std::iter::repeat_with(|| machine.host()).find(|there| *there < 10), Some(4));
    assert_eq!((machine.ended(), machine.errors()), ((4, 4), 0));
    assert_eq!(machine.control.ask(4 * S), Asked::Done);
}

/// The memory that the guest has given back is the host's when anybody is told that it has.
#[test]
fn an_answer_comes_behind_the_last_piece() {
    let mut machine = machine();
    machine.grow(32);
    machine.control.ask(0);
    machine.interrupted();
    machine.read64(WANTED);
    machine.worker.ask_to_pause();
    machine.worker.await_pause(LONG).unwrap();
    machine.write64(OWNED, 0);
    machine.write32(OUTCOME, DONE);
    assert!(machine.reports.try_recv().is_err(), "the host has nothing yet");
    machine.worker.resume();
    assert_eq!(machine.ended(), (0, 0));
    let there: Vec<_> = machine.there.try_iter().map(|bytes| bytes / S).collect();
    assert!(there.len() > 1 && there.is_sorted_by(|before, after| before > after), "{there:?}");
    assert_eq!(there.last(), Some(&0));
}

#[test]
fn a_guest_that_could_not_is_heard() {
    let mut machine = machine();
    machine.grow(16);
    machine.control.ask(0);
    machine.interrupted();
    machine.read64(WANTED);
    machine.write64(OWNED, 9 * S);
    machine.write32(OUTCOME, FAILED);
    assert_eq!((machine.ended(), machine.read64(OWNED)), ((0, 9), 9 * S));
    // What it does not take of a growth goes back.
    assert_eq!(machine.host(), 9);
    machine.control.ask(12 * S);
    assert_eq!(machine.host(), 12);
    machine.interrupted();
    machine.read64(WANTED);
    machine.write64(OWNED, 10 * S);
    machine.write32(OUTCOME, FAILED);
    assert_eq!((machine.ended(), machine.host(), machine.errors()), ((12, 10), 10, 0));
}

#[test]
fn numbers_go_in_halves_too() {
    let mut machine = machine();
    machine.control.ask(32 * S);
    machine.host();
    machine.interrupted();
    assert_eq!((machine.read32(WANTED), machine.read32(WANTED + 4)), (0, 1));
    machine.write32(OWNED, 0);
    assert_eq!(machine.read64(OWNED), 0, "the high half takes effect");
    machine.write32(OWNED + 4, 1);
    assert_eq!((machine.read32(OWNED), machine.read32(OWNED + 4)), (0, 1));
    machine.write32(OWNED + 4, 1);
    assert_eq!(machine.errors(), 1, "a high half without a low one is nothing");
    machine.write32(OUTCOME, DONE);
    assert_eq!(machine.ended(), (32, 32));
}

#[test]
fn a_host_without_memory_says_so_and_the_guest_hears_nothing() {
    let mut machine = machine();
    assert_eq!(machine.control.ask(33 * S), Asked::Waits);
    let Report::Host { wanted, source } = machine.reports.recv_timeout(LONG).unwrap() else { panic!("no error") };
    assert_eq!((wanted, source.kind()), (33 * S, io::ErrorKind::OutOfMemory));
    assert_eq!((machine.read64(WANTED), machine.read32(REQUEST), machine.read32(EVENT)), (0, 0, 0));
    machine.grow(32);
}

#[test]
fn what_makes_no_sense_is_ignored_and_counted() {
    let mut machine = machine();
    machine.grow(4);
    machine.control.ask(8 * S);
    machine.host();
    machine.interrupted();
    machine.read64(WANTED);
    for (count, bytes) in (1..).zip([9 * S, S + 1, 4096, 64 * S, 65 * S, u64::MAX, u64::MAX - S + 1]) {
        machine.write64(OWNED, bytes);
        assert_eq!((machine.read64(OWNED), machine.errors()), (4 * S, count), "{bytes:#x}");
    }
    let before = machine.errors();
    machine.write32(OUTCOME, DONE);
    machine.write32(OUTCOME, 2);
    machine.write32(EVENT, 0);
    for Register { offset, access, name, .. } in ALL {
        if !access.contains('w') {
            machine.write32(offset, 1);
            machine.write64(offset, 1);
            assert_ne!(machine.read64(offset), 1, "{name}");
        }
    }
    for (offset, width) in [(OWNED, 1), (OWNED, 2), (OWNED, 3), (OWNED + 1, 4), (OWNED + 4, 8), (0x2c, 4), (0xff8, 8)] {
        assert_eq!(machine.device.write(offset, &vec![0; width]), None);
    }
    assert_eq!(machine.errors(), before + 3 + 2 * 5 + 7);
    assert!(machine.reports.try_recv().is_err(), "nothing has ended");
    machine.write64(OWNED, 8 * S);
    machine.write32(OUTCOME, DONE);
    assert_eq!(machine.ended(), (8, 8));
    machine.write32(OUTCOME, DONE);
    assert_eq!(machine.errors(), before + 3 + 2 * 5 + 7, "it says so once more");
    machine.write32(OUTCOME, FAILED);
    assert_eq!(machine.errors(), before + 3 + 2 * 5 + 8, "it is over");
}

/// It comes while nobody is there to hear it: the driver reads what is wanted when it comes.
#[test]
fn a_request_waits_for_the_driver() {
    let mut machine = machine();
    machine.control.ask(2 * S);
    machine.host();
    assert!(!machine.control.progress().driver);
    let deadline = std::time::Instant::now() + LONG;
    while machine.read32(REQUEST) == 0 {
        assert!(std::time::Instant::now() < deadline, "no request");
    }
    assert_eq!((machine.read64(WANTED), machine.read32(EVENT)), (2 * S, 1));
    machine.write64(OWNED, 2 * S);
    machine.write32(OUTCOME, DONE);
    assert_eq!(machine.ended(), (2, 2));
}

/// Whoever waits does so as long as something happens: a guest cannot make it wait by what it reads, or by saying the same.
#[test]
fn only_what_happens_is_progress() {
    let mut machine = machine();
    machine.control.ask(4 * S);
    machine.host();
    machine.interrupted();
    let since = |machine: &Machine| machine.control.progress().since;
    let asked = since(&machine);
    machine.read64(WANTED);
    let seen = since(&machine);
    assert!(seen > asked);
    for sections in 1..=4 {
        let before = since(&machine);
        machine.write64(OWNED, sections * S);
        let after = since(&machine);
        assert!(after > before);
        machine.read64(WANTED);
        machine.read32(WANTED);
        machine.write64(OWNED, sections * S);
        machine.write64(OWNED, 5 * S);
        machine.write32(EVENT, ACKNOWLEDGE);
        assert_eq!(since(&machine), after);
    }
    machine.write64(OWNED, S);
    assert!(since(&machine) > seen);
}

#[test]
fn it_is_saved_and_restored() {
    let mut machine = machine();
    machine.grow(4);
    machine.control.ask(8 * S);
    machine.host();
    machine.interrupted();
    machine.read32(WANTED);
    machine.write32(OWNED, low32(6 * S));
    machine.worker.ask_to_pause();
    machine.worker.await_pause(LONG).unwrap();
    let saved = machine.device.save().unwrap().unwrap();

    let irq = EventFd::new(EFD_NONBLOCK).unwrap();
    let control = HeldControl::new(64 * S, 8 * S, irq.try_clone().unwrap()).unwrap();
    let (tell, reports) = channel();
    control.tell(move |report| drop(tell.send(report)));
    let mut device = HeldRegisters::new(Arc::clone(&control));
    assert!(!control.progress().driver);
    device.restore(&saved).unwrap();
    assert!(control.progress().driver, "it has one, which is at work");
    let (told, there) = channel();
    let _worker = control.serve("memory".to_owned(), Box::new(Host { most: 32 * S, told }), || Some(())).unwrap();
    assert_eq!(device.save().unwrap().unwrap(), saved);
    device.awake();
    assert!(irq.read().is_err(), "nothing was pending");
    // It goes on in the middle of what it said.
    assert_eq!(device.write(OWNED + 4, &low32((6 * S) >> 32).to_le_bytes()), None);
    assert_eq!(device.write(OUTCOME, &FAILED.to_le_bytes()), None);
    let Report::Ended(ended) = reports.recv_timeout(LONG).unwrap() else { panic!("no end") };
    assert_eq!((ended, there.recv_timeout(LONG)), (Ended { wanted: 8 * S, owned: 6 * S }, Ok(6 * S)));

    let DeviceState::Held(state) = saved else { panic!("another device") };
    let restore = |there: u64, change: fn(&mut crate::state::HeldState)| {
        let irq = EventFd::new(EFD_NONBLOCK).unwrap();
        let mut device = HeldRegisters::new(HeldControl::new(64 * S, there, irq).unwrap());
        let mut state = state;
        change(&mut state);
        device.restore(&DeviceState::Held(state))
    };
    assert_eq!(restore(8 * S, |_| ()), Ok(()));
    assert!(restore(7 * S, |_| ()).is_err(), "other memory");
    assert!(restore(8 * S, |state| state.owned = 9 * S).is_err());
    assert!(restore(8 * S, |state| state.wanted = 65 * S).is_err());
    assert!(restore(8 * S, |state| state.promised = S / 2).is_err());
    assert!(restore(8 * S, |state| state.open = false).is_err());
    let other = DeviceState::Sleep { sleep_type: 0 };
    assert_eq!(HeldRegisters::new(control).restore(&other), Err(Mismatch::Kind));
}

#[test]
fn an_interrupt_that_was_pending_comes_again() {
    let mut machine = machine();
    machine.control.ask(2 * S);
    machine.host();
    machine.worker.ask_to_pause();
    machine.worker.await_pause(LONG).unwrap();
    let saved = machine.device.save().unwrap().unwrap();
    let irq = EventFd::new(EFD_NONBLOCK).unwrap();
    let mut device = HeldRegisters::new(HeldControl::new(64 * S, 2 * S, irq.try_clone().unwrap()).unwrap());
    device.restore(&saved).unwrap();
    device.awake();
    assert_eq!(irq.read().unwrap(), 1);
}

/// A host that cannot take memory back; what it has is what was last said. As held memory has it, more than there is cannot be asked for
/// twice.
struct Keeper(Arc<Mutex<u64>>);

impl Provider for Keeper {
    fn grow(&mut self, to: u64) -> io::Result<()> {
        let mut there = lock(&self.0);
        *there = to.max(*there);
        Ok(())
    }

    fn shrink(&mut self, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::OutOfMemory.into())
    }
}

#[test]
fn what_a_host_cannot_take_back_is_there_and_can_be_had_again() {
    let (irq, there) = (EventFd::new(EFD_NONBLOCK).unwrap(), Arc::new(Mutex::new(0)));
    let control = HeldControl::new(64 * S, 0, irq.try_clone().unwrap()).unwrap();
    let ((tell, reports), (_, none)) = (channel(), channel());
    control.tell(move |report| drop(tell.send(report)));
    let worker = control.serve("memory".to_owned(), Box::new(Keeper(Arc::clone(&there))), || Some(())).unwrap();
    let device = HeldRegisters::new(Arc::clone(&control));
    let mut machine = Machine { control, device, irq, there: none, reports, worker };
    for sections in [20, 4, 12, 20, 0, 24] {
        assert_eq!(machine.control.ask(sections * S), Asked::Waits);
        machine.interrupted();
        assert_eq!(machine.read64(WANTED), sections * S);
        machine.write64(OWNED, sections * S);
        machine.write32(OUTCOME, DONE);
        assert_eq!(machine.ended(), (sections, sections));
        machine.worker.ask_to_pause();
        machine.worker.await_pause(LONG).unwrap();
        let DeviceState::Held(saved) = machine.device.save().unwrap().unwrap() else { panic!("another device") };
        assert_eq!((saved.owned, saved.there), (sections * S, *lock(&there)), "a snapshot of it can be restored");
        machine.worker.resume();
    }
    assert_eq!((*lock(&there), machine.errors()), (24 * S, 0));
}

/// A host whose memory is what was last said.
struct Numbers(Arc<Mutex<u64>>);

impl Provider for Numbers {
    fn grow(&mut self, to: u64) -> io::Result<()> {
        *lock(&self.0) = to;
        Ok(())
    }

    fn shrink(&mut self, to: u64) -> io::Result<()> {
        self.grow(to)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Whatever a guest does meanwhile, there is memory for what it is taken to own.
    #[test]
    fn any_access_is_harmless(
        rounds in prop::collection::vec((0..=8u64, accesses(0x30), prop::collection::vec(0..10u64, 0..4)), 0..8),
    ) {
        let irq = EventFd::new(EFD_NONBLOCK).unwrap();
        let control = HeldControl::new(8 * S, 0, irq).unwrap();
        let there = Arc::new(Mutex::new(0));
        let worker = control.serve("memory".to_owned(), Box::new(Numbers(Arc::clone(&there))), || Some(())).unwrap();
        let mut device = HeldRegisters::new(Arc::clone(&control));
        for (wanted, accesses, owned) in rounds {
            control.ask(wanted * S);
            let owned = owned.into_iter().map(|sections| Access::Write {
                offset: OWNED,
                data: (sections * S).to_le_bytes().to_vec(),
            });
            for access in accesses.into_iter().chain(owned) {
                prop_assert_eq!(apply(&mut device, &access), None);
                prop_assert!(control.progress().owned <= 8 * S);
            }
            worker.ask_to_pause();
            worker.await_pause(LONG).unwrap();
            prop_assert!(control.progress().owned <= *lock(&there));
            worker.resume();
        }
    }
}
