// SPDX-License-Identifier: Apache-2.0
//! Whether boots show the memmap mode that they are compared in: else a kernel without it would be compared with itself.

use anyhow::{Context, Result, ensure};
use flatboot_handoff::marks;

use crate::modes::Mode;
use crate::results::{Group, Sample};
use crate::sweep::describe;

/// Every boot has to tell by its marks whether memory was deferred when init started, as it is in its mode alone.
pub(super) fn is_in_effect(groups: &[Group<'_>]) -> Result<()> {
    for group in groups {
        let mode = &group.variant.mode;
        let expected = defers(mode);
        for sample in &group.samples {
            let deferred = was_deferred(sample).with_context(|| {
                format!("{}: a boot does not tell when its memory was set up", describe(group.variant))
            })?;
            ensure!(
                deferred == expected,
                "{}: mode {mode} is not in effect: when init started, memory was {} deferred",
                describe(group.variant),
                if deferred { "still" } else { "not" },
            );
        }
    }
    Ok(())
}

fn defers(mode: &str) -> bool {
    Mode::named(mode).is_some_and(|mode| mode.defers)
}

/// What init finds is set up before it starts; what is deferred begins to be afterwards.
fn was_deferred(sample: &Sample) -> Option<bool> {
    let at = |code| {
        let name = marks::Mark::of(code)?.name;
        Some(sample.marks.iter().find(|mark| mark.guest && mark.name == name)?.ns)
    };
    Some(at(marks::DEFERRED_BEGIN)? >= at(marks::INIT_EXEC)?)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::report::fixture::{GIB, mark, sweep, variant};
    use crate::results::{End, Results, groups};

    const INIT: u64 = 50;

    /// The same with marks of memory that is set up from `begin` on.
    fn marked(mut results: Results, begin: Option<u64>) -> Results {
        for boot in &mut results.boots {
            let End::Init(sample) = &mut boot.end else { continue };
            let begins = begin.map(|ns| mark(ns, "deferred-begin", true));
            sample.marks.extend(begins.into_iter().chain([mark(INIT, "init-exec", true)]));
        }
        results
    }

    /// The same with marks that show its mode to be in effect.
    pub(in crate::spec) fn in_effect(results: Results) -> Results {
        let defers = results.sweep.variants.iter().all(|variant| defers(&variant.mode));
        marked(results, Some(if defers { INIT } else { INIT - 1 }))
    }

    fn why(mode: &str, begin: Option<u64>) -> Option<String> {
        let boots = marked(sweep(vec![variant("flatboot", mode, GIB)], 1, |_, _| INIT), begin);
        is_in_effect(&groups(&boots)).err().map(|error| error.to_string())
    }

    #[test]
    fn a_mode_is_seen_by_when_memory_is_set_up() {
        let right = [("async", INIT), ("ondemand", INIT + 1), ("parallel", INIT - 1), ("stock", INIT - 1)];
        assert_eq!(right.map(|(mode, begin)| why(mode, Some(begin))), [None, None, None, None]);
        let early = why("ondemand", Some(INIT - 1)).unwrap();
        assert!(
            early.ends_with("mode ondemand is not in effect: when init started, memory was not deferred"),
            "{early}"
        );
        assert!(why("parallel", Some(INIT)).unwrap().ends_with("memory was still deferred"));
        assert!(why("async", None).unwrap().ends_with("a boot does not tell when its memory was set up"));
    }
}
