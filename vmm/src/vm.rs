// SPDX-License-Identifier: Apache-2.0
//! The VM as KVM knows it: memory slots, interrupt controllers, and what every vCPU is made from.
#![expect(unsafe_code, reason = "KVM_SET_USER_MEMORY_REGION hands our mappings to the kernel")]

pub mod saved;

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use kvm_bindings::{
    CpuId, KVM_CAP_MAX_VCPU_ID, KVM_CAP_SPLIT_IRQCHIP, KVM_CAP_X2APIC_API, KVM_IRQ_ROUTING_MSI, KVM_MAX_CPUID_ENTRIES,
    KVM_MEM_READONLY, KVM_PIT_SPEAKER_DUMMY, KVM_X2APIC_API_DISABLE_BROADCAST_QUIRK, KVM_X2APIC_API_USE_32BIT_IDS,
    KvmIrqRouting, kvm_enable_cap, kvm_irq_routing_entry, kvm_irq_routing_entry__bindgen_ty_1, kvm_irq_routing_msi,
    kvm_pit_config, kvm_userspace_memory_region,
};
use kvm_ioctls::{Cap, IoEventAddress, Kvm, VcpuFd, VmFd};
use vm_memory::{Address, GuestMemoryBackend, GuestMemoryRegion};
use vmm_sys_util::eventfd::EventFd;

use crate::bits::{index, low32};
use crate::cpu::cpuid::{self, Basis};
use crate::cpu::model::{self, ModelError};
use crate::cpu::registers;
use crate::cpu::topology::CpuTopology;
use crate::devices::ioapic::{self, Message, PINS};
use crate::field::Field;
use crate::generation::{self, GenerationError};
use crate::layout;
use crate::memory::held::HeldMemory;
use crate::memory::{AddressWidth, GuestMemory, Region};
use crate::numa::Nodes;
use crate::state::MachineState;

const BOOT: Field = Field::of("cpus", "boot_vcpus");
const TOPOLOGY: Field = Field::of("cpus", "topology");

/// Where KVM is.
pub const KVM_DEVICE: &str = "/dev/kvm";
/// The ABI version that has been the only one since Linux 2.6.22.
const KVM_API_VERSION: i32 = 12;

/// What KVM must be able to do for flatboot, with the name that its API document uses.
pub const REQUIRED: [(Cap, &str); 8] = [
    (Cap::UserMemory, "KVM_CAP_USER_MEMORY"),
    (Cap::Irqchip, "KVM_CAP_IRQCHIP"),
    (Cap::Pit2, "KVM_CAP_PIT2"),
    (Cap::Irqfd, "KVM_CAP_IRQFD"),
    (Cap::Ioeventfd, "KVM_CAP_IOEVENTFD"),
    (Cap::ExtCpuid, "KVM_CAP_EXT_CPUID"),
    (Cap::SetTssAddr, "KVM_CAP_SET_TSS_ADDR"),
    (Cap::SetIdentityMapAddr, "KVM_CAP_SET_IDENTITY_MAP_ADDR"),
];

