//! Domain-separated SHA-256 inputs.
//!
//! Every hash of the protocol is SHA-256 over a domain string and a fixed sequence of fixed-width or length-prefixed values
//! (protocol registry §2.1). Writing them through one type keeps the preimages readable beside the registry's formulas.

use sha2::{Digest, Sha256};

/// A SHA-256 value.
pub type Hash = [u8; 32];

/// Collects a preimage and hashes it; integers are written big endian.
///
/// ```
/// let digest = protocol::hash::Preimage::new("nereus-delay-tenant-v1\0").bytes(b"default").sha256();
/// assert_eq!(digest.len(), 32);
/// ```
#[derive(Clone)]
#[must_use]
pub struct Preimage(Sha256);

impl Preimage {
    /// Starts with `domain` as it is: a registry domain that ends in a NUL byte has it in the string.
    pub fn new(domain: &str) -> Self {
        Self(Sha256::new_with_prefix(domain))
    }

    /// One byte.
    pub fn u8(self, value: u8) -> Self {
        self.bytes(&[value])
    }

    /// Two bytes.
    pub fn u16(self, value: u16) -> Self {
        self.bytes(&value.to_be_bytes())
    }

    /// Four bytes.
    pub fn u32(self, value: u32) -> Self {
        self.bytes(&value.to_be_bytes())
    }

    /// Eight bytes.
    pub fn u64(self, value: u64) -> Self {
        self.bytes(&value.to_be_bytes())
    }

    /// Eight bytes, two's complement.
    pub fn i64(self, value: i64) -> Self {
        self.bytes(&value.to_be_bytes())
    }

    /// The value as it is, without its length.
    pub fn bytes(mut self, value: &[u8]) -> Self {
        self.0.update(value);
        self
    }

    /// `lp32`: the length in four bytes, then the value.
    pub fn lp32(self, value: &[u8]) -> Self {
        let length =
            u32::try_from(value.len()).expect("no value of the protocol reaches 4 GiB: a frame's length is a u32");
        self.u32(length).bytes(value)
    }

    /// The digest.
    #[must_use]
    pub fn sha256(self) -> Hash {
        self.0.finalize().into()
    }
}

/// SHA-256 of `value` alone.
#[must_use]
pub fn sha256(value: &[u8]) -> Hash {
    Sha256::digest(value).into()
}

/// The first eight bytes of a digest as an unsigned big-endian number, which partitions, buckets and jitter are taken from.
#[must_use]
pub fn first64(digest: &Hash) -> u64 {
    let (first, _) = digest.split_first_chunk().expect("a digest has 32 bytes");
    u64::from_be_bytes(*first)
}
