// SPDX-License-Identifier: Apache-2.0
//! The serial port: a 16550A whose output goes to a writer and whose input comes from a reader.

use std::fmt;
use std::io::{self, Read, Write};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::{Errno, read, write};
use vm_superio::Trigger;
use vm_superio::serial::{Error, Serial, SerialEvents, SerialState as Registers};
use vmm_sys_util::eventfd::EventFd;

use super::bus::{BusDevice, GuestRequest, Unsaved, lock};
use crate::complaints::Complaints;
use crate::state::{DeviceState, Mismatch, SerialState};

/// Registers of a 16550A.
const REGISTERS: u64 = 8;
/// Modem control register: leaving loopback mode makes room for input.
const MODEM_CONTROL: u64 = 4;
/// Interrupt identification register: nothing is pending.
const NOTHING_PENDING: u8 = 1;
/// Stack of the thread that waits for input; it calls `read` and little else.
const INPUT_STACK: usize = 64 << 10;
/// Bytes taken from the input at once.
const INPUT_CHUNK: usize = 256;
/// Bytes that wait for room while more is read.
const WAITING_MAX: usize = 64 << 10;

/// The interrupt line, as an eventfd that KVM listens to (irqfd).
struct Line(Arc<EventFd>);

impl Trigger for Line {
    type E = io::Error;

    fn trigger(&self) -> io::Result<()> {
        self.0.write(1)
    }
}

/// Says when the receive FIFO may have room again.
struct Room(Arc<OwnedFd>);

impl SerialEvents for Room {
    fn buffer_read(&self) {}
    fn out_byte(&self) {}
    fn tx_lost_byte(&self) {}

    fn in_buffer_empty(&self) {
        signal(&self.0);
    }
}

/// What a port transmits to, whichever registers it has.
#[derive(Clone)]
struct Output(Arc<Mutex<Box<dyn Write + Send>>>);

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        lock(&self.0).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        lock(&self.0).flush()
    }
}

/// The thread that feeds input to a port. Dropping it ends the thread, once its input says something or ends.
#[derive(Debug)]
pub struct Feeding {
    room: Arc<OwnedFd>,
    over: Arc<AtomicBool>,
}

impl Drop for Feeding {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
        signal(&self.room);
    }
}

/// A counter that nobody has read yet still says what one more count would.
fn signal(event: &OwnedFd) {
    let _ = write(event, &1u64.to_ne_bytes());
}

/// Waits until there is a count, and takes all of it.
fn clear(event: &OwnedFd) -> io::Result<u64> {
    let mut count = [0; size_of::<u64>()];
    read(event, &mut count)?;
    Ok(u64::from_ne_bytes(count))
}

/// The serial port, eight one-byte registers.
pub struct SerialPort {
    uart: Serial<Line, Room, Output>,
    output: Output,
    irq: Arc<EventFd>,
    room: Arc<OwnedFd>,
    /// Nothing is received: the VM rests.
    rests: bool,
    complaints: Complaints,
}

impl fmt::Debug for SerialPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SerialPort").finish_non_exhaustive()
    }
}

impl SerialPort {
    /// A port that interrupts by `irq` and transmits to `output`, byte by byte and flushed. What `output` does not take
    /// is lost, as on a line with nobody at its end; the guest does not notice.
    pub fn new(irq: EventFd, output: Box<dyn Write + Send>) -> io::Result<Self> {
        let (room, irq) = (Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?), Arc::new(irq));
        let output = Output(Arc::new(Mutex::new(output)));
        let uart = Serial::with_events(Line(Arc::clone(&irq)), Room(Arc::clone(&room)), output.clone());
        Ok(Self { uart, output, irq, room, rests: false, complaints: Complaints::default() })
    }

    /// From now on, or not any more, what comes has to wait: the guest, which would take it, does not run.
    pub fn rest(&mut self, rests: bool) {
        self.rests = rests;
        if !rests {
            signal(&self.room);
        }
    }

    /// Puts received bytes into the FIFO and interrupts. Returns how many fitted; none do in loopback mode, or while it rests.
    pub fn receive(&mut self, bytes: &[u8]) -> usize {
        if self.rests {
            return 0;
        }
        // A full FIFO is "0 fitted". An interrupt that cannot be raised leaves the bytes for the driver to poll.
        let before = self.uart.fifo_capacity();
        let _ = self.uart.enqueue_raw_bytes(bytes);
        before.saturating_sub(self.uart.fifo_capacity())
    }

    /// Feeds `input` to the port from a thread of its own until the input ends or fails. The guest takes it at its own
    /// pace, and nothing is dropped. A few hundred bytes wait here, but where not all that is typed is for the guest: `keys` says when
    /// there is more, which is read until 64 KiB wait.
    ///
    /// A thread, because reading it waits. `begin` is the first that it does; it ends if there is nothing to keep.
    pub fn attach_input<G>(
        port: &Arc<Mutex<Self>>,
        input: Box<dyn Read + Send>,
        keys: Option<BorrowedFd<'static>>,
        begin: impl FnOnce() -> Option<G> + Send + 'static,
    ) -> io::Result<Feeding> {
        let port = Arc::clone(port);
        let feeding = Feeding { room: Arc::clone(&lock(&port).room), over: Arc::default() };
        let (room, over) = (Arc::clone(&feeding.room), Arc::clone(&feeding.over));
        thread::Builder::new()
            .name("serial-input".to_owned())
            .stack_size(INPUT_STACK)
            .spawn(move || {
                let Some(_kept) = begin() else { return };
                feed(&port, &room, &over, input, keys);
            })
            .map(|_| feeding)
    }
}

