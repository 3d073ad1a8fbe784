//! What the caller wants delivered, where and when: the part of a `Schedule` that outlives the command (protocol registry §2.10).

use bytes::Bytes;

use super::metadata::AdapterMetadata;
use crate::canonical::{self, DecodeError, decode_canonical};
use crate::field::{self, FieldError, Within};
use crate::hash::Hash;
use crate::reference::{ProfileKind, ProfileRef, RetryPolicyRef};
use crate::v1;
pub use crate::v1::OrderingMode;

/// The only accounting version of quotas there is.
const QUOTA_ACCOUNTING_VERSION: u32 = 1;

/// An intent to deliver one message. Its canonical bytes are what the service keeps of the message.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ScheduleIntent {
    /// The destination.
    pub profile: ProfileRef,
    /// How publishing is retried.
    pub retry_policy: RetryPolicyRef,
    /// The earliest instant at which a consumer may see the message, in milliseconds since the epoch.
    pub deliver_at_ms: i64,
    /// From this instant on the message is not admitted any more, in milliseconds since the epoch.
    pub expire_at_ms: i64,
    /// Whether messages of one ordering key follow each other by delivery time.
    pub ordering: OrderingMode,
    /// The ordering key; may be empty, and may be there without order being asked for.
    pub ordering_key: Bytes,
    /// The payload; `None` exactly in the intent of a `PrepareLarge`, whose payload is not there yet.
    pub payload: Option<Payload>,
    /// Key, headers, properties.
    pub metadata: AdapterMetadata,
    /// The caller's own name for the message, at least one byte.
    pub business_key: Option<Bytes>,
    /// When the thing happened that the message is about, in milliseconds since the epoch; passed on, never used.
    pub event_time_ms: Option<i64>,
}

/// Where a payload is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Payload {
    /// In the command itself.
    Inline(Bytes),
    /// In the object store.
    Committed(Box<CommittedPayload>),
}

/// A payload in the object store, named so exactly that no other object can stand in for it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CommittedPayload {
    /// The object store's profile.
    pub object_store: ProfileRef,
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
    pub sha256: Hash,
    /// The reservation it was uploaded under.
    pub reservation_id: Hash,
    /// The proof that it lies there.
    pub proof_id: Hash,
}

impl ScheduleIntent {
    /// Reads an intent that was kept as bytes.
    ///
    /// # Errors
    /// [`DecodeError`] for bytes that are no canonical intent.
    pub fn decode(bytes: &Bytes) -> Result<Self, DecodeError> {
        Ok(Self::from_proto(decode_canonical(bytes)?)?)
    }

