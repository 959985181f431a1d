// SPDX-License-Identifier: Apache-2.0
//! What the line charts show: small multiples.

use std::collections::BTreeSet;

use crate::once::each_once;
use crate::results::{Group, Sample, is_shapes};
use crate::stats::Summary;

use super::format;
use super::model::Line;
use super::style::Style;

/// Charts of one question.
#[derive(Debug)]
pub(super) struct Panels {
    /// What distinguishes it in the page's ids: `init`, `memory`, `scaling`.
    pub(super) id: &'static str,
    /// What it shows: `Time to init`.
    pub(super) quantity: &'static str,
    /// What is measured.
    pub(super) unit: Unit,
    /// Whether it is within each chart that values are compared, and not across them.
    pub(super) own_scales: bool,
    /// The charts.
    pub(super) plots: Vec<Plot>,
}

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    /// Nanoseconds.
    Time,
    /// Bytes.
    Bytes,
}

/// One chart.
#[derive(Debug)]
pub(super) struct Plot {
    /// `2 vCPUs`.
    pub(super) title: String,
    /// What the x axis says and how it is called there, ascending.
    pub(super) ticks: Vec<(u64, String)>,
    /// Its lines.
    pub(super) tracks: Vec<Track>,
}

/// A line of a chart.
#[derive(Debug)]
pub(super) struct Track {
    /// Of the line.
    pub(super) name: String,
    /// Of the line.
    pub(super) style: Style,
    /// Of the line.
    pub(super) is_of_boots: bool,
    /// By x.
    pub(super) spots: Vec<Spot>,
}

/// The samples of one x.
#[derive(Debug)]
pub(super) struct Spot {
    /// Bytes or vCPUs.
    pub(super) x: u64,
    /// Ascending.
    pub(super) values: Vec<u64>,
    /// Of the values.
    pub(super) summary: Summary,
}

impl Unit {
    /// A value with its unit.
    pub(super) fn show(self, value: u64) -> String {
        match self {
            Self::Time => format::duration(value),
            Self::Bytes => format::bytes(value),
        }
    }
}

