// SPDX-License-Identifier: Apache-2.0
//! The VM generation ID: 16 bytes that are another random number in each VM, however alike the states are that two of them come
//! from. ("Virtual Machine Generation ID", Microsoft; Documentation/devicetree/bindings/rng/microsoft,vmgenid.yaml of Linux.)
//!
//! It lies in a page of its own, outside of RAM: a guest that boots through firmware finds it where one does that has no firmware.

use std::io;

use rustix::rand::{GetRandomFlags, getrandom};
use vm_memory::{Bytes, GuestAddress};

use crate::layout;
use crate::memory::guest::{self, MapError};
use crate::memory::{Backing, GpaRange, GuestMemory, Slot};

/// Bytes of the number.
const LENGTH: usize = 16;

/// Why there is none.
#[derive(Debug, thiserror::Error)]
pub enum GenerationError {
    /// No memory.
    #[error("the VM generation ID: there is no room for it")]
    Map(#[from] MapError),
    /// No number.
    #[error("the VM generation ID: the host has no random number for it")]
    Random(#[source] io::Error),
}

/// The page with a number that no other VM has, for a memory slot.
pub fn page() -> Result<GuestMemory, GenerationError> {
    let range = GpaRange::new(layout::GENERATION.start, layout::GENERATION.end);
    let page = guest::map(&[Slot::new(range, Backing::default())])?;
    let mut number = [0; LENGTH];
    // So few bytes come at once, or not at all.
    getrandom(&mut number, GetRandomFlags::empty()).map_err(|error| GenerationError::Random(error.into()))?;
    page.write_slice(&number, GuestAddress(range.start()))
        .map_err(|error| GenerationError::Random(io::Error::other(error)))?;
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_another_one() {
        let number = || {
            let mut page = vec![0; 4096];
            super::page().unwrap().read_slice(&mut page, GuestAddress(layout::GENERATION.start)).unwrap();
            assert!(page[LENGTH..].iter().all(|byte| *byte == 0));
            page[..LENGTH].to_vec()
        };
        let (one, other) = (number(), number());
        assert!(one != other && one != [0; LENGTH] && other != [0; LENGTH]);
    }
}
