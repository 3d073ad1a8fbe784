//! Receipts of reservations, operations and native deliveries. Their digests have no domain string, as other implementations
//! write them.

use bytes::Bytes;

use super::ack::BrokerAck;
use super::command::attempt_id;
use super::{Payload, RECEIPT_VERSION, Receipt, check_version};
use crate::canonical::DecodeError;
use crate::field::{self, Fault, FieldError, Within};
use crate::hash::Hash;
use crate::id::{MessageId, RouteId, ShardId};
use crate::mutation_v1;
use crate::position::SourcePosition;
use crate::receipt_frame::ReceiptKind;
use crate::reference::{ProfileKind, ProfileRef, TrustSetRef};
use crate::resource::Resource;
use crate::v1;

/// Room is reserved for a large payload.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PayloadReservationReceipt {
    /// The reservation.
    pub reservation_id: Hash,
    /// The message it is for; its shard is the receipt's.
    pub message_id: MessageId,
    /// Where the record stands that made it.
    pub position: SourcePosition,
    /// The reservation's state version.
    pub state_version: u64,
    /// Where the payload is to lie.
    pub object_store: ProfileRef,
    /// Bucket or container.
    pub container: Bytes,
    /// Key within it.
    pub object_key: Bytes,
    /// Length of the payload, in bytes.
    pub expected_length: u64,
    /// SHA-256 of the payload.
    pub payload_sha256: Hash,
    /// The reservation ends here, in milliseconds since the epoch.
    pub reservation_expiry_ms: i64,
    /// The keys that may sign the proof.
    pub trust_set: TrustSetRef,
}

/// An operation of an operator is registered.
#[derive(Debug, Clone, PartialEq)]
pub struct ControlOperationReceipt {
    /// The operation.
    pub operation_id: Hash,
    /// Hash of the request.
    pub request_hash: Hash,
    /// Hash of the scope that the operator was authenticated for.
    pub scope_hash: Hash,
    /// Hash of the exact targets.
    pub target_snapshot_hash: Hash,
    /// Revision of the operation's record.
    pub operation_revision: u64,
    /// When it was registered: a checked interval.
    pub registered_at: v1::TrustedUtcInterval,
    /// The operation can be asked for until here, in milliseconds since the epoch.
    pub query_until_ms: i64,
}

/// A message was handed to Pulsar's own delayed delivery. It can be neither queried nor cancelled.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct NativeDeliveryReceipt {
    /// What was handed over.
    pub native: NativePreparedRef,
    /// What the broker said.
    pub ack: BrokerAck,
    /// The physical submission that the broker answered: nonzero, new for each.
    pub physical_enqueue_attempt_id: [u8; 16],
}

/// A native delivery named so exactly that no other bytes can be meant.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct NativePreparedRef {
    /// The delivery's identity.
    pub native_delivery_id: Hash,
    /// Hash of the submission.
    pub submission_hash: Hash,
    /// The destination profile.
    pub destination: ProfileRef,
    /// The target topic.
    pub target: Resource,
    /// The target partition.
    pub physical_partition: u32,
    /// Digest of the capability that allowed it.
    pub capability_snapshot_digest: Hash,
    /// The capability ends here, in milliseconds since the epoch.
    pub capability_expiry_ms: i64,
    /// SHA-256 of the prepared bytes.
    pub prepared_sha256: Hash,
}

fn copy(bytes: &[u8]) -> Bytes {
    Bytes::copy_from_slice(bytes)
}

impl Payload for PayloadReservationReceipt {
    type Proto = v1::PayloadReservationReceipt;
    const DIGEST_DOMAIN: &'static str = "";

    fn to_proto(&self) -> Self::Proto {
        v1::PayloadReservationReceipt {
            receipt_version: RECEIPT_VERSION,
            reservation_id: copy(&self.reservation_id),
            delay_message_id: copy(&self.message_id.to_bytes()),
            route: copy(&self.message_id.shard.route.0),
            partition: self.message_id.shard.partition,
            applied_source_position: self.position.to_proto(),
            state_version: self.state_version,
            object_store_profile: self.object_store.to_proto(ProfileKind::ObjectStore),
            container: self.container.clone(),
            object_key: self.object_key.clone(),
            expected_length: self.expected_length,
            payload_sha256: copy(&self.payload_sha256),
            reservation_expiry_ms: self.reservation_expiry_ms,
            trust_set: self.trust_set.to_proto(),
            payload_digest: None,
        }
    }

    fn from_proto(proto: Self::Proto) -> Result<Self, DecodeError> {
        check_version(proto.receipt_version)?;
        let message_id = MessageId::from_bytes(&proto.delay_message_id)
            .map_err(|error| FieldError::new("delay_message_id", error))?;
        let shard = ShardId { route: RouteId(field::array("route", &proto.route)?), partition: proto.partition };
        field::same("route", &shard, "delay_message_id's shard", &message_id.shard)?;
        let position = SourcePosition::from_proto(&proto.applied_source_position).within("applied_source_position")?;
        field::same("applied_source_position", &position.shard(), "delay_message_id's shard", &message_id.shard)?;
        Ok(Self {
            reservation_id: field::array("reservation_id", &proto.reservation_id)?,
            message_id,
            position,
            state_version: proto.state_version,
            object_store: ProfileRef::from_proto(proto.object_store_profile, ProfileKind::ObjectStore)
                .within("object_store_profile")?,
            container: proto.container,
            object_key: proto.object_key,
            expected_length: proto.expected_length,
            payload_sha256: field::array("payload_sha256", &proto.payload_sha256)?,
            reservation_expiry_ms: field::not_negative("reservation_expiry_ms", proto.reservation_expiry_ms)?,
            trust_set: TrustSetRef::from_proto(&proto.trust_set).within("trust_set")?,
        })
    }

