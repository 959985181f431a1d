// SPDX-License-Identifier: Apache-2.0
//! A hostile driver made of bytes: what the fuzz target and a property test both run.
//!
//! The bytes are a program of small steps: register accesses of any kind, and writes to the memory that holds queues and
//! requests. Some steps are whole (bring the device up, offer a chain), so that arbitrary bytes get past the first check.

mod host;

use std::fs::File;
use std::io;

use virtio_bindings::virtio_ids::{
    VIRTIO_ID_BALLOON, VIRTIO_ID_BLOCK, VIRTIO_ID_CONSOLE, VIRTIO_ID_NET, VIRTIO_ID_VSOCK,
};
use vm_memory::{Bytes, GuestAddress};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

use super::block::Settings;
use super::{VirtioMmio, VirtioWorker};
use crate::devices::bus::BusDevice;
use crate::devices::program::Program;
use crate::memory::{GuestMemory, guest};
use crate::state::{DeviceState, VirtioState};
use host::{Made, Peer};

/// Steps after which a program ends, however long it is.
const STEPS_MAX: usize = 512;
/// Turns that a queue gets after each notification.
const TURNS: usize = 4;
/// Guest memory: low and high part, with a hole between.
const LOW_SIZE: usize = 0x1_0000;
const HIGH_START: u64 = 0x4_0000;
const HIGH_SIZE: usize = 0x8000;
/// Where "bring up" puts a queue; with all of them, each of four has rings of its own, so far apart.
const DESCRIPTORS: u64 = 0x1000;
const AVAILABLE: u64 = 0x2000;
const USED: u64 = 0x3000;
const RINGS: u64 = 0x3000;
const QUEUE_SIZE: u16 = 16;
/// Kinds of steps. How often a step's byte has them in it says more: whether all queues are brought up, whose rings are meant.
const STEPS: u8 = 12;

/// An address: mostly inside guest memory or at its edges, sometimes anywhere.
fn address(program: &mut Program<'_>) -> Option<u64> {
    let low = u64::from(program.half()?);
    Some(match program.byte()? {
        0..=159 => low,
        160..=199 => HIGH_START + (low & 0x7fff),
        200..=219 => HIGH_START + low,
        220..=239 => u64::MAX - low,
        _ => u64::from_le_bytes(program.take()?),
    })
}

/// A length: mostly one that a request would have, sometimes any.
fn length(program: &mut Program<'_>) -> Option<u32> {
    Some(match program.byte()? {
        kind @ 0..=15 => kind.into(),
        16..=63 => 16,
        64..=127 => 512,
        128..=223 => program.half()?.into(),
        _ => program.word()?,
    })
}

/// How far behind the first rings those of a queue are.
fn rings(queue: u32) -> u64 {
    u64::from(queue % 4) * RINGS
}

/// A device with the program's hands on it.
struct Machine {
    transport: VirtioMmio,
    workers: Vec<VirtioWorker>,
    memory: GuestMemory,
    queues: usize,
    peer: Option<Peer>,
}

impl Machine {
    fn new((device, peer): Made) -> io::Result<Self> {
        let ranges = [(GuestAddress(0), LOW_SIZE), (GuestAddress(HIGH_START), HIGH_SIZE)];
        let memory = guest::from_ranges(&ranges).map_err(io::Error::other)?;
        let queues = device.queue_sizes().len();
        let (transport, workers) = VirtioMmio::new(device, &memory, EventFd::new(EFD_NONBLOCK)?)?;
        Ok(Self { transport, workers, memory, queues, peer })
    }

    fn set(&mut self, register: u16, value: u32) {
        let _ = self.transport.write(register.into(), &value.to_le_bytes());
    }

    /// What a correct driver does until `DRIVER_OK`, with one queue or all.
    fn bring_up(&mut self, features: u32, all: bool) {
        for (register, value) in [(0x70, 0), (0x70, 1), (0x70, 3), (0x24, 0), (0x20, features), (0x24, 1), (0x20, 1)] {
            self.set(register, value);
        }
        self.set(0x70, 11);
        // By bits that are offered: the first one by most devices, the others by those with many queues.
        let queues = u32::try_from(self.queues).unwrap_or(1).max(1);
        let queue = (features >> 7 & 7) << 1 | features & 1;
        let queue = if self.queues > 1 { queue % queues } else { 0 };
        if all {
            (0..queues).for_each(|queue| self.ready(queue, rings(queue)));
        } else {
            self.ready(queue, 0);
        }
        self.set(0x70, 15);
    }

