// SPDX-License-Identifier: Apache-2.0
//! What the boot CPU runs first: a kernel that flatboot loads, or firmware that finds all else by itself.

use kvm_bindings::{KVM_MAX_CPUID_ENTRIES, kvm_cpuid_entry2};
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
use crate::memory::{MemoryPlan, PayloadKind, Size};
use crate::timeline::Timeline;
use crate::vm::{self, Start, Vm};

/// Bits of a physical address that EDK2 uses at most: it maps each to itself by four levels of page tables, without their upper half.
const FIRMWARE_BITS: u8 = 47;
/// The same where it has no pages of 1 GiB to do that with.
const FIRMWARE_BITS_WITHOUT_GIGABYTES: u8 = 40;

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

    /// Checks that what runs finds all memory: EDK2 leaves out a range that does not end below its last address, and whoever it starts
    /// would do without. If there is no `kvm` to ask, its addresses are taken to be as wide as they ever are.
    pub(super) fn check_memory(&self, plan: &MemoryPlan, kvm: Option<&Kvm>) -> Result<(), BootError> {
        let Self::Firmware { .. } = self else { return Ok(()) };
        check_room(plan, kvm.map_or(Ok(FIRMWARE_BITS), firmware_bits)?)
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

/// How wide firmware's physical addresses are on this host.
fn firmware_bits(kvm: &Kvm) -> Result<u8, BootError> {
    let supported = kvm.get_supported_cpuid(KVM_MAX_CPUID_ENTRIES).map_err(vm::ioctl("KVM_GET_SUPPORTED_CPUID"))?;
    Ok(firmware_bits_of(supported.as_slice()))
}

/// The same on a processor that has `table`: CPUID 0x80000001, bit 26 of EDX says that it has pages of 1 GiB.
fn firmware_bits_of(table: &[kvm_cpuid_entry2]) -> u8 {
    let has_gigabytes = |entry: &kvm_cpuid_entry2| entry.function == 0x8000_0001 && entry.edx & 1 << 26 != 0;
    if table.iter().any(has_gigabytes) { FIRMWARE_BITS } else { FIRMWARE_BITS_WITHOUT_GIGABYTES }
}

/// Checks that all memory is where firmware has addresses of `bits`.
fn check_room(plan: &MemoryPlan, bits: u8) -> Result<(), BootError> {
    let end = plan.ram().last().map_or(0, |range| range.end());
    let beyond = end.saturating_sub(1 << bits);
    if beyond == 0 {
        return Ok(());
    }
    let size = plan.input().size();
    Err(BootError::FirmwareMemory { size, max: Size(size.0 - beyond), bits })
}

fn inspect(kernel: &KernelConfig) -> Result<kernel::Image, KernelError> {
    kernel::Image::inspect(kernel.image.path(), kernel.image.file())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::config::FIRMWARE;
    use crate::images;
    use crate::memory::{AddressWidth, MemorySize, PlanInput};

    const MIB: u64 = 1 << 20;
    /// 2^40 and 2^47 bytes, less what is not memory below 4 GiB.
    const MOST: [u64; 2] = [(1 << 40) - 3584 * MIB, (1 << 47) - 3584 * MIB];

    fn plan(size: u64, holes: u16) -> MemoryPlan {
        let mut input = PlanInput::new(MemorySize::try_from(size).unwrap());
        input.study.holes = holes;
        MemoryPlan::new(&input, PayloadKind::Firmware, AddressWidth::WIDEST).unwrap()
    }

    #[test]
    fn pages_of_a_gigabyte_give_firmware_wide_addresses() {
        let entry = |function, edx| kvm_cpuid_entry2 { function, edx, ..Default::default() };
        assert_eq!(firmware_bits_of(&[entry(1, !0), entry(0x8000_0001, 1 << 26)]), 47);
        assert_eq!(firmware_bits_of(&[entry(1, !0), entry(0x8000_0001, !(1 << 26))]), 40);
        assert_eq!(firmware_bits_of(&[]), 40);
    }

    #[test]
    fn memory_ends_where_firmware_has_addresses() {
        for (bits, most) in [40, 47].into_iter().zip(MOST) {
            check_room(&plan(most, 0), bits).unwrap();
            // The size that is said to be right is.
            for (size, holes, max) in [(most + MIB, 0, most), (most, 7, most - 7 * 128 * MIB), (2 * most, 0, most)] {
                let error = check_room(&plan(size, holes), bits).unwrap_err();
                assert!(matches!(error, BootError::FirmwareMemory { max: Size(found), .. } if found == max), "{error}");
                check_room(&plan(max, holes), bits).unwrap();
            }
        }
        let line = "memory.size=2T: firmware has 40-bit physical addresses here: must be at most 1044992M, or payload.kernel alone";
        assert_eq!(check_room(&plan(1 << 41, 0), 40).unwrap_err().to_string(), line);
    }

    #[test]
    fn only_firmware_is_short_of_addresses() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("firmware");
        fs::write(&path, images::firmware()).unwrap();
        let file = InputFile::open(FIRMWARE, &path).unwrap();
        let firmware = Inspected::Firmware { image: firmware::Image::inspect(&file).unwrap(), kernel: None };
        firmware.check_memory(&plan(MOST[1], 0), None).unwrap();
        let large = plan(1 << 47, 0);
        firmware.check_memory(&large, None).unwrap_err();
        Inspected::Saved.check_memory(&large, None).unwrap();
    }
}
