//! Topics that can be read back: the embedded log's, for consumers over HTTP.

use bytes::Bytes;
use futures_util::future::BoxFuture;

/// A record of a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicRecord {
    /// Its offset.
    pub offset: u64,
    /// When it was appended, epoch milliseconds.
    pub timestamp_ms: i64,
    /// `None` is null.
    pub key: Option<Bytes>,
    /// `None` is null.
    pub value: Option<Bytes>,
    /// In order.
    pub headers: Vec<TopicHeader>,
}

/// A header of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicHeader {
    /// UTF-8 text.
    pub name: Bytes,
    /// `None` is null.
    pub value: Option<Bytes>,
}

/// A topic and where its partitions begin and end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicDescription {
    /// Its name.
    pub name: String,
    /// For each partition, the first offset that is kept and the offset behind the last record.
    pub partitions: Vec<(u64, u64)>,
}

/// Records of one partition, ascending by offset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicRun {
    /// The records.
    pub records: Vec<TopicRecord>,
    /// Read on from here.
    pub next_offset: u64,
    /// The first offset that is kept.
    pub start_offset: u64,
    /// The offset behind the last record.
    pub end_offset: u64,
}

/// A read without success.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TopicReadError {
    /// No such topic.
    #[error("there is no topic {topic:?}")]
    UnknownTopic {
        /// Its name.
        topic: String,
    },
    /// No such partition.
    #[error("topic {topic:?} has {partitions} partitions, there is no partition {partition}")]
    UnknownPartition {
        /// The topic.
        topic: String,
        /// The partition.
        partition: u32,
        /// How many there are.
        partitions: u32,
    },
    /// The offset is not kept any more, or not there yet.
    #[error("offset {offset} is not in the partition, which holds {start_offset} up to {end_offset} exclusive")]
    OffsetOutOfRange {
        /// The offset.
        offset: u64,
        /// The first that is kept.
        start_offset: u64,
        /// The one behind the last.
        end_offset: u64,
    },
    /// The log cannot be read now.
    #[error("the topic cannot be read now: {reason}")]
    Unavailable {
        /// Why.
        reason: String,
    },
}

/// Topics for readers.
pub trait Topics: Send + Sync + 'static {
    /// Every topic that is no route's log, ascending by name.
    fn list(&self) -> Result<Vec<TopicDescription>, TopicReadError>;

    /// One topic.
    fn describe(&self, topic: &str) -> Result<TopicDescription, TopicReadError>;

    /// Durable records from `offset` on: at most `records_max`, and no more once `bytes_max` is reached. May be empty.
    fn read(
        &self,
        topic: &str,
        partition: u32,
        offset: u64,
        records_max: usize,
        bytes_max: usize,
    ) -> Result<TopicRun, TopicReadError>;

    /// Ready once the partition has a durable record at or behind `offset`.
    fn wait_for(&self, topic: &str, partition: u32, offset: u64) -> BoxFuture<'static, Result<(), TopicReadError>>;
}
