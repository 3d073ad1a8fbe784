//! Commands of clients: the envelope, its hash, and the five bodies (protocol registry §2.4, §2.5 and §2.10).
//!
//! A command is fixed when it is prepared: identities, bytes and hash. Whoever sends it again sends the same bytes; the hash
//! tells two different commands under one id apart.

pub mod body;
pub mod intent;
pub mod metadata;
pub mod prepare;
pub mod proof;

use bytes::Bytes;

use self::body::Common;
pub use self::body::{Cancel, CommandBody, CommitLarge, Precondition, PrepareLarge, Reschedule, Schedule};
pub use self::intent::{CommittedPayload, OrderingMode, Payload, ScheduleIntent};
pub use self::metadata::{AdapterMetadata, KafkaHeader, KafkaMetadata, PulsarKey, PulsarMetadata, PulsarProperty};
pub use self::proof::{PayloadCommitProof, ProofClaims};
use crate::canonical::DecodeError;
use crate::derived;
use crate::field::{self, FieldError};
use crate::frame::{self, FRAMING_VERSION, RecordKind};
use crate::hash::{Hash, Preimage};
use crate::id::{CommandId, IdBytes, MessageId, ShardId};
use crate::v1;

/// The version of the log envelope that this code writes and reads.
pub const LOG_ENVELOPE_VERSION: u32 = 1;
/// The version of the command and mutation envelopes that this code writes and reads.
pub const ENVELOPE_VERSION: u32 = 1;
/// The version of command bodies that this code writes and reads.
pub const BODY_VERSION: u32 = 1;

/// Which command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum CommandType {
    /// [`Schedule`].
    Schedule = 1,
    /// [`PrepareLarge`].
    PrepareLargeSchedule = 2,
    /// [`CommitLarge`].
    CommitLargeSchedule = 3,
    /// [`Cancel`].
    Cancel = 4,
    /// [`Reschedule`].
    Reschedule = 5,
}

impl CommandType {
    /// Every command, ascending by number.
    pub const ALL: [Self; 5] =
        [Self::Schedule, Self::PrepareLargeSchedule, Self::CommitLargeSchedule, Self::Cancel, Self::Reschedule];

    /// The wire number.
    #[must_use]
    pub const fn as_u32(self) -> u32 {
        self as u32
    }

    /// The command with this number.
    #[must_use]
    pub fn from_u32(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|command_type| command_type.as_u32() == number)
    }

    /// The registry's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Schedule => "SCHEDULE",
            Self::PrepareLargeSchedule => "PREPARE_LARGE_SCHEDULE",
            Self::CommitLargeSchedule => "COMMIT_LARGE_SCHEDULE",
            Self::Cancel => "CANCEL",
            Self::Reschedule => "RESCHEDULE",
        }
    }
}

/// A client's command: what it says and the bytes that say it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ClientCommand {
    /// The command's own identity.
    pub command_id: CommandId,
    /// The message it is about, of the same shard.
    pub message_id: MessageId,
    /// The same bytes may be sent again until here, in milliseconds since the epoch.
    pub retry_until_ms: i64,
    /// What it asks for.
    pub body: CommandBody,
    /// The body's canonical bytes.
    pub body_bytes: Bytes,
    /// What tells this command from another one under the same id.
    pub hash: Hash,
}

/// The part of a command that can be trusted when its body cannot: an envelope whose hash holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CommandIdentity {
    /// The command's own identity.
    pub command_id: CommandId,
    /// The message it is about.
    pub message_id: MessageId,
    /// Until when the same bytes may be sent again, in milliseconds since the epoch.
    pub retry_until_ms: i64,
    /// The command hash.
    pub hash: Hash,
}

/// The hash of a command (protocol registry §2.5), with all versions 1.
#[must_use]
pub fn command_hash(
    command_type: CommandType,
    command_id: &impl IdBytes<CommandId>,
    message_id: &impl IdBytes<MessageId>,
    retry_until_ms: i64,
    body: &[u8],
) -> Hash {
    Preimage::new("nereus-delay-command-hash-v1\0")
        .u8(FRAMING_VERSION)
        .u32(LOG_ENVELOPE_VERSION)
        .u32(ENVELOPE_VERSION)
        .u32(BODY_VERSION)
        .u16(command_type as u16)
        .lp32(&command_id.id_bytes())
        .lp32(&message_id.id_bytes())
        .i64(retry_until_ms)
        .lp32(body)
        .sha256()
}