/// Why KVM cannot be used, or refused something.
#[derive(Debug, thiserror::Error)]
pub enum VmError {
    /// No device node.
    #[error("{KVM_DEVICE}: missing: load the kvm_intel or kvm_amd module, or enable virtualization in the firmware")]
    Missing,
    /// No permission.
    #[error("{KVM_DEVICE}: no permission: it belongs to group id {group}; add yourself to that group or run as root")]
    Permission {
        /// The node's group.
        group: u32,
    },
    /// It opens, but not as KVM.
    #[error("{KVM_DEVICE}: cannot be opened, must be the device of the kvm module")]
    Open(#[source] io::Error),
    /// It opens and does not know KVM's first ioctl.
    #[error("{KVM_DEVICE}: is something else, must be the device of the kvm module (character device 10, 232)")]
    NotKvm,
    /// An ABI that nobody has seen.
    #[error("{KVM_DEVICE}: API version {0}, needed is {KVM_API_VERSION}")]
    Version(i32),
    /// A capability is missing.
    #[error("{KVM_DEVICE}: lacks {0}: this host's KVM is too old or incomplete")]
    Lacks(&'static str),
    /// More vCPUs than KVM can make.
    #[error("{BOOT}={wanted}: this host's KVM allows at most {most}")]
    TooManyVcpus {
        /// Asked for.
        wanted: u64,
        /// Allowed.
        most: usize,
    },
    /// APIC ids that KVM cannot give.
    #[error("{TOPOLOGY}: gives APIC ids up to {largest}: this host's KVM allows at most {most}")]
    ApicIds {
        /// The largest.
        largest: u32,
        /// Allowed.
        most: usize,
    },
    /// An ioctl failed.
    #[error("KVM: {call} failed")]
    Ioctl {
        /// Its name.
        call: &'static str,
        /// Why.
        source: io::Error,
    },
    /// There is no VM generation ID.
    #[error(transparent)]
    Generation(#[from] GenerationError),
    /// The CPUID table is larger than KVM takes.
    #[error("KVM: CPUID table too large")]
    Cpuid(#[source] vmm_sys_util::fam::Error),
    /// A guest that was saved cannot be on this processor.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// It has seen a timer that is not here.
    #[error("its guest has the TSC deadline timer: this host's KVM does not have it")]
    Deadline,
    /// What was saved is of another machine than its configuration describes.
    #[error("its interrupt controllers are those of another number of vCPUs: must be those of its configuration")]
    Controllers,
}

pub(crate) fn ioctl(call: &'static str) -> impl Fn(kvm_ioctls::Error) -> VmError {
    move |e| VmError::Ioctl { call, source: io::Error::from_raw_os_error(e.errno()) }
}

/// Opens KVM and checks version and capabilities.
pub fn open_kvm() -> Result<Kvm, VmError> {
    let kvm = Kvm::new().map_err(|e| {
        let source = io::Error::from_raw_os_error(e.errno());
        match source.kind() {
            io::ErrorKind::NotFound => VmError::Missing,
            io::ErrorKind::PermissionDenied => {
                VmError::Permission { group: Path::new(KVM_DEVICE).metadata().map_or(0, |m| m.gid()) }
            }
            _ => VmError::Open(source),
        }
    })?;
    match kvm.get_api_version() {
        KVM_API_VERSION => {}
        ..0 => return Err(VmError::NotKvm),
        other => return Err(VmError::Version(other)),
    }
    for (cap, name) in REQUIRED {
        if !kvm.check_extension(cap) {
            return Err(VmError::Lacks(name));
        }
    }
    Ok(kvm)
}

/// Opens KVM as [`open_kvm`] does, and asks it how wide guest physical addresses may be.
pub fn open_and_measure() -> Result<(Kvm, AddressWidth), VmError> {
    let kvm = open_kvm()?;
    let width = address_width(&kvm)?;
    Ok((kvm, width))
}

/// How wide guest physical addresses may be: CPUID 0x80000008, bits 23..16 of EAX if set, else 7..0.
pub fn address_width(kvm: &Kvm) -> Result<AddressWidth, VmError> {
    const LEAF_ADDRESS_SIZES: u32 = 0x8000_0008;
    let cpuid = kvm.get_supported_cpuid(KVM_MAX_CPUID_ENTRIES).map_err(ioctl("KVM_GET_SUPPORTED_CPUID"))?;
    let eax = cpuid.as_slice().iter().find(|entry| entry.function == LEAF_ADDRESS_SIZES).map_or(0, |entry| entry.eax);
    let [physical, _, guest, _] = eax.to_le_bytes();
    Ok(AddressWidth::reported(if guest == 0 { physical } else { guest }))
}

/// A VM with memory and interrupt controllers, before its first vCPU. Fields are dropped in this order: memory goes last.
#[derive(Debug)]
pub struct Vm {
    fd: Arc<VmFd>,
    cpuid: CpuId,
    basis: Basis,
    /// What firmware runs from, if the boot CPU starts there.
    flash: Option<GuestMemory>,
    _generation: GuestMemory,
    memory: GuestMemory,
}

/// Where the boot CPU starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// At a kernel's 64-bit entry point, a GPA.
    Kernel(u64),
    /// Where a processor starts, in real mode, 16 bytes below 4 GiB.
    ResetVector,
    /// Where it was.
    Saved,
}

impl Vm {
    /// Creates the VM and gives it every region of `memory` as a memory slot, but for what is held.
    /// `cpus` is how many vCPUs there will be, in groups, and `nodes` which nodes they are on; `nested` says whether the guest may run
    /// VMs of its own. A guest that was `saved` finds the processor that it had.
    pub fn create(
        kvm: &Kvm,
        memory: &GuestMemory,
        cpus: CpuTopology,
        nodes: &Nodes,
        nested: bool,
        saved: Option<&MachineState>,
    ) -> Result<Self, VmError> {
        check_vcpus(kvm, cpus)?;
        let (cpuid, tsc_deadline) = processor(kvm, nested, saved)?;
        let fd = create(kvm).map_err(ioctl("KVM_CREATE_VM"))?;
        // Both before the first vCPU (Documentation/virt/kvm/api.rst, 4.40 and 4.41): Intel's real mode needs them.
        fd.set_identity_map_address(layout::KVM_IDENTITY_MAP.start).map_err(ioctl("KVM_SET_IDENTITY_MAP_ADDR"))?;
        fd.set_tss_address(index(layout::KVM_TSS.start)).map_err(ioctl("KVM_SET_TSS_ADDR"))?;
        set_memory(&fd, memory)?;
        let generation = generation::page()?;
        set_slots(&fd, slot_of_generation(memory), &generation, 0)?;
        if cpus.needs_wide_ids() {
            enable_wide_ids(&fd, cpus)?;
        } else {
            fd.create_irq_chip().map_err(ioctl("KVM_CREATE_IRQCHIP"))?;
            let pit = kvm_pit_config { flags: KVM_PIT_SPEAKER_DUMMY, ..Default::default() };
            fd.create_pit2(pit).map_err(ioctl("KVM_CREATE_PIT2"))?;
        }
        let shared_caches = nodes.keep_together(|index| cpus.die_of(index));
        Ok(Self {
            fd: Arc::new(fd),
            cpuid,
            basis: Basis { cpus, shared_caches, nested, tsc_deadline, tsc_khz: None },
            flash: None,
            _generation: generation,
            memory: memory.clone(),
        })
    }

    /// Puts `flash` below 4 GiB, read-only: what the guest writes there is an access to no device. `memory` is the VM's.
    pub fn insert_flash(&mut self, kvm: &Kvm, memory: &GuestMemory, flash: GuestMemory) -> Result<(), VmError> {
        if !kvm.check_extension(Cap::ReadonlyMem) {
            return Err(VmError::Lacks("KVM_CAP_READONLY_MEM"));
        }
        set_slots(&self.fd, slot_of_generation(memory) + 1, &flash, KVM_MEM_READONLY)?;
        self.flash = Some(flash);
        Ok(())
    }

    /// Makes vCPU `index` with its CPUID and model-specific registers. Its TSC is as fast as one that was saved, or as KVM likes.
    pub fn create_vcpu(&self, index: u16, tsc_khz: Option<u32>) -> Result<VcpuFd, VmError> {
        let id = self.basis.cpus.apic_id(index);
        let vcpu = self.fd.create_vcpu(u64::from(id)).map_err(ioctl("KVM_CREATE_VCPU"))?;
        if let Some(khz) = tsc_khz.filter(|khz| vcpu.get_tsc_khz() != Ok(*khz)) {
            vcpu.set_tsc_khz(khz).map_err(ioctl("KVM_SET_TSC_KHZ"))?;
        }
        let basis = Basis { tsc_khz: vcpu.get_tsc_khz().ok().filter(|khz| *khz > 0), ..self.basis };
        let table = cpuid::for_vcpu(&self.cpuid, index, basis).map_err(VmError::Cpuid)?;
        vcpu.set_cpuid2(&table).map_err(ioctl("KVM_SET_CPUID2"))?;
        if self.basis.cpus.needs_wide_ids() {
            enter_x2apic(&vcpu)?;
        }
        for msr in registers::msrs(self.flash.is_some()) {
            let mut msrs = kvm_bindings::Msrs::from_entries(&[msr]).map_err(VmError::Cpuid)?;
            // What KVM has made of the table, as that there is no branch trace store, stays.
            vcpu.get_msrs(&mut msrs).map_err(ioctl("KVM_GET_MSRS"))?;
            msrs.as_mut_slice().iter_mut().for_each(|kept| kept.data |= msr.data);
            vcpu.set_msrs(&msrs).map_err(ioctl("KVM_SET_MSRS"))?;
        }
        Ok(vcpu)
    }

    /// Where the I/O APIC says what its pins send, if that is no part of KVM.
    #[must_use]
    pub fn router(&self) -> Option<Router> {
        let needed = self.basis.cpus.needs_wide_ids();
        needed.then(|| Router { fd: Arc::clone(&self.fd), _memory: self.memory.clone() })
    }

    /// The slot of held memory, which is not there so far.
    #[must_use]
    pub fn held_slot(&self, held: HeldMemory) -> HeldSlot {
        let number = slot_of_generation(&self.memory) + 2;
        HeldSlot { fd: Arc::clone(&self.fd), number, is_there: false, held }
    }

    /// Lets a write to `irq` raise interrupt line `gsi`.
    pub fn connect_irq(&self, irq: &EventFd, gsi: u32) -> Result<(), VmError> {
        self.fd.register_irqfd(irq, gsi).map_err(ioctl("KVM_IRQFD"))
    }

    /// Lets a 32-bit guest write of `value` to GPA `address` signal `event` without leaving the kernel.
    pub fn connect_doorbell(&self, event: &EventFd, address: u64, value: u32) -> Result<(), VmError> {
        self.fd.register_ioevent(event, &IoEventAddress::Mmio(address), value).map_err(ioctl("KVM_IOEVENTFD"))
    }
}

/// What processor the guest finds: the CPUID table that KVM supports, as far as it can be saved, or the one that was; and whether it
/// has the TSC deadline timer.
fn processor(kvm: &Kvm, nested: bool, saved: Option<&MachineState>) -> Result<(CpuId, bool), VmError> {
    let here = kvm.get_supported_cpuid(KVM_MAX_CPUID_ENTRIES).map_err(ioctl("KVM_GET_SUPPORTED_CPUID"))?;
    let here = cpuid::without_unsaved(here);
    let tsc_deadline = kvm.check_extension(Cap::TscDeadlineTimer);
    let Some(saved) = saved else { return Ok((here, tsc_deadline)) };
    model::check(&cpuid::seen(&saved.cpuid, nested), &cpuid::seen(here.as_slice(), nested))?;
    if saved.tsc_deadline && !tsc_deadline {
        return Err(VmError::Deadline);
    }
    Ok((CpuId::from_entries(&saved.cpuid).map_err(VmError::Cpuid)?, saved.tsc_deadline))
}

/// The memory slot of held memory, all of it: KVM's share of a growth is then the same however large that is, and what shrinks takes
/// no slot with it, by which KVM before Linux 6.12 forgets how all other memory of the guest is mapped. What is not there reads as
/// zero, and a write to it ends the VM. Fields are dropped in this order, as those of [`Vm`] are.
#[derive(Debug)]
pub struct HeldSlot {
    fd: Arc<VmFd>,
    number: u32,
    is_there: bool,
    held: HeldMemory,
}

impl HeldSlot {
    /// Adds it, if it has not been added.
    pub fn add(&mut self) -> Result<(), VmError> {
        if self.is_there {
            return Ok(());
        }
        let range = self.held.range();
        let slot = kvm_userspace_memory_region {
            slot: self.number,
            flags: 0,
            guest_phys_addr: range.start(),
            memory_size: range.length(),
            userspace_addr: self.held.address(),
        };
        describe(&self.fd, slot)?;
        self.is_there = true;
        Ok(())
    }
}

/// The way to KVM's routes. Fields are dropped in this order, as those of [`Vm`] are.
#[derive(Debug)]
pub struct Router {
    fd: Arc<VmFd>,
    _memory: GuestMemory,
}

impl ioapic::Router for Router {
    fn route(&mut self, routes: &[Option<Message>; PINS]) -> bool {
        let entry = |(gsi, message): (u32, &Option<Message>)| {
            let Message { address_low, address_high, data } = (*message)?;
            let msi =
                kvm_irq_routing_msi { address_lo: address_low, address_hi: address_high, data, ..Default::default() };
            let u = kvm_irq_routing_entry__bindgen_ty_1 { msi };
            Some(kvm_irq_routing_entry { gsi, type_: KVM_IRQ_ROUTING_MSI, u, ..Default::default() })
        };
        let entries: Vec<_> = (0..).zip(routes).filter_map(entry).collect();
        let set = KvmIrqRouting::from_entries(&entries).map_err(|error| error.to_string());
        let set = set.and_then(|table| self.fd.set_gsi_routing(&table).map_err(|error| error.to_string()));
        if let Err(error) = &set {
            tracing::warn!(error, "an I/O APIC entry has no effect");
        }
        set.is_ok()
    }
}

/// Before the first vCPU: interrupts to APIC ids of 32 bits, and local APICs alone in KVM, whose I/O APIC knows ids of 8 bits only. Its
/// other interrupt controllers and its timer go with that; no guest of a hardware-reduced machine asks for them.
fn enable_wide_ids(fd: &VmFd, cpus: CpuTopology) -> Result<(), VmError> {
    let enable = |cap, name, first: u64| {
        let mut request = kvm_enable_cap { cap, ..Default::default() };
        request.args[0] = first;
        fd.enable_cap(&request).map_err(ioctl(name))
    };
    let flags = KVM_X2APIC_API_USE_32BIT_IDS | KVM_X2APIC_API_DISABLE_BROADCAST_QUIRK;
    // As large as it must be and no larger: KVM's tables are. Older kernels cannot be told, and have larger ones.
    let _ = enable(KVM_CAP_MAX_VCPU_ID, "KVM_ENABLE_CAP of KVM_CAP_MAX_VCPU_ID", u64::from(cpus.largest_apic_id()) + 1);
    enable(KVM_CAP_SPLIT_IRQCHIP, "KVM_ENABLE_CAP of KVM_CAP_SPLIT_IRQCHIP", PINS as u64)?;
    enable(KVM_CAP_X2APIC_API, "KVM_ENABLE_CAP of KVM_CAP_X2APIC_API", flags.into())
}

/// Checks that KVM can make so many vCPUs, and with their ids.
fn check_vcpus(kvm: &Kvm, cpus: CpuTopology) -> Result<(), VmError> {
    let (wanted, most) = (cpus.total(), kvm.get_max_vcpus());
    if wanted > most as u64 {
        return Err(VmError::TooManyVcpus { wanted, most });
    }
    let (largest, ids) = (cpus.largest_apic_id(), kvm.get_max_vcpu_id());
    if u64::from(largest) >= ids as u64 {
        return Err(VmError::ApicIds { largest, most: ids.saturating_sub(1) });
    }
    Ok(())
}

/// Has a local APIC be an x2APIC from the beginning: a kernel that is told of ids beyond 8 bits must find it so (ACPI 6.5, section
/// 5.2.12.12), and Linux ignores those processors otherwise.
fn enter_x2apic(vcpu: &VcpuFd) -> Result<(), VmError> {
    let mut sregs = vcpu.get_sregs().map_err(ioctl("KVM_GET_SREGS"))?;
    sregs.apic_base |= registers::APIC_BASE_X2APIC;
    vcpu.set_sregs(&sregs).map_err(ioctl("KVM_SET_SREGS"))
}

/// Prepares the boot CPU for its start.
pub fn set_start(vcpu: &VcpuFd, start: Start) -> Result<(), VmError> {
    match start {
        Start::Kernel(entry) => set_boot_registers(vcpu, entry),
        // KVM has made it so, or the vCPU is what was saved.
        Start::ResetVector | Start::Saved => Ok(()),
    }
}

/// Prepares the boot CPU for the kernel's entry point.
pub fn set_boot_registers(vcpu: &VcpuFd, entry: u64) -> Result<(), VmError> {
    let reset = vcpu.get_sregs().map_err(ioctl("KVM_GET_SREGS"))?;
    vcpu.set_sregs(&registers::special(reset)).map_err(ioctl("KVM_SET_SREGS"))?;
    vcpu.set_regs(&registers::general(entry)).map_err(ioctl("KVM_SET_REGS"))
}

/// A VM with nothing in it. A signal makes the kernel give up on the way: whoever the signal is for has heard it, and it is tried
/// again.
pub fn create(kvm: &Kvm) -> Result<VmFd, kvm_ioctls::Error> {
    tracing::debug!("KVM_CREATE_VM");
    loop {
        match kvm.create_vm() {
            Err(error) if error.errno() == libc::EINTR => {}
            other => return other,
        }
    }
}

/// Gives each region of `memory` to `fd` as a slot of its own.
pub fn set_memory(fd: &VmFd, memory: &GuestMemory) -> Result<(), VmError> {
    set_slots(fd, 0, memory, 0)
}

/// Which slot the VM generation ID is: behind RAM. Flash is the one behind it, then comes what is held.
fn slot_of_generation(memory: &GuestMemory) -> u32 {
    low32(memory.num_regions() as u64)
}

/// The same as slots from `first` on. What is held has slots of its own.
fn set_slots(fd: &VmFd, first: u32, memory: &GuestMemory, flags: u32) -> Result<(), VmError> {
    let regions = memory.iter().filter(|region| !region.is_held());
    (first..).zip(regions).try_for_each(|(slot, region)| set_slot(fd, slot, region, flags))
}

/// Gives `region` to `fd` as a slot that is not in use yet.
fn set_slot(fd: &VmFd, slot: u32, region: &Region, flags: u32) -> Result<(), VmError> {
    let description = kvm_userspace_memory_region {
        slot,
        flags,
        guest_phys_addr: region.start_addr().raw_value(),
        memory_size: region.len(),
        userspace_addr: region.as_ptr() as u64,
    };
    describe(fd, description)
}

fn describe(fd: &VmFd, description: kvm_userspace_memory_region) -> Result<(), VmError> {
    // SAFETY: the region's mapping is as long and outlives the VM: whoever has a descriptor of the VM or of a vCPU (`Vm`, a thread
    // of `vcpu`, `probe`, `HeldSlots`) has the memory, too, and drops it behind that descriptor. Slots do not overlap: the
    // regions of a `GuestMemory` do not, nor do the parts of a held one that come one after another; and RAM ends below `layout::GENERATION` or begins above `layout::FLASH`; KVM itself refuses
    // slots that do.
    unsafe { fd.set_user_memory_region(description) }.map_err(ioctl("KVM_SET_USER_MEMORY_REGION"))
}
