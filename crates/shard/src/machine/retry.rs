//! What an unsuccessful attempt leads to, computed from the log alone (v2 §5): never from a clock, never carried in a record.

use protocol::code::StableCode;
use protocol::id::MessageId;
use protocol::jitter::{self, RetryDomain};
use protocol::policy::RetryPolicy;

use super::load;
use crate::planted::{self, Mistake};
use crate::state::generation::MessageState;
use crate::state::row;

/// What the retry of one attempt is computed from.
pub(crate) struct RetryInputs<'a> {
    pub(crate) message_id: MessageId,
    pub(crate) policy: &'a RetryPolicy,
    /// The outcome's own latest time.
    pub(crate) latest_ms: i64,
    /// Broker time of the outcome record, the terminal time if this ends the message.
    pub(crate) broker_time_ms: i64,
    pub(crate) closed_ms: i64,
    pub(crate) code: StableCode,
}

/// Charges the attempt and lets the row wait for the next one, or ends it: its attempts or its time are used up, or its
/// deadline is closed. In this order, so that it makes no difference whether the outcome or the fence came first.
pub(crate) fn charge_and_retry(row: &mut row::Message, inputs: &RetryInputs<'_>) {
    row.attempts_charged += u32::from(!planted::is(Mistake::ForgetRetryBudget));
    row.error_last = inputs.code.as_u32();
    let policy = inputs.policy;
    let cap_ms = jitter::backoff_cap_ms(policy.initial_backoff_ms, policy.backoff_ms_max, row.attempts_charged);
    let domain = RetryDomain::MessagePublish;
    let jitter_ms = jitter::delay_ms(domain, &inputs.message_id, row.generation, row.attempts_charged, cap_ms);
    let next_ms = inputs.latest_ms.saturating_add_unsigned(jitter_ms);
    let duration_ms = i64::try_from(policy.retry_duration_ms_max).unwrap_or(i64::MAX);
    let retry_until_ms = row.first_attempt_at_ms.saturating_add(duration_ms);
    if row.attempts_charged >= policy.publish_admissions_max || next_ms > retry_until_ms {
        dead_letter(row, inputs.code, inputs.broker_time_ms);
        return;
    }
    if row.expire_at_ms <= inputs.closed_ms {
        load::conclude_expired(row);
        return;
    }
    // At or behind the deadline there is nothing to wake for: the fence ends it.
    row.eligible_at_ms = next_ms.max(row.deliver_at_ms);
    row.set_work(row.waiting_work());
}

/// Lets the row wait again as if the attempt had not been: a lane's trouble costs its messages nothing.
pub(crate) fn return_uncharged(row: &mut row::Message, closed_ms: i64, code: StableCode) {
    row.error_last = code.as_u32();
    if row.attempts_charged == 0 {
        row.first_attempt_at_ms = 0;
    }
    if row.expire_at_ms <= closed_ms {
        load::conclude_expired(row);
        return;
    }
    row.set_work(row.waiting_work());
}

/// Gives the message up. What may have been delivered says so.
pub(crate) fn dead_letter(row: &mut row::Message, code: StableCode, at_ms: i64) {
    row.error_last = code.as_u32();
    row.possible_duplicate |= row.has_uncertain_attempt();
    let attempt = row.attempts_used;
    load::conclude(row, MessageState::DeadLetter, code, at_ms, attempt, None);
}
