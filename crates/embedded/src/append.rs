//! What is appended, and how an append can end.

use bytes::Bytes;

/// The largest number of records of one append.
pub const APPEND_RECORDS_MAX: usize = 100_000;

/// One publication attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttemptEntry {
    /// The message's uuid.
    pub message: [u8; 16],
    /// Its generation.
    pub generation: u32,
    /// The attempt of that generation.
    pub attempt: u32,
}

/// The attempts that an append carries out: one a record, in the records' order. Stored in the same write as the records,
/// so that after a crash both are there or neither is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptsRow {
    /// Whose attempts they are: opaque bytes that one owner after another uses (a shard, or a lane of one).
    pub scope: Bytes,
    /// The owner's epoch. Once the scope is fenced at a higher one, the append is refused.
    pub epoch: u64,
    /// The log offset of the record that admitted them: what [`forget_attempts`](crate::Embedded::forget_attempts) goes by.
    pub order: u64,
    /// The attempts.
    pub entries: Vec<AttemptEntry>,
}

/// Where an append's records stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// The first one's offset; the others follow without a gap.
    pub first_offset: u64,
    /// The append time of all of them, in milliseconds since 1970; never less than that of a record before them.
    pub append_time_ms: i64,
}

/// An append without success.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    /// The records may or may not be durable: the disk failed, or the engine went away, after the append was handed over.
    #[error("append has an unknown outcome: {reason}")]
    Unknown {
        /// What happened.
        reason: String,
    },
    /// Certainly not appended: the engine is closed.
    #[error("not appended, the engine is closed: {reason}")]
    Closed {
        /// Why it is closed.
        reason: String,
    },
    /// Certainly not appended: the scope is fenced at a higher epoch.
    #[error("not appended, epoch {epoch} is fenced by epoch {current}")]
    Fenced {
        /// The epoch of the append.
        epoch: u64,
        /// The epoch of the fence.
        current: u64,
    },
    /// Certainly not appended: a record is larger than the engine takes.
    #[error("not appended, record {index} has {bytes} bytes, at most {bytes_max} are allowed")]
    RecordTooLarge {
        /// Which record, from 0.
        index: usize,
        /// Its size in bytes.
        bytes: usize,
        /// The limit in bytes.
        bytes_max: usize,
    },
    /// Certainly not appended: an append has at least one record and at most [`APPEND_RECORDS_MAX`].
    #[error("not appended, {count} records given, 1 to {APPEND_RECORDS_MAX} are allowed")]
    RecordCount {
        /// How many were given.
        count: usize,
    },
    /// Certainly not appended: the attempts do not fit the records, or their scope is too long.
    #[error("not appended, {attempts} attempts for {records} records and a scope of {scope_bytes} bytes")]
    Attempts {
        /// How many attempts were named; one a record is right.
        attempts: usize,
        /// How many records were given.
        records: usize,
        /// Length of the scope; up to 65,535 is right.
        scope_bytes: usize,
    },
}
