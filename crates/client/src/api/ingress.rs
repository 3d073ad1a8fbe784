//! Ingresses: topics whose records schedule messages by their headers.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::destination::Check;
use super::kafka::KafkaConnection;

/// What an ingress should be: a topic that plain producers write to, and what becomes of its records.
///
/// A record says by its headers what is to be done with it. One with `nereus-deliver-at` (RFC 3339 or epoch milliseconds) or
/// `nereus-delay` ("30m", counted from the record's timestamp) is scheduled with its key, value, other headers and timestamp,
/// for `nereus-destination` or the ingress's own; `nereus-id` and `nereus-expires-at` are what `id` and `expires_at` are in a
/// request. `nereus-cancel: ID` cancels a message, `nereus-reschedule: ID` with a new time moves one. A record that cannot be
/// taken, also for a misspelt `nereus-` header, goes to the refusals topic with the code that says why.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct IngressSpec {
    /// A topic of a Kafka cluster. It must exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kafka: Option<KafkaConnection>,
    /// The destination of records that name none. Without one, every record has to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destination: Option<String>,
    /// The consumer group; `nereus-delay.` and the ingress's name when not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// The topic for refused records; the topic's name and `.refused` when not given. Created when it does not exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusals: Option<String>,
    /// The topic for receipts, one a record; none are written when not given. Created when it does not exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receipts: Option<String>,
}

/// Whether an ingress, or one of its partitions, does its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum IngressState {
    /// It is joining its consumer group.
    Starting,
    /// It takes records.
    Running,
    /// Something keeps it from taking records; it tries again by itself, and no record is passed over meanwhile.
    Failed,
    /// An operator lets it rest.
    Paused,
}

impl IngressState {
    /// The name in JSON and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            IngressState::Starting => "starting",
            IngressState::Running => "running",
            IngressState::Failed => "failed",
            IngressState::Paused => "paused",
        }
    }
}

/// An ingress as it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Ingress {
    /// Its name.
    pub name: String,
    /// Whether it does its work.
    pub state: IngressState,
    /// What keeps it from it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The last thing that went wrong since the server started, whether or not it is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// The system its topic is on: `kafka`.
    pub system: String,
    /// The topic.
    pub topic: String,
    /// The request it was made from, with what it left open settled.
    pub spec: IngressSpec,
    /// What became of its records since the server started.
    pub records: IngressRecords,
    /// Records that this server has not settled yet, over the partitions it has; absent while it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lag: Option<u64>,
    /// Partitions that this server has, or that have been read before, ascending by topic id and number.
    pub partitions: Vec<IngressPartition>,
    /// When it was made.
    pub created_at: String,
    /// When it was made, epoch milliseconds.
    pub created_at_ms: i64,
    /// What was checked, right after a change.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<Check>,
}

/// What became of records since the server started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct IngressRecords {
    /// Messages scheduled.
    pub scheduled: u64,
    /// Messages moved.
    pub rescheduled: u64,
    /// Messages canceled.
    pub canceled: u64,
    /// Records refused.
    pub refused: u64,
    /// Records read again that were settled before.
    pub skipped: u64,
}

/// One partition of an ingress's topic.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct IngressPartition {
    /// The topic's id, 32 hex digits: a topic that was made anew is another.
    pub topic_id: String,
    /// Its number.
    pub partition: u32,
    /// Whether this server takes records of it. Absent while it does not have the partition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<IngressState>,
    /// What keeps it from it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Records below this offset are settled for ever: read again, they are passed over.
    pub floor: u64,
    /// Where the topic's partition ends, as far as that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<u64>,
    /// Offsets from the floor to the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lag: Option<u64>,
}

/// Every ingress.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct IngressList {
    /// Ascending by name.
    pub items: Vec<Ingress>,
}

/// The value of a record in a receipts topic: what became of a source record. Its key is the source record's.
///
/// A receipt may be there twice after a crash; `source_topic`, `source_partition` and `source_offset` name the record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct IngressReceipt {
    /// `SCHEDULED`, `SUPERSEDED` for a message that was moved, `CANCELED`, or the code of the refusal.
    pub code: String,
    /// The message: `ndm1_…`. Null where the record came to none.
    pub message_id: Option<String>,
    /// The message's own id, where it has one.
    pub id: Option<String>,
    /// The message's destination.
    pub destination: Option<String>,
    /// The message's delivery time, epoch milliseconds.
    pub deliver_at_ms: Option<i64>,
    /// The message's expiry, epoch milliseconds.
    pub expires_at_ms: Option<i64>,
    /// The topic of the record.
    pub source_topic: String,
    /// The partition of the record.
    pub source_partition: u32,
    /// The offset of the record.
    pub source_offset: u64,
}