/// Time to init over memory.
pub(super) fn init(lines: &[Line<'_>]) -> Panels {
    let plots = over_memory(lines, |sample| sample.init_ns);
    Panels { id: "init", quantity: "Time to init", unit: Unit::Time, own_scales: false, plots }
}

/// Host memory over memory.
pub(super) fn memory(lines: &[Line<'_>]) -> Panels {
    let plots = over_memory(lines, |sample| sample.host_memory_bytes);
    Panels { id: "memory", quantity: "Host memory at init", unit: Unit::Bytes, own_scales: false, plots }
}

/// Time to init over vCPUs, for each size that was booted with several counts.
pub(super) fn scaling(lines: &[Line<'_>]) -> Panels {
    let sizes: BTreeSet<_> = points(lines).map(|point| point.variant.memory_bytes).collect();
    let chart = |size: u64| {
        let tracks = tracks(lines, |point| {
            let variant = point.variant;
            (variant.memory_bytes == size).then(|| (u64::from(variant.cpus), point.inits()))
        });
        let called = |cpus| format::count(usize::try_from(cpus).unwrap_or_default(), "vCPU");
        plot(format::bytes(size), tracks, called)
    };
    let plots = sizes.into_iter().filter_map(chart).filter(|plot| plot.ticks.len() > 1).collect();
    Panels { id: "scaling", quantity: "Time to init", unit: Unit::Time, own_scales: true, plots }
}

fn points<'l>(lines: &'l [Line<'l>]) -> impl Iterator<Item = &'l Group<'l>> {
    lines.iter().flat_map(|line| &line.points)
}

/// One chart for each vCPU count, or one for all if each size was booted with a count of its own.
fn over_memory(lines: &[Line<'_>], value: fn(&Sample) -> u64) -> Vec<Plot> {
    let values = |point: &Group<'_>| point.values(|sample| Some(value(sample)));
    let shape = |point: &Group<'_>| (point.variant.cpus, point.variant.memory_bytes);
    let shapes: BTreeSet<_> = points(lines).map(shape).collect();
    if is_shapes(shapes.iter().copied()) {
        let tracks = tracks(lines, |point| Some((point.variant.memory_bytes, values(point))));
        let called = |bytes| {
            let cpus = shapes.iter().find(|(_, memory)| *memory == bytes).map_or(0, |(cpus, _)| *cpus);
            format!("{}, {}", format::bytes(bytes), format::count(cpus.into(), "vCPU"))
        };
        return plot("VM sizes".into(), tracks, called).into_iter().collect();
    }
    let counts: BTreeSet<_> = shapes.iter().map(|(cpus, _)| *cpus).collect();
    let chart = |cpus: u16| {
        let tracks = tracks(lines, |point| {
            let variant = point.variant;
            (variant.cpus == cpus).then(|| (variant.memory_bytes, values(point)))
        });
        plot(format::count(cpus.into(), "vCPU"), tracks, format::bytes)
    };
    counts.into_iter().filter_map(chart).collect()
}

/// The lines with what `read` gives for their points, as (x, values); points without values are left out.
fn tracks(lines: &[Line<'_>], read: impl Fn(&Group<'_>) -> Option<(u64, Vec<u64>)>) -> Vec<Track> {
    let track = |line: &Line<'_>| {
        let spot = |point| {
            let (x, values) = read(point)?;
            Some(Spot { x, summary: Summary::of(&values)?, values })
        };
        let mut spots: Vec<_> = line.points.iter().filter_map(spot).collect();
        spots.sort_by_key(|spot| spot.x);
        Track { name: line.name.clone(), style: line.style, is_of_boots: line.is_of_boots(), spots }
    };
    lines.iter().map(track).filter(|track| !track.spots.is_empty()).collect()
}

fn plot(title: String, tracks: Vec<Track>, called: impl Fn(u64) -> String) -> Option<Plot> {
    let xs: BTreeSet<_> = tracks.iter().flat_map(|track| &track.spots).map(|spot| spot.x).collect();
    let ticks: Vec<_> = xs.into_iter().map(|x| (x, called(x))).collect();
    (!ticks.is_empty()).then_some(Plot { title, ticks, tracks })
}

impl Panels {
    /// What the scale of `plot` reaches: the largest value of all charts, or of that one if each has its own.
    pub(super) fn max(&self, plot: &Plot) -> u64 {
        if self.own_scales { plot.max() } else { self.plots.iter().map(Plot::max).max().unwrap_or(0) }
    }

    /// The lines that occur in any chart.
    pub(super) fn legend(&self) -> Vec<(&str, Style)> {
        let tracks = self.plots.iter().flat_map(|plot| &plot.tracks);
        each_once(tracks.map(|track| (track.name.as_str(), track.style)))
    }
}

impl Plot {
    fn max(&self) -> u64 {
        self.tracks.iter().flat_map(|track| &track.spots).map(|spot| spot.summary.max).max().unwrap_or(0)
    }

    /// How `x` is called.
    pub(super) fn called(&self, x: u64) -> &str {
        self.ticks.iter().find(|(tick, _)| *tick == x).map_or("", |(_, name)| name)
    }

    /// The chart in a sentence or two, for those who do not see it.
    pub(super) fn described(&self, unit: Unit) -> String {
        let sentence = |track: &Track| {
            let [first, .., last] = track.spots.as_slice() else {
                let spot = &track.spots[0];
                return format!("{}: {} with {}.", track.name, unit.show(spot.summary.median), self.called(spot.x));
            };
            let (from, to) = (unit.show(first.summary.median), unit.show(last.summary.median));
            format!("{}: {from} with {}, {to} with {}.", track.name, self.called(first.x), self.called(last.x))
        };
        let sentences: Vec<_> = self.tracks.iter().map(sentence).collect();
        format!("Medians. {}", sentences.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{GIB, sweep, variant};
    use super::super::model::{sections, sources};
    use super::*;
    use crate::results::Results;

    fn titles(results: Results, panels: fn(&[Line<'_>]) -> Panels) -> Vec<(String, Vec<String>)> {
        let sources = sources(vec![("r.json".into(), results)]);
        let panels = panels(&sections(&sources)[0].lines);
        let ticks = |plot: Plot| plot.ticks.into_iter().map(|(_, name)| name).collect();
        panels.plots.into_iter().map(|plot| (plot.title.clone(), ticks(plot))).collect()
    }

    fn of_shapes(shapes: &[(u16, u64)]) -> Results {
        let shape = |(cpus, gib): &(u16, u64)| crate::results::Variant {
            cpus: *cpus,
            ..variant("flatboot", "serial", gib * GIB)
        };
        sweep(shapes.iter().map(shape).collect(), 2, |_, _| 1_000_000)
    }

    fn named(title: &str, ticks: &[&str]) -> (String, Vec<String>) {
        (title.into(), ticks.iter().copied().map(String::from).collect())
    }

    #[test]
    fn a_chart_for_each_vcpu_count_and_one_of_scaling_for_each_size() {
        let results = || of_shapes(&[(1, 1), (1, 4), (2, 1), (2, 4), (2, 8)]);
        assert_eq!(
            titles(results(), init),
            [named("1 vCPU", &["1 GiB", "4 GiB"]), named("2 vCPUs", &["1 GiB", "4 GiB", "8 GiB"])]
        );
        let counts = ["1 vCPU", "2 vCPUs"];
        assert_eq!(titles(results(), scaling), [named("1 GiB", &counts), named("4 GiB", &counts)]);
    }

    #[test]
    fn sizes_with_vcpu_counts_of_their_own_share_a_chart() {
        let results = || of_shapes(&[(2, 8), (4, 16)]);
        assert_eq!(titles(results(), memory), [named("VM sizes", &["8 GiB, 2 vCPUs", "16 GiB, 4 vCPUs"])]);
        assert_eq!(titles(results(), scaling), []);
    }

    #[test]
    fn nothing_is_drawn_of_failed_boots() {
        let mut results = of_shapes(&[(1, 1), (1, 4)]);
        for boot in results.boots.iter_mut().filter(|boot| boot.variant == 1) {
            boot.end = crate::results::End::Failed { why: "timeout".into(), console: Vec::new() };
        }
        assert_eq!(titles(results, init), [named("1 vCPU", &["1 GiB"])]);
    }

    #[test]
    fn descriptions_have_the_numbers() {
        let results = sweep([1, 4].map(|gib| variant("qemu", "serial", gib * GIB)).to_vec(), 3, |variant, round| {
            [1_000_000_000, 2_500_000_000][variant] + u64::from(round)
        });
        let sources = sources(vec![("r.json".into(), results)]);
        let panels = init(&sections(&sources)[0].lines);
        let described = panels.plots[0].described(panels.unit);
        assert_eq!(described, "Medians. qemu, serial: 1.00 s with 1 GiB, 2.50 s with 4 GiB.");
    }
}