    /// A queue whose rings are so far behind the first ones.
    fn ready(&mut self, queue: u32, at: u64) {
        let mut most = [0; 4];
        self.set(0x30, queue);
        self.transport.read(0x34, &mut most);
        self.set(0x38, u32::from_le_bytes(most).min(QUEUE_SIZE.into()));
        self.set(0x44, 1);
        for (register, value) in [(0x80, DESCRIPTORS + at), (0x90, AVAILABLE + at), (0xa0, USED + at)] {
            let [a, b, c, d, high @ ..] = value.to_le_bytes();
            self.set(register, u32::from_le_bytes([a, b, c, d]));
            self.set(register + 4, u32::from_le_bytes(high));
        }
    }

    /// Guest memory that is not there is the guest's mistake.
    fn poke(&self, address: u64, bytes: &[u8]) {
        let _ = self.memory.write_slice(bytes, GuestAddress(address));
    }

    fn serve(&mut self) {
        for _ in 0..TURNS {
            for queue in 0..self.queues {
                for worker in &mut self.workers {
                    worker.serve(queue);
                }
            }
        }
        // What is done in the background is done then; so the next step meets the same each time.
        assert!(self.workers.iter_mut().all(VirtioWorker::settle), "somebody gave an order");
    }

    /// One descriptor in a table of "bring up".
    fn describe(&self, program: &mut Program<'_>, index: u16, at: u64) -> Option<()> {
        let (address, length) = (address(program)?, length(program)?);
        let (flags, next) = (u16::from(program.byte()?), program.byte()?);
        let next = if next < 0x80 { index.wrapping_add(1) } else { u16::from(next) & 0x1f };
        let mut descriptor = [0; 16];
        let fields = [&address.to_le_bytes()[..], &length.to_le_bytes(), &flags.to_le_bytes(), &next.to_le_bytes()];
        for (to, from) in descriptor.iter_mut().zip(fields.concat()) {
            *to = from;
        }
        self.poke(DESCRIPTORS + at + u64::from(index) * 16, &descriptor);
        Some(())
    }

    /// One step; `None` when the program ends.
    fn step(&mut self, program: &mut Program<'_>) -> Option<()> {
        let byte = program.byte()?;
        let (kind, at) = (byte % STEPS, rings(u32::from(byte / STEPS)));
        match kind {
            0 => self.bring_up(program.word()?, at > 0),
            1 => self.set(u16::from(program.byte()?) & 0xfc, program.word()?),
            2 => {
                let (offset, data) = (program.half()?, program.take::<8>()?);
                let width = usize::from(program.byte()? % 9);
                let _ = self.transport.write((offset & 0x1ff).into(), data.get(..width)?);
            }
            3 => {
                let (offset, mut data) = (address(program)?, [0; 8]);
                let width = usize::from(program.byte()? % 9);
                self.transport.read(offset & 0x1fff, data.get_mut(..width)?);
            }
            4 => self.poke(address(program)?, &program.take::<8>()?),
            5 | 6 => {
                let index = u16::from(program.byte()?) & 0x1f;
                self.describe(program, index, at)?;
            }
            7 | 8 => {
                // Offer a chain: an entry in the available ring, then its index.
                let (slot, head) = (u16::from(program.byte()?), u16::from(program.byte()?) & 0x1f);
                self.poke(AVAILABLE + at + 4 + u64::from(slot % QUEUE_SIZE) * 2, &head.to_le_bytes());
                self.poke(AVAILABLE + at + 2, &slot.wrapping_add(1).to_le_bytes());
            }
            9 => {
                // A header: of a block request, and, in what a disk does not look at, of a vsock packet.
                let (address, kind, sector) = (address(program)?, program.byte()?, program.byte()?);
                self.poke(address, &u32::from(kind & 0x0f).to_le_bytes());
                self.poke(address.wrapping_add(8), &u64::from(sector).to_le_bytes());
                if kind & 0x80 != 0 {
                    self.poke(address, &packet(kind, sector));
                }
                // A command of an interface: how many pairs of queues are used.
                if kind & 0xc0 == 0x40 {
                    self.poke(address, &[4, 0, sector & 7, 0]);
                }
            }
            kind => {
                let byte = program.byte()?;
                if let Some(peer) = self.peer.as_mut().filter(|_| kind == 11) {
                    peer.speak(byte);
                }
                self.set(0x50, byte.into());
                self.serve();
            }
        }
        Some(())
    }

    /// Steps until the program ends, or there were enough.
    fn run(&mut self, program: &mut Program<'_>) {
        for _ in 0..STEPS_MAX {
            if self.step(program).is_none() {
                break;
            }
        }
    }

    /// What must hold whatever the driver did.
    fn check(&mut self) {
        let mut magic = [0; 4];
        self.transport.read(0, &mut magic);
        assert_eq!(&magic, b"virt");
        // Reset always works, and leaves nothing behind.
        self.set(0x70, 0);
        for register in [0x70, 0x60, 0x44] {
            let mut value = [0xff; 4];
            self.transport.read(register, &mut value);
            assert_eq!(value, [0; 4], "register {register:#x} after reset");
        }
        self.set(0x50, 0);
        self.serve();
    }
}

