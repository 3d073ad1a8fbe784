//! `NDR1`: the frame of a receipt, and its text form (protocol registry §2.13).
//!
//! A receipt is a locator with a checksum. The checksum says that nobody mistyped it; who may use it is decided elsewhere.

use bytes::{BufMut, Bytes};
use data_encoding::BASE64URL_NOPAD;

use crate::framing;
pub use crate::framing::FrameError;

/// `NDR1` in ASCII, the first four bytes of every receipt.
pub const MAGIC: u32 = 0x4e44_5231;
/// What the text form begins with.
pub const TEXT_PREFIX: &str = "ndr1_";

/// What a receipt is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum ReceiptKind {
    /// A command that stands in the log.
    CommandQueued = 1,
    /// A command that was applied.
    CommandApplied = 2,
    /// A message handed to Pulsar's own delayed delivery.
    NativeDelivery = 3,
    /// A reservation for a large payload.
    PayloadReservation = 4,
    /// An operation of an operator.
    ControlOperation = 5,
}

impl ReceiptKind {
    /// Every kind, ascending by number.
    pub const ALL: [Self; 5] = [
        Self::CommandQueued,
        Self::CommandApplied,
        Self::NativeDelivery,
        Self::PayloadReservation,
        Self::ControlOperation,
    ];

    /// The wire number.
    #[must_use]
    pub const fn as_u8(self) -> u8 {
        self as u8
    }

    /// The kind with this wire number.
    #[must_use]
    pub fn from_u8(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_u8() == number)
    }
}

/// One receipt taken out of its frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceiptFrame {
    /// What the payload is.
    pub kind: ReceiptKind,
    /// The payload's bytes, a slice of the frame.
    pub payload: Bytes,
}

/// Text that is no receipt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TextFormError {
    /// Another prefix.
    #[error("text does not begin with {TEXT_PREFIX}")]
    Prefix,
    /// Not unpadded base64url, or not the only such text of its bytes.
    #[error("text is not canonical unpadded base64url at character {at}")]
    Base64 {
        /// Offset of the fault in the whole text.
        at: usize,
    },
}

/// Frames `payload`.
#[must_use]
pub fn encode(kind: ReceiptKind, payload: &[u8]) -> Bytes {
    framing::encode(MAGIC, kind.as_u8(), payload.len(), |frame| frame.put_slice(payload))
}

/// Takes a frame apart; the payload is not looked into.
///
/// # Errors
/// [`FrameError`] for anything but exactly one whole frame.
pub fn decode(frame: &Bytes) -> Result<ReceiptFrame, FrameError> {
    let (kind, payload) = framing::decode(MAGIC, frame, |kind| ReceiptKind::from_u8(kind).is_some())?;
    let kind = ReceiptKind::from_u8(kind).ok_or(FrameError::Kind { found: kind })?;
    Ok(ReceiptFrame { kind, payload })
}

/// The text form of a frame.
#[must_use]
pub fn to_text(frame: &[u8]) -> String {
    format!("{TEXT_PREFIX}{}", BASE64URL_NOPAD.encode_display(frame))
}

/// The frame that `text` is the text form of. Padding and spare bits are refused, so that a receipt has one text.
///
/// # Errors
/// [`TextFormError`].
pub fn from_text(text: &str) -> Result<Bytes, TextFormError> {
    let encoded = text.strip_prefix(TEXT_PREFIX).ok_or(TextFormError::Prefix)?;
    let frame = BASE64URL_NOPAD
        .decode(encoded.as_bytes())
        .map_err(|error| TextFormError::Base64 { at: TEXT_PREFIX.len() + error.position })?;
    Ok(frame.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_empty_frame_is_the_published_one() {
        let frame = encode(ReceiptKind::CommandQueued, b"");
        assert_eq!(hex::encode(&frame), "4e44523101010000000000002ad79a80");
        assert_eq!(from_text(&to_text(&frame)), Ok(frame));
    }

    #[test]
    fn a_receipt_has_one_text() {
        let text = to_text(&encode(ReceiptKind::CommandApplied, b"ab"));
        assert_eq!(from_text(&text[1..]), Err(TextFormError::Prefix));
        assert!(matches!(from_text(&format!("{text}=")), Err(TextFormError::Base64 { .. })));
        assert_eq!(text.len(), TEXT_PREFIX.len() + 24);
        let text = to_text(&encode(ReceiptKind::CommandApplied, b""));
        let spare_bits = text.replace("gA", "gB");
        assert!(from_text(&text).is_ok() && (spare_bits == text || from_text(&spare_bits).is_err()));
    }
}
