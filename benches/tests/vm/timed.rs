// SPDX-License-Identifier: Apache-2.0
//! What is timed in rounds, by the VMM's own clock, and compared.

use std::env;

use flatboot_bench::stats;
use libtest_mimic::Failed;
use serde_json::Value;

/// How many rounds there are besides the first, which is a warm-up, and by how many times the one may take longer than the other: as
/// many as `FLATBOOT_TIMES` says, and then not more than what is `promised`; else so few that only what grows with memory shows.
pub(crate) fn rounds(promised: f64) -> Result<(usize, f64), Failed> {
    Ok(match env::var("FLATBOOT_TIMES") {
        Ok(times) => (times.parse()?, promised),
        Err(_) => (3, 3.0),
    })
}

/// Of `all` that was timed, `N` in each round, the same of each round but the first.
pub(crate) fn columns<const N: usize>(all: &[u64], rounds: usize) -> Option<[Vec<u64>; N]> {
    let (all, rest) = all.as_chunks::<N>();
    let (_, timed) = all.split_first().filter(|(_, timed)| timed.len() == rounds && rest.is_empty())?;
    Some(std::array::from_fn(|column| timed.iter().map(|round| round[column]).collect()))
}

/// The ratio of two medians. Of few rounds it is that of the least: whatever holds a machine up for a moment only adds.
#[expect(clippy::cast_precision_loss, reason = "a ratio of times below 2^52 ns")]
pub(crate) fn ratio(long: &[u64], short: &[u64]) -> f64 {
    let few = env::var_os("FLATBOOT_TIMES").is_none();
    let typical = |of: &[u64]| {
        let mut of = of.to_vec();
        of.sort_unstable();
        let typical = if few { of.first().copied() } else { stats::median(&of) };
        typical.unwrap_or(0) as f64
    };
    typical(long) / typical(short)
}

/// Nanoseconds between each event `from` of `events` and the event `to` that follows it.
pub(crate) fn took(events: &str, (from, to): (&str, &str)) -> Option<Vec<u64>> {
    let (mut began, mut took) = (None, Vec::new());
    for event in serde_json::Deserializer::from_str(events).into_iter::<Value>() {
        let event = event.ok()?;
        let (name, time) = (event["event"].as_str()?, &event["timestamp"]);
        let now = time["secs"].as_u64()? * 1_000_000_000 + time["nanos"].as_u64()?;
        if name == from {
            began = Some(now);
        } else if name == to {
            took.push(now - began.take()?);
        }
    }
    Some(took)
}
