// SPDX-License-Identifier: Apache-2.0
//! What a vCPU is before its first instruction: CPUID, model-specific registers, and the boot CPU's registers.

pub mod cpuid;
pub mod model;
pub mod registers;
pub mod topology;
