//! What a new shard's limits are unless somebody chooses others (v2 §12).
//!
//! They only seed a genesis record: from then on the shard goes by what its log says.

use protocol::mutation_v2::Limits;

const SECOND_MS: i64 = 1_000;
const MINUTE_MS: i64 = 60 * SECOND_MS;
const HOUR_MS: i64 = 60 * MINUTE_MS;
const DAY_MS: i64 = 24 * HOUR_MS;

/// Ten years with their leap days: yearly reminders work, and a duration in the wrong unit is caught.
const DELAY_MS_MAX: i64 = 3_653 * DAY_MS;
/// Late beats lost: this long after its time a message is still delivered.
const EXPIRES_AFTER_MS: i64 = 30 * DAY_MS;

/// The default limits, for the embedded log; a route on Kafka or Pulsar allows its brokers' clocks more divergence.
pub fn default_limits() -> Limits {
    Limits {
        delay_ms_max: DELAY_MS_MAX,
        lifetime_ms_max: DELAY_MS_MAX + EXPIRES_AFTER_MS,
        // More than the widest clock interval and a slow admission together (T8): every message can be admitted.
        delivery_window_ms_min: 5 * SECOND_MS,
        preparation_age_ms_max: DAY_MS,
        uuid_future_skew_ms_max: 5 * MINUTE_MS,
        command_retry_window_ms: DAY_MS,
        control_retry_window_ms_max: DAY_MS,
        broker_time_divergence_ms_max: 10,
        fence_margin_ms: SECOND_MS,
        clock_interval_ms_max: SECOND_MS,
        terminal_retention_ms: 7 * DAY_MS,
        dead_letter_retention_ms: 30 * DAY_MS,
        receipt_query_window_ms: DAY_MS,
        active_messages_max: 20_000_000,
        active_bytes_max: 50 << 30,
        lanes_max: 10_000,
        entries_per_record_max: 1_000,
        expire_per_fence_max: 10_000,
        business_key_bytes_max: 256,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The slowest healthy way from the decision to admit to its record in the log.
    const DECISION_MS: i64 = 2 * SECOND_MS;

    #[test]
    fn the_defaults_fit_each_other() {
        let limits = default_limits();
        // T8: whatever the clock's doubt, a message can be admitted between its time and its deadline.
        assert!(limits.delivery_window_ms_min > limits.clock_interval_ms_max + DECISION_MS);
        // The longest delay leaves room for the default expiry.
        assert_eq!(limits.lifetime_ms_max, limits.delay_ms_max + EXPIRES_AFTER_MS);
        // A client may retry for as long as its ids are fresh, and ask for its receipt for as long.
        assert!(limits.command_retry_window_ms <= limits.preparation_age_ms_max);
        assert!(limits.receipt_query_window_ms >= limits.command_retry_window_ms);
        // Whoever replays dead letters has longer than whoever only looks.
        assert!(limits.dead_letter_retention_ms > limits.terminal_retention_ms);
        // A fence that could sweep nothing would never finish.
        assert!(limits.expire_per_fence_max > 0 && limits.entries_per_record_max > 0);
    }
}
