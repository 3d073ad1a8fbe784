//! Reads for people and for recovery: functions of one consistent state.
//!
//! Each takes a [`Read`], usually a snapshot on another thread than the writer's. Rows whose logical end is reached and
//! generations whose deadline is closed are shown as apply would see them.

pub mod list;

use bytes::Bytes;
use protocol::code::StableCode;
use protocol::resource::Resource;

use crate::machine::verdict::{PositionVerdict, Rule, Verdict};
use crate::state::constitution::{Profile, for_each_of};
use crate::state::generation::MessageState;
use crate::state::keys::{dedupe, meta, open, timeline};
use crate::state::{LaneNo, MessageUuid, envelope, message_uuid, replace, row};
use crate::store::{Family, Read, StoreError};

/// A message as it is now.
#[derive(Clone, Debug, PartialEq)]
pub struct MessageView {
    /// The message.
    pub message: MessageUuid,
    /// Its state behind the fence.
    pub state: MessageState,
    /// Its row. For a generation that the fence closed and no sweep has reached, the row still waits; `state` is what holds.
    pub row: row::Message,
    /// The lane it is bound to.
    pub lane: row::Lane,
}

/// What every commit moves; the default before genesis.
///
/// # Errors
/// When the store does not answer.
pub fn progress(read: &dyn Read) -> Result<row::Progress, StoreError> {
    match read.get(Family::Meta, meta::PROGRESS)? {
        Some(value) => envelope::decode(&value),
        None => Ok(row::Progress::default()),
    }
}

/// Whether a destination's gate is closed.
///
/// # Errors
/// When the store does not answer.
pub fn profile_is_paused(read: &dyn Read, profile_id: &[u8]) -> Result<bool, StoreError> {
    let gate = read.get(Family::Meta, &meta::profile_gate(profile_id))?;
    Ok(gate.map(|gate| envelope::decode::<row::ProfileGate>(&gate)).transpose()?.is_some_and(|gate| gate.paused))
}

/// Where a version of a destination delivers now, `None` when it was never activated.
///
/// # Errors
/// When the store does not answer.
pub fn profile_resource(read: &dyn Read, profile_id: &[u8], version: u64) -> Result<Option<Resource>, StoreError> {
    let row = read.get(Family::Meta, &meta::profile(profile_id, version))?;
    let profile = row.map(|row| Profile::from_row(&envelope::decode(&row)?, profile_id, version)).transpose()?;
    Ok(profile.map(|profile| profile.resource().clone()))
}

/// A message by its uuid, `None` when it is unknown or its retention is over.
///
/// # Errors
/// When the store does not answer.
pub fn message(read: &dyn Read, message: MessageUuid) -> Result<Option<MessageView>, StoreError> {
    let closed_ms = progress(read)?.closed_ms;
    message_behind(read, message, closed_ms)
}

pub(crate) fn message_behind(
    read: &dyn Read,
    message: MessageUuid,
    closed_ms: i64,
) -> Result<Option<MessageView>, StoreError> {
    let Some(row) = live_row::<row::Message>(read, Family::Messages, message.as_bytes(), closed_ms)? else {
        return Ok(None);
    };
    let state = row.state_behind(closed_ms);
    // What the fence ended and no sweep has reached may have outlived its retention all the same.
    if row.is_closed_by(closed_ms) && end_of_unswept(read, message, &row)? <= closed_ms {
        return Ok(None);
    }
    let lane = lane(read, row.lane_no())?;
    Ok(Some(MessageView { message, state, row, lane }))
}

/// The logical end that the sweep will write for a generation that its deadline ended.
fn end_of_unswept(read: &dyn Read, message: MessageUuid, row: &row::Message) -> Result<i64, StoreError> {
    let constitution: Option<row::Constitution> =
        read.get(Family::Meta, meta::CONSTITUTION)?.map(|value| envelope::decode(&value)).transpose()?;
    let limits = constitution
        .and_then(|constitution| constitution.limits)
        .ok_or_else(|| StoreError::Corrupt { detail: "a store with messages has no limits".to_owned() })?;
    Ok(replace::logical_end(&limits, message, row.state_when_expired(), row.expire_at_ms))
}

