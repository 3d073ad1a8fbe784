//! How much uncertainty is tolerated, and the relations between the limits that make the tolerance sound.

use std::time::Duration;

use crate::source::{micros_ceil, micros_floor};

/// The limits of [`TrustedUtc`](crate::TrustedUtc) and [`TrustedClock`](crate::TrustedClock).
///
/// Every decision is late by at most `bound + divergence_max + 1 ms`, where `bound` is the error the source states; with the
/// defaults and an undisciplined host clock that is 3 ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockOptions {
    /// The widest interval that is still handed out, whole milliseconds. Default 1 s; the shortest window between
    /// `deliverAt` and `expireAt` must be longer (T8).
    pub uncertainty_max: Duration,
    /// How long a sample is carried forward, and so the longest pause of the process that goes unpunished. Default 2 s.
    pub sample_age_max: Duration,
    /// How far wall and monotonic clock may move apart between two samples; every interval is widened by it on both
    /// sides. A larger move is a step. Default 1 ms.
    pub divergence_max: Duration,
    /// The largest rate error of the monotonic clock, in parts per million, that `divergence_max` has to cover over
    /// `sample_age_max`. Default 500, the kernel's own assumption and its largest NTP frequency correction.
    pub drift_ppm_max: u32,
    /// How long samples must agree after a step, a pause or a loss of synchronisation before time is trusted again.
    /// Default 2 s.
    pub stabilisation_window: Duration,
    /// The same for the first samples of a process. Default zero: at its start a process has seen nothing that contradicts
    /// the clock, the kernel's own statement (or, on one machine, the operator's acceptance of the host clock) is all
    /// that waiting could wait for, and the first start on a laptop should not take seconds. It is forfeited by the first
    /// sample that fails: from then on only `stabilisation_window` counts.
    pub start_window: Duration,
    /// Refuses samples that no synchronised kernel vouches for. Default `false`, for one machine; clusters set it.
    pub require_sync: bool,
    /// How often [`TrustedClock`](crate::TrustedClock) takes a sample. Default 100 ms.
    pub sample_interval: Duration,
}

impl Default for ClockOptions {
    fn default() -> Self {
        ClockOptions {
            uncertainty_max: Duration::from_secs(1),
            sample_age_max: Duration::from_secs(2),
            divergence_max: Duration::from_millis(1),
            drift_ppm_max: 500,
            stabilisation_window: Duration::from_secs(2),
            start_window: Duration::ZERO,
            require_sync: false,
            sample_interval: Duration::from_millis(100),
        }
    }
}

/// Limits that do not fit together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClockOptionsError {
    /// Samples could never be used, or never be taken.
    #[error("{name} must be longer than zero")]
    Zero {
        /// The option.
        name: &'static str,
    },
    /// Rounding to milliseconds would break the bound that others rely on.
    #[error("uncertainty_max must be whole milliseconds, it is {uncertainty_max:?}")]
    UncertaintyNotWholeMilliseconds {
        /// The option.
        uncertainty_max: Duration,
    },
    /// The widening alone would use up the tolerated width.
    #[error("2 x divergence_max ({divergence_max:?}) must be at most uncertainty_max ({uncertainty_max:?})")]
    DivergenceTooLarge {
        /// The option.
        divergence_max: Duration,
        /// What it is held against.
        uncertainty_max: Duration,
    },
    /// A carried sample could leave its widened interval.
    #[error(
        "drift_ppm_max ({drift_ppm_max}) over sample_age_max ({sample_age_max:?}) must be at most divergence_max \
         ({divergence_max:?})"
    )]
    DriftNotCovered {
        /// Assumed rate error.
        drift_ppm_max: u32,
        /// How long it works.
        sample_age_max: Duration,
        /// What has to cover it.
        divergence_max: Duration,
    },
    /// One late sample would look like a pause.
    #[error("2 x sample_interval ({sample_interval:?}) must be at most sample_age_max ({sample_age_max:?})")]
    SamplesTooRare {
        /// The option.
        sample_interval: Duration,
        /// What it is held against.
        sample_age_max: Duration,
    },
    /// Time would be trusted again by the first sample after a step.
    #[error(
        "stabilisation_window ({stabilisation_window:?}) must be at least 2 x sample_interval ({sample_interval:?})"
    )]
    WindowTooShort {
        /// The option.
        stabilisation_window: Duration,
        /// What it is held against.
        sample_interval: Duration,
    },
}