    /// The canonical bytes.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        canonical::encode(&self.to_proto())
    }

    /// The inline payload's length, or the object's.
    #[must_use]
    pub fn payload_length(&self) -> Option<u64> {
        match self.payload.as_ref()? {
            Payload::Inline(payload) => Some(u64::try_from(payload.len()).expect("usize has at most 64 bits")),
            Payload::Committed(payload) => Some(payload.length),
        }
    }

    /// Checks an intent that was put together here; one that was decoded passed the same rules part by part.
    pub(crate) fn check(&self) -> Result<(), FieldError> {
        self.profile.check().within("profile")?;
        self.retry_policy.check().within("retry_policy")?;
        if let Some(Payload::Committed(payload)) = &self.payload {
            payload.object_store.check().within("object_store_profile").within("committed_payload")?;
        }
        self.metadata.check().within("adapter_metadata")?;
        self.check_own_fields()
    }

    fn check_own_fields(&self) -> Result<(), FieldError> {
        field::not_negative("deliver_at_ms", self.deliver_at_ms)?;
        field::not_negative("expire_at_ms", self.expire_at_ms)?;
        if let Some(key) = &self.business_key {
            field::not_empty("business_key", key)?;
        }
        if let Some(time_ms) = self.event_time_ms {
            field::not_negative("event_time_ms", time_ms)?;
        }
        Ok(())
    }

    pub(crate) fn from_proto(proto: v1::ScheduleIntent) -> Result<Self, FieldError> {
        use v1::schedule_intent::Payload as Branch;
        field::known::<v1::DeliveryMode>("delivery_mode", proto.delivery_mode)?;
        field::fixed("quota_accounting_version", proto.quota_accounting_version, QUOTA_ACCOUNTING_VERSION.into())?;
        let payload = match proto.payload {
            None => None,
            Some(Branch::InlinePayload(payload)) => Some(Payload::Inline(payload)),
            Some(Branch::CommittedPayload(payload)) => {
                let payload = CommittedPayload::from_proto(payload).within("committed_payload")?;
                Some(Payload::Committed(Box::new(payload)))
            }
        };
        let intent = Self {
            profile: ProfileRef::from_proto(proto.profile, ProfileKind::Destination).within("profile")?,
            retry_policy: RetryPolicyRef::from_proto(proto.retry_policy).within("retry_policy")?,
            deliver_at_ms: proto.deliver_at_ms,
            expire_at_ms: proto.expire_at_ms,
            ordering: field::known("ordering_mode", proto.ordering_mode)?,
            ordering_key: proto.ordering_key,
            payload,
            metadata: AdapterMetadata::from_proto(proto.adapter_metadata).within("adapter_metadata")?,
            business_key: proto.business_key,
            event_time_ms: proto.event_time_ms,
        };
        intent.check_own_fields()?;
        Ok(intent)
    }

    pub(crate) fn to_proto(&self) -> v1::ScheduleIntent {
        use v1::schedule_intent::Payload as Branch;
        v1::ScheduleIntent {
            profile: self.profile.to_proto(ProfileKind::Destination),
            retry_policy: self.retry_policy.to_proto(),
            deliver_at_ms: self.deliver_at_ms,
            expire_at_ms: self.expire_at_ms,
            delivery_mode: v1::DeliveryMode::Managed.into(),
            ordering_mode: self.ordering.into(),
            ordering_key: self.ordering_key.clone(),
            adapter_metadata: self.metadata.to_proto(),
            business_key: self.business_key.clone(),
            event_time_ms: self.event_time_ms,
            quota_accounting_version: QUOTA_ACCOUNTING_VERSION,
            payload: self.payload.as_ref().map(|payload| match payload {
                Payload::Inline(payload) => Branch::InlinePayload(payload.clone()),
                Payload::Committed(payload) => Branch::CommittedPayload(payload.to_proto()),
            }),
        }
    }
}

impl CommittedPayload {
    fn from_proto(proto: v1::CommittedPayloadDescriptor) -> Result<Self, FieldError> {
        Ok(Self {
            object_store: ProfileRef::from_proto(proto.object_store_profile, ProfileKind::ObjectStore)
                .within("object_store_profile")?,
            container: proto.container,
            object_key: proto.object_key,
            object_version: proto.immutable_version,
            etag: proto.etag,
            length: proto.length,
            sha256: field::array("payload_sha256", &proto.payload_sha256)?,
            reservation_id: field::array("reservation_id", &proto.reservation_id)?,
            proof_id: field::array("proof_id", &proto.proof_id)?,
        })
    }

    fn to_proto(&self) -> v1::CommittedPayloadDescriptor {
        v1::CommittedPayloadDescriptor {
            object_store_profile: self.object_store.to_proto(ProfileKind::ObjectStore),
            container: self.container.clone(),
            object_key: self.object_key.clone(),
            immutable_version: self.object_version.clone(),
            etag: self.etag.clone(),
            length: self.length,
            payload_sha256: Bytes::copy_from_slice(&self.sha256),
            reservation_id: Bytes::copy_from_slice(&self.reservation_id),
            proof_id: Bytes::copy_from_slice(&self.proof_id),
        }
    }
}
