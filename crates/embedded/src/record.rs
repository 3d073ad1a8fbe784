//! What stands in a destination topic: a record with key, value, headers and timestamp, as Kafka has them.
//!
//! ```text
//! 0x01 | flags u8 (1: key, 2: value) | timestamp i64be | [key] | [value] | header count u32be | headers
//! header:  name | flags u8 (1: value) | [value]              key, value, name:  length u32be | bytes
//! ```
//!
//! A key or value that is null is absent, an empty one has length zero: the two are never confused. Decoding is strict: one
//! form for every record, no bytes left over.

use bytes::{Buf, BufMut, Bytes, BytesMut};

const VERSION: u8 = 1;
const HAS_KEY: u8 = 1;
const HAS_VALUE: u8 = 2;
const HEADER_HAS_VALUE: u8 = 1;

/// A header: a name, and a value or null.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Its name; names may repeat.
    pub name: String,
    /// Its value; `None` is null, which is not empty.
    pub value: Option<Bytes>,
}

/// A record of a destination topic.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopicRecord {
    /// Its key; `None` is null, which is not empty.
    pub key: Option<Bytes>,
    /// Its value; `None` is null (a tombstone), which is not empty.
    pub value: Option<Bytes>,
    /// Its headers, in order.
    pub headers: Vec<Header>,
    /// The producer's timestamp, in milliseconds since 1970.
    pub timestamp_ms: i64,
}

/// Bytes that are no record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// A version this build does not read.
    #[error("topic record has version {found}, this build reads {VERSION}")]
    Version {
        /// The version byte.
        found: u8,
    },
    /// The bytes end inside a field.
    #[error("topic record ends inside its {field}: {expected} bytes expected, {found} left")]
    Truncated {
        /// The field.
        field: &'static str,
        /// Bytes it needs.
        expected: usize,
        /// Bytes there are.
        found: usize,
    },
    /// Bytes behind the last header.
    #[error("topic record has {count} bytes behind its end")]
    Trailing {
        /// How many.
        count: usize,
    },
    /// A flag this version does not define.
    #[error("topic record has unknown {field} flags {found:#04x}")]
    Flags {
        /// Whose flags.
        field: &'static str,
        /// The flag byte.
        found: u8,
    },
    /// A header's name is no UTF-8.
    #[error("header {index} of a topic record has a name that is no UTF-8")]
    HeaderName {
        /// Which header, from 0.
        index: u32,
    },
}

/// A part that does not fit the format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} of a topic record has {bytes} bytes, at most {} are possible", u32::MAX)]
pub struct RecordTooLarge {
    /// Which part.
    pub field: &'static str,
    /// Its length or count.
    pub bytes: usize,
}

impl TopicRecord {
    /// The bytes that are appended to a topic.
    ///
    /// # Errors
    /// [`RecordTooLarge`] for a part of 4 GiB or more.
    pub fn encode(&self) -> Result<Bytes, RecordTooLarge> {
        let mut bytes = BytesMut::with_capacity(self.encoded_bytes());
        bytes.put_u8(VERSION);
        let mut flags = 0;
        if self.key.is_some() {
            flags |= HAS_KEY;
        }
        if self.value.is_some() {
            flags |= HAS_VALUE;
        }
        bytes.put_u8(flags);
        bytes.put_i64(self.timestamp_ms);
        if let Some(key) = &self.key {
            put_part(&mut bytes, "key", key)?;
        }
        if let Some(value) = &self.value {
            put_part(&mut bytes, "value", value)?;
        }
        bytes.put_u32(length("header count", self.headers.len())?);
        for header in &self.headers {
            put_part(&mut bytes, "header name", header.name.as_bytes())?;
            match &header.value {
                None => bytes.put_u8(0),
                Some(value) => {
                    bytes.put_u8(HEADER_HAS_VALUE);
                    put_part(&mut bytes, "header value", value)?;
                }
            }
        }
        Ok(bytes.freeze())
    }

    /// How many bytes [`encode`](Self::encode) gives.
    pub fn encoded_bytes(&self) -> usize {
        let part = |part: &Option<Bytes>| part.as_ref().map_or(0, |part| 4 + part.len());
        let headers = self.headers.iter().map(|header| 4 + header.name.len() + 1 + part(&header.value));
        14 + part(&self.key) + part(&self.value) + headers.sum::<usize>()
    }

    /// Reads a record back, without copying its parts.
    ///
    /// # Errors
    /// [`RecordError`] for anything [`encode`](Self::encode) does not give.
    pub fn decode(record: &Bytes) -> Result<TopicRecord, RecordError> {
        let mut bytes = record.clone();
        need(&bytes, "version", 1)?;
        let found = bytes.get_u8();
        if found != VERSION {
            return Err(RecordError::Version { found });
        }
        need(&bytes, "flags and timestamp", 9)?;
        let flags = bytes.get_u8();
        if flags & !(HAS_KEY | HAS_VALUE) != 0 {
            return Err(RecordError::Flags { field: "record", found: flags });
        }
        let timestamp_ms = bytes.get_i64();
        let key = if flags & HAS_KEY == 0 { None } else { Some(take_part(&mut bytes, "key")?) };
        let value = if flags & HAS_VALUE == 0 { None } else { Some(take_part(&mut bytes, "value")?) };
        need(&bytes, "header count", 4)?;
        let header_count = bytes.get_u32();
        // Nothing is reserved by a count that may be a lie; each header takes five bytes at least.
        let mut headers = Vec::with_capacity((bytes.len() / 5).min(header_count as usize));
        for index in 0..header_count {
            headers.push(take_header(&mut bytes, index)?);
        }
        if !bytes.is_empty() {
            return Err(RecordError::Trailing { count: bytes.len() });
        }
        Ok(TopicRecord { key, value, headers, timestamp_ms })
    }
}

