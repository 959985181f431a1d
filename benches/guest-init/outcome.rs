// SPDX-License-Identifier: Apache-2.0
//! What comes of a check.

use serde_json::{Map, Value};

/// Fields of a passed or failed check; an error fails it with a field `error`.
pub(crate) type Outcome = Result<(bool, Map<String, Value>), String>;

/// Fields from pairs.
pub(crate) fn fields<const N: usize>(pairs: [(&str, Value); N]) -> Map<String, Value> {
    pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}
