//! PUBLISH_OUTCOME: the first word on an attempt that is publishing (v2 §§4 and 5).

use protocol::code::StableCode;
use protocol::id::MessageId;
use protocol::mutation_v2::{AttemptResult, Disposition, Outcome, Outcomes, PublishedEvidence, Stamp};
use protocol::policy::UncertainPolicy;

use super::retry::{self, RetryInputs};
use super::verdict::RecordResult;
use super::{ApplyError, At, load};
use crate::state::generation::MessageState;
use crate::state::row;
use crate::state::transaction::Transaction;

pub(crate) fn apply(
    transaction: &mut Transaction<'_>,
    at: &At<'_>,
    body: &Outcomes,
) -> Result<RecordResult, ApplyError> {
    let (mut accepted, mut failed) = (0, 0);
    for entry in &body.entries {
        if settle(transaction, at, &body.stamp, entry)? { accepted += 1 } else { failed += 1 }
    }
    Ok(RecordResult::Owner { accepted, failed })
}

fn settle(transaction: &mut Transaction<'_>, at: &At<'_>, stamp: &Stamp, entry: &Outcome) -> Result<bool, ApplyError> {
    let Some(row) = attempt_row(transaction, entry)? else { return Ok(false) };
    let Some(index) = row.open.iter().position(|open| open.attempt == entry.attempt && !open.uncertain) else {
        return Ok(false);
    };
    let mut after = row.clone();
    let is_current = row.is_live() && row.attempts_used == entry.attempt;
    if entry.result == AttemptResult::Unknown {
        after.open[index].uncertain = true;
        after.possible_duplicate = true;
    } else {
        after.open.remove(index);
    }
    if is_current {
        decide(transaction, at, stamp, entry, &mut after)?;
    } else {
        settle_beside(&mut after, at, entry);
    }
    transaction.replace(entry.message, Some(&row), after)?;
    Ok(true)
}

/// What the current attempt's outcome makes of its generation.
fn decide(
    transaction: &mut Transaction<'_>,
    at: &At<'_>,
    stamp: &Stamp,
    entry: &Outcome,
    after: &mut row::Message,
) -> Result<(), ApplyError> {
    let bindings = transaction.bindings.clone();
    let policy = bindings.policy(after.policy_no()).ok_or_else(|| ApplyError::Integrity {
        detail: format!("message {} is bound to a policy without row", entry.message),
    })?;
    let policy = &policy.policy;
    let inputs = RetryInputs {
        message_id: MessageId { shard: transaction.constitution.shard(), uuid: entry.message },
        policy,
        latest_ms: stamp.latest_ms,
        broker_time_ms: at.broker_time_ms,
        closed_ms: transaction.closed_ms(),
        code: entry.code,
    };
    match &entry.result {
        AttemptResult::Published(evidence) => conclude_published(after, at, entry.attempt, evidence),
        AttemptResult::NotPublished { disposition: Disposition::MessageRetriable, .. } => {
            retry::charge_and_retry(after, &inputs);
        }
        AttemptResult::NotPublished { disposition: Disposition::LaneUnavailable, .. } => {
            retry::return_uncharged(after, inputs.closed_ms, entry.code);
            return Ok(());
        }
        AttemptResult::NotPublished { disposition: Disposition::MessagePermanent, .. } => {
            retry::dead_letter(after, entry.code, at.broker_time_ms);
        }
        AttemptResult::Unknown => {
            after.attempts_unknown += 1;
            let retries = policy.uncertain == UncertainPolicy::BoundedRetryPossibleDuplicate
                && after.attempts_unknown <= policy.uncertain_retries_max;
            if retries {
                retry::charge_and_retry(after, &inputs);
            } else {
                retry::dead_letter(after, entry.code, at.broker_time_ms);
            }
        }
    }
    transaction.totals().retried += u64::from(after.is_live());
    Ok(())
}

/// The row of the generation that an entry's attempt belongs to.
pub(crate) fn attempt_row(
    transaction: &mut Transaction<'_>,
    entry: &Outcome,
) -> Result<Option<row::Message>, ApplyError> {
    Ok(load::message(transaction, entry.message)?.filter(|row| row.generation == entry.generation))
}

/// Ends the generation as published by this attempt. Another attempt that may also have been published makes a possible
/// duplicate.
pub(crate) fn conclude_published(after: &mut row::Message, at: &At<'_>, attempt: u32, evidence: &PublishedEvidence) {
    after.possible_duplicate = !after.open.is_empty();
    let evidence = Some(evidence.to_proto());
    load::conclude(after, MessageState::Published, StableCode::Ok, at.broker_time_ms, attempt, evidence);
}

/// An attempt that is not its generation's current one settles itself and the duplicate risk, no more; only a proven
/// publication ends a live generation.
pub(crate) fn settle_beside(after: &mut row::Message, at: &At<'_>, entry: &Outcome) {
    let AttemptResult::Published(evidence) = &entry.result else { return };
    if after.is_live() {
        conclude_published(after, at, entry.attempt, evidence);
    } else {
        after.possible_duplicate = true;
    }
}
