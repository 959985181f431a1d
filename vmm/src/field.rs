// SPDX-License-Identifier: Apache-2.0
//! Places in the configuration of a VM, by which errors say what they are about.
//!
//! An error knows no other name of what is wrong, however the VM was described. Whoever tells the error to somebody with other
//! words for it, as the command line has, tells it [in those](in_words).

use std::cell::Cell;
use std::fmt::{self, Display, Formatter};

/// A field of the configuration, or a section of it. It is shown as JSON has it, `memory.size` or `disks[1].path`, or in the words
/// of [`in_words`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    section: &'static str,
    /// Small, so that errors are. A configuration of a megabyte, the longest, has no more of anything.
    index: Option<u16>,
    name: &'static str,
}

/// What a field is called elsewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spelled {
    /// Its name.
    pub name: String,
    /// What comes between the name and a value.
    pub joint: char,
}

/// What fields are called elsewhere; none is there for a field that is not.
pub type Words = fn(Field) -> Option<Spelled>;

impl Field {
    /// A section, or a field that is in none.
    #[must_use]
    pub const fn section(section: &'static str) -> Self {
        Self { section, index: None, name: "" }
    }

    /// A field of a section.
    #[must_use]
    pub const fn of(section: &'static str, name: &'static str) -> Self {
        Self { section, index: None, name }
    }

    /// The same of one of several, the first of which is 0.
    #[must_use]
    pub fn at(self, index: usize) -> Self {
        Self { index: Some(index.try_into().unwrap_or(u16::MAX)), ..self }
    }

    /// A field of this section.
    #[must_use]
    pub const fn member(self, name: &'static str) -> Self {
        Self { name, ..self }
    }

    /// Its name in its section; empty for a section.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.name
    }

    /// Whether only the caller knows its section.
    #[must_use]
    pub const fn is_relative(self) -> bool {
        self.section.is_empty()
    }

    /// Its path, but for which one of several it is of.
    #[must_use]
    pub fn kind(self) -> String {
        Self { index: None, ..self }.path()
    }

    /// It and its value.
    pub fn is<T: Display>(self, value: T) -> Valued<T> {
        Valued { field: self, value }
    }

    fn path(self) -> String {
        let index = self.index.map(|index| format!("[{index}]")).unwrap_or_default();
        let point = if self.name.is_empty() { "" } else { "." };
        format!("{}{index}{point}{}", self.section, self.name)
    }

    fn spelled(self) -> Spelled {
        let spelled = WORDS.get().and_then(|words| words(self));
        spelled.unwrap_or_else(|| Spelled { name: self.path(), joint: '=' })
    }
}

impl Display for Field {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.spelled().name)
    }
}

/// A field and its value, as in `memory.size=1`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Valued<T> {
    field: Field,
    value: T,
}

impl<T: Display> Display for Valued<T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Spelled { name, joint } = self.field.spelled();
        write!(f, "{name}{joint}{}", self.value)
    }
}

thread_local! {
    /// How fields are shown: a formatter has no place to say so, and what shows them is often many errors deep.
    static WORDS: Cell<Option<Words>> = const { Cell::new(None) };
}

/// What `say` says, with fields in these words.
pub fn in_words<T>(words: Words, say: impl FnOnce() -> T) -> T {
    /// Puts back what was there, however `say` ends.
    struct Earlier(Option<Words>);

    impl Drop for Earlier {
        fn drop(&mut self) {
            WORDS.set(self.0);
        }
    }

    let _earlier = Earlier(WORDS.replace(Some(words)));
    say()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_paths() {
        for (field, expected) in [
            (Field::section("timeline"), "timeline=x"),
            (Field::of("memory", "size"), "memory.size=x"),
            (Field::of("disks", "path").at(1), "disks[1].path=x"),
            (Field::of("", "path"), ".path=x"),
        ] {
            assert_eq!(field.is("x").to_string(), expected);
        }
        assert_eq!(Field::section("disks").at(3).to_string(), "disks[3]");
        assert_eq!(Field::section("disks").at(3).member("id").kind(), "disks.id");
    }

    #[test]
    fn others_have_words_for_some() {
        let size = Field::of("memory", "size");
        let words: Words = |field| (field.name() == "size").then(|| Spelled { name: "--size".to_owned(), joint: ' ' });
        let said = in_words(words, || (size.is(1).to_string(), Field::of("memory", "thp").is(1).to_string()));
        assert_eq!(said, ("--size 1".to_owned(), "memory.thp=1".to_owned()));
        assert_eq!(size.is(1).to_string(), "memory.size=1");
        let failed = std::panic::catch_unwind(|| in_words(words, || panic!("said nothing")));
        assert!(failed.is_err() && size.to_string() == "memory.size");
    }
}
