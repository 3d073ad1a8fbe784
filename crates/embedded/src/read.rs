//! Reading: from the tail in memory, or from disk.

use bytes::Bytes;

use crate::core::Core;
use crate::database::DatabaseError;
use crate::partition::{PartitionState, View};
use crate::run::Run;

/// How much one read may return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadLimit {
    /// At most this many records.
    pub records_max: usize,
    /// Stop after the record that reaches this many bytes.
    pub bytes_max: usize,
}

/// A record where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its offset.
    pub offset: u64,
    /// When it was appended, in milliseconds since 1970.
    pub append_time_ms: i64,
    /// Its bytes. They share memory with their neighbours: copy what is kept for long.
    pub value: Bytes,
}

/// What one read found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadRun {
    /// Consecutive records from the offset that was asked for.
    pub records: Vec<Record>,
    /// The partition's start at that time.
    pub start_offset: u64,
    /// The partition's end at that time.
    pub end_offset: u64,
}

/// A read without success.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// There is no record at the offset, and it is not the next one either.
    #[error("offset {offset} is out of range: the partition holds {start} to {end}")]
    OffsetOutOfRange {
        /// What was asked for.
        offset: u64,
        /// The oldest offset that is kept.
        start: u64,
        /// The offset the next record will have.
        end: u64,
    },
    /// The engine is closed.
    #[error("the engine is closed: {reason}")]
    Closed {
        /// Why.
        reason: String,
    },
    /// What is on disk is not what was written.
    #[error("stored records are corrupt: {detail}")]
    Corrupt {
        /// What is wrong where.
        detail: String,
    },
    /// The disk refused.
    #[error("reading failed: {detail}")]
    Io {
        /// The storage engine's own words.
        detail: String,
    },
}

impl From<DatabaseError> for ReadError {
    fn from(error: DatabaseError) -> ReadError {
        match error {
            DatabaseError::Corrupt(detail) => ReadError::Corrupt { detail },
            DatabaseError::Io(detail) => ReadError::Io { detail },
        }
    }
}

impl From<crate::rows::RowError> for ReadError {
    fn from(error: crate::rows::RowError) -> ReadError {
        ReadError::Corrupt { detail: error.to_string() }
    }
}

/// Collects records up to the limits.
struct Collector {
    limit: ReadLimit,
    next: u64,
    end: u64,
    byte_count: usize,
    records: Vec<Record>,
}

impl Collector {
    fn is_full(&self) -> bool {
        self.next >= self.end || self.records.len() >= self.limit.records_max || self.byte_count >= self.limit.bytes_max
    }

    /// Takes what is wanted of a run, which must contain the next offset; returns whether more is wanted.
    fn take(&mut self, run: &Run) -> Result<bool, ReadError> {
        if !(run.first_offset()..run.end_offset()).contains(&self.next) {
            let (first, end) = (run.first_offset(), run.end_offset());
            let detail = format!("offset {} is missing before the records {first} to {end}", self.next);
            return Err(ReadError::Corrupt { detail });
        }
        while self.next < run.end_offset() && !self.is_full() {
            let value = run.record(self.next)?;
            self.byte_count += value.len();
            self.records.push(Record { offset: self.next, append_time_ms: run.append_time_ms(), value });
            self.next += 1;
        }
        Ok(!self.is_full())
    }
}

pub(crate) fn read(
    core: &Core,
    partition: &PartitionState,
    offset: u64,
    limit: ReadLimit,
) -> Result<ReadRun, ReadError> {
    let view = partition.view();
    check_range(&view, offset)?;
    let (start_offset, end_offset) = (view.start, view.end);
    let mut collector = Collector { limit, next: offset, end: end_offset, byte_count: 0, records: Vec::new() };
    let is_in_tail = view.tail.front().is_some_and(|run| run.first_offset() <= offset);
    if collector.is_full() {
        // Nothing is wanted, or nothing is there yet.
    } else if is_in_tail {
        let from = view.tail.partition_point(|run| run.end_offset() <= offset);
        // A run is two words and a reference count, so the lock is not held while records are cut out of it.
        let runs: Vec<Run> = view.tail.range(from..).take(runs_wanted(&view, from, limit)).cloned().collect();
        drop(view);
        for run in &runs {
            if !collector.take(run)? {
                break;
            }
        }
    } else {
        drop(view);
        read_stored(core, partition, offset, &mut collector)?;
    }
    Ok(ReadRun { records: collector.records, start_offset, end_offset })
}

/// How many runs of the tail satisfy the limits, so that no more are cloned.
fn runs_wanted(view: &View, from: usize, limit: ReadLimit) -> usize {
    let mut bytes_left = limit.bytes_max as u64;
    let mut records_left = limit.records_max as u64;
    let mut count = 0;
    for (index, run) in view.tail.range(from..).enumerate() {
        count += 1;
        if index == 0 {
            // How much of the first run lies before the offset is not worth finding out.
            continue;
        }
        bytes_left = bytes_left.saturating_sub(run.record_bytes());
        records_left = records_left.saturating_sub(run.end_offset() - run.first_offset());
        if bytes_left == 0 || records_left == 0 {
            break;
        }
    }
    count
}

fn check_range(view: &View, offset: u64) -> Result<(), ReadError> {
    if view.start <= offset && offset <= view.end {
        return Ok(());
    }
    Err(ReadError::OffsetOutOfRange { offset, start: view.start, end: view.end })
}

fn read_stored(
    core: &Core,
    partition: &PartitionState,
    offset: u64,
    collector: &mut Collector,
) -> Result<(), ReadError> {
    let inside = core.gate.enter();
    let database = inside.resource().map_err(|reason| ReadError::Closed { reason: reason.to_owned() })?;
    let mut failed = None;
    database.runs(partition.table, partition.key, offset, |run| match collector.take(&run) {
        Ok(is_more_wanted) => Ok(is_more_wanted),
        Err(error) => {
            failed = Some(error);
            Ok(false)
        }
    })?;
    // A trim that ran meanwhile explains whatever was missing.
    check_range(&partition.view(), offset)?;
    match failed {
        Some(error) => Err(error),
        None if collector.records.is_empty() => {
            Err(ReadError::Corrupt { detail: format!("nothing is stored at offset {offset}") })
        }
        None => Ok(()),
    }
}
