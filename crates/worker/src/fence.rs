//! When the owner appends a fence: when a deadline would close, when a sweep is unfinished, or when it has been long.

use std::time::Duration;

use clock::TrustedInterval;
use shard::planted::{self, Mistake};

/// Paces of fences.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FencePaces {
    pub(crate) interval_max: Duration,
    pub(crate) interval_min: Duration,
    pub(crate) margin_ms: i64,
}

/// Plans fences. Knows a lower bound of the next deadline; whether one is really there is the store's word.
#[derive(Debug)]
pub(crate) struct FencePlan {
    paces: FencePaces,
    /// No deadline of a live generation is before this; `None` when there is none.
    next_deadline_ms: Option<i64>,
    last_at: Duration,
    sweep_unfinished: bool,
}

/// What a fence is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FenceReason {
    Deadline,
    Sweep,
    Interval,
}

impl FencePlan {
    pub(crate) fn new(paces: FencePaces, now: Duration) -> FencePlan {
        FencePlan { paces, next_deadline_ms: Some(0), last_at: now, sweep_unfinished: false }
    }

    pub(crate) fn deadline_set(&mut self, expire_at_ms: i64) {
        self.next_deadline_ms = Some(self.next_deadline_ms.map_or(expire_at_ms, |next| next.min(expire_at_ms)));
    }

    pub(crate) fn sweep_unfinished(&mut self) {
        self.sweep_unfinished = true;
    }

    /// The store was asked for the earliest deadline.
    pub(crate) fn deadline_found(&mut self, deadline_ms: Option<i64>) {
        self.next_deadline_ms = deadline_ms;
    }

    /// Whether a fence is due, and why. For [`FenceReason::Deadline`] the store must be asked first.
    pub(crate) fn due(&self, now: TrustedInterval, monotonic: Duration) -> Option<FenceReason> {
        if planted::is(Mistake::DropFence) {
            return None;
        }
        if self.sweep_unfinished {
            return Some(FenceReason::Sweep);
        }
        let since_last = monotonic.saturating_sub(self.last_at);
        let close_through_ms = self.close_through_ms(now);
        if since_last >= self.paces.interval_min && self.next_deadline_ms.is_some_and(|next| next <= close_through_ms) {
            return Some(FenceReason::Deadline);
        }
        (since_last >= self.paces.interval_max).then_some(FenceReason::Interval)
    }

    /// How far a fence can close now.
    pub(crate) fn close_through_ms(&self, now: TrustedInterval) -> i64 {
        if planted::is(Mistake::CloseByLatest) {
            return now.latest_ms();
        }
        now.earliest_ms().saturating_sub(self.paces.margin_ms)
    }

    /// A fence is on its way.
    pub(crate) fn appended(&mut self, monotonic: Duration) {
        self.last_at = monotonic;
        self.sweep_unfinished = false;
    }

    /// When, by trusted time and by the monotonic clock, a fence can be due.
    pub(crate) fn wake(&self) -> (Option<i64>, Duration) {
        let deadline = self.next_deadline_ms.map(|next| next.saturating_add(self.paces.margin_ms));
        (deadline, self.last_at + self.paces.interval_max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACES: FencePaces = FencePaces {
        interval_max: Duration::from_secs(600),
        interval_min: Duration::from_millis(100),
        margin_ms: 1_000,
    };

    fn at(now_ms: i64) -> TrustedInterval {
        TrustedInterval::new(now_ms, now_ms + 1).expect("in order")
    }

    #[test]
    fn a_deadline_closes_as_soon_as_the_margin_is_over() {
        let mut plan = FencePlan::new(PACES, Duration::ZERO);
        plan.deadline_found(Some(50_000));
        let monotonic = Duration::from_secs(50);
        assert_eq!(plan.due(at(50_999), monotonic), None);
        assert_eq!(plan.due(at(51_000), monotonic), Some(FenceReason::Deadline));
        assert_eq!(plan.close_through_ms(at(51_000)), 50_000);
        assert_eq!(plan.wake(), (Some(51_000), Duration::from_secs(600)));
    }

    #[test]
    fn a_quiet_shard_fences_at_the_long_interval() {
        let mut plan = FencePlan::new(PACES, Duration::ZERO);
        plan.deadline_found(None);
        assert_eq!(plan.due(at(599_000), Duration::from_secs(599)), None);
        assert_eq!(plan.due(at(600_000), Duration::from_secs(600)), Some(FenceReason::Interval));
        plan.appended(Duration::from_secs(600));
        assert_eq!(plan.due(at(601_000), Duration::from_secs(601)), None);
    }

    #[test]
    fn an_unfinished_sweep_goes_on_at_once() {
        let mut plan = FencePlan::new(PACES, Duration::ZERO);
        plan.deadline_found(None);
        plan.appended(Duration::from_secs(1));
        plan.sweep_unfinished();
        assert_eq!(plan.due(at(1_000), Duration::from_secs(1)), Some(FenceReason::Sweep));
        plan.appended(Duration::from_secs(1));
        assert_eq!(plan.due(at(1_001), Duration::from_secs(1)), None);
    }

    #[test]
    fn deadlines_in_a_row_share_fences() {
        let mut plan = FencePlan::new(PACES, Duration::ZERO);
        plan.appended(Duration::from_millis(5_000));
        plan.deadline_set(1_000);
        assert_eq!(plan.due(at(5_050), Duration::from_millis(5_050)), None);
        assert_eq!(plan.due(at(5_100), Duration::from_millis(5_100)), Some(FenceReason::Deadline));
    }
}
