//! References to objects that are published once and never change: profiles, retry policies, trust sets (protocol registry
//! §2.9 and §2.12).
//!
//! A record names the exact version and hash; "latest" is never resolved when a record is applied or replayed.

use bytes::Bytes;

use crate::field::{self, Fault, FieldError};
use crate::hash::{Hash, Preimage};
use crate::v1;
pub use crate::v1::ProfileKind;

/// One version of a profile. Which kind of profile follows from where the reference stands.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProfileRef {
    /// Its name, at least one byte.
    pub id: Bytes,
    /// Its version, from 1.
    pub version: u64,
    /// Its semantic hash.
    pub semantic_hash: Hash,
}

/// One version of a retry policy.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RetryPolicyRef {
    /// Its name, at least one byte.
    pub id: Bytes,
    /// Its version, from 1.
    pub version: u64,
    /// Its semantic hash.
    pub semantic_hash: Hash,
}

/// One version of the set of keys that may sign payload proofs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TrustSetRef {
    /// Its version, from 1.
    pub version: u64,
    /// Its semantic hash.
    pub semantic_hash: Hash,
}

impl ProfileRef {
    /// Takes the protobuf form of a reference that must be to a profile of `kind`.
    pub(crate) fn from_proto(proto: v1::ProfileRef, kind: ProfileKind) -> Result<Self, FieldError> {
        let semantic_hash = field::array("semantic_hash", &proto.semantic_hash)?;
        let found: ProfileKind = field::known("profile_kind", proto.profile_kind)?;
        if found != kind {
            let wrong = Fault::Fixed { expected: kind_number(kind), found: kind_number(found) };
            return Err(FieldError::new("profile_kind", wrong));
        }
        let reference = Self { id: proto.profile_id, version: proto.version, semantic_hash };
        reference.check()?;
        Ok(reference)
    }

    pub(crate) fn check(&self) -> Result<(), FieldError> {
        field::not_empty("profile_id", &self.id)?;
        field::not_zero("version", self.version)
    }

    pub(crate) fn to_proto(&self, kind: ProfileKind) -> v1::ProfileRef {
        v1::ProfileRef {
            profile_id: self.id.clone(),
            version: self.version,
            semantic_hash: Bytes::copy_from_slice(&self.semantic_hash),
            profile_kind: kind.into(),
        }
    }
}

fn kind_number(kind: ProfileKind) -> u64 {
    match kind {
        ProfileKind::Destination => 1,
        ProfileKind::DeliveryCapability => 2,
        ProfileKind::ObjectStore => 3,
        ProfileKind::EvidenceVerifier => 4,
    }
}

impl RetryPolicyRef {
    pub(crate) fn from_proto(proto: v1::RetryPolicyRef) -> Result<Self, FieldError> {
        let semantic_hash = field::array("semantic_hash", &proto.semantic_hash)?;
        let reference = Self { id: proto.policy_id, version: proto.version, semantic_hash };
        reference.check()?;
        Ok(reference)
    }

    pub(crate) fn check(&self) -> Result<(), FieldError> {
        field::not_empty("policy_id", &self.id)?;
        field::not_zero("version", self.version)
    }

    pub(crate) fn to_proto(&self) -> v1::RetryPolicyRef {
        v1::RetryPolicyRef {
            policy_id: self.id.clone(),
            version: self.version,
            semantic_hash: Bytes::copy_from_slice(&self.semantic_hash),
        }
    }
}

impl TrustSetRef {
    pub(crate) fn from_proto(proto: &v1::PayloadProofTrustSetRef) -> Result<Self, FieldError> {
        let semantic_hash = field::array("semantic_hash", &proto.semantic_hash)?;
        let reference = Self { version: proto.version, semantic_hash };
        reference.check()?;
        Ok(reference)
    }

    pub(crate) fn check(&self) -> Result<(), FieldError> {
        field::not_zero("version", self.version)
    }

    pub(crate) fn to_proto(self) -> v1::PayloadProofTrustSetRef {
        v1::PayloadProofTrustSetRef {
            version: self.version,
            semantic_hash: Bytes::copy_from_slice(&self.semantic_hash),
        }
    }
}

/// The hash that names one version of a profile (protocol registry §2.7): `body` is the canonical encoding of the profile's
/// body in schema `body_schema`, which is 1 for the V1 bodies and 2 for ours.
#[must_use]
pub fn profile_semantic_hash(kind: ProfileKind, id: &[u8], version: u64, body_schema: u32, body: &[u8]) -> Hash {
    let kind = u16::try_from(kind_number(kind)).expect("kinds are 1 to 4");
    Preimage::new("nereus-delay-profile-semantic-v1\0")
        .u16(kind)
        .lp32(id)
        .u64(version)
        .u32(body_schema)
        .lp32(body)
        .sha256()
}
