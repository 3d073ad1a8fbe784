//! Keys and values of everything the engine stores, one function pair a kind.
//!
//! Numbers are big endian, so that keys sort as their numbers do. Every value starts with a version byte.
//!
//! ```text
//! family    key                                                  value
//! meta      't' name                                             0x01 topic u32, partitions u32, id[16]
//! meta      'p' topic u32, partition u32                         0x01 start u64, end u64, append time i64, bytes u64
//! meta      'v'                                                  0x01 version u64: the highest that may be in use
//! meta      'e' metadata key                                     0x01: the record of that key is ephemeral
//! logs      topic u32, partition u32, first offset u64           a run of records (see `run`)
//! topics    topic u32, partition u32, first offset u64           a run of records
//! attempts  scope length u16, scope, order u64,                  0x01 append time i64, (message[16] generation u32
//!           topic u32, partition u32, first offset u64                attempt u32)…
//! metadata  key                                                  0x01 session u64 (0: none), version u64, value
//! ```
//!
//! A partition's row is written when it is trimmed: it says where the partition starts, and what its end would be if no run
//! were left to tell.

use bytes::{Buf, BufMut, Bytes};

use crate::append::AttemptEntry;

const VERSION: u8 = 1;

/// A stored row that this build cannot have written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} row is corrupt: {detail}")]
pub(crate) struct RowError {
    pub(crate) what: &'static str,
    pub(crate) detail: String,
}

/// Reads fixed-width fields behind the version byte, and refuses what is left over.
struct Fields<'a> {
    what: &'static str,
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    fn of(what: &'static str, row: &'a [u8]) -> Result<Fields<'a>, RowError> {
        match row.split_first() {
            Some((&VERSION, rest)) => Ok(Fields { what, rest }),
            Some((version, _)) => Err(RowError { what, detail: format!("version {version}, expected {VERSION}") }),
            None => Err(RowError { what, detail: "empty".to_owned() }),
        }
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], RowError> {
        let (field, rest) = self.rest.split_first_chunk().ok_or_else(|| RowError {
            what: self.what,
            detail: format!("{} bytes left, {N} expected", self.rest.len()),
        })?;
        self.rest = rest;
        Ok(*field)
    }

    fn u32(&mut self) -> Result<u32, RowError> {
        self.take().map(u32::from_be_bytes)
    }

    fn u64(&mut self) -> Result<u64, RowError> {
        self.take().map(u64::from_be_bytes)
    }

    fn i64(&mut self) -> Result<i64, RowError> {
        self.take().map(i64::from_be_bytes)
    }

    fn end(self) -> Result<(), RowError> {
        if self.rest.is_empty() {
            return Ok(());
        }
        Err(RowError { what: self.what, detail: format!("{} bytes too many", self.rest.len()) })
    }
}

/// Names a partition in keys: topic number and partition number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PartitionKey {
    pub(crate) topic_no: u32,
    pub(crate) partition: u32,
}

impl PartitionKey {
    fn put(self, key: &mut impl BufMut) {
        key.put_u32(self.topic_no);
        key.put_u32(self.partition);
    }

    /// The key of the run that starts at `first_offset`.
    pub(crate) fn run(self, first_offset: u64) -> [u8; 16] {
        let mut key = [0; 16];
        let mut writer = &mut key[..];
        self.put(&mut writer);
        writer.put_u64(first_offset);
        key
    }

    pub(crate) fn row_key(self) -> Vec<u8> {
        let mut key = vec![b'p'];
        self.put(&mut key);
        key
    }
}

/// The first offset in a run's key.
pub(crate) fn run_offset(key: &[u8]) -> Result<u64, RowError> {
    key.get(8..16)
        .and_then(|bytes| bytes.try_into().ok())
        .map(u64::from_be_bytes)
        .filter(|_| key.len() == 16)
        .ok_or_else(|| RowError { what: "run", detail: format!("key of {} bytes", key.len()) })
}

pub(crate) const TOPIC_PREFIX: u8 = b't';
pub(crate) const EPHEMERAL_PREFIX: u8 = b'e';
pub(crate) const VERSIONS_KEY: &[u8] = b"v";

/// A topic as stored; its name is in the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TopicRow {
    pub(crate) topic_no: u32,
    pub(crate) partition_count: u32,
    pub(crate) id: [u8; 16],
}

impl TopicRow {
    pub(crate) fn key(name: &str) -> Vec<u8> {
        prefixed(TOPIC_PREFIX, name)
    }

    pub(crate) fn encode(self) -> Vec<u8> {
        let mut row = vec![VERSION];
        row.put_u32(self.topic_no);
        row.put_u32(self.partition_count);
        row.put_slice(&self.id);
        row
    }

    pub(crate) fn decode(row: &[u8]) -> Result<TopicRow, RowError> {
        let mut fields = Fields::of("topic", row)?;
        let row = TopicRow { topic_no: fields.u32()?, partition_count: fields.u32()?, id: fields.take()? };
        fields.end()?;
        Ok(row)
    }
}

