// SPDX-License-Identifier: Apache-2.0
//! What Flatboot claims of its speed: each claim's variants, the step that is timed, and the bound.
//!
//! docs/SPECIFICATION.md lists them; a test holds it against this file.

use std::fmt;

use super::{Bench, MeasureError, Samples, Variant};

/// The deferred part of the memmap, as the kernel marks it.
const DEFERRED: (&str, &str) = ("deferred-begin", "deferred-end");

/// Something that holds or does not.
#[derive(Debug)]
pub struct Claim {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it says, bound included.
    pub statement: &'static str,
    /// The step that is timed: from one mark to another.
    pub step: (&'static str, &'static str),
    /// The boots that it compares.
    pub variants: fn(&Bench) -> Result<Vec<Variant>, MeasureError>,
    /// Whether it holds.
    pub judge: fn(&Samples) -> Verdict,
}

/// What a measurement said.
#[derive(Debug)]
pub struct Verdict {
    /// Whether the bound holds.
    pub holds: bool,
    /// The numbers, in words.
    pub text: String,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", if self.holds { "holds" } else { "MISSED" }, self.text)
    }
}

/// All claims.
pub const CLAIMS: &[Claim] = &[
    Claim {
        name: "deferred-threads",
        statement: "64 GiB, memmap backed: deferred init on 2 vCPUs is at least 1.5 times as fast as on 1",
        step: DEFERRED,
        variants: threads,
        judge: |samples| at_least(samples, "warm, 1 thread", "warm, 2 threads", 1.5),
    },
    Claim {
        name: "deferred-holes",
        statement: "64 GiB, memmap backed: memory cut into 64 regions takes at most 1.1 times as long as one region",
        step: DEFERRED,
        variants: holes,
        judge: |samples| {
            let mut verdict = at_most(samples, "64 regions", "1 region", 1.1);
            let stock = samples.ratio("stock, 64 regions", "stock, 1 region", DEFERRED).unwrap_or(f64::NAN);
            verdict.text = format!("{}; stock 6.12: {stock:.2}", verdict.text);
            verdict
        },
    },
];

fn at_least(samples: &Samples, above: &str, below: &str, bound: f64) -> Verdict {
    let ratio = samples.ratio(above, below, DEFERRED).unwrap_or(f64::NAN);
    let mut text = format!("{above} / {below} = {ratio:.2}, must be at least {bound}");
    if let (Some(cold), Some(warm)) = (samples.median("cold, 2 threads", DEFERRED), samples.median(below, DEFERRED)) {
        let share = cold.saturating_sub(warm) * 100 / cold.max(1);
        text = format!("{text}; cold, {share} % of the time on 2 threads goes into the host's page faults");
    }
    Verdict { holds: ratio >= bound, text }
}

fn at_most(samples: &Samples, above: &str, below: &str, bound: f64) -> Verdict {
    let ratio = samples.ratio(above, below, DEFERRED).unwrap_or(f64::NAN);
    Verdict { holds: ratio <= bound, text: format!("{above} / {below} = {ratio:.2}, must be at most {bound}") }
}

fn threads(bench: &Bench) -> Result<Vec<Variant>, MeasureError> {
    let guest = bench.guest("guest")?;
    let variant = |name, threads: &str, prefault: &str| Variant {
        name,
        guest: guest
            .clone()
            .memory(&format!("size=64G,prefault={prefault}"))
            .cmdline(&format!("memmap_init_threads={threads}")),
    };
    Ok(vec![
        variant("warm, 1 thread", "1", "arenas"),
        variant("warm, 2 threads", "2", "arenas"),
        variant("cold, 1 thread", "1", "off"),
        variant("cold, 2 threads", "2", "off"),
    ])
}

fn holes(bench: &Bench) -> Result<Vec<Variant>, MeasureError> {
    let (ours, stock) = (bench.guest("guest")?, bench.guest("stock")?);
    let variant = |name, guest: &crate::guest::Guest, holes: u32| Variant {
        name,
        guest: guest.clone().memory(&format!("size=64G,prefault=arenas,holes={holes}")),
    };
    Ok(vec![
        variant("1 region", &ours, 0),
        variant("64 regions", &ours, 63),
        variant("stock, 1 region", &stock, 0),
        variant("stock, 64 regions", &stock, 63),
    ])
}
