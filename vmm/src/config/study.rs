// SPDX-License-Identifier: Apache-2.0
//! What nobody asks for but to study how a guest boots: what each part of the fast boot is worth, and what a kernel makes of maps
//! and tables that are unusual.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::field::FieldError;
use super::memory::MemoryConfig;
use super::options::{OptionError, Options, parse_number};
use crate::field::Field;
use crate::memory::{HostPages, Layout, MAX_HOLES, PlanInput, Prefault, Study, Zone};

const OPTION: Field = Field::section("study");
/// Where the bytes are that take the place of the hand-off.
pub const HANDOFF_FILE: Field = OPTION.member("handoff_file");
const KEYS: [&str; 8] = ["layout", "arenas", "zeroed", "holes", "early", "prefault_arenas", "handoff", "handoff_file"];

/// What is different from an ordinary VM, to study it. By default nothing is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own")]
pub struct StudyConfig {
    /// How much memory is below 4 GiB.
    pub layout: Layout,
    /// Whether the hand-off says where the memmap goes.
    pub arenas: bool,
    /// Whether the hand-off says which memory is known to be zero.
    pub zeroed: bool,
    /// Gaps of one section in the memory above 4 GiB.
    pub holes: u16,
    /// Whether vCPU threads back what the guest touches first while they wait for their start.
    pub early: bool,
    /// Whether the host memory of the memmap's arenas is there before the guest runs.
    pub prefault_arenas: bool,
    /// Whether there is a hand-off.
    pub handoff: bool,
    /// The file whose bytes take its place, whatever they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handoff_file: Option<PathBuf>,
}

impl Default for StudyConfig {
    fn default() -> Self {
        let Study { layout, arenas, zeroed, holes } = Study::default();
        Self { layout, arenas, zeroed, holes, early: true, prefault_arenas: false, handoff: true, handoff_file: None }
    }
}

impl StudyConfig {
    /// Takes the texts of `--study`, which are as good as one.
    pub fn parse(texts: &[String]) -> Result<Self, OptionError> {
        if texts.is_empty() {
            return Ok(Self::default());
        }
        let options = Options::parse(OPTION, &texts.join(","), &KEYS)?;
        let holes = |text: &str| parse_number(text).and_then(|number| u16::try_from(number).ok());
        let usual = Self::default();
        Ok(Self {
            layout: options.value("layout", parse_layout)?.unwrap_or(usual.layout),
            arenas: options.switch("arenas", usual.arenas)?,
            zeroed: options.switch("zeroed", usual.zeroed)?,
            holes: options.value("holes", |text| holes(text).ok_or_else(must_be_holes))?.unwrap_or(usual.holes),
            early: options.switch("early", usual.early)?,
            prefault_arenas: options.switch("prefault_arenas", usual.prefault_arenas)?,
            handoff: options.switch("handoff", usual.handoff)?,
            handoff_file: options.get("handoff_file").map(PathBuf::from),
        })
    }

    /// Whether nothing is different.
    pub(super) fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Whether its parts go together, and with that memory.
    pub(super) fn check(&self, memory: &MemoryConfig) -> Result<(), FieldError> {
        self.check_holes(memory)?;
        if self.prefault_arenas && !self.arenas {
            return Err(FieldError::of(OPTION.member("prefault_arenas"), &"on", "must be off with arenas=off"));
        }
        match &self.handoff_file {
            Some(path) if !self.handoff => {
                Err(FieldError::of(HANDOFF_FILE, &path.display(), "must not be with handoff=off"))
            }
            _ => Ok(()),
        }
    }

    fn check_holes(&self, memory: &MemoryConfig) -> Result<(), FieldError> {
        let wrong = |must: &str| Err(FieldError::of(OPTION.member("holes"), &self.holes, must));
        match self.holes {
            0 => Ok(()),
            holes if holes > MAX_HOLES => wrong(&must_be_holes()),
            _ if !memory.zones.is_empty() => wrong("must be 0 with zones"),
            // The parts are sections, which share such a page.
            _ if memory.backing.pages == HostPages::Huge1G => wrong("must be 0 with hugepage_size=1G"),
            _ => Ok(()),
        }
    }

    /// What the memory plan follows from, for `memory` whose parts are `zones`, in order.
    #[must_use]
    pub const fn plan_input(&self, memory: &MemoryConfig, zones: Vec<Zone>) -> PlanInput {
        let Self { layout, arenas, zeroed, holes, early, .. } = *self;
        let study = Study { layout, arenas, zeroed, holes };
        PlanInput { zones, held: memory.held(), thp: memory.thp, prefault: self.prefault(memory), early, study }
    }

