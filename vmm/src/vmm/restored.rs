// SPDX-License-Identifier: Apache-2.0
//! From a snapshot's directory to what a VM starts with.

use flatboot_handoff::SECTION_SIZE;
use serde_json::{Map, Value};

use super::call::Restore;
use super::error::{RestoreError, VmmError};
use crate::boot::Origin;
use crate::config::VmConfig;
use crate::memory::Size;
use crate::state::{self, Whole};

/// What a VM starts with that goes on as somebody says.
#[derive(Debug)]
pub(super) struct Saved {
    pub(super) config: VmConfig,
    pub(super) origin: Origin,
    /// Bytes of held memory that it is to own, if that is to be other than it was.
    pub(super) wanted: Option<u64>,
}

/// What a VM starts with that goes on as `restore` says.
pub(super) fn read(restore: Restore) -> Result<Saved, VmmError> {
    let Restore { path, prefault, mut sections, .. } = restore;
    let size = memory_size(&mut sections).map_err(RestoreError::Sections)?;
    let opened = state::open(&path).map_err(|source| RestoreError::Directory { path: path.clone(), source });
    let (file, image) = opened?;
    let state: Whole<VmConfig> =
        state::read(file).map_err(|source| RestoreError::State { path: path.join("state"), source })?;
    let config = renewed(&state.config, sections)?;
    let wanted = size.map(|size| wanted(&config, size)).transpose().map_err(RestoreError::Sections)?;
    Ok(Saved { config, origin: Origin { state, image, prefault }, wanted })
}

/// What was `saved`, with other `sections`. A file that somebody has made can say anything that JSON can.
pub(super) fn renewed(saved: &VmConfig, sections: Map<String, Value>) -> Result<VmConfig, RestoreError> {
    let config = saved.renewed(sections).map_err(RestoreError::Sections)?;
    config.check_savable().map_err(|error| RestoreError::Sections(error.to_string()))?;
    Ok(config)
}

/// Takes from `sections` how much memory the VM is to have: of that section, the size alone can be another one.
fn memory_size(sections: &mut Map<String, Value>) -> Result<Option<u64>, String> {
    let Some(section) = sections.remove("memory") else { return Ok(None) };
    let size = section.as_object().filter(|fields| fields.len() == 1).and_then(|fields| fields.get("size")?.as_u64());
    size.map(Some)
        .ok_or_else(|| "memory: is as it was saved but for its size: must have size, and nothing else".to_owned())
}

/// Bytes of held memory that the guest of `config` owns when it has `size` bytes of memory.
fn wanted(config: &VmConfig, size: u64) -> Result<u64, String> {
    let (least, held) = (config.memory_size(), config.held_memory());
    let wanted = size.checked_sub(least).filter(|wanted| *wanted <= held && wanted.is_multiple_of(SECTION_SIZE));
    wanted.ok_or_else(|| {
        let (size, least, most) = (Size(size), Size(least), Size(least + held));
        if held == 0 {
            return format!("memory.size={size:#}: must be {least:#}: the VM was saved without memory.max");
        }
        let section = Size(SECTION_SIZE);
        format!("memory.size={size:#}: must be {least:#} to {most:#}, and {least:#} plus a multiple of {section:#}")
    })
}

/// The configuration alone, for a VM that starts anew, and bytes of held memory that it is to own then.
pub fn configuration(restore: Restore) -> Result<(VmConfig, Option<u64>), VmmError> {
    read(restore).map(|saved| (saved.config, saved.wanted))
}