/// Copies `input` to the port, waiting for room; or for `keys`, too.
fn feed(
    port: &Mutex<SerialPort>,
    room: &OwnedFd,
    over: &AtomicBool,
    mut input: Box<dyn Read + Send>,
    keys: Option<BorrowedFd<'_>>,
) {
    let mut chunk = [0; INPUT_CHUNK];
    let mut waiting = Vec::new();
    while !over.load(Ordering::Acquire) {
        let keys = keys.filter(|_| waiting.len() <= WAITING_MAX - INPUT_CHUNK);
        let reads = match (waiting.is_empty(), keys) {
            (true, _) => Ok(true),
            (false, Some(keys)) => has_keys(keys, room),
            (false, None) => clear(room).map(|_| false),
        };
        let read = reads.and_then(|reads| if reads { input.read(&mut chunk).map(Some) } else { Ok(None) });
        match read {
            Ok(None) => {}
            Ok(Some(0)) => return,
            Ok(Some(_)) if over.load(Ordering::Acquire) => return,
            Ok(Some(count)) => waiting.extend_from_slice(chunk.get(..count).unwrap_or_default()),
            // There may be room all the same.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => {
                tracing::warn!(%error, "serial input ends");
                return;
            }
        }
        // As much as there is room for: what is left waits for more.
        let taken = lock(port).receive(&waiting);
        waiting.drain(..taken);
    }
}

/// Waits for `room`, or `keys`. Whether there are any of those.
fn has_keys(keys: BorrowedFd<'_>, room: &OwnedFd) -> io::Result<bool> {
    let mut waits = [PollFd::from_borrowed_fd(keys, PollFlags::IN), PollFd::new(room, PollFlags::IN)];
    match poll(&mut waits, None) {
        Ok(_) => {}
        Err(Errno::INTR) => return Ok(false),
        Err(error) => return Err(error.into()),
    }
    let [has_keys, has_room] = waits.map(|wait| !wait.revents().is_empty());
    if has_room {
        clear(room)?;
    }
    Ok(has_keys)
}

/// The register at `offset`, if the device has it.
fn register(offset: u64) -> Option<u8> {
    u8::try_from(offset).ok().filter(|_| offset < REGISTERS)
}

/// What keeps a byte from going where it should.
fn reason(error: &Error<io::Error>) -> String {
    match error {
        Error::IOError(error) | Error::Trigger(error) => error.to_string(),
        Error::FullFifo => "there is no room".to_owned(),
    }
}

impl BusDevice for SerialPort {
    fn read(&mut self, offset: u64, data: &mut [u8]) {
        // A wide access to an 8-bit device reaches its bytes' registers one after the other, lowest first.
        for (at, byte) in (offset..).zip(data) {
            *byte = register(at).map_or(0xff, |register| self.uart.read(register));
        }
    }

    fn write(&mut self, offset: u64, data: &[u8]) -> Option<GuestRequest> {
        for (at, &byte) in (offset..).zip(data) {
            if let Some(register) = register(at)
                && let Err(error) = self.uart.write(register, byte)
                && let Some(count) = self.complaints.count()
            {
                tracing::warn!("serial output: {count} byte(s) lost: {}", reason(&error));
            }
            if at == MODEM_CONTROL {
                signal(&self.room);
            }
        }
        None
    }

    fn save(&mut self) -> Result<Option<DeviceState>, Unsaved> {
        let registers = self.uart.state();
        Ok(Some(DeviceState::Serial(SerialState {
            divisor_low: registers.baud_divisor_low,
            divisor_high: registers.baud_divisor_high,
            interrupt_enable: registers.interrupt_enable,
            interrupt_identification: registers.interrupt_identification,
            line_control: registers.line_control,
            line_status: registers.line_status,
            modem_control: registers.modem_control,
            modem_status: registers.modem_status,
            scratch: registers.scratch,
            received: registers.in_buffer,
        })))
    }

