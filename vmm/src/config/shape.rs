// SPDX-License-Identifier: Apache-2.0
//! The options that give a VM its shape, together.

use super::error::ConfigError;
use super::memory::MemoryConfig;
use super::numa::{self, NumaOption};
use super::options::OptionError;
use super::raw::ShapeArgs;
use super::vcpus::CpusConfig;
use crate::memory::Zone;

/// What `shape` says of vCPUs and memory, and the nodes that follow from it.
pub fn parse_shape(shape: &ShapeArgs) -> Result<(CpusConfig, MemoryConfig, Vec<Zone>), ConfigError> {
    let cpus = CpusConfig::parse(&shape.cpus)?;
    let memory = MemoryConfig::parse(shape.memory(), &shape.memory_zones)?;
    let (_, zones) = numa::resolved(&parse_numa(&shape.numa)?, &cpus, &memory)?;
    Ok((cpus, memory, zones))
}

pub(super) fn parse_numa(texts: &[String]) -> Result<Vec<NumaOption>, OptionError> {
    texts.iter().map(|text| NumaOption::parse(text)).collect()
}
