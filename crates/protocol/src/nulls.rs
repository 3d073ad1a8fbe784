//! Null values of Kafka records, which a V1 body cannot say.
//!
//! In Kafka a record's value and a header's value may be null, which is not the same as empty: a null value deletes the key in
//! a compacted topic. The V1 body knows bytes only. What is null is therefore said by one header of our own behind the
//! caller's, and whoever publishes the message takes that header off again.
//!
//! The header is named [`MARKER_NAME`]: names beginning with `nereus.delay.` are refused by every V1 decoder, so a frame that
//! used one would be readable by nobody else. Its value is one byte of flags (bit 0: the record's value is null) and then,
//! strictly ascending, two bytes big endian for each header whose value is null, counted from 0. What is null is empty where
//! V1 puts it, and a marker states at least one null.

use bytes::{BufMut, Bytes, BytesMut};

use crate::command::KafkaHeader;

/// The one header name that is ours although it lacks the reserved prefix.
pub const MARKER_NAME: &str = "nereus.nulls";

const VALUE_IS_NULL: u8 = 1;

/// Which values of a record are null.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Nulls {
    /// Whether the record's value is.
    pub value_is_null: bool,
    /// The headers whose value is, strictly ascending, counted from 0.
    pub headers: Vec<u16>,
}

/// Why a marker is not one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NullMarkerError {
    /// Something follows the marker, or a second one does.
    #[error("the header {MARKER_NAME} is number {index} of {count}, not the last")]
    NotLast {
        /// Its place, from 0.
        index: usize,
        /// Number of headers.
        count: usize,
    },
    /// Not one byte and then pairs of bytes.
    #[error("the header {MARKER_NAME} has {length} bytes, an even number")]
    Length {
        /// Length of the value.
        length: usize,
    },
    /// A flag that does not exist.
    #[error("the header {MARKER_NAME} has flags {flags:#04x}")]
    Flags {
        /// The first byte.
        flags: u8,
    },
    /// A marker that marks nothing: two records would then be the same in Kafka and different here.
    #[error("the header {MARKER_NAME} states no null")]
    Empty,
    /// A header number that does not follow the one before.
    #[error("the header {MARKER_NAME} names header {index} after header {previous}")]
    NotAscending {
        /// The number.
        index: u16,
        /// The one before.
        previous: u16,
    },
    /// A header that does not exist.
    #[error("the header {MARKER_NAME} names header {index} of {count}")]
    NoSuchHeader {
        /// The number.
        index: u16,
        /// Number of the caller's headers.
        count: usize,
    },
    /// A null header with a value.
    #[error("header {index} is null and has {length} bytes")]
    HeaderNotEmpty {
        /// The header.
        index: u16,
        /// Length of its value.
        length: usize,
    },
    /// A null value with a payload.
    #[error("the record's value is null and the payload has {length} bytes")]
    PayloadNotEmpty {
        /// Length of the payload.
        length: u64,
    },
}

/// The marker's value, or `None` when nothing is null. `headers` must be strictly ascending.
#[must_use]
pub fn encode(value_is_null: bool, headers: &[u16]) -> Option<Bytes> {
    if !value_is_null && headers.is_empty() {
        return None;
    }
    debug_assert!(headers.is_sorted_by(|a, b| a < b), "null headers are named once and in order");
    let mut value = BytesMut::with_capacity(1 + 2 * headers.len());
    value.put_u8(if value_is_null { VALUE_IS_NULL } else { 0 });
    for index in headers {
        value.put_u16(*index);
    }
    Some(value.freeze())
}

/// Takes the marker off: what is null, and the caller's own headers. `payload_length` is that of the message's payload, inline
/// or not.
///
/// # Errors
/// [`NullMarkerError`] for a marker that is not well-formed. Preparation refuses such a message, and so does apply.
pub fn split(headers: &[KafkaHeader], payload_length: u64) -> Result<(Nulls, &[KafkaHeader]), NullMarkerError> {
    let Some(index) = headers.iter().position(|header| &*header.name == MARKER_NAME) else {
        return Ok((Nulls::default(), headers));
    };
    let (caller, rest) = headers.split_at(index);
    let [marker] = rest else {
        return Err(NullMarkerError::NotLast { index, count: headers.len() });
    };
    let nulls = parse(&marker.value)?;
    if nulls.value_is_null && payload_length > 0 {
        return Err(NullMarkerError::PayloadNotEmpty { length: payload_length });
    }
    for index in &nulls.headers {
        let header = caller.get(usize::from(*index));
        let header = header.ok_or(NullMarkerError::NoSuchHeader { index: *index, count: caller.len() })?;
        if !header.value.is_empty() {
            return Err(NullMarkerError::HeaderNotEmpty { index: *index, length: header.value.len() });
        }
    }
    Ok((nulls, caller))
}

