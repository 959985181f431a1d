// SPDX-License-Identifier: Apache-2.0
//! Numbers with their units, and text that a terminal cannot take for commands.

use jiff::Timestamp;

/// The unit in which a table gives its times, one for the whole table so that they can be compared at a glance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Clock {
    /// Three decimals.
    Seconds,
    /// One decimal.
    Milliseconds,
}

impl Clock {
    /// Seconds if they leave three digits of the shortest of `times` (ns), else milliseconds.
    pub(crate) fn for_all(times: impl IntoIterator<Item = u64>) -> Self {
        if times.into_iter().all(|time| time >= 100_000_000) { Self::Seconds } else { Self::Milliseconds }
    }

    /// `ns` in this unit.
    #[expect(clippy::cast_precision_loss, reason = "a handful of digits is shown")]
    pub(crate) fn show(self, ns: u64) -> String {
        match self {
            Self::Seconds => format!("{:.3} s", ns as f64 / 1e9),
            Self::Milliseconds => format!("{:.1} ms", ns as f64 / 1e6),
        }
    }
}

const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

/// A size that was measured: three digits.
#[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
pub(crate) fn bytes(bytes: u64) -> String {
    let mut value = bytes as f64;
    let mut unit = 0;
    // What would be rounded to 1024 belongs to the next unit.
    while value >= 1023.5 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let decimals = if unit == 0 { 0 } else { decimals(value) };
    format!("{value:.decimals$} {}", UNITS[unit])
}

/// How many times as much: three digits.
pub(crate) fn times(ratio: f64) -> String {
    format!("{ratio:.*}×", decimals(ratio))
}

/// Decimals that leave three digits.
pub(crate) fn decimals(value: f64) -> usize {
    match value {
        ..9.995 => 2,
        ..99.95 => 1,
        _ => 0,
    }
}

/// "1 boot", "2 boots".
pub(crate) fn count(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

/// "all variants", "2 of 20 variants".
pub(crate) fn some_of(some: usize, all: usize) -> String {
    if some == all { "all variants".to_owned() } else { format!("{some} of {}", count(all, "variant")) }
}

/// Seconds since 1970 as a date and a time of day.
pub(crate) fn when(unix_s: u64) -> String {
    let time = i64::try_from(unix_s).ok().and_then(|seconds| Timestamp::from_second(seconds).ok());
    time.map_or_else(|| format!("{unix_s} s after 1970"), |time| time.strftime("%Y-%m-%d %H:%M UTC").to_string())
}

/// `text` on one line, with nothing in it that a terminal obeys: control characters and changes of the writing direction.
pub(crate) fn plain(text: &str) -> String {
    let harmless = |c: char| match c {
        '\n' | '\t' => ' ',
        '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => '\u{fffd}',
        _ if c.is_control() => '\u{fffd}',
        _ => c,
    };
    text.chars().map(harmless).collect()
}

/// Bytes in the largest unit that leaves a whole number: "4 GiB".
#[must_use]
pub(crate) fn size(bytes: u64) -> String {
    let units = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    match units.into_iter().find(|(shift, _)| bytes > 0 && bytes.trailing_zeros() >= *shift) {
        Some((shift, unit)) => format!("{} {unit}", bytes >> shift),
        None => format!("{bytes} bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measured_sizes_have_three_digits() {
        let gib = 1 << 30;
        let measured = [0, 1023, 1024, 52 << 20, 171 << 20, gib - 1, 1_290_000_000, 11 * gib, u64::MAX].map(bytes);
        let as_read =
            ["0 B", "1023 B", "1.00 KiB", "52.0 MiB", "171 MiB", "1.00 GiB", "1.20 GiB", "11.0 GiB", "16.0 EiB"];
        assert_eq!(measured, as_read);
    }

    #[test]
    fn the_clock_leaves_the_shortest_time_three_digits() {
        assert_eq!(Clock::for_all([100_000_000, 10_214_567_890]).show(10_214_567_890), "10.215 s");
        assert_eq!(Clock::for_all([99_999_999, 10_214_567_890]).show(34_249_999), "34.2 ms");
    }

    #[test]
    fn ratios_have_three_digits() {
        assert_eq!(
            [1.0, 9.994, 9.996, 99.94, 99.96, 1234.5].map(times),
            ["1.00×", "9.99×", "10.0×", "99.9×", "100×", "1234×"]
        );
    }

    #[test]
    fn moments_are_dates_while_there_is_one() {
        // `date -u -d @1795183920`
        assert_eq!(when(1_795_183_920), "2026-11-20 14:12 UTC");
        assert_eq!(when(u64::MAX), "18446744073709551615 s after 1970");
    }

    #[test]
    fn a_terminal_is_told_nothing() {
        assert_eq!(plain("a\x1b[2Jb\nc\u{9b}d\u{202e}é"), "a\u{fffd}[2Jb c\u{fffd}d\u{fffd}é");
    }
}
