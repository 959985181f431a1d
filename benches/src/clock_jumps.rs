// SPDX-License-Identifier: Apache-2.0
//! Pauses of a VM, as whoever asked for them saw them, held against what the guest's clock has made of them: one jump for each,
//! when it was and as long as it was.
//!
//! The two clocks go at one rate and have different zeroes. So there must be one distance between them by which every pause
//! has its jump.

/// One pause, by the clock of whoever asked for it, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pause {
    /// When it was asked for.
    pub asked: i64,
    /// When that was answered: the VM rests.
    pub rests: i64,
    /// When the VM was asked to go on.
    pub resumed: i64,
    /// When that was answered: the VM runs.
    pub runs: i64,
}

/// One jump, by the guest's clock, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Jump {
    /// The last that the clock showed before it.
    pub at: i64,
    /// How far it went.
    pub length: i64,
}

/// What a guest that is not paused may miss of its own clock around a pause: it has to be given a processor.
const SLACK: i64 = 50_000_000;

/// Distances from the guest's clock to the other one, from the least to the most that there may be.
type Distances = (i64, i64);

impl Pause {
    /// By which distances `jump` is this pause: it begins between `asked` and `rests`, and ends between `resumed` and `runs`.
    fn is(self, jump: Jump) -> Option<Distances> {
        let end = jump.at + jump.length;
        let least = (self.asked - SLACK - jump.at).max(self.resumed - end);
        let most = (self.rests - jump.at).min(self.runs + SLACK - end);
        (least <= most).then_some((least, most))
    }
}

/// Whether each pause has a jump of its own; or the pause that has none. A busy host makes others besides.
pub fn each_is_one(pauses: &[Pause], jumps: &[Jump]) -> Result<(), Pause> {
    let Some(first) = pauses.first() else { return Ok(()) };
    let mut best = (0, *first);
    for begin in 0..jumps.len() {
        match all_from(pauses, jumps.get(begin..).unwrap_or_default()) {
            Ok(()) => return Ok(()),
            Err(found) => best = if found > best.0 { (found, *pauses.get(found).unwrap_or(first)) } else { best },
        }
    }
    Err(best.1)
}

/// Whether each pause has one, the first pause the first of them; or how many have.
fn all_from(pauses: &[Pause], jumps: &[Jump]) -> Result<(), usize> {
    let mut left = jumps.iter();
    let mut distances = (i64::MIN, i64::MAX);
    for (index, pause) in pauses.iter().enumerate() {
        let meets = |jump: &Jump| {
            let (least, most) = pause.is(*jump)?;
            let met = (least.max(distances.0), most.min(distances.1));
            (met.0 <= met.1).then_some(met)
        };
        let found = if index == 0 { left.next().and_then(meets) } else { left.find_map(meets) };
        distances = found.ok_or(index)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;

    /// Answered within 5 ms, 100 ms long.
    fn pause(at: i64) -> Pause {
        let at = at * MS;
        Pause { asked: at, rests: at + 5 * MS, resumed: at + 105 * MS, runs: at + 110 * MS }
    }

    fn jump(at: i64, length: i64) -> Jump {
        Jump { at: at * MS, length: length * MS }
    }

    #[test]
    fn each_pause_is_a_jump_of_its_own() {
        let pauses = [pause(1000), pause(1500), pause(1700)];
        // The guest's clock is 900 ms behind.
        let jumps = [jump(102, 105), jump(603, 103), jump(801, 108)];
        assert_eq!(each_is_one(&pauses, &jumps), Ok(()));
        // One that is none, before, between and behind.
        for other in [jump(10, 90), jump(300, 100), jump(950, 70)] {
            let mut more = jumps.to_vec();
            more.push(other);
            more.sort_by_key(|jump| jump.at);
            assert_eq!(each_is_one(&pauses, &more), Ok(()), "{other:?}");
        }
    }

    #[test]
    fn what_is_no_pause_is_not_taken_for_one() {
        let pauses = [pause(1000), pause(1500), pause(1700)];
        for (jumps, without) in [
            // The sum is right.
            ([jump(102, 105), jump(603, 3), jump(801, 208)], pause(1500)),
            // The lengths are right, and the times are not.
            ([jump(102, 105), jump(703, 103), jump(1101, 108)], pause(1500)),
            // Too short: the guest ran for some of it.
            ([jump(102, 105), jump(603, 103), jump(801, 90)], pause(1700)),
            // Too long by more than a busy host explains.
            ([jump(102, 105), jump(603, 103), jump(801, 230)], pause(1700)),
        ] {
            assert_eq!(each_is_one(&pauses, &jumps), Err(without), "{jumps:?}");
        }
        assert_eq!(each_is_one(&pauses, &[]), Err(pause(1000)));
        assert_eq!(each_is_one(&[], &[jump(1, 60)]), Ok(()));
    }
}
