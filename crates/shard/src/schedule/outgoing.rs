//! A record on its way to a destination: the caller's key, value and headers, byte for byte, and what delivery adds.

use bytes::Bytes;
use protocol::command::{AdapterMetadata, KafkaHeader, Payload, ScheduleIntent};
use protocol::id::MessageId;
use protocol::nulls;

/// Key, value and headers in Kafka's terms. Null and empty are different in all three.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutgoingRecord {
    /// `None` is null.
    pub key: Option<Bytes>,
    /// `None` is null, a tombstone.
    pub value: Option<Bytes>,
    /// In order, duplicates kept.
    pub headers: Vec<Header>,
    /// The caller's event time, if one was given.
    pub event_time_ms: Option<i64>,
}

/// One header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// UTF-8 text.
    pub name: Bytes,
    /// `None` is null.
    pub value: Option<Bytes>,
}

/// What the delivery headers say (v2 §11).
#[derive(Clone, Copy, Debug)]
pub struct Delivery<'a> {
    /// The message.
    pub message_id: MessageId,
    /// The caller's own id, empty for none.
    pub business_key: &'a [u8],
    /// The generation.
    pub generation: u32,
    /// The attempt.
    pub attempt: u32,
    /// The business time.
    pub deliver_at_ms: i64,
    /// The epoch that admitted the attempt.
    pub owner_epoch: u64,
}

/// Names of the delivery headers, in the order they are added.
pub const DELIVERY_HEADER_NAMES: [&str; 6] = [
    "nereus.delay.message_id",
    "nereus.delay.id",
    "nereus.delay.generation",
    "nereus.delay.attempt",
    "nereus.delay.deliver_at_ms",
    "nereus.delay.owner_epoch",
];

/// The largest total of the delivery headers' names and values, for business keys of at most `business_key_bytes_max`: what a
/// profile reserves of its record limit.
pub fn delivery_header_bytes_max(business_key_bytes_max: usize) -> usize {
    const MESSAGE_ID_TEXT: usize = 60;
    const U32_TEXT: usize = 10;
    const I64_TEXT: usize = 20;
    const U64_TEXT: usize = 20;
    let names: usize = DELIVERY_HEADER_NAMES.iter().map(|name| name.len()).sum();
    names + MESSAGE_ID_TEXT + business_key_bytes_max + 2 * U32_TEXT + I64_TEXT + U64_TEXT
}

impl OutgoingRecord {
    /// The record of an intent. `None` when the intent is not one that apply accepts.
    pub fn from_intent(intent: &ScheduleIntent) -> Option<OutgoingRecord> {
        let AdapterMetadata::Kafka(metadata) = &intent.metadata else { return None };
        let Some(Payload::Inline(value)) = &intent.payload else { return None };
        let (nulls, headers) = nulls::split(&metadata.headers, value.len() as u64).ok()?;
        let is_null = |index: usize| nulls.headers.iter().any(|null| usize::from(*null) == index);
        let header = |(index, header): (usize, &KafkaHeader)| Header {
            name: header.name.to_bytes(),
            value: (!is_null(index)).then(|| header.value.clone()),
        };
        Some(OutgoingRecord {
            key: metadata.key.clone(),
            value: (!nulls.value_is_null).then(|| value.clone()),
            headers: headers.iter().enumerate().map(header).collect(),
            event_time_ms: intent.event_time_ms,
        })
    }

    /// Adds the delivery headers behind the caller's own.
    pub fn push_delivery_headers(&mut self, delivery: &Delivery<'_>) {
        let mut push = |index: usize, value: Bytes| {
            let name = Bytes::from_static(DELIVERY_HEADER_NAMES[index].as_bytes());
            self.headers.push(Header { name, value: Some(value) });
        };
        push(0, delivery.message_id.to_string().into());
        if !delivery.business_key.is_empty() {
            push(1, Bytes::copy_from_slice(delivery.business_key));
        }
        push(2, delivery.generation.to_string().into());
        push(3, delivery.attempt.to_string().into());
        push(4, delivery.deliver_at_ms.to_string().into());
        push(5, delivery.owner_epoch.to_string().into());
    }

    /// Key, value and headers in bytes.
    pub fn size(&self) -> usize {
        let part = |part: &Option<Bytes>| part.as_ref().map_or(0, Bytes::len);
        let headers: usize = self.headers.iter().map(|header| header.name.len() + part(&header.value)).sum();
        part(&self.key) + part(&self.value) + headers
    }
}