fn length(field: &'static str, bytes: usize) -> Result<u32, RecordTooLarge> {
    u32::try_from(bytes).map_err(|_| RecordTooLarge { field, bytes })
}

fn put_part(bytes: &mut BytesMut, field: &'static str, part: &[u8]) -> Result<(), RecordTooLarge> {
    bytes.put_u32(length(field, part.len())?);
    bytes.put_slice(part);
    Ok(())
}

fn need(bytes: &Bytes, field: &'static str, expected: usize) -> Result<(), RecordError> {
    let found = bytes.len();
    if found < expected { Err(RecordError::Truncated { field, expected, found }) } else { Ok(()) }
}

fn take_part(bytes: &mut Bytes, field: &'static str) -> Result<Bytes, RecordError> {
    need(bytes, field, 4)?;
    let length = bytes.get_u32() as usize;
    need(bytes, field, length)?;
    Ok(bytes.split_to(length))
}

fn take_header(bytes: &mut Bytes, index: u32) -> Result<Header, RecordError> {
    let name = take_part(bytes, "header name")?;
    let name = String::from_utf8(name.to_vec()).map_err(|_| RecordError::HeaderName { index })?;
    need(bytes, "header flags", 1)?;
    let value = match bytes.get_u8() {
        0 => None,
        HEADER_HAS_VALUE => Some(take_part(bytes, "header value")?),
        found => return Err(RecordError::Flags { field: "header", found }),
    };
    Ok(Header { name, value })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sample() -> TopicRecord {
        TopicRecord {
            key: Some(Bytes::from("k")),
            value: Some(Bytes::new()),
            headers: vec![
                Header { name: "a".to_owned(), value: Some(Bytes::from("1")) },
                Header { name: "a".to_owned(), value: None },
            ],
            timestamp_ms: 258,
        }
    }

    #[test]
    fn the_bytes_are_these() {
        assert_eq!(
            sample().encode().expect("small")[..],
            *b"\x01\x03\0\0\0\0\0\0\x01\x02\0\0\0\x01k\0\0\0\0\0\0\0\x02\0\0\0\x01a\x01\0\0\0\x011\0\0\0\x01a\0"
        );
        assert_eq!(
            TopicRecord::default().encode().expect("small")[..],
            *b"\x01\0\0\0\0\0\0\0\0\0\0\0\0\0",
            "a record of nothing but its time"
        );
    }

    #[test]
    fn null_and_empty_differ() {
        let null = TopicRecord::default();
        let empty = TopicRecord { key: Some(Bytes::new()), value: Some(Bytes::new()), ..TopicRecord::default() };
        let read = |record: &TopicRecord| TopicRecord::decode(&record.encode().expect("small")).expect("just written");
        assert_eq!(read(&null), null);
        assert_eq!(read(&empty), empty);
        assert_ne!(null.encode(), empty.encode());
    }

    #[test]
    fn every_cut_and_every_extra_byte_is_noticed() {
        let whole = sample().encode().expect("small");
        for length in 0..whole.len() {
            let error = TopicRecord::decode(&whole.slice(..length)).expect_err("cut");
            assert!(matches!(error, RecordError::Truncated { .. }), "{error}");
        }
        let mut longer = whole.to_vec();
        longer.push(0);
        assert_eq!(TopicRecord::decode(&Bytes::from(longer)), Err(RecordError::Trailing { count: 1 }));
    }

    #[test]
    fn unknown_versions_flags_and_names_are_refused() {
        let with = |at: usize, byte: u8| {
            let mut bytes = sample().encode().expect("small").to_vec();
            bytes[at] = byte;
            TopicRecord::decode(&Bytes::from(bytes)).expect_err("refused")
        };
        assert_eq!(with(0, 2), RecordError::Version { found: 2 });
        assert_eq!(with(1, 7), RecordError::Flags { field: "record", found: 7 });
        assert_eq!(with(27, 0xff), RecordError::HeaderName { index: 0 });
        assert_eq!(with(28, 2), RecordError::Flags { field: "header", found: 2 });
        let mut lying = TopicRecord::default().encode().expect("small").to_vec();
        lying[10..14].copy_from_slice(&u32::MAX.to_be_bytes());
        assert!(matches!(TopicRecord::decode(&Bytes::from(lying)), Err(RecordError::Truncated { .. })));
    }

    fn part() -> impl Strategy<Value = Option<Bytes>> {
        prop::option::of(prop::collection::vec(any::<u8>(), 0..20).prop_map(Bytes::from))
    }

    proptest! {
        #[test]
        fn records_are_read_as_written(
            key in part(),
            value in part(),
            headers in prop::collection::vec((".{0,5}", part()), 0..5),
            timestamp_ms: i64,
        ) {
            let headers = headers.into_iter().map(|(name, value)| Header { name, value }).collect();
            let record = TopicRecord { key, value, headers, timestamp_ms };
            let bytes = record.encode().expect("small");
            prop_assert_eq!(bytes.len(), record.encoded_bytes());
            prop_assert_eq!(TopicRecord::decode(&bytes), Ok(record));
        }

        #[test]
        fn every_record_has_one_form(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let bytes = Bytes::from(bytes);
            if let Ok(record) = TopicRecord::decode(&bytes) {
                prop_assert_eq!(record.encode().expect("small"), bytes);
            }
        }
    }
}
