//! One value, one encoding (protocol registry §2.2).
//!
//! Hashes and signatures cover bytes, so two encodings of one value would be two commands. Instead of checking each rule of
//! the canonical form (field order, presence, minimal varints, no unknown fields) a message is decoded, encoded again and
//! compared: whatever breaks a rule shows up as a difference.

use bytes::{Buf, Bytes};
use prost::Message;

use crate::field::FieldError;

/// Why bytes are not the canonical encoding of a message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CanonicalError {
    /// No protobuf message of this type at all.
    #[error("not decodable at offset {offset} of {length}: {reason}")]
    Undecodable {
        /// How far the decoder came.
        offset: usize,
        /// Length of the input.
        length: usize,
        /// What the decoder said.
        reason: String,
    },
    /// Another encoding than the canonical one: an unknown, repeated, missing or misplaced field, a value written longer than
    /// needed or beyond its type.
    #[error("not canonical: differs at offset {offset} of {length}")]
    NotCanonical {
        /// The first byte that the canonical encoding has otherwise.
        offset: usize,
        /// Length of the input.
        length: usize,
    },
}

impl CanonicalError {
    /// The first byte at fault.
    #[must_use]
    pub fn offset(&self) -> usize {
        match self {
            Self::Undecodable { offset, .. } | Self::NotCanonical { offset, .. } => *offset,
        }
    }
}

/// Why bytes are not a legal value: not its canonical encoding, or a value that the registry does not allow.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Another encoding than the canonical one.
    #[error(transparent)]
    Canonical(#[from] CanonicalError),
    /// A field that breaks a rule.
    #[error(transparent)]
    Field(#[from] FieldError),
}

impl DecodeError {
    /// The first byte at fault, where one byte is.
    #[must_use]
    pub fn offset(&self) -> Option<usize> {
        match self {
            Self::Canonical(error) => Some(error.offset()),
            Self::Field(_) => None,
        }
    }
}

/// Decodes `bytes` and checks that they are the message's only encoding. Byte fields are slices of `bytes`.
///
/// # Errors
/// [`CanonicalError`] with the first byte at fault.
pub fn decode_canonical<M: Message + Default>(bytes: &Bytes) -> Result<M, CanonicalError> {
    let message = decode(bytes)?;
    check(&message, bytes)?;
    Ok(message)
}

/// Decodes without asking for canonical form: the caller reads version numbers first and calls [`check`] after.
pub(crate) fn decode<M: Message + Default>(bytes: &Bytes) -> Result<M, CanonicalError> {
    let mut message = M::default();
    let mut rest = bytes.clone();
    match message.merge(&mut rest) {
        Ok(()) => Ok(message),
        Err(error) => Err(CanonicalError::Undecodable {
            offset: bytes.len() - rest.remaining(),
            length: bytes.len(),
            reason: error.to_string(),
        }),
    }
}

/// Checks that `message`, decoded from `bytes`, encodes to them.
pub(crate) fn check(message: &impl Message, bytes: &[u8]) -> Result<(), CanonicalError> {
    let again = message.encode_to_vec();
    if again == bytes {
        return Ok(());
    }
    let differs = again.iter().zip(bytes).position(|(ours, theirs)| ours != theirs);
    // One is a prefix of the other when no byte differs.
    let offset = differs.unwrap_or_else(|| again.len().min(bytes.len()));
    Err(CanonicalError::NotCanonical { offset, length: bytes.len() })
}

/// Encodes a message whose fields are in canonical order by construction.
pub(crate) fn encode(message: &impl Message) -> Bytes {
    message.encode_to_vec().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v1;

    fn decode_precondition(bytes: &'static [u8]) -> Result<v1::MessagePrecondition, CanonicalError> {
        decode_canonical(&Bytes::from_static(bytes))
    }

    #[test]
    fn presence_is_explicit() {
        assert_eq!(decode_precondition(b"").unwrap(), v1::MessagePrecondition::default());
        let zero = decode_precondition(&[0x08, 0]).unwrap();
        assert_eq!((zero.expected_generation, zero.expected_state_version), (Some(0), None));
    }

    #[test]
    fn the_first_byte_at_fault_is_named() {
        let refused = |bytes, offset| {
            let error = decode_precondition(bytes).unwrap_err();
            assert_eq!(error.offset(), offset, "{error}");
        };
        // Over-long varint, unknown field, wrong order, duplicate, value beyond u32.
        refused(&[0x08, 0x81, 0x00], 1);
        refused(&[0x08, 0x01, 0x18, 0x01], 2);
        refused(&[0x10, 0x01, 0x08, 0x01], 0);
        refused(&[0x08, 0x01, 0x08, 0x01], 2);
        refused(&[0x08, 0x80, 0x80, 0x80, 0x80, 0x10], 1);
        // Cut within a varint, wire type of a fixed64, length beyond the end.
        refused(&[0x08, 0x80], 2);
        refused(&[0x09, 0, 0, 0, 0, 0, 0, 0, 0], 1);
        refused(&[0x1a, 0x05, 0x00], 2);
    }
}
