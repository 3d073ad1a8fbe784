//! PUBLISH_ADMISSION: the point of no return of each attempt that it admits (v2 §4).

use protocol::mutation_v2::{Admission, MutationV2, PublishAdmission, Stamp};

use super::mutation::{interval_refusal, stale};
use super::verdict::{RecordResult, Rule};
use super::{ApplyError, At, load};
use crate::effect::Effect;
use crate::planted::{self, Mistake};
use crate::state::keys::open;
use crate::state::transaction::Transaction;
use crate::state::{row, uuid_bytes};
use crate::store::Family;

pub(crate) fn apply(
    transaction: &mut Transaction<'_>,
    at: &At<'_>,
    mutation: &MutationV2,
    body: &PublishAdmission,
) -> Result<RecordResult, ApplyError> {
    if let Some(detail) = interval_refusal(transaction, &body.stamp) {
        return Ok(stale(transaction, at, mutation, Rule::IntervalTooWide, detail));
    }
    let mut admitted = Vec::new();
    let mut failed = 0;
    for entry in &body.entries {
        match admit(transaction, at, body, entry)? {
            Some(entry) => admitted.push(entry),
            None => failed += 1,
        }
    }
    let accepted = u32::try_from(admitted.len()).unwrap_or(u32::MAX);
    if accepted > 0 {
        transaction.totals().admitted += u64::from(accepted);
        let remaining = row::Remaining { publishing: accepted };
        let record = row::Admitted {
            position: at.position.to_bytes().into(),
            owner_epoch: transaction.progress.owner_epoch,
            entries: admitted,
        };
        transaction.put_row(Family::Open, open::admitted(at.order_token.as_bytes()), &record, None);
        transaction.put_row(Family::Open, open::remaining(at.order_token.as_bytes()), &remaining, None);
    }
    Ok(RecordResult::Owner { accepted, failed })
}

fn admit(
    transaction: &mut Transaction<'_>,
    at: &At<'_>,
    body: &PublishAdmission,
    entry: &Admission,
) -> Result<Option<row::AdmittedEntry>, ApplyError> {
    let message = entry.message;
    let Some(row) = load::message(transaction, message)? else { return Ok(None) };
    let is_of_this_revision = row.log_rev == entry.log_rev || planted::is(Mistake::LoseLogRev);
    if row.generation != entry.generation || !is_of_this_revision || !row.is_reversible() {
        return Ok(None);
    }
    let stamp = &body.stamp;
    if !may_be_admitted(transaction, at, stamp, &row)? {
        // The revision moves, so that a late second copy of this record can never revive the entry.
        transaction.replace(message, Some(&row), row.clone())?;
        return Ok(None);
    }
    let attempt = row
        .attempts_used
        .checked_add(u32::from(!planted::is(Mistake::ReuseAttempt) || row.attempts_used == 0))
        .ok_or_else(|| ApplyError::Integrity { detail: format!("attempts of {message:?} are used up") })?;
    let mut after = row.clone();
    after.set_work(row::Work::Publishing);
    after.attempts_used = attempt;
    if after.first_attempt_at_ms == 0 {
        after.first_attempt_at_ms = stamp.latest_ms;
    }
    after.open.push(row::OpenAttempt {
        attempt,
        uncertain: false,
        owner_epoch: transaction.progress.owner_epoch,
        admission: at.order_bytes(),
        admitted_at_ms: at.broker_time_ms,
    });
    let (lane_no, generation, log_rev) = (row.lane_no(), row.generation, row.log_rev);
    transaction.replace(message, Some(&row), after)?;
    let admission = at.order_bytes();
    transaction.emit(Effect::Admitted { lane_no, message, generation, attempt, log_rev, admission });
    Ok(Some(row::AdmittedEntry { message: uuid_bytes(message), generation, attempt }))
}

/// Gates, time and budget, in the order the protocol gives them.
fn may_be_admitted(
    transaction: &mut Transaction<'_>,
    at: &At<'_>,
    stamp: &Stamp,
    row: &row::Message,
) -> Result<bool, ApplyError> {
    let lane = transaction.lane(row.lane_no())?;
    let lane_open = lane.gate() == row::Gate::Open;
    let profile_id = lane.profile_id.clone();
    let gates_open = lane_open && !transaction.bindings.is_paused(&profile_id);
    let divergence_ms = transaction.limits().broker_time_divergence_ms_max;
    let persisted_in_time = at.broker_time_ms.saturating_add(divergence_ms) < row.expire_at_ms;
    let attempts_left = transaction
        .bindings
        .policy(row.policy_no())
        .is_some_and(|policy| row.attempts_charged < policy.policy.publish_admissions_max);
    let proven_ms = if planted::is(Mistake::DueByLatest) { stamp.latest_ms } else { stamp.earliest_ms };
    Ok(gates_open
        && proven_ms >= row.eligible_at_ms
        && stamp.latest_ms < row.expire_at_ms
        && persisted_in_time
        && row.expire_at_ms > transaction.closed_ms()
        && attempts_left)
}
