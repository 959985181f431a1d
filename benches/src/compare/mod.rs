// SPDX-License-Identifier: Apache-2.0
//! `flatboot-bench compare`: two results files, variant by variant, and how sure each difference is.

mod differences;
mod gate;
mod pairs;
mod render;

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

/// Why there is nothing to compare.
#[derive(Debug, thiserror::Error)]
pub enum CompareError {
    /// Times taken on different hosts.
    #[error("{a} and {b}: the hosts differ: {what}; --across-hosts compares them nevertheless")]
    Hosts {
        /// A file.
        a: String,
        /// The other.
        b: String,
        /// In what.
        what: String,
    },
    /// No variant is in both.
    #[error("{a} and {b}: no variant is in both")]
    NothingShared {
        /// A file.
        a: String,
        /// The other.
        b: String,
    },
}

/// The whole text, with styles, and what the limit says, if there is one.
pub fn compare(
    a: Side<'_>,
    b: Side<'_>,
    options: &Options,
    screen: Screen,
) -> Result<(String, Option<Gate>), CompareError> {
    let names = || (plain(&a.path.display().to_string()), plain(&b.path.display().to_string()));
    let hosts = differences::hosts(&a.results.facts.host, &b.results.facts.host);
    if !hosts.is_empty() && !options.across_hosts {
        let (a, b) = names();
        let what: Vec<_> = hosts.iter().map(differences::Difference::words).collect();
        return Err(CompareError::Hosts { a, b, what: what.join("; ") });
    }
    let matched = pairs::matched(a.results, b.results);
    if matched.pairs.is_empty() {
        let (a, b) = names();
        return Err(CompareError::NothingShared { a, b });
    }
    let gate = options.fail_above.map(|limit| Gate::of(&matched.pairs, limit, options.if_shown));
    Ok((render::render([a, b], &hosts, matched, gate.as_ref(), screen), gate))
}
