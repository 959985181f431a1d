// SPDX-License-Identifier: Apache-2.0
//! What a promise is.

use std::fmt;

use super::PROMISES;
use super::speed::Claim;
use super::sweeps::{Measure, SweepClaim};

/// Each run of `--runs` is so many rounds where the bound is some per cent from what holds: less than single boots differ on a
/// machine that others use.
pub(super) const ROUNDS_OF_CLOSE_BOUNDS: usize = 3;

/// Something that Flatboot promises, and the proof of it.
#[derive(Debug)]
pub struct Promise {
    /// Its name on the command line.
    pub name: &'static str,
    /// Where it stands in docs/SPECIFICATION.md.
    pub section: Section,
    /// What is promised, with `{bound}` for the number that the proof holds it to.
    pub statement: &'static str,
    /// How it is put to the test.
    pub proof: Proof,
}

/// A section of docs/SPECIFICATION.md.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Section {
    /// Ratios of times.
    Speed,
    /// flatboot's own memory.
    Size,
    /// The least and the most of what can be asked for.
    Limits,
    /// What happens when.
    Behaviour,
}

/// How a promise is put to the test.
#[derive(Debug)]
pub enum Proof {
    /// Boots are timed and compared.
    Speed(Claim),
    /// A sweep is run and judged.
    Sweep(SweepClaim),
    /// This script of the source tree is run: 0 is held, 1 is missed.
    Script(&'static str),
    /// [`super::clocks`] are compared; they may differ by so many per cent.
    Clocks {
        /// The bound.
        percent: f64,
    },
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
}

/// What a number must be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Bound {
    /// This or more.
    AtLeast(f64),
    /// This or less.
    AtMost(f64),
}

impl Bound {
    /// Whether `value` is within the bound; NaN never is.
    #[must_use]
    pub fn holds(self, value: f64) -> bool {
        match self {
            Self::AtLeast(least) => value >= least,
            Self::AtMost(most) => value <= most,
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtLeast(least) => write!(f, "at least {least}"),
            Self::AtMost(most) => write!(f, "at most {most}"),
        }
    }
}

impl Section {
    /// All of them, in the order of the document.
    pub const ALL: [Self; 4] = [Self::Speed, Self::Size, Self::Limits, Self::Behaviour];

    /// Its name on the command line; a heading begins with a capital.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Speed => "speed",
            Self::Size => "size",
            Self::Limits => "limits",
            Self::Behaviour => "behaviour",
        }
    }

    /// The table of this section in docs/SPECIFICATION.md.
    #[must_use]
    pub fn table(self) -> String {
        let rows = PROMISES.iter().filter(|promise| promise.section == self);
        let rows =
            rows.map(|promise| format!("| `{}` | {} | `{}` |\n", promise.name, promise.text(), promise.command()));
        "| Name | Promise | Command |\n|---|---|---|\n".to_owned() + &rows.collect::<String>()
    }
}

impl Promise {
    /// What is promised, in one sentence.
    #[must_use]
    pub fn text(&self) -> String {
        let bound = match &self.proof {
            Proof::Speed(claim) => claim.bound.to_string(),
            Proof::Sweep(claim) => claim.bound(),
            Proof::Clocks { percent } => format!("at most {percent} %"),
            Proof::Footprint { kib } => format!("at most {kib} KiB"),
            Proof::Program { mib } => format!("at most {mib} MiB"),
            Proof::Script(_) | Proof::Tests(_) => return self.statement.to_owned(),
        };
        self.statement.replace("{bound}", &bound)
    }

    /// The same in two or three words.
    #[must_use]
    pub fn in_short(&self) -> String {
        match &self.proof {
            Proof::Speed(claim) => format!("{} ×", claim.bound),
            Proof::Sweep(claim) => match &claim.measure {
                Measure::Growth(bound) => format!("{bound} ×"),
                Measure::HostMemory(_) => claim.bound(),
            },
            Proof::Script(_) => "nothing differs".to_owned(),
            Proof::Clocks { percent } => format!("at most {percent} %"),
            Proof::Footprint { kib } => format!("at most {kib} KiB"),
            Proof::Program { mib } => format!("at most {mib} MiB"),
            Proof::Tests(_) => "all tests pass".to_owned(),
        }
    }

    /// The command that fails when the promise is broken.
    #[must_use]
    pub fn command(&self) -> String {
        match &self.proof {
            Proof::Script(script) => (*script).to_owned(),
            Proof::Speed(_)
            | Proof::Sweep(_)
            | Proof::Clocks { .. }
            | Proof::Footprint { .. }
            | Proof::Program { .. } => {
                format!("flatboot-bench spec {}", self.name)
            }
            Proof::Tests(arguments) => {
                let words = arguments
                    .iter()
                    .map(|word| if word.contains(' ') { format!("'{word}'") } else { (*word).to_owned() });
                format!("cargo test {}", words.collect::<Vec<_>>().join(" "))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds() {
        assert!(Bound::AtLeast(1.5).holds(1.5) && !Bound::AtLeast(1.5).holds(1.49));
        assert!(Bound::AtMost(1.1).holds(1.1) && !Bound::AtMost(1.1).holds(1.11));
        assert!(!Bound::AtLeast(1.0).holds(f64::NAN) && !Bound::AtMost(1.0).holds(f64::NAN));
    }

    #[test]
    fn names_are_unique_and_sections_together() {
        for (index, promise) in PROMISES.iter().enumerate() {
            let others = PROMISES.iter().skip(index + 1);
            assert!(others.clone().all(|other| other.name != promise.name), "{} is there twice", promise.name);
            assert!(Section::ALL.iter().all(|section| section.name() != promise.name), "{} is a section", promise.name);
            let then = PROMISES.get(index + 1).map(|next| next.section as u8);
            assert!(then.is_none_or(|then| then >= promise.section as u8), "{} is out of order", promise.name);
        }
    }

    /// A bound that the sentence does not say would be a promise that nobody reads.
    #[test]
    fn every_bound_is_told() {
        for promise in PROMISES {
            let told = promise.statement.contains("{bound}");
            assert_eq!(told, !matches!(promise.proof, Proof::Script(_) | Proof::Tests(_)), "{}", promise.name);
            assert!(!promise.text().contains(['{', '}', '|']), "{}", promise.text());
        }
    }
}