impl ClientCommand {
    /// Fixes a command: computes its bytes and hash.
    ///
    /// # Errors
    /// [`FieldError`] for what no decoder would accept: ids of two shards, a negative time, a commit whose parts name
    /// different things. What preparation refuses beyond that is in [`prepare`].
    pub fn new(
        command_id: CommandId,
        message_id: MessageId,
        retry_until_ms: i64,
        body: CommandBody,
    ) -> Result<Self, FieldError> {
        check_ids(command_id, message_id)?;
        field::not_negative("retry_until_ms", retry_until_ms)?;
        body.check(message_id)?;
        let common = Common { message_id, command_type: body.command_type(), retry_until_ms };
        let body_bytes = body.encode(common);
        let hash = command_hash(common.command_type, &command_id, &message_id, retry_until_ms, &body_bytes);
        Ok(Self { command_id, message_id, retry_until_ms, body, body_bytes, hash })
    }

    /// Which command it is.
    #[must_use]
    pub fn command_type(&self) -> CommandType {
        self.body.command_type()
    }

    /// The shard that its ids name.
    #[must_use]
    pub fn shard(&self) -> ShardId {
        self.message_id.shard
    }

    /// Its identity without the body.
    #[must_use]
    pub fn identity(&self) -> CommandIdentity {
        CommandIdentity {
            command_id: self.command_id,
            message_id: self.message_id,
            retry_until_ms: self.retry_until_ms,
            hash: self.hash,
        }
    }

    /// The reservation that this command makes when it is a [`PrepareLarge`] (protocol registry §2.7).
    #[must_use]
    pub fn reservation_id(&self) -> Hash {
        derived::reservation_id(&self.command_id, &self.message_id, &self.hash)
    }

    /// The log record: the exact value to hand to the broker.
    #[must_use]
    pub fn encode_frame(&self) -> Bytes {
        let envelope = v1::DelayCommandEnvelope {
            envelope_version: ENVELOPE_VERSION,
            command_id: Bytes::copy_from_slice(&self.command_id.to_bytes()),
            delay_message_id: Bytes::copy_from_slice(&self.message_id.to_bytes()),
            command_type: self.command_type().as_u32(),
            retry_until_ms: self.retry_until_ms,
            canonical_body: self.body_bytes.clone(),
            command_hash_sha256: Bytes::copy_from_slice(&self.hash),
            body_version: BODY_VERSION,
        };
        let envelope = v1::ShardLogEnvelope {
            log_envelope_version: LOG_ENVELOPE_VERSION,
            record: Some(v1::shard_log_envelope::Record::ClientCommand(envelope)),
        };
        frame::encode_message(RecordKind::ClientCommand, &envelope)
    }
}

fn check_ids(command_id: CommandId, message_id: MessageId) -> Result<(), FieldError> {
    field::same("command_id", &command_id.shard, "delay_message_id's shard", &message_id.shard)
}

/// Checks an envelope of known versions; the body is not looked into.
pub(crate) fn check_envelope(
    envelope: &v1::DelayCommandEnvelope,
) -> Result<(CommandType, CommandIdentity), FieldError> {
    let id = |name, error| FieldError::new(name, error);
    let command_id = CommandId::from_bytes(&envelope.command_id).map_err(|error| id("command_id", error))?;
    let message_id =
        MessageId::from_bytes(&envelope.delay_message_id).map_err(|error| id("delay_message_id", error))?;
    check_ids(command_id, message_id)?;
    let command_type = CommandType::from_u32(envelope.command_type).ok_or_else(|| {
        FieldError::new("command_type", field::Fault::UnknownValue { found: envelope.command_type.into() })
    })?;
    let retry_until_ms = field::not_negative("retry_until_ms", envelope.retry_until_ms)?;
    let hash: Hash = field::array("command_hash_sha256", &envelope.command_hash_sha256)?;
    let computed = command_hash(command_type, &command_id, &message_id, retry_until_ms, &envelope.canonical_body);
    field::derived("command_hash_sha256", &hash, &computed)?;
    Ok((command_type, CommandIdentity { command_id, message_id, retry_until_ms, hash }))
}

/// Reads the body of an envelope that was checked.
pub(crate) fn decode_body(
    command_type: CommandType,
    identity: &CommandIdentity,
    body_bytes: Bytes,
) -> Result<ClientCommand, DecodeError> {
    let CommandIdentity { command_id, message_id, retry_until_ms, hash } = *identity;
    let body = CommandBody::decode(Common { message_id, command_type, retry_until_ms }, &body_bytes)?;
    body.check(message_id)?;
    Ok(ClientCommand { command_id, message_id, retry_until_ms, body, body_bytes, hash })
}