    /// What host memory of `memory` is to be there before the guest runs.
    const fn prefault(&self, memory: &MemoryConfig) -> Prefault {
        match (memory.prefault, self.prefault_arenas) {
            (true, _) => Prefault::All,
            (false, true) => Prefault::Arenas,
            (false, false) => Prefault::Off,
        }
    }
}

fn parse_layout(value: &str) -> Result<Layout, &'static str> {
    match value {
        "split" => Ok(Layout::Split),
        "pc" => Ok(Layout::Pc),
        _ => Err("must be split or pc"),
    }
}

fn must_be_holes() -> String {
    format!("must be a number, at most {MAX_HOLES}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::in_options;

    fn parse(text: &str, memory: &str) -> Result<StudyConfig, String> {
        let memory = MemoryConfig::parse(memory, &[]).unwrap();
        let study = StudyConfig::parse(&[text.to_owned()]).map_err(|error| in_options(|| error.to_string()))?;
        study.check(&memory).map(|()| study).map_err(|error| in_options(|| error.to_string()))
    }

    #[test]
    fn words_and_json_are_the_same() {
        for (text, json) in [
            ("early=on", "{}"),
            ("layout=pc,holes=3", r#"{"layout": "pc", "holes": 3}"#),
            ("arenas=off,zeroed=off,early=off", r#"{"arenas": false, "zeroed": false, "early": false}"#),
            ("prefault_arenas=on,handoff=off", r#"{"prefault_arenas": true, "handoff": false}"#),
            ("handoff_file=\"a,b\"", r#"{"handoff_file": "a,b"}"#),
        ] {
            let expected: StudyConfig = serde_json::from_str(json).unwrap();
            assert_eq!(parse(text, "size=1G"), Ok(expected), "{text}");
        }
        let several = ["layout=pc".to_owned(), "arenas=off,zeroed=off".to_owned()];
        let one = parse("layout=pc,arenas=off,zeroed=off", "size=1G").unwrap();
        assert_eq!(StudyConfig::parse(&several), Ok(one.clone()));
        let memory = MemoryConfig::parse("size=1G,thp=all", &[]).unwrap();
        let planned = one.plan_input(&memory, Vec::new());
        assert_eq!((planned.thp, planned.early), (memory.thp, true));
        assert_eq!(planned.study, Study { layout: Layout::Pc, arenas: false, zeroed: false, holes: 0 });
        assert!(StudyConfig::parse(&[]).unwrap().is_default() && !one.is_default());
    }

    #[test]
    fn arenas_are_part_of_all() {
        for (study, memory, expected) in [
            ("early=on", "size=1G", Prefault::Off),
            ("prefault_arenas=on", "size=1G", Prefault::Arenas),
            ("prefault_arenas=on", "size=1G,prefault=on", Prefault::All),
        ] {
            let study = parse(study, memory).unwrap();
            assert_eq!(study.prefault(&MemoryConfig::parse(memory, &[]).unwrap()), expected);
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, memory, expected) in [
            ("layout=q35", "size=1G", "--study layout=q35: must be split or pc"),
            ("arenas=1", "size=1G", "--study arenas=1: must be on or off"),
            ("holes=125", "size=64G", "--study holes=125: must be a number, at most 124"),
            ("holes=-1", "size=64G", "--study holes=-1: must be a number, at most 124"),
            ("holes=65536", "size=64G", "--study holes=65536: must be a number, at most 124"),
            ("holes=1", "size=8G,hugepages=on,hugepage_size=1G", "--study holes=1: must be 0 with hugepage_size=1G"),
            ("prefault_arenas=on,arenas=off", "size=1G", "--study prefault_arenas=on: must be off with arenas=off"),
            ("handoff=off,handoff_file=x", "size=1G", "--study handoff_file=x: must not be with handoff=off"),
            ("handoff=planned", "size=1G", "--study handoff=planned: must be on or off"),
            (
                "hole=1",
                "size=1G",
                "--study hole=1: there is no key hole: must be one of layout, arenas, zeroed, holes, early, \
                 prefault_arenas, handoff, handoff_file",
            ),
        ] {
            assert_eq!(parse(text, memory), Err(expected.to_owned()), "{text}");
        }
        let zones = MemoryConfig::parse("size=0", &["id=a,size=1G".to_owned()]).unwrap();
        let study = StudyConfig { holes: 1, ..StudyConfig::default() };
        assert_eq!(study.check(&zones).unwrap_err().to_string(), "study.holes=1: must be 0 with zones");
    }
}
