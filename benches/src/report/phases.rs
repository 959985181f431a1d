// SPDX-License-Identifier: Apache-2.0
//! Where the time goes: what lies between successive marks, small parts summed up.

use crate::results::{Group, Sample};
use crate::stats;

use super::format::{self, float};
use super::model::Line;
use super::style::{COLOURS, GREY_GUEST, GREY_VMM, wrap};

/// A part this large of some boot, at least, has its own colour.
const SMALLEST: f64 = 0.03;

/// Stacked bars.
#[derive(Debug)]
pub(super) struct Phases {
    /// What the segments are, in the order in which they come.
    pub(super) legend: Vec<Phase>,
    /// One for each variant with marks.
    pub(super) bars: Vec<Bar>,
}

/// A kind of segment.
#[derive(Debug)]
pub(super) struct Phase {
    /// `A` and on, where it is drawn and in the legend.
    pub(super) letter: char,
    /// What happens in it: `memmap-begin → memmap-end`, or the VMM's own words.
    pub(super) name: String,
    /// Of the palette.
    pub(super) colour: u8,
}

/// A variant.
#[derive(Debug)]
pub(super) struct Bar {
    /// The line's name and the vCPUs: bars of the same heading stand together.
    pub(super) heading: String,
    /// The memory.
    pub(super) name: String,
    /// Median nanoseconds in each phase of the legend.
    pub(super) parts: Vec<u64>,
}

/// What ends where a mark is: marks of that name, of the guest or of the VMM.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Interval {
    guest: bool,
    end: String,
    begin: String,
}

/// What a mark ended, and how many nanoseconds after the one before.
type Step = (Interval, u64);

/// Bars for all variants that are booted and whose VMM or guest reported marks.
pub(super) fn phases(lines: &[Line<'_>]) -> Phases {
    let many = |group: &Group<'_>| format::count(group.variant.cpus.into(), "vCPU");
    let mut variants = Vec::new();
    for line in lines.iter().filter(|line| line.is_of_boots()) {
        for point in line.points.iter().filter(|point| point.samples.iter().any(|sample| has_marks(sample))) {
            let samples: Vec<_> = point.samples.iter().map(|sample| steps(sample)).collect();
            variants.push((format!("{}, {}", line.name, many(point)), point, samples));
        }
    }
    let order = order(variants.iter().flat_map(|(.., samples)| samples));
    let medians: Vec<Vec<u64>> = variants.iter().map(|(.., samples)| medians(&order, samples)).collect();
    let (legend, place) = legend(&order, &medians);
    let mut bars = Vec::new();
    for ((heading, group, _), medians) in variants.into_iter().zip(&medians) {
        let mut parts = vec![0; legend.len()];
        for (index, median) in medians.iter().enumerate() {
            parts[place[index]] += median;
        }
        bars.push(Bar { heading, name: format::bytes(group.variant.memory_bytes), parts });
    }
    Phases { legend, bars }
}

fn has_marks(sample: &Sample) -> bool {
    sample.marks.iter().any(|mark| mark.ns <= sample.init_ns)
}

/// From exec to init, without gaps: each step ends at a mark, the last at init.
fn steps(sample: &Sample) -> Vec<Step> {
    let (mut before, mut begin) = (0, "exec");
    let mut steps = Vec::new();
    for mark in sample.marks.iter().filter(|mark| mark.ns <= sample.init_ns) {
        let interval = Interval { guest: mark.guest, end: mark.name.clone(), begin: begin.to_owned() };
        steps.push((interval, mark.ns.saturating_sub(before)));
        (before, begin) = (mark.ns, &mark.name);
    }
    if before < sample.init_ns {
        let interval = Interval { guest: true, end: "init's first line".into(), begin: begin.to_owned() };
        steps.push((interval, sample.init_ns - before));
    }
    steps
}

/// Every interval once, in the order in which they come; one that only some boots have stands behind what it followed.
fn order<'a>(boots: impl Iterator<Item = &'a Vec<Step>>) -> Vec<Interval> {
    let mut order: Vec<Interval> = Vec::new();
    for steps in boots {
        let mut next = 0;
        for (interval, _) in steps {
            next = 1 + order.iter().position(|seen| is_same(seen, interval)).unwrap_or_else(|| {
                order.insert(next, interval.clone());
                next
            });
        }
    }
    order
}

