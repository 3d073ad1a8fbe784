//! A guarded clock to ask from anywhere: one source, one guard, shared by every thread of a process.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::guard::{Reading, TrustedUtc, Unqualified};
use crate::interval::TrustedInterval;
use crate::options::{ClockOptions, ClockOptionsError};
use crate::source::ClockSource;

/// What a metric and a status page show of the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockStatus {
    /// The time now, or why it is not trusted.
    pub reading: Reading,
    /// Whether the newest sample is vouched for by a synchronised kernel. When it is not, the bound below is an assumption
    /// and people should be told.
    pub synchronised: bool,
    /// The error stated or assumed by the newest sample, half its width, in microseconds: added lateness.
    pub bound_us: i64,
    /// How long ago the newest sample was taken.
    pub sample_age: Duration,
    /// How often trust was withdrawn since the start.
    pub withdrawal_count: u64,
    /// Why it was withdrawn the last time.
    pub withdrawn_by: Option<Unqualified>,
}

struct State {
    guard: TrustedUtc,
    sample_at: Duration,
}

struct Inner {
    source: Box<dyn ClockSource>,
    sample_interval: Duration,
    state: Mutex<State>,
}

/// The guarded clock. Clones share it.
///
/// Somebody must ask at least every `sample_age_max / 2`, or the next answer is [`Unqualified::TooOld`]: a process that did not
/// look at the clock cannot be told from one that was stopped. A busy loop does so by itself, an idle one needs a ticker
/// every [`sample_interval`](ClockOptions::sample_interval).
///
/// [`Unqualified::TooOld`]: crate::Unqualified::TooOld
#[derive(Clone)]
pub struct TrustedClock {
    inner: Arc<Inner>,
}

impl TrustedClock {
    /// Takes the first sample of the source.
    ///
    /// # Errors
    /// When the options do not fit together.
    pub fn new(source: impl ClockSource, options: ClockOptions) -> Result<TrustedClock, ClockOptionsError> {
        options.check()?;
        let first = source.sample();
        let mut guard = TrustedUtc::new(options);
        guard.observe(first);
        let sample_interval = options.sample_interval;
        let state = State { guard, sample_at: first.anchor.saturating_add(sample_interval) };
        Ok(TrustedClock {
            inner: Arc::new(Inner { source: Box::new(source), sample_interval, state: Mutex::new(state) }),
        })
    }

    /// The time now, from a new sample when the last one is older than the sample interval. Costs about 50 ns between
    /// samples.
    pub fn now(&self) -> Reading {
        let (state, monotonic) = self.look();
        state.guard.now(monotonic)
    }

    /// The time for stamps that must not wait and decide nothing ([`TrustedUtc::carried`]).
    pub fn carried(&self) -> TrustedInterval {
        let (state, monotonic) = self.look();
        state.guard.carried(monotonic).expect("a sample was observed when the clock was made")
    }

    /// The middle of [`carried`](Self::carried), in milliseconds: what an embedded log stamps appends with.
    pub fn append_time_ms(&self) -> i64 {
        self.carried().midpoint_ms()
    }

    /// The source's monotonic clock.
    pub fn monotonic(&self) -> Duration {
        self.inner.source.monotonic()
    }

    /// Everything there is to show about the clock.
    pub fn status(&self) -> ClockStatus {
        let (state, monotonic) = self.look();
        let sample = state.guard.last_sample().expect("a sample was observed when the clock was made");
        ClockStatus {
            reading: state.guard.now(monotonic),
            synchronised: sample.synchronised,
            bound_us: sample.latest_us.saturating_sub(sample.earliest_us) / 2,
            sample_age: monotonic.saturating_sub(sample.anchor),
            withdrawal_count: state.guard.withdrawal_count(),
            withdrawn_by: state.guard.withdrawn_by(),
        }
    }

    /// The state with a fresh enough sample, and the monotonic time. Both are read under the lock, so that no reading is
    /// older than a sample that another thread took meanwhile.
    fn look(&self) -> (MutexGuard<'_, State>, Duration) {
        let source = &self.inner.source;
        // The guard is replaced field by field from plain values: a panic elsewhere leaves nothing half-done in it.
        let mut state = self.inner.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut monotonic = source.monotonic();
        if monotonic >= state.sample_at {
            let sample = source.sample();
            state.guard.observe(sample);
            state.sample_at = sample.anchor.saturating_add(self.inner.sample_interval);
            monotonic = source.monotonic();
        }
        (state, monotonic)
    }
}

impl std::fmt::Debug for TrustedClock {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("TrustedClock").field("status", &self.status()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::SystemClock;
    use crate::virtual_clock::VirtualTime;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn samples_are_taken_at_the_interval_and_carried_in_between() {
        let time = VirtualTime::starting_at(1_700_000_000_000);
        let host = time.host();
        let clock = TrustedClock::new(host.clone(), ClockOptions::default()).expect("defaults fit");
        assert_eq!(host.sample_count(), 1);
        time.advance(99 * MS);
        let now = clock.now().interval().expect("qualified");
        assert_eq!(now.midpoint_ms(), 1_700_000_000_099);
        assert_eq!(host.sample_count(), 1);
        time.advance(MS);
        assert!(clock.now().interval().is_some());
        assert_eq!(host.sample_count(), 2);
    }

    #[test]
    fn the_status_tells_an_assumed_bound_from_a_stated_one() {
        let time = VirtualTime::starting_at(1_700_000_000_000);
        let host = time.host();
        host.set_bound(Duration::from_micros(1_500));
        host.lose_sync();
        let clock = TrustedClock::new(host, ClockOptions::default()).expect("defaults fit");
        let status = clock.status();
        assert!(!status.synchronised);
        assert_eq!((status.bound_us, status.sample_age, status.withdrawal_count), (1_500, Duration::ZERO, 0));
    }

    #[test]
    fn options_that_do_not_fit_are_refused() {
        let options = ClockOptions { divergence_max: Duration::ZERO, ..ClockOptions::default() };
        let refused = TrustedClock::new(VirtualTime::starting_at(0).host(), options).map(|_| ());
        assert!(matches!(refused, Err(ClockOptionsError::DriftNotCovered { .. })));
    }

    #[test]
    fn the_machines_own_clock_qualifies_at_once() {
        let clock = TrustedClock::new(SystemClock::default(), ClockOptions::default()).expect("defaults fit");
        let now = clock.now().interval().expect("a process that has just started trusts its clock");
        assert!(now.width_ms() <= 1_000);
        assert!(clock.append_time_ms() >= now.earliest_ms());
    }
}
