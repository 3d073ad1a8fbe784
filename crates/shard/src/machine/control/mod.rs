//! Shard control: an operator's signed record, applied once (v2 §3; the kinds are the registry's and ours from 15).

mod bindings;
mod gates;
mod genesis;
mod keys;

use bytes::Bytes;
use protocol::code::StableCode;
use protocol::mutation_v2::{ControlPayload, MutationV2, ShardControl};

use super::mutation::refuse;
use super::verdict::{RecordResult, Rule};
use super::{ApplyError, At};
use crate::state::keys::dedupe;
use crate::state::row;
use crate::state::transaction::Transaction;
use crate::store::Family;

pub use genesis::GenesisRefusal;
pub(crate) use genesis::begin;

/// The result of one operation, before it is written down.
pub(crate) struct Done {
    code: StableCode,
    rule: Rule,
}

impl Done {
    fn ok() -> Done {
        Done { code: StableCode::Ok, rule: Rule::None }
    }

    fn refused(code: StableCode, rule: Rule) -> Done {
        Done { code, rule }
    }
}

pub(crate) fn apply(
    transaction: &mut Transaction<'_>,
    at: &At<'_>,
    mutation: &MutationV2,
    body: &ShardControl,
) -> Result<RecordResult, ApplyError> {
    if let Some(detail) = window_refusal(transaction, at, mutation.retry_until_ms) {
        let code = StableCode::SystemMutationRetryWindowExpired;
        return Ok(refuse(transaction, at, mutation, code, Rule::None, detail));
    }
    let key = dedupe::control(&body.operation_id);
    if let Some(first) = transaction.get_row::<row::ControlResult>(Family::Dedupe, &key)? {
        return Ok(repeated(transaction, at, mutation, body, &first));
    }
    let done = dispatch(transaction, body)?;
    if done.code != StableCode::Ok {
        transaction.totals().commands_rejected += 1;
    }
    let result = row::ControlResult {
        mutation_hash: Bytes::copy_from_slice(&mutation.hash),
        position: at.order_bytes(),
        code: done.code.as_u32(),
        rule: done.rule as u32,
    };
    transaction.put_row(Family::Dedupe, key, &result, Some(mutation.retry_until_ms));
    Ok(RecordResult::Control { operation_id: body.operation_id, code: done.code, rule: done.rule })
}

fn dispatch(transaction: &mut Transaction<'_>, body: &ShardControl) -> Result<Done, ApplyError> {
    let expected_version = body.expected_version;
    Ok(match &body.payload {
        ControlPayload::Genesis(_) => Done::refused(StableCode::UnauthorizedSystemMutation, Rule::GenesisRepeated),
        ControlPayload::StopNewSchedules => {
            transaction.progress.new_schedules_stopped = true;
            Done::ok()
        }
        ControlPayload::KeyAdd(entry) => keys::add(transaction, *entry),
        ControlPayload::KeyRetire { version } => keys::retire(transaction, *version),
        ControlPayload::ProfileActivate(payload) => bindings::activate_profile(transaction, payload),
        ControlPayload::ProfileClose(payload) => bindings::close_profile(transaction, payload),
        ControlPayload::RetryPolicyActivate(policy) => bindings::activate_policy(transaction, policy),
        ControlPayload::RetryPolicyClose { policy_id, version } => {
            bindings::close_policy(transaction, policy_id, *version)
        }
        ControlPayload::DestinationRebind(payload) => bindings::rebind(transaction, payload, expected_version),
        ControlPayload::LanePause(lane_id) => {
            gates::set_lane(transaction, *lane_id, row::Gate::AdminPaused, expected_version)?
        }
        ControlPayload::LaneResume(lane_id) => {
            gates::set_lane(transaction, *lane_id, row::Gate::Open, expected_version)?
        }
        ControlPayload::DestinationPause { profile_id } => {
            gates::set_profile(transaction, profile_id, true, expected_version)
        }
        ControlPayload::DestinationResume { profile_id } => {
            gates::set_profile(transaction, profile_id, false, expected_version)
        }
    })
}

/// The first copy's result stands. Another operation under the same id decides nothing.
fn repeated(
    transaction: &mut Transaction<'_>,
    at: &At<'_>,
    mutation: &MutationV2,
    body: &ShardControl,
    first: &row::ControlResult,
) -> RecordResult {
    if first.mutation_hash[..] != mutation.hash[..] {
        let detail = "operation id was used for another operation".to_owned();
        return refuse(transaction, at, mutation, StableCode::CommandIdConflict, Rule::None, detail);
    }
    let code = StableCode::from_u32(first.code).unwrap_or(StableCode::IntegrityError);
    let rule = Rule::from_number(first.rule);
    refuse(transaction, at, mutation, code, rule, "operation was applied before".to_owned());
    RecordResult::Control { operation_id: body.operation_id, code, rule }
}

/// T15: `bp <= retry until <= bp + window` and `retry until > closed`.
fn window_refusal(transaction: &Transaction<'_>, at: &At<'_>, retry_until_ms: i64) -> Option<String> {
    let latest_ms = at.broker_time_ms.saturating_add(transaction.limits().control_retry_window_ms_max);
    let within = (at.broker_time_ms..=latest_ms).contains(&retry_until_ms);
    let open = retry_until_ms > transaction.closed_ms();
    (!within || !open).then(|| {
        format!(
            "retry window ends at {retry_until_ms} ms; the log's time is {} ms, the latest end {latest_ms} ms, closed \
             through {} ms",
            at.broker_time_ms,
            transaction.closed_ms()
        )
    })
}
