// SPDX-License-Identifier: Apache-2.0
//! Axis ticks.

use super::super::plot::Unit;

/// A linear axis from 0.
#[derive(Debug)]
pub(super) struct Scale {
    /// Its end, the last tick.
    pub(super) top: f64,
    /// Ascending, from 0, each with its label.
    pub(super) ticks: Vec<(f64, String)>,
}

/// Larger units of a value, largest first: name and size.
type Units = &'static [(&'static str, f64)];

const TIMES: Units = &[("s", 1e9), ("ms", 1e6), ("µs", 1e3)];
const SIZES: Units = &[("GiB", 1073741824.0), ("MiB", 1048576.0), ("KiB", 1024.0)];

/// Four to seven ticks at round values, the last not below `max` nanoseconds or bytes.
pub(super) fn linear(unit: Unit, max: f64) -> Scale {
    let units = match unit {
        Unit::Time => TIMES,
        Unit::Bytes => SIZES,
    };
    let smallest = units.len() - 1;
    let (name, size) = units.iter().find(|(_, size)| max >= *size).unwrap_or(&units[smallest]);
    let max = (max / size).max(f64::MIN_POSITIVE);
    let decade = 10f64.powf(max.log10().floor());
    // Of max / decade, which is at least 1 and below 10.
    let step = match max / decade {
        mantissa if mantissa <= 1.2 => 0.2,
        mantissa if mantissa <= 3.0 => 0.5,
        mantissa if mantissa <= 6.0 => 1.0,
        _ => 2.0,
    } * decade;
    // `0.1 * 3` is 0.30000000000000004.
    let decimals = usize::from(step.fract() > 1e-9) + usize::from((step * 10.0).fract() > 1e-9);
    let count = (max / step - 1e-9).ceil();
    let label = |value: f64| if value == 0.0 { "0".into() } else { format!("{value:.decimals$} {name}") };
    let values = std::iter::successors(Some(0.0), |n| Some(n + 1.0)).take_while(|n| *n <= count);
    let ticks = values.map(|n| (n * step * size, label(n * step))).collect();
    Scale { top: count * step * size, ticks }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(unit: Unit, max: f64) -> Vec<String> {
        let scale = linear(unit, max);
        assert!(scale.top >= max && scale.ticks.last().is_some_and(|(value, _)| *value <= scale.top * 1.0001));
        scale.ticks.into_iter().map(|(_, label)| label).collect()
    }

    #[test]
    fn ticks_are_round_and_reach_the_largest_value() {
        assert_eq!(labels(Unit::Time, 7.2e9), ["0", "2 s", "4 s", "6 s", "8 s"]);
        assert_eq!(labels(Unit::Time, 1.2e9), ["0", "0.2 s", "0.4 s", "0.6 s", "0.8 s", "1.0 s", "1.2 s"]);
        assert_eq!(labels(Unit::Time, 20.7e9), ["0", "5 s", "10 s", "15 s", "20 s", "25 s"]);
        assert_eq!(labels(Unit::Time, 430e6), ["0", "100 ms", "200 ms", "300 ms", "400 ms", "500 ms"]);
        assert_eq!(labels(Unit::Bytes, 41_943_040.0), ["0", "10 MiB", "20 MiB", "30 MiB", "40 MiB"]);
        assert_eq!(labels(Unit::Bytes, 1.5e9), ["0", "0.5 GiB", "1.0 GiB", "1.5 GiB"]);
    }

    #[test]
    fn even_nothing_has_a_scale() {
        assert!(labels(Unit::Time, 0.0).len() > 1);
        assert!(labels(Unit::Time, 1.0).len() > 1);
    }
}
