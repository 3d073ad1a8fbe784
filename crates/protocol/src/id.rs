//! Identities that say where they belong.
//!
//! A message or command id names its route and partition, so every later command and query finds the shard without a lookup
//! (protocol registry §2.6). The CRC in it catches typos and authorises nothing.

use std::fmt;
use std::str::FromStr;

use data_encoding::BASE64URL_NOPAD;

/// First byte of every id.
const FORMAT_VERSION: u8 = 1;
/// Bytes of an id in binary form.
pub const ID_BYTES: usize = 41;
/// What the CRC covers.
const CRC_OFFSET: usize = ID_BYTES - 4;

/// Why bytes or text are not an identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// Not 41 bytes, or not 16 for a UUID.
    #[error("{found} bytes instead of {expected}")]
    Length {
        /// What an id has.
        expected: usize,
        /// What is there.
        found: usize,
    },
    /// A format that is not ours.
    #[error("format version {found} instead of {FORMAT_VERSION}")]
    FormatVersion {
        /// The first byte.
        found: u8,
    },
    /// A UUID of another version than 7.
    #[error("uuid version {found} instead of 7")]
    UuidVersion {
        /// The version nibble.
        found: u8,
    },
    /// A UUID of another variant than RFC 9562.
    #[error("uuid variant bits {found:02b} instead of 10")]
    UuidVariant {
        /// The two bits.
        found: u8,
    },
    /// A typo, or bytes damaged on the way.
    #[error("checksum {found:08x} instead of {expected:08x}")]
    Crc {
        /// What the other 37 bytes give.
        expected: u32,
        /// What is there.
        found: u32,
    },
    /// Text without the prefix of its kind.
    #[error("text does not begin with {expected}")]
    Prefix {
        /// `ndm1_` or `ndc1_`.
        expected: &'static str,
    },
    /// Text that is not unpadded base64url, or not the only such text of its bytes.
    #[error("text is not canonical unpadded base64url at character {at}")]
    Base64 {
        /// Offset of the fault in the whole text.
        at: usize,
    },
}

/// One incarnation of an ingress route: its UUID of any version, in network order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct RouteId(pub [u8; 16]);

/// One delay shard: a physical partition of a route.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ShardId {
    /// The route.
    pub route: RouteId,
    /// The partition, from 0.
    pub partition: u32,
}

/// A UUID of version 7: 48 bits of Unix milliseconds and 74 random bits.
///
/// Order is by bytes and so, roughly, by time; nothing may take it for the order of commands.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uuid7([u8; 16]);

impl Uuid7 {
    /// The latest time a version 7 UUID can hold: 48 bits of milliseconds, in the year 10889.
    pub const UNIX_MS_MAX: u64 = (1 << 48) - 1;

    /// Puts a UUID together from a time and ten random bytes, of which six bits give way to version and variant.
    ///
    /// # Errors
    /// [`TimeTooLarge`] when `unix_ms` does not fit 48 bits.
    pub fn from_parts(unix_ms: u64, random: [u8; 10]) -> Result<Self, TimeTooLarge> {
        if unix_ms > Self::UNIX_MS_MAX {
            return Err(TimeTooLarge { unix_ms });
        }
        let mut bytes = [0; 16];
        bytes[..6].copy_from_slice(&unix_ms.to_be_bytes()[2..]);
        bytes[6..].copy_from_slice(&random);
        bytes[6] = 0x70 | (bytes[6] & 0x0f);
        bytes[8] = 0x80 | (bytes[8] & 0x3f);
        Ok(Self(bytes))
    }

    /// Takes 16 bytes in network order.
    ///
    /// # Errors
    /// [`IdError`] for another version or variant.
    pub fn from_bytes(bytes: [u8; 16]) -> Result<Self, IdError> {
        let version = bytes[6] >> 4;
        if version != 7 {
            return Err(IdError::UuidVersion { found: version });
        }
        let variant = bytes[8] >> 6;
        if variant != 0b10 {
            return Err(IdError::UuidVariant { found: variant });
        }
        Ok(Self(bytes))
    }

