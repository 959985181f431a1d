// SPDX-License-Identifier: Apache-2.0
//! What a guest finds a device by, and talks to it through.

mod line;
pub mod mmio;
