// SPDX-License-Identifier: Apache-2.0
//! From a snapshot's directory to what a VM starts with.

use super::call::Restore;
use super::error::{RestoreError, VmmError};
use crate::boot::Origin;
use crate::config::VmConfig;
use crate::state::{self, Whole};

/// The configuration of a VM that goes on as `restore` says, and what it goes on from.
pub(super) fn read(restore: Restore) -> Result<(VmConfig, Origin), VmmError> {
    let Restore { path, prefault, sections, .. } = restore;
    let opened = state::open(&path).map_err(|source| RestoreError::Directory { path: path.clone(), source });
    let (file, image) = opened?;
    let state: Whole<VmConfig> =
        state::read(file).map_err(|source| RestoreError::State { path: path.join("state"), source })?;
    // A file that somebody has made can say anything that JSON can.
    let config = state.config.renewed(sections).map_err(RestoreError::Sections)?;
    config.check_savable().map_err(|error| RestoreError::Sections(error.to_string()))?;
    Ok((config, Origin { state, image, prefault }))
}

/// The configuration alone, for a VM that starts anew.
pub fn configuration(restore: Restore) -> Result<VmConfig, VmmError> {
    read(restore).map(|(config, _)| config)
}
