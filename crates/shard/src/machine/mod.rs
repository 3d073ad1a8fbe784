//! The state machine: one record in log order, decided against state.
//!
//! [`apply`] is a function of (record bytes, position and broker time, state before it). It has no clock, no I/O and no
//! randomness, so every reader of the log comes to the same state. One file a command and a mutation; what they share about
//! rows is in [`state`](crate::state).

mod cancel;
mod claim_result;
mod command;
mod control;
mod evidence_resolution;
mod load;
mod mutation;
mod owner_epoch;
mod publish_admission;
mod publish_outcome;
mod reschedule;
mod retry;
mod schedule;
mod time_fence;
pub mod verdict;

use bytes::Bytes;
use protocol::code::StableCode;
use protocol::position::{OrderToken, SourcePosition};
use protocol::record::{LogRecord, Malformed, RecordError};

use crate::state::keys::dedupe;
use crate::state::row;
use crate::state::transaction::Transaction;
use crate::store::{Family, StoreError};
pub use control::GenesisRefusal;
pub(crate) use control::begin;
use verdict::{PositionVerdict, RecordResult, Rule};

/// A frame where it stands in the shard log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceRecord {
    /// Where it stands; carries the broker persistence time.
    pub position: SourcePosition,
    /// The exact bytes that were appended.
    pub frame: Bytes,
}

/// Why a run cannot be decided. Nothing of it was written.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// The store did not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The log or the state is not what the rules allow: the shard stops and does not heal by itself.
    #[error("shard integrity: {detail}")]
    Integrity {
        /// What was found.
        detail: String,
    },
}

/// The position being applied, in the forms that rows need.
pub(crate) struct At<'a> {
    pub(crate) position: &'a SourcePosition,
    pub(crate) order_token: OrderToken,
    pub(crate) broker_time_ms: i64,
}

impl<'a> At<'a> {
    pub(crate) fn new(position: &'a SourcePosition) -> At<'a> {
        At { position, order_token: position.order_token(), broker_time_ms: position.broker_time_ms() }
    }

    /// The order token as rows keep it.
    pub(crate) fn order_bytes(&self) -> Bytes {
        Bytes::copy_from_slice(self.order_token.as_bytes())
    }
}

/// Applies one record behind everything the transaction has seen.
pub(crate) fn apply(
    transaction: &mut Transaction<'_>,
    record: &SourceRecord,
    decoded: Result<LogRecord, RecordError>,
) -> Result<RecordResult, ApplyError> {
    let at = At::new(&record.position);
    let result = match decoded {
        Ok(LogRecord::Command(command)) => command::apply(transaction, &at, &command)?,
        Ok(LogRecord::MutationV2(mutation)) => mutation::apply(transaction, &at, &mutation)?,
        Ok(LogRecord::MutationV1(mutation)) => {
            let detail = format!("{} of body version 1", mutation.mutation_type().name());
            let code = StableCode::UnactivatedSystemProtocolVersion;
            refuse_position(transaction, &at, code, Rule::NotBuilt, &mutation.mutation_id, detail)
        }
        Err(RecordError::Malformed(Malformed { identity: Some(identity), .. })) => {
            command::apply_unreadable(transaction, &at, &identity)?
        }
        Err(error) => {
            let (code, rule) = match &error {
                RecordError::UnactivatedCommand(_) => (StableCode::UnactivatedProtocolVersion, Rule::NotBuilt),
                RecordError::UnactivatedSystem(_) => (StableCode::UnactivatedSystemProtocolVersion, Rule::NotBuilt),
                RecordError::Malformed(_) => (StableCode::QuarantinedSourceRecord, Rule::None),
            };
            transaction.totals().records_quarantined += 1;
            refuse_position(transaction, &at, code, rule, &[], error.to_string())
        }
    };
    transaction.progress.applied_position = at.position.to_bytes().into();
    Ok(result)
}

/// Writes a position exception: the only trace of a record that decided nothing.
pub(crate) fn refuse_position(
    transaction: &mut Transaction<'_>,
    at: &At<'_>,
    code: StableCode,
    rule: Rule,
    subject: &[u8],
    detail: String,
) -> RecordResult {
    let exception = row::PositionException {
        code: code.as_u32(),
        rule: rule as u32,
        subject: Bytes::copy_from_slice(subject),
        detail: detail.clone(),
    };
    let end_ms = at.broker_time_ms.saturating_add(transaction.limits().receipt_query_window_ms);
    transaction.put_row(Family::Dedupe, dedupe::position(at.order_token.as_bytes()), &exception, Some(end_ms));
    RecordResult::Position(PositionVerdict { code, rule, detail })
}
