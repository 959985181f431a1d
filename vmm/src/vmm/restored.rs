// SPDX-License-Identifier: Apache-2.0
//! From a snapshot's directory to what a VM starts with.

use std::fs::File;

use flatboot_handoff::SECTION_SIZE;
use serde_json::{Map, Value};

use super::call::Restore;
use super::error::{RestoreError, VmmError};
use crate::boot::Origin;
use crate::config::{ConfigError, FieldError, OutputFile, VmConfig};
use crate::field::Field;
use crate::memory::Size;
use crate::state::{self, Whole};

const SNAPSHOT: Field = Field::section("restore");

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
        state::read(&file).map_err(|source| RestoreError::State { path: path.join("state"), source })?;
    let config = renewed(&state.config, sections)?;
    [&file, &image].into_iter().try_for_each(|file| has_not(&config, file)).map_err(RestoreError::Sections)?;
    let wanted = size.map(|size| wanted(&config, size)).transpose().map_err(RestoreError::Sections)?;
    Ok(Saved { config, origin: Origin { state, image, prefault }, wanted })
}

/// A VM that writes to what it goes on from, or to what others do, would change all of them.
fn has_not(config: &VmConfig, file: &File) -> Result<(), String> {
    let used = config.uses(file).map_err(|error| error.to_string())?;
    let must = "is a file of the snapshot: must be another one";
    used.map_or(Ok(()), |(field, path)| Err(FieldError::of(field, &path.display(), must).to_string()))
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

/// Refuses `restore` if a file of the snapshot, or of the VM, is `output`. What is wrong with the snapshot is said when it is read.
pub fn leaves_alone(restore: &Restore, output: &OutputFile) -> Result<(), ConfigError> {
    output.is_none_of(state::files(&restore.path).map(|path| (SNAPSHOT, path)))?;
    configuration(restore.clone()).map_or(Ok(()), |(vm, _)| vm.leaves_alone(output))
}

/// The configuration alone, for a VM that starts anew, and bytes of held memory that it is to own then.
pub fn configuration(restore: Restore) -> Result<(VmConfig, Option<u64>), VmmError> {
    read(restore).map(|saved| (saved.config, saved.wanted))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::RawConfig;

    #[test]
    fn what_a_vm_goes_on_from_is_no_file_of_its_own() {
        let directory = tempfile::tempdir().unwrap();
        let [state, link] = ["state", "link"].map(|name| directory.path().join(name));
        let file = File::create(&state).unwrap();
        std::fs::hard_link(&state, &link).unwrap();
        let with = |serial: String| {
            let raw = RawConfig { kernel: Some("k".into()), serial, ..RawConfig::default() };
            has_not(&VmConfig::try_from(raw).unwrap(), &file)
        };
        assert_eq!(with("null".to_owned()), Ok(()));
        assert_eq!(with(format!("file={}", directory.path().join("other").display())), Ok(()));
        let must = format!("serial.file={}: is a file of the snapshot: must be another one", link.display());
        assert_eq!(with(format!("file={}", link.display())), Err(must));
    }
}
