//! What every client command passes before its own rules (protocol registry §4.1): place, retry window, dedupe, identity age.

use bytes::Bytes;
use protocol::code::StableCode;
use protocol::command::{ClientCommand, CommandBody, CommandIdentity};

use super::verdict::{RecordResult, Rule, Status, Verdict};
use super::{ApplyError, At, cancel, refuse_position, reschedule, schedule};
use crate::planted::{self, Mistake};
use crate::state::keys::dedupe;
use crate::state::row;
use crate::state::transaction::Transaction;
use crate::store::{Family, StoreError};

/// Applies a command whose body is readable.
pub(crate) fn apply(
    transaction: &mut Transaction<'_>,
    at: &At<'_>,
    command: &ClientCommand,
) -> Result<RecordResult, ApplyError> {
    first_copy(transaction, at, &command.identity(), |transaction| {
        Ok(match &command.body {
            CommandBody::Schedule(body) => schedule::apply(transaction, at, command.message_id, body)?,
            CommandBody::Cancel(body) => cancel::apply(transaction, at, command.message_id, body)?.into(),
            CommandBody::Reschedule(body) => reschedule::apply(transaction, at, command.message_id, body)?.into(),
            CommandBody::PrepareLarge(_) | CommandBody::CommitLarge(_) => Decision::Position(
                StableCode::UnactivatedProtocolVersion,
                Rule::NotBuilt,
                "large payloads are not activated on this route".to_owned(),
            ),
        })
    })
}

/// Applies a command whose envelope holds and whose body is not one: it is refused as itself, so its sender hears of it.
pub(crate) fn apply_unreadable(
    transaction: &mut Transaction<'_>,
    at: &At<'_>,
    identity: &CommandIdentity,
) -> Result<RecordResult, ApplyError> {
    first_copy(transaction, at, identity, |_| {
        Ok(Verdict::rejected(StableCode::ServerInvalidCommand, Rule::InvalidBody).into())
    })
}

/// What a first-seen command comes to.
pub(crate) enum Decision {
    /// A logical result, kept for the command's retry window.
    Verdict(Verdict),
    /// Nothing logical: only the position is answered.
    Position(StableCode, Rule, String),
}

impl From<Verdict> for Decision {
    fn from(verdict: Verdict) -> Self {
        Decision::Verdict(verdict)
    }
}