/// The canonical intent of a message, as long as its payload is kept.
///
/// # Errors
/// When the store does not answer.
pub fn intent(read: &dyn Read, message: MessageUuid) -> Result<Option<Bytes>, StoreError> {
    let closed_ms = progress(read)?.closed_ms;
    let view = message_behind(read, message, closed_ms)?;
    // The payload of an expired message goes with the sweep, and is gone for everyone from the fence on.
    if view.is_none_or(|view| view.state == MessageState::Expired) {
        return Ok(None);
    }
    let value = read.get(Family::Payloads, message.as_bytes())?.filter(|value| !envelope::has_ended(value, closed_ms));
    value.map(|value| envelope::body(&value)).transpose()
}

/// The newest message of a business key, as long as it is kept.
///
/// # Errors
/// When the store does not answer.
pub fn by_business_key(read: &dyn Read, business_key: &[u8]) -> Result<Option<MessageUuid>, StoreError> {
    let closed_ms = progress(read)?.closed_ms;
    let row: Option<row::BusinessKey> = live_row(read, Family::Dedupe, &dedupe::business_key(business_key), closed_ms)?;
    let Some(newest) = row.and_then(|row| message_uuid(&row.message)) else { return Ok(None) };
    Ok(message_behind(read, newest, closed_ms)?.map(|view| view.message))
}

/// What became of the record at a position: the exception there, else the result of the command it held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PositionResult {
    /// The record decided nothing.
    Exception(PositionVerdict),
    /// The command's logical result.
    Command(Verdict),
    /// Nothing is kept of it.
    Unknown,
}

/// Reads the result of a command that was appended at a position.
///
/// # Errors
/// When the store does not answer.
pub fn result_at(read: &dyn Read, order_token: &[u8], command_uuid: [u8; 16]) -> Result<PositionResult, StoreError> {
    let closed_ms = progress(read)?.closed_ms;
    let command: Option<row::CommandResult> =
        live_row(read, Family::Dedupe, &dedupe::command(command_uuid), closed_ms)?;
    let exception: Option<row::PositionException> =
        live_row(read, Family::Dedupe, &dedupe::position(order_token), closed_ms)?;
    let verdict = |command: &row::CommandResult| command.verdict.as_ref().and_then(Verdict::from_row);
    Ok(match (exception, command) {
        // A duplicate's exception only says that the first copy's result stands.
        (Some(exception), Some(command))
            if verdict(&command).is_some_and(|verdict| verdict.code.as_u32() == exception.code) =>
        {
            verdict(&command).map_or(PositionResult::Unknown, PositionResult::Command)
        }
        (Some(exception), _) => PositionResult::Exception(PositionVerdict {
            code: StableCode::from_u32(exception.code).unwrap_or(StableCode::IntegrityError),
            rule: Rule::from_number(exception.rule),
            detail: exception.detail,
        }),
        (None, Some(command)) => verdict(&command).map_or(PositionResult::Unknown, PositionResult::Command),
        (None, None) => PositionResult::Unknown,
    })
}

/// A lane's row.
///
/// # Errors
/// When the store does not answer or has no such lane.
pub fn lane(read: &dyn Read, lane_no: LaneNo) -> Result<row::Lane, StoreError> {
    let value = read
        .get(Family::Meta, &meta::lane(lane_no))?
        .ok_or_else(|| StoreError::Corrupt { detail: format!("lane {} has no row", lane_no.0) })?;
    envelope::decode(&value)
}

/// Every lane, ascending by number.
///
/// # Errors
/// When the store does not answer.
pub fn lanes(read: &dyn Read) -> Result<Vec<(LaneNo, row::Lane)>, StoreError> {
    let mut lanes = Vec::new();
    for_each_of(read, Family::Meta, meta::lanes(), |key, value| {
        lanes.push((meta::decode_lane(key)?, envelope::decode(value)?));
        Ok(())
    })?;
    Ok(lanes)
}

