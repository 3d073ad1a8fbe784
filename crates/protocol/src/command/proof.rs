//! The object store's signed word that a large payload lies where it should (protocol registry §2.10).

use bytes::Bytes;
use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};

use crate::canonical::{self, DecodeError, decode_canonical};
use crate::field::{self, FieldError, Within};
use crate::hash::{Hash, Preimage};
use crate::id::{MessageId, RouteId, ShardId};
use crate::reference::{ProfileKind, ProfileRef};
use crate::v1;

const PROOF_VERSION: u32 = 1;

/// What a proof says; everything that its identity covers.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ProofClaims {
    /// The reservation the payload was uploaded under.
    pub reservation_id: Hash,
    /// The tenant's routing scope.
    pub tenant_scope: Hash,
    /// The shard of the message.
    pub shard: ShardId,
    /// The message.
    pub message_id: MessageId,
    /// The object store's profile.
    pub object_store: ProfileRef,
    /// The version of the trust set that the signing key belongs to.
    pub trust_set_version: u64,
    /// Bucket or container.
    pub container: Bytes,
    /// Key within it.
    pub object_key: Bytes,
    /// The version that the store gave the object.
    pub object_version: Bytes,
    /// Its etag, where the store has one.
    pub etag: Option<Bytes>,
    /// Length in bytes.
    pub length: u64,
    /// SHA-256 of the payload.
    pub payload_sha256: Hash,
    /// The proof counts for commits persisted up to this instant, in milliseconds since the epoch.
    pub not_after_ms: i64,
}

/// A signed proof. That its identity follows from its claims is checked when it is decoded; its signature is not, for that
/// takes a key: see [`PayloadCommitProof::verify`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PayloadCommitProof {
    /// What is proven.
    pub claims: ProofClaims,
    /// Which key of the trust set signed.
    pub key_version: u32,
    /// The signature over [`PayloadCommitProof::signature_digest`].
    pub signature: [u8; 64],
}

impl ProofClaims {
    /// The proof's identity; signing again under another key keeps it.
    #[must_use]
    pub fn proof_id(&self) -> Hash {
        Preimage::new("nereus-delay-payload-proof-id-v1\0").bytes(&canonical::encode(&self.to_proto())).sha256()
    }

    fn to_proto(&self) -> v1::PayloadCommitProof {
        let copy = |bytes: &[u8]| Some(Bytes::copy_from_slice(bytes));
        v1::PayloadCommitProof {
            proof_version: Some(PROOF_VERSION),
            reservation_id: copy(&self.reservation_id),
            tenant_routing_scope: copy(&self.tenant_scope),
            route: copy(&self.shard.route.0),
            partition: Some(self.shard.partition),
            delay_message_id: copy(&self.message_id.to_bytes()),
            object_store_profile: Some(self.object_store.to_proto(ProfileKind::ObjectStore)),
            trust_set_version: Some(self.trust_set_version),
            proof_key_version: None,
            container: Some(self.container.clone()),
            object_key: Some(self.object_key.clone()),
            immutable_object_version: Some(self.object_version.clone()),
            etag: self.etag.clone(),
            length: Some(self.length),
            payload_sha256: copy(&self.payload_sha256),
            not_after_ms: Some(self.not_after_ms),
            proof_id: None,
            signature: None,
        }
    }
}

impl PayloadCommitProof {
    /// Signs `claims` with the key that the trust set knows as `key_version`.
    #[must_use]
    pub fn sign(claims: ProofClaims, key_version: u32, key: &SigningKey) -> Self {
        let mut proof = Self { claims, key_version, signature: [0; 64] };
        proof.signature = key.sign(&proof.signature_digest()).to_bytes();
        proof
    }

    /// What the signature covers: all fields but itself.
    #[must_use]
    pub fn signature_digest(&self) -> Hash {
        let unsigned = v1::PayloadCommitProof { signature: None, ..self.to_proto() };
        Preimage::new("nereus-delay-payload-proof-signature-v1\0").bytes(&canonical::encode(&unsigned)).sha256()
    }

