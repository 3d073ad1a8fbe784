//! Receipts of commands: queued, and applied.

use bytes::Bytes;

use super::ack::BrokerAck;
use super::{Payload, RECEIPT_VERSION, Receipt, check_version};
use crate::canonical::DecodeError;
use crate::code::StableCode;
use crate::command::{ClientCommand, CommandType, ENVELOPE_VERSION, LOG_ENVELOPE_VERSION, OrderingMode};
use crate::field::{self, Fault, FieldError, Within};
use crate::frame::{FRAMING_VERSION, RecordKind};
use crate::hash::{Hash, sha256};
use crate::id::{CommandId, MessageId, RouteId, ShardId};
use crate::position::SourcePosition;
use crate::receipt_frame::ReceiptKind;
use crate::reference::{ProfileKind, ProfileRef};
use crate::resource::AdapterKind;
use crate::text::Text;
use crate::v1;
pub use crate::v1::CommandApplyStatus as ApplyStatus;

/// Everything a queued command can be asked for: query, cancel, reschedule, server quota, server audit.
const CAPABILITY_BITS: u32 = 0x1f;

/// A command named so exactly that no other bytes can be meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PreparedCommandRef {
    /// The command.
    pub command_id: CommandId,
    /// The message it is about, of the same shard.
    pub message_id: MessageId,
    /// Which command.
    pub command_type: CommandType,
    /// The command hash.
    pub command_hash: Hash,
    /// Until when the same bytes may be sent again, in milliseconds since the epoch.
    pub retry_until_ms: i64,
    /// SHA-256 of the whole log record.
    pub frame_sha256: Hash,
}

/// The broker has the command, at the route's durability. Says nothing about what will become of it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct QueuedReceipt {
    /// The command.
    pub command: PreparedCommandRef,
    /// Where it stands.
    pub position: SourcePosition,
    /// What the broker said; of the same position.
    pub ack: BrokerAck,
    /// The result can be asked for until here, in milliseconds since the epoch.
    pub query_until_ms: i64,
    /// The physical submission that the broker answered: nonzero, new for each.
    pub physical_enqueue_attempt_id: [u8; 16],
}

/// What became of a command.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct AppliedReceipt {
    /// Digest of the [`QueuedReceipt`].
    pub queued_digest: Hash,
    /// Whether the command was held against the state at all.
    pub status: ApplyStatus,
    /// The answer.
    pub code: StableCode,
    /// Where the record stands that was applied.
    pub position: SourcePosition,
    /// The message's generation, where there is a message.
    pub generation: Option<u32>,
    /// The state version of the message or reservation, where there is one.
    pub state_version: Option<u64>,
    /// Where the message goes, as far as a tenant may see.
    pub binding: Option<DestinationBinding>,
    /// The whole result is kept until here, in milliseconds since the epoch.
    pub full_result_retain_until_ms: i64,
}

/// Where a message goes, as far as a tenant may see.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct DestinationBinding {
    /// The destination profile.
    pub destination: ProfileRef,
    /// The capability profile.
    pub capability: ProfileRef,
    /// The adapter.
    pub adapter: AdapterKind,
    /// The destination's public name.
    pub alias: Text,
    /// The target partition.
    pub physical_partition: u32,
    /// The order that was asked for.
    pub ordering: OrderingMode,
}

impl From<&ClientCommand> for PreparedCommandRef {
    fn from(command: &ClientCommand) -> Self {
        Self {
            command_id: command.command_id,
            message_id: command.message_id,
            command_type: command.command_type(),
            command_hash: command.hash,
            retry_until_ms: command.retry_until_ms,
            frame_sha256: sha256(&command.encode_frame()),
        }
    }
}

/// The only protocol tuple that commands have.
fn tuple() -> v1::ProtocolTuple {
    v1::ProtocolTuple {
        framing_version: FRAMING_VERSION.into(),
        log_envelope_version: LOG_ENVELOPE_VERSION,
        record_kind: RecordKind::ClientCommand.as_u8().into(),
        envelope_version: ENVELOPE_VERSION,
        body_version: crate::command::BODY_VERSION,
    }
}

