//! What a topic is right now: its identity, size, limits, and what we may do with it.

use std::time::Duration;

use rdkafka::client::{Client, ClientContext};
use rdkafka::error::RDKafkaErrorCode;

use crate::client::ClientErrors;
use crate::native::{self, CallError, Description};

/// Kafka's own default of `max.message.bytes`, for when we may not read the topic's.
pub(crate) const MESSAGE_BYTES_MAX_DEFAULT: u32 = 1_048_588;
/// What a batch of one record has beside the record: 61 bytes of its header.
const BATCH_OVERHEAD_BYTES: u32 = 61;
/// What a record has beside key, value and headers: attributes and seven variable-length numbers, at their longest.
const RECORD_OVERHEAD_BYTES: usize = 1 + 5 + 10 + 5 + 5 + 5 + 5;
/// Lengths of a header's name and value, at their longest.
const HEADER_OVERHEAD_BYTES: usize = 5 + 5;
/// Room that a record's limit leaves for the overhead of its headers.
const HEADERS_ALLOWED_FOR: usize = 32;

/// A topic as its cluster describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TopicFacts {
    pub(crate) cluster_id: String,
    pub(crate) topic_id: [u8; 16],
    pub(crate) partition_count: u32,
    pub(crate) may_read: Option<bool>,
    pub(crate) may_write: Option<bool>,
    /// `max.message.bytes`; `None` when we may not read it.
    pub(crate) message_bytes_max: Option<u32>,
    /// `message.timestamp.type`, `cleanup.policy`, `retention.ms`, as far as we may read them.
    pub(crate) cleanup_policy: Option<String>,
    pub(crate) retention_ms: Option<i64>,
}

impl TopicFacts {
    /// What key, value and headers of one record may have together, with room for what surrounds them in a batch.
    pub(crate) fn record_bytes_max(&self) -> u32 {
        let overhead = RECORD_OVERHEAD_BYTES + HEADERS_ALLOWED_FOR * HEADER_OVERHEAD_BYTES;
        let limit = self.message_bytes_max.unwrap_or(MESSAGE_BYTES_MAX_DEFAULT);
        limit.saturating_sub(BATCH_OVERHEAD_BYTES).saturating_sub(u32::try_from(overhead).unwrap_or(u32::MAX))
    }
}

/// Asks the cluster. Blocks up to a few times `timeout`.
///
/// # Errors
/// [`CallError`] when the cluster does not answer, or has no such topic for us.
pub(crate) fn look_up<C: ClientContext>(
    client: &Client<C>,
    topic: &str,
    timeout: Duration,
    errors: &ClientErrors,
) -> Result<TopicFacts, CallError> {
    let Description { topic_id, partition_count, may_read, may_write } =
        native::describe_topic(client.native_ptr(), topic, timeout, errors)?;
    check_id(topic, topic_id)?;
    let cluster_id = client.fetch_cluster_id(timeout).ok_or_else(|| CallError {
        code: RDKafkaErrorCode::OperationTimedOut,
        detail: format!("the cluster did not say its id within {timeout:?}"),
    })?;
    let names = ["max.message.bytes", "cleanup.policy", "retention.ms"];
    let values = match native::topic_config(client.native_ptr(), topic, &names, timeout, errors) {
        Ok(values) => values,
        Err(error) if is_denied(error.code) => vec![None; names.len()],
        Err(error) => return Err(error),
    };
    errors.clear();
    let number = |index: usize| values[index].as_ref().and_then(|value| value.parse::<i64>().ok());
    Ok(TopicFacts {
        cluster_id,
        topic_id,
        partition_count,
        may_read,
        may_write,
        message_bytes_max: number(0).and_then(|bytes| u32::try_from(bytes).ok()),
        cleanup_policy: values[1].clone(),
        retention_ms: number(2),
    })
}

/// A topic without an id could be deleted and made again, and nobody would know.
fn check_id(topic: &str, topic_id: [u8; 16]) -> Result<(), CallError> {
    if topic_id != [0; 16] {
        return Ok(());
    }
    let detail = format!("the cluster gives topic {topic} no id: Kafka 4.0 or newer is needed");
    Err(CallError { code: RDKafkaErrorCode::UnsupportedVersion, detail })
}

pub(crate) fn is_denied(code: RDKafkaErrorCode) -> bool {
    matches!(code, RDKafkaErrorCode::TopicAuthorizationFailed | RDKafkaErrorCode::ClusterAuthorizationFailed)
}

/// A topic id as Kafka's own tools print it.
pub(crate) fn display_id(topic_id: [u8; 16]) -> String {
    data_encoding::BASE64URL_NOPAD.encode(&topic_id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_without_an_id_is_refused_with_what_is_needed() {
        assert_eq!(check_id("orders", [1; 16]).map_err(|error| error.code), Ok(()));
        let refused = check_id("orders", [0; 16]).expect_err("nothing to be pinned to");
        assert_eq!(refused.code, RDKafkaErrorCode::UnsupportedVersion);
        assert!(refused.detail.contains("orders") && refused.detail.contains("Kafka 4.0"), "{}", refused.detail);
    }
}
