// SPDX-License-Identifier: Apache-2.0
//! flatboot: a VMM on KVM for guests whose boot time does not grow with their memory.

pub mod cli;
pub mod config;
pub mod devices;
pub mod layout;
pub mod memory;