impl PreparedCommandRef {
    /// The shard of the command.
    #[must_use]
    pub fn shard(&self) -> ShardId {
        self.message_id.shard
    }

    /// The protobuf form.
    #[must_use]
    pub fn to_proto(&self) -> v1::PreparedCommandRef {
        v1::PreparedCommandRef {
            route: Bytes::copy_from_slice(&self.shard().route.0),
            partition: self.shard().partition,
            command_id: Bytes::copy_from_slice(&self.command_id.to_bytes()),
            delay_message_id: Bytes::copy_from_slice(&self.message_id.to_bytes()),
            command_type: self.command_type.as_u32(),
            tuple: tuple(),
            command_hash: Bytes::copy_from_slice(&self.command_hash),
            retry_until_ms: self.retry_until_ms,
            frame_sha256: Bytes::copy_from_slice(&self.frame_sha256),
        }
    }

    fn from_proto(proto: &v1::PreparedCommandRef) -> Result<Self, FieldError> {
        let command_id =
            CommandId::from_bytes(&proto.command_id).map_err(|error| FieldError::new("command_id", error))?;
        let message_id = MessageId::from_bytes(&proto.delay_message_id)
            .map_err(|error| FieldError::new("delay_message_id", error))?;
        let shard = ShardId { route: RouteId(field::array("route", &proto.route)?), partition: proto.partition };
        field::same("command_id", &command_id.shard, "route and partition", &shard)?;
        field::same("delay_message_id", &message_id.shard, "route and partition", &shard)?;
        field::same("tuple", &proto.tuple, "the tuple of commands", &tuple())?;
        let command_type = CommandType::from_u32(proto.command_type)
            .ok_or_else(|| FieldError::new("command_type", Fault::UnknownValue { found: proto.command_type.into() }))?;
        Ok(Self {
            command_id,
            message_id,
            command_type,
            command_hash: field::array("command_hash", &proto.command_hash)?,
            retry_until_ms: field::not_negative("retry_until_ms", proto.retry_until_ms)?,
            frame_sha256: field::array("frame_sha256", &proto.frame_sha256)?,
        })
    }
}

impl Payload for QueuedReceipt {
    type Proto = v1::CommandQueuedReceipt;
    const DIGEST_DOMAIN: &'static str = "nereus-delay-command-queued-receipt-v1\0";

    fn to_proto(&self) -> Self::Proto {
        v1::CommandQueuedReceipt {
            receipt_version: RECEIPT_VERSION,
            command: self.command.to_proto(),
            source_position: self.position.to_proto(),
            broker_ack: self.ack.to_proto(),
            receipt_query_until_ms: self.query_until_ms,
            capability_bits: CAPABILITY_BITS,
            physical_enqueue_attempt_id: Bytes::copy_from_slice(&self.physical_enqueue_attempt_id),
            payload_digest: None,
        }
    }

    fn from_proto(proto: Self::Proto) -> Result<Self, DecodeError> {
        check_version(proto.receipt_version)?;
        field::fixed("capability_bits", proto.capability_bits, CAPABILITY_BITS.into())?;
        let receipt = Self {
            command: PreparedCommandRef::from_proto(&proto.command).within("command")?,
            position: SourcePosition::from_proto(&proto.source_position).within("source_position")?,
            ack: BrokerAck::from_proto(&proto.broker_ack).within("broker_ack")?,
            query_until_ms: field::not_negative("receipt_query_until_ms", proto.receipt_query_until_ms)?,
            physical_enqueue_attempt_id: attempt_id(&proto.physical_enqueue_attempt_id)?,
        };
        let shard = receipt.position.shard();
        field::same("source_position", &shard, "the command's route and partition", &receipt.command.shard())?;
        receipt.ack.check_position(&receipt.position)?;
        Ok(receipt)
    }

    fn set_digest(proto: &mut Self::Proto, digest: Hash) {
        proto.payload_digest = Some(Bytes::copy_from_slice(&digest));
    }

