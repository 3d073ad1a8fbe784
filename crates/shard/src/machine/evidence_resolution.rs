//! EVIDENCE_RESOLUTION: later proof about an attempt nobody could vouch for (v2 §4).

use protocol::mutation_v2::{AttemptResult, Outcome, Outcomes};

use super::publish_outcome::{attempt_row, settle_beside};
use super::verdict::RecordResult;
use super::{ApplyError, At, load};
use crate::state::row;
use crate::state::transaction::Transaction;

pub(crate) fn apply(
    transaction: &mut Transaction<'_>,
    at: &At<'_>,
    body: &Outcomes,
) -> Result<RecordResult, ApplyError> {
    let (mut accepted, mut failed) = (0, 0);
    for entry in &body.entries {
        if resolve(transaction, at, entry)? { accepted += 1 } else { failed += 1 }
    }
    Ok(RecordResult::Owner { accepted, failed })
}

fn resolve(transaction: &mut Transaction<'_>, at: &At<'_>, entry: &Outcome) -> Result<bool, ApplyError> {
    let Some(row) = attempt_row(transaction, entry)? else { return Ok(false) };
    let Some(index) = row.open.iter().position(|open| open.attempt == entry.attempt && open.uncertain) else {
        return Ok(false);
    };
    // Still unknown: nothing is settled.
    if entry.result == AttemptResult::Unknown {
        return Ok(false);
    }
    let mut after = row.clone();
    after.open.remove(index);
    settle_beside(&mut after, at, entry);
    if after.is_live() {
        settle_absent(transaction, &mut after);
    }
    transaction.replace(entry.message, Some(&row), after)?;
    Ok(true)
}

/// One attempt of a live generation is proven absent. Work that waits is of the plainest kind the rest allows; a generation
/// without work and without anything else open gets one retry.
fn settle_absent(transaction: &Transaction<'_>, after: &mut row::Message) {
    if after.is_reversible() {
        after.set_work(after.waiting_work());
    } else if after.work() == row::Work::None && after.open.is_empty() {
        if after.expire_at_ms <= transaction.closed_ms() {
            load::conclude_expired(after);
        } else {
            after.set_work(after.waiting_work());
        }
    }
    if !after.has_uncertain_attempt() && after.is_live() {
        after.possible_duplicate = false;
    }
}
