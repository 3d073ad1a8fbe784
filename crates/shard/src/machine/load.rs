//! Reading a message for a decision: what a fence has closed ends before anything else is asked.

use protocol::code::StableCode;

use crate::state::generation::MessageState;
use crate::state::transaction::Transaction;
use crate::state::{MessageUuid, row};
use crate::store::StoreError;

/// The message's row as every record behind the fence must see it. A generation that waits behind its closed deadline ends
/// here, at the first record that touches it, if no sweep came first; both write the same.
pub(crate) fn message(
    transaction: &mut Transaction<'_>,
    message: MessageUuid,
) -> Result<Option<row::Message>, StoreError> {
    let Some(row) = transaction.message(message)? else { return Ok(None) };
    if !row.is_closed_by(transaction.closed_ms()) {
        return Ok(Some(row));
    }
    expire(transaction, message, &row)?;
    transaction.message(message)
}

/// Ends a waiting generation whose deadline is closed. The terminal time is the deadline, whenever the row is touched.
pub(crate) fn expire(
    transaction: &mut Transaction<'_>,
    message: MessageUuid,
    row: &row::Message,
) -> Result<(), StoreError> {
    let mut after = row.clone();
    conclude_expired(&mut after);
    transaction.replace(message, Some(row), after)
}

/// Makes a row say that its deadline ended it.
pub(crate) fn conclude_expired(row: &mut row::Message) {
    let state = row.state_when_expired();
    let code = match state {
        MessageState::DeadLetter => StableCode::DestinationOutcomeUnknown,
        _ => StableCode::AlreadyExpired,
    };
    conclude(row, state, code, row.expire_at_ms, 0, None);
}

/// Makes a row say that its generation has ended. The decision is written once: an ended row keeps its own.
pub(crate) fn conclude(
    row: &mut row::Message,
    state: MessageState,
    code: StableCode,
    at_ms: i64,
    attempt: u32,
    evidence: Option<protocol::v2::Evidence>,
) {
    if row.terminal.is_some() {
        return;
    }
    row.set_work(row::Work::None);
    row.terminal = Some(row::Terminal {
        state: state as u32,
        code: code.as_u32(),
        at_ms,
        attempt,
        evidence,
        // Known when the row is written: it depends on the limits and the message's identity.
        ends_at_ms: i64::MAX,
    });
}
