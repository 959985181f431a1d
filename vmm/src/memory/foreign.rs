// SPDX-License-Identifier: Apache-2.0
//! Hand-offs for VMs under other VMMs, which know nothing of them: the table goes in by their `fw_cfg`, or as a file that they
//! load to an address.

use std::fmt;

use clap::ValueEnum;
use flatboot_handoff::{Arena, Region, RegionFlags, TableError, encode, encoded_len};

use super::arenas::arenas;
use super::range::GpaRange;
use super::size::{MemorySize, Size};
use crate::field::Field;
use crate::layout::ABOVE_4G;

const SIZE: Field = Field::of("memory", "size");
const GIB: u64 = 1 << 30;

/// A VMM whose layout of memory is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[expect(missing_docs, reason = "a comment here would become the help's text")]
pub enum Foreign {
    QemuMicrovm,
    QemuQ35,
    CloudHypervisor,
}

impl Foreign {
    /// Its name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::QemuMicrovm => "qemu-microvm",
            Self::QemuQ35 => "qemu-q35",
            Self::CloudHypervisor => "cloud-hypervisor",
        }
    }

    /// Most memory that a VM of it can have without any above 4 GiB.
    const fn low_max(self) -> u64 {
        match self {
            // QEMU hw/i386/microvm.c, microvm_memory_init(); Cloud Hypervisor arch/src/x86_64/layout.rs, MEM_32BIT_RESERVED_START.
            Self::QemuMicrovm | Self::CloudHypervisor => 3 * GIB,
            // QEMU hw/i386/pc_q35.c, pc_q35_init(): one page short of this is all below.
            Self::QemuQ35 => 0xb000_0000 - 1,
        }
    }

    /// Bytes below 4 GiB of a VM that has more than [`low_max`](Self::low_max).
    const fn low(self) -> u64 {
        match self {
            Self::QemuMicrovm | Self::CloudHypervisor => 3 * GIB,
            Self::QemuQ35 => 2 * GIB,
        }
    }

    /// Where RAM must end, at the latest, to lie as it does in smaller VMs.
    const fn end_max(self) -> u64 {
        match self {
            // QEMU hw/i386/pc.c, pc_set_amd_above_4g_mem_start(): with an AMD processor, RAM goes above 1 TiB when it, with the
            // 32 GiB that the machine keeps for PCI, would reach HyperTransport's addresses.
            Self::QemuQ35 => 0xfd_0000_0000 - 32 * GIB,
            Self::QemuMicrovm | Self::CloudHypervisor => flatboot_handoff::ADDRESS_END,
        }
    }
}

impl fmt::Display for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why there is no table for such a VM.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[expect(
    missing_docs,
    reason = "each variant's message is its documentation, and its fields are what the message names"
)]
pub enum ForeignError {
    #[error(
        "{SIZE}={size:#}: must be more than {max} bytes for {vmm}: it keeps so much below 4 GiB, of which a table says nothing"
    )]
    NothingAbove { vmm: Foreign, size: MemorySize, max: u64 },
    #[error("{SIZE}={size:#}: must be at most {max:#} for {vmm}, which may put more elsewhere")]
    TooLarge { vmm: Foreign, size: MemorySize, max: Size },
}

/// What a table for such a VM says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForeignHandOff {
    /// The one region: all RAM above 4 GiB.
    pub regions: Vec<Region>,
    /// As this VMM plans them for its own VMs.
    pub arenas: Vec<Arena>,
}