    fn take_digest(proto: &mut Self::Proto) -> Option<Bytes> {
        proto.payload_digest.take()
    }
}

/// The id of a physical submission, which is random and so never zero.
pub(super) fn attempt_id(bytes: &[u8]) -> Result<[u8; 16], FieldError> {
    let id = field::array("physical_enqueue_attempt_id", bytes)?;
    if id == [0; 16] {
        return Err(FieldError::new("physical_enqueue_attempt_id", Fault::Zero));
    }
    Ok(id)
}

impl Receipt for QueuedReceipt {
    const KIND: ReceiptKind = ReceiptKind::CommandQueued;
}

impl DestinationBinding {
    fn to_proto(&self) -> v1::PublicDestinationBinding {
        v1::PublicDestinationBinding {
            destination_profile: self.destination.to_proto(ProfileKind::Destination),
            capability_profile: self.capability.to_proto(ProfileKind::DeliveryCapability),
            adapter_kind: self.adapter.into(),
            destination_alias: self.alias.to_bytes(),
            physical_partition: self.physical_partition,
            ordering_mode: self.ordering.into(),
        }
    }

    fn from_proto(proto: v1::PublicDestinationBinding) -> Result<Self, FieldError> {
        let capability = ProfileKind::DeliveryCapability;
        Ok(Self {
            destination: ProfileRef::from_proto(proto.destination_profile, ProfileKind::Destination)
                .within("destination_profile")?,
            capability: ProfileRef::from_proto(proto.capability_profile, capability).within("capability_profile")?,
            adapter: field::known("adapter_kind", proto.adapter_kind)?,
            alias: Text::new(proto.destination_alias).map_err(|error| FieldError::new("destination_alias", error))?,
            physical_partition: proto.physical_partition,
            ordering: field::known("ordering_mode", proto.ordering_mode)?,
        })
    }
}

impl Payload for AppliedReceipt {
    type Proto = v1::CommandAppliedReceipt;
    const DIGEST_DOMAIN: &'static str = "nereus-delay-command-applied-receipt-v1\0";

    fn to_proto(&self) -> Self::Proto {
        v1::CommandAppliedReceipt {
            receipt_version: RECEIPT_VERSION,
            queued_receipt_digest: Bytes::copy_from_slice(&self.queued_digest),
            apply_status: self.status.into(),
            stable_code: self.code.as_u32(),
            applied_source_position: self.position.to_proto(),
            generation: self.generation,
            state_version: self.state_version,
            binding: self.binding.as_ref().map(DestinationBinding::to_proto),
            full_result_retain_until_ms: self.full_result_retain_until_ms,
            payload_digest: None,
        }
    }

    fn from_proto(proto: Self::Proto) -> Result<Self, DecodeError> {
        check_version(proto.receipt_version)?;
        let code = StableCode::from_u32(proto.stable_code)
            .ok_or_else(|| FieldError::new("stable_code", Fault::UnknownValue { found: proto.stable_code.into() }))?;
        let retain_until_ms = proto.full_result_retain_until_ms;
        Ok(Self {
            queued_digest: field::array("queued_receipt_digest", &proto.queued_receipt_digest)?,
            status: field::known("apply_status", proto.apply_status)?,
            code,
            position: SourcePosition::from_proto(&proto.applied_source_position).within("applied_source_position")?,
            generation: proto.generation,
            state_version: proto.state_version,
            binding: proto.binding.map(DestinationBinding::from_proto).transpose().within("binding")?,
            full_result_retain_until_ms: field::not_negative("full_result_retain_until_ms", retain_until_ms)?,
        })
    }

    fn set_digest(proto: &mut Self::Proto, digest: Hash) {
        proto.payload_digest = Some(Bytes::copy_from_slice(&digest));
    }

    fn take_digest(proto: &mut Self::Proto) -> Option<Bytes> {
        proto.payload_digest.take()
    }
}

impl Receipt for AppliedReceipt {
    const KIND: ReceiptKind = ReceiptKind::CommandApplied;
}
