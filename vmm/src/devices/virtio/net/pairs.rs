// SPDX-License-Identifier: Apache-2.0
//! How many of its pairs of queues a driver uses. It says so on the control queue, whose thread may be another one than those of the
//! pairs; and what a driver has said is gone with it, whoever hears first that there is another one.

use std::fmt::Debug;
use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

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
    others: Mutex<Vec<Option<Box<dyn Switch>>>>,
}

impl Pairs {
    /// A first one, and `others`, which are used now.
    pub(super) fn new(others: Vec<Option<Box<dyn Switch>>>) -> Self {
        let most = u16::try_from(others.len() + 1).unwrap_or(u16::MAX);
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

    /// `driver` uses so many. If the host does not let it, all is as before.
    pub(super) fn use_so_many(&self, driver: u32, pairs: u16) -> io::Result<()> {
        let mut others = lock(&self.others);
        let before = self.used(driver);
        // First: a frame that comes as soon as it can is looked at, and none is asked for that cannot come.
        self.asked.store(packed(driver, pairs), Ordering::SeqCst);
        switch(&mut others, pairs).inspect_err(|_| {
            self.asked.store(packed(driver, before), Ordering::SeqCst);
            let _ = switch(&mut others, before);
        })
    }

    /// `driver` is there now.
    pub(super) fn follow(&self, driver: u32) {
        let mut others = lock(&self.others);
        if let Err(error) = switch(&mut others, self.used(driver)) {
            tracing::warn!(%error, "the host keeps a pair of queues that is not used");
        }
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
        pairs.follow(1);
        assert_eq!((pairs.used(1), used(&ends)), (1, vec![false; 3]));
        pairs.use_so_many(1, 3).unwrap();
        assert_eq!((pairs.used(1), used(&ends)), (3, vec![true, true, false]));
        // One lane is late: what the driver has said by then stays.
        pairs.follow(1);
        assert_eq!(used(&ends), [true, true, false]);
        pairs.follow(2);
        assert_eq!((pairs.used(2), used(&ends)), (1, vec![false; 3]));
        pairs.use_so_many(2, 4).unwrap();
        assert_eq!((pairs.used(2), pairs.used(1), used(&ends)), (4, 1, vec![true; 3]));
    }

    #[test]
    fn what_the_host_refuses_changes_nothing() {
        let (pairs, ends) = pairs(3);
        pairs.use_so_many(1, 2).unwrap();
        lock(&ends[2]).1 = false;
        assert_eq!(pairs.use_so_many(1, 4).unwrap_err().kind(), io::ErrorKind::ResourceBusy);
        assert_eq!((pairs.used(1), used(&ends)), (2, vec![true, false, false]));
    }
}