/// The text behind the prefix byte of a topic's or an ephemeral record's key.
pub(crate) fn text_of(what: &'static str, key: &[u8]) -> Result<String, RowError> {
    let text = key.get(1..).unwrap_or_default().to_vec();
    String::from_utf8(text).map_err(|error| RowError { what, detail: error.to_string() })
}

pub(crate) fn ephemeral_key(key: &str) -> Vec<u8> {
    prefixed(EPHEMERAL_PREFIX, key)
}

fn prefixed(prefix: u8, text: &str) -> Vec<u8> {
    let mut key = Vec::with_capacity(1 + text.len());
    key.push(prefix);
    key.extend_from_slice(text.as_bytes());
    key
}

/// The value of rows whose key says everything.
pub(crate) const MARK: &[u8] = &[VERSION];

/// Where a partition starts, and where it ended when that was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PartitionRow {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) append_time_ms: i64,
    pub(crate) bytes: u64,
}

impl PartitionRow {
    pub(crate) fn encode(self) -> Vec<u8> {
        let mut row = vec![VERSION];
        row.put_u64(self.start);
        row.put_u64(self.end);
        row.put_i64(self.append_time_ms);
        row.put_u64(self.bytes);
        row
    }

    pub(crate) fn decode(row: &[u8]) -> Result<PartitionRow, RowError> {
        let mut fields = Fields::of("partition", row)?;
        let row = PartitionRow {
            start: fields.u64()?,
            end: fields.u64()?,
            append_time_ms: fields.i64()?,
            bytes: fields.u64()?,
        };
        fields.end()?;
        Ok(row)
    }
}

pub(crate) fn encode_version(version: u64) -> Vec<u8> {
    let mut row = vec![VERSION];
    row.put_u64(version);
    row
}

pub(crate) fn decode_version(row: &[u8]) -> Result<u64, RowError> {
    let mut fields = Fields::of("versions", row)?;
    let version = fields.u64()?;
    fields.end()?;
    Ok(version)
}

/// Where the evidence of one append stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AttemptsKey {
    pub(crate) order: u64,
    pub(crate) partition: PartitionKey,
    pub(crate) first_offset: u64,
}

/// The start of every key of a scope and order, and so a bound of ranges. `None` for a scope too long to be stored.
pub(crate) fn attempts_bound(scope: &[u8], order: u64) -> Option<Vec<u8>> {
    let length = u16::try_from(scope.len()).ok()?;
    let mut key = Vec::with_capacity(2 + scope.len() + 24);
    key.put_u16(length);
    key.put_slice(scope);
    key.put_u64(order);
    Some(key)
}

impl AttemptsKey {
    pub(crate) fn encode(self, scope: &[u8]) -> Option<Vec<u8>> {
        let mut key = attempts_bound(scope, self.order)?;
        self.partition.put(&mut key);
        key.put_u64(self.first_offset);
        Some(key)
    }

    /// Decodes a key of this scope.
    pub(crate) fn decode(scope: &[u8], key: &[u8]) -> Result<AttemptsKey, RowError> {
        let what = "attempts";
        let rest = key.get(2 + scope.len()..).unwrap_or_default();
        let mut fields = Fields { what, rest };
        let order = fields.u64()?;
        let partition = PartitionKey { topic_no: fields.u32()?, partition: fields.u32()? };
        let first_offset = fields.u64()?;
        fields.end()?;
        Ok(AttemptsKey { order, partition, first_offset })
    }
}

pub(crate) fn encode_attempts(append_time_ms: i64, entries: &[AttemptEntry]) -> Vec<u8> {
    let mut row = Vec::with_capacity(9 + 24 * entries.len());
    row.put_u8(VERSION);
    row.put_i64(append_time_ms);
    for entry in entries {
        row.put_slice(&entry.message);
        row.put_u32(entry.generation);
        row.put_u32(entry.attempt);
    }
    row
}

pub(crate) fn decode_attempts(row: &[u8]) -> Result<(i64, Vec<AttemptEntry>), RowError> {
    let mut fields = Fields::of("attempts", row)?;
    let append_time_ms = fields.i64()?;
    let mut entries = Vec::with_capacity(fields.rest.len() / 24);
    while !fields.rest.is_empty() {
        entries.push(AttemptEntry { message: fields.take()?, generation: fields.u32()?, attempt: fields.u32()? });
    }
    Ok((append_time_ms, entries))
}

/// A metadata record as stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MetadataRow {
    /// The session whose end takes the record with it; 0 for none.
    pub(crate) session: u64,
    pub(crate) version: u64,
    pub(crate) value: Bytes,
}

