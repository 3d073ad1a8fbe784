//! A record on its way to Kafka: byte for byte what the caller gave, with null and empty kept apart.

use bytes::Bytes;
use rdkafka::message::{Header, OwnedHeaders};
use shard::schedule::outgoing::OutgoingRecord;

/// What a batch of one record begins with.
const BATCH_HEADER_BYTES: usize = 61;
/// Attributes, timestamp delta and offset delta of a record that is alone in its batch.
const SOLO_BYTES: usize = 3;

/// Headers as the client library takes them. `None` when a name is not UTF-8, which apply does not let through.
pub(crate) fn headers(record: &OutgoingRecord) -> Option<OwnedHeaders> {
    let mut headers = OwnedHeaders::new_with_capacity(record.headers.len());
    for header in &record.headers {
        let key = std::str::from_utf8(&header.name).ok()?;
        headers = headers.insert(Header { key, value: header.value.as_deref() });
    }
    Some(headers)
}

/// What a record has as an uncompressed batch of its own: the number that a broker compares with `max.message.bytes`.
pub(crate) fn solo_batch_bytes(record: &OutgoingRecord) -> usize {
    let bytes = |part: &Option<Bytes>| match part {
        None => varint_bytes(-1),
        Some(part) => length_bytes(part.len()) + part.len(),
    };
    let headers: usize = record
        .headers
        .iter()
        .map(|header| length_bytes(header.name.len()) + header.name.len() + bytes(&header.value))
        .sum();
    let content = SOLO_BYTES + bytes(&record.key) + bytes(&record.value) + length_bytes(record.headers.len()) + headers;
    BATCH_HEADER_BYTES + length_bytes(content) + content
}

fn length_bytes(length: usize) -> usize {
    varint_bytes(i64::try_from(length).unwrap_or(i64::MAX))
}

/// Bytes of a zigzag variable-length number.
fn varint_bytes(number: i64) -> usize {
    let zigzag = (number.cast_unsigned() << 1) ^ (number >> 63).cast_unsigned();
    let bits = 64 - zigzag.leading_zeros() as usize;
    bits.div_ceil(7).max(1)
}

#[cfg(test)]
mod tests {
    use shard::schedule::outgoing;

    use super::*;

    #[test]
    fn lengths_are_kafkas_variable_length_numbers() {
        let cases = [(-1, 1), (0, 1), (63, 1), (64, 2), (8_191, 2), (8_192, 3), (1_048_575, 3), (1_048_576, 4)];
        for (number, bytes) in cases {
            assert_eq!(varint_bytes(number), bytes, "{number}");
        }
    }

    #[test]
    fn a_record_alone_has_its_batchs_header_and_its_own_lengths() {
        let record = OutgoingRecord { key: None, value: None, headers: Vec::new(), event_time_ms: None };
        // 61 + length 1 + attributes, two deltas, null key, null value, no headers.
        assert_eq!(solo_batch_bytes(&record), 61 + 1 + 6);
        let header = outgoing::Header { name: Bytes::from_static(b"h"), value: Some(Bytes::from_static(b"")) };
        let record = OutgoingRecord {
            key: Some(Bytes::from_static(b"k")),
            value: Some(vec![0; 100].into()),
            headers: vec![header],
            event_time_ms: None,
        };
        assert_eq!(solo_batch_bytes(&record), 61 + 2 + 3 + 2 + 102 + 1 + 3);
    }
}
