// SPDX-License-Identifier: Apache-2.0
//! Hostile firmware made of bytes: what the fuzz target and a property test both run.
//!
//! The bytes are a program of small steps: port accesses of any kind and width, and DMA requests with any operands.

use std::fs::File;
use std::io::{self, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use vm_memory::{Bytes, GuestAddress};

use super::{Content, FileName, FwCfg, Items, key};
use crate::devices::Bus;
use crate::devices::bus::lock;
use crate::devices::program::Program;
use crate::devices::running::Running;
use crate::layout::PORT_FW_CFG;
use crate::memory::GuestMemory;

/// Steps after which a program ends, however long it is.
const STEPS_MAX: usize = 256;
/// Guest memory: a low and a high part, with a hole between.
const LOW_SIZE: usize = 0x2_0000;
const HIGH_START: u64 = 0x4_0000;
const HIGH_SIZE: usize = 0x8000;
/// Longer than any file takes.
const LONG: Duration = Duration::from_secs(60);
/// Bytes of the file.
const FILE_LENGTH: u64 = 5000;
const FILE_START: u64 = 3;

/// An address: mostly inside guest memory or at its edges, sometimes anywhere.
fn address(program: &mut Program<'_>) -> Option<u64> {
    let low = u64::from(program.half()?);
    Some(match program.byte()? {
        0..=139 => low,
        140..=179 => HIGH_START + low,
        180..=209 => LOW_SIZE as u64 - (low & 0x1f),
        210..=239 => u64::MAX - low,
        _ => u64::from_le_bytes(program.take()?),
    })
}

/// A length: mostly one that a request would have, sometimes any.
fn length(program: &mut Program<'_>) -> Option<u32> {
    Some(match program.byte()? {
        kind @ 0..=63 => kind.into(),
        64..=223 => program.half()?.into(),
        _ => program.word()?,
    })
}

/// A key: mostly one that there is.
fn some_key(program: &mut Program<'_>) -> Option<u16> {
    Some(match program.byte()? {
        kind @ 0..=191 => u16::from(kind & 0x3f),
        _ => program.half()?,
    })
}

struct Machine {
    ports: Bus,
    memory: GuestMemory,
    device: Arc<Mutex<FwCfg>>,
    /// A host without room for a thread answers every fetch with an error, which is an answer.
    thread: Option<Running>,
}

impl Machine {
    fn new(file: &File) -> Option<Self> {
        let memory =
            crate::memory::guest::from_ranges(&[(GuestAddress(0), LOW_SIZE), (GuestAddress(HIGH_START), HIGH_SIZE)])
                .ok()?;
        let part = Content::File { file: Arc::new(file.try_clone().ok()?), start: FILE_START, length: FILE_LENGTH };
        let numbered = [(key::CPUS, Content::half(2)), (key::KERNEL_DATA, part)];
        let files =
            [(FileName::new("a"), Content::Bytes(vec![1; 100])), (FileName::new("b"), Content::Bytes(Vec::new()))];
        let mut ports = Bus::new();
        let mut device = FwCfg::new(Items::new(numbered, files), memory.clone());
        let thread = device.start(|| Some(())).ok().flatten();
        let device = Arc::new(Mutex::new(device));
        ports.insert_stream(PORT_FW_CFG, device.clone()).ok()?;
        Some(Self { ports, memory, device, thread })
    }

    fn write(&self, port: u64, data: &[u8]) {
        assert_eq!(self.ports.write(PORT_FW_CFG.start + port, data), None, "fw_cfg asks nothing of the machine");
    }

    fn read(&self, port: u64, data: &mut [u8]) {
        self.ports.read(PORT_FW_CFG.start + port, data);
    }

    /// A transfer by the structure at `at`, which is written if there is memory.
    fn transfer(&self, at: u64, control: u32, length: u32, address: u64) {
        let fields = [&control.to_be_bytes()[..], &length.to_be_bytes(), &address.to_be_bytes()].concat();
        let _ = self.memory.write_slice(&fields, GuestAddress(at));
        let [a, b, c, d, low @ ..] = at.to_be_bytes();
        self.write(4, &[a, b, c, d]);
        self.write(8, &low);
    }

    /// One step; `None` when the program ends.
    fn step(&self, program: &mut Program<'_>) -> Option<()> {
        match program.byte()? % 8 {
            0 => self.write(0, &some_key(program)?.to_le_bytes()),
            1 => {
                let width = usize::from(program.half()? % 4097);
                self.read(1, &mut vec![0; width]);
            }
            2 => {
                let (port, mut data) = (u64::from(program.byte()? % 16), [0; 8]);
                let width = usize::from(program.byte()? % 9);
                self.read(port, data.get_mut(..width)?);
            }
            3 => {
                let (port, data) = (u64::from(program.byte()? % 16), program.take::<8>()?);
                let width = usize::from(program.byte()? % 9);
                self.write(port, data.get(..width)?);
            }
            4 => self.pause(program.byte()? % 2 == 0),
            _ => {
                let (at, key, operations) = (address(program)?, some_key(program)?, program.byte()?);
                let control = u32::from(key) << 16 | u32::from(operations);
                self.transfer(at, control, length(program)?, address(program)?);
            }
        }
        Some(())
    }

    /// Has the thread that reads files rest, or go on.
    fn pause(&self, rest: bool) {
        let Some(thread) = &self.thread else { return };
        if rest {
            thread.ask_to_pause();
            assert!(thread.await_pause(LONG).is_ok(), "fw_cfg does not rest");
        } else {
            thread.resume();
        }
    }

    /// Waits until no file is being read, and no answer is on its way to memory.
    fn wait(&self) {
        while lock(&self.device).is_busy() {
            std::thread::yield_now();
        }
    }

    /// What must hold whatever the firmware did: the device still says who it is, by port and by DMA.
    fn check(&self) {
        self.pause(false);
        self.wait();
        self.write(0, &key::SIGNATURE.to_le_bytes());
        let mut signature = [0; 4];
        self.read(1, &mut signature);
        assert_eq!(&signature, b"QEMU");
        self.transfer(0x100, 0b1010, 4, 0x200);
        let answer = self.memory.read_obj::<[u8; 4]>(GuestAddress(0x100)).ok();
        assert_eq!(answer, Some([0; 4]));
        let signature = self.memory.read_obj::<[u8; 4]>(GuestAddress(0x200)).ok();
        assert_eq!(signature, Some(*b"QEMU"));
    }
}

/// A file for [`exercise`].
pub fn fill(file: &mut File) -> io::Result<()> {
    file.write_all(&vec![0xab; usize::try_from(FILE_START + FILE_LENGTH).unwrap_or(0)])
}

/// Runs `program` against a device of which one item is a part of `file`, which may be shorter. Panics if the device does;
/// fails only when the host has no memory or descriptors.
pub fn exercise(program: &[u8], file: &File) -> io::Result<()> {
    let mut program = Program(program);
    let Some(machine) = Machine::new(file) else { return Err(io::ErrorKind::OutOfMemory.into()) };
    for _ in 0..STEPS_MAX {
        if machine.step(&mut program).is_none() {
            break;
        }
    }
    machine.check();
    Ok(())
}