impl ClockOptions {
    /// Checks the relations; callers do so once, at start-up, before anything is decided with the clock.
    ///
    /// # Errors
    /// The first relation that does not hold, with the values.
    pub fn check(&self) -> Result<(), ClockOptionsError> {
        let ClockOptions { uncertainty_max, sample_age_max, divergence_max, drift_ppm_max, .. } = *self;
        let ClockOptions { stabilisation_window, sample_interval, .. } = *self;
        let not_zero = [
            ("uncertainty_max", uncertainty_max),
            ("sample_age_max", sample_age_max),
            ("sample_interval", sample_interval),
        ];
        if let Some((name, _)) = not_zero.into_iter().find(|(_, value)| value.is_zero()) {
            return Err(ClockOptionsError::Zero { name });
        }
        if !uncertainty_max.as_nanos().is_multiple_of(1_000_000) {
            return Err(ClockOptionsError::UncertaintyNotWholeMilliseconds { uncertainty_max });
        }
        if divergence_max.saturating_mul(2) > uncertainty_max {
            return Err(ClockOptionsError::DivergenceTooLarge { divergence_max, uncertainty_max });
        }
        let drift_ns = sample_age_max.as_nanos() * u128::from(drift_ppm_max);
        if drift_ns.div_ceil(1_000_000) > divergence_max.as_nanos() {
            return Err(ClockOptionsError::DriftNotCovered { drift_ppm_max, sample_age_max, divergence_max });
        }
        if sample_interval.saturating_mul(2) > sample_age_max {
            return Err(ClockOptionsError::SamplesTooRare { sample_interval, sample_age_max });
        }
        if stabilisation_window < sample_interval.saturating_mul(2) {
            return Err(ClockOptionsError::WindowTooShort { stabilisation_window, sample_interval });
        }
        Ok(())
    }

    pub(crate) fn uncertainty_max_ms(&self) -> i64 {
        i64::try_from(self.uncertainty_max.as_millis()).unwrap_or(i64::MAX)
    }

    /// What a difference is compared with: rounded down, the stricter way.
    pub(crate) fn divergence_max_us(&self) -> i64 {
        micros_floor(self.divergence_max)
    }

    /// What an interval is widened by: rounded up, the safer way.
    pub(crate) fn widening_us(&self) -> i64 {
        micros_ceil(self.divergence_max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const US: Duration = Duration::from_micros(1);

    fn with(change: impl FnOnce(&mut ClockOptions)) -> Result<(), ClockOptionsError> {
        let mut options = ClockOptions::default();
        change(&mut options);
        options.check()
    }

    #[test]
    fn defaults_hold() {
        assert_eq!(ClockOptions::default().check(), Ok(()));
    }

    #[test]
    fn every_relation_at_its_boundary() {
        assert_eq!(
            with(|o| o.sample_age_max = Duration::ZERO),
            Err(ClockOptionsError::Zero { name: "sample_age_max" })
        );
        assert_eq!(
            with(|o| o.sample_interval = Duration::ZERO),
            Err(ClockOptionsError::Zero { name: "sample_interval" })
        );
        assert_eq!(
            with(|o| o.uncertainty_max = Duration::ZERO),
            Err(ClockOptionsError::Zero { name: "uncertainty_max" })
        );

        assert_eq!(with(|o| o.uncertainty_max = 2 * MS), Ok(()), "2 x 1 ms fits");
        assert!(matches!(with(|o| o.uncertainty_max = MS), Err(ClockOptionsError::DivergenceTooLarge { .. })));
        assert!(matches!(
            with(|o| o.uncertainty_max = 3 * MS - US),
            Err(ClockOptionsError::UncertaintyNotWholeMilliseconds { .. })
        ));

        assert_eq!(with(|o| o.drift_ppm_max = 500), Ok(()), "2 s x 500 ppm is exactly 1 ms");
        assert!(matches!(with(|o| o.drift_ppm_max = 501), Err(ClockOptionsError::DriftNotCovered { .. })));
        assert!(matches!(
            with(|o| o.sample_age_max += Duration::from_nanos(1)),
            Err(ClockOptionsError::DriftNotCovered { .. })
        ));
        assert!(matches!(with(|o| o.divergence_max -= US), Err(ClockOptionsError::DriftNotCovered { .. })));

        assert_eq!(with(|o| o.sample_interval = 1000 * MS), Ok(()));
        assert!(matches!(with(|o| o.sample_interval = 1001 * MS), Err(ClockOptionsError::SamplesTooRare { .. })));

        assert_eq!(with(|o| o.stabilisation_window = 200 * MS), Ok(()));
        assert!(matches!(with(|o| o.stabilisation_window = 199 * MS), Err(ClockOptionsError::WindowTooShort { .. })));
    }

    #[test]
    fn texts_name_the_numbers() {
        let error = with(|o| o.drift_ppm_max = 600).expect_err("not covered");
        assert_eq!(
            error.to_string(),
            "drift_ppm_max (600) over sample_age_max (2s) must be at most divergence_max (1ms)"
        );
    }
}
