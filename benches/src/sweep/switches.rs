// SPDX-License-Identifier: Apache-2.0
//! What can be switched off to see what it is worth: the one list of switches.

use std::str::FromStr;

use crate::modes::Mode;

/// A part of what makes boots fast, which one word turns off.
#[derive(Debug, PartialEq, Eq)]
pub struct Switch {
    /// Its name on the command line and in results.
    pub name: &'static str,
    /// What is then missing, in a few words.
    pub meaning: &'static str,
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

/// All switches. A new one is a line here.
pub const SWITCHES: &[Switch] = &[
    Switch {
        name: "low-zones",
        meaning: "memory below 4 GiB is filled before boot goes on, as upstream does",
        place: Place::Cmdline,
        word: "memmap_init_early=4G",
    },
    Switch {
        name: "async",
        meaning: "init waits until the memmap is filled",
        place: Place::Cmdline,
        word: "memmap_init=parallel",
    },
    Switch {
        name: "arenas",
        meaning: "the memmap has no place of its own on huge pages",
        place: Place::Study,
        word: "arenas=off",
    },
    Switch {
        name: "early-threads",
        meaning: "vCPU threads only wait for their start, and back no memory meanwhile",
        place: Place::Study,
        word: "early=off",
    },
    Switch {
        name: "known-zero",
        meaning: "the guest is not told which memory is zero already",
        place: Place::Study,
        word: "zeroed=off",
    },
    Switch {
        name: "memory-plan",
        meaning: "3 GiB below 4 GiB, as a PC has them",
        place: Place::Study,
        word: "layout=pc",
    },
];

/// The mode that [`SWITCHES`] take parts away from: with another there would be no `async` to switch off.
pub const FULL_SET: &str = "async";

/// A value of `--without`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Without {
    /// Every switch, each by itself.
    Each,
    /// This one.
    One(&'static Switch),
}

impl FromStr for Without {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let names = || SWITCHES.iter().map(|switch| switch.name).collect::<Vec<_>>().join(", ");
        match text {
            "all" => Ok(Self::Each),
            name => Switch::named(name)
                .map(Self::One)
                .ok_or_else(|| format!("{name:?}: must be one of {}, or all for each of them alone", names())),
        }
    }
}

impl Without {
    /// The switches that `list` means, in its order, each once.
    #[must_use]
    pub fn switches(list: &[Self]) -> Vec<&'static Switch> {
        let mut switches: Vec<&'static Switch> = Vec::new();
        for without in list {
            let named: Vec<_> = match without {
                Self::Each => SWITCHES.iter().collect(),
                Self::One(switch) => vec![*switch],
            };
            switches.extend(named.into_iter().filter(|switch| !switches.contains(switch)).collect::<Vec<_>>());
        }
        switches
    }
}

impl Switch {
    /// The switch called `name`.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        SWITCHES.iter().find(|switch| switch.name == name)
    }

    /// All switches as docs/measuring.md shows them.
    #[must_use]
    pub fn table() -> String {
        let row = |switch: &Self| {
            let Self { name, meaning, place, word } = switch;
            let how = match place {
                Place::Cmdline => format!("kernel: `{word}`"),
                Place::Study => format!("flatboot: `--study {word}`"),
            };
            format!("| `{name}` | {meaning} | {how} |\n")
        };
        "| Part | Without it | How it is switched off |\n|---|---|---|\n".to_owned()
            + &SWITCHES.iter().map(row).collect::<String>()
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
