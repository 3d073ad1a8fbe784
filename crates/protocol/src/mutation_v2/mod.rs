//! Mutations of body version 2: what the owner of a shard and its operators write (protocol registry §2.4, §2.17 and §2.18).
//!
//! An owner's record names many messages and carries one signature. It keeps no deduplication row anywhere: appending the same
//! bytes twice is harmless, because each effect has a precondition that its own first copy removes.

mod control;
mod entry;
mod evidence;
mod genesis;
pub mod profile;

use bytes::Bytes;
use ed25519_dalek::{Signer, SigningKey, VerifyingKey};
use prost::Message;

pub use self::control::{
    ControlKind, ControlPayload, DestinationRebind, ProfileActivate, ProfileVersion, ShardControl,
};
pub use self::entry::{
    Admission, ClaimResult, Outcome, Outcomes, OwnerEpoch, PublishAdmission, Refusal, Stamp, TimeFence,
};
pub use self::evidence::{
    Absence, AbsenceKind, AttemptResult, Disposition, KafkaReceipt, OperatorStatement, PublishedEvidence, PulsarAck,
    TopicAck,
};
pub use self::genesis::{Genesis, Limits, Roles, SigningKeyEntry};
pub use self::profile::{AllowedOrdering, DestinationProfile, OutcomeCapability, PartitionPolicy, TimestampPolicy};
use crate::canonical::{self, DecodeError, decode_canonical};
use crate::field::{self, Fault, FieldError, Within};
use crate::hash::{Hash, Preimage};
use crate::id::ShardId;
use crate::mutation::{self, Envelope, MutationType};
use crate::v2;

/// The body version of these mutations.
pub const BODY_VERSION: u32 = 2;

/// A mutation of body version 2.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct MutationV2 {
    /// The shard it is for.
    pub shard: ShardId,
    /// Who signed it.
    pub author: Author,
    /// Zero in an owner's record, which is never too late. An operator's may be appended again until here, in milliseconds since
    /// the epoch.
    pub retry_until_ms: i64,
    /// What it says.
    pub body: MutationBody,
    /// The body's canonical bytes.
    pub body_bytes: Bytes,
    /// The mutation hash.
    pub hash: Hash,
    /// The mutation's identity.
    pub mutation_id: Hash,
    /// Which key signed, from 1.
    pub signing_key_version: u32,
    /// The signature; see [`MutationV2::verify`].
    pub signature: [u8; 64],
}

/// Who signs a mutation; fixed by its type.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Author {
    /// The owner of the shard.
    Owner {
        /// Its epoch, the stamp's.
        epoch: u64,
        /// New for every run of an owner.
        worker_run_id: [u8; 16],
    },
    /// An operator.
    Control {
        /// Who.
        principal: String,
        /// In which role.
        role: String,
    },
}

/// What a mutation says.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum MutationBody {
    /// A new owner's first record.
    OwnerEpoch(OwnerEpoch),
    /// Attempts that may begin.
    PublishAdmission(PublishAdmission),
    /// What became of attempts.
    PublishOutcome(Outcomes),
    /// Later evidence about uncertain attempts.
    EvidenceResolution(Outcomes),
    /// Messages that can never be published.
    ClaimResult(ClaimResult),
    /// Deadlines that are closed.
    TimeFence(TimeFence),
    /// An operation of an operator.
    ShardControl(ShardControl),
}

/// Why a record of version 2 does not decode: it is malformed, or it says something that is not built yet.
pub(crate) enum BodyError {
    Malformed(DecodeError),
    /// A control kind that the registry has and this code does not.
    ControlKindNotBuilt(ControlKind),
}

impl<E: Into<DecodeError>> From<E> for BodyError {
    fn from(error: E) -> Self {
        Self::Malformed(error.into())
    }
}

impl Author {
    fn check(&self) -> Result<(), FieldError> {
        match self {
            Self::Owner { .. } => Ok(()),
            Self::Control { principal, role } => {
                evidence::check_name("principal", principal).within("control")?;
                evidence::check_name("role", role).within("control")
            }
        }
    }

    /// The canonical bytes, as the envelope carries them.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        use v2::author::Author as Branch;
        let branch = match self {
            Self::Owner { epoch, worker_run_id } => {
                Branch::Owner(v2::Owner { epoch: *epoch, worker_run_id: Bytes::copy_from_slice(worker_run_id) })
            }
            Self::Control { principal, role } => {
                Branch::Control(v2::Control { principal: principal.clone(), role: role.clone() })
            }
        };
        canonical::encode(&v2::Author { author: Some(branch) })
    }

    pub(crate) fn decode(bytes: &Bytes) -> Result<Self, DecodeError> {
        use v2::author::Author as Branch;
        let proto: v2::Author = decode_canonical(bytes)?;
        let author = match field::required("author", proto.author)? {
            Branch::Owner(owner) => Self::Owner {
                epoch: owner.epoch,
                worker_run_id: field::array("worker_run_id", &owner.worker_run_id).within("owner")?,
            },
            Branch::Control(control) => Self::Control { principal: control.principal, role: control.role },
        };
        author.check()?;
        Ok(author)
    }
}