    fn set_digest(proto: &mut Self::Proto, digest: Hash) {
        proto.payload_digest = Some(copy(&digest));
    }

    fn take_digest(proto: &mut Self::Proto) -> Option<Bytes> {
        proto.payload_digest.take()
    }
}

impl Receipt for PayloadReservationReceipt {
    const KIND: ReceiptKind = ReceiptKind::PayloadReservation;
}

impl Payload for ControlOperationReceipt {
    type Proto = v1::ControlOperationReceipt;
    const DIGEST_DOMAIN: &'static str = "";

    fn to_proto(&self) -> Self::Proto {
        v1::ControlOperationReceipt {
            receipt_version: RECEIPT_VERSION,
            operation_id: copy(&self.operation_id),
            request_hash: copy(&self.request_hash),
            scope_hash: copy(&self.scope_hash),
            target_snapshot_hash: copy(&self.target_snapshot_hash),
            operation_revision: self.operation_revision,
            registered_at: self.registered_at.clone(),
            query_until_ms: self.query_until_ms,
            payload_digest: None,
        }
    }

    fn from_proto(proto: Self::Proto) -> Result<Self, DecodeError> {
        check_version(proto.receipt_version)?;
        mutation_v1::check_interval(&proto.registered_at).within("registered_at")?;
        Ok(Self {
            operation_id: nonzero("operation_id", &proto.operation_id)?,
            request_hash: field::array("request_hash", &proto.request_hash)?,
            scope_hash: field::array("scope_hash", &proto.scope_hash)?,
            target_snapshot_hash: field::array("target_snapshot_hash", &proto.target_snapshot_hash)?,
            operation_revision: proto.operation_revision,
            registered_at: proto.registered_at,
            query_until_ms: field::not_negative("query_until_ms", proto.query_until_ms)?,
        })
    }

    fn set_digest(proto: &mut Self::Proto, digest: Hash) {
        proto.payload_digest = Some(copy(&digest));
    }

    fn take_digest(proto: &mut Self::Proto) -> Option<Bytes> {
        proto.payload_digest.take()
    }
}

impl Receipt for ControlOperationReceipt {
    const KIND: ReceiptKind = ReceiptKind::ControlOperation;
}

/// A random identity, which is never zero.
fn nonzero(name: &'static str, bytes: &[u8]) -> Result<Hash, FieldError> {
    let id = field::array(name, bytes)?;
    if id == [0; 32] { Err(FieldError::new(name, Fault::Zero)) } else { Ok(id) }
}

impl NativePreparedRef {
    fn to_proto(&self) -> v1::NativePreparedRef {
        v1::NativePreparedRef {
            native_delivery_id: copy(&self.native_delivery_id),
            submission_hash: copy(&self.submission_hash),
            destination_profile: self.destination.to_proto(ProfileKind::Destination),
            target: self.target.to_proto(),
            physical_partition: self.physical_partition,
            capability_snapshot_digest: copy(&self.capability_snapshot_digest),
            capability_expiry_ms: self.capability_expiry_ms,
            prepared_sha256: copy(&self.prepared_sha256),
        }
    }

    fn from_proto(proto: v1::NativePreparedRef) -> Result<Self, FieldError> {
        let target = Resource::from_proto(&proto.target).within("target")?;
        Ok(Self {
            native_delivery_id: nonzero("native_delivery_id", &proto.native_delivery_id)?,
            submission_hash: field::array("submission_hash", &proto.submission_hash)?,
            destination: ProfileRef::from_proto(proto.destination_profile, ProfileKind::Destination)
                .within("destination_profile")?,
            target,
            physical_partition: proto.physical_partition,
            capability_snapshot_digest: field::array("capability_snapshot_digest", &proto.capability_snapshot_digest)?,
            capability_expiry_ms: field::not_negative("capability_expiry_ms", proto.capability_expiry_ms)?,
            prepared_sha256: field::array("prepared_sha256", &proto.prepared_sha256)?,
        })
    }
}

impl Payload for NativeDeliveryReceipt {
    type Proto = v1::NativeDeliveryReceipt;
    const DIGEST_DOMAIN: &'static str = "";

    fn to_proto(&self) -> Self::Proto {
        v1::NativeDeliveryReceipt {
            receipt_version: RECEIPT_VERSION,
            native: self.native.to_proto(),
            broker_ack: self.ack.to_proto(),
            // None of what can be asked of a managed command can be asked of a native delivery.
            capability_bits: 0,
            physical_enqueue_attempt_id: copy(&self.physical_enqueue_attempt_id),
            payload_digest: None,
        }
    }

    fn from_proto(proto: Self::Proto) -> Result<Self, DecodeError> {
        check_version(proto.receipt_version)?;
        field::fixed("capability_bits", proto.capability_bits, 0)?;
        let ack = BrokerAck::from_proto(&proto.broker_ack).within("broker_ack")?;
        if !matches!(ack, BrokerAck::Pulsar(_)) {
            return Err(FieldError::new("broker_ack", Fault::Conflict { with: "the receipt's kind" }).into());
        }
        Ok(Self {
            native: NativePreparedRef::from_proto(proto.native).within("native")?,
            ack,
            physical_enqueue_attempt_id: attempt_id(&proto.physical_enqueue_attempt_id)?,
        })
    }

    fn set_digest(proto: &mut Self::Proto, digest: Hash) {
        proto.payload_digest = Some(copy(&digest));
    }

    fn take_digest(proto: &mut Self::Proto) -> Option<Bytes> {
        proto.payload_digest.take()
    }
}

impl Receipt for NativeDeliveryReceipt {
    const KIND: ReceiptKind = ReceiptKind::NativeDelivery;
}
