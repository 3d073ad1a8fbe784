//! The layout that log records and receipts share: magic, version, kind, flags, length, payload, CRC32C.

use bytes::{BufMut, Bytes, BytesMut};

/// Bytes before the payload.
pub(crate) const HEADER_BYTES: usize = 12;
/// Bytes around the payload.
pub(crate) const OVERHEAD_BYTES: usize = HEADER_BYTES + 4;
/// The only framing version there is.
pub(crate) const FRAMING_VERSION: u8 = 1;

/// Why bytes are not a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Shorter than an empty frame.
    #[error("{found} bytes are fewer than the {OVERHEAD_BYTES} of an empty frame")]
    TooShort {
        /// The whole length.
        found: usize,
    },
    /// Other first four bytes.
    #[error("magic {found:08x} instead of {expected:08x}")]
    Magic {
        /// What a frame begins with.
        expected: u32,
        /// What is there.
        found: u32,
    },
    /// The length field and the bytes disagree.
    #[error("payload length {stated} does not fill a frame of {found} bytes")]
    Length {
        /// What the header says.
        stated: u32,
        /// The whole length.
        found: usize,
    },
    /// Damaged on the way.
    #[error("checksum {found:08x} instead of {expected:08x}")]
    Crc {
        /// What header and payload give.
        expected: u32,
        /// What is there.
        found: u32,
    },
    /// A sound frame of a layout version that this code does not know.
    #[error("framing version {found} instead of {FRAMING_VERSION}")]
    Version {
        /// The version.
        found: u8,
        /// The kind byte, as far as a foreign version's can be trusted.
        kind: u8,
    },
    /// A kind of payload that does not exist.
    #[error("kind {found} is not known")]
    Kind {
        /// The kind byte.
        found: u8,
    },
    /// Flags, which are all reserved.
    #[error("flags {found:04x} instead of none")]
    Flags {
        /// The flags.
        found: u16,
    },
}

/// Writes a frame around what `payload` writes, which must be exactly `length` bytes.
pub(crate) fn encode(magic: u32, kind: u8, length: usize, payload: impl FnOnce(&mut BytesMut)) -> Bytes {
    let stated =
        u32::try_from(length).expect("a payload of 4 GiB or more cannot have been put together in memory for a broker");
    let mut frame = BytesMut::with_capacity(length + OVERHEAD_BYTES);
    frame.put_u32(magic);
    frame.put_u8(FRAMING_VERSION);
    frame.put_u8(kind);
    frame.put_u16(0);
    frame.put_u32(stated);
    payload(&mut frame);
    assert_eq!(frame.len(), HEADER_BYTES + length, "the payload has another length than was announced");
    let crc = crc32c::crc32c(&frame);
    frame.put_u32(crc);
    frame.freeze()
}

/// Checks everything but the meaning of the payload; gives the kind byte and the payload as a slice of `frame`.
///
/// The version is looked at after the checksum, so that "a version we do not know" is said of whole frames only.
pub(crate) fn decode(magic: u32, frame: &Bytes, kind_known: impl Fn(u8) -> bool) -> Result<(u8, Bytes), FrameError> {
    let found = frame.len();
    let Some((header, rest)) = frame.split_first_chunk::<HEADER_BYTES>() else {
        return Err(FrameError::TooShort { found });
    };
    let Some((payload, crc)) = rest.split_last_chunk::<4>() else {
        return Err(FrameError::TooShort { found });
    };
    let [m0, m1, m2, m3, version, kind, f0, f1, l0, l1, l2, l3] = *header;
    let found_magic = u32::from_be_bytes([m0, m1, m2, m3]);
    if found_magic != magic {
        return Err(FrameError::Magic { expected: magic, found: found_magic });
    }
    let stated = u32::from_be_bytes([l0, l1, l2, l3]);
    if usize::try_from(stated) != Ok(payload.len()) {
        return Err(FrameError::Length { stated, found });
    }
    let found_crc = u32::from_be_bytes(*crc);
    let expected_crc = crc32c::crc32c(&frame[..HEADER_BYTES + payload.len()]);
    if found_crc != expected_crc {
        return Err(FrameError::Crc { expected: expected_crc, found: found_crc });
    }
    if version != FRAMING_VERSION {
        return Err(FrameError::Version { found: version, kind });
    }
    if !kind_known(kind) {
        return Err(FrameError::Kind { found: kind });
    }
    let flags = u16::from_be_bytes([f0, f1]);
    if flags != 0 {
        return Err(FrameError::Flags { found: flags });
    }
    Ok((kind, frame.slice(HEADER_BYTES..HEADER_BYTES + payload.len())))
}