/// The header of a packet from guest 3 to the host, for which `what` says what it is about and `which` between whom.
fn packet(what: u8, which: u8) -> [u8; 44] {
    let mut header = [0; 44];
    header[0] = 3;
    header[8] = 2;
    header[16] = which & 3;
    // Of a connection that a program has asked for, or of one that the guest does.
    header[20] = which >> 4 & 3;
    header[23] = if which & 0x80 == 0 { 0 } else { 0x40 };
    header[24] = which;
    header[28] = 1;
    header[30] = what & 7;
    header[32] = what >> 4 & 3;
    header[37] = which;
    header
}

/// Runs `program` against a block device on `disk` or, depending on the first byte, a read-only one, an rng, a network interface, a
/// vsock device, a balloon or a console.
/// Panics if a device does; fails only when the host has no memory, descriptors or random numbers.
pub fn exercise(program: &[u8], disk: &File) -> io::Result<()> {
    let mut program = Program(program);
    let made = match program.byte().unwrap_or(0) % 7 {
        0 => host::rng(),
        3 => host::network(1 + program.0.len() % 3),
        4 => host::vsock(),
        5 => Ok(host::balloon()),
        6 => host::console(),
        kind => {
            let (io_uring, num_queues) =
                (program.0.len().is_multiple_of(2), if program.0.len() % 3 == 0 { 2 } else { 1 });
            host::block(disk, Settings { readonly: kind == 1, io_uring, num_queues, ..Settings::default() })
        }
    };
    let mut machine = Machine::new(made?)?;
    machine.run(&mut program);
    machine.check();
    Ok(())
}

/// Makes a device what `state` says, of the kind and as many queues as that has, if it can be; then `program` is its driver. Whether it
/// could be. Panics and fails as [`exercise`] does.
pub(crate) fn go_on(state: &VirtioState, program: &[u8], disk: &File) -> io::Result<bool> {
    let make = || Machine::new(like(state, disk)?);
    let (mut machine, mut another, state) = (make()?, make()?, DeviceState::Virtio(Box::new(state.clone())));
    if machine.transport.restore(&state).is_err() {
        return Ok(false);
    }
    // Nothing of it is lost, and what was taken once is taken again.
    let saved = machine.transport.save().ok().flatten();
    assert_eq!(saved.as_ref().map(|saved| another.transport.restore(saved)), Some(Ok(())), "{saved:?}");
    assert_eq!(another.transport.save(), Ok(saved));
    machine.transport.awake();
    machine.serve();
    machine.run(&mut Program(program));
    machine.check();
    Ok(true)
}

/// A device that may have been saved as `state`.
fn like(state: &VirtioState, disk: &File) -> io::Result<Made> {
    let queues = state.queues.len();
    match state.device_type {
        VIRTIO_ID_NET => host::network((queues / 2).clamp(1, 3)),
        VIRTIO_ID_VSOCK => host::vsock(),
        VIRTIO_ID_BALLOON => Ok(host::balloon()),
        VIRTIO_ID_CONSOLE => host::console(),
        VIRTIO_ID_BLOCK => {
            let num_queues = u16::try_from(queues.clamp(1, 2)).unwrap_or(1);
            host::block(disk, Settings { io_uring: false, num_queues, ..Settings::default() })
        }
        _ => host::rng(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the driver of a vsock device does that asks for a connection: all queues, a header in the second one's chain, and
    /// room for the answer in the first one's.
    #[test]
    fn all_queues_of_a_device_work_together() {
        let mut machine = Machine::new(host::vsock().unwrap()).unwrap();
        machine.bring_up(0, true);
        for queue in 0..3 {
            machine.set(0x30, queue);
            let mut ready = [0; 4];
            machine.transport.read(0x44, &mut ready);
            assert_eq!(ready, [1, 0, 0, 0], "queue {queue}");
        }
        let descriptor = |address: u64, flags: u16| {
            [&address.to_le_bytes()[..], &44_u32.to_le_bytes(), &flags.to_le_bytes(), &[0, 0]].concat()
        };
        machine.poke(0xd000, &packet(1, 0));
        for (queue, bytes) in [(0, descriptor(0xd800, 2)), (1, descriptor(0xd000, 0))] {
            machine.poke(DESCRIPTORS + rings(queue), &bytes);
            machine.poke(AVAILABLE + rings(queue) + 2, &[1, 0, 0, 0]);
        }
        for queue in [1, 0] {
            machine.set(0x50, queue);
            machine.serve();
        }
        let used = |queue: u32| machine.memory.read_obj::<u16>(GuestAddress(USED + rings(queue) + 2)).unwrap();
        assert_eq!((used(0), used(1)), (1, 1));
        machine.check();
    }
}
