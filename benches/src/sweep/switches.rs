// SPDX-License-Identifier: Apache-2.0
//! What can be switched off to see what it is worth: the one list of switches.

use std::str::FromStr;

use crate::modes::Mode;
use crate::once::each_once;

/// A part of what makes boots fast, which one word turns off.
#[derive(Debug, PartialEq, Eq)]
pub struct Switch {
    /// Its name on the command line and in results.
    pub name: &'static str,
    /// Where the word that turns it off goes.
    pub place: Place,
    /// That word.
    pub word: &'static str,
}

/// Where a word goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// After everything else on the kernel command line, where the last one of a kind counts.
    Cmdline,
    /// The value of flatboot's `--study`.
    Study,
}

/// All switches. A new one is a line here, and one of docs/measuring.md that says what is then missing.
pub const SWITCHES: &[Switch] = &[
    Switch { name: "low-zones", place: Place::Cmdline, word: "memmap_init_early=4G" },
    Switch { name: "async", place: Place::Cmdline, word: "memmap_init=parallel" },
    Switch { name: "arenas", place: Place::Study, word: "arenas=off" },
    Switch { name: "early-threads", place: Place::Study, word: "early=off" },
    Switch { name: "known-zero", place: Place::Study, word: "zeroed=off" },
    Switch { name: "memory-plan", place: Place::Study, word: "layout=pc" },
];

/// The mode that [`SWITCHES`] take parts away from: with another there would be no `async` to switch off.
pub const FULL_SET: &str = "async";

/// A value of `--without`: one switch, or all of them, each by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Without(Vec<&'static Switch>);

impl FromStr for Without {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let meant: Vec<_> = SWITCHES.iter().filter(|switch| text == "all" || switch.name == text).collect();
        if meant.is_empty() {
            let names: Vec<_> = SWITCHES.iter().map(|switch| switch.name).collect();
            return Err(format!("{text:?}: must be one of {}, or all for each of them alone", names.join(", ")));
        }
        Ok(Self(meant))
    }
}

impl Without {
    /// The switches that `list` means, in its order, each once.
    #[must_use]
    pub fn switches(list: &[Self]) -> Vec<&'static Switch> {
        each_once(list.iter().flat_map(|without| without.0.iter().copied()))
    }
}

impl Switch {
    /// The switch called `name`.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        SWITCHES.iter().find(|switch| switch.name == name)
    }

    /// Whether it takes anything away from `mode`.
    #[must_use]
    pub fn applies_to(&self, mode: &Mode) -> bool {
        mode.name == FULL_SET
    }

    /// Whether only flatboot can be told.
    #[must_use]
    pub fn is_of_flatboot(&self) -> bool {
        self.place != Place::Cmdline
    }
}

/// The word of `switch` where it goes to `place`; none elsewhere.
#[must_use]
pub(super) fn word(switch: Option<&'static Switch>, place: Place) -> Option<&'static str> {
    switch.filter(|switch| switch.place == place).map(|switch| switch.word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_all_means_each() {
        for (index, switch) in SWITCHES.iter().enumerate() {
            assert!(SWITCHES[index + 1..].iter().all(|other| other.name != switch.name), "{}", switch.name);
            assert_ne!(switch.name, "all");
        }
        let list: Vec<Without> = ["arenas", "all"].map(|name| name.parse().unwrap()).to_vec();
        let switches = Without::switches(&list);
        assert_eq!((switches.len(), switches[0].name), (SWITCHES.len(), "arenas"));
        let error = "low".parse::<Without>().unwrap_err();
        assert!(error.starts_with("\"low\": must be one of low-zones, async, "), "{error}");
    }

    #[test]
    fn a_word_goes_to_its_place_alone() {
        let arenas = Switch::named("arenas");
        assert_eq!(word(arenas, Place::Study), Some("arenas=off"));
        assert_eq!((word(arenas, Place::Cmdline), word(None, Place::Study)), (None, None));
    }
}
