//! Sound frames around bytes that need not be: everything that follows from the bytes is computed.
//!
//! The protocol's own types write what they would read. Here is what anybody could write who knows the formulas of the protocol
//! registry and nothing of its rules.

use bytes::Bytes;
use ed25519_dalek::Signer;
use prost::Message;
use protocol::command::{self, CommandType};
use protocol::frame::{self, FRAMING_VERSION, RecordKind};
use protocol::hash::{Hash, Preimage};
use protocol::id::{CommandId, MessageId, RouteId, ShardId, Uuid7};
use protocol::mutation::{self, MutationType};
use protocol::mutation_v2::{Author, ControlKind};
use protocol::receipt_frame::{self, ReceiptKind};
use protocol::{mutation_v2, v1, v2};
use testkit::log::{CONTROL_KEY, OWNER_KEY, Owner, signing_key};

/// The shard that forged records are for unless they say otherwise: that of the golden vectors.
pub const SHARD: ShardId = ShardId { route: RouteId([0xa1; 16]), partition: 3 };
/// The time of forged ids, in milliseconds since the epoch.
const MADE_MS: u64 = 1_800_000_000_000;

/// A frame with the magic, the length and the check sum that it should have, if it is long enough to be one.
#[must_use]
pub fn sound_frame(bytes: &[u8], magic: u32) -> Option<Bytes> {
    let length = u32::try_from(bytes.len().checked_sub(frame::OVERHEAD_BYTES)?).ok()?;
    let mut sound = bytes.to_vec();
    sound[..4].copy_from_slice(&magic.to_be_bytes());
    sound[8..12].copy_from_slice(&length.to_be_bytes());
    let end = sound.len() - 4;
    let crc = crc32c::crc32c(&sound[..end]);
    sound[end..].copy_from_slice(&crc.to_be_bytes());
    Some(sound.into())
}

fn uuid(tail: u8) -> Uuid7 {
    Uuid7::from_parts(MADE_MS, [tail; 10]).expect("the time fits")
}

/// The message id and the retry limit that a body repeats from its envelope, as far as it can be read.
fn repeated(command_type: CommandType, body: &Bytes) -> Option<(Bytes, i64)> {
    let body = body.clone();
    Some(match command_type {
        CommandType::Schedule => {
            let body = v1::ScheduleBody::decode(body).ok()?;
            (body.delay_message_id, body.retry_until_ms)
        }
        CommandType::PrepareLargeSchedule => {
            let body = v1::PrepareLargeScheduleBody::decode(body).ok()?;
            (body.delay_message_id, body.retry_until_ms)
        }
        CommandType::CommitLargeSchedule => {
            let body = v1::CommitLargeScheduleBody::decode(body).ok()?;
            (body.delay_message_id, body.retry_until_ms)
        }
        CommandType::Cancel => {
            let body = v1::CancelBody::decode(body).ok()?;
            (body.delay_message_id, body.retry_until_ms)
        }
        CommandType::Reschedule => {
            let body = v1::RescheduleBody::decode(body).ok()?;
            (body.delay_message_id, body.retry_until_ms)
        }
    })
}

/// The frame of a command with this body. Ids and the retry limit of the envelope are those that the body repeats; `command` is
/// the command's own id, a fixed one when `None`.
#[must_use]
pub fn command(command_type: CommandType, body: &Bytes, command: Option<Uuid7>) -> Bytes {
    let (message, retry_until_ms) = repeated(command_type, body).unwrap_or_default();
    let message = MessageId::from_bytes(&message).unwrap_or_else(|_| MessageId::new(SHARD, uuid(1)));
    let command = CommandId::new(message.shard, command.unwrap_or_else(|| uuid(2)));
    let hash = command::command_hash(command_type, &command, &message, retry_until_ms, body);
    let envelope = v1::DelayCommandEnvelope {
        envelope_version: command::ENVELOPE_VERSION,
        command_id: Bytes::copy_from_slice(&command.to_bytes()),
        delay_message_id: Bytes::copy_from_slice(&message.to_bytes()),
        command_type: command_type.as_u32(),
        retry_until_ms,
        canonical_body: body.clone(),
        command_hash_sha256: Bytes::copy_from_slice(&hash),
        body_version: command::BODY_VERSION,
    };
    framed(RecordKind::ClientCommand, v1::shard_log_envelope::Record::ClientCommand(envelope))
}

