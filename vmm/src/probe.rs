// SPDX-License-Identifier: Apache-2.0
//! Can this host's KVM run an ordinary guest?
//!
//! A device node that opens proves little: there are KVMs that run 16-bit code and end with an emulation failure at
//! the first `LOCK CMPXCHG16B`, or interpret kernel-mode code hundreds of times too slowly. So a tiny 64-bit guest is
//! run in ring 0, with page tables: it does that instruction and then some loop turns, under a time limit.

use std::io;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use kvm_bindings::KVM_MAX_CPUID_ENTRIES;
use kvm_ioctls::{Kvm, VcpuExit};
use vm_memory::{Bytes, GuestAddress};

use crate::cpu::registers;
use crate::memory::{Backing, GpaRange, Slot, guest};
use crate::vm::{self, VmError};

/// Where the guest's code is, and where it does its exchange; below the boot page tables, which `registers` writes.
const CODE: u64 = 0x1000;
const EXCHANGE: u64 = 0x2000;
const MEMORY: u64 = 0x10000;
/// Port and value that say that the guest came through.
const PORT: u16 = 0xf4;
const DONE: u8 = 0x42;

/// Loop turns: enough to tell a processor from an interpreter.
const TURNS: u32 = 4_000_000;

/// Longest that a probe may take. Hardware needs milliseconds, a nested emulator tenths of a second; a KVM that
/// interprets needs many seconds. No result depends on the exact value.
const LIMIT: Duration = Duration::from_secs(3);

/// Why KVM cannot run guests.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// KVM itself cannot be used.
    #[error(transparent)]
    Vm(#[from] VmError),
    /// The tiny guest could not be set up.
    #[error("KVM: the probe guest cannot be set up: {0}")]
    Setup(String),
    /// The tiny guest failed.
    #[error(
        "/dev/kvm: opens, but cannot run ordinary guests: {0}; nested virtualization of this kind is not enough, \
         use a host with full KVM or the emulated KVM host"
    )]
    Unusable(String),
    /// The tiny guest did not finish.
    #[error(
        "/dev/kvm: opens, but runs guest code far too slowly to boot anything; \
         use a host with full KVM or the emulated KVM host"
    )]
    TooSlow,
}

/// Runs the probe guest, for a few seconds at most. No part of a boot: `flatboot check` asks, and a VM that KVM could not go on
/// with does, to know whether it was the host's fault.
///
/// `kvm` is KVM, if it is open; it is opened otherwise. A guest that does not finish in time keeps its thread; the caller is
/// expected to exit soon after.
pub fn try_guest(kvm: Option<Kvm>) -> Result<(), ProbeError> {
    let (sender, result) = channel();
    thread::Builder::new()
        .name("probe".to_owned())
        .spawn(move || drop(sender.send(run_guest(kvm))))
        .map_err(|error| ProbeError::Setup(error.to_string()))?;
    match result.recv_timeout(LIMIT) {
        Ok(result) => result,
        Err(RecvTimeoutError::Timeout) => Err(ProbeError::TooSlow),
        Err(RecvTimeoutError::Disconnected) => Err(ProbeError::Setup("its thread ended".to_owned())),
    }
}

fn run_guest(kvm: Option<Kvm>) -> Result<(), ProbeError> {
    let kvm = kvm.map_or_else(vm::open_kvm, Ok)?;
    let setup = |e: &dyn std::fmt::Display| ProbeError::Setup(e.to_string());
    let memory = guest::map(&[Slot::new(GpaRange::of(0, MEMORY), Backing::default())]).map_err(|e| setup(&e))?;
    registers::write_tables(&memory).map_err(|e| setup(&e))?;
    memory.write_slice(&code(TURNS), GuestAddress(CODE)).map_err(|e| setup(&e))?;
    let fd = vm::create(&kvm).map_err(|e| failed("KVM_CREATE_VM", e))?;
    vm::set_memory(&fd, &memory)?;
    let mut vcpu = fd.create_vcpu(0).map_err(|e| failed("KVM_CREATE_VCPU", e))?;
    // Without CPUID, KVM allows no long mode.
    let cpuid = kvm.get_supported_cpuid(KVM_MAX_CPUID_ENTRIES).map_err(|e| failed("KVM_GET_SUPPORTED_CPUID", e))?;
    vcpu.set_cpuid2(&cpuid).map_err(|e| failed("KVM_SET_CPUID2", e))?;
    vm::set_boot_registers(&vcpu, CODE)?;
    let mut regs = registers::general(CODE);
    regs.rsi = EXCHANGE;
    vcpu.set_regs(&regs).map_err(|e| failed("KVM_SET_REGS", e))?;
    loop {
        match vcpu.run() {
            Ok(VcpuExit::IoOut(PORT, [DONE])) => return Ok(()),
            Ok(VcpuExit::Intr) => {}
            Ok(VcpuExit::InternalError) => {
                return Err(ProbeError::Unusable("emulation failure at LOCK CMPXCHG16B or a loop".to_owned()));
            }
            Ok(other) => return Err(ProbeError::Unusable(format!("the probe guest ended with {other:?}"))),
            Err(e) if e.errno() == libc::EINTR || e.errno() == libc::EAGAIN => {}
            Err(e) => return Err(failed("KVM_RUN", e)),
        }
    }
}

fn failed(call: &'static str, error: kvm_ioctls::Error) -> ProbeError {
    ProbeError::Vm(VmError::Ioctl { call, source: io::Error::from_raw_os_error(error.errno()) })
}

/// `lock cmpxchg16b [rsi]; mov ecx, turns; 1: dec ecx; jnz 1b; mov al, DONE; out PORT, al; hlt`
fn code(turns: u32) -> Vec<u8> {
    let mut code = vec![0xf0, 0x48, 0x0f, 0xc7, 0x0e, 0xb9];
    code.extend(turns.to_le_bytes());
    code.extend([0xff, 0xc9, 0x75, 0xfc, 0xb0, DONE, 0xe6, PORT.to_le_bytes()[0], 0xf4]);
    code
}
