// SPDX-License-Identifier: Apache-2.0
//! Whether a guest that was on one host's processor can go on on another's: by what KVM says of both.

use std::fmt;
use std::ops::Range;

use kvm_bindings::kvm_cpuid_entry2;

const LEAF_VENDOR: u32 = 0x0;
const LEAF_FEATURES: u32 = 0x1;
/// Of the feature leaf's `EAX`: all but the stepping, which guests do not depend on.
const MODEL: u32 = !0xf;

/// Registers that have a feature in each bit.
#[derive(Debug, Clone, Copy)]
enum Register {
    Eax,
    Ebx,
    Ecx,
    Edx,
}

use Register::{Eax, Ebx, Ecx, Edx};

impl Register {
    const fn name(self) -> &'static str {
        match self {
            Eax => "EAX",
            Ebx => "EBX",
            Ecx => "ECX",
            Edx => "EDX",
        }
    }

    const fn of(self, leaf: &kvm_cpuid_entry2) -> u32 {
        match self {
            Eax => leaf.eax,
            Ebx => leaf.ebx,
            Ecx => leaf.ecx,
            Edx => leaf.edx,
        }
    }
}

/// Leaves, subleaves and registers that have one: whatever is set there a guest may use.
const FEATURES: [(u32, u32, &[Register]); 13] = [
    (LEAF_FEATURES, 0, &[Ecx, Edx]),
    (0x7, 0, &[Ebx, Ecx, Edx]),
    (0x7, 1, &[Eax, Ebx, Ecx, Edx]),
    (0x7, 2, &[Edx]),
    (0xd, 0, &[Eax, Edx]),
    (0xd, 1, &[Eax, Ecx, Edx]),
    (0x4000_0001, 0, &[Eax]),
    (0x8000_0001, 0, &[Ecx, Edx]),
    (0x8000_0007, 0, &[Edx]),
    (0x8000_0008, 0, &[Ebx]),
    (0x8000_000a, 0, &[Edx]),
    (0x8000_0021, 0, &[Eax, Ecx]),
    (0x8000_0022, 0, &[Eax]),
];

/// Of the feature leaf's ECX, x2APIC, the TSC deadline timer and being a guest: every VM has the first and the last, the timer is looked
/// for elsewhere, and only some versions of KVM say so here.
const SAID_ELSEWHERE: u32 = 1 << 21 | 1 << 24 | 1 << 31;

/// Leaves and registers with a number in some of their bits, of which here must be as much: whatever is there a guest may use.
const NUMBERS: [(u32, Register, Range<u32>, &str); 6] = [
    (0xa, Eax, 0..8, "a version of performance monitoring"),
    (0xa, Eax, 8..16, "performance counters"),
    (0xa, Eax, 16..24, "bits of a performance counter"),
    (0xa, Edx, 0..5, "fixed performance counters"),
    (0x8000_0008, Eax, 0..8, "bits of a physical address"),
    (0x8000_0022, Ebx, 0..4, "AMD's performance counters"),
];

/// A processor, as a guest knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Model {
    vendor: [u8; 12],
    signature: u32,
}

impl Model {
    /// The one that `table` is of.
    fn of(table: &[kvm_cpuid_entry2]) -> Self {
        let vendor = find(table, LEAF_VENDOR, 0);
        let mut name = [0; 12];
        for (to, from) in name.chunks_mut(4).zip([vendor.ebx, vendor.edx, vendor.ecx]) {
            to.copy_from_slice(&from.to_le_bytes());
        }
        Self { vendor: name, signature: find(table, LEAF_FEATURES, 0).eax & MODEL }
    }
}

impl fmt::Display for Model {
    /// Family and model as the processor's manuals have them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nibble = |at: u32, bits: u32| self.signature >> at & ((1 << bits) - 1);
        let family = nibble(8, 4) + if nibble(8, 4) == 0xf { nibble(20, 8) } else { 0 };
        let model = nibble(4, 4) | nibble(16, 4) << 4;
        write!(f, "{} family {family:#x} model {model:#x}", String::from_utf8_lossy(&self.vendor))
    }
}

/// Why a guest cannot go on on this processor.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ModelError {
    /// It is another one.
    #[error("it was taken on a processor {saved}: must be the same here, which is {here}")]
    Other {
        /// Where the guest was.
        saved: Model,
        /// Where it is to be.
        here: Model,
    },
    /// It can do less, or this host's KVM can.
    #[error(
        "its guest has features {bits:#x} of CPUID leaf {leaf:#x}.{subleaf}, {register}: this host's KVM does not have them"
    )]
    Less {
        /// Where it is said.
        leaf: u32,
        /// Which part of that.
        subleaf: u32,
        /// In which register.
        register: &'static str,
        /// What is missing.
        bits: u32,
    },
    /// It has less of something.
    #[error("its guest has {what}: {had}; this host's KVM has {has}: must be as many or more")]
    Fewer {
        /// Of what.
        what: &'static str,
        /// How much the guest has,
        had: u32,
        /// and how much there is here.
        has: u32,
    },
}

