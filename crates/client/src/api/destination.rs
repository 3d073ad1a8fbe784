//! Destinations: where messages go, and how they are retried there.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::kafka::KafkaConnection;

/// What a destination should be. Exactly one system is named.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DestinationSpec {
    /// A topic of the embedded log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub embedded: Option<EmbeddedSpec>,
    /// A topic of a Kafka cluster. It must exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kafka: Option<KafkaConnection>,
    /// How a message gets its partition: `murmur2` (default: as Kafka's own partitioner places the key) or `registry_hash`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partitioner: Option<Partitioner>,
    /// Every message goes to this partition, whatever its key; in place of a partitioner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<u32>,
    /// What timestamp delivered records have: `event_time` (default: the message's own event time where it has one, else its
    /// delivery time) or `delivery_time`. A topic that keeps records by age counts from it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<TimestampSpec>,
    /// How unsuccessful attempts are repeated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<RetrySpec>,
    /// The longest delay, such as "10y".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_delay: Option<String>,
    /// From delivery time to expiry where a message states none, such as "30d".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_after: Option<String>,
}

/// A topic of the embedded log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct EmbeddedSpec {
    /// Its name; it is created when it does not exist.
    pub topic: String,
    /// Its partitions; 1 when not given for a new topic, the topic's own for an existing one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partitions: Option<u32>,
}

/// How a message gets its partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Partitioner {
    /// As Kafka's own partitioner places the key; without a key by the message's hash.
    Murmur2,
    /// The protocol registry's hash over the key, or over the message's UUID without one.
    RegistryHash,
}

/// What timestamp delivered records have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum TimestampSpec {
    /// The message's event time where it has one, else its delivery time.
    EventTime,
    /// The message's delivery time.
    DeliveryTime,
}

/// How unsuccessful attempts are repeated. What is not given has the service's default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RetrySpec {
    /// Longest wait after the first attempt, such as "1s"; the wait is drawn evenly from zero to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initial_backoff: Option<String>,
    /// Longest wait ever, such as "5m".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_backoff: Option<String>,
    /// Attempts in all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<u32>,
    /// From the first attempt to the last, such as "24h".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_duration: Option<String>,
    /// What follows an attempt whose outcome nobody knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uncertain: Option<UncertainSpec>,
    /// How many attempts of unknown outcome are repeated, at the risk of a duplicate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_uncertain_retries: Option<u32>,
}

/// What follows an attempt whose outcome nobody knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum UncertainSpec {
    /// Try again a bounded number of times; a duplicate is possible and said.
    Retry,
    /// Give the message up as possibly delivered.
    DeadLetter,
}

/// One thing that was checked about a destination.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Check {
    /// What was checked.
    pub name: String,
    /// Whether it is well.
    pub ok: bool,
    /// What was found.
    pub detail: String,
}

/// A destination as it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Destination {
    /// Its name.
    pub name: String,
    /// The version that new messages bind.
    pub version: u64,
    /// `active`; `activating` while some shards have not applied it; `deprecated` when it takes no new messages.
    pub state: String,
    /// Whether deliveries are paused.
    pub paused: bool,
    /// The system it is on: `embedded` or `kafka`.
    pub system: String,
    /// The topic.
    pub topic: String,
    /// The topic's partitions, pinned in this version.
    pub partitions: u32,
    /// The longest delay, in milliseconds.
    pub max_delay_ms: i64,
    /// The default expiry, in milliseconds after the delivery time.
    pub expires_after_ms: i64,
    /// What key, value and headers may have together, in bytes.
    pub max_record_bytes: u32,
    /// The request it was made from.
    pub spec: DestinationSpec,
    /// When this version was made.
    pub created_at: String,
    /// When this version was made, epoch milliseconds.
    pub created_at_ms: i64,
    /// Every version it has had, ascending. Messages keep the one they were bound to.
    pub versions: Vec<DestinationVersion>,
    /// What was checked, right after a change.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<Check>,
}

/// One version of a destination.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DestinationVersion {
    /// From 1.
    pub version: u64,
    /// `activating`, `active` or `deprecated`.
    pub state: String,
    /// The topic's partitions, pinned in this version.
    pub partitions: u32,
    /// When it was made.
    pub created_at: String,
    /// When it was made, epoch milliseconds.
    pub created_at_ms: i64,
}

/// Every destination.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DestinationList {
    /// Ascending by name.
    pub items: Vec<Destination>,
}
