// SPDX-License-Identifier: Apache-2.0
//! flatboot: a VMM on KVM for guests whose boot time does not grow with their memory.

pub mod acpi;
pub mod api;
pub mod bits;
pub mod boot;
pub mod chain;
pub mod check;
pub mod cli;
pub mod complaints;
pub mod config;
pub mod counted;
pub mod cpu;
pub mod descriptors;
pub mod devices;
pub mod ender;
pub mod ending;
pub mod events;
pub mod field;
pub mod firmware;
pub mod generation;
pub mod inherited;
pub mod keeper;
pub mod kernel;
pub mod layout;
pub mod leave;
pub mod line;
pub mod listener;
pub mod memory;
pub mod numa;
pub mod observe;
pub mod probe;
pub mod run;
pub mod sandbox;
pub mod signals;
pub mod state;
pub mod stdio;
pub mod timeline;
pub mod vcpu;
pub mod vm;
pub mod vmm;

#[cfg(test)]
#[path = "../tests/common/images.rs"]
mod images;
