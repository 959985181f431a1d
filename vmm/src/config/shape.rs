// SPDX-License-Identifier: Apache-2.0
//! The options that give a VM its shape, together.

use super::error::ConfigError;
use super::memory::MemoryConfig;
use super::numa::{self, NumaOption};
use super::options::OptionError;
use super::raw::ShapeArgs;
use super::study::StudyConfig;
use super::vcpus::CpusConfig;
use crate::memory::{PlanInput, Zone};

/// What a VM's memory and the tables about it follow from.
#[derive(Debug)]
pub struct Shape {
    /// The vCPUs.
    pub cpus: CpusConfig,
    /// The memory.
    pub memory: MemoryConfig,
    /// Its parts, in the order of the guest's addresses.
    pub zones: Vec<Zone>,
    /// What is different from an ordinary VM.
    pub study: StudyConfig,
}

impl Shape {
    /// What `args` say of vCPUs and memory, and the nodes that follow from it.
    pub fn parse(args: &ShapeArgs) -> Result<Self, ConfigError> {
        let cpus = CpusConfig::parse(&args.cpus)?;
        let memory = MemoryConfig::parse(args.memory(), &args.memory_zones)?;
        let nodes = parse_numa(&args.numa)?;
        let (_, zones) = numa::resolved(&nodes, &cpus, &memory)?;
        let study = StudyConfig::parse(&args.study)?;
        study.check(&memory)?;
        memory.check_max(false, nodes.len(), study.handoff)?;
        Ok(Self { cpus, memory, zones, study })
    }

    /// What the memory plan follows from.
    #[must_use]
    pub fn plan_input(&self) -> PlanInput {
        self.study.plan_input(&self.memory, self.zones.clone())
    }
}

pub(super) fn parse_numa(texts: &[String]) -> Result<Vec<NumaOption>, OptionError> {
    texts.iter().map(|text| NumaOption::parse(text)).collect()
}
