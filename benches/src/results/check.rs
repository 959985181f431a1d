// SPDX-License-Identifier: Apache-2.0
//! What a results file may say: whoever reads on can rely on it.

use std::collections::HashSet;

use super::format::{End, Results, Sweep};

/// What is wrong with `sweep`, if anything is.
pub(super) fn sweep(sweep: &Sweep) -> Result<(), String> {
    if sweep.variants.is_empty() {
        return Err("its sweep has no variants".to_owned());
    }
    if sweep.runs == 0 {
        return Err("its sweep has 0 runs, expected at least 1".to_owned());
    }
    let mut seen = HashSet::new();
    for (index, variant) in sweep.variants.iter().enumerate() {
        let wrong = [
            (variant.memory_bytes == 0, "has no memory"),
            (variant.cpus == 0, "has no vCPUs"),
            (variant.vms == Some(0), "is a fleet without VMs"),
            (!seen.insert(variant), "is there twice"),
        ];
        if let Some((_, what)) = wrong.iter().find(|(is, _)| *is) {
            return Err(format!("variant {index} {what}"));
        }
    }
    Ok(())
}

/// The first boot that is not the sweep's next, or that says what cannot be, and why. The sweep has been checked: without
/// variants the search for the next boot would go through all rounds.
pub(super) fn boots(results: &Results) -> Result<(), (usize, String)> {
    let mut expected = results.sweep.boots();
    for (index, boot) in results.boots.iter().enumerate() {
        match expected.next() {
            Some(next) if next == (boot.variant, boot.round) => {}
            Some((variant, round)) => {
                let why = format!(
                    "variant {} in round {}, where the sweep's next is variant {variant} in round {round}",
                    boot.variant, boot.round
                );
                return Err((index, why));
            }
            None => return Err((index, format!("the sweep has only {} boots", results.sweep.boots_wanted()))),
        }
        if matches!(&boot.end, End::Init(sample) if sample.init_ns == 0) {
            return Err((index, "it reached init after 0 ns".to_owned()));
        }
    }
    Ok(())
}
