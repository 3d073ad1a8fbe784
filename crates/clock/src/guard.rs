//! The guard between clocks that may be wrong and decisions that must never be early.
//!
//! A sample is trusted when it is narrow enough and agrees with the one before it: wall and monotonic clock advanced by the
//! same amount, within `divergence_max`. After a sample that fails (a step, lost synchronisation, too much uncertainty) or a
//! gap between samples longer than `sample_age_max` (a paused process, a suspended machine) the clock has to agree with itself for
//! a whole stabilisation window before an interval is handed out again. Between samples the last one is carried by the monotonic clock
//! and widened on both sides by `divergence_max`, which covers the monotonic clock's own rate error.
//!
//! What it assumes of the source: the bounds of a sample that calls itself synchronised contain the true time, and the
//! monotonic clock's rate error stays within `drift_ppm_max`. Then every interval it hands out contains the true time. A
//! leap second that the kernel inserts is a step like any other. A virtual machine that is frozen without its guest clocks
//! noticing is beyond what any guard inside can see until the next reference time arrives.

use std::time::Duration;

use crate::interval::TrustedInterval;
use crate::options::ClockOptions;
use crate::source::{Sample, micros_ceil, micros_floor};

/// Why no interval can be handed out now. Nothing may be decided by time until it passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unqualified {
    /// No sample has been observed.
    #[error("no clock sample yet")]
    NoSample,
    /// The sample's bounds are no interval of time since 1970.
    #[error("clock sample [{earliest_us}, {latest_us}] us is no interval since 1970")]
    Implausible {
        /// Its lower bound.
        earliest_us: i64,
        /// Its upper bound.
        latest_us: i64,
    },
    /// `require_sync` is set and nothing vouches for the machine's clock.
    #[error("the kernel does not call its clock synchronised, and require_sync is set")]
    NotSynchronised,
    /// The bounds are too far apart.
    #[error("clock uncertainty is {width_us} us, at most {uncertainty_max_ms} ms is accepted")]
    TooUncertain {
        /// The width with the widening, in microseconds.
        width_us: i64,
        /// The limit, in milliseconds.
        uncertainty_max_ms: i64,
    },
    /// Wall and monotonic clock moved apart between two samples.
    #[error("wall clock stepped by {step_us} us, at most {divergence_max_us} us is drift")]
    Stepped {
        /// How much further the wall clock went than the monotonic clock, in microseconds; negative for backwards.
        step_us: i64,
        /// The limit, in microseconds.
        divergence_max_us: i64,
    },
    /// No sample for longer than one may be carried: the process or the machine was paused, or nobody samples.
    #[error("last clock sample is {age:?} old, at most {sample_age_max:?} is accepted")]
    TooOld {
        /// Its age, or the gap between two samples.
        age: Duration,
        /// The limit.
        sample_age_max: Duration,
    },
    /// The monotonic clock went backwards, or one anchor carries two different samples.
    #[error("monotonic clock reads {reading:?}, behind or beside the sample at {anchor:?}")]
    NotMonotonic {
        /// The later reading.
        reading: Duration,
        /// The earlier one.
        anchor: Duration,
    },
    /// The clock agrees with itself again, but not yet for long enough.
    #[error("clock has been stable for {stable_for:?} of {window:?}")]
    Stabilising {
        /// How long it agrees.
        stable_for: Duration,
        /// How long it has to.
        window: Duration,
    },
}

/// What the time is, as far as it can be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// The true time lies in this interval.
    Qualified(TrustedInterval),
    /// Nothing may be decided by time.
    Unqualified(Unqualified),
}

