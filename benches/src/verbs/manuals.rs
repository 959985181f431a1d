// SPDX-License-Identifier: Apache-2.0
//! `manuals`: manual pages and completions for shells, from the same words as `--help`.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use clap::{CommandFactory, ValueEnum};
use clap_complete::Shell;

use crate::cli::Cli;

/// Writes them to `out`.
pub(crate) fn manuals(out: &Path) -> Result<u8> {
    let write = || {
        fs::create_dir_all(out)?;
        clap_mangen::generate_to(Cli::command(), out)?;
        let mut shells = Shell::value_variants().iter();
        shells.try_for_each(|shell| {
            clap_complete::generate_to(*shell, &mut Cli::command(), "flatboot-bench", out).map(drop)
        })
    };
    write().with_context(|| out.display().to_string()).map(|()| 0)
}
