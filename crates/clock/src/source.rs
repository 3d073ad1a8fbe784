//! What the guard needs of a clock: a bounded reading of UTC, tied to a reading of a clock that only goes forward.

use std::time::Duration;

/// One reading of a wall clock with its bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// UTC at the anchor is no earlier than this, in microseconds since 1970, if the source is right.
    pub earliest_us: i64,
    /// UTC at the anchor is no later than this, in microseconds since 1970, if the source is right.
    pub latest_us: i64,
    /// The monotonic clock at the instant the bounds speak of.
    pub anchor: Duration,
    /// Whether the bounds are the word of something that follows a reference clock (the kernel, disciplined by NTP or PTP),
    /// not merely the machine's own clock with an assumed error.
    pub synchronised: bool,
}

impl Sample {
    /// The middle of the bounds, in microseconds.
    pub(crate) fn midpoint_us(&self) -> i64 {
        self.earliest_us.midpoint(self.latest_us)
    }
}

/// A clock to observe.
pub trait ClockSource: Send + Sync + 'static {
    /// Reads the wall clock. Never blocks.
    fn sample(&self) -> Sample;

    /// Reads the monotonic clock: elapsed time since an arbitrary origin, never less than an earlier reading, and running
    /// while the machine is suspended. Costs nanoseconds.
    fn monotonic(&self) -> Duration;
}

/// Whole microseconds of a duration, rounded down; saturates after 292,000 years.
pub(crate) fn micros_floor(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

/// Whole microseconds of a duration, rounded up.
pub(crate) fn micros_ceil(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos().div_ceil(1_000)).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_goes_the_way_its_name_says() {
        let ns = Duration::from_nanos;
        assert_eq!((micros_floor(ns(0)), micros_ceil(ns(0))), (0, 0));
        assert_eq!((micros_floor(ns(1)), micros_ceil(ns(1))), (0, 1));
        assert_eq!((micros_floor(ns(1_000)), micros_ceil(ns(1_000))), (1, 1));
        assert_eq!((micros_floor(ns(1_999)), micros_ceil(ns(1_999))), (1, 2));
        assert_eq!((micros_floor(Duration::MAX), micros_ceil(Duration::MAX)), (i64::MAX, i64::MAX));
    }
}
