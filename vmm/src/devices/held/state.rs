// SPDX-License-Identifier: Apache-2.0
//! How much held memory the guest owns, and what it is asked to own: the rules, without registers and without a host.
//!
//! Held memory is one stack of bytes, of which the guest owns the first. A request asks it to own more or fewer; the host's memory is
//! there before more are asked for, and goes after fewer are owned. A request that the guest has seen is never changed under it, so
//! what it says then is about that one.

use flatboot_handoff::SECTION_SIZE;

use crate::state::{HeldState, Mismatch};

/// Most bytes that are taken back from the guest at a time, so that whoever does it hears what else there is.
const PIECE: u64 = 1 << 30;

/// How much there is, in bytes from the start of held memory, and what is asked for. When no request is open, `wanted`, `owned` and
/// `promised` are the same.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) max: u64,
    /// What the guest is to own,
    pub(super) wanted: u64,
    /// what it says that it owns,
    pub(super) owned: u64,
    /// and what it may come to own.
    promised: u64,
    /// What the host has memory for.
    there: u64,
    /// The number of the last request.
    pub(super) request: u32,
    /// Whether the guest has not ended it yet,
    pub(super) open: bool,
    /// and whether it knows what is wanted.
    seen: bool,
    /// Something has changed that the guest has not acknowledged.
    pub(super) event: bool,
    /// What it is to be asked for next.
    asked: Option<u64>,
    /// How the last request has ended, until the host has its memory again.
    ended: Option<Ended>,
}

/// What the host has to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Job {
    /// Have memory for so many bytes, which are more than before.
    Grow(u64),
    /// For so many, which are fewer.
    Shrink(u64),
    /// Nothing but to ask the guest for so many.
    Announce(u64),
}

/// A write that makes no sense.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Nonsense;

/// What becomes of somebody's wish.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// The guest owns as much.
    Done,
    /// The guest is asked, or will be.
    Waits,
    /// The guest is at work on another one.
    Busy {
        /// For how many bytes.
        wanted: u64,
    },
}

/// How a request has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// What was wanted, in bytes of held memory,
    pub wanted: u64,
    /// and what the guest owns.
    pub owned: u64,
}

impl State {
    /// Of `max` bytes the guest owns none, and the host has memory for `there`.
    pub(super) const fn new(max: u64, there: u64) -> Self {
        Self {
            max,
            wanted: 0,
            owned: 0,
            promised: 0,
            there,
            request: 0,
            open: false,
            seen: false,
            event: false,
            asked: None,
            ended: None,
        }
    }

    /// Whether the guest has come to know the request that is open.
    pub(super) const fn is_seen(&self) -> bool {
        self.open && self.seen
    }

    /// Somebody wants the guest to own `wanted` bytes, at most all.
    pub(super) const fn ask(&mut self, wanted: u64) -> Asked {
        match self.asked {
            Some(other) if other == wanted => return Asked::Waits,
            Some(other) => return Asked::Busy { wanted: other },
            None => {}
        }
        if self.open && self.wanted == wanted {
            return Asked::Waits;
        }
        if self.is_seen() {
            return Asked::Busy { wanted: self.wanted };
        }
        if !self.open && self.owned == wanted {
            match self.ended {
                None => return Asked::Done,
                Some(ended) if ended.wanted == wanted => return Asked::Waits,
                // What is told next is about another wish.
                Some(_) => {}
            }
        }
        self.asked = Some(wanted);
        Asked::Waits
    }

    /// What the host has to do next. Until it is [done](Self::done), nothing else is.
    pub(super) fn job(&self) -> Option<Job> {
        if self.there > self.promised {
            return Some(Job::Shrink(self.promised.max(self.there.saturating_sub(PIECE))));
        }
        let wanted = self.asked?;
        // The guest may have seen another request since this was asked.
        if self.is_seen() {
            return None;
        }
        Some(if wanted > self.there { Job::Grow(wanted) } else { Job::Announce(wanted) })
    }

    /// The host has done `job`. Whether the guest is to be interrupted.
    pub(super) fn done(&mut self, job: Job) -> bool {
        // Meanwhile it may have seen a request that this one was to replace, which then comes first.
        let can_announce = !self.is_seen();
        match job {
            Job::Shrink(there) => {
                self.there = there;
                false
            }
            Job::Grow(wanted) => {
                self.there = wanted;
                can_announce && self.announce(wanted)
            }
            Job::Announce(wanted) => can_announce && self.announce(wanted),
        }
    }

