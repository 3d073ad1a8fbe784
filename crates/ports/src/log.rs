//! The shard log: one ordered, durable sequence of frames per Delay Shard.

use bytes::Bytes;
use futures_util::future::BoxFuture;
use protocol::position::SourcePosition;
pub use shard::machine::SourceRecord;

/// How much one read may return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadLimit {
    /// At most this many records, at least one.
    pub records_max: usize,
    /// Stop after the record that reaches this many bytes of frames.
    pub bytes_max: usize,
}

/// How far a new owner must catch up before it may act.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Barrier {
    /// The log holds no record.
    Empty,
    /// Everything through this position must be applied.
    Through(SourcePosition),
}

/// An append without success.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    /// Certainly nothing of the batch was or will be persisted. The same bytes may be sent again.
    #[error("not appended: {reason}")]
    NotAppended {
        /// Why.
        reason: String,
    },
    /// Some, all or none of the batch may have been persisted. The same bytes may be sent again: apply treats a second
    /// copy as a duplicate.
    #[error("append outcome unknown: {reason}")]
    Unknown {
        /// What was seen.
        reason: String,
    },
}

/// A read without success.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The record after the given position is gone, or the log is not the one the position is of. Never heals by itself.
    #[error("gap in the shard log: {detail}")]
    Gap {
        /// What was expected and what is there.
        detail: String,
    },
    /// The log cannot be reached now; try again.
    #[error("shard log is unavailable: {reason}")]
    Unavailable {
        /// Why.
        reason: String,
    },
}

/// One partition of a route's log.
///
/// Futures may be dropped at any await point: a dropped append has an unknown outcome, a dropped read changes nothing.
pub trait ShardLog: Send + Sync + 'static {
    /// Appends the frames in order, next to each other or between records of others, and returns their positions in the
    /// same order once all are durable.
    fn append(&self, frames: Vec<Bytes>) -> BoxFuture<'static, Result<Vec<SourcePosition>, AppendError>>;

    /// The records behind `after` (from the log's first ever record for `None`), in order and without a gap. Waits until
    /// there is at least one.
    fn read(
        &self,
        after: Option<&SourcePosition>,
        limit: ReadLimit,
    ) -> BoxFuture<'static, Result<Vec<SourceRecord>, ReadError>>;

    /// The end of the log now: every record appended by anyone before the call is at or before it.
    fn barrier(&self) -> BoxFuture<'static, Result<Barrier, ReadError>>;

    /// Allows everything before `position` to go. It may stay longer.
    fn trim(&self, position: &SourcePosition) -> BoxFuture<'static, Result<(), ReadError>>;
}
