//! CANCEL: ends a message before anything of it is admitted (protocol registry §4.5).

use protocol::code::StableCode;
use protocol::command::{Cancel, Precondition};
use protocol::id::MessageId;

use super::verdict::Verdict;
use super::{ApplyError, At, load};
use crate::state::generation::MessageState;
use crate::state::row;
use crate::state::transaction::Transaction;

pub(crate) fn apply(
    transaction: &mut Transaction<'_>,
    at: &At<'_>,
    message_id: MessageId,
    body: &Cancel,
) -> Result<Verdict, ApplyError> {
    let message = message_id.uuid;
    let Some(row) = load::message(transaction, message)? else {
        return Ok(Verdict::applied(StableCode::NotFound, None));
    };
    if let Some(code) = failed_precondition(&body.precondition, &row).or_else(|| not_reversible(&row)) {
        return Ok(Verdict::applied(code, Some(&row)));
    }
    let mut after = row.clone();
    after.state_version += 1;
    load::conclude(&mut after, MessageState::Canceled, StableCode::Canceled, at.broker_time_ms, 0, None);
    let verdict = Verdict::applied(StableCode::Canceled, Some(&after));
    transaction.replace(message, Some(&row), after)?;
    Ok(verdict)
}

/// What the caller expected of the message and is not so. Decided before state: a matching version never bypasses it.
pub(crate) fn failed_precondition(precondition: &Precondition, row: &row::Message) -> Option<StableCode> {
    match precondition.generation {
        Some(expected) if expected < row.generation => return Some(StableCode::GenerationSuperseded),
        Some(expected) if expected > row.generation => return Some(StableCode::VersionConflict),
        _ => {}
    }
    match precondition.state_version {
        Some(expected) if expected != row.state_version => Some(StableCode::VersionConflict),
        _ => None,
    }
}

/// Why a message cannot be cancelled or moved any more, or `None` when it can.
pub(crate) fn not_reversible(row: &row::Message) -> Option<StableCode> {
    match row.state() {
        MessageState::Scheduled | MessageState::RetryWait => None,
        // What may have been delivered cannot be taken back, whatever waits next.
        MessageState::Publishing | MessageState::Uncertain => Some(StableCode::TooLate),
        MessageState::Published => Some(StableCode::AlreadyPublished),
        MessageState::Canceled => Some(StableCode::AlreadyCanceled),
        MessageState::Expired => Some(StableCode::AlreadyExpired),
        MessageState::DeadLetter => Some(StableCode::AlreadyDeadLettered),
    }
}
