// SPDX-License-Identifier: Apache-2.0
//! The rules, without registers and without a host.

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
    grown_of(sections, 64)
}

/// It owns `sections` of `most`.
fn grown_of(sections: u64, most: u64) -> State {
    let mut state = State::new(most * S, 0);
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
    assert_eq!((state.end(true), state.take_ended()), (Ok(()), None), "it is over");
    assert_eq!(state.end(false), Err(Nonsense), "it has said that it could");
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

/// Gives up all, and takes it back, each piece in `took`: their sizes.
fn pieces(state: &mut State, took: Duration) -> Vec<u64> {
    state.own(0).unwrap();
    std::iter::from_fn(|| {
        let before = state.there;
        let job = state.job()?;
        state.done(job);
        state.pace(took);
        Some(before - state.there)
    })
    .collect()
}

#[test]
fn much_is_taken_back_in_pieces() {
    const { assert!(LARGEST_PIECE > 4 * PIECE) };
    let all = 3 * LARGEST_PIECE;
    let slow = pieces(&mut grown_of(all / S, all / S), 2 * FAST);
    assert_eq!(slow, vec![PIECE; usize::try_from(all / PIECE).unwrap()]);

    let fast = pieces(&mut grown_of(all / S, all / S), FAST);
    let (rest, whole) = fast.split_last().unwrap();
    let expected = (0..).map(|n| (PIECE << n).min(LARGEST_PIECE));
    assert!(whole.iter().copied().eq(expected.take(whole.len())), "{fast:?}");
    assert_eq!((whole.iter().sum::<u64>() + rest, whole.last()), (all, Some(&LARGEST_PIECE)));

    let mut state = grown_of(all / S, all / S);
    state.pace(FAST);
    state.pace(2 * FAST);
    assert_eq!(pieces(&mut state, 2 * FAST)[0], PIECE, "one that took long is followed by a small one");
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

    const { assert!(PIECE == 8 * S) };
    let mut state = grown(8);
    state.ask(16 * S);
    work(&mut state);
    assert_eq!(state.own(0), Ok(()));
    assert_eq!((state.see(), state.end(true)), (0, Ok(())), "it does not know what the other one has said");
    assert_eq!(work(&mut state), [Job::Shrink(8 * S), Job::Shrink(0)]);
    assert_eq!(state.take_ended(), Some(Ended { wanted: 16 * S, owned: 0 }));

    // A kernel that another one has started, which had got half of the way.
    let mut state = grown(8);
    state.ask(2 * S);
    work(&mut state);
    assert_eq!((state.see(), state.own(4 * S), state.own(0)), (2 * S, Ok(()), Ok(())));
    assert_eq!((state.see(), state.end(true)), (0, Ok(())));
    work(&mut state);
    assert_eq!(state.take_ended(), Some(Ended { wanted: 2 * S, owned: 0 }));
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

/// As a kernel does that another one has started, while the host has memory ready.
#[test]
fn memory_that_is_given_up_at_the_last_moment_goes_before_it_is_promised_again() {
    let mut state = grown(8);
    state.ask(16 * S);
    let job = state.job().unwrap();
    assert_eq!(job, Job::Grow(16 * S));
    state.own(0).unwrap();
    assert!(!state.done(job));
    let jobs = work(&mut state);
    assert!(jobs.ends_with(&[Job::Shrink(0), Job::Grow(16 * S)]), "{jobs:?}");
    assert_eq!((state.wanted, state.promised), (16 * S, 16 * S));
}

/// As a template does that was saved while its size changed.
#[test]
fn another_size_waits_for_what_the_guest_has_seen() {
    let mut state = grown(1);
    state.ask(4 * S);
    work(&mut state);
    state.see();
    state.own(2 * S).unwrap();
    let mut restored = State::new(64 * S, 4 * S);
    restored.restore(&state.save()).unwrap();
    restored.ask_next(8 * S);
    assert_eq!((restored.job(), restored.ask(2 * S)), (None, Asked::Busy { wanted: 8 * S }));
    restored.own(4 * S).unwrap();
    restored.end(true).unwrap();
    assert_eq!(work(&mut restored), [Job::Grow(8 * S)]);
    assert_eq!(restored.wanted, 8 * S);
}

#[test]
fn what_is_asked_for_next_is_saved() {
    let mut state = grown(4);
    state.ask(8 * S);
    work(&mut state);
    state.see();
    state.ask_next(6 * S);
    let saved = state.save();
    let mut restored = State::new(state.max, state.there);
    assert_eq!((restored.restore(&saved), restored.job()), (Ok(()), None));
    restored.own(8 * S).unwrap();
    restored.end(true).unwrap();
    assert_eq!(restored.job(), Some(Job::Announce(6 * S)));
    let never = HeldState { asked: Some(state.max + S), ..saved };
    assert!(State::new(state.max, state.there).restore(&never).is_err());
}

#[test]
fn what_the_host_cannot_do_is_over() {
    let mut state = grown(2);
    state.ask(8 * S);
    assert_eq!((state.job(), state.failed(Job::Grow(8 * S))), (Some(Job::Grow(8 * S)), Some(8 * S)));
    assert_eq!((state.job(), state.request, state.wanted), (None, 1, 2 * S));
    assert_eq!(state.ask(2 * S), Asked::Done);
}

#[test]
fn what_the_host_cannot_take_back_is_tried_again_with_the_next_request() {
    let mut state = grown(8);
    state.own(6 * S).unwrap();
    let job = state.job().unwrap();
    assert_eq!((job, state.failed(job), state.job()), (Job::Shrink(6 * S), None, None));
    assert_eq!(state.save().there, 8 * S, "as much as there is");
    state.own(4 * S).unwrap();
    let job = state.job().unwrap();
    assert_eq!((job, state.failed(job), state.job()), (Job::Shrink(4 * S), None, None));
    state.ask(7 * S);
    assert_eq!(work(&mut state), [Job::Grow(7 * S), Job::Shrink(7 * S)]);
    assert_eq!((state.wanted, state.save().there), (7 * S, 7 * S));
}

/// What anybody can do to it.
#[derive(Debug, Clone)]
enum Step {
    Ask(u64),
    Work,
    Fail,
    See,
    Own(u64),
    End(bool),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let bytes = prop_oneof![8 => (0..12u64).prop_map(|sections| sections * S), 1 => any::<u64>()];
    let step = prop_oneof![
        2 => (0..=10u64).prop_map(|sections| Step::Ask(sections * S)),
        3 => Just(Step::Work),
        1 => Just(Step::Fail),
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
                Step::Fail => drop(state.job().and_then(|job| state.failed(job))),
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