    /// The 16 bytes in network order.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; 16] {
        self.0
    }

    /// The 16 bytes in network order.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// Milliseconds since the Unix epoch at which the UUID says it was made. Good for age checks, never for order.
    #[must_use]
    pub fn unix_ms(self) -> i64 {
        let [a, b, c, d, e, f, ..] = self.0;
        i64::from_be_bytes([0, 0, a, b, c, d, e, f])
    }
}

/// A time that 48 bits of milliseconds cannot hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{unix_ms} ms since the epoch do not fit the 48 bits of a version 7 uuid")]
pub struct TimeTooLarge {
    /// The time.
    pub unix_ms: u64,
}

/// An id of kind `Id`, or its binary form where the id itself cannot exist: the registry's own vectors hash ids of zeros, which
/// are no UUIDs of version 7.
pub trait IdBytes<Id> {
    /// The binary form.
    fn id_bytes(&self) -> [u8; ID_BYTES];
}

impl<Id> IdBytes<Id> for [u8; ID_BYTES] {
    fn id_bytes(&self) -> [u8; ID_BYTES] {
        *self
    }
}

fn encode(shard: ShardId, uuid: Uuid7) -> [u8; ID_BYTES] {
    let mut bytes = [0; ID_BYTES];
    bytes[0] = FORMAT_VERSION;
    bytes[1..17].copy_from_slice(&shard.route.0);
    bytes[17..21].copy_from_slice(&shard.partition.to_be_bytes());
    bytes[21..CRC_OFFSET].copy_from_slice(&uuid.0);
    let crc = crc32c::crc32c(&bytes[..CRC_OFFSET]);
    bytes[CRC_OFFSET..].copy_from_slice(&crc.to_be_bytes());
    bytes
}

fn decode(bytes: &[u8]) -> Result<(ShardId, Uuid7), IdError> {
    let bytes: &[u8; ID_BYTES] =
        bytes.try_into().map_err(|_| IdError::Length { expected: ID_BYTES, found: bytes.len() })?;
    if bytes[0] != FORMAT_VERSION {
        return Err(IdError::FormatVersion { found: bytes[0] });
    }
    let mut route = RouteId::default();
    route.0.copy_from_slice(&bytes[1..17]);
    let mut partition = [0; 4];
    partition.copy_from_slice(&bytes[17..21]);
    let mut uuid = [0; 16];
    uuid.copy_from_slice(&bytes[21..CRC_OFFSET]);
    let uuid = Uuid7::from_bytes(uuid)?;
    let mut crc = [0; 4];
    crc.copy_from_slice(&bytes[CRC_OFFSET..]);
    let found = u32::from_be_bytes(crc);
    let expected = crc32c::crc32c(&bytes[..CRC_OFFSET]);
    if found != expected {
        return Err(IdError::Crc { expected, found });
    }
    Ok((ShardId { route, partition: u32::from_be_bytes(partition) }, uuid))
}

fn parse(text: &str, prefix: &'static str) -> Result<(ShardId, Uuid7), IdError> {
    let encoded = text.strip_prefix(prefix).ok_or(IdError::Prefix { expected: prefix })?;
    // The decoder refuses padding and nonzero spare bits, so every id has one text.
    let bytes = BASE64URL_NOPAD
        .decode(encoded.as_bytes())
        .map_err(|error| IdError::Base64 { at: prefix.len() + error.position })?;
    decode(&bytes)
}

