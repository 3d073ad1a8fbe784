//! Topics that schedule by themselves: records that a plain producer wrote, for whoever turns them into commands.
//!
//! A session is one member of a consumer group. It says which partitions it has; for each of them the reader says where to start,
//! and gets records in offset order from there. Nothing is committed but what the reader commits.

use bytes::Bytes;
use futures_util::future::BoxFuture;

use crate::target::{TargetCheck, TargetError};

/// One partition of a source topic, by the topic's identity: a topic that was made anew is another source.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourcePartition {
    /// The topic's id.
    pub topic: [u8; 16],
    /// The partition.
    pub partition: u32,
}

/// A header of a source record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceHeader {
    /// As it was written; not always text.
    pub name: Bytes,
    /// `None` is null.
    pub value: Option<Bytes>,
}

/// A record as its producer wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceRecord {
    /// Its offset. Offsets ascend and have gaps.
    pub offset: u64,
    /// Its timestamp, epoch milliseconds; `None` where the record has none.
    pub timestamp_ms: Option<i64>,
    /// `None` is null.
    pub key: Option<Bytes>,
    /// `None` is null.
    pub value: Option<Bytes>,
    /// In order, duplicates kept.
    pub headers: Vec<SourceHeader>,
}

/// What a session has to tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceEvent {
    /// The session reads this partition from now on, once it was told where to start.
    Assigned {
        /// The partition.
        partition: SourcePartition,
        /// The group's committed offset: the next one to read. `None` when there is none.
        committed: Option<u64>,
        /// The first offset that is kept, where a reader begins that has no other place to.
        first: u64,
        /// The offset of the next record to be written. A reader that has settled more than this knows that the topic lost
        /// records.
        end: u64,
    },
    /// The partition is another member's now, or nobody's.
    Revoked {
        /// The partition.
        partition: SourcePartition,
    },
    /// Records behind the last ones of the partition, at least one.
    Records {
        /// The partition.
        partition: SourcePartition,
        /// Ascending by offset.
        records: Vec<SourceRecord>,
    },
}

/// Something that keeps a source from being read or written now. It may pass.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{detail}")]
pub struct SourceError {
    /// What happened, with names and numbers.
    pub detail: String,
}

/// A record to be written beside the source: a refused one, or a receipt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SideRecord {
    /// `None` is null.
    pub key: Option<Bytes>,
    /// `None` is null.
    pub value: Option<Bytes>,
    /// In order.
    pub headers: Vec<SourceHeader>,
    /// Its timestamp, epoch milliseconds; the time of writing when `None`.
    pub timestamp_ms: Option<i64>,
}

/// A member of a consumer group. Dropping it leaves the group.
pub trait SourceSession: Send + Sync + 'static {
    /// The next event. A future that is dropped loses none. An error ends the session.
    fn next(&self) -> BoxFuture<'_, Result<SourceEvent, SourceError>>;

    /// Begins reading an assigned partition at this offset, or goes on behind a stop. Records come in order from there, and
    /// none that was read for an earlier assignment comes after the `Assigned` of this one: a reader could not tell such a
    /// record from one behind a gap.
    fn start(&self, partition: &SourcePartition, offset: u64) -> Result<(), SourceError>;

    /// Reads a partition no more until it is started again. Records that are on their way may still come, a batch or two; what
    /// comes stays without gaps: the caller starts again right behind the last record it got.
    fn stop(&self, partition: &SourcePartition) -> Result<(), SourceError>;

    /// The partition's end as it was last heard of: the offset of the next record to be written. `None` before anything was
    /// heard of it.
    fn end(&self, partition: &SourcePartition) -> Option<u64> {
        let _ = partition;
        None
    }

    /// Commits for the group that everything before `offset` is settled.
    fn commit(&self, partition: &SourcePartition, offset: u64) -> BoxFuture<'_, Result<(), SourceError>>;

    /// Writes records to another topic of the same system; done when all of them are durable. After an error any of them may
    /// be, and writing them again may write them twice.
    fn write(&self, topic: &str, records: Vec<SideRecord>) -> BoxFuture<'_, Result<(), SourceError>>;
}

/// A source that exists and was checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The topic's name.
    pub topic: String,
    /// Its partitions.
    pub partition_count: u32,
    /// What was checked, all of it well.
    pub checks: Vec<TargetCheck>,
}

/// What is asked of a source.
#[derive(Clone, Debug, PartialEq)]
pub struct SourceSpec {
    /// Connection settings and the topic, in the system's own words.
    pub connection: serde_json::Value,
    /// The consumer group.
    pub group: String,
    /// Where refused records go; created when it does not exist.
    pub refusals: String,
    /// Where verdicts go, if anywhere; created when it does not exist.
    pub receipts: Option<String>,
}

/// A kind of system whose topics can schedule.
pub trait SourceSystem: Send + Sync + 'static {
    /// Checks what is asked for and, unless it is a dry run, creates the side topics that are missing.
    fn check(&self, spec: SourceSpec, dry_run: bool) -> BoxFuture<'static, Result<Source, TargetError>>;

    /// Joins the group.
    fn open(&self, spec: SourceSpec) -> BoxFuture<'static, Result<Box<dyn SourceSession>, SourceError>>;
}
