// SPDX-License-Identifier: Apache-2.0
//! What there is of a VM once it has been started.

use std::sync::Arc;

use kvm_ioctls::Kvm;

use super::devices::Handles;
use crate::observe::counters::Counters;
use crate::vcpu::{Shared, Threads};

/// A VM whose vCPUs run, or rest before they do.
#[derive(Debug)]
pub struct RunningVm {
    /// The threads of its vCPUs.
    pub vcpus: Threads,
    /// What it has beside them.
    pub devices: Handles,
    /// What vCPUs and devices have done.
    pub counters: Arc<Counters>,
    /// What its vCPUs have in common, by which it is saved.
    pub shared: Arc<Shared>,
    /// For whoever wants to know, once KVM has failed, whether it works at all, and can open it no more.
    pub kvm: Kvm,
}
