// SPDX-License-Identifier: Apache-2.0
//! An SVG by plotters, and what is written into it.

use anyhow::{Context, Result};
use maud::html;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::super::style::Role;

/// Where pictures are drawn.
pub(super) type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

/// What a picture is called, for those who do not see it.
pub(in super::super) struct Words<'a> {
    /// Its id in the page.
    pub(in super::super) id: &'a str,
    /// What it is.
    pub(in super::super) title: &'a str,
    /// What it shows.
    pub(in super::super) description: &'a str,
}

/// An SVG of `size` pixels, drawn by `draw`, that takes the width that it is given.
pub(super) fn picture(
    size: (u32, u32),
    words: &Words<'_>,
    draw: impl FnOnce(&Area<'_>) -> Result<()>,
) -> Result<String> {
    let mut svg = String::new();
    let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
    draw(&root)?;
    root.present()?;
    drop(root);
    let (_, body) = svg.split_once('>').context("no SVG")?;
    // A text's own spaces would show where it ends at the axis.
    let body = body.replace("\n</text>", "</text>").replace(">\n", ">").replace(" font-family=\"sans-serif\"", "");
    let head = html! {
        title id={ (words.id) "-title" } { (words.title) }
        desc id={ (words.id) "-desc" } { (words.description) }
    };
    let ids = format!("{0}-title {0}-desc", words.id);
    let (width, height) = size;
    Ok(format!(
        "<svg viewBox=\"0 0 {width} {height}\" role=\"img\" aria-labelledby=\"{ids}\">{}{body}",
        head.into_string()
    ))
}

/// Text of `size` pixels, which stands to its position as `pos` says.
pub(super) fn text(role: Role, size: f64, pos: (HPos, VPos)) -> TextStyle<'static> {
    styled(FontStyle::Normal, role, size, pos)
}

/// The same in bold.
pub(super) fn bold(role: Role, size: f64, pos: (HPos, VPos)) -> TextStyle<'static> {
    styled(FontStyle::Bold, role, size, pos)
}

fn styled(style: FontStyle, role: Role, size: f64, pos: (HPos, VPos)) -> TextStyle<'static> {
    // The SVG backend divides sizes by 1.24.
    ("sans-serif", size * 1.24, style).into_font().color(&role.ink()).pos(Pos::new(pos.0, pos.1))
}

#[expect(clippy::cast_possible_truncation, reason = "positions within a picture")]
pub(super) fn pixel(position: f64) -> i32 {
    position.round() as i32
}