/// How many messages of a lane are kept in a terminal state.
///
/// # Errors
/// When the store does not answer.
pub fn terminal_count(read: &dyn Read, lane_no: LaneNo, state: MessageState) -> Result<u64, StoreError> {
    let closed_ms = progress(read)?.closed_ms;
    let mut messages = 0;
    for_each_of(read, Family::Meta, meta::terminal_counts(lane_no, state as u8), |_, value| {
        if !envelope::has_ended(value, closed_ms) {
            messages += envelope::decode::<row::TerminalCount>(value)?.messages;
        }
        Ok(())
    })?;
    Ok(messages)
}

/// An attempt that somebody must still speak for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenAttempt {
    /// The lane.
    pub lane_no: LaneNo,
    /// The message.
    pub message: MessageUuid,
    /// The attempt's generation.
    pub generation: u32,
    /// The attempt.
    pub attempt: u32,
    /// The epoch that admitted it.
    pub owner_epoch: u64,
    /// Order token of its admission record.
    pub admission_order_token: Bytes,
    /// Its outcome was logged as unknown; otherwise it has none yet.
    pub uncertain: bool,
}

/// Every attempt that is publishing, in the order of their admission.
///
/// # Errors
/// When the store does not answer.
pub fn publishing_attempts(read: &dyn Read) -> Result<Vec<OpenAttempt>, StoreError> {
    let closed_ms = progress(read)?.closed_ms;
    let mut attempts = Vec::new();
    for_each_of(read, Family::Open, open::all_admitted(), |_, value| {
        let admitted: row::Admitted = envelope::decode(value)?;
        for entry in &admitted.entries {
            let Some(message) = message_uuid(&entry.message) else { continue };
            let row = live_row::<row::Message>(read, Family::Messages, message.as_bytes(), closed_ms)?;
            let same = |row: &row::Message| row.generation == entry.generation;
            let Some(row) = row.filter(same) else { continue };
            let open = row.open.iter().find(|open| open.attempt == entry.attempt && !open.uncertain);
            attempts.extend(open.map(|open| open_attempt(message, &row, open)));
        }
        Ok(())
    })?;
    Ok(attempts)
}

/// The uncertain attempts of a lane's messages.
///
/// # Errors
/// When the store does not answer.
pub fn uncertain_attempts(read: &dyn Read, lane_no: LaneNo) -> Result<Vec<OpenAttempt>, StoreError> {
    let closed_ms = progress(read)?.closed_ms;
    let mut attempts = Vec::new();
    for_each_of(read, Family::Timeline, timeline::uncertains(lane_no), |key, _| {
        let (_, message) = timeline::decode_uncertain(key)?;
        if let Some(row) = live_row::<row::Message>(read, Family::Messages, message.as_bytes(), closed_ms)? {
            let uncertain = row.open.iter().filter(|open| open.uncertain);
            attempts.extend(uncertain.map(|open| open_attempt(message, &row, open)));
        }
        Ok(())
    })?;
    Ok(attempts)
}

fn open_attempt(message: MessageUuid, row: &row::Message, open: &row::OpenAttempt) -> OpenAttempt {
    OpenAttempt {
        lane_no: row.lane_no(),
        message,
        generation: row.generation,
        attempt: open.attempt,
        owner_epoch: open.owner_epoch,
        admission_order_token: open.admission.clone(),
        uncertain: open.uncertain,
    }
}

/// The earliest deadline of a live generation at or behind `from_ms`.
///
/// # Errors
/// When the store does not answer.
pub fn earliest_deadline_ms(read: &dyn Read, from_ms: i64) -> Result<Option<i64>, StoreError> {
    let (from, until) = timeline::expiries(from_ms, i64::MAX);
    let first = read.scan(Family::Timeline, &from, &until, 1)?;
    first.first().map(|(key, _)| timeline::decode_expiry(key).map(|(expire_at_ms, _)| expire_at_ms)).transpose()
}

fn live_row<Row: prost::Message + Default>(
    read: &dyn Read,
    family: Family,
    key: &[u8],
    closed_ms: i64,
) -> Result<Option<Row>, StoreError> {
    let value = read.get(family, key)?.filter(|value| !envelope::has_ended(value, closed_ms));
    value.map(|value| envelope::decode(&value)).transpose()
}
