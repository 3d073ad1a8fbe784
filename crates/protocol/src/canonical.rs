//! One value, one encoding (protocol registry §2.2).
//!
//! Hashes and signatures cover bytes, so two encodings of one value would be two commands. Bytes are canonical when decoding
//! and encoding them again gives the same bytes; how that is found out without encoding is in `schema.rs`.

use bytes::{Buf, Bytes};
use prost::Message;

use crate::field::FieldError;
use crate::schema;
pub use crate::schema::Canonical;

/// Why bytes are not the canonical encoding of a message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not canonical at offset {offset} of {length}: {fault}")]
pub struct CanonicalError {
    /// The first byte at fault; the length itself where something is missing at the end.
    pub offset: usize,
    /// Length of the input.
    pub length: usize,
    /// What is wrong there.
    pub fault: CanonicalFault,
}

/// What makes an encoding another than the canonical one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CanonicalFault {
    /// The message, a field or a number ends too early.
    #[error("the bytes end within a value")]
    Truncated,
    /// A number longer than needed, or beyond 64 bits.
    #[error("a number is not in its shortest form")]
    LongNumber,
    /// A field that the message does not have.
    #[error("{message} has no field {number}")]
    Unknown {
        /// The message.
        message: &'static str,
        /// The field's number.
        number: u64,
    },
    /// A field behind a later one, a second time, or beside another of the same choice.
    #[error("{message}.{field} stands where it may not")]
    Misplaced {
        /// The message.
        message: &'static str,
        /// The field.
        field: &'static str,
    },
    /// A field that is always written and is not.
    #[error("{message}.{field} is missing")]
    Missing {
        /// The message.
        message: &'static str,
        /// The field.
        field: &'static str,
    },
    /// A zero or an empty value that is left out in canonical form.
    #[error("{message}.{field} is written although it has no value")]
    DefaultWritten {
        /// The message.
        message: &'static str,
        /// The field.
        field: &'static str,
    },
    /// A field of another wire type.
    #[error("{message}.{field} has another wire type")]
    WireType {
        /// The message.
        message: &'static str,
        /// The field.
        field: &'static str,
    },
    /// A number beyond its field's type.
    #[error("{message}.{field} is beyond its type")]
    OutOfRange {
        /// The message.
        message: &'static str,
        /// The field.
        field: &'static str,
    },
    /// Text that is not UTF-8.
    #[error("{message}.{field} is not UTF-8")]
    NotUtf8 {
        /// The message.
        message: &'static str,
        /// The field.
        field: &'static str,
    },
    /// No message at all.
    #[error("{reason}")]
    Undecodable {
        /// What the decoder said.
        reason: String,
    },
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
            Self::Canonical(error) => Some(error.offset),
            Self::Field(_) => None,
        }
    }
}

/// Decodes `bytes` and checks that they are the message's only encoding. Byte fields are slices of `bytes`.
///
/// # Errors
/// [`CanonicalError`] with the first byte at fault.
pub fn decode_canonical<M: Canonical>(bytes: &Bytes) -> Result<M, CanonicalError> {
    check::<M>(bytes)?;
    decode(bytes)
}

/// Decodes without asking for canonical form: the caller reads version numbers first and calls [`check`] after.
pub(crate) fn decode<M: Message + Default>(bytes: &Bytes) -> Result<M, CanonicalError> {
    let mut message = M::default();
    let mut rest = bytes.clone();
    match message.merge(&mut rest) {
        Ok(()) => Ok(message),
        Err(error) => Err(CanonicalError {
            offset: bytes.len() - rest.remaining(),
            length: bytes.len(),
            fault: CanonicalFault::Undecodable { reason: error.to_string() },
        }),
    }
}

/// Checks that `bytes` are the only encoding of what they decode to.
pub(crate) fn check<M: Canonical>(bytes: &[u8]) -> Result<(), CanonicalError> {
    schema::check(M::SCHEMA, bytes)
}

/// Encodes a message, which gives canonical form.
pub(crate) fn encode(message: &impl Message) -> Bytes {
    message.encode_to_vec().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{v1, v2};

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
    fn a_fault_has_its_place_and_name() {
        use CanonicalFault::{LongNumber, Misplaced, OutOfRange, Truncated, Unknown, WireType};
        let (message, field) = ("MessagePrecondition", "expected_generation");
        let refused = |bytes, offset, fault| {
            let length = <[u8]>::len(bytes);
            assert_eq!(decode_precondition(bytes), Err(CanonicalError { offset, length, fault }));
        };
        refused(&[0x08, 0x81, 0x00], 1, LongNumber);
        refused(&[0x08, 0x01, 0x18, 0x01], 2, Unknown { message, number: 3 });
        refused(&[0x10, 0x01, 0x08, 0x01], 2, Misplaced { message, field });
        refused(&[0x08, 0x01, 0x08, 0x01], 2, Misplaced { message, field });
        refused(&[0x08, 0x80, 0x80, 0x80, 0x80, 0x10], 1, OutOfRange { message, field });
        refused(&[0x08, 0x80], 1, Truncated);
        refused(&[0x09, 0, 0, 0, 0, 0, 0, 0, 0], 0, WireType { message, field });
        refused(&[0x0a, 0x01, 0x00], 0, WireType { message, field });
        let max = [0x10, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
        assert_eq!(decode_precondition(max[..].to_vec().leak()).unwrap().expected_state_version, Some(u64::MAX));
        refused(&[0x10, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02], 1, LongNumber);
    }

    #[test]
    fn nested_faults_have_the_place_of_the_whole() {
        // A cancel whose precondition, the last field, lacks a byte that its length promises.
        let body = v1::CancelBody { delay_message_id: Bytes::from_static(&[1; 41]), ..Default::default() };
        let mut bytes = body.encode_to_vec();
        *bytes.last_mut().unwrap() = 1;
        let error = decode_canonical::<v1::CancelBody>(&bytes.clone().into()).unwrap_err();
        assert_eq!((error.offset, error.fault), (bytes.len() - 1, CanonicalFault::Truncated));
        bytes.push(0x20);
        let error = decode_canonical::<v1::CancelBody>(&bytes.clone().into()).unwrap_err();
        let fault = CanonicalFault::Unknown { message: "MessagePrecondition", number: 4 };
        assert_eq!((error.offset, error.fault), (bytes.len() - 1, fault));
    }

    #[test]
    fn proto3_leaves_out_what_has_no_value() {
        let decode = |bytes: &'static [u8]| decode_canonical::<v2::Admission>(&Bytes::from_static(bytes));
        assert_eq!(decode(&[]).unwrap(), v2::Admission::default());
        let written = CanonicalFault::DefaultWritten { message: "Admission", field: "generation" };
        assert_eq!(decode(&[0x10, 0]).unwrap_err().fault, written);
        assert!(decode(&[0x0a, 0]).is_err());
        assert_eq!(decode(&[0x20, 0]).unwrap().sequence, Some(0));
        let key = |bytes: &'static [u8]| decode_canonical::<v2::SigningKey>(&Bytes::from_static(bytes));
        assert_eq!(key(&[0x1a, 2, 1, 2]).unwrap().roles, [1, 2]);
        assert!(key(&[0x1a, 0]).is_err());
        assert!(key(&[0x18, 1]).is_err());
    }
}
