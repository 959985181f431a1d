// SPDX-License-Identifier: Apache-2.0
//! Markers, and a line's sample for the legend.

use anyhow::{Context, Result};
use plotters::prelude::*;

use super::super::style::{Marker, Role, Style};
use super::svg::Area;

/// Draws the line's marker around `at`.
pub(super) fn draw(area: &Area<'_>, style: Style, at: (i32, i32)) -> Result<()> {
    let ink = style.ink(Role::Marker).filled();
    let around = match style.marker {
        Marker::Disc => return Ok(area.draw(&Circle::new(at, 4, ink))?),
        Marker::Square => vec![(-4, -4), (4, -4), (4, 4), (-4, 4)],
        Marker::Triangle => vec![(0, -5), (5, 4), (-5, 4)],
        Marker::Diamond => vec![(0, -6), (6, 0), (0, 6), (-6, 0)],
        Marker::Wedge => vec![(0, 5), (5, -4), (-5, -4)],
    };
    let corners: Vec<_> = around.into_iter().map(|(x, y)| (at.0 + x, at.1 + y)).collect();
    Ok(area.draw(&Polygon::new(corners, ink))?)
}

/// A piece of the line with its marker, 44 by 16 pixels. It says nothing that its name in the legend does not.
pub(in super::super) fn swatch(style: Style) -> Result<String> {
    let mut svg = String::new();
    let root = SVGBackend::with_string(&mut svg, (44, 16)).into_drawing_area();
    root.draw(&PathElement::new(vec![(1, 8), (43, 8)], style.ink(Role::Line).stroke_width(2)))?;
    draw(&root, style, (22, 8))?;
    root.present()?;
    drop(root);
    let (_, body) = svg.split_once('>').context("no SVG")?;
    Ok(format!("<svg class=\"swatch\" viewBox=\"0 0 44 16\" aria-hidden=\"true\">{body}"))
}