impl Reading {
    /// The interval, when there is one.
    pub fn interval(self) -> Option<TrustedInterval> {
        match self {
            Reading::Qualified(interval) => Some(interval),
            Reading::Unqualified(_) => None,
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Trust {
    Refused(Unqualified),
    Stabilising { since: Duration },
    Qualified,
}

/// The guard. Plain data: it reads no clock itself.
#[derive(Clone, Debug)]
pub struct TrustedUtc {
    options: ClockOptions,
    last: Option<Sample>,
    trust: Trust,
    /// The window that counts now: the start's until the first failure.
    window: Duration,
    last_qualified: Option<Sample>,
    withdrawal_count: u64,
    withdrawn_by: Option<Unqualified>,
}

impl TrustedUtc {
    /// A guard that has seen nothing. The caller has checked the options ([`ClockOptions::check`]).
    pub fn new(options: ClockOptions) -> TrustedUtc {
        TrustedUtc {
            window: options.start_window,
            options,
            last: None,
            trust: Trust::Refused(Unqualified::NoSample),
            last_qualified: None,
            withdrawal_count: 0,
            withdrawn_by: None,
        }
    }

    /// Takes the next sample into account.
    pub fn observe(&mut self, sample: Sample) {
        let verdict = self.judge(&sample);
        let was_qualified = matches!(self.trust, Trust::Qualified);
        self.trust = match (verdict, self.trust) {
            (Err(reason), _) => {
                self.window = self.options.stabilisation_window;
                Trust::Refused(reason)
            }
            (Ok(()), Trust::Qualified) => Trust::Qualified,
            (Ok(()), Trust::Stabilising { since }) => self.stabilise(since, sample.anchor),
            (Ok(()), Trust::Refused(_)) => self.stabilise(sample.anchor, sample.anchor),
        };
        self.last = Some(sample);
        match self.trust {
            Trust::Qualified => self.last_qualified = Some(sample),
            _ if was_qualified => {
                self.withdrawal_count += 1;
                self.withdrawn_by = verdict.err();
            }
            _ => {}
        }
    }

    fn stabilise(&self, since: Duration, anchor: Duration) -> Trust {
        // The anchors of two trusted samples ascend, so this cannot underflow.
        if anchor.saturating_sub(since) >= self.window { Trust::Qualified } else { Trust::Stabilising { since } }
    }

    fn judge(&self, sample: &Sample) -> Result<(), Unqualified> {
        let Sample { earliest_us, latest_us, anchor, synchronised } = *sample;
        if earliest_us > latest_us || latest_us < 0 {
            return Err(Unqualified::Implausible { earliest_us, latest_us });
        }
        if self.options.require_sync && !synchronised {
            return Err(Unqualified::NotSynchronised);
        }
        let uncertainty_max_ms = self.options.uncertainty_max_ms();
        let width_us = (latest_us.saturating_sub(earliest_us)).saturating_add(2 * self.options.widening_us());
        if width_us > uncertainty_max_ms.saturating_mul(1_000) {
            return Err(Unqualified::TooUncertain { width_us, uncertainty_max_ms });
        }
        match (self.trust, &self.last) {
            (Trust::Qualified | Trust::Stabilising { .. }, Some(previous)) => self.compare(previous, sample, anchor),
            _ => Ok(()),
        }
    }

    /// Whether the sample continues the trusted one before it.
    fn compare(&self, previous: &Sample, sample: &Sample, anchor: Duration) -> Result<(), Unqualified> {
        let not_monotonic = Unqualified::NotMonotonic { reading: anchor, anchor: previous.anchor };
        let elapsed = anchor.checked_sub(previous.anchor).ok_or(not_monotonic)?;
        if elapsed.is_zero() && sample != previous {
            return Err(not_monotonic);
        }
        let sample_age_max = self.options.sample_age_max;
        if elapsed > sample_age_max {
            return Err(Unqualified::TooOld { age: elapsed, sample_age_max });
        }
        let wall_elapsed_us = sample.midpoint_us().saturating_sub(previous.midpoint_us());
        let step_us = wall_elapsed_us.saturating_sub(micros_floor(elapsed));
        let divergence_max_us = self.options.divergence_max_us();
        if step_us.saturating_abs() > divergence_max_us {
            return Err(Unqualified::Stepped { step_us, divergence_max_us });
        }
        Ok(())
    }

    /// The time at `monotonic`, a reading of the same clock that anchored the samples.
    pub fn now(&self, monotonic: Duration) -> Reading {
        match self.trusted_at(monotonic) {
            Ok(interval) => Reading::Qualified(interval),
            Err(reason) => Reading::Unqualified(reason),
        }
    }

    fn trusted_at(&self, monotonic: Duration) -> Result<TrustedInterval, Unqualified> {
        let Some(sample) = self.last else { return Err(Unqualified::NoSample) };
        match self.trust {
            Trust::Refused(reason) => return Err(reason),
            Trust::Stabilising { since } => {
                let stable_for = sample.anchor.saturating_sub(since);
                return Err(Unqualified::Stabilising { stable_for, window: self.window });
            }
            Trust::Qualified => {}
        }
        let Some(age) = monotonic.checked_sub(sample.anchor) else {
            return Err(Unqualified::NotMonotonic { reading: monotonic, anchor: sample.anchor });
        };
        let sample_age_max = self.options.sample_age_max;
        if age > sample_age_max {
            return Err(Unqualified::TooOld { age, sample_age_max });
        }
        let interval = self.carry(&sample, age);
        let uncertainty_max_ms = self.options.uncertainty_max_ms();
        if interval.width_ms() > uncertainty_max_ms {
            let width_us = interval.width_ms().saturating_mul(1_000);
            return Err(Unqualified::TooUncertain { width_us, uncertainty_max_ms });
        }
        Ok(interval)
    }

    /// The sample moved forward by `age`, widened, and rounded outward to milliseconds.
    fn carry(&self, sample: &Sample, age: Duration) -> TrustedInterval {
        let widening_us = self.options.widening_us();
        let earliest_us = sample.earliest_us.saturating_add(micros_floor(age)).saturating_sub(widening_us).max(0);
        let latest_us = sample.latest_us.saturating_add(micros_ceil(age)).saturating_add(widening_us).max(earliest_us);
        let latest_ms = latest_us / 1_000 + i64::from(latest_us % 1_000 != 0);
        TrustedInterval::new(earliest_us / 1_000, latest_ms).expect("bounds were just ordered and made non-negative")
    }

    /// The time for stamps that must not wait for a qualified clock and decide nothing: append times, outcome stamps.
    ///
    /// While time is qualified it equals [`now`](Self::now). Otherwise it goes on from the last qualified sample by the
    /// monotonic clock alone, so that one wild reading cannot pin a log's time. A process whose clock never qualified has
    /// only the newest sample to go by. `None` before the first sample.
    pub fn carried(&self, monotonic: Duration) -> Option<TrustedInterval> {
        let sample = self.last_qualified.or(self.last)?;
        Some(self.carry(&sample, monotonic.saturating_sub(sample.anchor)))
    }

    /// How often trust was withdrawn by a sample. For a metric.
    pub fn withdrawal_count(&self) -> u64 {
        self.withdrawal_count
    }

    /// Why trust was withdrawn the last time. For people: by now the clock may be trusted again.
    pub fn withdrawn_by(&self) -> Option<Unqualified> {
        self.withdrawn_by
    }

    /// The newest sample, trusted or not.
    pub fn last_sample(&self) -> Option<&Sample> {
        self.last.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T0_US: i64 = 1_700_000_000_000_000;
    const MS: Duration = Duration::from_millis(1);

    fn options() -> ClockOptions {
        ClockOptions {
            uncertainty_max: 20 * MS,
            sample_age_max: 1_000 * MS,
            divergence_max: MS,
            stabilisation_window: 500 * MS,
            ..ClockOptions::default()
        }
    }

    /// A sample of a perfect clock with a bound of 2 ms, taken `at` after the start.
    fn sample(at: Duration) -> Sample {
        let wall_us = T0_US + micros_floor(at);
        Sample { earliest_us: wall_us - 2_000, latest_us: wall_us + 2_000, anchor: at, synchronised: true }
    }

    fn stepped(at: Duration, step_us: i64) -> Sample {
        let sample = sample(at);
        Sample { earliest_us: sample.earliest_us + step_us, latest_us: sample.latest_us + step_us, ..sample }
    }

    fn guard(samples: &[Sample]) -> TrustedUtc {
        let mut guard = TrustedUtc::new(options());
        for sample in samples {
            guard.observe(*sample);
        }
        guard
    }

    fn reason(reading: Reading) -> Unqualified {
        match reading {
            Reading::Unqualified(reason) => reason,
            Reading::Qualified(interval) => panic!("qualified: {interval}"),
        }
    }

    #[test]
    fn nothing_observed_is_nothing_known() {
        let guard = guard(&[]);
        assert_eq!(reason(guard.now(MS)), Unqualified::NoSample);
        assert_eq!(guard.carried(MS), None);
    }

    #[test]
    fn the_first_sample_qualifies_at_once_and_is_widened_and_rounded_outward() {
        let guard = guard(&[sample(Duration::ZERO)]);
        let at = |age| guard.now(age).interval().expect("qualified");
        let t0_ms = T0_US / 1_000;
        // 2 ms of the source and 1 ms of widening on each side.
        assert_eq!(at(Duration::ZERO), TrustedInterval::new(t0_ms - 3, t0_ms + 3).expect("ordered"));
        assert_eq!(at(Duration::from_nanos(1)), TrustedInterval::new(t0_ms - 3, t0_ms + 4).expect("ordered"));
        assert_eq!(at(Duration::from_nanos(999_999)), TrustedInterval::new(t0_ms - 3, t0_ms + 4).expect("ordered"));
        assert_eq!(at(MS), TrustedInterval::new(t0_ms - 2, t0_ms + 4).expect("ordered"));
    }

    #[test]
    fn a_start_window_is_waited_for_when_there_is_one() {
        let mut guard = TrustedUtc::new(ClockOptions { start_window: 200 * MS, ..options() });
        for at in [0, 100, 199] {
            guard.observe(sample(at * MS));
            let stable_for = at * MS;
            assert_eq!(reason(guard.now(at * MS)), Unqualified::Stabilising { stable_for, window: 200 * MS });
        }
        guard.observe(sample(200 * MS));
        assert!(guard.now(200 * MS).interval().is_some());
    }

    #[test]
    fn a_sample_is_carried_for_its_age_and_no_longer() {
        let guard = guard(&[sample(Duration::ZERO)]);
        assert!(guard.now(1_000 * MS).interval().is_some());
        let age = 1_000 * MS + Duration::from_nanos(1);
        assert_eq!(reason(guard.now(age)), Unqualified::TooOld { age, sample_age_max: 1_000 * MS });
    }

    #[test]
    fn a_reading_before_the_sample_is_refused() {
        let guard = guard(&[sample(100 * MS)]);
        assert!(guard.now(100 * MS).interval().is_some());
        assert_eq!(reason(guard.now(99 * MS)), Unqualified::NotMonotonic { reading: 99 * MS, anchor: 100 * MS });
    }

    #[test]
    fn a_divergence_up_to_the_limit_is_drift_and_beyond_it_a_step() {
        for step_us in [-1_000, -1, 0, 1, 1_000] {
            let guard = guard(&[sample(Duration::ZERO), stepped(100 * MS, step_us)]);
            assert!(guard.now(100 * MS).interval().is_some(), "{step_us} us");
            assert_eq!((guard.withdrawal_count(), guard.withdrawn_by()), (0, None));
        }
        for step_us in [-5_000_000, -1_001, 1_001, 5_000_000] {
            let guard = guard(&[sample(Duration::ZERO), stepped(100 * MS, step_us)]);
            let refusal = Unqualified::Stepped { step_us, divergence_max_us: 1_000 };
            assert_eq!(reason(guard.now(100 * MS)), refusal);
            assert_eq!((guard.withdrawal_count(), guard.withdrawn_by()), (1, Some(refusal)));
        }
    }

    #[test]
    fn after_a_step_the_whole_window_holds() {
        let mut guard = guard(&[sample(Duration::ZERO), stepped(100 * MS, 5_000_000)]);
        for at in [200, 300, 400, 500, 600, 699] {
            guard.observe(stepped(at * MS, 5_000_000));
            let stable_for = (at - 200) * MS;
            assert_eq!(reason(guard.now(at * MS)), Unqualified::Stabilising { stable_for, window: 500 * MS });
        }
        guard.observe(stepped(700 * MS, 5_000_000));
        let now = guard.now(700 * MS).interval().expect("500 ms after the first sample that agreed with itself");
        assert_eq!(now.earliest_ms(), T0_US / 1_000 + 5_000 + 700 - 3);
    }

    #[test]
    fn a_second_step_restarts_the_window() {
        let mut guard = guard(&[sample(Duration::ZERO), stepped(100 * MS, 5_000_000)]);
        for at in [200, 300, 400] {
            guard.observe(stepped(at * MS, 5_000_000));
        }
        guard.observe(sample(500 * MS));
        assert!(matches!(reason(guard.now(500 * MS)), Unqualified::Stepped { step_us: -5_000_000, .. }));
        guard.observe(sample(600 * MS));
        guard.observe(sample(1_099 * MS));
        assert!(matches!(reason(guard.now(1_099 * MS)), Unqualified::Stabilising { .. }));
        guard.observe(sample(1_100 * MS));
        assert!(guard.now(1_100 * MS).interval().is_some());
    }

    #[test]
    fn a_pause_longer_than_a_sample_may_age_withdraws_trust() {
        let mut guard = guard(&[sample(Duration::ZERO), sample(1_000 * MS)]);
        assert!(guard.now(1_000 * MS).interval().is_some(), "exactly the limit");
        let gap = 1_000 * MS + Duration::from_nanos(1);
        guard.observe(sample(1_000 * MS + gap));
        let refusal = Unqualified::TooOld { age: gap, sample_age_max: 1_000 * MS };
        assert_eq!(reason(guard.now(1_000 * MS + gap)), refusal);
    }

    #[test]
    fn uncertainty_counts_with_its_widening() {
        let of_width = |width_us| Sample { latest_us: T0_US - 2_000 + width_us, ..sample(Duration::ZERO) };
        assert!(guard(&[of_width(18_000)]).now(Duration::ZERO).interval().is_some());
        let refusal = Unqualified::TooUncertain { width_us: 20_001, uncertainty_max_ms: 20 };
        assert_eq!(reason(guard(&[of_width(18_001)]).now(Duration::ZERO)), refusal);
        // Rounding to milliseconds may add what the sample itself did not have; the bound others rely on still holds.
        assert!(matches!(
            reason(guard(&[of_width(18_000)]).now(Duration::from_micros(500))),
            Unqualified::TooUncertain { width_us: 21_000, .. }
        ));
    }

    #[test]
    fn synchronisation_is_demanded_only_where_it_is_required() {
        let unsynchronised = Sample { synchronised: false, ..sample(Duration::ZERO) };
        assert!(guard(&[unsynchronised]).now(Duration::ZERO).interval().is_some());

        let mut strict = TrustedUtc::new(ClockOptions { require_sync: true, ..options() });
        strict.observe(unsynchronised);
        assert_eq!(reason(strict.now(Duration::ZERO)), Unqualified::NotSynchronised);
        strict.observe(sample(100 * MS));
        assert!(
            matches!(reason(strict.now(100 * MS)), Unqualified::Stabilising { window, .. } if window == 500 * MS),
            "a first sample that fails forfeits the start window"
        );
        strict.observe(sample(600 * MS));
        assert!(strict.now(600 * MS).interval().is_some());
    }

    #[test]
    fn one_anchor_carries_one_sample() {
        let twice = guard(&[sample(MS), sample(MS)]);
        assert!(twice.now(MS).interval().is_some());
        let two = guard(&[sample(MS), Sample { latest_us: T0_US + 1, ..sample(MS) }]);
        assert!(matches!(reason(two.now(MS)), Unqualified::NotMonotonic { .. }));
        let back = guard(&[sample(2 * MS), sample(MS)]);
        assert!(matches!(reason(back.now(2 * MS)), Unqualified::NotMonotonic { .. }));
    }

    #[test]
    fn implausible_samples_are_refused() {
        let inverted = Sample { earliest_us: 2, latest_us: 1, anchor: MS, synchronised: true };
        assert!(matches!(reason(guard(&[inverted]).now(MS)), Unqualified::Implausible { .. }));
        let before_1970 = Sample { earliest_us: -2, latest_us: -1, anchor: MS, synchronised: true };
        assert!(matches!(reason(guard(&[before_1970]).now(MS)), Unqualified::Implausible { .. }));
        let at_1970 = Sample { earliest_us: -2, latest_us: 0, anchor: MS, synchronised: true };
        assert_eq!(guard(&[at_1970]).now(MS).interval(), TrustedInterval::new(0, 1));
    }

    #[test]
    fn the_ends_of_time_do_not_overflow() {
        let last = Sample { earliest_us: i64::MAX - 1, latest_us: i64::MAX, anchor: MS, synchronised: true };
        let mut guard = guard(&[last]);
        assert!(guard.now(2 * MS).interval().is_some());
        guard.observe(Sample { earliest_us: i64::MIN, latest_us: i64::MAX, anchor: 2 * MS, synchronised: true });
        assert!(matches!(reason(guard.now(2 * MS)), Unqualified::TooUncertain { .. }));
        guard.observe(Sample { anchor: Duration::MAX, ..last });
        assert!(guard.carried(Duration::MAX).is_some());
    }

    #[test]
    fn carried_time_goes_on_from_the_last_qualified_sample() {
        let mut guard = guard(&[sample(Duration::ZERO), sample(100 * MS)]);
        assert_eq!(guard.carried(150 * MS), guard.now(150 * MS).interval());
        for at in [200, 300] {
            guard.observe(stepped(at * MS, 5_000_000));
        }
        let carried = guard.carried(10_000 * MS).expect("there was a sample");
        assert_eq!(carried.midpoint_ms(), T0_US / 1_000 + 10_000, "the step and the age of the sample do not matter");
        for at in (400..=800).step_by(100) {
            guard.observe(stepped(at * MS, 5_000_000));
        }
        assert_eq!(guard.carried(800 * MS), guard.now(800 * MS).interval(), "trusted again, so the new time counts");
        assert_eq!(guard.carried(800 * MS).expect("is").midpoint_ms(), T0_US / 1_000 + 5_800);
    }

    #[test]
    fn carried_time_of_a_clock_that_never_qualified_is_its_newest_sample() {
        let mut strict = TrustedUtc::new(ClockOptions { require_sync: true, ..options() });
        strict.observe(Sample { synchronised: false, ..sample(Duration::ZERO) });
        strict.observe(Sample { synchronised: false, ..stepped(100 * MS, 7_000) });
        assert_eq!(strict.carried(100 * MS).expect("is").midpoint_ms(), T0_US / 1_000 + 107);
    }
}
