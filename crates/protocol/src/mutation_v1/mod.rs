//! Mutations of body version 1, decoded and checked for the sake of interoperation (protocol registry §2.11).
//!
//! This system writes body version 2 and answers a record of version 1 as not activated. It still has to tell such a record
//! from a damaged one, and the conformance vectors hold it to every byte.

mod body;
mod control;
mod evidence;
mod nested;
mod shape;

use bytes::Bytes;
use ed25519_dalek::{Signer, SigningKey, VerifyingKey};
use prost::Message;

pub use self::body::MutationBodyV1;
use self::shape::Shape;
use crate::canonical::{DecodeError, decode_canonical};
use crate::field::{self, Fault, FieldError, Within};
use crate::hash::Hash;
use crate::id::ShardId;
use crate::mutation::{self, Envelope, MutationType};
use crate::v1;
use v1::author_identity::Author;

const BODY_VERSION: u32 = 1;

/// A mutation of body version 1.
#[derive(Debug, Clone, PartialEq)]
pub struct MutationV1 {
    /// The shard it is for.
    pub shard: ShardId,
    /// Who signed it.
    pub author: v1::AuthorIdentity,
    /// The same bytes may be appended again until here, in milliseconds since the epoch.
    pub retry_until_ms: i64,
    /// What it says.
    pub body: MutationBodyV1,
    /// The body's canonical bytes.
    pub body_bytes: Bytes,
    /// The mutation hash.
    pub hash: Hash,
    /// The mutation's identity.
    pub mutation_id: Hash,
    /// Which key signed.
    pub signing_key_version: u32,
    /// The signature; see [`MutationV1::verify`].
    pub signature: [u8; 64],
}

impl MutationV1 {
    /// Puts a record together and signs it.
    ///
    /// # Errors
    /// [`FieldError`] for a body or author that no decoder would accept.
    pub fn sign(
        shard: ShardId,
        author: v1::AuthorIdentity,
        retry_until_ms: i64,
        body: MutationBodyV1,
        signing_key_version: u32,
        key: &SigningKey,
    ) -> Result<Self, FieldError> {
        field::not_negative("retry_until_ms", retry_until_ms)?;
        field::not_zero("signing_key_version", signing_key_version)?;
        body.check(shard, retry_until_ms, signing_key_version)?;
        check_author(&author, &body)?;
        let logical_identity = body.logical_identity()?;
        let (mutation_type, body_bytes) = (body.mutation_type(), body.encode());
        let mut envelope = Envelope::unsigned(
            mutation_type,
            BODY_VERSION,
            shard,
            retry_until_ms,
            body_bytes.clone(),
            &logical_identity,
        );
        envelope.author = author.encode_to_vec().into();
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

    /// What the signature covers.
    #[must_use]
    pub fn signature_digest(&self) -> Hash {
        self.envelope().signature_digest()
    }

    /// Whether `key` made the signature.
    #[must_use]
    pub fn verify(&self, key: &VerifyingKey) -> bool {
        mutation::verify(key, &self.signature_digest(), &self.signature)
    }

    /// The log record.
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
            author: self.author.encode_to_vec().into(),
            signing_key_version: self.signing_key_version,
            signature: self.signature,
        }
    }

    pub(crate) fn decode_author(bytes: &Bytes) -> Result<v1::AuthorIdentity, DecodeError> {
        let author: v1::AuthorIdentity = decode_canonical(bytes)?;
        author.check()?;
        Ok(author)
    }

    pub(crate) fn decode(envelope: Envelope, author: v1::AuthorIdentity) -> Result<Self, DecodeError> {
        let body = MutationBodyV1::decode(&envelope)?;
        check_author(&author, &body)?;
        envelope.check_id(&body.logical_identity()?)?;
        let Envelope { shard, retry_until_ms, body: body_bytes, hash, mutation_id, .. } = envelope;
        let Envelope { signing_key_version, signature, .. } = envelope;
        Ok(Self { shard, author, retry_until_ms, body, body_bytes, hash, mutation_id, signing_key_version, signature })
    }
}

/// Checks a trusted interval on its own: receipts carry one too.
pub(crate) fn check_interval(interval: &v1::TrustedUtcInterval) -> Result<(), FieldError> {
    interval.check()
}

/// The author's branch is fixed by the type, and an owner that the body names is the one that signs.
fn check_author(author: &v1::AuthorIdentity, body: &MutationBodyV1) -> Result<(), FieldError> {
    use MutationBodyV1 as Body;
    author.check().within("author_identity")?;
    let author = field::required("author_identity", author.author.as_ref())?;
    let legal = match body {
        Body::ApplyShardControl(_) | Body::ReplayDeadLetter(_) | Body::ResolveUncertain(_) => {
            matches!(author, Author::Control(_))
        }
        Body::TimeFence(_) => matches!(author, Author::Fence(_)),
        Body::PublishAdmission(_) | Body::PublishOutcome(_) | Body::ExpireGeneration(_) | Body::ClaimResult(_) => {
            matches!(author, Author::Owner(_))
        }
        Body::EvidenceResolution(_)
        | Body::ResourceRetireIntent(_)
        | Body::ResourceDeleteConfirmed(_)
        | Body::DlqExportResult(_) => matches!(author, Author::Service(_)),
    };
    if !legal {
        return Err(FieldError::new("author_identity", Fault::Conflict { with: "mutation_type" }));
    }
    let named = match body {
        Body::PublishAdmission(body) => Some(&body.owner),
        Body::ClaimResult(body) => Some(&body.claim_precondition.owner),
        _ => None,
    };
    match (named, author) {
        (Some(named), Author::Owner(owner)) => field::same("owner", named, "author_identity.owner", owner),
        _ => Ok(()),
    }
}
