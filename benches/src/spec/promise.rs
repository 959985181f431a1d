// SPDX-License-Identifier: Apache-2.0
//! What a promise is.

use super::speed::Claim;
use super::sweeps::SweepClaim;

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
}

impl Promise {
    /// What is promised, in one sentence.
    #[must_use]
    pub fn text(&self) -> String {
        let bound = match &self.proof {
            Proof::Speed(claim) => claim.bound.to_string(),
            Proof::Sweep(claim) => claim.bound(),
            Proof::Footprint { kib } => format!("at most {kib} KiB"),
            Proof::Program { mib } => format!("at most {mib} MiB"),
            Proof::Script(_) | Proof::Tests(_) | Proof::Timed(_) => return self.statement.to_owned(),
        };
        self.statement.replace("{bound}", &bound)
    }

    /// The same in two or three words.
    #[must_use]
    pub fn in_short(&self) -> String {
        match &self.proof {
            Proof::Speed(claim) => format!("{} ×", claim.bound),
            Proof::Sweep(claim) => claim.in_short(),
            Proof::Script(_) => "nothing differs".to_owned(),
            Proof::Footprint { kib } => format!("at most {kib} KiB"),
            Proof::Program { mib } => format!("at most {mib} MiB"),
            Proof::Tests(_) | Proof::Timed(_) => "all tests pass".to_owned(),
        }
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
