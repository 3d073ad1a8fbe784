//! Messages: what callers ask for and what they are told.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Where a message is, in the words of the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// In the log; its verdict was not known by the deadline. Repeat the request with the same Idempotency-Key, or ask.
    Queued,
    /// Waits for its time.
    Scheduled,
    /// Waits for another attempt; the earlier ones are certainly not published.
    Retrying,
    /// An attempt is under way: too late to cancel or to move.
    Publishing,
    /// At its destination, with evidence.
    Published,
    /// Canceled before anything was sent.
    Canceled,
    /// Its expiry came first; certainly not published.
    Expired,
    /// Given up.
    DeadLetter,
    /// An attempt may have been published and nobody can say.
    Uncertain,
}

impl Status {
    /// Every status a stored message can have.
    pub const STORED: [Status; 8] = [
        Status::Scheduled,
        Status::Retrying,
        Status::Publishing,
        Status::Uncertain,
        Status::Published,
        Status::Canceled,
        Status::Expired,
        Status::DeadLetter,
    ];

    /// The name in JSON and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Status::Queued => "queued",
            Status::Scheduled => "scheduled",
            Status::Retrying => "retrying",
            Status::Publishing => "publishing",
            Status::Published => "published",
            Status::Canceled => "canceled",
            Status::Expired => "expired",
            Status::DeadLetter => "dead_letter",
            Status::Uncertain => "uncertain",
        }
    }

    /// The stored status of a name.
    pub fn from_name(name: &str) -> Option<Status> {
        Status::STORED.into_iter().find(|status| status.name() == name)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// A message to schedule. Exactly one of `deliver_at`, `deliver_at_ms` and `delay` says when.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
pub struct ScheduleRequest {
    /// The destination's name.
    pub destination: String,
    /// The caller's own id: unique among live messages, and usable wherever a message id is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// RFC 3339 with an offset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deliver_at: Option<String>,
    /// Epoch milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deliver_at_ms: Option<i64>,
    /// From now, with units: "90s", "1h30m", "7d".
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay: Option<String>,
    /// The record's key; null or absent for none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<ContentSpec>,
    /// The record's value; null is a tombstone.
    pub value: Option<ContentSpec>,
    /// The record's headers, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<HeaderSpec>,
    /// From the delivery time until the message is not delivered any more, with units.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_after: Option<String>,
    /// When the message is not delivered any more, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    /// When the message is not delivered any more, epoch milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at_ms: Option<i64>,
    /// When the thing happened that the message is about, epoch milliseconds; passed on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event_time_ms: Option<i64>,
    /// In a batch, what the Idempotency-Key header is for a single request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
}

/// Bytes in a request.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[serde(untagged)]
pub enum ContentSpec {
    /// UTF-8 text.
    Text(String),
    /// Base64, or JSON that is delivered as it is written here.
    Typed(TypedContent),
}

/// Bytes in a request that are no plain text.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[serde(tag = "type", content = "data", rename_all = "snake_case")]
pub enum TypedContent {
    /// Standard base64 with padding.
    Binary(String),
    /// JSON, delivered byte for byte as it stands in the request.
    Json(serde_json::Value),
}

impl ContentSpec {
    /// Bytes as a request carries them.
    pub fn new(bytes: &[u8]) -> ContentSpec {
        match Content::new(bytes) {
            Content::Text(text) => ContentSpec::Text(text),
            Content::Binary(binary) => ContentSpec::Typed(TypedContent::Binary(binary.data)),
        }
    }
}

/// A header in a request.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct HeaderSpec {
    /// Its name. Names starting with `nereus.delay.` are reserved.
    pub name: String,
    /// Its value.
    pub value: Option<ContentSpec>,
}

/// Messages to schedule together, each on its own terms: not atomic.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
pub struct BatchRequest {
    /// At most 1,000, and at most 8 MiB together.
    pub messages: Vec<ScheduleRequest>,
}

/// A new time for a message. Exactly one of `deliver_at`, `deliver_at_ms` and `delay`; without an expiry the message keeps the
/// length it had between the two.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct RescheduleRequest {
    /// RFC 3339 with an offset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deliver_at: Option<String>,
    /// Epoch milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deliver_at_ms: Option<i64>,
    /// From now, with units.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay: Option<String>,
    /// From the delivery time until the message is not delivered any more, with units.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_after: Option<String>,
    /// When the message is not delivered any more, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    /// When the message is not delivered any more, epoch milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at_ms: Option<i64>,
}

/// The answer to a change of a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MessageReceipt {
    /// The service's id: `ndm1_…`.
    pub message_id: String,
    /// The caller's own id, where one was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// What the message is now.
    pub status: Status,
    /// Its delivery time.
    pub deliver_at: String,
    /// Its delivery time, epoch milliseconds.
    pub deliver_at_ms: i64,
    /// Its expiry.
    pub expires_at: String,
    /// Its expiry, epoch milliseconds.
    pub expires_at_ms: i64,
    /// Its version, for `If-Match`. Moves when a caller changes the message, never by deliveries. Absent while queued.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
    /// The service's clock when it answered: compare with yours.
    pub server_time: String,
    /// The service's clock when it answered, epoch milliseconds.
    pub server_time_ms: i64,
    /// Where it was delivered, for a published one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivery: Option<Delivery>,
    /// From its delivery time until the destination had it, in milliseconds, for a published one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lateness_ms: Option<i64>,
}