fn first_copy(
    transaction: &mut Transaction<'_>,
    at: &At<'_>,
    identity: &CommandIdentity,
    decide: impl FnOnce(&mut Transaction<'_>) -> Result<Decision, ApplyError>,
) -> Result<RecordResult, ApplyError> {
    let CommandIdentity { command_id, message_id, retry_until_ms, hash } = *identity;
    let shard = transaction.constitution.shard();
    if command_id.shard != shard || message_id.shard != shard {
        let detail = format!("command {command_id} for message {message_id} is not of this shard");
        return Ok(refuse(transaction, at, identity, StableCode::IngressRouteMismatch, Rule::WrongShard, detail));
    }

    // Before dedupe, so that the answer never depends on how long results are kept.
    let closed_ms = transaction.closed_ms();
    if closed_ms >= retry_until_ms || at.broker_time_ms > retry_until_ms {
        let detail = format!(
            "retry window ended at {retry_until_ms} ms; the log's time is {} ms and closed through {closed_ms} ms",
            at.broker_time_ms
        );
        return Ok(refuse(transaction, at, identity, StableCode::CommandRetryWindowExpired, Rule::None, detail));
    }

    let key = dedupe::command(command_id.uuid.to_bytes());
    if let Some(first) = transaction.get_row::<row::CommandResult>(Family::Dedupe, &key)?
        && !planted::is(Mistake::ReevaluateDuplicate)
    {
        return duplicate(transaction, at, identity, &first);
    }
    if let Some((rule, detail)) = identity_refusal(transaction, at, identity) {
        return Ok(refuse(transaction, at, identity, StableCode::ServerInvalidCommand, rule, detail));
    }

    let verdict = match decide(transaction)? {
        Decision::Verdict(verdict) => verdict,
        Decision::Position(code, rule, detail) => return Ok(refuse(transaction, at, identity, code, rule, detail)),
    };
    if verdict.status == Status::Rejected {
        transaction.totals().commands_rejected += 1;
    }
    let result = row::CommandResult {
        command_hash: Bytes::copy_from_slice(&hash),
        position: at.order_bytes(),
        verdict: Some(verdict.to_row()),
    };
    transaction.put_row(Family::Dedupe, key, &result, Some(retry_until_ms));
    Ok(RecordResult::Command { command: command_id, message: message_id, verdict })
}

/// A second copy changes nothing. With the same bytes the first result stands; with others the id is in conflict.
fn duplicate(
    transaction: &mut Transaction<'_>,
    at: &At<'_>,
    identity: &CommandIdentity,
    first: &row::CommandResult,
) -> Result<RecordResult, ApplyError> {
    let command_id = identity.command_id;
    if first.command_hash[..] != identity.hash[..] {
        let detail = format!("command id {command_id} was used for another command");
        return Ok(refuse(transaction, at, identity, StableCode::CommandIdConflict, Rule::None, detail));
    }
    let verdict = first.verdict.as_ref().and_then(Verdict::from_row).ok_or_else(|| StoreError::Corrupt {
        detail: format!("result of command {command_id} has no readable verdict"),
    })?;
    transaction.totals().commands_duplicate += 1;
    refuse_position(transaction, at, verdict.code, verdict.rule, &command_id.to_bytes(), String::new());
    Ok(RecordResult::Duplicate { command: command_id, message: identity.message_id, verdict })
}

/// T13a and T12 for the command id. Refused first-seen identities leave no dedupe row, so that dropping dedupe rows by their
/// UUID's time stays exact.
fn identity_refusal(transaction: &Transaction<'_>, at: &At<'_>, identity: &CommandIdentity) -> Option<(Rule, String)> {
    let limits = transaction.limits();
    let uuid_ms = identity.command_id.uuid.unix_ms();
    let expected_ms = uuid_ms.saturating_add(limits.command_retry_window_ms);
    if identity.retry_until_ms != expected_ms {
        let detail = format!("retry deadline is {} ms, expected {expected_ms} ms", identity.retry_until_ms);
        return Some((Rule::RetryUntilMismatch, detail));
    }
    uuid_age_refusal(transaction, at, uuid_ms).map(|age| match age {
        Age::TooOld(detail) => (Rule::CommandTooOld, detail),
        Age::InFuture(detail) => (Rule::CommandInFuture, detail),
    })
}

pub(crate) enum Age {
    TooOld(String),
    InFuture(String),
}

/// T12: `bp - preparation age <= uuid time <= bp + skew`.
pub(crate) fn uuid_age_refusal(transaction: &Transaction<'_>, at: &At<'_>, uuid_ms: i64) -> Option<Age> {
    let limits = transaction.limits();
    let broker_time_ms = at.broker_time_ms;
    if uuid_ms < broker_time_ms.saturating_sub(limits.preparation_age_ms_max) {
        return Some(Age::TooOld(format!(
            "id was made at {uuid_ms} ms by its maker's clock and appended at {broker_time_ms} ms by the log's clock: \
             more than {} ms apart",
            limits.preparation_age_ms_max
        )));
    }
    if uuid_ms > broker_time_ms.saturating_add(limits.uuid_future_skew_ms_max) {
        return Some(Age::InFuture(format!(
            "id was made at {uuid_ms} ms by its maker's clock and appended at {broker_time_ms} ms by the log's clock: \
             more than {} ms ahead",
            limits.uuid_future_skew_ms_max
        )));
    }
    None
}

fn refuse(
    transaction: &mut Transaction<'_>,
    at: &At<'_>,
    identity: &CommandIdentity,
    code: StableCode,
    rule: Rule,
    detail: String,
) -> RecordResult {
    transaction.totals().commands_rejected += 1;
    refuse_position(transaction, at, code, rule, &identity.command_id.to_bytes(), detail)
}
