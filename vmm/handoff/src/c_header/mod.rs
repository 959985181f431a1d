// SPDX-License-Identifier: Apache-2.0
//! The contract in C: for the kernel series and for the firmware.
//!
//! `cargo run -p flatboot-handoff --example c-header -- .` in the repository's root writes the headers again.

mod edk2;
mod kernel;
mod number;

use core::fmt::{self, Display, Formatter};

pub use edk2::Guid;

/// A header file; its [`Display`] is the file's content.
#[derive(Debug, Clone, Copy)]
pub struct CHeader {
    /// Where it is, from the repository's root.
    pub path: &'static str,
    content: fn(&mut Formatter<'_>) -> fmt::Result,
}

/// Every header.
pub const ALL: [CHeader; 4] = [
    CHeader { path: "guest-kernel/include/linux/boot_marks_abi.h", content: kernel::boot_marks },
    CHeader { path: "guest-kernel/include/uapi/linux/memmap_handoff.h", content: kernel::memmap_handoff },
    CHeader { path: "firmware/FlatbootPkg/Include/FlatbootMarks.h", content: edk2::marks },
    CHeader { path: "firmware/FlatbootPkg/Include/Guid/FlatbootHandOff.h", content: edk2::hand_off },
];

impl Display for CHeader {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        (self.content)(f)
    }
}
