// SPDX-License-Identifier: Apache-2.0
//! What comes of a check.

use serde_json::Value;

/// Whether it passed, and the fields of its report, an object; an error fails it with a field `error`.
pub(crate) type Outcome = Result<(bool, Value), String>;