    /// The host cannot have memory for more: nobody asks for it any more. What was wanted is returned.
    pub(super) const fn failed(&mut self) -> Option<u64> {
        self.asked.take()
    }

    fn announce(&mut self, wanted: u64) -> bool {
        self.asked = None;
        // Nobody has seen what was promised before.
        self.promised = self.owned.max(wanted);
        self.wanted = wanted;
        self.request = self.request.wrapping_add(1);
        (self.open, self.seen, self.event) = (true, false, true);
        true
    }

    /// The guest reads what is wanted.
    pub(super) const fn see(&mut self) -> u64 {
        self.seen = self.open;
        self.wanted
    }

    /// The guest says that it owns `bytes`. If it takes back what it was asked for and has not seen, that is over.
    pub(super) fn own(&mut self, bytes: u64) -> Result<(), Nonsense> {
        if !bytes.is_multiple_of(SECTION_SIZE) || bytes > self.promised {
            return Err(Nonsense);
        }
        let less = bytes < self.owned;
        self.owned = bytes;
        if less {
            // What it gives up is not promised to it any more; and it is not to find what it has not asked for.
            self.promised = bytes;
            if !self.is_seen() && self.wanted > bytes {
                self.close();
            }
        }
        Ok(())
    }

    /// The guest says that it is done with the request that it has seen: it `could`, or could not.
    pub(super) const fn end(&mut self, could: bool) -> Result<(), Nonsense> {
        if !self.is_seen() || (could && self.owned != self.wanted) {
            return Err(Nonsense);
        }
        self.close();
        Ok(())
    }

    const fn close(&mut self) {
        if self.open {
            self.ended = Some(Ended { wanted: self.wanted, owned: self.owned });
        }
        self.wanted = self.owned;
        self.promised = self.owned;
        self.open = false;
    }

    /// How a request has ended, once, when the host has all memory again that the guest does not own any more.
    pub(super) fn take_ended(&mut self) -> Option<Ended> {
        self.ended.take_if(|_| self.there <= self.promised)
    }

    /// What there is to save, when nothing works.
    pub(super) const fn save(&self) -> HeldState {
        let Self { wanted, owned, promised, there, request, open, seen, event, .. } = *self;
        HeldState { wanted, owned, promised, there, request, open, seen, event, owned_low: None, wanted_high: 0 }
    }