    /// Whether `key` made the signature, by the strict rules that give every implementation the same verdict.
    #[must_use]
    pub fn verify(&self, key: &VerifyingKey) -> bool {
        key.verify_strict(&self.signature_digest(), &Signature::from_bytes(&self.signature)).is_ok()
    }

    /// Reads a proof on its own.
    ///
    /// # Errors
    /// [`DecodeError`] for bytes that are no canonical proof, or an identity that does not follow from the claims.
    pub fn decode(bytes: &Bytes) -> Result<Self, DecodeError> {
        Ok(Self::from_proto(decode_canonical(bytes)?)?)
    }

    /// The canonical bytes.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        canonical::encode(&self.to_proto())
    }

    pub(crate) fn to_proto(&self) -> v1::PayloadCommitProof {
        v1::PayloadCommitProof {
            proof_key_version: Some(self.key_version),
            proof_id: Some(Bytes::copy_from_slice(&self.claims.proof_id())),
            signature: Some(Bytes::copy_from_slice(&self.signature)),
            ..self.claims.to_proto()
        }
    }

    pub(crate) fn from_proto(proto: v1::PayloadCommitProof) -> Result<Self, FieldError> {
        field::fixed("proof_version", field::required("proof_version", proto.proof_version)?, PROOF_VERSION.into())?;
        let proof_id: Hash = required_array("proof_id", proto.proof_id.as_ref())?;
        let message_id: [u8; crate::id::ID_BYTES] =
            required_array("delay_message_id", proto.delay_message_id.as_ref())?;
        let shard = ShardId {
            route: RouteId(required_array("route", proto.route.as_ref())?),
            partition: field::required("partition", proto.partition)?,
        };
        let object_store = field::required("object_store_profile", proto.object_store_profile)?;
        let claims = ProofClaims {
            reservation_id: required_array("reservation_id", proto.reservation_id.as_ref())?,
            tenant_scope: required_array("tenant_routing_scope", proto.tenant_routing_scope.as_ref())?,
            shard,
            message_id: MessageId::from_bytes(&message_id)
                .map_err(|error| FieldError::new("delay_message_id", error))?,
            object_store: ProfileRef::from_proto(object_store, ProfileKind::ObjectStore)
                .within("object_store_profile")?,
            trust_set_version: field::required("trust_set_version", proto.trust_set_version)?,
            container: field::required("container", proto.container)?,
            object_key: field::required("object_key", proto.object_key)?,
            object_version: field::required("immutable_object_version", proto.immutable_object_version)?,
            etag: proto.etag,
            length: field::required("length", proto.length)?,
            payload_sha256: required_array("payload_sha256", proto.payload_sha256.as_ref())?,
            not_after_ms: field::required("not_after_ms", proto.not_after_ms)?,
        };
        let proof = Self {
            claims,
            key_version: field::required("proof_key_version", proto.proof_key_version)?,
            signature: required_array("signature", proto.signature.as_ref())?,
        };
        proof.check()?;
        field::derived("proof_id", &proof_id, &proof.claims.proof_id())?;
        Ok(proof)
    }

    /// What decoding checks beyond the types.
    pub(crate) fn check(&self) -> Result<(), FieldError> {
        field::same("route", &self.claims.shard.route, "delay_message_id", &self.claims.message_id.shard.route)?;
        let partition = self.claims.message_id.shard.partition;
        field::same("partition", &self.claims.shard.partition, "delay_message_id", &partition)?;
        self.claims.object_store.check().within("object_store_profile")?;
        field::not_zero("trust_set_version", self.claims.trust_set_version)?;
        field::not_negative("not_after_ms", self.claims.not_after_ms)?;
        Ok(())
    }
}

fn required_array<const N: usize>(name: &'static str, value: Option<&Bytes>) -> Result<[u8; N], FieldError> {
    field::array(name, field::required(name, value)?)
}
