// SPDX-License-Identifier: Apache-2.0
//! Numbers as people read them.

use crate::terminal::{self, decimals};
pub(super) use crate::terminal::{count, when as date};

/// Bytes as a size of memory, in at most three digits: `1 GiB`, `1.5 GiB`, `38.2 MiB`.
pub(super) fn bytes(bytes: u64) -> String {
    let text = terminal::bytes(bytes);
    match text.split_once(' ') {
        Some((value, unit)) if value.contains('.') => {
            format!("{} {unit}", value.trim_end_matches('0').trim_end_matches('.'))
        }
        _ => text,
    }
}

/// Nanoseconds in three digits: `7.21 s`, `812 ms`, `45.1 µs`.
pub(super) fn duration(ns: u64) -> String {
    let (unit, size) = match ns {
        999_500_000.. => ("s", 1e9),
        999_500.. => ("ms", 1e6),
        _ => ("µs", 1e3),
    };
    format!("{} {unit}", digits(float(ns) / size))
}

/// Nanoseconds as milliseconds with all that a microsecond clock tells: `812.346`.
pub(super) fn milliseconds(ns: u64) -> String {
    format!("{}.{:03}", ns / 1_000_000, ns / 1_000 % 1_000)
}

/// A ratio: `1.02`, `7.1`, `21`.
pub(super) fn times(ratio: f64) -> String {
    match ratio {
        _ if ratio < 2.0 => format!("{ratio:.2}"),
        _ if ratio < 20.0 => format!("{ratio:.1}"),
        _ => format!("{ratio:.0}"),
    }
}

/// The same text, whose numbers stay on a line with their units.
pub(super) fn unbroken(text: &str) -> String {
    let mut before = ' ';
    let keep = |character| {
        let after_digit = before.is_ascii_digit();
        before = character;
        if character == ' ' && after_digit { '\u{a0}' } else { character }
    };
    text.chars().map(keep).collect()
}

fn digits(value: f64) -> String {
    format!("{value:.*}", decimals(value))
}

/// As a floating point number, for drawing and for ratios.
#[expect(clippy::cast_precision_loss, reason = "drawn or rounded to a few digits")]
pub(super) fn float(value: u64) -> f64 {
    value as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_the_largest_unit_that_fits() {
        let sizes = [0, 512, 100 << 10, 1 << 30, 3 << 29, 40_055_603, 1_234_567_890, 1 << 41].map(bytes);
        assert_eq!(sizes, ["0 B", "512 B", "100 KiB", "1 GiB", "1.5 GiB", "38.2 MiB", "1.15 GiB", "2 TiB"]);
    }

    #[test]
    fn times_have_three_digits() {
        let times = [0, 45_123, 999_499, 999_500, 12_345_678, 999_499_999, 999_500_000, 63_210_000_000].map(duration);
        assert_eq!(times, ["0.00 µs", "45.1 µs", "999 µs", "1.00 ms", "12.3 ms", "999 ms", "1.00 s", "63.2 s"]);
        assert_eq!(milliseconds(812_345_999), "812.345");
    }

    #[test]
    fn numbers_stay_with_their_units() {
        assert_eq!(unbroken("in 2.68 s, then x"), "in 2.68\u{a0}s, then x");
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        let dates = [0, 951_782_400, 1_735_689_599, 1_740_837_900].map(date);
        let expected = ["1970-01-01 00:00", "2000-02-29 00:00", "2024-12-31 23:59", "2025-03-01 14:05"];
        assert_eq!(dates, expected.map(|date| format!("{date} UTC")));
    }
}
