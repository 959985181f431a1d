// SPDX-License-Identifier: Apache-2.0
//! What came of a promise, and the line that says so.

use anstyle::{AnsiColor, Style};

/// What came of a promise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// The verdict.
    pub status: Status,
    /// What was measured or counted, in a few words.
    pub measured: String,
    /// More about it, line by line.
    pub details: Vec<String>,
}

/// The verdict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Status {
    /// Kept.
    Held,
    /// Kept, as far as this machine or this kernel can show it, and why not all of it.
    HeldInPart(String),
    /// Broken.
    Missed,
    /// This machine lacks what the proof needs.
    CannotHere(String),
    /// Something went wrong before there was anything to judge.
    NotRun(String),
}

impl Outcome {
    /// The proof failed before there was anything to judge.
    #[must_use]
    pub fn not_run(why: String) -> Self {
        Self { status: Status::NotRun(why), measured: "-".to_owned(), details: Vec::new() }
    }

    /// This machine lacks something.
    #[must_use]
    pub fn cannot_here(why: String) -> Self {
        Self { status: Status::CannotHere(why), measured: "-".to_owned(), details: Vec::new() }
    }
}

impl Status {
    /// Its word or words, and how they look in a terminal.
    #[must_use]
    pub fn words(&self) -> (String, Style) {
        let colour = |colour: AnsiColor| Style::new().fg_color(Some(colour.into()));
        match self {
            Self::Held => ("held".to_owned(), colour(AnsiColor::Green)),
            Self::HeldInPart(why) => (format!("held in part ({why})"), colour(AnsiColor::Yellow)),
            Self::Missed => ("MISSED".to_owned(), colour(AnsiColor::Red).bold()),
            Self::CannotHere(why) => (format!("not run (cannot here: {why})"), colour(AnsiColor::Yellow)),
            Self::NotRun(why) => (format!("not run ({why})"), colour(AnsiColor::Red)),
        }
    }
}
