// SPDX-License-Identifier: Apache-2.0
//! Pictures: SVG by plotters, whose colours are placeholders ([`super::style`]).

mod bars;
mod lines;
mod marker;
mod scale;
mod svg;

pub(super) use bars::bars;
pub(super) use lines::lines;
pub(super) use marker::swatch;
pub(super) use svg::Words;
