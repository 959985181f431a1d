// SPDX-License-Identifier: Apache-2.0
//! A line chart: medians, the middle half of the samples as a band, and every sample as a dot.

use anyhow::Result;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

use super::super::format::float;
use super::super::plot::{Plot, Spot, Track, Unit};
use super::super::style::Role;
use super::marker;
use super::scale::{self, Scale};
use super::svg::{Area, Words, picture, pixel, text};

const HEIGHT: u32 = 380;
/// Pixels between the edges and the plotting area: left for labels, right for half of one.
const LEFT: u32 = 64;
const RIGHT: u32 = 44;
const TOP: u32 = 16;
const BOTTOM: u32 = 36;
const FONT: f64 = 14.0;
/// Average width of a character of that size.
const CHARACTER: f64 = 7.5;

/// The chart, `width` pixels wide, its y axis up to `max`.
pub(in super::super) fn lines(plot: &Plot, unit: Unit, max: u64, width: u32, words: &Words<'_>) -> Result<String> {
    picture((width, HEIGHT), words, |root| {
        let map = Map::new(plot, scale::linear(unit, float(max)), width);
        axes(root, plot, &map)?;
        for track in &plot.tracks {
            band(root, track, &map)?;
        }
        for track in &plot.tracks {
            dots(root, track, &map)?;
        }
        for track in &plot.tracks {
            medians(root, track, &map)?;
        }
        Ok(())
    })
}

/// Values to pixels: x logarithmic to base 2, y linear from 0.
struct Map {
    scale: Scale,
    from: f64,
    span: f64,
    right: f64,
}

impl Map {
    fn new(plot: &Plot, scale: Scale, width: u32) -> Self {
        let log = |tick: Option<&(u64, String)>| float(tick.map_or(1, |(x, _)| *x).max(1)).log2();
        let (first, last) = (log(plot.ticks.first()), log(plot.ticks.last()));
        // A quarter of an octave on both sides keeps dots off the axis; a single size stands in the middle.
        let margin = ((last - first) / 24.0).max(0.25);
        Self { scale, from: first - margin, span: last - first + 2.0 * margin, right: f64::from(width - RIGHT) }
    }

    fn x(&self, x: u64) -> f64 {
        let left = f64::from(LEFT);
        left + (float(x.max(1)).log2() - self.from) / self.span * (self.right - left)
    }

    fn y(&self, y: f64) -> i32 {
        let (top, bottom) = (f64::from(TOP), f64::from(HEIGHT - BOTTOM));
        pixel(bottom - y / self.scale.top * (bottom - top))
    }

    fn at(&self, x: u64, y: u64) -> (i32, i32) {
        (pixel(self.x(x)), self.y(float(y)))
    }
}

fn axes(root: &Area<'_>, plot: &Plot, map: &Map) -> Result<()> {
    let (left, right, bottom) = (pixel(f64::from(LEFT)), pixel(map.right), map.y(0.0));
    let label = text(Role::Text, FONT, (HPos::Right, VPos::Center));
    for (value, name) in &map.scale.ticks {
        let (y, role) = (map.y(*value), if *value > 0.0 { Role::Grid } else { Role::Axis });
        root.draw(&PathElement::new(vec![(left, y), (right, y)], role.ink()))?;
        root.draw(&Text::new(name.as_str(), (left - 10, y), &label))?;
    }
    let label = text(Role::Text, FONT, (HPos::Center, VPos::Top));
    let mut free = f64::MIN;
    for (x, name) in &plot.ticks {
        let x = map.x(*x);
        root.draw(&PathElement::new(vec![(pixel(x), bottom), (pixel(x), bottom + 5)], Role::Axis.ink()))?;
        // Labels that would run into the one before are left out.
        let half = CHARACTER * float(name.chars().count() as u64) / 2.0;
        if x - half > free {
            root.draw(&Text::new(name.as_str(), (pixel(x), bottom + 12), &label))?;
            free = x + half + CHARACTER;
        }
    }
    Ok(())
}

/// From the 25th to the 75th percentile.
fn band(root: &Area<'_>, track: &Track, map: &Map) -> Result<()> {
    let lower = track.spots.iter().map(|spot| map.at(spot.x, spot.summary.p25));
    let upper = track.spots.iter().rev().map(|spot| map.at(spot.x, spot.summary.p75));
    let mut around: Vec<_> = lower.chain(upper).collect();
    if let [(x, low), (_, high)] = around[..] {
        around = vec![(x - 4, low), (x + 4, low), (x + 4, high), (x - 4, high)];
    }
    Ok(root.draw(&Polygon::new(around, track.style.ink(Role::Band).filled()))?)
}

/// Right of the marker, which would hide them, and beside each other, so that equal ones do not hide one another.
fn dots(root: &Area<'_>, track: &Track, map: &Map) -> Result<()> {
    let places = |spot: &Spot| -> Vec<(i32, i32)> {
        let sideways = |index: usize| 9 + 3 * i32::try_from(index % 3).unwrap_or(0);
        let place = |(index, value): (usize, &u64)| {
            let (x, y) = map.at(spot.x, *value);
            (x + sideways(index), y)
        };
        spot.values.iter().enumerate().map(place).collect()
    };
    for at in track.spots.iter().flat_map(places) {
        root.draw(&Circle::new(at, 2, track.style.ink(Role::Dot).filled()))?;
    }
    Ok(())
}

fn medians(root: &Area<'_>, track: &Track, map: &Map) -> Result<()> {
    let at: Vec<_> = track.spots.iter().map(|spot| map.at(spot.x, spot.summary.median)).collect();
    if at.len() > 1 {
        root.draw(&PathElement::new(at.clone(), track.style.ink(Role::Line).stroke_width(2)))?;
    }
    at.into_iter().try_for_each(|at| marker::draw(root, track.style, at))
}
