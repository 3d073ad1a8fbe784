//! What each of the five commands asks for (protocol registry §2.10).

use bytes::Bytes;

use super::CommandType;
use super::intent::ScheduleIntent;
use super::proof::PayloadCommitProof;
use crate::canonical::{self, DecodeError, decode_canonical};
use crate::field::{self, Fault, FieldError, Within};
use crate::hash::Hash;
use crate::id::{ID_BYTES, MessageId};
use crate::reference::{ProfileKind, ProfileRef, TrustSetRef};
use crate::v1;

/// The operation of a command.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum CommandBody {
    /// Deliver a message later.
    Schedule(Box<Schedule>),
    /// Reserve room for a large payload that will be uploaded on its own.
    PrepareLarge(Box<PrepareLarge>),
    /// Turn a reservation into a scheduled message.
    CommitLarge(Box<CommitLarge>),
    /// Take a message back.
    Cancel(Cancel),
    /// Give a message new times.
    Reschedule(Reschedule),
}

/// Deliver a message later.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Schedule {
    intent: ScheduleIntent,
    intent_bytes: Bytes,
}

/// Reserve room for a large payload that will be uploaded on its own.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PrepareLarge {
    intent: ScheduleIntent,
    intent_bytes: Bytes,
    /// Length of the payload that will be uploaded, in bytes.
    pub expected_payload_length: u64,
    /// Its SHA-256.
    pub payload_sha256: Hash,
    /// How long the reservation stands after the broker persisted the command, in milliseconds.
    pub reservation_ttl_ms: u64,
    /// The keys that may sign the proof.
    pub trust_set: TrustSetRef,
    /// Where the payload will lie.
    pub object_store: ProfileRef,
}

/// Turn a reservation into a scheduled message.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CommitLarge {
    /// The reservation.
    pub reservation_id: Hash,
    /// The proof that the payload lies there.
    pub proof: PayloadCommitProof,
}

/// Take a message back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Cancel {
    /// What the caller expects of the message.
    pub precondition: Precondition,
}

/// Give a message new times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Reschedule {
    /// What the caller expects of the message.
    pub precondition: Precondition,
    /// The new earliest instant of delivery, in milliseconds since the epoch.
    pub deliver_at_ms: i64,
    /// The new end, in milliseconds since the epoch.
    pub expire_at_ms: i64,
}

/// What a caller expects of a message; each half may be asked for without the other, and neither need be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Precondition {
    /// The generation, from 0.
    pub generation: Option<u32>,
    /// The state version; all 64 bits are used.
    pub state_version: Option<u64>,
}

impl Schedule {
    /// Takes an intent with a payload.
    ///
    /// # Errors
    /// [`FieldError`] when there is no payload or a field breaks a rule of the registry.
    pub fn new(intent: ScheduleIntent) -> Result<Self, FieldError> {
        if intent.payload.is_none() {
            return Err(FieldError::new("payload", Fault::Missing).within("intent"));
        }
        intent.check().within("intent")?;
        let intent_bytes = intent.encode();
        Ok(Self { intent, intent_bytes })
    }

    /// What is to be delivered; has a payload.
    #[must_use]
    pub fn intent(&self) -> &ScheduleIntent {
        &self.intent
    }

    /// The intent itself.
    #[must_use]
    pub fn into_intent(self) -> ScheduleIntent {
        self.intent
    }

    /// The intent's canonical bytes: a slice of the frame when the command was decoded from one.
    #[must_use]
    pub fn intent_bytes(&self) -> &Bytes {
        &self.intent_bytes
    }
}

impl PrepareLarge {
    /// Takes an intent without a payload and what is known of the payload to come.
    ///
    /// # Errors
    /// [`FieldError`] when there is a payload or a field breaks a rule of the registry.
    pub fn new(
        intent: ScheduleIntent,
        expected_payload_length: u64,
        payload_sha256: Hash,
        reservation_ttl_ms: u64,
        trust_set: TrustSetRef,
        object_store: ProfileRef,
    ) -> Result<Self, FieldError> {
        if intent.payload.is_some() {
            return Err(FieldError::new("payload", Fault::Unexpected).within("intent_without_payload"));
        }
        intent.check().within("intent_without_payload")?;
        let intent_bytes = intent.encode();
        Ok(Self {
            intent,
            intent_bytes,
            expected_payload_length,
            payload_sha256,
            reservation_ttl_ms,
            trust_set,
            object_store,
        })
    }

