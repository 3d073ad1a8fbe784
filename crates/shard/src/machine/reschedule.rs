//! RESCHEDULE: gives a message that waits a new time, as a new generation (protocol registry §4.6).

use protocol::code::StableCode;
use protocol::command::Reschedule;
use protocol::id::MessageId;

use super::cancel::{failed_precondition, not_reversible};
use super::schedule::check_window;
use super::verdict::Verdict;
use super::{ApplyError, At, load};
use crate::state::row;
use crate::state::transaction::Transaction;

pub(crate) fn apply(
    transaction: &mut Transaction<'_>,
    at: &At<'_>,
    message_id: MessageId,
    body: &Reschedule,
) -> Result<Verdict, ApplyError> {
    let message = message_id.uuid;
    let Some(row) = load::message(transaction, message)? else {
        return Ok(Verdict::applied(StableCode::NotFound, None));
    };
    if let Some(code) = failed_precondition(&body.precondition, &row).or_else(|| not_reversible(&row)) {
        return Ok(Verdict::applied(code, Some(&row)));
    }
    let delay_ms_max = profile_delay_ms_max(transaction, &row)?;
    if let Err(rule) = check_window(transaction, at, body.deliver_at_ms, body.expire_at_ms, delay_ms_max) {
        let refused = Verdict::rejected(StableCode::InvalidDeliveryWindow, rule);
        return Ok(Verdict { generation: Some(row.generation), state_version: Some(row.state_version), ..refused });
    }
    let generation = row
        .generation
        .checked_add(1)
        .ok_or_else(|| ApplyError::Integrity { detail: format!("generations of message {message} are used up") })?;
    let mut after = row::Message {
        generation,
        state_version: row.state_version + 1,
        seq: transaction.next_seq().0,
        deliver_at_ms: body.deliver_at_ms,
        expire_at_ms: body.expire_at_ms,
        eligible_at_ms: body.deliver_at_ms,
        attempts_used: 0,
        attempts_charged: 0,
        attempts_unknown: 0,
        first_attempt_at_ms: 0,
        error_last: 0,
        generation_at_ms: at.broker_time_ms,
        ..row.clone()
    };
    after.set_work(row::Work::Initial);
    let verdict = Verdict::applied(StableCode::Superseded, Some(&after));
    transaction.replace(message, Some(&row), after)?;
    transaction.totals().rescheduled += 1;
    Ok(verdict)
}

fn profile_delay_ms_max(transaction: &mut Transaction<'_>, row: &row::Message) -> Result<i64, ApplyError> {
    let lane = transaction.lane(row.lane_no())?;
    let (profile_id, version) = (lane.profile_id.clone(), lane.profile_version);
    let profile = transaction.bindings.profile(&profile_id, version).ok_or_else(|| ApplyError::Integrity {
        detail: format!("lane {} is bound to a profile version that has no row", row.lane_no),
    })?;
    Ok(profile.profile.delay_ms_max)
}