/// A mutation to put into a frame.
#[derive(Clone, Debug)]
pub struct Mutation {
    /// For which shard.
    pub shard: ShardId,
    /// Which mutation.
    pub mutation_type: MutationType,
    /// Version of the body.
    pub body_version: u32,
    /// The author's bytes; those of the one who would write such a record when `None`.
    pub author: Option<Bytes>,
    /// The end of its retry window, in milliseconds since the epoch. An owner's record has none.
    pub retry_until_ms: i64,
    /// The body's bytes.
    pub body: Bytes,
}

impl Mutation {
    /// The frame, signed by the key that may sign such a record.
    #[must_use]
    pub fn frame(&self) -> Bytes {
        let stamp = self.stamp();
        let by_operator = self.mutation_type == MutationType::ApplyShardControl;
        let author = self.author.clone().unwrap_or_else(|| {
            if by_operator {
                Author::Control { principal: "operator".to_owned(), role: "admin".to_owned() }.encode()
            } else {
                let epoch = stamp.as_ref().map_or(0, |stamp| stamp.epoch);
                Author::Owner { epoch, worker_run_id: Owner::new(epoch).run }.encode()
            }
        });
        let retry_until_ms = if by_operator || self.body_version == 1 { self.retry_until_ms } else { 0 };
        let Mutation { shard, mutation_type, body_version, body, .. } = self;
        let hash = mutation::mutation_hash(*mutation_type, *body_version, *shard, retry_until_ms, body);
        let id = mutation::mutation_id(*mutation_type, &self.logical_identity(stamp.as_ref()), *shard, &hash);
        let key = if by_operator { CONTROL_KEY } else { OWNER_KEY };
        let digest = Preimage::new("nereus-delay-system-mutation-signature-v1\0")
            .u32(frame::MAGIC)
            .u8(FRAMING_VERSION)
            .u8(RecordKind::SystemMutation.as_u8())
            .u32(command::LOG_ENVELOPE_VERSION)
            .u32(command::ENVELOPE_VERSION)
            .u32(*body_version)
            .u16(*mutation_type as u16)
            .lp32(&id)
            .bytes(&shard.route.0)
            .u32(shard.partition)
            .i64(retry_until_ms)
            .lp32(body)
            .lp32(&hash)
            .lp32(&author)
            .u32(key)
            .sha256();
        let envelope = v1::ShardSystemMutationEnvelope {
            envelope_version: command::ENVELOPE_VERSION,
            system_mutation_id: Bytes::copy_from_slice(&id),
            shard_subject: v1::ShardSubject {
                route: Bytes::copy_from_slice(&shard.route.0),
                partition: shard.partition,
            },
            mutation_type: mutation_type.as_u32(),
            retry_until_ms,
            canonical_body: body.clone(),
            mutation_hash_sha256: Bytes::copy_from_slice(&hash),
            body_version: *body_version,
            author_identity: author,
            signing_key_version: key,
            signature: Bytes::copy_from_slice(&signing_key(key).sign(&digest).to_bytes()),
        };
        framed(RecordKind::SystemMutation, v1::shard_log_envelope::Record::SystemMutation(envelope))
    }

