//! Topics of the embedded log, as consumers read them.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::message::{Content, HeaderContent};

/// A record of a topic.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Record {
    /// Its partition.
    pub partition: u32,
    /// Its offset.
    pub offset: u64,
    /// When it was appended.
    pub timestamp: String,
    /// When it was appended, epoch milliseconds.
    pub timestamp_ms: i64,
    /// The key.
    pub key: Option<Content>,
    /// The value; null is a tombstone.
    pub value: Option<Content>,
    /// The headers, in order; the delivery headers come last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<HeaderContent>,
}

/// A page of records of one partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RecordPage {
    /// The records, ascending by offset.
    pub records: Vec<Record>,
    /// Read on from here.
    pub next_offset: u64,
    /// The first offset that is kept.
    pub start_offset: u64,
    /// The offset behind the last record.
    pub end_offset: u64,
}

/// A topic.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Topic {
    /// Its name.
    pub name: String,
    /// Its partitions.
    pub partitions: Vec<TopicPartition>,
}

/// A partition of a topic.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TopicPartition {
    /// Its number.
    pub partition: u32,
    /// The first offset that is kept.
    pub start_offset: u64,
    /// The offset behind the last record.
    pub end_offset: u64,
}

/// Every topic.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TopicList {
    /// Ascending by name.
    pub items: Vec<Topic>,
}
