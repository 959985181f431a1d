// SPDX-License-Identifier: Apache-2.0
//! What people read in a terminal: tables, and numbers with their units.

mod screen;
mod table;
mod text;

pub use screen::{Screen, print};
pub(crate) use screen::{bold, faint, fields, loud, warnings};
pub(crate) use table::draw;
pub(crate) use text::{Clock, bytes, count, decimals, plain, size, some_of, times, when};