    /// Makes it what was saved. As much memory must be there as was then.
    pub(super) fn restore(&mut self, saved: &HeldState) -> Result<(), Mismatch> {
        let HeldState { wanted, owned, promised, there, request, open, seen, event, .. } = *saved;
        for (what, is) in [("wanted", wanted), ("owned", owned), ("promised", promised), ("there", there)] {
            if is > self.max || !is.is_multiple_of(SECTION_SIZE) {
                return Err(Mismatch::of(what, is, format_args!("a multiple of {SECTION_SIZE}, at most {}", self.max)));
            }
        }
        if there != self.there {
            return Err(Mismatch::of("there", there, self.there));
        }
        if owned > promised || promised > there {
            return Err(Mismatch::of("promised", promised, format_args!("{owned} to {there}")));
        }
        if !open && (wanted != owned || promised != owned) {
            return Err(Mismatch::of("wanted", wanted, owned));
        }
        let max = self.max;
        *self = Self { max, wanted, owned, promised, there, request, open, seen, event, asked: None, ended: None };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const S: u64 = SECTION_SIZE;

    /// Does all that the host has to do.
    fn work(state: &mut State) -> Vec<Job> {
        std::iter::from_fn(|| {
            let job = state.job()?;
            state.done(job);
            Some(job)
        })
        .collect()
    }

    fn grown(sections: u64) -> State {
        let mut state = State::new(64 * S, 0);
        assert_eq!(state.ask(sections * S), Asked::Waits);
        work(&mut state);
        state.see();
        state.own(sections * S).unwrap();
        state.end(true).unwrap();
        state.take_ended();
        state
    }

    #[test]
    fn memory_is_there_before_the_guest_is_asked_and_goes_after_it_has_given_it_up() {
        let mut state = State::new(64 * S, 0);
        assert_eq!(state.own(S), Err(Nonsense), "nobody has asked for it");
        assert_eq!(state.ask(4 * S), Asked::Waits);
        assert_eq!((state.wanted, state.request), (0, 0), "the memory is not there yet");
        assert_eq!(work(&mut state), [Job::Grow(4 * S)]);
        assert_eq!((state.wanted, state.request, state.event), (4 * S, 1, true));
        assert_eq!(state.end(true), Err(Nonsense), "it does not know what is wanted");
        assert_eq!(state.see(), 4 * S);
        assert_eq!(state.end(true), Err(Nonsense), "it does not own it");
        assert_eq!(state.own(2 * S), Ok(()));
        assert_eq!(state.own(4 * S), Ok(()));
        assert_eq!((state.end(true), state.take_ended()), (Ok(()), Some(Ended { wanted: 4 * S, owned: 4 * S })));
        assert_eq!((state.end(true), state.take_ended()), (Err(Nonsense), None), "it is over");
        assert_eq!(state.ask(4 * S), Asked::Done);

        assert_eq!(state.ask(S), Asked::Waits);
        assert_eq!(work(&mut state), [Job::Announce(S)]);
        assert_eq!(state.see(), S);
        assert_eq!(state.own(3 * S), Ok(()));
        assert_eq!(work(&mut state), [Job::Shrink(3 * S)]);
        assert_eq!(state.own(4 * S), Err(Nonsense), "it has given that up");
        assert_eq!(state.own(S), Ok(()));
        assert_eq!((state.end(true), state.take_ended()), (Ok(()), None), "the host has its memory not yet");
        assert_eq!(work(&mut state), [Job::Shrink(S)]);
        assert_eq!(state.take_ended(), Some(Ended { wanted: S, owned: S }));
    }

    #[test]
    fn what_was_not_taken_goes_again() {
        let mut state = grown(2);
        state.ask(8 * S);
        work(&mut state);
        state.see();
        state.own(3 * S).unwrap();
        assert_eq!((state.end(false), work(&mut state)), (Ok(()), vec![Job::Shrink(3 * S)]));
        assert_eq!(state.take_ended(), Some(Ended { wanted: 8 * S, owned: 3 * S }));
        assert_eq!((state.wanted, state.own(4 * S)), (3 * S, Err(Nonsense)));
        assert_eq!(state.ask(8 * S), Asked::Waits, "it can be asked for again");
        assert_eq!(work(&mut state), [Job::Grow(8 * S)]);
        assert_eq!((state.wanted, state.request), (8 * S, 3));
    }

    #[test]
    fn much_is_taken_back_in_pieces() {
        let mut state = grown(64);
        state.ask(S);
        work(&mut state);
        state.see();
        state.own(S).unwrap();
        let pieces: Vec<_> = (0..8).map(|piece| Job::Shrink(((7 - piece) * 8 * S).max(S))).collect();
        assert_eq!(work(&mut state), pieces);
    }

    #[test]
    fn whoever_asks_for_the_same_waits_until_the_host_has_its_memory() {
        let mut state = grown(64);
        state.ask(S);
        work(&mut state);
        state.see();
        state.own(2 * S).unwrap();
        state.end(false).unwrap();
        assert_eq!(state.ask(S), Asked::Waits, "it has 2, and is asked again");
        let mut jobs = work(&mut state);
        assert_eq!((jobs.pop(), state.take_ended()), (Some(Job::Announce(S)), Some(Ended { wanted: S, owned: 2 * S })));
        state.see();
        state.own(S).unwrap();
        state.end(true).unwrap();
        assert_eq!((state.ask(S), state.take_ended()), (Asked::Waits, None), "it is told when that is over");
        work(&mut state);
        assert_eq!((state.take_ended(), state.ask(S)), (Some(Ended { wanted: S, owned: S }), Asked::Done));
    }

    #[test]
    fn a_request_is_changed_only_before_it_is_seen() {
        let mut state = grown(1);
        state.ask(8 * S);
        work(&mut state);
        assert_eq!(state.ask(8 * S), Asked::Waits);
        assert_eq!(state.ask(4 * S), Asked::Waits, "the guest does not know of the other one");
        assert_eq!(work(&mut state), [Job::Announce(4 * S), Job::Shrink(4 * S)]);
        assert_eq!((state.see(), state.request), (4 * S, 3));
        assert_eq!(state.ask(8 * S), Asked::Busy { wanted: 4 * S });
        assert_eq!(state.ask(4 * S), Asked::Waits);
        state.own(4 * S).unwrap();
        state.end(true).unwrap();
        assert_eq!(state.ask(8 * S), Asked::Waits);
        assert_eq!(state.ask(9 * S), Asked::Busy { wanted: 8 * S });
    }

    /// It sees the one while the other is asked for: that waits until the first is over.
    #[test]
    fn a_request_that_is_seen_meanwhile_comes_first() {
        let mut state = grown(1);
        state.ask(4 * S);
        work(&mut state);
        state.ask(8 * S);
        state.see();
        assert_eq!(state.job(), None);
        state.own(4 * S).unwrap();
        state.end(true).unwrap();
        assert_eq!(work(&mut state), [Job::Grow(8 * S)]);
    }

    /// As a kernel does that has come after another one.
    #[test]
    fn what_the_guest_gives_up_by_itself_is_not_wanted_any_more() {
        let mut state = grown(8);
        assert_eq!(state.own(0), Ok(()));
        assert_eq!((state.see(), work(&mut state)), (0, vec![Job::Shrink(0)]));

        let mut state = grown(8);
        state.ask(16 * S);
        work(&mut state);
        assert_eq!(state.own(0), Ok(()));
        assert_eq!((state.see(), state.end(true)), (0, Err(Nonsense)));
        assert_eq!(work(&mut state), [Job::Shrink(8 * S), Job::Shrink(0)]);
        assert_eq!(state.take_ended(), Some(Ended { wanted: 16 * S, owned: 0 }));
    }

    #[test]
    fn a_request_that_is_seen_at_the_last_moment_comes_first_too() {
        let mut state = grown(1);
        state.ask(4 * S);
        work(&mut state);
        state.ask(8 * S);
        let job = state.job().unwrap();
        state.see();
        assert!(!state.done(job));
        assert_eq!((state.wanted, work(&mut state)), (4 * S, vec![Job::Shrink(4 * S)]));
        state.own(4 * S).unwrap();
        state.end(true).unwrap();
        assert_eq!(work(&mut state), [Job::Grow(8 * S)]);
    }

    #[test]
    fn what_the_host_cannot_do_is_over() {
        let mut state = grown(2);
        state.ask(8 * S);
        assert_eq!((state.job(), state.failed()), (Some(Job::Grow(8 * S)), Some(8 * S)));
        assert_eq!((state.job(), state.request, state.wanted), (None, 1, 2 * S));
        assert_eq!(state.ask(2 * S), Asked::Done);
    }

    /// What anybody can do to it.
    #[derive(Debug, Clone)]
    enum Step {
        Ask(u64),
        Work,
        See,
        Own(u64),
        End(bool),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let bytes = prop_oneof![8 => (0..12u64).prop_map(|sections| sections * S), 1 => any::<u64>()];
        let step = prop_oneof![
            2 => (0..=10u64).prop_map(|sections| Step::Ask(sections * S)),
            3 => Just(Step::Work),
            2 => Just(Step::See),
            4 => bytes.prop_map(Step::Own),
            2 => any::<bool>().prop_map(Step::End),
        ];
        prop::collection::vec(step, 0..64)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        /// Whatever the guest writes: it owns nothing for which there is no memory, and a state that was saved can be restored.
        #[test]
        fn the_guest_owns_only_what_is_there(steps in steps()) {
            let mut state = State::new(10 * S, 0);
            for step in steps {
                match step {
                    Step::Ask(bytes) => drop(state.ask(bytes)),
                    Step::Work => {
                        if let Some(job) = state.job() {
                            state.done(job);
                        }
                    }
                    Step::See => drop(state.see()),
                    Step::Own(bytes) => drop(state.own(bytes)),
                    Step::End(could) => drop(state.end(could)),
                }
                prop_assert!(state.owned <= state.promised && state.promised <= state.there && state.there <= state.max);
                prop_assert!(state.open || (state.wanted == state.owned && state.promised == state.owned));
                let saved = state.save();
                let mut restored = State::new(10 * S, state.there);
                prop_assert_eq!(restored.restore(&saved), Ok(()));
                prop_assert_eq!(restored.save(), saved);
            }
        }
    }
}