/// Where an interval begins may differ from boot to boot: threads race to their marks.
fn is_same(a: &Interval, b: &Interval) -> bool {
    a.guest == b.guest && a.end == b.end
}

/// Median nanoseconds of each interval over the boots; 0 in a boot that lacks it, the sum in one that has it twice.
fn medians(order: &[Interval], boots: &[Vec<Step>]) -> Vec<u64> {
    let of_boot = |interval: &Interval, steps: &Vec<Step>| {
        steps.iter().filter(|(step, _)| is_same(step, interval)).map(|(_, ns)| ns).sum::<u64>()
    };
    let median = |interval| {
        let mut values: Vec<_> = boots.iter().map(|steps| of_boot(interval, steps)).collect();
        values.sort_unstable();
        stats::median(&values).unwrap_or(0)
    };
    order.iter().map(median).collect()
}

/// The legend, and for each interval its place there. The largest have one each, in the order in which they come. Of the
/// rest the VMM's share one before all others, the guest's one behind them; where that is a single interval, it stays where
/// it belongs.
fn legend(order: &[Interval], medians: &[Vec<u64>]) -> (Vec<Phase>, Vec<usize>) {
    let large = largest(order.len(), medians);
    let (guest, vmm): (Vec<_>, Vec<_>) =
        (0..order.len()).filter(|index| !large.contains(index)).partition(|index| order[*index].guest);
    let own = |(at, index): (usize, &usize)| (*index, vec![*index], order[*index].name(), wrap(at, COLOURS));
    let mut entries: Vec<_> = large.iter().enumerate().map(own).collect();
    for (rest, what, end, grey) in [(vmm, "VMM", 0, GREY_VMM), (guest, "guest", order.len(), GREY_GUEST)] {
        match rest[..] {
            [] => {}
            [index] => entries.push((index, rest, order[index].name(), grey)),
            _ => {
                let name = format!("{what}: {} small parts", rest.len());
                entries.push((end, rest, name, grey));
            }
        }
    }
    // Nothing but the VMM's rest can share a position, the first, and it goes before.
    entries.sort_by_key(|(position, intervals, ..)| (*position, intervals.len() == 1));

    let mut place = vec![0; order.len()];
    let mut legend = Vec::new();
    for ((_, intervals, name, colour), letter) in entries.into_iter().zip('A'..) {
        for index in intervals {
            place[index] = legend.len();
        }
        legend.push(Phase { letter, name, colour });
    }
    (legend, place)
}

/// Indices of the intervals that are large in some bar, as many as there are colours, ascending.
fn largest(intervals: usize, medians: &[Vec<u64>]) -> Vec<usize> {
    let share = |index: usize| {
        let of_bar = |bar: &Vec<u64>| float(bar[index]) / float(bar.iter().sum::<u64>().max(1));
        medians.iter().map(of_bar).fold(0.0, f64::max)
    };
    let mut largest: Vec<_> = (0..intervals).filter(|index| share(*index) >= SMALLEST).collect();
    largest.sort_by(|a, b| share(*b).total_cmp(&share(*a)));
    largest.truncate(COLOURS.into());
    largest.sort_unstable();
    largest
}

impl Bar {
    /// Nanoseconds of all parts: about the median to init, for medians do not quite add up.
    pub(super) fn total(&self) -> u64 {
        self.parts.iter().sum()
    }

    /// The bar in a sentence: its sum and its largest part.
    pub(super) fn described(&self, legend: &[Phase]) -> String {
        let Self { heading, name, parts } = self;
        let largest = legend.iter().zip(parts).max_by_key(|(_, part)| **part);
        let largest = largest
            .map_or(String::new(), |(phase, part)| format!(", of which {} in {}", format::duration(*part), phase.name));
        format!("{heading}, {name}: {}{largest}.", format::duration(self.total()))
    }
}

