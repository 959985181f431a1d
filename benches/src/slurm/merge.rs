// SPDX-License-Identifier: Apache-2.0
//! Sweeps of some rounds each as one.

use anyhow::{Result, bail, ensure};

use crate::results::{Boot, End, Results, Sweep};

/// Whole rounds in it that count; the warm-up round is not one.
pub(super) fn rounds(results: &Results) -> u32 {
    results.rounds().saturating_sub(1)
}

/// The same without boots of a round that is not whole; none if not even the warm-up is whole.
pub(super) fn whole_rounds(mut results: Results) -> Option<Results> {
    results.cut_to_whole_rounds();
    (!results.boots.is_empty()).then_some(results)
}

/// Why nothing is to be had of `part`, if no guest of it reached init: its node cannot run VMs.
pub(super) fn failure(part: &Results) -> Option<String> {
    let mut why = None;
    for boot in &part.boots {
        match &boot.end {
            End::Init(_) => return None,
            End::Failed { why: last, .. } => why = Some(last),
        }
    }
    why.map(|why| format!("no guest reached init: {why}"))
}

/// `sweep` with the rounds of `part` after those that there are, as far as they are wanted. The warm-up round of a part has
/// served its node: only the first is kept.
pub(super) fn merge(sweep: &Sweep, merged: Option<Results>, part: Results) -> Result<Results> {
    ensure!(
        part.is_complete() && part.sweep == Sweep { runs: part.sweep.runs, ..sweep.clone() },
        "a part is of another sweep"
    );
    let Some(mut merged) = merged else {
        return Ok(Results { sweep: sweep.clone(), ..part });
    };
    alike(&merged, &part)?;
    let (done, wanted) = (rounds(&merged), sweep.runs);
    let boots = part.boots.into_iter().filter(|boot| boot.round > 0 && boot.round <= wanted - done);
    merged.boots.extend(boots.map(|boot| Boot { round: boot.round + done, ..boot }));
    Ok(merged)
}

/// Rounds of nodes that are not alike do not go into one file.
pub(super) fn alike(merged: &Results, part: &Results) -> Result<()> {
    let node = |results: &Results| {
        let node = results.boots.last().and_then(|boot| boot.node.clone());
        node.unwrap_or_else(|| "a node".to_owned())
    };
    match merged.facts.unlike(&part.facts) {
        Some((what, was, is)) => bail!(
            "nodes differ in {what}: {was} on {}, {is} on {}; SBATCH_CONSTRAINT or SBATCH_PARTITION chooses like ones",
            node(merged),
            node(part)
        ),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture::{GIB, sweep, variant};

    /// What a task of so many rounds measured on `node`.
    fn part(runs: u32, node: &str) -> Results {
        let variants = [GIB, 2 * GIB].map(|memory| variant("flatboot", "async", memory));
        let mut results = sweep(variants.to_vec(), runs, |_, round| u64::from(round) + 1);
        results.boots.iter_mut().for_each(|boot| boot.node = Some(node.to_owned()));
        results
    }

    #[test]
    fn rounds_go_on_where_those_before_end() {
        let whole = part(5, "").sweep;
        let merged = merge(&whole, None, part(2, "a")).unwrap();
        assert_eq!((merged.sweep.runs, rounds(&merged), merged.is_complete()), (5, 2, false));
        // One round more than is wanted.
        let merged = merge(&whole, Some(merged), part(4, "b")).unwrap();
        assert!(merged.is_complete(), "{}", merged.boots.len());
        let seen = merged.boots.iter().map(|boot| (boot.variant, boot.round));
        assert!(seen.eq(whole.boots()), "in the order of a sweep");
        assert_eq!(merged.nodes().as_deref(), Some("a (6 boots), b (6 boots)"));
        let mut elsewhere = merged.clone();
        elsewhere.boots.iter_mut().skip(6).for_each(|boot| boot.node = None);
        assert_eq!(elsewhere.nodes().as_deref(), Some("outside the cluster (6 boots), a (6 boots)"));
        elsewhere.boots.iter_mut().for_each(|boot| boot.node = None);
        assert_eq!(elsewhere.nodes(), None);
        let whole_of = |boots| {
            let mut broken = merged.clone();
            broken.boots.truncate(boots);
            whole_rounds(broken).map(|whole| whole.boots.len())
        };
        assert_eq!([7, 2, 1, 0].map(whole_of), [Some(6), Some(2), None, None]);
    }

    #[test]
    fn a_node_on_which_nothing_comes_up_has_failed() {
        let mut part = part(2, "a");
        assert_eq!(failure(&part), None);
        let (last, others) = part.boots.split_last_mut().unwrap();
        let end = |why: &str| End::Failed { why: why.to_owned(), console: Vec::new() };
        for boot in others {
            boot.end = end("no KVM");
        }
        last.end = end("no memory");
        assert_eq!(failure(&part).as_deref(), Some("no guest reached init: no memory"));
    }

    #[test]
    fn what_is_not_alike_is_not_merged() {
        let whole = part(5, "").sweep;
        let of = |change: &dyn Fn(&mut Results)| {
            let mut other = part(2, "b");
            change(&mut other);
            merge(&whole, Some(part(2, "a")), other).map(drop).map_err(|error| error.to_string())
        };
        assert_eq!(of(&|other| other.facts.host.memory_bytes -= 4096), Ok(()));
        let error = of(&|other| other.facts.host.kernel = "7.0".to_owned()).unwrap_err();
        assert!(
            error.contains("nodes differ in the host")
                && error.contains(" on a, ")
                && error.contains(" on b; SBATCH_CONS"),
            "{error}"
        );
        assert!(of(&|other| other.facts.guest.initramfs_sha256 = "1".to_owned()).unwrap_err().contains("the guest"));
        for change in [|other: &mut Results| other.boots.truncate(3), |other: &mut Results| other.sweep.timeout_ms = 1]
        {
            assert_eq!(of(&change).unwrap_err(), "a part is of another sweep");
        }
    }
}
