//! Says in good time that a shard fills up: past its limits, new messages are refused.

use protocol::mutation_v2::Limits;
use shard::state::row::Progress;

/// A warning comes from here on.
const WARN_PERCENT: u64 = 80;
/// Below this the next one may come, so that a shard on the border does not repeat itself.
const CALM_PERCENT: u64 = 75;

/// A limit of which four fifths are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QuotaWarning {
    pub(crate) limit_name: &'static str,
    pub(crate) used: u64,
    pub(crate) limit: u64,
}

/// Remembers what was warned of.
#[derive(Debug, Default)]
pub(crate) struct QuotaWatch {
    messages: Gauge,
    bytes: Gauge,
}

#[derive(Debug, Default)]
struct Gauge {
    has_warned: bool,
}

impl QuotaWatch {
    /// What is to be said now.
    pub(crate) fn look(&mut self, progress: &Progress, limits: &Limits) -> impl Iterator<Item = QuotaWarning> + use<> {
        let messages =
            self.messages.look("limits.active_messages_max", progress.active_messages, limits.active_messages_max);
        let bytes = self.bytes.look("limits.active_bytes_max", progress.active_bytes, limits.active_bytes_max);
        messages.into_iter().chain(bytes)
    }
}

impl Gauge {
    fn look(&mut self, limit_name: &'static str, used: u64, limit: u64) -> Option<QuotaWarning> {
        let percent = u128::from(used) * 100 / u128::from(limit.max(1));
        if percent < u128::from(CALM_PERCENT) {
            self.has_warned = false;
        }
        if self.has_warned || percent < u128::from(WARN_PERCENT) {
            return None;
        }
        self.has_warned = true;
        Some(QuotaWarning { limit_name, used, limit })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_warning_at_four_fifths_and_another_only_after_a_calm() {
        let mut gauge = Gauge::default();
        let warnings = [79, 80, 90, 76, 81, 74, 79, 80].map(|used| gauge.look("messages", used, 100).is_some());
        assert_eq!(warnings, [false, true, false, false, false, false, false, true]);
        assert_eq!(Gauge::default().look("bytes", u64::MAX, u64::MAX).map(|warning| warning.limit), Some(u64::MAX));
    }
}
