// SPDX-License-Identifier: Apache-2.0
//! `flatboot-bench compare`: two results files, variant by variant, and how sure each difference is.

mod differences;
mod gate;
mod pairs;
mod render;

use anyhow::{Result, bail, ensure};

use crate::terminal::{Screen, plain};

pub use gate::{Gate, Limit};
pub use pairs::{Side, Verdict};

/// What else was asked for.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// Where a ratio becomes a failure.
    pub fail_above: Option<Limit>,
    /// Only what is shown to be slower is a failure, and not what may be noise.
    pub if_shown: bool,
    /// Compare although the hosts differ.
    pub across_hosts: bool,
}

/// The whole text, with styles, and what the limit says, if there is one. An error is that there is nothing to compare.
pub fn compare(a: Side<'_>, b: Side<'_>, options: &Options, screen: Screen) -> Result<(String, Option<Gate>)> {
    let names = || format!("{} and {}", plain(&a.path.display().to_string()), plain(&b.path.display().to_string()));
    let hosts = differences::hosts(&a.results.facts.host, &b.results.facts.host);
    if !hosts.is_empty() && !options.across_hosts {
        let what: Vec<_> = hosts.iter().map(differences::Difference::words).collect();
        bail!("{}: the hosts differ: {}; --across-hosts compares them nevertheless", names(), what.join("; "));
    }
    let matched = pairs::matched(a.results, b.results);
    ensure!(!matched.pairs.is_empty(), "{}: no variant is in both", names());
    let gate = options.fail_above.map(|limit| Gate::of(&matched.pairs, limit, options.if_shown));
    Ok((render::render([a, b], &hosts, matched, gate.as_ref(), screen), gate))
}
