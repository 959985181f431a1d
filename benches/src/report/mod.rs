// SPDX-License-Identifier: Apache-2.0
//! The report: results files as one HTML page that needs nothing else.

mod chart;
mod facts;
#[cfg(test)]
pub(crate) mod fixture;
mod format;
mod headline;
mod model;
mod output;
mod page;
mod phases;
mod plot;
mod style;
mod tables;

use std::path::{Path, PathBuf};

pub use output::{ReportError, Written};

use crate::results;

/// Draws `files`, in that order, into `out`.
///
/// `out` is written whole or not at all. A file that is there already is replaced only if it is a report.
pub fn write(files: &[PathBuf], out: &Path) -> Result<Written, ReportError> {
    output::refuse_other_files(out)?;
    let loaded: anyhow::Result<_> = files.iter().map(|path| Ok((path.clone(), results::load(path)?))).collect();
    let sources = model::sources(loaded.map_err(ReportError::Named)?);
    let sections = model::sections(&sources);
    let html = page::page(&sections)?;
    output::write(out, &html)?;
    Ok(Written { bytes: html.len(), hosts: sections.len() })
}
