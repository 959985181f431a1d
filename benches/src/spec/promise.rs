// SPDX-License-Identifier: Apache-2.0
//! What a promise is.

use super::speed::Claim;
use super::sweeps::SweepClaim;

/// Something that Flatboot promises, and the proof of it.
#[derive(Debug)]
pub struct Promise {
    /// Its name on the command line, and in docs/SPECIFICATION.md, which says what is promised.
    pub name: &'static str,
    /// How it is put to the test.
    pub proof: Proof,
}

/// How a promise is put to the test.
#[derive(Debug)]
pub enum Proof {
    /// Boots or changes are timed and compared.
    Speed(Claim),
    /// A sweep is run and judged.
    Sweep(SweepClaim),
    /// This script of the source tree is run: 0 is held, 1 is missed.
    Script(&'static str),
    /// [`super::footprint`] is measured; this many KiB at most are allowed.
    Footprint {
        /// The bound, in KiB.
        kib: u64,
    },
    /// flatboot's executable; this many MiB at most are allowed.
    Program {
        /// The bound, in MiB.
        mib: u64,
    },
    /// `cargo test` with these arguments, the last of which chooses the tests: there is one at least, and all pass.
    Tests(&'static [&'static str]),
    /// The same, and they time something, in as many rounds as are asked for.
    Timed(&'static [&'static str]),
}

/// What is promised, row by row.
const DOCUMENT: &str = include_str!("../../../docs/SPECIFICATION.md");
/// The document's sections that have rows, in its order; also their names on the command line.
pub const SECTIONS: [&str; 4] = ["speed", "size", "limits", "behaviour"];

/// The rows of a section: each a promise's name, what is promised, and the command that fails when it is broken.
pub fn rows(section: &str) -> impl Iterator<Item = [&'static str; 3]> {
    let begin = format!("<!-- {section}: begin -->");
    let lines = DOCUMENT.lines().skip_while(move |line| *line != begin).take_while(|line| !line.ends_with(": end -->"));
    lines.filter_map(|line| {
        let (name, row) = line.strip_prefix("| `")?.strip_suffix("` |")?.split_once("` | ")?;
        let (text, command) = row.rsplit_once(" | `")?;
        Some([name, text, command])
    })
}

impl Promise {
    /// The section that its row is in, and what is promised there, in one sentence.
    fn row(&self) -> (&'static str, &'static str) {
        let of = |section| rows(section).find_map(|[name, text, _]| (name == self.name).then_some((section, text)));
        SECTIONS.into_iter().find_map(of).unwrap_or_default()
    }

    pub(super) fn section(&self) -> &'static str {
        self.row().0
    }

    pub(super) fn text(&self) -> &'static str {
        self.row().1
    }

    /// What the measured number is held to; where there is none, what must be so.
    #[must_use]
    pub fn bound(&self) -> String {
        match &self.proof {
            Proof::Speed(claim) => claim.bound.to_string(),
            Proof::Sweep(claim) => claim.bound(),
            Proof::Footprint { kib } => format!("at most {kib} KiB"),
            Proof::Program { mib } => format!("at most {mib} MiB"),
            Proof::Script(_) => "nothing differs".to_owned(),
            Proof::Tests(_) | Proof::Timed(_) => "all tests pass".to_owned(),
        }
    }

    /// The same, with what it is a ratio of.
    pub(super) fn in_short(&self) -> String {
        let is_ratio = match &self.proof {
            Proof::Speed(_) => true,
            Proof::Sweep(claim) => claim.is_ratio(),
            _ => false,
        };
        if is_ratio { self.bound() + " ×" } else { self.bound() }
    }

    /// The command that fails when the promise is broken.
    #[must_use]
    pub fn command(&self) -> String {
        match &self.proof {
            Proof::Script(script) => (*script).to_owned(),
            Proof::Speed(_) | Proof::Sweep(_) | Proof::Footprint { .. } | Proof::Program { .. } => {
                format!("flatboot-bench spec {}", self.name)
            }
            Proof::Tests(arguments) | Proof::Timed(arguments) => {
                let words = arguments
                    .iter()
                    .map(|word| if word.contains(' ') { format!("'{word}'") } else { (*word).to_owned() });
                format!("cargo test {}", words.collect::<Vec<_>>().join(" "))
            }
        }
    }
}
