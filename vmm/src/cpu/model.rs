// SPDX-License-Identifier: Apache-2.0
//! Whether a guest that was on one host's processor can go on on another's: by what KVM says of both.

use std::fmt;

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

/// Leaves, subleaves and registers that have one: whatever is set there a guest may use.
const FEATURES: [(u32, u32, &[Register]); 11] = [
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
    (0x8000_0021, 0, &[Eax]),
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
            let (name, had, has) = match register {
                Eax => ("EAX", saved.eax, here.eax),
                Ebx => ("EBX", saved.ebx, here.ebx),
                Ecx => ("ECX", saved.ecx, here.ecx),
                Edx => ("EDX", saved.edx, here.edx),
            };
            let bits = had & !has;
            if bits != 0 {
                return Err(ModelError::Less { leaf, subleaf, register: name, bits });
            }
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
    }

    #[test]
    fn what_is_missing_is_named() {
        let error = check(&table(0xa2_0f12, 0b0111), &table(0xa2_0f12, 0b0101)).unwrap_err().to_string();
        assert_eq!(error, "its guest has features 0x2 of CPUID leaf 0x1.0, ECX: this host's KVM does not have them");
    }

    #[test]
    fn another_processor_is_named() {
        let error = check(&table(0xa2_0f12, 1), &table(0x5_06e3, 1)).unwrap_err().to_string();
        let was = "it was taken on a processor AuthenticAMD family 0x19 model 0x21";
        assert_eq!(error, format!("{was}: must be the same here, which is AuthenticAMD family 0x6 model 0x5e"));
    }
}
