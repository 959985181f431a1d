// SPDX-License-Identifier: Apache-2.0
//! What is wrong with one field, in words that every way to write a configuration can use.

use std::fmt::{self, Display, Formatter};

use crate::field::Field;

/// What is wrong with a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldError {
    /// The field. Its section may be known to the caller alone: then it begins with the point that joins the two.
    pub field: Field,
    /// Its value, if that is wrong.
    pub value: Option<String>,
    /// What would be right.
    pub must: String,
}

impl FieldError {
    /// Of a field whose section the caller knows.
    pub(super) fn new(name: &'static str, value: &impl Display, must: &str) -> Self {
        Self::of(Field::of("", name), value, must)
    }

    pub(crate) fn of(field: Field, value: &impl Display, must: &str) -> Self {
        Self { field, value: Some(value.to_string()), must: must.to_owned() }
    }

    /// Of a field or a section as a whole.
    pub(super) fn without_value(field: Field, must: &str) -> Self {
        Self { field, value: None, must: must.to_owned() }
    }

    /// The same in `section`, if nobody has said of which it is.
    pub(super) fn within(self, section: Field) -> Self {
        let field = if self.field.is_relative() { section.member(self.field.name()) } else { self.field };
        Self { field, ..self }
    }

    /// The same where there is no section.
    pub(super) fn alone(&self) -> String {
        self.to_string().trim_start_matches('.').to_owned()
    }
}

impl Display for FieldError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { field, value, must } = self;
        match value {
            Some(value) => write!(f, "{}: {must}", field.is(value)),
            None => write!(f, "{field}: {must}"),
        }
    }
}

impl std::error::Error for FieldError {}
