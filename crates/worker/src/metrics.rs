//! What a worker counts: a few atomics that the loops touch and the gateway reads.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use clock::TrustedInterval;
use shard::commit::Committed;
use shard::effect::Effect;

/// Upper bounds of the lateness histogram, in milliseconds.
pub const LATENESS_BOUNDS_MS: [u64; 16] =
    [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 60_000, 600_000, 3_600_000];

/// Upper bounds of the commit histogram, in microseconds.
pub const COMMIT_BOUNDS_US: [u64; 12] =
    [100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 500_000, 1_000_000];

/// A histogram of whole numbers with fixed bounds.
#[derive(Debug)]
pub struct Histogram<const N: usize> {
    bounds: [u64; N],
    counts: [AtomicU64; N],
    over: AtomicU64,
    sum: AtomicU64,
}

impl<const N: usize> Histogram<N> {
    const fn new(bounds: [u64; N]) -> Histogram<N> {
        Histogram { bounds, counts: [const { AtomicU64::new(0) }; N], over: AtomicU64::new(0), sum: AtomicU64::new(0) }
    }

    fn observe(&self, value: u64) {
        let bucket = self.bounds.iter().position(|bound| value <= *bound);
        bucket.map_or(&self.over, |bucket| &self.counts[bucket]).fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(value, Ordering::Relaxed);
    }

    /// Each bound with how many values fell between the bound before it and itself, then how many were over the last bound,
    /// and the sum of all.
    pub fn snapshot(&self) -> (Vec<(u64, u64)>, u64, u64) {
        let counts = self.counts.iter().map(|count| count.load(Ordering::Relaxed));
        let buckets = self.bounds.iter().copied().zip(counts).collect();
        (buckets, self.over.load(Ordering::Relaxed), self.sum.load(Ordering::Relaxed))
    }
}

/// The counters of all shards of a worker.
#[derive(Debug)]
pub struct Metrics {
    /// From the business time until the destination had the message.
    pub lateness_ms: Histogram<16>,
    /// From the start of a commit until it was durable.
    pub commit_us: Histogram<12>,
    /// Records applied.
    pub records_applied: AtomicU64,
    /// Keys put or deleted by commits.
    pub keys_written: AtomicU64,
    /// Bytes of those keys and values.
    pub bytes_written: AtomicU64,
    /// Bytes of owner records appended to logs.
    pub owner_log_bytes: AtomicU64,
    /// Messages published before their time: an invariant violation if it is ever not zero.
    pub published_early: AtomicU64,
}

impl Default for Metrics {
    fn default() -> Self {
        Metrics {
            lateness_ms: Histogram::new(LATENESS_BOUNDS_MS),
            commit_us: Histogram::new(COMMIT_BOUNDS_US),
            records_applied: AtomicU64::new(0),
            keys_written: AtomicU64::new(0),
            bytes_written: AtomicU64::new(0),
            owner_log_bytes: AtomicU64::new(0),
            published_early: AtomicU64::new(0),
        }
    }
}

impl Metrics {
    pub(crate) fn committed(&self, committed: &Committed, took: Duration) {
        self.commit_us.observe(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
        self.records_applied.fetch_add(committed.results().len() as u64, Ordering::Relaxed);
        self.keys_written.fetch_add(committed.keys_written() as u64, Ordering::Relaxed);
        self.bytes_written.fetch_add(committed.bytes_written() as u64, Ordering::Relaxed);
    }

    /// Lateness of what an active owner saw published. Replayed records are not counted again.
    pub(crate) fn delivered(&self, committed: &Committed) {
        for effect in committed.effects() {
            if let Effect::Ended { deliver_at_ms, published_at_ms: Some(published_at_ms), .. } = effect {
                let lateness_ms = published_at_ms - deliver_at_ms;
                if lateness_ms < 0 {
                    self.published_early.fetch_add(1, Ordering::Relaxed);
                }
                self.lateness_ms.observe(u64::try_from(lateness_ms).unwrap_or(0));
            }
        }
    }

    pub(crate) fn appended(&self, bytes: usize) {
        self.owner_log_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

/// How far a moment lies ahead of trusted time, at most: when to look again.
pub(crate) fn until_certainly(at_ms: i64, now: TrustedInterval) -> Duration {
    let ahead_ms = at_ms.saturating_sub(now.earliest_ms());
    Duration::from_millis(u64::try_from(ahead_ms).unwrap_or(0))
}
