// SPDX-License-Identifier: Apache-2.0
//! What the boot CPU runs first: a kernel that flatboot loads, or firmware that finds all else by itself.

use kvm_ioctls::Kvm;

use super::devices::Devices;
use super::entry::Context;
use super::error::BootError;
use super::load::{self, Tables};
use super::platform::Platform;
use crate::config::{InputFile, KernelConfig, Payload};
use crate::cpu::topology::CpuTopology;
use crate::devices::fw_cfg::FwCfg;
use crate::firmware::{self, Description, FirmwareError};
use crate::kernel::{self, KernelError};
use crate::memory::PayloadKind;
use crate::timeline::Timeline;
use crate::vm::{Start, Vm};

/// A payload whose files have been looked at.
#[derive(Debug)]
pub(super) enum Inspected<'a> {
    /// A kernel, to be loaded into guest memory.
    Kernel { config: &'a KernelConfig, image: kernel::Image },
    /// Firmware, and the kernel that it can fetch, with the length of its setup part.
    Firmware { image: firmware::Image<'a>, kernel: Option<(&'a KernelConfig, u64)> },
    /// None: the VM goes on with what is in its memory.
    Saved,
}

impl<'a> Inspected<'a> {
    /// Looks at the files of `payload`, which is to run on `cpus`.
    pub(super) fn new(payload: &'a Payload, cpus: CpuTopology) -> Result<Self, BootError> {
        match payload {
            Payload::Kernel(config) => Ok(Self::Kernel { config, image: inspect(config)? }),
            Payload::Firmware(firmware) => {
                let image = firmware::Image::inspect(&firmware.image)?;
                if cpus.needs_wide_ids() {
                    return Err(FirmwareError::TooManyVcpus { largest: cpus.largest_apic_id() }.into());
                }
                let fetched = |config: &'a KernelConfig| Ok((config, inspect(config)?.efi_setup_length()?));
                let kernel = firmware.kernel.as_ref().map(fetched).transpose();
                Ok(Self::Firmware { image, kernel: kernel.map_err(|error: KernelError| BootError::Kernel(error))? })
            }
            Payload::Saved => Ok(Self::Saved),
        }
    }

    /// What has been looked at, as the timeline says it.
    pub(super) const fn phase(&self) -> &'static str {
        match self {
            Self::Kernel { .. } => "kernel image checked",
            Self::Firmware { .. } => "firmware image checked",
            Self::Saved => "state checked",
        }
    }

    /// What of it goes into memory before the guest runs.
    pub(super) fn kind(&self) -> PayloadKind {
        match self {
            Self::Kernel { config, image } => {
                let initramfs = config.initramfs.as_ref().map(InputFile::length);
                PayloadKind::Kernel { image: Some(image.footprint()), initramfs }
            }
            Self::Firmware { .. } => PayloadKind::Firmware,
            Self::Saved => PayloadKind::Kernel { image: None, initramfs: None },
        }
    }

    /// Before the first vCPU: makes flash for firmware, and what answers its questions. Guest memory stays as it was mapped.
    pub(super) fn install(
        &self,
        platform: Platform<'_>,
        kvm: &Kvm,
        vm: &mut Vm,
        devices: &mut Devices,
        context: &Context,
    ) -> Result<(), BootError> {
        let Self::Firmware { image, kernel } = self else { return Ok(()) };
        let Platform { config, plan, memory, .. } = platform;
        vm.insert_flash(kvm, memory, firmware::flash(image)?)?;
        let description = Description { plan, hand_off: &config.hand_off, acpi: platform.acpi(), kernel: *kernel };
        devices.insert_fw_cfg(FwCfg::new(firmware::items(&description)?, memory.clone()), context)?;
        context.timeline.phase("flash and fw_cfg ready");
        Ok(())
    }

    /// Loads a kernel and what it reads before it owns its memory. Where the boot CPU starts is returned.
    pub(super) fn load(self, platform: Platform<'_>, timeline: &Timeline) -> Result<Start, BootError> {
        let (kernel, mut image) = match self {
            Self::Kernel { config, image } => (config, image),
            Self::Firmware { .. } => return Ok(Start::ResetVector),
            Self::Saved => return Ok(Start::Saved),
        };
        let Platform { config, plan, memory, .. } = platform;
        image.load(memory)?;
        load::initramfs(memory, kernel.initramfs.as_ref(), plan.initramfs())?;
        timeline.phase("kernel and initramfs loaded");

        let (cmdline, hand_off, acpi) = (&kernel.cmdline, &config.hand_off, platform.acpi());
        load::tables(memory, &Tables { cmdline, hand_off, plan, image: &image, acpi })?;
        timeline.phase("boot tables written");
        Ok(Start::Kernel(image.entry()))
    }
}

fn inspect(kernel: &KernelConfig) -> Result<kernel::Image, KernelError> {
    kernel::Image::inspect(kernel.image.path(), kernel.image.file())
}
