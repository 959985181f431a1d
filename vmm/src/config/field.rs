// SPDX-License-Identifier: Apache-2.0
//! What is wrong with one field, in words that every way to write a configuration can use.

use std::fmt::Display;

/// What is wrong with a field of a section of a configuration, however that is written. The leading point joins it to the section's
/// name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(".{field}={value}: {must}")]
pub struct FieldError {
    /// The field.
    pub field: &'static str,
    /// Its value.
    pub value: String,
    /// What would be right.
    pub must: String,
}

impl FieldError {
    pub(super) fn new(field: &'static str, value: &impl Display, must: &str) -> Self {
        Self { field, value: value.to_string(), must: must.to_owned() }
    }

    /// The same where no section's name comes before it.
    pub(super) fn alone(&self) -> String {
        self.to_string().trim_start_matches('.').to_owned()
    }
}