    fn restore(&mut self, state: &DeviceState) -> Result<(), Mismatch> {
        let DeviceState::Serial(state) = state else { return Err(Mismatch::Kind) };
        let registers = Registers {
            baud_divisor_low: state.divisor_low,
            baud_divisor_high: state.divisor_high,
            interrupt_enable: state.interrupt_enable,
            interrupt_identification: state.interrupt_identification,
            line_control: state.line_control,
            line_status: state.line_status,
            modem_control: state.modem_control,
            modem_status: state.modem_status,
            scratch: state.scratch,
            in_buffer: state.received.clone(),
        };
        let (line, room) = (Line(Arc::clone(&self.irq)), Room(Arc::clone(&self.room)));
        let uart = Serial::from_state(&registers, line, room, self.output.clone());
        self.uart =
            uart.map_err(|_| Mismatch::of("number of bytes received", state.received.len(), "what the FIFO holds"))?;
        Ok(())
    }

    fn awake(&mut self) {
        if self.uart.state().interrupt_identification & NOTHING_PENDING == 0 {
            // It can only be full of what says the same.
            let _ = self.irq.write(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::sync::mpsc;
    use std::time::Duration;

    use proptest::prelude::*;
    use vmm_sys_util::eventfd::EFD_NONBLOCK;

    use super::*;
    use crate::devices::escape::Escape;
    use crate::devices::testing::{accesses, apply};

    const DATA: u64 = 0;
    const INTERRUPT_ENABLE: u64 = 1;
    const LINE_STATUS: u64 = 5;
    const DATA_READY: u8 = 1;

    struct Sent(mpsc::Sender<u8>);

    impl Write for Sent {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            for &byte in bytes {
                self.0.send(byte).unwrap();
            }
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    struct Broken;

    impl Write for Broken {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Err(io::ErrorKind::StorageFull.into())
        }
    }

    fn event() -> EventFd {
        EventFd::new(EFD_NONBLOCK).unwrap()
    }

    fn get(port: &mut SerialPort, offset: u64) -> u8 {
        let mut data = [0];
        port.read(offset, &mut data);
        data[0]
    }

    #[test]
    fn output_arrives_in_order() {
        let (sender, sent) = mpsc::channel();
        let mut port = SerialPort::new(event(), Box::new(Sent(sender))).unwrap();
        for byte in b"boot" {
            assert_eq!(port.write(DATA, &[*byte]), None);
        }
        assert_eq!(sent.try_iter().collect::<Vec<_>>(), b"boot");
    }

    #[test]
    fn failing_output_is_not_the_guests_problem() {
        let irq = event();
        let mut port = SerialPort::new(irq.try_clone().unwrap(), Box::new(Broken)).unwrap();
        assert_eq!(port.write(INTERRUPT_ENABLE, &[0b10]), None);
        let ready = get(&mut port, LINE_STATUS);
        irq.read().unwrap();
        assert_eq!(get(&mut port, 2) & 0b10, 0b10, "transmitter empty is pending");
        assert_eq!(port.write(DATA, b"x"), None);
        assert_eq!(irq.read().unwrap(), 1, "the lost byte counts as transmitted");
        assert_eq!(get(&mut port, LINE_STATUS), ready);
    }

    /// The next bytes that a guest reads. Waits by yielding: it ends when they have arrived, however long the threads take.
    fn received(port: &Mutex<SerialPort>, count: usize) -> Vec<u8> {
        let mut received = Vec::new();
        while received.len() < count {
            let mut port = lock(port);
            if get(&mut port, LINE_STATUS) & DATA_READY == 0 {
                drop(port);
                thread::yield_now();
            } else {
                received.push(get(&mut port, DATA));
            }
        }
        received
    }

    #[test]
    fn input_waits_for_room_and_loses_nothing() {
        let port = Arc::new(Mutex::new(SerialPort::new(event(), Box::new(io::sink())).unwrap()));
        let input: Vec<u8> = (0..=255).cycle().take(10_000).collect();
        let _feeding =
            SerialPort::attach_input(&port, Box::new(io::Cursor::new(input.clone())), None, || Some(())).unwrap();
        assert!(received(&port, input.len()) == input, "input arrived changed");
    }

    #[test]
    fn nothing_is_received_in_a_pause_and_all_behind_it() {
        let irq = event();
        let port = SerialPort::new(irq.try_clone().unwrap(), Box::new(io::sink())).unwrap();
        let port = Arc::new(Mutex::new(port));
        assert_eq!(lock(&port).write(INTERRUPT_ENABLE, &[1]), None);
        // What is there from before is the guest's to see.
        let _ = irq.read();
        lock(&port).rest(true);
        let (input, mut typing) = io::pipe().unwrap();
        let _feeding = SerialPort::attach_input(&port, Box::new(input), None, || Some(())).unwrap();
        let before = lock(&port).save().unwrap();
        typing.write_all(b"typed").unwrap();
        thread::sleep(Duration::from_millis(20));
        assert_eq!(lock(&port).save().unwrap(), before);
        assert!(irq.read().is_err(), "it interrupts in a pause");
        lock(&port).rest(false);
        assert_eq!(received(&port, 5), b"typed");
        assert!(irq.read().is_ok());
    }

    /// A guest in loopback takes nothing, and what is typed then may still be for somebody else.
    #[test]
    fn keys_are_read_though_there_is_no_room() {
        let port = Arc::new(Mutex::new(SerialPort::new(event(), Box::new(io::sink())).unwrap()));
        assert_eq!(lock(&port).write(MODEM_CONTROL, &[0x10]), None);
        let (input, mut typing) = io::pipe().unwrap();
        // As standard input does, it stays open as long as the process.
        let kept: &'static io::PipeReader = Box::leak(Box::new(input.try_clone().unwrap()));
        let keys = kept.as_fd();
        let (read, ended) = mpsc::channel();
        let escape = Escape::new(input, Box::new(move || read.send(()).unwrap()));
        let _feeding = SerialPort::attach_input(&port, Box::new(escape), Some(keys), || Some(())).unwrap();
        let typed = vec![b'k'; 3000];
        typing.write_all(&typed).unwrap();
        // By itself, so that there is nothing for the guest in it.
        thread::sleep(Duration::from_millis(20));
        typing.write_all(b"\x01x").unwrap();
        ended.recv_timeout(Duration::from_secs(60)).unwrap();
        assert_eq!(lock(&port).write(MODEM_CONTROL, &[0x08]), None);
        assert!(received(&port, typed.len()) == typed, "what was typed arrived changed");
    }

    #[test]
    fn input_resumes_after_loopback() {
        let mut port = SerialPort::new(event(), Box::new(io::sink())).unwrap();
        assert_eq!(port.write(MODEM_CONTROL, &[0x10]), None);
        clear(&port.room).unwrap();
        assert_eq!(port.receive(b"abc"), 0);
        assert_eq!(port.write(MODEM_CONTROL, &[0x08]), None);
        assert_eq!(clear(&port.room).unwrap(), 1);
        assert_eq!(port.receive(b"abc"), 3);
        assert_eq!([get(&mut port, DATA), get(&mut port, DATA), get(&mut port, DATA)], *b"abc");
    }

    #[test]
    fn a_port_goes_on_with_what_has_come() {
        let mut port = SerialPort::new(event(), Box::new(io::sink())).unwrap();
        assert_eq!(port.write(INTERRUPT_ENABLE, &[1]), None);
        assert_eq!(port.receive(b"typed"), 5);
        let state = port.save().unwrap().unwrap();
        let (irq, (sender, sent)) = (event(), mpsc::channel());
        let mut other = SerialPort::new(irq.try_clone().unwrap(), Box::new(Sent(sender))).unwrap();
        other.restore(&state).unwrap();
        assert_eq!(other.save().unwrap().unwrap(), state);
        // It may have been told as it was restored.
        let _ = irq.read();
        other.awake();
        assert_eq!(irq.read().unwrap(), 1, "what is pending is told again");
        let typed: Vec<u8> = (0..5).map(|_| get(&mut other, DATA)).collect();
        assert_eq!(typed, b"typed");
        assert_eq!(other.write(DATA, b"x"), None);
        assert_eq!(sent.recv().unwrap(), b'x', "its output is its own");
        assert_eq!(other.restore(&DeviceState::Sleep { sleep_type: 0 }), Err(Mismatch::Kind));
        let DeviceState::Serial(state) = state else { panic!("{state:?}") };
        let long = DeviceState::Serial(SerialState { received: vec![0; 1000], ..state });
        assert!(matches!(other.restore(&long), Err(Mismatch::Value { .. })));
    }

    proptest! {
        #[test]
        fn any_access_is_harmless(accesses in accesses(10), input in prop::collection::vec(any::<u8>(), 0..100)) {
            let mut port = SerialPort::new(event(), Box::new(Broken)).unwrap();
            for access in accesses {
                prop_assert_eq!(apply(&mut port, &access), None);
                prop_assert!(port.receive(&input) <= input.len());
            }
        }
    }
}
