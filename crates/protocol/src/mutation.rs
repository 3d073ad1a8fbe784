//! System mutations: the signed records that the service itself writes into a shard's log (protocol registry §2.4 and §2.5).
//!
//! Both body versions share the envelope, its hash, its id and its signature; they differ in author and body. Body version 1
//! is decoded and checked for the sake of interoperation and never applied; body version 2 is what this system writes.

use bytes::Bytes;
use ed25519_dalek::{Signature, VerifyingKey};

use crate::command::{ENVELOPE_VERSION, LOG_ENVELOPE_VERSION};
use crate::field::{self, Fault, FieldError, Within};
use crate::frame::{self, FRAMING_VERSION, RecordKind};
use crate::hash::{Hash, Preimage};
use crate::id::{RouteId, ShardId};
use crate::v1;

/// Which mutation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum MutationType {
    /// One operation of an operator on a shard.
    ApplyShardControl = 1,
    /// A new generation from a dead letter.
    ReplayDeadLetter = 2,
    /// An operator's answer to an uncertain attempt.
    ResolveUncertain = 3,
    /// Closes deadlines up to an instant.
    TimeFence = 4,
    /// The point of no return of an attempt.
    PublishAdmission = 5,
    /// What became of an attempt.
    PublishOutcome = 6,
    /// Expiry of one generation; body version 1 only.
    ExpireGeneration = 7,
    /// Later evidence about an attempt.
    EvidenceResolution = 8,
    /// A promise to delete; body version 1 only.
    ResourceRetireIntent = 9,
    /// A deletion done; body version 1 only.
    ResourceDeleteConfirmed = 10,
    /// A message that can never be published.
    ClaimResult = 11,
    /// Progress of a dead-letter export.
    DlqExportResult = 12,
    /// A new owner's first record; body version 2 only.
    OwnerEpoch = 13,
}

impl MutationType {
    /// Every mutation, ascending by number.
    pub const ALL: [Self; 13] = [
        Self::ApplyShardControl,
        Self::ReplayDeadLetter,
        Self::ResolveUncertain,
        Self::TimeFence,
        Self::PublishAdmission,
        Self::PublishOutcome,
        Self::ExpireGeneration,
        Self::EvidenceResolution,
        Self::ResourceRetireIntent,
        Self::ResourceDeleteConfirmed,
        Self::ClaimResult,
        Self::DlqExportResult,
        Self::OwnerEpoch,
    ];

    /// The wire number.
    #[must_use]
    pub const fn as_u32(self) -> u32 {
        self as u32
    }

    /// The mutation with this number.
    #[must_use]
    pub fn from_u32(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|mutation_type| mutation_type.as_u32() == number)
    }

    /// The registry's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::ApplyShardControl => "APPLY_SHARD_CONTROL",
            Self::ReplayDeadLetter => "REPLAY_DEAD_LETTER",
            Self::ResolveUncertain => "RESOLVE_UNCERTAIN",
            Self::TimeFence => "TIME_FENCE",
            Self::PublishAdmission => "PUBLISH_ADMISSION",
            Self::PublishOutcome => "PUBLISH_OUTCOME",
            Self::ExpireGeneration => "EXPIRE_GENERATION",
            Self::EvidenceResolution => "EVIDENCE_RESOLUTION",
            Self::ResourceRetireIntent => "RESOURCE_RETIRE_INTENT",
            Self::ResourceDeleteConfirmed => "RESOURCE_DELETE_CONFIRMED",
            Self::ClaimResult => "CLAIM_RESULT",
            Self::DlqExportResult => "DLQ_EXPORT_RESULT",
            Self::OwnerEpoch => "OWNER_EPOCH",
        }
    }
}

/// What a pair of mutation type and body version is: legality belongs to the pair (protocol registry §2.8).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pair {
    /// Decoded and checked here; of version 1, answered as not activated by whoever applies it.
    Built,
    /// Legal, but its body is not written yet: not activated.
    NotBuilt,
    /// No such pair: a record of it is malformed.
    Illegal,
}

