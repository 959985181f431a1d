// SPDX-License-Identifier: Apache-2.0
//! VMs that are started at the same time, and run together until each has reached what it is watched for, or has failed.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::marks::now_ns;
use super::order::{MarksFrom, Order};

/// The VMs of a fleet.
pub(super) struct Fleet {
    vms: u32,
    /// Those that are still watched.
    missing: AtomicUsize,
    /// Just before the first is started.
    zero_ns: u64,
}

/// One of them. It counts as missing until [`Member::arrive`], or until it is dropped.
pub(super) struct Member<'a> {
    fleet: &'a Fleet,
    is_there: bool,
}

impl Fleet {
    pub(super) fn of(vms: u32) -> Self {
        Self { vms, missing: AtomicUsize::new(vms as usize), zero_ns: now_ns() }
    }

    pub(super) fn member(&self) -> Member<'_> {
        Member { fleet: self, is_there: false }
    }

    /// What `boot` does for each of them, by number, on a thread of its own.
    pub(super) fn each<T: Send>(&self, boot: impl Fn(u32, Member<'_>) -> T + Sync) -> Vec<T> {
        let boot = |number| boot(number, self.member());
        thread::scope(|scope| {
            let threads: Vec<_> = (0..self.vms).map(|number| scope.spawn(move || boot(number))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
        })
    }
}

impl Member<'_> {
    /// What is `ns` on the clock since just before the first was started.
    pub(super) fn since_first(&self, ns: u64) -> u64 {
        ns.saturating_sub(self.fleet.zero_ns)
    }

    /// It is watched no longer.
    pub(super) fn arrive(&mut self) {
        if !std::mem::replace(&mut self.is_there, true) {
            self.fleet.missing.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Whether none of the others is watched any longer either.
    pub(super) fn is_last(&self) -> bool {
        self.fleet.missing.load(Ordering::SeqCst) == 0
    }
}

impl Drop for Member<'_> {
    fn drop(&mut self) {
        self.arrive();
    }
}

/// The order of one VM, for which the files are there already: that of its marks is its own.
pub(super) fn numbered(order: &Order, number: u32) -> Order {
    let mut order = Order { files: Vec::new(), ..order.clone() };
    if let MarksFrom::Timeline(path) | MarksFrom::Port(path) = &mut order.marks {
        let own = format!("-{number}");
        let end = format!("/{}", path.file_name().unwrap_or_default().display());
        path.as_mut_os_string().push(&own);
        order.args.iter_mut().filter(|arg| arg.ends_with(&end)).for_each(|arg| arg.push_str(&own));
    }
    order
}
