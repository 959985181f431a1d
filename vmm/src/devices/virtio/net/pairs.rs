// SPDX-License-Identifier: Apache-2.0
//! How many of its pairs of queues a driver uses. It says so on the control queue, whose thread may be another one than those of the
//! pairs; and what a driver has said is gone with it, whoever hears first that there is another one.

use std::fmt::Debug;
use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::complaints::Complaints;
use crate::devices::bus::lock;

/// The host's end of a pair of queues, which a driver may use or not.
pub trait Switch: Debug + Send {
    /// From now on it is used, or not: then no frame comes for it.
    fn switch(&mut self, used: bool) -> io::Result<()>;
}

/// Pairs of queues, the first of which is always used.
#[derive(Debug)]
pub(super) struct Pairs {
    most: u16,
    /// What was asked for last: who did, and how many.
    asked: AtomicU64,
    /// The ends of all but the first; of those there is none that the host knows nothing of.
    others: Mutex<Others>,
}

#[derive(Debug)]
struct Others {
    ends: Vec<Option<Box<dyn Switch>>>,
    /// What the host has refused, until it does something else: a driver that begins again and again costs it nothing.
    refused: Option<u16>,
    complaints: Complaints,
}

impl Pairs {
    /// A first one, and `others`, which are used now.
    pub(super) fn new(others: Vec<Option<Box<dyn Switch>>>) -> Self {
        let most = u16::try_from(others.len() + 1).unwrap_or(u16::MAX);
        let others = Others { ends: others, refused: None, complaints: Complaints::default() };
        Self { most, asked: AtomicU64::new(packed(0, 1)), others: Mutex::new(others) }
    }

    /// How many there are.
    pub(super) const fn most(&self) -> u16 {
        self.most
    }

    /// How many `driver` uses: one, until it has said another number.
    pub(super) fn used(&self, driver: u32) -> u16 {
        let asked = self.asked.load(Ordering::SeqCst);
        let pairs = u16::try_from(asked & 0xffff).unwrap_or(1);
        if asked == packed(driver, pairs) { pairs } else { 1 }
    }

    /// `driver` uses so many. If the host does not let it, which is said now and then, all is as before. Whether it does.
    pub(super) fn use_so_many(&self, driver: u32, pairs: u16) -> bool {
        let mut others = lock(&self.others);
        let before = self.used(driver);
        // First: a frame that comes as soon as it can is looked at, and none is asked for that cannot come.
        self.asked.store(packed(driver, pairs), Ordering::SeqCst);
        let done = others.switch(pairs);
        if !done {
            self.asked.store(packed(driver, before), Ordering::SeqCst);
            others.switch(before);
        }
        done
    }

    /// `driver` has said so before it was saved. What cannot be is one pair, and the driver's frames of the others are lost.
    pub(super) fn restore(&self, driver: u32, pairs: u16) {
        if (1..=self.most).contains(&pairs) && pairs != self.used(driver) {
            self.use_so_many(driver, pairs);
        }
    }

    /// A driver is there now; `driver` says which, if asked under the lock: there may be another one by then.
    pub(super) fn follow(&self, driver: impl FnOnce() -> u32) {
        let mut others = lock(&self.others);
        others.switch(self.used(driver()));
    }
}

impl Others {
    /// The first `pairs` are used, and no others, as far as the host lets them. Whether it has done that.
    fn switch(&mut self, pairs: u16) -> bool {
        if self.refused == Some(pairs) {
            return false;
        }
        let result = switch(&mut self.ends, pairs);
        match &result {
            Ok(()) => self.refused = None,
            Err(error) => {
                self.refused = Some(pairs);
                if let Some(count) = self.complaints.count() {
                    tracing::warn!(%error, pairs, count, "the host refuses a number of pairs of queues");
                }
            }
        }
        result.is_ok()
    }
}

const fn packed(driver: u32, pairs: u16) -> u64 {
    (driver as u64) << 16 | pairs as u64
}

/// The first `pairs` are used, and no others, as far as the host lets them; or why it does not.
fn switch(others: &mut [Option<Box<dyn Switch>>], pairs: u16) -> io::Result<()> {
    let mut all = Ok(());
    for (pair, other) in (1..).zip(others).filter_map(|(pair, other)| Some((pair, other.as_mut()?))) {
        let one = other.switch(pair < pairs);
        all = all.and(one);
    }
    all
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// Whether it is used, and whether it lets itself be.
    type End = Arc<Mutex<(bool, bool)>>;

    #[derive(Debug)]
    struct Counted(End);

    impl Switch for Counted {
        fn switch(&mut self, used: bool) -> io::Result<()> {
            let mut end = lock(&self.0);
            if used && !end.1 {
                return Err(io::ErrorKind::ResourceBusy.into());
            }
            end.0 = used;
            Ok(())
        }
    }

    fn pairs(others: usize) -> (Pairs, Vec<End>) {
        let ends: Vec<End> = (0..others).map(|_| Arc::new(Mutex::new((true, true)))).collect();
        let boxed = |end: &End| Some(Box::new(Counted(Arc::clone(end))) as Box<dyn Switch>);
        (Pairs::new(ends.iter().map(boxed).collect()), ends)
    }

    fn used(ends: &[End]) -> Vec<bool> {
        ends.iter().map(|end| lock(end).0).collect()
    }

    #[test]
    fn each_driver_begins_with_one() {
        let (pairs, ends) = pairs(3);
        pairs.follow(|| 1);
        assert_eq!((pairs.used(1), used(&ends)), (1, vec![false; 3]));
        assert!(pairs.use_so_many(1, 3));
        assert_eq!((pairs.used(1), used(&ends)), (3, vec![true, true, false]));
        // One lane is late: what the driver has said by then stays.
        pairs.follow(|| 1);
        assert_eq!(used(&ends), [true, true, false]);
        pairs.follow(|| 2);
        assert_eq!((pairs.used(2), used(&ends)), (1, vec![false; 3]));
        assert!(pairs.use_so_many(2, 4));
        assert_eq!((pairs.used(2), pairs.used(1), used(&ends)), (4, 1, vec![true; 3]));
    }

    #[test]
    fn what_the_host_refuses_changes_nothing() {
        let (pairs, ends) = pairs(3);
        assert!(pairs.use_so_many(1, 2));
        lock(&ends[2]).1 = false;
        assert!(!pairs.use_so_many(1, 4));
        assert_eq!((pairs.used(1), used(&ends)), (2, vec![true, false, false]));
        // Nor is it asked again, until something else was possible.
        lock(&ends[2]).1 = true;
        assert!(pairs.use_so_many(1, 3) && pairs.use_so_many(1, 4));
    }
}
