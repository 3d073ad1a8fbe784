//! The bytes around every stored value: a version and, where it is known, the row's logical end.
//!
//! ```text
//! 0x01            | body      no logical end, or not known yet
//! 0x81 | i64be ms | body      absent for apply, queries and the digest once `closed >= ms`
//! ```
//!
//! The end stands in front of the body so that a compaction filter can drop ended rows of any table without decoding them.

use bytes::{BufMut, Bytes, BytesMut};
use prost::Message;

use crate::store::StoreError;

const VERSION: u8 = 1;
const HAS_END: u8 = 0x80;

/// Encodes `body` behind the envelope.
pub fn encode(body: &impl Message, end_ms: Option<i64>) -> Bytes {
    let mut value = BytesMut::with_capacity(9 + body.encoded_len());
    put_header(&mut value, end_ms);
    // A BytesMut grows as needed, so encoding into it cannot run out of room.
    body.encode(&mut value).expect("a growing buffer has room");
    value.freeze()
}

/// Puts raw bytes behind the envelope.
pub fn encode_bytes(body: &[u8], end_ms: Option<i64>) -> Bytes {
    let mut value = BytesMut::with_capacity(9 + body.len());
    put_header(&mut value, end_ms);
    value.put_slice(body);
    value.freeze()
}

fn put_header(value: &mut BytesMut, end_ms: Option<i64>) {
    match end_ms {
        None => value.put_u8(VERSION),
        Some(end_ms) => {
            value.put_u8(VERSION | HAS_END);
            value.put_i64(end_ms);
        }
    }
}

/// The logical end of a stored value, read without decoding it. `None` for a value that has none or that is no value of
/// ours.
pub fn logical_end(value: &[u8]) -> Option<i64> {
    let (first, rest) = value.split_first()?;
    if *first != VERSION | HAS_END {
        return None;
    }
    Some(i64::from_be_bytes(rest.first_chunk().copied()?))
}

/// Whether the row is logically absent behind a fence that closed every deadline up to `closed_ms`.
pub fn has_ended(value: &[u8], closed_ms: i64) -> bool {
    logical_end(value).is_some_and(|end_ms| end_ms <= closed_ms)
}

/// The body of a stored value.
///
/// # Errors
/// [`StoreError::Corrupt`] for an empty value or a version this build does not write.
pub fn body(value: &Bytes) -> Result<Bytes, StoreError> {
    let header_length = match value.first() {
        Some(&VERSION) => 1,
        Some(&first) if first == VERSION | HAS_END && value.len() >= 9 => 9,
        Some(first) => return Err(corrupt(format!("value of version byte {first:#04x}, {} bytes", value.len()))),
        None => return Err(corrupt("empty value".to_owned())),
    };
    Ok(value.slice(header_length..))
}

/// Decodes the body of a stored value.
///
/// # Errors
/// [`StoreError::Corrupt`] as for [`body`], or when the body is not a `M`.
pub fn decode<M: Message + Default>(value: &Bytes) -> Result<M, StoreError> {
    M::decode(body(value)?).map_err(|error| corrupt(format!("row does not decode: {error}")))
}

fn corrupt(detail: String) -> StoreError {
    StoreError::Corrupt { detail }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_is_readable_without_decoding() {
        let value = encode_bytes(b"body", Some(77));
        assert_eq!(value[..], *b"\x81\0\0\0\0\0\0\0\x4dbody");
        assert_eq!(logical_end(&value), Some(77));
        assert!(has_ended(&value, 77));
        assert!(!has_ended(&value, 76));
        assert_eq!(body(&value).expect("ours"), Bytes::from_static(b"body"));
    }

    #[test]
    fn a_value_without_end_never_ends() {
        let value = encode_bytes(b"body", None);
        assert_eq!(value[..], *b"\x01body");
        assert!(!has_ended(&value, i64::MAX));
        assert_eq!(body(&value).expect("ours"), Bytes::from_static(b"body"));
    }

    #[test]
    fn foreign_values_are_corrupt() {
        for foreign in [&b""[..], b"\x02body", b"\x81\0\0"] {
            assert!(matches!(body(&Bytes::copy_from_slice(foreign)), Err(StoreError::Corrupt { .. })));
        }
    }
}