impl Interval {
    /// A VMM marks the end of what it does, by its name; a guest marks moments.
    fn name(&self) -> String {
        if self.guest { format!("{} → {}", self.begin, self.end) } else { self.end.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{GIB, mark, sweep, variant};
    use super::super::model::{sections, sources};
    use super::*;
    use crate::results::{End, Mark, Start, Variant};

    /// One variant, whose boots have the marks that `marks` gives by round.
    fn drawn(init_ns: u64, by_mark: bool, marks: impl Fn(u32) -> Vec<Mark>) -> Phases {
        let mut results = sweep(vec![variant("flatboot", "serial", GIB)], 3, |_, _| init_ns);
        for boot in &mut results.boots {
            if let End::Init(sample) = &mut boot.end {
                sample.marks = marks(boot.round);
                sample.by_mark = by_mark;
            }
        }
        let sources = sources(vec![("r.json".into(), results)]);
        phases(&sections(&sources)[0].lines)
    }

    fn parts(phases: &Phases) -> Vec<(char, &str, u64)> {
        let bar = &phases.bars[0];
        phases.legend.iter().zip(&bar.parts).map(|(phase, part)| (phase.letter, phase.name.as_str(), *part)).collect()
    }

    #[test]
    fn medians_of_what_lies_between_marks() {
        let phases = drawn(1000, true, |round| {
            let entry = [0, 390, 400, 500][round as usize];
            vec![
                mark(300, "loaded", false),
                mark(entry, "kernel-entry", true),
                mark(1000, "init-exec", true),
                mark(1200, "user-start", true),
            ]
        });
        let expected =
            [('A', "loaded", 300), ('B', "loaded → kernel-entry", 100), ('C', "kernel-entry → init-exec", 600)];
        assert_eq!(parts(&phases), expected);
        assert_eq!(
            (phases.bars[0].heading.as_str(), phases.bars[0].name.as_str()),
            ("flatboot, serial, 2 vCPUs", "1 GiB")
        );
    }

    #[test]
    fn small_parts_are_summed_up_and_nothing_is_lost() {
        let phases = drawn(1000, true, |_| {
            let mut marks = vec![mark(10, "a", false), mark(15, "b", false), mark(500, "c", false)];
            marks.extend([mark(510, "d", true), mark(520, "e", true), mark(1000, "init-exec", true)]);
            marks
        });
        let expected = [
            ('A', "VMM: 2 small parts", 15),
            ('B', "c", 485),
            ('C', "e → init-exec", 480),
            ('D', "guest: 2 small parts", 20),
        ];
        assert_eq!(parts(&phases), expected);
        assert_eq!(phases.bars[0].parts.iter().sum::<u64>(), 1000);
    }

    #[test]
    fn a_single_small_part_stays_where_it_belongs() {
        let phases = drawn(1000, true, |_| {
            vec![mark(400, "loaded", false), mark(410, "entry", true), mark(1000, "init-exec", true)]
        });
        let expected = [('A', "loaded", 400), ('B', "loaded → entry", 10), ('C', "entry → init-exec", 590)];
        assert_eq!(parts(&phases), expected);
    }

    #[test]
    fn init_by_console_ends_the_last_part() {
        let phases = drawn(1000, false, |_| vec![mark(300, "loaded", false)]);
        assert_eq!(parts(&phases), [('A', "loaded", 300), ('B', "loaded → init's first line", 700)]);
    }

    #[test]
    fn a_mark_that_some_boots_lack_keeps_its_place() {
        let steps = |names: &[&str]| {
            let step = |name: &&str| (Interval { guest: true, end: (*name).into(), begin: String::new() }, 1);
            names.iter().map(step).collect::<Vec<Step>>()
        };
        let boots = [steps(&["a", "c"]), steps(&["a", "b", "c", "d"])];
        let order: Vec<_> = order(boots.iter()).into_iter().map(|interval| interval.end).collect();
        assert_eq!(order, ["a", "b", "c", "d"]);
    }

    #[test]
    fn what_is_not_booted_has_no_bar() {
        let restored = Some(Start::Restored { from_bytes: None });
        let variants = [None, restored].map(|start| Variant { start, ..variant("flatboot", "async", GIB) });
        let mut results = sweep(variants.to_vec(), 3, |_, _| 1000);
        for boot in &mut results.boots {
            let End::Init(sample) = &mut boot.end else { continue };
            sample.marks = vec![mark(300, ["loaded", "restored"][boot.variant], false)];
        }
        let sources = sources(vec![("r.json".into(), results)]);
        let phases = phases(&sections(&sources)[0].lines);
        assert_eq!((phases.bars.len(), parts(&phases)[0]), (1, ('A', "loaded", 300)));
    }

    #[test]
    fn variants_without_marks_have_no_bar() {
        let phases = drawn(1000, false, |_| Vec::new());
        assert!(phases.bars.is_empty() && phases.legend.is_empty());
    }
}
