// SPDX-License-Identifier: Apache-2.0
//! `manuals`: manual pages and completions for shells, from the same words as `--help`.

#[path = "../../../vmm/examples/manuals/pages.rs"]
mod pages;

use std::path::Path;

use anyhow::{Context, Result};
use clap::CommandFactory;

use crate::cli::Cli;

/// Writes them to `out`.
pub(crate) fn manuals(out: &Path) -> Result<u8> {
    let written = pages::write("flatboot-bench", Cli::command, out);
    written.with_context(|| out.display().to_string()).map(|()| 0)
}
