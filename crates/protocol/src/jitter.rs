//! `RETRY_JITTER_V1`: how long to wait before the next attempt (protocol registry §2.7 and §8.6).
//!
//! The wait is a hash of the attempt, not a random number, so that every replay computes the same one.

use crate::hash::{Hash, Preimage, first64};
use crate::id::{IdBytes, MessageId};

/// What is retried; the two never share a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum RetryDomain {
    /// Publication of a message.
    MessagePublish = 1,
    /// Export of a dead letter.
    DlqExport = 2,
}

impl RetryDomain {
    /// The domain with this wire number.
    #[must_use]
    pub const fn from_u8(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::MessagePublish),
            2 => Some(Self::DlqExport),
            _ => None,
        }
    }
}

/// The longest wait after `completed_attempts` (from 1): doubles each time and stops at `backoff_ms_max`.
#[must_use]
pub fn backoff_cap_ms(initial_backoff_ms: u64, backoff_ms_max: u64, completed_attempts: u32) -> u64 {
    let doublings = completed_attempts.saturating_sub(1);
    let doubled = if doublings < u64::BITS { initial_backoff_ms.checked_mul(1 << doublings) } else { None };
    match doubled {
        Some(cap_ms) => cap_ms.min(backoff_ms_max),
        None if initial_backoff_ms == 0 => 0,
        None => backoff_ms_max,
    }
}

/// The digest that the wait is taken from.
#[must_use]
pub fn digest(
    domain: RetryDomain,
    message: &impl IdBytes<MessageId>,
    generation: u32,
    completed_attempts: u32,
) -> Hash {
    Preimage::new("nereus-delay-retry-v1")
        .u8(domain as u8)
        .bytes(&message.id_bytes())
        .u32(generation)
        .u32(completed_attempts)
        .sha256()
}

/// The wait, spread evenly over 0 to `cap_ms` inclusive.
#[must_use]
pub fn delay_ms(
    domain: RetryDomain,
    message: &impl IdBytes<MessageId>,
    generation: u32,
    completed_attempts: u32,
    cap_ms: u64,
) -> u64 {
    let random = u128::from(first64(&digest(domain, message, generation, completed_attempts)));
    let delay = (random * (u128::from(cap_ms) + 1)) >> 64;
    u64::try_from(delay).expect("the product of two values below 2^64 + 1, shifted by 64 bits, is at most the cap")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cap_doubles_and_stops() {
        let caps: Vec<u64> = (1..=6).map(|n| backoff_cap_ms(100, 1_000, n)).collect();
        assert_eq!(caps, [100, 200, 400, 800, 1_000, 1_000]);
        assert_eq!(backoff_cap_ms(1, u64::MAX, 64), 1 << 63);
        assert_eq!(backoff_cap_ms(1, u64::MAX, 65), u64::MAX);
        assert_eq!(backoff_cap_ms(3, u64::MAX, u32::MAX), u64::MAX);
        assert_eq!(backoff_cap_ms(0, 1_000, u32::MAX), 0);
        assert_eq!(backoff_cap_ms(7, 5, 1), 5);
    }

    #[test]
    fn the_published_wait() {
        assert_eq!(delay_ms(RetryDomain::MessagePublish, &[0; 41], 0, 1, 1_000), 865);
        assert_eq!(delay_ms(RetryDomain::MessagePublish, &[0; 41], 0, 1, 0), 0);
        assert!(delay_ms(RetryDomain::MessagePublish, &[0; 41], 0, 1, u64::MAX) > u64::MAX / 2);
    }
}