fn parse(value: &[u8]) -> Result<Nulls, NullMarkerError> {
    let length = value.len();
    let (flags, indices) = value.split_first().ok_or(NullMarkerError::Length { length })?;
    let (indices, []) = indices.as_chunks::<2>() else {
        return Err(NullMarkerError::Length { length });
    };
    if flags & !VALUE_IS_NULL != 0 {
        return Err(NullMarkerError::Flags { flags: *flags });
    }
    let headers: Vec<u16> = indices.iter().map(|index| u16::from_be_bytes(*index)).collect();
    if let Some(pair) = headers.windows(2).find(|pair| pair[0] >= pair[1]) {
        return Err(NullMarkerError::NotAscending { index: pair[1], previous: pair[0] });
    }
    if *flags == 0 && headers.is_empty() {
        return Err(NullMarkerError::Empty);
    }
    Ok(Nulls { value_is_null: *flags == VALUE_IS_NULL, headers })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(name: &str, value: &'static [u8]) -> KafkaHeader {
        KafkaHeader { name: name.try_into().unwrap(), value: Bytes::from_static(value) }
    }

    fn refused(headers: &[KafkaHeader], payload_length: u64) -> NullMarkerError {
        split(headers, payload_length).unwrap_err()
    }

    #[test]
    fn what_is_written_is_read() {
        assert_eq!(encode(false, &[]), None);
        let value = encode(true, &[0, 2]).unwrap();
        assert_eq!(&value[..], [1, 0, 0, 0, 2]);
        let headers = [
            header("a", b""),
            header("b", b"x"),
            header("a", b""),
            KafkaHeader { name: MARKER_NAME.try_into().unwrap(), value },
        ];
        let (nulls, caller) = split(&headers, 0).unwrap();
        assert_eq!(nulls, Nulls { value_is_null: true, headers: vec![0, 2] });
        assert_eq!(caller, &headers[..3]);
        let (nulls, caller) = split(&headers[..3], 9).unwrap();
        assert_eq!((nulls, caller.len()), (Nulls::default(), 3));
    }

    #[test]
    fn a_marker_that_is_not_well_formed_is_refused() {
        let marker = |value| header(MARKER_NAME, value);
        assert_eq!(refused(&[marker(&[1]), header("a", b"")], 0), NullMarkerError::NotLast { index: 0, count: 2 });
        assert_eq!(refused(&[marker(&[1]), marker(&[1])], 0), NullMarkerError::NotLast { index: 0, count: 2 });
        assert_eq!(refused(&[marker(&[])], 0), NullMarkerError::Length { length: 0 });
        assert_eq!(refused(&[marker(&[1, 0])], 0), NullMarkerError::Length { length: 2 });
        assert_eq!(refused(&[marker(&[3])], 0), NullMarkerError::Flags { flags: 3 });
        assert_eq!(refused(&[marker(&[0])], 0), NullMarkerError::Empty);
        let (a, b) = (header("a", b""), header("b", b"x"));
        let with = |value| [a.clone(), b.clone(), marker(value)];
        assert_eq!(refused(&with(&[0, 0, 0, 0, 0]), 0), NullMarkerError::NotAscending { index: 0, previous: 0 });
        assert_eq!(refused(&with(&[0, 0, 2]), 0), NullMarkerError::NoSuchHeader { index: 2, count: 2 });
        assert_eq!(refused(&with(&[0, 0, 1]), 0), NullMarkerError::HeaderNotEmpty { index: 1, length: 1 });
        assert_eq!(refused(&with(&[1]), 5), NullMarkerError::PayloadNotEmpty { length: 5 });
    }
}