/// Looks a pair up. `body_version` is 1 or 2; a later one is not activated whatever the type.
#[must_use]
pub fn pair(mutation_type: MutationType, body_version: u32) -> Pair {
    use MutationType as T;
    match (body_version, mutation_type) {
        (1, T::OwnerEpoch) => Pair::Illegal,
        (1, _) => Pair::Built,
        (2, T::ExpireGeneration | T::ResourceRetireIntent | T::ResourceDeleteConfirmed) => Pair::Illegal,
        (2, T::ReplayDeadLetter | T::ResolveUncertain | T::DlqExportResult) => Pair::NotBuilt,
        (2, _) => Pair::Built,
        _ => Pair::Illegal,
    }
}

/// The hash of a mutation (protocol registry §2.5).
#[must_use]
pub fn mutation_hash(
    mutation_type: MutationType,
    body_version: u32,
    shard: ShardId,
    retry_until_ms: i64,
    body: &[u8],
) -> Hash {
    Preimage::new("nereus-delay-system-mutation-hash-v1\0")
        .u8(FRAMING_VERSION)
        .u32(LOG_ENVELOPE_VERSION)
        .u32(ENVELOPE_VERSION)
        .u32(body_version)
        .u16(mutation_type as u16)
        .bytes(&shard.route.0)
        .u32(shard.partition)
        .i64(retry_until_ms)
        .lp32(body)
        .sha256()
}

/// The identity of a mutation: of the logical operation it stands for, and of its hash (protocol registry §2.5).
#[must_use]
pub fn mutation_id(mutation_type: MutationType, logical_identity: &Hash, shard: ShardId, hash: &Hash) -> Hash {
    Preimage::new("nereus-delay-system-mutation-id-v1")
        .u16(mutation_type as u16)
        .lp32(logical_identity)
        .bytes(&shard.route.0)
        .u32(shard.partition)
        .bytes(hash)
        .sha256()
}

/// One envelope, its parts checked but for the meaning of author and body.
pub(crate) struct Envelope {
    pub(crate) mutation_type: MutationType,
    pub(crate) body_version: u32,
    pub(crate) shard: ShardId,
    pub(crate) retry_until_ms: i64,
    pub(crate) body: Bytes,
    pub(crate) hash: Hash,
    pub(crate) mutation_id: Hash,
    pub(crate) author: Bytes,
    pub(crate) signing_key_version: u32,
    pub(crate) signature: [u8; 64],
}

impl Envelope {
    /// Puts an envelope together that is still to be signed.
    pub(crate) fn unsigned(
        mutation_type: MutationType,
        body_version: u32,
        shard: ShardId,
        retry_until_ms: i64,
        body: Bytes,
        logical_identity: &Hash,
    ) -> Self {
        let hash = mutation_hash(mutation_type, body_version, shard, retry_until_ms, &body);
        let mutation_id = mutation_id(mutation_type, logical_identity, shard, &hash);
        let (author, signing_key_version, signature) = (Bytes::new(), 0, [0; 64]);
        Self {
            mutation_type,
            body_version,
            shard,
            retry_until_ms,
            body,
            hash,
            mutation_id,
            author,
            signing_key_version,
            signature,
        }
    }

