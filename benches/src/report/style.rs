// SPDX-License-Identifier: Apache-2.0
//! How things are drawn: what a colour in the SVG stands for, and what tells lines apart besides colour.

use plotters::style::RGBColor;

/// Colours that lines take in turn; `report.css` has them as `--c0` and on.
pub(super) const COLOURS: u8 = 8;
/// The two greys after them, for what is summed up.
pub(super) const GREY_VMM: u8 = COLOURS;
/// The other one.
pub(super) const GREY_GUEST: u8 = COLOURS + 1;
/// Dash patterns of `report.css`.
const DASHES: u8 = 6;

/// What an element is. Its colour in the SVG is `#RRCCDD`: the role, the colour's index, the dash pattern's. `report.css`
/// gives all three their looks, so that a scheme or a printer can change them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Role {
    /// Median line.
    Line = 1,
    /// Middle half of the samples.
    Band = 2,
    /// One sample.
    Dot = 3,
    /// Median marker.
    Marker = 4,
    /// Segment of a bar.
    Segment = 5,
    /// Axis.
    Axis = 6,
    /// Grid.
    Grid = 7,
    /// Text on the page.
    Text = 8,
    /// Text on a segment.
    OnSegment = 9,
}

impl Role {
    /// The placeholder of what belongs to no line.
    pub(super) fn ink(self) -> RGBColor {
        RGBColor(self as u8, 0, 0)
    }

    /// The placeholder of a colour of the palette.
    pub(super) fn coloured(self, colour: u8) -> RGBColor {
        RGBColor(self as u8, colour, 0)
    }
}

/// How a line is drawn. Its marker tells the VMM and its dashes the mode, so that colour is never the only cue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Style {
    colour: u8,
    dash: u8,
    /// Which marker.
    pub(super) marker: Marker,
}

/// Shapes of the medians.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Marker {
    /// A disc.
    Disc,
    /// A square.
    Square,
    /// A triangle that stands.
    Triangle,
    /// A square on its corner.
    Diamond,
    /// A triangle on its corner.
    Wedge,
}

const MARKERS: [Marker; 5] = [Marker::Disc, Marker::Square, Marker::Triangle, Marker::Diamond, Marker::Wedge];

impl Style {
    /// Of line `index`, of VMM `vmm` and of mode `way`, each an index; beyond what there is they repeat.
    pub(super) fn new(index: usize, vmm: usize, way: usize) -> Self {
        Self { colour: wrap(index, COLOURS), dash: wrap(way, DASHES), marker: MARKERS[vmm % MARKERS.len()] }
    }

    /// The placeholder of the line's element in that role.
    pub(super) fn ink(self, role: Role) -> RGBColor {
        RGBColor(role as u8, self.colour, self.dash)
    }
}

/// `index` within `count`.
pub(super) fn wrap(index: usize, count: u8) -> u8 {
    u8::try_from(index % usize::from(count)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_style_sheet_knows_every_placeholder() {
        let css = include_str!("report.css");
        let has = |what: &str, times| assert_eq!(css.matches(what).count(), times, "{what}");
        for colour in 0..COLOURS {
            has(&format!("[stroke^=\"#01{colour:02}\"]"), 1);
            for role in [Role::Band, Role::Dot, Role::Marker, Role::Segment] {
                has(&format!("[fill^=\"#{:02}{colour:02}\"]", role as u8), 1);
            }
        }
        for grey in [GREY_VMM, GREY_GUEST] {
            has(&format!("[fill^=\"#05{grey:02}\"]"), 1);
        }
        // In light and in dark.
        (0..=GREY_GUEST).for_each(|colour| has(&format!("--c{colour}:"), 2));
        (1..DASHES).for_each(|dash| has(&format!("[stroke^=\"#01\"][stroke$=\"{dash:02}\"]"), 1));
    }
}