    /// What is to be delivered; has no payload.
    #[must_use]
    pub fn intent(&self) -> &ScheduleIntent {
        &self.intent
    }

    /// The intent's canonical bytes.
    #[must_use]
    pub fn intent_bytes(&self) -> &Bytes {
        &self.intent_bytes
    }
}

impl Precondition {
    fn to_proto(self) -> v1::MessagePrecondition {
        v1::MessagePrecondition { expected_generation: self.generation, expected_state_version: self.state_version }
    }
}

impl From<v1::MessagePrecondition> for Precondition {
    fn from(proto: v1::MessagePrecondition) -> Self {
        Self { generation: proto.expected_generation, state_version: proto.expected_state_version }
    }
}

/// The fields that every body repeats from the envelope.
#[derive(Clone, Copy)]
pub(super) struct Common {
    pub(super) message_id: MessageId,
    pub(super) command_type: CommandType,
    pub(super) retry_until_ms: i64,
}

impl Common {
    fn check(self, message_id: &[u8], command_type: u32, retry_until_ms: i64) -> Result<(), FieldError> {
        let bytes: [u8; ID_BYTES] = field::array("delay_message_id", message_id)?;
        field::same("delay_message_id", &bytes, "the envelope's", &self.message_id.to_bytes())?;
        field::same("command_type", &command_type, "the envelope's", &self.command_type.as_u32())?;
        field::same("retry_until_ms", &retry_until_ms, "the envelope's", &self.retry_until_ms)
    }

    fn message_id_bytes(self) -> Bytes {
        Bytes::copy_from_slice(&self.message_id.to_bytes())
    }
}

impl CommandBody {
    /// Which command it is.
    #[must_use]
    pub fn command_type(&self) -> CommandType {
        match self {
            Self::Schedule(_) => CommandType::Schedule,
            Self::PrepareLarge(_) => CommandType::PrepareLargeSchedule,
            Self::CommitLarge(_) => CommandType::CommitLargeSchedule,
            Self::Cancel(_) => CommandType::Cancel,
            Self::Reschedule(_) => CommandType::Reschedule,
        }
    }

    /// Checks what the types leave open; bodies of a frame and bodies put together here pass the same rules.
    pub(super) fn check(&self, message_id: MessageId) -> Result<(), FieldError> {
        match self {
            // Intents are checked when they are taken in and cannot change after.
            Self::Schedule(_) | Self::Cancel(_) => Ok(()),
            Self::PrepareLarge(body) => {
                body.trust_set.check().within("trust_set")?;
                body.object_store.check().within("object_store_profile")
            }
            Self::CommitLarge(body) => {
                let claims = &body.proof.claims;
                field::same("reservation_id", &body.reservation_id, "proof.reservation_id", &claims.reservation_id)?;
                field::same("delay_message_id", &message_id, "proof.delay_message_id", &claims.message_id)?;
                body.proof.check().within("proof")
            }
            Self::Reschedule(body) => {
                field::not_negative("new_deliver_at_ms", body.deliver_at_ms)?;
                field::not_negative("new_expire_at_ms", body.expire_at_ms)?;
                Ok(())
            }
        }
    }

