// SPDX-License-Identifier: Apache-2.0
//! Errors as users read them.

/// An error and its sources in one line.
#[must_use]
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut line = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        line = format!("{line}: {cause}");
        source = cause.source();
    }
    line
}
