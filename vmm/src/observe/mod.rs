// SPDX-License-Identifier: Apache-2.0
//! What can be seen of a VM from outside: counters, and a log.

pub mod counters;
pub mod devices;
pub mod log;
