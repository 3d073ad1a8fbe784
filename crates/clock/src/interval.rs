//! The interval that contains the true time, and the three questions business rules ask of it.

use std::fmt;

/// UTC lies in `[earliest_ms, latest_ms]`: two instants in milliseconds since 1970, `0 <= earliest <= latest`.
///
/// The three predicates are the whole vocabulary of time decisions. For one `expire_at_ms` there are intervals for which
/// neither [`may_admit`](Self::may_admit) nor [`is_expired`](Self::is_expired) holds: then nothing may happen yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrustedInterval {
    earliest_ms: i64,
    latest_ms: i64,
}

impl TrustedInterval {
    /// The interval, or `None` unless `0 <= earliest_ms <= latest_ms`.
    pub const fn new(earliest_ms: i64, latest_ms: i64) -> Option<TrustedInterval> {
        if 0 <= earliest_ms && earliest_ms <= latest_ms {
            Some(TrustedInterval { earliest_ms, latest_ms })
        } else {
            None
        }
    }

    /// The earliest instant it can be.
    pub const fn earliest_ms(self) -> i64 {
        self.earliest_ms
    }

    /// The latest instant it can be.
    pub const fn latest_ms(self) -> i64 {
        self.latest_ms
    }

    /// `latest - earliest`, in milliseconds.
    pub const fn width_ms(self) -> i64 {
        self.latest_ms - self.earliest_ms
    }

    /// The instant in the middle, rounded down. For stamps that need one number, never for a decision.
    pub const fn midpoint_ms(self) -> i64 {
        self.earliest_ms + self.width_ms() / 2
    }

    /// Whether `action_at_ms` has certainly come: `earliest >= action_at` (T5).
    pub const fn is_due(self, action_at_ms: i64) -> bool {
        self.earliest_ms >= action_at_ms
    }

    /// Whether `expire_at_ms` has certainly not come: `latest < expire_at` (T6).
    pub const fn may_admit(self, expire_at_ms: i64) -> bool {
        self.latest_ms < expire_at_ms
    }

    /// Whether `expire_at_ms` has certainly come: `earliest >= expire_at` (T7).
    pub const fn is_expired(self, expire_at_ms: i64) -> bool {
        self.earliest_ms >= expire_at_ms
    }
}

impl fmt::Display for TrustedInterval {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "[{}, {}] ms", self.earliest_ms, self.latest_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_ordered_and_not_negative() {
        assert!(TrustedInterval::new(0, 0).is_some());
        assert!(TrustedInterval::new(7, 7).is_some());
        assert!(TrustedInterval::new(7, 8).is_some());
        assert!(TrustedInterval::new(0, i64::MAX).is_some());
        assert_eq!(TrustedInterval::new(8, 7), None);
        assert_eq!(TrustedInterval::new(-1, 7), None);
        assert_eq!(TrustedInterval::new(-2, -1), None);
    }

    #[test]
    fn every_inequality_at_its_boundary() {
        let now = TrustedInterval::new(100, 110).expect("ordered");
        assert!(now.is_due(100));
        assert!(!now.is_due(101), "the true time may still be 100");
        assert!(now.may_admit(111));
        assert!(!now.may_admit(110), "the true time may already be 110, which is expired");
        assert!(now.is_expired(100));
        assert!(!now.is_expired(101));
        for undecided in 101..=110 {
            assert!(!now.may_admit(undecided) && !now.is_expired(undecided));
        }
    }

    #[test]
    fn the_midpoint_rounds_down_and_cannot_overflow() {
        let of = |earliest, latest| TrustedInterval::new(earliest, latest).expect("ordered").midpoint_ms();
        assert_eq!(of(10, 10), 10);
        assert_eq!(of(10, 11), 10);
        assert_eq!(of(10, 12), 11);
        assert_eq!(of(i64::MAX - 1, i64::MAX), i64::MAX - 1);
        assert_eq!(of(0, i64::MAX), i64::MAX / 2);
    }
}
