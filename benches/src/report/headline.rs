// SPDX-License-Identifier: Apache-2.0
//! What the report says first: how time to init grows with the VM.

use crate::stats;

use super::format::{duration, float, times};
use super::plot::{Panels, Plot, Track};

/// The VMM that the project is about.
const OURS: &str = "flatboot,";
/// What the name of a line says of which something was switched off.
const LESS: &str = ", without ";

/// The key finding.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Headline {
    /// One sentence.
    pub(super) main: String,
    /// The same of the other lines of that chart, each `flatboot, serial: 18 times`.
    pub(super) others: Vec<String>,
}

/// From a line's smallest VM to its largest.
struct Growth<'a> {
    plot: &'a Plot,
    track: &'a Track,
    /// How many times as large the largest is.
    span: f64,
    /// How many times as long it takes.
    ratio: f64,
}

/// Of the lines over the widest range the flattest, flatboot's with everything on if it has any; without such a line the
/// fastest median.
pub(super) fn headline(init: &Panels) -> Headline {
    let tracks = || init.plots.iter().flat_map(|plot| plot.tracks.iter().map(move |track| (plot, track)));
    let lines = || tracks().filter(|(_, track)| track.is_of_boots);
    let growths: Vec<_> = lines().filter_map(|(plot, track)| growth(plot, track)).collect();
    let other = |name: &str| f64::from(u8::from(!name.starts_with(OURS)) * 2 + u8::from(name.contains(LESS)));
    let rank = |growth: &&Growth<'_>| (-growth.span, other(&growth.track.name), growth.ratio);
    let Some(best) = growths.iter().min_by(|a, b| rank(a).partial_cmp(&rank(b)).unwrap_or(std::cmp::Ordering::Equal))
    else {
        return Headline { main: fastest(lines()), others: Vec::new() };
    };
    let (first, last) = (called(best, best.track.spots.first()), called(best, best.track.spots.last()));
    let place = if init.plots.len() > 1 { format!(" on {}", best.plot.title) } else { String::new() };
    let main =
        format!("{}: {last} takes {} times as long to init as {first}{place}", best.track.name, times(best.ratio));
    let comparable = |growth: &&Growth<'_>| {
        std::ptr::eq(growth.plot, best.plot)
            && !std::ptr::eq(growth.track, best.track)
            && (growth.span - best.span).abs() < f64::EPSILON
    };
    let others = growths.iter().filter(comparable);
    Headline {
        main,
        others: others.map(|growth| format!("{}: {} times", growth.track.name, times(growth.ratio))).collect(),
    }
}

fn growth<'a>(plot: &'a Plot, track: &'a Track) -> Option<Growth<'a>> {
    let [first, .., last] = track.spots.as_slice() else { return None };
    let ratio = stats::ratio(last.summary.median, first.summary.median)?;
    Some(Growth { plot, track, span: float(last.x) / float(first.x.max(1)), ratio })
}

fn called<'a>(growth: &Growth<'a>, spot: Option<&super::plot::Spot>) -> &'a str {
    spot.map_or("", |spot| growth.plot.called(spot.x))
}

fn fastest<'a>(lines: impl Iterator<Item = (&'a Plot, &'a Track)>) -> String {
    let spots = lines.flat_map(|(plot, track)| track.spots.iter().map(move |spot| (plot, track, spot)));
    let fastest = spots.min_by_key(|(_, track, spot)| (!track.name.starts_with(OURS), spot.summary.median));
    fastest.map_or("No boot that counts has reached init".into(), |(plot, track, spot)| {
        format!("{}: {} to init with {}", track.name, duration(spot.summary.median), plot.called(spot.x))
    })
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{GIB, sweep, variant};
    use super::super::model::{sections, sources};
    use super::super::plot;
    use super::*;
    use crate::results::{End, Results, Start, Variant};

    fn of(results: Results) -> Headline {
        let sources = sources(vec![("r.json".into(), results)]);
        headline(&plot::init(&sections(&sources)[0].lines))
    }

    fn variants() -> Vec<Variant> {
        let ways = [("qemu", "parallel"), ("flatboot", "serial"), ("flatboot", "parallel")];
        ways.iter().flat_map(|(vmm, mode)| [1, 256].map(|gib| variant(vmm, mode, gib * GIB))).collect()
    }

    #[test]
    fn the_flattest_line_of_flatboot() {
        let init_ms = [1000, 2000, 1000, 18_000, 1000, 7120];
        let headline = of(sweep(variants(), 3, |variant, _| init_ms[variant] * 1_000_000));
        assert_eq!(headline.main, "flatboot, parallel: 256 GiB takes 7.1 times as long to init as 1 GiB");
        assert_eq!(headline.others, ["qemu, parallel: 2.0 times", "flatboot, serial: 18.0 times"]);
    }

    #[test]
    fn a_line_without_a_part_is_not_the_finding() {
        let mut variants = variants();
        variants[4].without = Some("x".into());
        variants[5].without = Some("x".into());
        let init_ms = [1000, 2000, 1000, 18_000, 1000, 1000];
        let headline = of(sweep(variants, 3, |variant, _| init_ms[variant] * 1_000_000));
        assert_eq!(headline.main, "flatboot, serial: 256 GiB takes 18.0 times as long to init as 1 GiB");
        assert_eq!(headline.others[1], "flatboot, parallel, without x: 1.00 times");
    }

    #[test]
    fn what_is_not_booted_is_not_the_finding() {
        let mut variants = variants();
        let start = Some(Start::Resized { from_bytes: GIB / 2 });
        let resized = [1, 512].map(|gib| Variant { start, ..variant("flatboot", "parallel", gib * GIB) });
        variants.extend(resized.clone());
        let headline = of(sweep(variants, 3, |_, _| 1_000_000));
        assert_eq!(headline.main, "flatboot, serial: 256 GiB takes 1.00 times as long to init as 1 GiB");
        assert_eq!(headline.others.len(), 2, "{headline:?}");
        let alone = of(sweep(resized.to_vec(), 3, |_, _| 1_000_000));
        assert_eq!(alone.main, "No boot that counts has reached init");
    }

    #[test]
    fn without_a_range_a_time() {
        let headline = of(sweep(variants()[4..5].to_vec(), 3, |_, _| 812_000_000));
        let main = "flatboot, parallel: 812 ms to init with 1 GiB".into();
        assert_eq!(headline, Headline { main, others: Vec::new() });
    }

    #[test]
    fn without_samples_that_is_said() {
        let mut results = sweep(variants(), 1, |_, _| 1);
        results.boots.iter_mut().for_each(|boot| {
            boot.end = End::Failed { why: "timeout".into(), console: Vec::new() };
        });
        assert_eq!(of(results).main, "No boot that counts has reached init");
    }
}