macro_rules! self_routing_id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name {
            /// The shard that owns it.
            pub shard: ShardId,
            /// What tells it from the others of its shard.
            pub uuid: Uuid7,
        }

        impl $name {
            /// What its text form begins with.
            pub const PREFIX: &'static str = $prefix;

            /// An id of `shard`.
            #[must_use]
            pub const fn new(shard: ShardId, uuid: Uuid7) -> Self {
                Self { shard, uuid }
            }

            /// The binary form (protocol registry §2.6).
            #[must_use]
            pub fn to_bytes(self) -> [u8; ID_BYTES] {
                encode(self.shard, self.uuid)
            }

            /// Reads the binary form.
            ///
            /// # Errors
            /// [`IdError`] for another length, format, UUID version or variant, or a wrong checksum. Whether the route is known
            /// and the partition in range is not checked here.
            pub fn from_bytes(bytes: &[u8]) -> Result<Self, IdError> {
                decode(bytes).map(|(shard, uuid)| Self { shard, uuid })
            }
        }

        impl IdBytes<Self> for $name {
            fn id_bytes(&self) -> [u8; ID_BYTES] {
                self.to_bytes()
            }
        }

        impl FromStr for $name {
            type Err = IdError;

            /// Reads the text form, strictly: no padding, no spare bits, no other prefix.
            fn from_str(text: &str) -> Result<Self, IdError> {
                parse(text, $prefix).map(|(shard, uuid)| Self { shard, uuid })
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}{}", $prefix, BASE64URL_NOPAD.encode_display(&self.to_bytes()))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
    };
}

self_routing_id! {
    /// The identity of a delayed message.
    MessageId, "ndm1_"
}

self_routing_id! {
    /// The identity of one command about a message.
    CommandId, "ndc1_"
}

fn write_uuid(bytes: &[u8; 16], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for (index, byte) in bytes.iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            f.write_str("-")?;
        }
        write!(f, "{byte:02x}")?;
    }
    Ok(())
}

impl fmt::Display for Uuid7 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_uuid(&self.0, f)
    }
}

impl fmt::Debug for Uuid7 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for RouteId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_uuid(&self.0, f)
    }
}

impl fmt::Debug for RouteId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for ShardId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.route, self.partition)
    }
}

impl fmt::Debug for ShardId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message_id() -> MessageId {
        let shard = ShardId { route: RouteId([0xa1; 16]), partition: 3 };
        MessageId::new(shard, Uuid7::from_parts(0x0190_0000_0000, [0, 0, 0, 0, 0, 0, 0, 0, 0, 1]).unwrap())
    }

    #[test]
    fn text_form_is_the_published_one() {
        let text = "ndm1_AaGhoaGhoaGhoaGhoaGhoaEAAAADAZAAAAAAcACAAAAAAAAAAdzTEzY";
        assert_eq!(message_id().to_string(), text);
        assert_eq!(text.parse(), Ok(message_id()));
        assert_eq!(format!("{:?}", message_id().uuid), "01900000-0000-7000-8000-000000000001");
        assert_eq!(message_id().uuid.unix_ms(), 0x0190_0000_0000);
    }

    #[test]
    fn text_is_refused_unless_it_is_the_only_one_of_its_bytes() {
        let text = message_id().to_string();
        assert_eq!(text.parse::<CommandId>(), Err(IdError::Prefix { expected: "ndc1_" }));
        assert!(matches!(format!("{text}=").parse::<MessageId>(), Err(IdError::Base64 { .. })));
        let spare_bits = format!("{}Z", &text[..text.len() - 1]);
        assert!(matches!(spare_bits.parse::<MessageId>(), Err(IdError::Base64 { .. })));
        let typo = text.replacen("AaGh", "AaGi", 1);
        assert!(matches!(typo.parse::<MessageId>(), Err(IdError::Crc { .. })));
        assert!(matches!(text[..text.len() - 3].parse::<MessageId>(), Err(IdError::Length { found: 39, .. })));
    }

    #[test]
    fn every_single_byte_fault_is_seen() {
        let bytes = message_id().to_bytes();
        for index in 0..ID_BYTES {
            for bit in 0..8 {
                let mut damaged = bytes;
                damaged[index] ^= 1 << bit;
                assert!(MessageId::from_bytes(&damaged).is_err(), "byte {index} bit {bit}");
            }
        }
    }

    #[test]
    fn times_beyond_48_bits_are_refused() {
        assert!(Uuid7::from_parts(Uuid7::UNIX_MS_MAX, [0xff; 10]).is_ok());
        assert_eq!(Uuid7::from_parts(1 << 48, [0; 10]), Err(TimeTooLarge { unix_ms: 1 << 48 }));
    }
}
