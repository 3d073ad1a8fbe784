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
        settle_absent(&mut after, transaction.closed_ms());
    }
    transaction.replace(entry.message, Some(&row), after)?;
    Ok(true)
}

/// One attempt of a live generation is proven absent. Work that waits is of the plainest kind the rest allows; a generation
/// without work and without anything else open gets one retry.
fn settle_absent(after: &mut row::Message, closed_ms: i64) {
    if after.is_reversible() {
        after.set_work(after.waiting_work());
    } else if after.work() == row::Work::None && after.open.is_empty() {
        if after.expire_at_ms <= closed_ms {
            load::conclude_expired(after);
        } else {
            after.set_work(after.waiting_work());
        }
    }
    if !after.has_uncertain_attempt() && after.is_live() {
        after.possible_duplicate = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::generation::MessageState;

    /// A generation whose attempts 1 and up had these outcomes: `true` is uncertain, `false` still publishing. No policy that
    /// can be activated today leaves one without work, so the log cannot tell this story yet.
    fn held(open: &[bool]) -> row::Message {
        let attempts = open.iter().zip(1..);
        row::Message {
            expire_at_ms: 100,
            attempts_used: 3,
            attempts_charged: 1,
            possible_duplicate: true,
            open: attempts
                .map(|(uncertain, attempt)| row::OpenAttempt { attempt, uncertain: *uncertain, ..Default::default() })
                .collect(),
            ..row::Message::default()
        }
    }

    #[test]
    fn absence_schedules_one_retry_when_nothing_else_is_open() {
        let mut after = held(&[]);
        settle_absent(&mut after, 99);
        assert_eq!((after.state(), after.possible_duplicate), (MessageState::RetryWait, false));
        // And only one: what waits already stays as it is.
        let once = after.clone();
        settle_absent(&mut after, 99);
        assert_eq!(after, once);
    }

    #[test]
    fn absence_schedules_nothing_while_another_attempt_is_open() {
        for open in [true, false] {
            let mut after = held(&[open]);
            settle_absent(&mut after, 99);
            assert_eq!((after.work(), after.state()), (row::Work::None, MessageState::Uncertain));
            assert_eq!(after.possible_duplicate, open);
        }
    }

    #[test]
    fn absence_behind_the_deadline_expires() {
        let mut after = held(&[]);
        settle_absent(&mut after, 100);
        assert_eq!(after.state(), MessageState::Expired);
    }
}
