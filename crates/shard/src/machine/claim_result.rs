//! CLAIM_RESULT: what can be known never to be deliverable, before any attempt (v2 §4).

use protocol::mutation_v2::{ClaimResult, Refusal};

use super::verdict::RecordResult;
use super::{ApplyError, At, load};
use crate::state::generation::MessageState;
use crate::state::transaction::Transaction;

pub(crate) fn apply(
    transaction: &mut Transaction<'_>,
    at: &At<'_>,
    body: &ClaimResult,
) -> Result<RecordResult, ApplyError> {
    let (mut accepted, mut failed) = (0, 0);
    for entry in &body.entries {
        if refuse(transaction, at, entry)? { accepted += 1 } else { failed += 1 }
    }
    Ok(RecordResult::Owner { accepted, failed })
}

fn refuse(transaction: &mut Transaction<'_>, at: &At<'_>, entry: &Refusal) -> Result<bool, ApplyError> {
    let Some(row) = load::message(transaction, entry.message)? else { return Ok(false) };
    if row.generation != entry.generation || row.log_rev != entry.log_rev || !row.is_reversible() {
        return Ok(false);
    }
    let mut after = row.clone();
    after.error_last = entry.code.as_u32();
    load::conclude(&mut after, MessageState::DeadLetter, entry.code, at.broker_time_ms, 0, None);
    transaction.replace(entry.message, Some(&row), after)?;
    Ok(true)
}
