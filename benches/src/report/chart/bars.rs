// SPDX-License-Identifier: Apache-2.0
//! Stacked bars: one for each variant, a segment for each phase.

use anyhow::Result;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

use super::super::format::{duration, float};
use super::super::phases::{Bar, Phases};
use super::super::plot::Unit;
use super::super::style::Role;
use super::scale::{self, Scale};
use super::svg::{Area, Words, bold, picture, pixel, text};

const WIDTH: u32 = 1080;
const LEFT: i32 = 84;
/// Ends here, so that the longest bar's total has room.
const RIGHT: i32 = 1000;
const HEADING: i32 = 36;
const BAR: i32 = 22;
const STEP: i32 = 30;
const AXIS: i32 = 30;
const FONT: f64 = 14.0;
/// A segment that is not wider has no letter.
const LETTER: i32 = 15;

/// The chart, as high as it has bars.
pub(in super::super) fn bars(phases: &Phases, words: &Words<'_>) -> Result<String> {
    let longest = phases.bars.iter().map(Bar::total).max().unwrap_or(0);
    let scale = scale::linear(Unit::Time, float(longest));
    let headings = phases.bars.chunk_by(|a, b| a.heading == b.heading);
    let height = headings.clone().map(|bars| HEADING + STEP * i32::try_from(bars.len()).unwrap_or(0)).sum::<i32>();
    picture((WIDTH, (height + AXIS).unsigned_abs()), words, |root| {
        axis(root, &scale, height)?;
        let mut y = 0;
        for bars in headings {
            let style = bold(Role::Text, FONT, (HPos::Left, VPos::Bottom));
            root.draw(&Text::new(bars[0].heading.as_str(), (LEFT, y + HEADING - 8), &style))?;
            y += HEADING;
            for one in bars {
                bar(root, phases, one, (&scale, y))?;
                y += STEP;
            }
        }
        Ok(())
    })
}

fn axis(root: &Area<'_>, scale: &Scale, height: i32) -> Result<()> {
    let label = text(Role::Text, FONT, (HPos::Center, VPos::Top));
    for (value, name) in &scale.ticks {
        let x = at(scale, *value);
        let role = if *value > 0.0 { Role::Grid } else { Role::Axis };
        root.draw(&PathElement::new(vec![(x, HEADING - 4), (x, height)], role.ink()))?;
        root.draw(&Text::new(name.as_str(), (x, height + 8), &label))?;
    }
    Ok(())
}

fn bar(root: &Area<'_>, phases: &Phases, bar: &Bar, (scale, y): (&Scale, i32)) -> Result<()> {
    let middle = y + BAR / 2;
    let label = text(Role::Text, FONT, (HPos::Right, VPos::Center));
    root.draw(&Text::new(bar.name.as_str(), (LEFT - 10, middle), &label))?;
    let letter = text(Role::OnSegment, FONT - 1.0, (HPos::Center, VPos::Center));
    let mut before = 0;
    for (phase, part) in phases.legend.iter().zip(&bar.parts) {
        let (from, to) = (at(scale, float(before)), at(scale, float(before + part)));
        before += part;
        // A pixel of the page between segments; what has less than a pixel is not drawn.
        if to - from > 1 {
            let ink = Role::Segment.coloured(phase.colour).filled();
            root.draw(&Rectangle::new([(from, y), (to - 1, y + BAR)], ink))?;
        }
        if to - from > LETTER {
            root.draw(&Text::new(phase.letter.to_string(), (i32::midpoint(from, to), middle), &letter))?;
        }
    }
    let total = text(Role::Text, FONT, (HPos::Left, VPos::Center));
    Ok(root.draw(&Text::new(duration(bar.total()), (at(scale, float(before)) + 8, middle), &total))?)
}

fn at(scale: &Scale, value: f64) -> i32 {
    LEFT + pixel(value / scale.top * f64::from(RIGHT - LEFT))
}
