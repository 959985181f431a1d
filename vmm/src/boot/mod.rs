// SPDX-License-Identifier: Apache-2.0
//! The boot story: from a valid configuration to a running guest, one named phase after another.

mod assemble;
mod entry;
mod load;
mod machine;

use std::sync::Arc;

use crate::config::{Config, FileError, FirmwareConfig, InputFile, KernelConfig, MachineConfig, Payload};
use crate::devices::fw_cfg::FwCfg;
use crate::devices::running::WorkerError;
use crate::ender::Ender;
use crate::firmware::{self, Description, FirmwareError, Flash};
use crate::kernel::{self, KernelError};
use crate::memory::guest::MapError;
use crate::memory::host::HostError;
use crate::memory::prefault::PrefaultError;
use crate::memory::{AddressWidth, MemoryPlan, PayloadKind, PlanError, PlanInput};
use crate::sandbox::{Jail, JailError, Kind};
use crate::timeline::Timeline;
use crate::vcpu::VcpuError;
use crate::vm::{Start, VmError};
use assemble::Assembled;
use entry::Entries;

pub use assemble::{Booted, Prepared};
pub use entry::Entry;
pub use machine::Console;

/// What the threads of a VM have in common.
#[derive(Debug)]
pub struct Control {
    ender: Ender,
    jail: Jail,
    once: bool,
    entries: Arc<Entries>,
}

impl Control {
    /// For a VM whose threads report its end to `ender` and enter `jail` before the guest runs. With `once`, the thread that boots
    /// it boots no other one, and enters last.
    #[must_use]
    pub fn new(ender: Ender, jail: Jail, once: bool) -> Self {
        Self { ender, jail, once, entries: Arc::default() }
    }
}
/// Why a VM did not start. Each source names the thing, the value and what would be right.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each variant passes on the error of the module that it is named after")]
pub enum BootError {
    #[error(transparent)]
    Kernel(#[from] KernelError),
    #[error(transparent)]
    Firmware(#[from] FirmwareError),
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error(transparent)]
    Host(#[from] HostError),
    #[error(transparent)]
    Map(#[from] MapError),
    #[error(transparent)]
    Prefault(#[from] PrefaultError),
    #[error(transparent)]
    Vm(#[from] VmError),
    #[error(transparent)]
    Vcpu(#[from] VcpuError),
    #[error(transparent)]
    Load(#[from] load::LoadError),
    #[error(transparent)]
    Machine(#[from] machine::MachineError),
    #[error(transparent)]
    Worker(#[from] WorkerError),
    #[error(transparent)]
    Output(#[from] FileError),
    #[error(transparent)]
    Jail(#[from] JailError),
    #[error("signals cannot be handled")]
    Signals(#[source] std::io::Error),
}

/// Brings the VM that `config` describes as far as it can come without running.
///
/// The order is part of the product: whatever can fail on the user's input comes before anything is created; vCPU
/// threads start before the kernel is loaded, so that they back memory meanwhile; the boot CPU goes last. What the user wants
/// backed beforehand is backed meanwhile, too, by threads of its own: before the guest runs, or not at all.
pub fn prepare(config: Config, timeline: &Arc<Timeline>, control: &Control) -> Result<Prepared, BootError> {
    match config.payload {
        Payload::Kernel(kernel) => direct(&kernel, config.machine, timeline, control),
        Payload::Firmware(firmware) => through_firmware(&firmware, config.machine, timeline, control),
    }
}

/// Finds what of a boot can be wrong with what runs and its memory, as long as nothing of it is there. The guest's physical
/// addresses are of `width`.
pub fn check(payload: &Payload, memory: &PlanInput, width: AddressWidth) -> Result<(), BootError> {
    let kind = match payload {
        Payload::Kernel(kernel) => {
            let image = kernel::Image::inspect(kernel.image.path(), kernel.image.file())?;
            kind(kernel, &image)
        }
        Payload::Firmware(firmware) => {
            firmware::Image::inspect(&firmware.image)?;
            firmware.kernel.as_ref().map(fetched_kernel).transpose()?;
            PayloadKind::Firmware
        }
    };
    MemoryPlan::new(memory, kind, width)?;
    Ok(())
}

/// Loads the kernel.
fn direct(
    kernel: &KernelConfig,
    config: MachineConfig,
    timeline: &Arc<Timeline>,
    control: &Control,
) -> Result<Prepared, BootError> {
    let mut image = kernel::Image::inspect(kernel.image.path(), kernel.image.file())?;
    timeline.phase("kernel image checked");

    let assembled = Assembled::new(config, kind(kernel, &image), timeline)?;
    let vm = assembled.start(control, timeline)?;

    image.load(&vm.memory)?;
    load::initramfs(&vm.memory, kernel.initramfs.as_ref(), vm.plan.initramfs())?;
    timeline.phase("kernel and initramfs loaded");

    let tables = load::Tables {
        cmdline: &kernel.cmdline,
        hand_off: &vm.config.hand_off,
        plan: &vm.plan,
        image: &image,
        acpi: vm.acpi(),
    };
    load::tables(&vm.memory, &tables)?;
    timeline.phase("boot tables written");

    vm.prepared(Start::Kernel(image.entry()), timeline)
}

/// Makes flash for firmware, which finds all else by itself: guest memory is as it was mapped.
fn through_firmware(
    firmware: &FirmwareConfig,
    config: MachineConfig,
    timeline: &Arc<Timeline>,
    control: &Control,
) -> Result<Prepared, BootError> {
    let image = firmware::Image::inspect(&firmware.image)?;
    if config.cpus.topology.needs_wide_ids() {
        return Err(FirmwareError::TooManyVcpus { largest: config.cpus.topology.largest_apic_id() }.into());
    }
    timeline.phase("firmware image checked");

    let kernel = firmware.kernel.as_ref().map(fetched_kernel).transpose()?;
    let mut assembled = Assembled::new(config, PayloadKind::Firmware, timeline)?;

    let flash = Flash::load(&image)?;
    assembled.vm.insert_flash(&assembled.kvm, &assembled.memory, flash)?;
    let description =
        Description { plan: &assembled.plan, hand_off: &assembled.config.hand_off, acpi: assembled.acpi(), kernel };
    let entry = Entry::new(control, Kind::FwCfg, "fw_cfg".to_owned());
    let mut fw_cfg = FwCfg::new(firmware::items(&description)?, assembled.memory.clone());
    let thread = fw_cfg.start(|| entry.pass())?;
    assembled.machine.insert_fw_cfg(fw_cfg, thread)?;
    timeline.phase("flash and fw_cfg ready");

    let vm = assembled.start(control, timeline)?;
    vm.prepared(Start::ResetVector, timeline)
}

/// A kernel that firmware can start, with the length of its setup part.
fn fetched_kernel(kernel: &KernelConfig) -> Result<(&KernelConfig, u64), KernelError> {
    let image = kernel::Image::inspect(kernel.image.path(), kernel.image.file())?;
    Ok((kernel, image.efi_setup_length()?))
}

/// What goes into memory for a kernel that flatboot loads.
fn kind(kernel: &KernelConfig, image: &kernel::Image) -> PayloadKind {
    let initramfs = kernel.initramfs.as_ref().map(InputFile::length);
    PayloadKind::Kernel { image: Some(image.footprint()), initramfs }
}

#[cfg(test)]
mod tests;