impl MutationBody {
    /// Which mutation it is.
    #[must_use]
    pub fn mutation_type(&self) -> MutationType {
        match self {
            Self::OwnerEpoch(_) => MutationType::OwnerEpoch,
            Self::PublishAdmission(_) => MutationType::PublishAdmission,
            Self::PublishOutcome(_) => MutationType::PublishOutcome,
            Self::EvidenceResolution(_) => MutationType::EvidenceResolution,
            Self::ClaimResult(_) => MutationType::ClaimResult,
            Self::TimeFence(_) => MutationType::TimeFence,
            Self::ShardControl(_) => MutationType::ApplyShardControl,
        }
    }

    /// The stamp of an owner's record; an operator's has none.
    #[must_use]
    pub fn stamp(&self) -> Option<&Stamp> {
        match self {
            Self::OwnerEpoch(body) => Some(&body.stamp),
            Self::PublishAdmission(body) => Some(&body.stamp),
            Self::PublishOutcome(body) | Self::EvidenceResolution(body) => Some(&body.stamp),
            Self::ClaimResult(body) => Some(&body.stamp),
            Self::TimeFence(body) => Some(&body.stamp),
            Self::ShardControl(_) => None,
        }
    }

    /// What the record stands for (protocol registry §2.5): one record of one epoch, or one operation.
    #[must_use]
    pub fn logical_identity(&self) -> Hash {
        match self {
            Self::ShardControl(body) => {
                let kind = body.payload.kind() as u16;
                Preimage::new("nereus-delay-control-v2\0").bytes(&body.operation_id).u16(kind).sha256()
            }
            owner => {
                let stamp = owner.stamp().expect("every body but an operator's has a stamp");
                Preimage::new("nereus-delay-owner-record-v2\0").u64(stamp.epoch).u64(stamp.owner_sequence).sha256()
            }
        }
    }

    fn check(&self) -> Result<(), FieldError> {
        if let Some(stamp) = self.stamp() {
            stamp.check().within("stamp")?;
        }
        match self {
            Self::OwnerEpoch(_) => Ok(()),
            Self::PublishAdmission(body) => body.check(),
            Self::PublishOutcome(body) | Self::EvidenceResolution(body) => body.check(),
            Self::ClaimResult(body) => body.check(),
            Self::TimeFence(body) => body.check(),
            Self::ShardControl(body) => body.check(),
        }
    }

    fn encode(&self) -> Result<Bytes, FieldError> {
        let bytes = match self {
            Self::OwnerEpoch(body) => body.to_proto().encode_to_vec(),
            Self::PublishAdmission(body) => body.to_proto().encode_to_vec(),
            Self::PublishOutcome(body) => {
                let (stamp, entries) = body.to_proto();
                v2::PublishOutcome { stamp, entries }.encode_to_vec()
            }
            Self::EvidenceResolution(body) => {
                let (stamp, entries) = body.to_proto();
                v2::EvidenceResolution { stamp, entries }.encode_to_vec()
            }
            Self::ClaimResult(body) => body.to_proto().encode_to_vec(),
            Self::TimeFence(body) => body.to_proto().encode_to_vec(),
            Self::ShardControl(body) => return body.encode(),
        };
        Ok(bytes.into())
    }

    fn decode(mutation_type: MutationType, bytes: &Bytes) -> Result<Self, BodyError> {
        Ok(match mutation_type {
            MutationType::OwnerEpoch => Self::OwnerEpoch(OwnerEpoch::from_proto(&decode_canonical(bytes)?)?),
            MutationType::PublishAdmission => {
                Self::PublishAdmission(PublishAdmission::from_proto(decode_canonical(bytes)?)?)
            }
            MutationType::PublishOutcome => {
                let proto: v2::PublishOutcome = decode_canonical(bytes)?;
                Self::PublishOutcome(Outcomes::from_proto(proto.stamp, proto.entries)?)
            }
            MutationType::EvidenceResolution => {
                let proto: v2::EvidenceResolution = decode_canonical(bytes)?;
                Self::EvidenceResolution(Outcomes::from_proto(proto.stamp, proto.entries)?)
            }
            MutationType::ClaimResult => Self::ClaimResult(ClaimResult::from_proto(decode_canonical(bytes)?)?),
            MutationType::TimeFence => Self::TimeFence(TimeFence::from_proto(&decode_canonical(bytes)?)?),
            MutationType::ApplyShardControl => {
                let proto: v2::ShardControl = canonical::decode(bytes)?;
                // The payload of a kind that is not built is an unknown field here, so canonical form means nothing yet.
                match ControlKind::from_u32(proto.kind) {
                    Some(kind) if !kind.is_built() => return Err(BodyError::ControlKindNotBuilt(kind)),
                    Some(_) => {}
                    None => {
                        return Err(FieldError::new("kind", Fault::UnknownValue { found: proto.kind.into() }).into());
                    }
                }
                canonical::check::<v2::ShardControl>(bytes)?;
                Self::ShardControl(ShardControl::from_proto(proto)?)
            }
            MutationType::ReplayDeadLetter
            | MutationType::ResolveUncertain
            | MutationType::ExpireGeneration
            | MutationType::ResourceRetireIntent
            | MutationType::ResourceDeleteConfirmed
            | MutationType::DlqExportResult => {
                return Err(FieldError::new("mutation_type", Fault::Conflict { with: "body_version" }).into());
            }
        })
    }
}

