//! Randomness by purpose: every part of a world draws from a stream of its own.
//!
//! A new draw in one place then leaves all others as they were, so a seed that once found a fault still means the same run
//! after the next change.

use std::time::Duration;

use fastrand::Rng;
use protocol::hash::{Preimage, first64};

/// The stream of a purpose in the world of a seed.
pub fn stream(seed: u64, purpose: &str) -> Rng {
    let digest = Preimage::new("nereus-delay-world\0").u64(seed).bytes(purpose.as_bytes()).sha256();
    Rng::with_seed(first64(&digest))
}

/// How long something takes: evenly spread over a range, both ends included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delay {
    min_ms: u64,
    max_ms: u64,
}

impl Delay {
    /// No time at all.
    pub const NONE: Delay = Delay { min_ms: 0, max_ms: 0 };

    /// Always the same.
    pub const fn fixed(ms: u64) -> Delay {
        Delay { min_ms: ms, max_ms: ms }
    }

    /// At least `min_ms`, at most `max_ms`.
    pub const fn between(min_ms: u64, max_ms: u64) -> Delay {
        Delay { min_ms, max_ms }
    }

    pub(crate) fn draw(self, random: &mut Rng) -> Duration {
        Duration::from_millis(random.u64(self.min_ms..=self.max_ms.max(self.min_ms)))
    }
}

/// True in `percent` of a hundred cases.
pub(crate) fn chance(random: &mut Rng, percent: u8) -> bool {
    // Drawn in any case, so that another percentage leaves what follows as it was.
    random.u8(0..100) < percent
}
