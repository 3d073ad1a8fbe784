//! TIME_FENCE: closes every deadline through a time, for ever, and sweeps what it ended (v2 §4).
//!
//! What the fence closed has ended for every record behind it, at once (see [`load`](super::load)). The sweep writes it down
//! in bounded steps, earliest deadline first, so that a million expiries on one lane delay nobody.

use protocol::code::StableCode;
use protocol::mutation_v2::{MutationV2, TimeFence};

use super::mutation::{interval_refusal, refuse, stale};
use super::verdict::{RecordResult, Rule};
use super::{ApplyError, At, load};
use crate::effect::Effect;
use crate::planted::{self, Mistake};
use crate::state::keys::timeline;
use crate::state::transaction::Transaction;
use crate::state::{envelope, message_uuid, row};
use crate::store::{Family, StoreError};

pub(crate) fn apply(
    transaction: &mut Transaction<'_>,
    at: &At<'_>,
    mutation: &MutationV2,
    body: &TimeFence,
) -> Result<RecordResult, ApplyError> {
    let stamp = &body.stamp;
    if let Some(detail) = interval_refusal(transaction, stamp) {
        return Ok(stale(transaction, at, mutation, Rule::IntervalTooWide, detail));
    }
    let limits = transaction.limits();
    let proven_ms = match planted::is(Mistake::CloseByLatest) {
        true => stamp.latest_ms,
        false => stamp.earliest_ms.saturating_sub(limits.fence_margin_ms),
    };
    let logged_ms = at.broker_time_ms.saturating_add(limits.broker_time_divergence_ms_max);
    if body.close_through_ms > proven_ms.min(logged_ms) {
        let detail = format!(
            "closes through {} ms; its clock proves {proven_ms} ms and the log's time allows {logged_ms} ms",
            body.close_through_ms
        );
        let code = StableCode::UnauthorizedSystemMutation;
        return Ok(refuse(transaction, at, mutation, code, Rule::FenceNotProven, detail));
    }
    let visits_max = body.expire_max.min(limits.expire_per_fence_max);
    transaction.progress.closed_ms = transaction.progress.closed_ms.max(body.close_through_ms);
    let visited = sweep(transaction, visits_max)?;
    Ok(RecordResult::Owner { accepted: visited, failed: 0 })
}

/// Visits closed deadlines, at most `visits_max`, and says when that was not all. A generation that is publishing or held is left to its outcome, which will
/// end it; its key goes all the same, so that no later sweep meets it again.
fn sweep(transaction: &mut Transaction<'_>, visits_max: u32) -> Result<u32, ApplyError> {
    let range = timeline::expiries(transaction.expiry_floor_ms, transaction.closed_ms());
    let visits_max = usize::try_from(visits_max).unwrap_or(usize::MAX);
    // One more than may be visited tells whether any is left.
    let mut due = transaction.scan(Family::Timeline, range, visits_max.saturating_add(1))?;
    let is_finished = due.len() <= visits_max;
    due.truncate(visits_max);
    for (key, value) in &due {
        let entry: row::TimelineEntry = envelope::decode(value)?;
        let message = message_uuid(&entry.message)
            .ok_or_else(|| StoreError::Corrupt { detail: "an expiry names no message".to_owned() })?;
        // The key goes first: ending the row deletes it again, which is harmless, and a row that stays must lose it.
        transaction.delete(Family::Timeline, key.clone());
        load::message(transaction, message)?;
        let (expire_at_ms, _) = timeline::decode_expiry(key)?;
        transaction.expiry_floor_ms = expire_at_ms;
    }
    if is_finished {
        transaction.expiry_floor_ms = transaction.closed_ms();
    } else {
        transaction.emit(Effect::SweepUnfinished);
    }
    Ok(u32::try_from(due.len()).unwrap_or(u32::MAX))
}
