// SPDX-License-Identifier: Apache-2.0
//! `show`, `compare` and `report`: what results files say; and `scrub`, what they should not say to everybody.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use flatboot_bench::compare::{self, Options, Side};
use flatboot_bench::terminal::{self, Screen};
use flatboot_bench::{report, results, scrub, show};

use crate::cli::{CompareArgs, ReportArgs, ScrubArgs};
use crate::failure::or;

/// A file as a table.
pub(crate) fn show(file: &Path) -> Result<u8> {
    let results = results::load(file)?;
    terminal::print(&show::render(&results, file, Screen::of_stdout()))?;
    Ok(0)
}

/// Two files, side by side.
pub(crate) fn compare(args: &CompareArgs) -> Result<u8> {
    let (a, b) = (results::load(&args.a)?, results::load(&args.b)?);
    let options = Options { fail_above: args.fail_above, if_shown: args.if_shown, across_hosts: args.across_hosts };
    let sides = (Side { path: &args.a, results: &a }, Side { path: &args.b, results: &b });
    let (text, gate) = compare::compare(sides.0, sides.1, &options, Screen::of_stdout())?;
    terminal::print(&text)?;
    Ok(gate.map_or(0, |gate| gate.exit_code()))
}

/// Their charts, in one page.
pub(crate) fn report(ReportArgs { files, out }: &ReportArgs) -> u8 {
    match report::write(files, out) {
        Ok(written) => {
            if written.hosts > 1 {
                eprintln!("flatboot-bench: the files come from {} hosts: each has charts of its own", written.hosts);
            }
            println!("{}: {} KiB; open it in a browser", out.display(), written.bytes.div_ceil(1024));
            0
        }
        Err(error) => or(error.exit_code(), Err(error.into())),
    }
}

/// A file that can be sent to others.
pub(crate) fn scrub(ScrubArgs { file, out }: &ScrubArgs) -> Result<u8> {
    let mut results = results::load(file)?;
    if let Ok(there) = fs::canonicalize(out) {
        ensure!(there != fs::canonicalize(file)?, "{}: would take its own place: name another file", out.display());
        results::load(out).context("only another results file is replaced")?;
    }
    let replaced = scrub::scrub(&mut results, &rustix::system::uname().nodename().to_string_lossy());
    results::save(&results, out)?;
    println!("{}: replaced {replaced}; read it before you send it", out.display());
    Ok(0)
}