/// Whether a guest that has had what is in `saved` can go on where KVM has what is in `here`.
pub fn check(saved: &[kvm_cpuid_entry2], here: &[kvm_cpuid_entry2]) -> Result<(), ModelError> {
    let (was, is) = (Model::of(saved), Model::of(here));
    if was != is {
        return Err(ModelError::Other { saved: was, here: is });
    }
    for (leaf, subleaf, registers) in FEATURES {
        let (saved, here) = (find(saved, leaf, subleaf), find(here, leaf, subleaf));
        for register in registers {
            let elsewhere = if leaf == LEAF_FEATURES && matches!(register, Ecx) { SAID_ELSEWHERE } else { 0 };
            let bits = register.of(&saved) & !register.of(&here) & !elsewhere;
            if bits != 0 {
                return Err(ModelError::Less { leaf, subleaf, register: register.name(), bits });
            }
        }
    }
    for (leaf, register, bits, what) in NUMBERS {
        let number = |table| register.of(&find(table, leaf, 0)) >> bits.start & ((1 << bits.len()) - 1);
        let (had, has) = (number(saved), number(here));
        if had > has {
            return Err(ModelError::Fewer { what, had, has });
        }
    }
    Ok(())
}

/// What is not there has nothing.
fn find(table: &[kvm_cpuid_entry2], leaf: u32, subleaf: u32) -> kvm_cpuid_entry2 {
    let found = table.iter().find(|entry| entry.function == leaf && entry.index == subleaf);
    found.copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(signature: u32, features: u32) -> Vec<kvm_cpuid_entry2> {
        let vendor = kvm_cpuid_entry2 {
            ebx: u32::from_le_bytes(*b"Auth"),
            edx: u32::from_le_bytes(*b"enti"),
            ecx: u32::from_le_bytes(*b"cAMD"),
            ..Default::default()
        };
        let first = kvm_cpuid_entry2 { function: 1, eax: signature, ecx: features, ..Default::default() };
        let seventh = kvm_cpuid_entry2 { function: 7, ebx: features << 4, ..Default::default() };
        vec![vendor, first, seventh]
    }

    #[test]
    fn more_features_are_as_good() {
        assert_eq!(check(&table(0xa2_0f12, 0b0101), &table(0xa2_0f12, 0b1101)), Ok(()));
        assert_eq!(check(&table(0xa2_0f12, 1), &table(0xa2_0f10, 1)), Ok(()), "another stepping");
        // Newer versions of KVM say these two, and every VM has them.
        let mut said = table(0xa2_0f12, 1);
        said[1].ecx |= 1 << 24 | 1 << 31;
        assert_eq!(check(&said, &table(0xa2_0f12, 1)), Ok(()));
    }

    #[test]
    fn what_is_missing_is_named() {
        let error = check(&table(0xa2_0f12, 0b0111), &table(0xa2_0f12, 0b0101)).unwrap_err().to_string();
        assert_eq!(error, "its guest has features 0x2 of CPUID leaf 0x1.0, ECX: this host's KVM does not have them");
    }

    #[test]
    fn numbers_are_as_large_or_larger() {
        let with = |eax, edx, width| {
            let counters = kvm_cpuid_entry2 { function: 0xa, eax, edx, ..Default::default() };
            let sizes = kvm_cpuid_entry2 { function: 0x8000_0008, eax: width, ..Default::default() };
            [table(0xa2_0f12, 1), vec![counters, sizes]].concat()
        };
        // Version 2, 4 counters of 48 bits, 3 of them fixed; 39 bits of addresses, 48 of linear ones.
        let saved = with(0x0730_0402, 0x0603, 0x3027);
        let line = |here: &[kvm_cpuid_entry2]| check(&saved, here).map_err(|error| error.to_string());
        assert_eq!(line(&with(0x0830_0803, 0x0604, 0x392e)), Ok(()));
        let expected = "its guest has performance counters: 4; this host's KVM has 2: must be as many or more";
        assert_eq!(line(&with(0x0830_0203, 0x0604, 0x3027)), Err(expected.to_owned()));
        assert!(line(&with(0x0730_0402, 0x0602, 0x3027)).unwrap_err().contains("fixed performance counters: 3"));
        assert!(line(&with(0x0730_0402, 0x0603, 0x3026)).unwrap_err().contains("bits of a physical address: 39"));
        // A host that does not let guests have any.
        assert!(line(&with(0, 0, 0x3027)).unwrap_err().contains("a version of performance monitoring: 2"));
    }

    #[test]
    fn another_processor_is_named() {
        let error = check(&table(0xa2_0f12, 1), &table(0x5_06e3, 1)).unwrap_err().to_string();
        let was = "it was taken on a processor AuthenticAMD family 0x19 model 0x21";
        assert_eq!(error, format!("{was}: must be the same here, which is AuthenticAMD family 0x6 model 0x5e"));
    }
}
