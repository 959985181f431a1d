// SPDX-License-Identifier: Apache-2.0
//! The vCPUs' threads, and what each does before the guest runs.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::devices::Buses;
use super::entry::Context;
use super::platform::Platform;
use crate::memory::GpaRange;
use crate::observe::counters::Counters;
use crate::vcpu::{self, Saved, Shared, Task, VcpuError, Waiting};
use crate::vm::Vm;

/// Starts the threads, which back memory until the boot CPU may start; or make their vCPUs what was `saved`, and rest.
pub(super) fn start(
    vm: Vm,
    Buses { ports, mmio }: Buses,
    counters: &Arc<Counters>,
    platform: Platform<'_>,
    context: &Context,
    saved: Option<Saved>,
) -> Result<(Arc<Shared>, Waiting), VcpuError> {
    let shared = Arc::new(Shared {
        vm,
        memory: platform.memory.clone(),
        ports,
        mmio,
        ender: context.ender.clone(),
        counters: Arc::clone(counters),
        jail: context.jail.clone(),
        timeline: Arc::clone(&context.timeline),
        panicked: AtomicBool::new(false),
    });
    // What was saved has its pages where it has them.
    let tasks = if saved.is_some() { idle(platform) } else { tasks(platform) };
    let waiting = vcpu::start(&shared, tasks, saved)?;
    Ok((shared, waiting))
}

/// Where each vCPU's thread runs, and nothing for it to do there.
fn idle(Platform { config, .. }: Platform<'_>) -> Vec<Task> {
    config.cpus.affinities().map(|affinity| Task { affinity, ..Task::default() }).collect()
}

/// Where each vCPU's thread runs, and what it backs there: memory of the guest's node that the vCPU is on. Threads that run anywhere
/// back any memory.
fn tasks(Platform { config, plan, .. }: Platform<'_>) -> Vec<Task> {
    let anywhere = config.cpus.affinity.is_empty();
    let node_of = |node: u32| if anywhere { 0 } else { node };
    let nodes: Vec<_> = (0..config.cpus.boot.get()).map(|index| node_of(config.nodes.of_cpu(index))).collect();
    let placed = |ranges: &[GpaRange]| -> Vec<_> {
        ranges.iter().map(|range| (*range, node_of(plan.node_of(range.start())))).collect()
    };
    let backing = plan.backing();
    vcpu::tasks(config.cpus.affinities(), &nodes, &placed(&backing.early), &placed(&backing.ahead))
}
