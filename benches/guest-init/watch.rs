// SPDX-License-Identifier: Apache-2.0
//! The kernel's counts of memory, watched while something else goes on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serde_json::{Value, json};

use crate::files;
use crate::memory::{meminfo_kib, vmstat_sum};

const PAUSE: Duration = Duration::from_millis(20);
/// As many complaints are kept: the first one tells what is wrong.
const MOST_COMPLAINTS: usize = 8;
/// Two sections of 128 MiB, in KiB: with this much deferred no allocation has a reason to take back pages that are in use.
const MUCH_KIB: u64 = 256 << 10;

/// One look. KiB, but for `reclaimed`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Sample {
    /// How often the kernel looked for pages to take back, or killed for them, since boot.
    reclaimed: u64,
    total: u64,
    free: u64,
    available: u64,
    /// None if this kernel has no such line.
    deferred: Option<u64>,
}

/// What was seen from begin to end.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// What must not be; empty if all was well.
    pub(crate) complaints: Vec<String>,
    first: Option<Sample>,
    last: Option<Sample>,
    samples: u64,
    falls: u64,
    reclaimed_early: u64,
}

/// A thread that looks until told to stop.
pub(crate) struct Watch {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Seen>,
}

impl Watch {
    /// Looks once, so that the counts can be read at all, and goes on from there.
    pub(crate) fn begin() -> Result<Self, String> {
        let mut seen = Seen::default();
        seen.take(Sample::read()?);
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let thread = thread::Builder::new().spawn(move || seen.until(&told));
        Ok(Self { stop, thread: thread.map_err(|error| format!("a thread that watches: {error}"))? })
    }

    /// Looks a last time.
    pub(crate) fn end(self) -> Seen {
        self.stop.store(true, Ordering::SeqCst);
        let lost = |_| Seen { complaints: vec!["who was to watch has panicked".to_owned()], ..Seen::default() };
        self.thread.join().unwrap_or_else(lost)
    }
}

impl Sample {
    /// Events before memory: what is deferred only ever falls, so it was no less when the events were counted.
    fn read() -> Result<Self, String> {
        let reclaimed = reclaimed(&files::text("/proc/vmstat")?);
        let meminfo = files::text("/proc/meminfo")?;
        let needed = |name| meminfo_kib(&meminfo, name).ok_or_else(|| format!("/proc/meminfo: no {name}"));
        Ok(Self {
            reclaimed,
            total: needed("MemTotal")?,
            free: needed("MemFree")?,
            available: needed("MemAvailable")?,
            deferred: meminfo_kib(&meminfo, "MemDeferred"),
        })
    }

    /// What cannot be at any one moment.
    fn nonsense(self) -> Option<&'static str> {
        if self.deferred > Some(self.free) {
            Some("more is deferred than free")
        } else if self.free > self.total {
            Some("more is free than there is")
        } else if self.available > self.total {
            Some("more is available than there is")
        } else {
            None
        }
    }
}

fn reclaimed(vmstat: &str) -> u64 {
    ["allocstall", "pgscan_kswapd", "pgscan_direct", "oom_kill"].iter().map(|name| vmstat_sum(vmstat, name)).sum()
}

impl Seen {
    fn until(mut self, stop: &AtomicBool) -> Self {
        loop {
            let last = stop.load(Ordering::SeqCst);
            match Sample::read() {
                Ok(sample) => self.take(sample),
                Err(error) => self.complain(error),
            }
            if last {
                return self;
            }
            thread::sleep(PAUSE);
        }
    }

    fn take(&mut self, sample: Sample) {
        if let Some(nonsense) = sample.nonsense() {
            self.complain(format!("{nonsense}: {sample:?}"));
        }
        if let (Some(first), Some(last)) = (self.first, self.last) {
            if sample.total != first.total {
                self.complain(format!("MemTotal changed: {first:?}, then {sample:?}"));
            }
            if sample.deferred > last.deferred || sample.deferred.is_some() != last.deferred.is_some() {
                self.complain(format!("MemDeferred rose: {last:?}, then {sample:?}"));
            }
            self.falls += u64::from(sample.deferred < last.deferred);
            if sample.deferred >= Some(MUCH_KIB) {
                self.reclaimed_early = sample.reclaimed.saturating_sub(first.reclaimed);
            }
        }
        self.first.get_or_insert(sample);
        self.last = Some(sample);
        self.samples += 1;
    }

    fn complain(&mut self, complaint: String) {
        if self.complaints.len() < MOST_COMPLAINTS {
            self.complaints.push(complaint);
        }
    }

    /// `samples`, `complaints`, `deferred_first_kib`, `deferred_last_kib`, `deferred_falls` and `reclaimed_early`: how often
    /// pages were taken back although 256 MiB and more were deferred.
    pub(crate) fn report(&self, report: &mut Value) {
        let deferred = |sample: Option<Sample>| json!(sample.and_then(|sample| sample.deferred));
        report["samples"] = self.samples.into();
        report["complaints"] = json!(self.complaints);
        report["deferred_first_kib"] = deferred(self.first);
        report["deferred_last_kib"] = deferred(self.last);
        report["deferred_falls"] = self.falls.into();
        report["reclaimed_early"] = self.reclaimed_early.into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: Sample =
        Sample { reclaimed: 5, total: 1 << 20, free: 900 << 10, available: 900 << 10, deferred: Some(800 << 10) };

    fn seen(samples: &[Sample]) -> Seen {
        let mut seen = Seen::default();
        for sample in samples {
            seen.take(*sample);
        }
        seen
    }

    #[test]
    fn falling_is_well() {
        let seen = seen(&[
            SAMPLE,
            Sample { deferred: Some(300 << 10), ..SAMPLE },
            Sample { deferred: Some(0), reclaimed: 9, ..SAMPLE },
        ]);
        assert!(seen.complaints.is_empty(), "{:?}", seen.complaints);
        assert_eq!((seen.samples, seen.falls, seen.reclaimed_early), (3, 2, 0));
        assert!(self::seen(&[Sample { deferred: None, ..SAMPLE }; 2]).complaints.is_empty());
    }

    #[test]
    fn what_must_not_be() {
        for wrong in [
            Sample { total: SAMPLE.total - 4, ..SAMPLE },
            Sample { deferred: Some(801 << 10), ..SAMPLE },
            Sample { deferred: None, ..SAMPLE },
            Sample { free: 700 << 10, ..SAMPLE },
            Sample { free: SAMPLE.total + 4, ..SAMPLE },
            Sample { available: SAMPLE.total + 4, ..SAMPLE },
        ] {
            assert_eq!(seen(&[SAMPLE, wrong]).complaints.len(), 1, "{wrong:?}");
        }
        assert_eq!(seen(&[SAMPLE, Sample { reclaimed: 7, ..SAMPLE }]).reclaimed_early, 2);
    }

    #[test]
    fn events_of_all_zones() {
        assert_eq!(
            reclaimed("allocstall_dma32 1\nallocstall_normal 2\npgscan_kswapd 4\npgscan_direct 8\nother 16\n"),
            15
        );
    }
}
