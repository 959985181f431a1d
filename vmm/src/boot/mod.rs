// SPDX-License-Identifier: Apache-2.0
//! The boot story: from a valid configuration to a running guest, one named phase after another.

mod assemble;
mod entry;
mod error;
mod load;
mod machine;

use std::sync::Arc;

use crate::config::{Config, FirmwareConfig, InputFile, KernelConfig, MachineConfig, Payload};
use crate::devices::fw_cfg::FwCfg;
use crate::firmware::{self, Description, FirmwareError, Flash};
use crate::kernel::{self, KernelError};
use crate::memory::{AddressWidth, MemoryPlan, PayloadKind, PlanInput};
use crate::sandbox::Kind;
use crate::timeline::Timeline;
use crate::vm::Start;
use assemble::Assembled;

pub use assemble::{Booted, Prepared};
pub use entry::{Control, Entry};
pub use error::BootError;
pub use machine::Console;

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