impl MetadataRow {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut row = Vec::with_capacity(17 + self.value.len());
        row.put_u8(VERSION);
        row.put_u64(self.session);
        row.put_u64(self.version);
        row.put_slice(&self.value);
        row
    }

    pub(crate) fn decode(mut row: Bytes) -> Result<MetadataRow, RowError> {
        let mut fields = Fields::of("metadata", &row)?;
        let (session, version) = (fields.u64()?, fields.u64()?);
        row.advance(17);
        Ok(MetadataRow { session, version, value: row })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_bytes_are_these() {
        let partition = PartitionKey { topic_no: 1, partition: 2 };
        assert_eq!(partition.run(3), *b"\0\0\0\x01\0\0\0\x02\0\0\0\0\0\0\0\x03");
        assert_eq!(partition.row_key(), b"p\0\0\0\x01\0\0\0\x02");
        assert_eq!(TopicRow::key("orders"), b"torders");
        assert_eq!(ephemeral_key("a/b"), b"ea/b");
        assert_eq!(
            TopicRow { topic_no: 7, partition_count: 4, id: [9; 16] }.encode(),
            b"\x01\0\0\0\x07\0\0\0\x04\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t"
        );
        assert_eq!(
            PartitionRow { start: 1, end: 2, append_time_ms: 3, bytes: 4 }.encode(),
            b"\x01\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0\x04"
        );
        assert_eq!(encode_version(258), b"\x01\0\0\0\0\0\0\x01\x02");
        let key = AttemptsKey { order: 5, partition, first_offset: 6 };
        assert_eq!(
            key.encode(b"scope").expect("short"),
            b"\0\x05scope\0\0\0\0\0\0\0\x05\0\0\0\x01\0\0\0\x02\0\0\0\0\0\0\0\x06"
        );
        let entry = AttemptEntry { message: [8; 16], generation: 1, attempt: 2 };
        assert_eq!(
            encode_attempts(3, &[entry]),
            b"\x01\0\0\0\0\0\0\0\x03\x08\x08\x08\x08\x08\x08\x08\x08\x08\x08\x08\x08\x08\x08\x08\x08\0\0\0\x01\0\0\0\x02"
        );
        let row = MetadataRow { session: 1, version: 2, value: Bytes::from("value") };
        assert_eq!(row.encode(), b"\x01\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x02value");
    }

    #[test]
    fn foreign_rows_are_corrupt() {
        for foreign in [&b""[..], b"\x02", b"\x01\0", &[1; 64]] {
            assert!(TopicRow::decode(foreign).is_err());
            assert!(PartitionRow::decode(foreign).is_err());
            assert!(decode_version(foreign).is_err());
        }
        for foreign in [&b""[..], b"\x02", b"\x01\0", &[1; 9 + 23]] {
            assert!(decode_attempts(foreign).is_err());
        }
        for foreign in [&b""[..], b"\x02", b"\x01\0", &[1; 16]] {
            assert!(MetadataRow::decode(Bytes::copy_from_slice(foreign)).is_err());
        }
        assert!(run_offset(&[0; 15]).is_err() && run_offset(&[0; 17]).is_err());
        assert!(AttemptsKey::decode(b"scope", &[0; 30]).is_err());
        assert_eq!(attempts_bound(&vec![0; 65_536], 0), None);
    }

    proptest! {
        #[test]
        fn rows_are_read_as_written(numbers: [u64; 5], id: [u8; 16], value: Vec<u8>, short: (u32, u32)) {
            let topic = TopicRow { topic_no: short.0, partition_count: short.1, id };
            prop_assert_eq!(TopicRow::decode(&topic.encode()), Ok(topic));
            let append_time_ms = i64::from_be_bytes(numbers[2].to_be_bytes());
            let row = PartitionRow { start: numbers[0], end: numbers[1], append_time_ms, bytes: numbers[3] };
            prop_assert_eq!(PartitionRow::decode(&row.encode()), Ok(row));
            let partition = PartitionKey { topic_no: short.0, partition: short.1 };
            prop_assert_eq!(run_offset(&partition.run(numbers[4])), Ok(numbers[4]));
            let key = AttemptsKey { order: numbers[0], partition, first_offset: numbers[1] };
            prop_assert_eq!(AttemptsKey::decode(&value, &key.encode(&value).expect("short")), Ok(key));
            let entries = vec![AttemptEntry { message: id, generation: short.0, attempt: short.1 }; value.len() % 5];
            prop_assert_eq!(decode_attempts(&encode_attempts(append_time_ms, &entries)), Ok((append_time_ms, entries)));
            let row = MetadataRow { session: numbers[0], version: numbers[1], value: Bytes::from(value) };
            prop_assert_eq!(MetadataRow::decode(Bytes::from(row.encode())), Ok(row));
        }

        #[test]
        fn attempts_sort_by_scope_and_order(a: (u8, u64), b: (u8, u64)) {
            let key = |(scope, order): (u8, u64)| attempts_bound(&[scope], order).expect("short");
            prop_assert_eq!(key(a).cmp(&key(b)), a.cmp(&b));
        }
    }
}