    /// Takes an envelope of known versions and a known type apart and checks its hash.
    pub(crate) fn from_proto(
        proto: v1::ShardSystemMutationEnvelope,
        mutation_type: MutationType,
    ) -> Result<Self, FieldError> {
        let shard = shard_from_proto(&proto.shard_subject).within("shard_subject")?;
        let retry_until_ms = field::not_negative("retry_until_ms", proto.retry_until_ms)?;
        field::not_zero("signing_key_version", proto.signing_key_version)?;
        let hash: Hash = field::array("mutation_hash_sha256", &proto.mutation_hash_sha256)?;
        let computed = mutation_hash(mutation_type, proto.body_version, shard, retry_until_ms, &proto.canonical_body);
        field::derived("mutation_hash_sha256", &hash, &computed)?;
        Ok(Self {
            mutation_type,
            body_version: proto.body_version,
            shard,
            retry_until_ms,
            body: proto.canonical_body,
            hash,
            mutation_id: field::array("system_mutation_id", &proto.system_mutation_id)?,
            author: proto.author_identity,
            signing_key_version: proto.signing_key_version,
            signature: field::array("signature", &proto.signature)?,
        })
    }

    /// Checks that the id in the envelope is the one of `logical_identity`.
    pub(crate) fn check_id(&self, logical_identity: &Hash) -> Result<(), FieldError> {
        let computed = mutation_id(self.mutation_type, logical_identity, self.shard, &self.hash);
        field::derived("system_mutation_id", &self.mutation_id, &computed)
    }

    /// What the signature covers: all of the record but the signature.
    pub(crate) fn signature_digest(&self) -> Hash {
        Preimage::new("nereus-delay-system-mutation-signature-v1\0")
            .u32(frame::MAGIC)
            .u8(FRAMING_VERSION)
            .u8(RecordKind::SystemMutation.as_u8())
            .u32(LOG_ENVELOPE_VERSION)
            .u32(ENVELOPE_VERSION)
            .u32(self.body_version)
            .u16(self.mutation_type as u16)
            .lp32(&self.mutation_id)
            .bytes(&self.shard.route.0)
            .u32(self.shard.partition)
            .i64(self.retry_until_ms)
            .lp32(&self.body)
            .lp32(&self.hash)
            .lp32(&self.author)
            .u32(self.signing_key_version)
            .sha256()
    }

    /// The log record.
    pub(crate) fn encode_frame(&self) -> Bytes {
        let envelope = v1::ShardSystemMutationEnvelope {
            envelope_version: ENVELOPE_VERSION,
            system_mutation_id: Bytes::copy_from_slice(&self.mutation_id),
            shard_subject: shard_to_proto(self.shard),
            mutation_type: self.mutation_type.as_u32(),
            retry_until_ms: self.retry_until_ms,
            canonical_body: self.body.clone(),
            mutation_hash_sha256: Bytes::copy_from_slice(&self.hash),
            body_version: self.body_version,
            author_identity: self.author.clone(),
            signing_key_version: self.signing_key_version,
            signature: Bytes::copy_from_slice(&self.signature),
        };
        let envelope = v1::ShardLogEnvelope {
            log_envelope_version: LOG_ENVELOPE_VERSION,
            record: Some(v1::shard_log_envelope::Record::SystemMutation(envelope)),
        };
        frame::encode_message(RecordKind::SystemMutation, &envelope)
    }
}

/// Whether `key` made `signature` over `digest`, by the strict rules that give every implementation the same verdict.
pub(crate) fn verify(key: &VerifyingKey, digest: &Hash, signature: &[u8; 64]) -> bool {
    key.verify_strict(digest, &Signature::from_bytes(signature)).is_ok()
}

pub(crate) fn shard_from_proto(proto: &v1::ShardSubject) -> Result<ShardId, FieldError> {
    Ok(ShardId { route: RouteId(field::array("route", &proto.route)?), partition: proto.partition })
}

pub(crate) fn shard_to_proto(shard: ShardId) -> v1::ShardSubject {
    v1::ShardSubject { route: Bytes::copy_from_slice(&shard.route.0), partition: shard.partition }
}

/// The mutation type of an envelope.
pub(crate) fn known_type(number: u32) -> Result<MutationType, FieldError> {
    MutationType::from_u32(number)
        .ok_or_else(|| FieldError::new("mutation_type", Fault::UnknownValue { found: number.into() }))
}
