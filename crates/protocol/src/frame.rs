//! `NDL1`: the frame of one shard log record (protocol registry §2.3).
//!
//! The broker's value is exactly one frame. The broker's own key, headers and producer metadata are outside of it and never
//! authoritative.

use bytes::{BufMut, Bytes};

use crate::framing;
pub use crate::framing::FrameError;

/// `NDL1` in ASCII, the first four bytes of every record.
pub const MAGIC: u32 = 0x4e44_4c31;
/// The framing version that this code writes and reads.
pub const FRAMING_VERSION: u8 = framing::FRAMING_VERSION;
/// Bytes that a frame adds to its payload: 12 before, 4 after.
pub const OVERHEAD_BYTES: usize = framing::OVERHEAD_BYTES;

/// What a frame carries; must agree with the envelope inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RecordKind {
    /// A command of a client.
    ClientCommand,
    /// A signed record of the service.
    SystemMutation,
}

impl RecordKind {
    /// The wire number.
    #[must_use]
    pub const fn as_u8(self) -> u8 {
        match self {
            Self::ClientCommand => 1,
            Self::SystemMutation => 2,
        }
    }

    /// The kind with this wire number.
    #[must_use]
    pub const fn from_u8(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::ClientCommand),
            2 => Some(Self::SystemMutation),
            _ => None,
        }
    }
}

/// One frame taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// What the payload claims to be.
    pub kind: RecordKind,
    /// The envelope's bytes, a slice of the frame.
    pub payload: Bytes,
}

/// Frames `payload`.
#[must_use]
pub fn encode(kind: RecordKind, payload: &[u8]) -> Bytes {
    framing::encode(MAGIC, kind.as_u8(), payload.len(), |frame| frame.put_slice(payload))
}

/// Frames a message without encoding it into a buffer of its own first.
pub(crate) fn encode_message(kind: RecordKind, message: &impl prost::Message) -> Bytes {
    framing::encode(MAGIC, kind.as_u8(), message.encoded_len(), |frame| message.encode_raw(frame))
}

/// Takes a frame apart. The payload is not copied and not looked into.
///
/// # Errors
/// [`FrameError`] for anything but exactly one whole frame of version 1. The length limit of the route is the caller's to
/// check: it is on the length of the whole value.
pub fn decode(frame: &Bytes) -> Result<Frame, FrameError> {
    let (kind, payload) = framing::decode(MAGIC, frame, |kind| RecordKind::from_u8(kind).is_some())?;
    let kind = RecordKind::from_u8(kind).ok_or(FrameError::Kind { found: kind })?;
    Ok(Frame { kind, payload })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_empty_frame_is_the_published_one() {
        let frame = encode(RecordKind::ClientCommand, b"");
        assert_eq!(hex::encode(&frame), "4e444c310101000000000000519553ae");
        assert_eq!(decode(&frame).unwrap(), Frame { kind: RecordKind::ClientCommand, payload: Bytes::new() });
    }

    #[test]
    fn the_version_is_reported_only_of_whole_frames() {
        let frame = encode(RecordKind::ClientCommand, b"abc");
        let mut foreign = frame[..frame.len() - 4].to_vec();
        foreign[4] = 2;
        foreign.put_u32(crc32c::crc32c(&foreign));
        assert_eq!(decode(&foreign.clone().into()), Err(FrameError::Version { found: 2, kind: 1 }));
        foreign[13] ^= 1;
        assert!(matches!(decode(&foreign.into()), Err(FrameError::Crc { .. })));
    }

    #[test]
    fn every_cut_and_every_flipped_bit_is_refused() {
        let frame = encode(RecordKind::SystemMutation, b"payload");
        for end in 0..frame.len() {
            assert!(decode(&frame.slice(..end)).is_err(), "cut at {end}");
        }
        for bit in 0..frame.len() * 8 {
            let mut damaged = frame.to_vec();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&damaged.into()).is_err(), "bit {bit}");
        }
        let mut longer = frame.to_vec();
        longer.push(0);
        assert!(matches!(decode(&longer.into()), Err(FrameError::Length { stated: 7, .. })));
    }
}