/// Where a message was delivered: the destination's own evidence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Delivery {
    /// The topic.
    pub topic: String,
    /// The partition.
    pub partition: u32,
    /// The offset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
    /// The record's time at the destination.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<String>,
    /// The record's time at the destination, epoch milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timestamp_ms: Option<i64>,
}

/// Everything the service knows of a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Message {
    /// The service's id: `ndm1_…`.
    pub message_id: String,
    /// The caller's own id, where one was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Where it is.
    pub status: Status,
    /// The destination's name.
    pub destination: String,
    /// The destination's version it is bound to.
    pub destination_version: u64,
    /// Its delivery time.
    pub deliver_at: String,
    /// Its delivery time, epoch milliseconds.
    pub deliver_at_ms: i64,
    /// Its expiry.
    pub expires_at: String,
    /// Its expiry, epoch milliseconds.
    pub expires_at_ms: i64,
    /// When it was first scheduled.
    pub scheduled_at: String,
    /// When it was first scheduled, epoch milliseconds.
    pub scheduled_at_ms: i64,
    /// Its version, for `If-Match`.
    pub version: u64,
    /// How often it was rescheduled.
    pub generation: u32,
    /// Attempts of this generation.
    pub attempts: u32,
    /// When the next attempt may start, while one is to come.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_attempt_at: Option<String>,
    /// When the next attempt may start, epoch milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_attempt_at_ms: Option<i64>,
    /// The code of the last unsuccessful attempt, or of the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// What it waits for, when its time is over and its lane cannot be used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_for: Option<WaitingFor>,
    /// Whether it may have been delivered more than once, or although it is not called published.
    pub possible_duplicate: bool,
    /// When it ended, for one that has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<String>,
    /// When it ended, epoch milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at_ms: Option<i64>,
    /// Where it was delivered, for a published one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivery: Option<Delivery>,
    /// From its delivery time until the destination had it, in milliseconds, for a published one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lateness_ms: Option<i64>,
    /// Key, value and headers, when they were asked for and are still kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<Payload>,
    /// The log position that this answer reflects, for programs that compare answers.
    pub applied_position: String,
}

/// What keeps a message from going out that is due.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WaitingFor {
    /// The code, as `lane list` shows it.
    pub code: String,
    /// What was found, with names and numbers.
    pub detail: String,
}

/// A message's record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Payload {
    /// The key.
    #[serde(default)]
    pub key: Option<Content>,
    /// The value; null is a tombstone.
    #[serde(default)]
    pub value: Option<Content>,
    /// The headers, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<HeaderContent>,
}

/// Bytes in JSON: text where they are UTF-8, base64 where they are not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum Content {
    /// UTF-8 text.
    Text(String),
    /// Anything else.
    Binary(BinaryContent),
}

/// Base64 in JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BinaryContent {
    /// Always `binary`.
    pub r#type: BinaryType,
    /// Standard base64 with padding.
    pub data: String,
}

/// The only type that [`BinaryContent`] has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum BinaryType {
    /// Base64.
    Binary,
}

impl Content {
    /// Bytes as JSON shows them.
    pub fn new(bytes: &[u8]) -> Content {
        match std::str::from_utf8(bytes) {
            Ok(text) => Content::Text(text.to_owned()),
            Err(_) => {
                Content::Binary(BinaryContent { r#type: BinaryType::Binary, data: data_encoding::BASE64.encode(bytes) })
            }
        }
    }

    /// The bytes. `None` when the base64 is none.
    pub fn bytes(&self) -> Option<Vec<u8>> {
        match self {
            Content::Text(text) => Some(text.clone().into_bytes()),
            Content::Binary(binary) => data_encoding::BASE64.decode(binary.data.as_bytes()).ok(),
        }
    }
}

/// A header in JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HeaderContent {
    /// Its name.
    pub name: String,
    /// Its value.
    #[serde(default)]
    pub value: Option<Content>,
}

/// A page of messages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MessagePage {
    /// The messages, in the list's order.
    pub items: Vec<Message>,
    /// Pass it as `cursor` to go on. Absent at the end. A page may be short, even empty, and have one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// How many messages are kept, by status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Counts {
    /// Waiting for their time.
    pub scheduled: u64,
    /// Waiting for another attempt.
    pub retrying: u64,
    /// With an attempt under way.
    pub publishing: u64,
    /// With an attempt nobody can vouch for.
    pub uncertain: u64,
    /// Published, as long as they are kept.
    pub published: u64,
    /// Canceled, as long as they are kept.
    pub canceled: u64,
    /// Expired, as long as they are kept.
    pub expired: u64,
    /// Dead letters, as long as they are kept.
    pub dead_letter: u64,
}

/// The answer to a batch: a receipt or a problem for each message, in order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct BatchReceipt {
    /// One a message, in the order of the request.
    pub results: Vec<BatchResult>,
}

/// What one message of a batch came to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum BatchResult {
    /// It was taken.
    Receipt(MessageReceipt),
    /// It was refused.
    Problem(super::problem::Problem),
}
