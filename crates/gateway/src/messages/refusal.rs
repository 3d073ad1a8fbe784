//! What a shard's refusal of a message means to its sender, with the numbers behind it.

use client::api::problem::Problem;
use client::duration::DisplayDelay;
use protocol::code::StableCode;
use protocol::mutation_v2::Limits;
use shard::machine::verdict::{Rule, Verdict};

/// What the command asked for, and what it is measured against.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked<'a> {
    /// The limits of the route.
    pub(super) limits: &'a Limits,
    /// The longest delay of the destination.
    pub(super) delay_ms_max: i64,
    /// The delivery time.
    pub(super) deliver_at_ms: i64,
    /// The expiry.
    pub(super) expire_at_ms: i64,
    /// The service's clock.
    pub(super) now_ms: i64,
}

/// A refused Schedule or Reschedule as a problem. What only the message itself can tell is for the caller to add.
pub(super) fn problem(verdict: &Verdict, asked: &Asked<'_>) -> Problem {
    let limits = asked.limits;
    let code = verdict.code;
    let refused = |detail: String| Problem::new(code, format!("{detail}; nothing was taken"));
    match (code, verdict.rule) {
        (StableCode::InvalidDeliveryWindow, rule) => window(rule, asked),
        (StableCode::HardQuotaExceeded, Rule::ActiveBytes) => {
            let limit = limits.active_bytes_max;
            let detail =
                format!("the shard holds its limit of {limit} bytes of live messages (limits.active_bytes_max)");
            Problem { limit_bytes: Some(limit), ..refused(detail) }
        }
        (StableCode::HardQuotaExceeded, _) => {
            let limit = limits.active_messages_max;
            refused(format!("the shard holds its limit of {limit} live messages (limits.active_messages_max)"))
        }
        (StableCode::DestinationLaneLimitExceeded, _) => {
            let limit = limits.lanes_max;
            refused(format!(
                "the shard has its limit of {limit} lanes (limits.lanes_max), and the message needs another"
            ))
        }
        (StableCode::RouteNotActive, _) => {
            refused("an operator has stopped new messages on this route".to_owned()).field("destination")
        }
        (StableCode::ProfileVersionNotActiveAtSourcePosition | StableCode::RetryPolicyNotActiveAtSourcePosition, _) => {
            refused("the shard does not know this version of the destination; send a new request".to_owned())
                .field("destination")
        }
        (StableCode::ProfileDeprecatedForNewUse, _) => {
            refused("this version of the destination is closed to new messages".to_owned()).field("destination")
        }
        (StableCode::DelayMessageIdExpired, _) => {
            let age = DisplayDelay(limits.preparation_age_ms_max);
            refused(format!(
                "the command was prepared more than {age} ago (limits.preparation_age_max); send a new request"
            ))
        }
        (StableCode::DelayMessageIdConflict, _) => refused("the message exists already".to_owned()),
        (_, Rule::None) => refused(format!("the shard refused it: {code}")),
        (_, rule) => refused(format!("the shard refused it: {rule}")),
    }
}

fn window(rule: Rule, asked: &Asked<'_>) -> Problem {
    let Asked { limits, delay_ms_max, deliver_at_ms, expire_at_ms, now_ms } = *asked;
    let refused = |field: &'static str, limit_ms: i64, actual_ms: i64| {
        let detail = format!(
            "{rule}: {actual_ms} ms, the limit is {limit_ms} ms ({}); nothing was taken",
            DisplayDelay(limit_ms)
        );
        Problem::new(StableCode::InvalidDeliveryWindow, detail).field(field).limit_ms(limit_ms, actual_ms)
    };
    match rule {
        Rule::WindowTooShort => {
            let window_ms = expire_at_ms.saturating_sub(deliver_at_ms.max(now_ms));
            refused("expires_at", limits.delivery_window_ms_min, window_ms)
        }
        Rule::DelayTooLong => {
            refused("deliver_at", delay_ms_max.min(limits.delay_ms_max), deliver_at_ms.saturating_sub(now_ms))
        }
        Rule::LifetimeTooLong => refused("expires_at", limits.lifetime_ms_max, expire_at_ms.saturating_sub(now_ms)),
        _ => {
            let detail = format!("the expiry, {expire_at_ms} ms, has passed; nothing was taken");
            Problem::new(StableCode::InvalidDeliveryWindow, detail).field("expires_at")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn window_refusals_name_the_field_the_limit_and_what_was_asked() {
        let limits =
            Limits { delivery_window_ms_min: 5_000, delay_ms_max: 100_000, lifetime_ms_max: 200_000, ..limits() };
        let asked =
            Asked { limits: &limits, delay_ms_max: 60_000, deliver_at_ms: 71_000, expire_at_ms: 75_000, now_ms: 1_000 };
        let of = |rule| {
            let problem = window(rule, &asked);
            (problem.field.unwrap_or_default(), problem.limit_ms, problem.actual_ms)
        };
        assert_eq!(of(Rule::WindowTooShort), ("expires_at".to_owned(), Some(5_000), Some(4_000)));
        // The destination's own limit is the shorter one.
        assert_eq!(of(Rule::DelayTooLong), ("deliver_at".to_owned(), Some(60_000), Some(70_000)));
        assert_eq!(of(Rule::LifetimeTooLong), ("expires_at".to_owned(), Some(200_000), Some(74_000)));
        assert_eq!(of(Rule::DeadlineClosed), ("expires_at".to_owned(), None, None));
    }

    fn limits() -> Limits {
        Limits {
            delay_ms_max: 1,
            lifetime_ms_max: 1,
            delivery_window_ms_min: 1,
            preparation_age_ms_max: 1,
            uuid_future_skew_ms_max: 1,
            command_retry_window_ms: 1,
            control_retry_window_ms_max: 1,
            broker_time_divergence_ms_max: 1,
            fence_margin_ms: 1,
            clock_interval_ms_max: 1,
            terminal_retention_ms: 1,
            dead_letter_retention_ms: 1,
            receipt_query_window_ms: 1,
            active_messages_max: 1,
            active_bytes_max: 1,
            lanes_max: 1,
            entries_per_record_max: 1,
            expire_per_fence_max: 1,
            business_key_bytes_max: 1,
        }
    }
}