impl MutationV2 {
    /// Puts a record together and signs it with the key that the shard knows as `signing_key_version`.
    ///
    /// # Errors
    /// [`FieldError`] for what no decoder would accept: entries out of order or none, a stamp that contradicts itself or the
    /// author, an author of the wrong kind, a retry limit in an owner's record, a genesis for another shard.
    pub fn sign(
        shard: ShardId,
        author: Author,
        retry_until_ms: i64,
        body: MutationBody,
        signing_key_version: u32,
        key: &SigningKey,
    ) -> Result<Self, FieldError> {
        field::not_zero("signing_key_version", signing_key_version)?;
        author.check().within("author_identity")?;
        body.check()?;
        check_agreement(shard, &author, retry_until_ms, &body)?;
        let body_bytes = body.encode()?;
        let mut envelope = Envelope::unsigned(
            body.mutation_type(),
            BODY_VERSION,
            shard,
            retry_until_ms,
            body_bytes.clone(),
            &body.logical_identity(),
        );
        envelope.author = author.encode();
        envelope.signing_key_version = signing_key_version;
        let signature = key.sign(&envelope.signature_digest()).to_bytes();
        let (hash, mutation_id) = (envelope.hash, envelope.mutation_id);
        Ok(Self { shard, author, retry_until_ms, body, body_bytes, hash, mutation_id, signing_key_version, signature })
    }

    /// Which mutation it is.
    #[must_use]
    pub fn mutation_type(&self) -> MutationType {
        self.body.mutation_type()
    }

    /// What the signature covers (protocol registry §2.5).
    #[must_use]
    pub fn signature_digest(&self) -> Hash {
        self.envelope().signature_digest()
    }

    /// Whether `key` made the signature, by the strict rules that give every implementation the same verdict: the verdict is
    /// an input of apply.
    #[must_use]
    pub fn verify(&self, key: &VerifyingKey) -> bool {
        mutation::verify(key, &self.signature_digest(), &self.signature)
    }

    /// The log record: the exact value to hand to the broker.
    #[must_use]
    pub fn encode_frame(&self) -> Bytes {
        self.envelope().encode_frame()
    }

    fn envelope(&self) -> Envelope {
        Envelope {
            mutation_type: self.mutation_type(),
            body_version: BODY_VERSION,
            shard: self.shard,
            retry_until_ms: self.retry_until_ms,
            body: self.body_bytes.clone(),
            hash: self.hash,
            mutation_id: self.mutation_id,
            author: self.author.encode(),
            signing_key_version: self.signing_key_version,
            signature: self.signature,
        }
    }

    pub(crate) fn decode(envelope: Envelope, author: Author) -> Result<Self, BodyError> {
        let body = MutationBody::decode(envelope.mutation_type, &envelope.body)?;
        check_agreement(envelope.shard, &author, envelope.retry_until_ms, &body)?;
        envelope.check_id(&body.logical_identity())?;
        let Envelope { shard, retry_until_ms, body: body_bytes, hash, mutation_id, .. } = envelope;
        let Envelope { signing_key_version, signature, .. } = envelope;
        Ok(Self { shard, author, retry_until_ms, body, body_bytes, hash, mutation_id, signing_key_version, signature })
    }
}

/// Checks what envelope, author and body say about each other.
fn check_agreement(
    shard: ShardId,
    author: &Author,
    retry_until_ms: i64,
    body: &MutationBody,
) -> Result<(), FieldError> {
    match (author, body.stamp()) {
        (Author::Owner { epoch, .. }, Some(stamp)) => {
            field::same("epoch", &stamp.epoch, "author_identity.owner.epoch", epoch).within("stamp")?;
            let retry_until = field::not_negative("retry_until_ms", retry_until_ms)?;
            field::fixed("retry_until_ms", retry_until.unsigned_abs(), 0)?;
        }
        (Author::Control { .. }, None) => {
            field::not_negative("retry_until_ms", retry_until_ms)?;
        }
        _ => return Err(FieldError::new("author_identity", Fault::Conflict { with: "mutation_type" })),
    }
    if let MutationBody::ShardControl(ShardControl { payload: ControlPayload::Genesis(genesis), .. }) = body {
        field::same("route", &genesis.shard, "shard_subject", &shard).within("genesis")?;
    }
    Ok(())
}
