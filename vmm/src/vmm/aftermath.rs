// SPDX-License-Identifier: Apache-2.0
//! What is left to do when a VM is over: its timeline is written where its owner asked for it.

use std::sync::Arc;

use super::error::TimelineError;
use crate::config::{Config, OutputFile};
use crate::memory::Size;
use crate::stdio;
use crate::timeline::{self, Timeline};

/// What is needed after the configuration has been consumed.
#[derive(Debug)]
pub struct Aftermath {
    timeline: Arc<Timeline>,
    output: Option<OutputFile>,
    vcpus: u16,
    memory: u64,
}

impl Aftermath {
    /// Takes from `config` what it needs.
    pub(super) fn of(config: &mut Config, timeline: Arc<Timeline>) -> Self {
        let machine = &config.machine;
        let (vcpus, memory) = (machine.cpus.boot.get(), machine.memory.size().0);
        Self { timeline, output: config.timeline.take(), vcpus, memory }
    }

    /// Writes the timeline, and shows it.
    pub fn report(self) -> Result<(), TimelineError> {
        let Some(output) = self.output else {
            return Ok(());
        };
        let marks = self.timeline.marks();
        let path = output.path().display().to_string();
        let mut file = output.commit()?;
        timeline::write_json(&mut file, &self.timeline, self.vcpus, self.memory)
            .map_err(|source| TimelineError::Write { path, source })?;
        let picture = timeline::waterfall(&marks);
        let summary = timeline::summary(&marks, self.vcpus, &Size(self.memory).to_string());
        stdio::tell(&format!("\n{picture}\n{summary}"));
        Ok(())
    }
}