impl ForeignHandOff {
    /// Plans it.
    ///
    /// Memory below 4 GiB is in no region. Firmware and loader work there and keep some of it, whose size depends on the firmware;
    /// a region that is not all RAM makes the kernel ignore the table. And nothing would be gained: it is not zero, so the
    /// kernel does with it what it does with memory that no table mentions. Above, nobody has written when a kernel starts that
    /// the VMM itself loads; what else there may be is for the kernel to find out (`memmap_handoff=`).
    pub fn new(vmm: Foreign, size: MemorySize, with_arenas: bool, zeroed: bool) -> Result<Self, ForeignError> {
        if size.bytes() <= vmm.low_max() {
            return Err(ForeignError::NothingAbove { vmm, size, max: vmm.low_max() });
        }
        let max = vmm.end_max() - ABOVE_4G + vmm.low();
        if size.bytes() > max {
            return Err(ForeignError::TooLarge { vmm, size, max: Size(max) });
        }
        let high = GpaRange::of(ABOVE_4G, size.bytes() - vmm.low());
        let mut flags = RegionFlags::empty();
        flags.set(RegionFlags::ZEROED, zeroed);
        let regions = vec![Region { base: high.start(), length: high.length(), node: 0, flags }];
        let ram = [(GpaRange::new(0, vmm.low()), 0), (high, 0)];
        let arenas = if with_arenas { arenas(&ram, &regions) } else { Vec::new() };
        Ok(Self { regions, arenas })
    }

    /// The table.
    pub fn table(&self) -> Result<Vec<u8>, TableError> {
        let mut table = vec![0; encoded_len(self.regions.len(), self.arenas.len())];
        encode(&self.regions, &self.arenas, &mut table)?;
        Ok(table)
    }
}

#[cfg(test)]
mod tests {
    use flatboot_handoff::SECTION_SIZE;

    use super::*;

    fn plan(vmm: Foreign, bytes: u64) -> Result<ForeignHandOff, ForeignError> {
        ForeignHandOff::new(vmm, MemorySize::try_from(bytes).unwrap(), true, true)
    }

    #[test]
    fn memory_above_4_gib_is_what_each_vmm_has_there() {
        for (vmm, size, high) in [
            (Foreign::QemuMicrovm, 4 * GIB, GIB),
            (Foreign::CloudHypervisor, 64 * GIB, 61 * GIB),
            (Foreign::QemuQ35, 4 * GIB, 2 * GIB),
            (Foreign::QemuQ35, 0xb000_0000, 0xb000_0000 - 2 * GIB),
        ] {
            let plan = plan(vmm, size).unwrap();
            assert_eq!((plan.regions[0].base, plan.regions[0].length), (ABOVE_4G, high), "{vmm} {size}");
            assert_eq!(plan.regions.len(), 1);
            assert_eq!(plan.arenas.iter().map(|arena| arena.length).sum::<u64>(), size.div_ceil(SECTION_SIZE) << 21);
            assert!(flatboot_handoff::Table::parse(&plan.table().unwrap()).is_ok());
        }
    }

    #[test]
    fn memory_need_not_end_with_a_section() {
        let plan = plan(Foreign::QemuMicrovm, 4 * GIB + (1 << 20)).unwrap();
        assert_eq!((plan.regions[0].length, plan.regions[0].flags), (GIB + (1 << 20), RegionFlags::ZEROED));
        assert!(flatboot_handoff::Table::parse(&plan.table().unwrap()).is_ok());
    }

    #[test]
    fn a_table_may_leave_things_out() {
        let size = MemorySize::try_from(64 * GIB).unwrap();
        let plan = ForeignHandOff::new(Foreign::QemuQ35, size, false, false).unwrap();
        assert_eq!((plan.regions[0].flags, plan.arenas.len()), (RegionFlags::empty(), 0));
    }

    #[test]
    fn sizes_that_have_no_table_are_refused() {
        for (vmm, size, said) in [
            (
                Foreign::QemuMicrovm,
                3 * GIB,
                "memory.size=3G: must be more than 3221225472 bytes for qemu-microvm: it keeps ",
            ),
            (
                Foreign::CloudHypervisor,
                GIB,
                "memory.size=1G: must be more than 3221225472 bytes for cloud-hypervisor: it ",
            ),
            (
                Foreign::QemuQ35,
                0xb000_0000 - (1 << 20),
                "memory.size=2815M: must be more than 2952790015 bytes for qemu-q35",
            ),
            (
                Foreign::QemuQ35,
                1 << 40,
                "memory.size=1T: must be at most 978G for qemu-q35, which may put more elsewhere",
            ),
        ] {
            let error = plan(vmm, size).unwrap_err().to_string();
            assert!(error.starts_with(said), "{error}");
        }
    }
}
