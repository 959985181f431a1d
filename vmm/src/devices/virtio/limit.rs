// SPDX-License-Identifier: Apache-2.0
//! How much a device may do in a time: token buckets, as Firecracker and Cloud Hypervisor have them.
//!
//! What a request takes is paid for when it is known. A bucket may go below nothing by one request; the next one waits until that is
//! made up for. So a large request is never refused, and the rate is kept all the same.

use std::time::{Duration, Instant};

/// A bucket as its owner describes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// Tokens that it holds; not 0.
    pub size: u64,
    /// Tokens that are there once, beyond its size.
    pub one_time_burst: u64,
    /// How long it takes to fill it; not 0.
    pub refill_time: Duration,
}

/// What is left in a bucket.
#[derive(Debug)]
struct Bucket {
    rate: Rate,
    burst: u64,
    /// In tokens times the nanoseconds of `refill_time`: no fraction of a token is ever lost.
    budget: i128,
    filled: Instant,
}

impl Bucket {
    fn new(rate: Rate, now: Instant) -> Self {
        let mut bucket = Self { rate, burst: rate.one_time_burst, budget: 0, filled: now };
        bucket.budget = bucket.full();
        bucket
    }

    /// What a token is in the unit of the budget.
    fn token(&self) -> i128 {
        i128::try_from(self.rate.refill_time.as_nanos()).unwrap_or(i128::MAX).clamp(1, 1 << 62)
    }

    fn full(&self) -> i128 {
        i128::from(self.rate.size) * self.token()
    }

    fn fill(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.filled).as_nanos();
        let more = i128::try_from(passed).unwrap_or(i128::MAX).saturating_mul(i128::from(self.rate.size));
        self.budget = self.budget.saturating_add(more).min(self.full());
        self.filled = now;
    }

    /// How long until there is a token.
    fn wait(&mut self, now: Instant) -> Duration {
        self.fill(now);
        if self.burst > 0 || self.budget >= self.token() {
            return Duration::ZERO;
        }
        let missing = (self.token() - self.budget).unsigned_abs();
        Duration::from_nanos(u64::try_from(missing.div_ceil(u128::from(self.rate.size.max(1)))).unwrap_or(u64::MAX))
    }

    fn pay(&mut self, tokens: u64) {
        let from_burst = tokens.min(self.burst);
        self.burst -= from_burst;
        self.budget -= i128::from(tokens - from_burst).saturating_mul(self.token());
    }
}

/// Limits of bytes and of operations.
#[derive(Debug, Default)]
pub struct Limiter {
    bytes: Option<Bucket>,
    operations: Option<Bucket>,
}

impl Limiter {
    /// One with those that are given, full from now on.
    #[must_use]
    pub fn new(bytes: Option<Rate>, operations: Option<Rate>) -> Self {
        let now = Instant::now();
        let bucket = |rate: Rate| Bucket::new(rate, now);
        Self { bytes: bytes.map(bucket), operations: operations.map(bucket) }
    }

    /// Whether nothing ever has to wait.
    #[must_use]
    pub const fn is_unlimited(&self) -> bool {
        self.bytes.is_none() && self.operations.is_none()
    }

    /// How long the next operation has to wait.
    pub fn wait(&mut self, now: Instant) -> Duration {
        let buckets = [&mut self.bytes, &mut self.operations];
        buckets.into_iter().flatten().map(|bucket| bucket.wait(now)).max().unwrap_or_default()
    }

    /// An operation has been done, which has moved so many `bytes`.
    pub fn pay(&mut self, bytes: u64) {
        if let Some(bucket) = &mut self.bytes {
            bucket.pay(bytes);
        }
        if let Some(bucket) = &mut self.operations {
            bucket.pay(1);
        }
    }

    /// The operation that was paid for last has cost `bytes` more.
    pub fn pay_more(&mut self, bytes: u64) {
        if let Some(bucket) = &mut self.bytes {
            bucket.pay(bytes);
        }
    }
}

/// Limits of what comes to the guest and of what it sends, each for itself.
#[derive(Debug, Default)]
pub struct BothWays {
    /// To the guest.
    pub received: Limiter,
    /// From the guest.
    pub sent: Limiter,
}

impl BothWays {
    /// Whether nothing ever has to wait.
    #[must_use]
    pub const fn is_unlimited(&self) -> bool {
        self.received.is_unlimited() && self.sent.is_unlimited()
    }

    /// That of queue `queue`: of devices with both, the first one is what the guest receives by.
    pub fn of(&mut self, queue: usize) -> &mut Limiter {
        if queue == 0 { &mut self.received } else { &mut self.sent }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn rate(size: u64, one_time_burst: u64) -> Rate {
        Rate { size, one_time_burst, refill_time: SECOND }
    }

    #[test]
    fn a_bucket_is_paid_from_and_fills() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let mut bucket = Bucket::new(rate(100, 50), start);
        assert_eq!(bucket.wait(start), Duration::ZERO);
        bucket.pay(150);
        // Empty: one token takes a hundredth of the time.
        assert_eq!(bucket.wait(start), Duration::from_millis(10));
        assert_eq!(bucket.wait(at(10)), Duration::ZERO);
        bucket.pay(101);
        assert_eq!(bucket.wait(at(10)), Duration::from_millis(1010));
        assert_eq!(bucket.wait(at(1020)), Duration::ZERO);
        // It never holds more than its size, and the burst does not come again.
        assert_eq!(bucket.wait(at(100_000)), Duration::ZERO);
        bucket.pay(100);
        assert_eq!(bucket.wait(at(100_000)), Duration::from_millis(10));
    }

    #[test]
    fn the_sterner_limit_counts() {
        let mut limiter = Limiter::new(Some(rate(1000, 0)), Some(rate(2, 0)));
        limiter.pay(1);
        assert_eq!(limiter.wait(Instant::now()), Duration::ZERO);
        limiter.pay(1);
        assert!(limiter.wait(Instant::now()) > Duration::from_millis(100));
        assert_eq!(Limiter::default().wait(Instant::now()), Duration::ZERO);
    }

    proptest! {
        /// Whoever waits as told gets what the bucket holds, and then its rate, but for the last request.
        #[test]
        fn the_rate_is_kept(
            size in 1u64..1 << 40, burst in 0u64..1 << 20, millis in 1u64..100_000,
            requests in prop::collection::vec(0u64..1 << 24, 1..50),
        ) {
            let refill_time = Duration::from_millis(millis);
            let start = Instant::now();
            let mut bucket = Bucket::new(Rate { size, one_time_burst: burst, refill_time }, start);
            let (mut now, mut total, mut last) = (start, 0u128, 0);
            for request in requests {
                now += bucket.wait(now);
                prop_assert_eq!(bucket.wait(now), Duration::ZERO);
                bucket.pay(request);
                total += u128::from(request);
                last = request;
            }
            let passed = (now - start).as_nanos();
            let most = u128::from(size) + u128::from(burst) + passed * u128::from(size) / refill_time.as_nanos() + 1;
            prop_assert!(total <= most + u128::from(last), "{total} in {passed} ns");
        }
    }
}
