// SPDX-License-Identifier: Apache-2.0
//! Boot marks: one byte, written to I/O port 0x80 ([`PORT`]), says how far a guest has come.
//!
//! The code ranges are those of Cloud Hypervisor's debug port ([`Origin`]).

/// The I/O port that marks are written to.
pub const PORT: u16 = 0x80;

/// A mark that this contract gives a meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// The byte.
    pub code: u8,
    /// Its name as a constant, here and in C: upper case, words joined by `_`.
    pub constant: &'static str,
    /// Its name: lower case, words joined by `-`.
    pub name: &'static str,
    /// What has happened, in one line.
    pub meaning: &'static str,
}

/// Which program writes the codes of a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// 0x00–0x1f.
    Firmware,
    /// 0x20–0x3f.
    BootLoader,
    /// 0x40–0x5f.
    Kernel,
    /// 0x60–0x7f.
    UserSpace,
    /// 0x80–0xff.
    Unassigned,
}

/// Makes the constants and the table of them from one list.
macro_rules! marks {
    ($($constant:ident = $code:literal, $name:literal, $meaning:literal;)*) => {
        $(#[doc = concat!($meaning, ".")] pub const $constant: u8 = $code;)*

        /// Every mark, by code.
        pub const ALL: [Mark; [$($code),*].len()] = [
            $(Mark { code: $constant, constant: stringify!($constant), name: $name, meaning: $meaning },)*
        ];
    };
}

marks! {
    FIRMWARE_ENTRY = 0x01, "firmware-entry", "The firmware's C code begins, without memory of its own";
    FIRMWARE_PEI = 0x02, "firmware-pei", "The firmware has unpacked itself and looks for memory";
    FIRMWARE_DXE = 0x03, "firmware-dxe", "The firmware has memory and loads its drivers";
    FIRMWARE_PLAN = 0x04, "firmware-plan", "The firmware has read the VMM's plan, or found that there is none";
    FIRMWARE_BDS = 0x05, "firmware-bds", "All drivers are loaded: the firmware looks for something to boot";
    FIRMWARE_BACKED = 0x06, "firmware-backed", "All processors have backed the memory that the kernel touches first";
    FIRMWARE_LOADER = 0x07, "firmware-loader", "The firmware starts a boot loader, or a kernel that is its own";
    FIRMWARE_END = 0x08, "firmware-end", "The loader takes over from the firmware (ExitBootServices)";
    FIRMWARE_NO_LOADER = 0x1d, "firmware-no-loader", "The firmware found nothing to boot and gives up";
    FIRMWARE_PLAN_INVALID = 0x1e, "firmware-plan-invalid", "The VMM's plan breaks a rule and is ignored";
    FIRMWARE_FAILED = 0x1f, "firmware-failed", "The firmware cannot go on";
    KERNEL_ENTRY = 0x40, "kernel-entry", "The kernel's C code begins";
    INIT_EXEC = 0x41, "init-exec", "The kernel is about to run /sbin/init or /init";
    MEMORY_MAP_READY = 0x42, "memory-map-ready", "The memory map is known and the boot-time allocator works";
    MEMMAP_BEGIN = 0x43, "memmap-begin", "The part of the memmap that the boot waits for begins";
    MEMMAP_END = 0x44, "memmap-end", "The part of the memmap that the boot waits for is filled";
    SMP_BEGIN = 0x45, "smp-begin", "Secondary processors begin to come up";
    SMP_END = 0x46, "smp-end", "All secondary processors are up";
    DEFERRED_BEGIN = 0x47, "deferred-begin", "The deferred part of the memmap begins";
    DEFERRED_END = 0x48, "deferred-end", "The deferred part of the memmap is filled";
    PANIC = 0x5f, "panic", "The kernel panics";
    USER_START = 0x60, "user-start", "init's first statement";
    USER_READY = 0x61, "user-ready", "User space is up and its checks passed";
    USER_FAILED = 0x62, "user-failed", "A check of user space failed";
}

const _: () = {
    let mut i = 1;
    while i < ALL.len() {
        assert!(ALL[i - 1].code < ALL[i].code, "marks out of order");
        i += 1;
    }
};

impl Mark {
    /// The mark with that code, if the code has a meaning here.
    #[must_use]
    pub fn of(code: u8) -> Option<&'static Self> {
        ALL.iter().find(|mark| mark.code == code)
    }
}

impl Origin {
    /// Whose code it is.
    #[must_use]
    pub const fn of(code: u8) -> Self {
        match code {
            0x00..=0x1f => Self::Firmware,
            0x20..=0x3f => Self::BootLoader,
            0x40..=0x5f => Self::Kernel,
            0x60..=0x7f => Self::UserSpace,
            0x80..=0xff => Self::Unassigned,
        }
    }
}