    pub(super) fn encode(&self, common: Common) -> Bytes {
        let delay_message_id = common.message_id_bytes();
        let (command_type, retry_until_ms) = (common.command_type.as_u32(), common.retry_until_ms);
        match self {
            Self::Schedule(body) => canonical::encode(&v1::ScheduleBody {
                delay_message_id,
                command_type,
                retry_until_ms,
                intent: body.intent.to_proto(),
            }),
            Self::PrepareLarge(body) => canonical::encode(&v1::PrepareLargeScheduleBody {
                delay_message_id,
                command_type,
                retry_until_ms,
                intent_without_payload: body.intent.to_proto(),
                expected_payload_length: body.expected_payload_length,
                payload_sha256: Bytes::copy_from_slice(&body.payload_sha256),
                reservation_ttl_ms: body.reservation_ttl_ms,
                trust_set: body.trust_set.to_proto(),
                object_store_profile: body.object_store.to_proto(ProfileKind::ObjectStore),
            }),
            Self::CommitLarge(body) => canonical::encode(&v1::CommitLargeScheduleBody {
                delay_message_id,
                command_type,
                retry_until_ms,
                reservation_id: Bytes::copy_from_slice(&body.reservation_id),
                proof: body.proof.to_proto(),
            }),
            Self::Cancel(body) => canonical::encode(&v1::CancelBody {
                delay_message_id,
                command_type,
                retry_until_ms,
                precondition: body.precondition.to_proto(),
            }),
            Self::Reschedule(body) => canonical::encode(&v1::RescheduleBody {
                delay_message_id,
                command_type,
                retry_until_ms,
                precondition: body.precondition.to_proto(),
                new_deliver_at_ms: body.deliver_at_ms,
                new_expire_at_ms: body.expire_at_ms,
            }),
        }
    }

    pub(super) fn decode(common: Common, bytes: &Bytes) -> Result<Self, DecodeError> {
        let body = match common.command_type {
            CommandType::Schedule => {
                let proto: v1::ScheduleBody = decode_canonical(bytes)?;
                common.check(&proto.delay_message_id, proto.command_type, proto.retry_until_ms)?;
                // The intent is the last field of a canonical body, so its bytes are the tail.
                let intent_bytes = tail(bytes, &proto.intent);
                let intent = ScheduleIntent::from_proto(proto.intent).within("intent")?;
                if intent.payload.is_none() {
                    return Err(FieldError::new("payload", Fault::Missing).within("intent").into());
                }
                Self::Schedule(Box::new(Schedule { intent, intent_bytes }))
            }
            CommandType::PrepareLargeSchedule => Self::PrepareLarge(Box::new(decode_prepare_large(common, bytes)?)),
            CommandType::CommitLargeSchedule => {
                let proto: v1::CommitLargeScheduleBody = decode_canonical(bytes)?;
                common.check(&proto.delay_message_id, proto.command_type, proto.retry_until_ms)?;
                let reservation_id = field::array("reservation_id", &proto.reservation_id)?;
                let proof = PayloadCommitProof::from_proto(proto.proof).within("proof")?;
                Self::CommitLarge(Box::new(CommitLarge { reservation_id, proof }))
            }
            CommandType::Cancel => {
                let proto: v1::CancelBody = decode_canonical(bytes)?;
                common.check(&proto.delay_message_id, proto.command_type, proto.retry_until_ms)?;
                Self::Cancel(Cancel { precondition: proto.precondition.into() })
            }
            CommandType::Reschedule => {
                let proto: v1::RescheduleBody = decode_canonical(bytes)?;
                common.check(&proto.delay_message_id, proto.command_type, proto.retry_until_ms)?;
                Self::Reschedule(Reschedule {
                    precondition: proto.precondition.into(),
                    deliver_at_ms: proto.new_deliver_at_ms,
                    expire_at_ms: proto.new_expire_at_ms,
                })
            }
        };
        Ok(body)
    }
}

fn decode_prepare_large(common: Common, bytes: &Bytes) -> Result<PrepareLarge, DecodeError> {
    let proto: v1::PrepareLargeScheduleBody = decode_canonical(bytes)?;
    common.check(&proto.delay_message_id, proto.command_type, proto.retry_until_ms)?;
    let body = PrepareLarge::new(
        ScheduleIntent::from_proto(proto.intent_without_payload).within("intent_without_payload")?,
        proto.expected_payload_length,
        field::array("payload_sha256", &proto.payload_sha256)?,
        proto.reservation_ttl_ms,
        TrustSetRef::from_proto(&proto.trust_set).within("trust_set")?,
        ProfileRef::from_proto(proto.object_store_profile, ProfileKind::ObjectStore).within("object_store_profile")?,
    )?;
    Ok(body)
}

/// The last bytes of `bytes`, which are the encoding of its last field's message.
fn tail(bytes: &Bytes, last: &impl prost::Message) -> Bytes {
    bytes.slice(bytes.len() - last.encoded_len()..)
}