    /// The stamp of an owner's record of version 2, as far as it can be read.
    fn stamp(&self) -> Option<v2::Stamp> {
        if self.body_version != mutation_v2::BODY_VERSION {
            return None;
        }
        let body = self.body.clone();
        match self.mutation_type {
            MutationType::OwnerEpoch => v2::OwnerEpoch::decode(body).ok()?.stamp,
            MutationType::PublishAdmission => v2::PublishAdmission::decode(body).ok()?.stamp,
            MutationType::PublishOutcome => v2::PublishOutcome::decode(body).ok()?.stamp,
            MutationType::EvidenceResolution => v2::EvidenceResolution::decode(body).ok()?.stamp,
            MutationType::ClaimResult => v2::ClaimResult::decode(body).ok()?.stamp,
            MutationType::TimeFence => v2::TimeFence::decode(body).ok()?.stamp,
            _ => None,
        }
    }

    /// What a record of version 2 stands for. That of version 1 is different for each type, and zero here.
    fn logical_identity(&self, stamp: Option<&v2::Stamp>) -> Hash {
        if let Some(stamp) = stamp {
            return Preimage::new("nereus-delay-owner-record-v2\0").u64(stamp.epoch).u64(stamp.owner_sequence).sha256();
        }
        if self.mutation_type == MutationType::ApplyShardControl
            && let Ok(control) = v2::ShardControl::decode(self.body.clone())
            && let Some(kind) = ControlKind::from_u32(control.kind)
        {
            return Preimage::new("nereus-delay-control-v2\0").bytes(&control.operation_id).u16(kind as u16).sha256();
        }
        [0; 32]
    }
}

fn framed(kind: RecordKind, record: v1::shard_log_envelope::Record) -> Bytes {
    let envelope = v1::ShardLogEnvelope { log_envelope_version: command::LOG_ENVELOPE_VERSION, record: Some(record) };
    frame::encode(kind, &envelope.encode_to_vec())
}

/// The frame of a receipt whose payload is `fields` and the digest over them.
#[must_use]
pub fn receipt(kind: ReceiptKind, fields: &[u8]) -> Bytes {
    // The digest is the last field of every receipt.
    let (domain, field) = match kind {
        ReceiptKind::CommandQueued => ("nereus-delay-command-queued-receipt-v1\0", 8),
        ReceiptKind::CommandApplied => ("nereus-delay-command-applied-receipt-v1\0", 10),
        ReceiptKind::NativeDelivery => ("", 6),
        ReceiptKind::PayloadReservation => ("", 15),
        ReceiptKind::ControlOperation => ("", 9),
    };
    let mut payload = fields.to_vec();
    payload.extend([(field << 3) | 2, 32]);
    payload.extend(Preimage::new(domain).bytes(fields).sha256());
    receipt_frame::encode(kind, &payload)
}

/// A retry policy with the hash that follows from its other fields, if it is one at all.
#[must_use]
pub fn retry_policy(bytes: &Bytes) -> Option<Bytes> {
    let policy = v1::RetryPolicySemantic::decode(bytes.clone()).ok()?;
    let covered = v1::RetryPolicySemantic { policy_id: None, version: None, semantic_hash: None, ..policy.clone() };
    let hash = Preimage::new("nereus-delay-retry-policy-semantic-v1\0")
        .lp32(policy.policy_id.as_ref()?)
        .u64(policy.version?)
        .lp32(&covered.encode_to_vec())
        .sha256();
    let policy = v1::RetryPolicySemantic { semantic_hash: Some(Bytes::copy_from_slice(&hash)), ..policy };
    Some(policy.encode_to_vec().into())
}

/// A payload proof with the identity that follows from its claims, if it is one at all.
#[must_use]
pub fn payload_proof(bytes: &Bytes) -> Option<Bytes> {
    let proof = v1::PayloadCommitProof::decode(bytes.clone()).ok()?;
    let claims = v1::PayloadCommitProof { proof_key_version: None, proof_id: None, signature: None, ..proof.clone() };
    let id = Preimage::new("nereus-delay-payload-proof-id-v1\0").bytes(&claims.encode_to_vec()).sha256();
    let proof = v1::PayloadCommitProof { proof_id: Some(Bytes::copy_from_slice(&id)), ..proof };
    Some(proof.encode_to_vec().into())
}
