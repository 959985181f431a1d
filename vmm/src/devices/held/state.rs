// SPDX-License-Identifier: Apache-2.0
//! How much held memory the guest owns, and what it is asked to own: the rules, without registers and without a host.
//!
//! Held memory is one stack of bytes, of which the guest owns the first. A request asks it to own more or fewer; the host's memory is
//! there before more are asked for, and goes after fewer are owned. A request that the guest has seen is never changed under it, so
//! what it says then is about that one; the guest itself ends it, also by giving up more than it was asked for.

use std::time::Duration;

use flatboot_handoff::SECTION_SIZE;

use crate::state::{HeldState, Mismatch};

#[cfg(test)]
mod tests;

/// How many bytes are taken back from the guest at a time, so that whoever does it hears what else there is: at first,
const PIECE: u64 = 1 << 30;
/// and when that goes fast, since a piece costs something with nothing in it, too.
const LARGEST_PIECE: u64 = 64 << 30;
/// A piece that takes longer is followed by a small one.
const FAST: Duration = Duration::from_millis(2);

/// How much there is, in bytes from the start of held memory, and what is asked for. When no request is open, `wanted`, `owned` and
/// `promised` are the same.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a thing that is so or not")]
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
    /// The host could not take back what is there and not promised: it tries that again when the guest gives up more, or is asked.
    stays: bool,
    /// How much is taken back next, at most.
    piece: u64,
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
            stays: false,
            piece: PIECE,
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

    /// The same for somebody whom nobody else's wish keeps from his: the guest does first what it has seen.
    pub(super) const fn ask_next(&mut self, wanted: u64) {
        if let Asked::Busy { .. } = self.ask(wanted) {
            self.asked = Some(wanted);
        }
    }

    /// What the host has to do next. Until it is [done](Self::done), nothing else is.
    pub(super) fn job(&self) -> Option<Job> {
        if self.has_too_much() {
            return Some(Job::Shrink(self.promised.max(self.there.saturating_sub(self.piece))));
        }
        let wanted = self.asked?;
        // The guest may have seen another request since this was asked.
        if self.is_seen() {
            return None;
        }
        // Of what has stayed, who knows how much can be used.
        let grows = wanted > self.there || (self.stays && wanted > self.promised);
        Some(if grows { Job::Grow(wanted) } else { Job::Announce(wanted) })
    }

    /// Whether the host has something to take back, and can.
    const fn has_too_much(&self) -> bool {
        self.there > self.promised && !self.stays
    }

    /// The host has done `job`. Whether the guest is to be interrupted.
    pub(super) fn done(&mut self, job: Job) -> bool {
        // Meanwhile the guest may have seen a request that this one was to replace, which then comes first; or it has given up memory,
        // which has to go before it can be promised again, as that is zero.
        let can_announce = !self.is_seen() && !self.has_too_much();
        match job {
            Job::Shrink(there) => {
                self.there = there;
                false
            }
            Job::Grow(wanted) => {
                self.there = self.there.max(wanted);
                can_announce && self.announce(wanted)
            }
            Job::Announce(wanted) => can_announce && self.announce(wanted),
        }
    }

    /// The host took so long to take back a piece.
    pub(super) fn pace(&mut self, took: Duration) {
        self.piece = if took <= FAST { (self.piece * 2).min(LARGEST_PIECE) } else { PIECE };
    }

    /// The host cannot do `job`. If it was to have more memory, nobody asks for that any more: what was wanted is returned.
    pub(super) const fn failed(&mut self, job: Job) -> Option<u64> {
        if let Job::Shrink(_) = job {
            self.stays = true;
            return None;
        }
        self.asked.take()
    }

    fn announce(&mut self, wanted: u64) -> bool {
        (self.asked, self.stays) = (None, false);
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

    /// The guest says that it owns `bytes`. If it gives up more than it was asked for, that is over: it can never own as much.
    pub(super) fn own(&mut self, bytes: u64) -> Result<(), Nonsense> {
        if !bytes.is_multiple_of(SECTION_SIZE) || bytes > self.promised {
            return Err(Nonsense);
        }
        let less = bytes < self.owned;
        self.owned = bytes;
        if less {
            // What it gives up is not promised to it any more; and it is not to find what it has not asked for.
            (self.promised, self.stays) = (bytes, false);
            if self.wanted > bytes {
                self.close();
            }
        }
        Ok(())
    }

    /// The guest says that it is done with the request that it has seen: it `could`, or could not. A kernel that does not know what
    /// one before it has said may say of the last one once more that nothing is left to do.
    pub(super) const fn end(&mut self, could: bool) -> Result<(), Nonsense> {
        if !self.open && could {
            return Ok(());
        }
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
        let over = !self.has_too_much();
        self.ended.take_if(|_| over)
    }

    /// What there is to save, when nothing works.
    pub(super) const fn save(&self) -> HeldState {
        let Self { asked, wanted, owned, promised, there, request, open, seen, event, .. } = *self;
        HeldState { asked, wanted, owned, promised, there, request, open, seen, event, owned_low: None, wanted_high: 0 }
    }

    /// Makes it what was saved. As much memory must be there as was then.
    pub(super) fn restore(&mut self, saved: &HeldState) -> Result<(), Mismatch> {
        let HeldState { asked, wanted, owned, promised, there, request, open, seen, event, .. } = *saved;
        let next = asked.unwrap_or(0);
        for (what, is) in
            [("asked", next), ("wanted", wanted), ("owned", owned), ("promised", promised), ("there", there)]
        {
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
        let empty = Self::new(self.max, there);
        *self = Self { wanted, owned, promised, request, open, seen, event, asked, ..empty };
        Ok(())
    }
}
