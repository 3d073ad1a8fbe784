//! Shard logs for tests and benchmarks, written without a broker.
//!
//! A [`LogWriter`] stands for one partition: it gives every record the next offset and the log's time, and makes ids from a
//! counter and that time, so the same calls always give the same bytes. It writes what it is told, also what apply must
//! refuse; only what no encoder can say goes through [`LogWriter::append`] as raw bytes. [`workload`] writes whole logs at
//! random, and [`replay`] applies them in every way they may be applied.

pub mod replay;
pub mod workload;

use std::num::NonZeroU32;

use bytes::Bytes;
use ed25519_dalek::SigningKey;
use protocol::code::StableCode;
use protocol::command::{
    AdapterMetadata, Cancel, ClientCommand, CommandBody, CommandType, KafkaMetadata, OrderingMode, Payload,
    Precondition, Reschedule, Schedule, ScheduleIntent,
};
use protocol::frame::{self, RecordKind};
use protocol::hash::{Hash, sha256};
use protocol::id::{CommandId, MessageId, RouteId, ShardId, Uuid7};
use protocol::mutation::MutationType;
use protocol::mutation_v2::{
    Absence, AbsenceKind, Admission, AllowedOrdering, AttemptResult, Author, ClaimResult, ControlPayload,
    DestinationProfile, DestinationRebind, Disposition, Genesis, Limits, MutationBody, MutationV2, Outcome,
    OutcomeCapability, Outcomes, OwnerEpoch, PartitionPolicy, ProfileActivate, ProfileVersion, PublishAdmission,
    PublishedEvidence, Refusal, Roles, ShardControl, SigningKeyEntry, Stamp, TimeFence, TimestampPolicy, TopicAck,
};
use protocol::policy::{DlqExport, RetryPolicy, UncertainPolicy};
use protocol::position::{EmbeddedPosition, SourcePosition};
use protocol::reference::ProfileRef;
use protocol::resource::Resource;
use protocol::v1;
use protocol::{command, routing};
pub use shard::limits::default_limits;
use shard::machine::SourceRecord;

/// When logs begin, in milliseconds since the epoch: a round number that leaves room on both sides.
pub const START_MS: i64 = 1_800_000_000_000;

/// The key that signs owner records unless told otherwise.
pub const OWNER_KEY: u32 = 1;
/// The key that signs operators' records unless told otherwise.
pub const CONTROL_KEY: u32 = 2;

/// The signing key of a version; tests and writers make the same one.
pub fn signing_key(version: u32) -> SigningKey {
    SigningKey::from_bytes(&sha256(&version.to_be_bytes()))
}

/// The entry of a version's key in the key set.
pub fn key_entry(version: u32, roles: Roles) -> SigningKeyEntry {
    SigningKeyEntry { version, public_key: signing_key(version).verifying_key().to_bytes(), roles }
}

/// One partition of a route's log, written record by record.
#[derive(Clone, Debug)]
pub struct LogWriter {
    shard: ShardId,
    partition_count: NonZeroU32,
    log: [u8; 16],
    now_ms: i64,
    next_offset: u64,
    ids: u64,
}

impl Default for LogWriter {
    fn default() -> Self {
        LogWriter::new(0, NonZeroU32::MIN)
    }
}

impl LogWriter {
    /// An empty log of a partition of the test route, at [`START_MS`].
    pub fn new(partition: u32, partition_count: NonZeroU32) -> LogWriter {
        let shard = ShardId { route: RouteId([0xa7; 16]), partition };
        LogWriter { shard, partition_count, log: [0x10; 16], now_ms: START_MS, next_offset: 0, ids: 0 }
    }

    /// Which shard's log it is.
    pub fn shard(&self) -> ShardId {
        self.shard
    }

    /// Partitions of the route.
    pub fn partition_count(&self) -> NonZeroU32 {
        self.partition_count
    }

    /// The routing scope of the route's tenant.
    pub fn tenant_scope(&self) -> Hash {
        routing::tenant_scope("default")
    }

    /// The log's time: the broker time of the next record.
    pub fn now_ms(&self) -> i64 {
        self.now_ms
    }

    /// Sets the log's time, also backwards, as a broker may.
    pub fn set_now(&mut self, now_ms: i64) {
        self.now_ms = now_ms.max(0);
    }

    /// A new UUID made at `unix_ms`, or at the nearest time that a UUID can hold.
    pub fn uuid(&mut self, unix_ms: i64) -> Uuid7 {
        self.ids += 1;
        let unix_ms = unix_ms.clamp(0, i64::try_from(Uuid7::UNIX_MS_MAX).unwrap_or(i64::MAX)).unsigned_abs();
        let digest = sha256(&[&self.log[..], &self.shard.partition.to_be_bytes(), &self.ids.to_be_bytes()].concat());
        let random = digest.first_chunk().copied().unwrap_or_default();
        Uuid7::from_parts(unix_ms, random).expect("the time is clamped to what a uuid holds")
    }

    /// A new message id made now.
    pub fn message_id(&mut self) -> MessageId {
        let uuid = self.uuid(self.now_ms);
        MessageId { shard: self.shard, uuid }
    }

    /// The id of a message of this shard.
    pub fn message_of(&self, uuid: Uuid7) -> MessageId {
        MessageId { shard: self.shard, uuid }
    }

    /// Appends any bytes.
    pub fn append(&mut self, frame: Bytes) -> SourceRecord {
        let position = SourcePosition::Embedded(EmbeddedPosition {
            route: self.shard.route,
            log: self.log,
            partition: self.shard.partition,
            offset: self.next_offset,
            append_time_ms: self.now_ms,
        });
        self.next_offset += 1;
        SourceRecord { position, frame }
    }

    /// Appends a genesis with these limits, an owner key and a control key.
    pub fn genesis(&mut self, limits: Limits) -> SourceRecord {
        let frame = self.genesis_mutation(limits).encode_frame();
        self.append(frame)
    }

    /// The genesis that [`LogWriter::genesis`] appends; its hash is part of the shard's identity.
    pub fn genesis_mutation(&self, limits: Limits) -> MutationV2 {
        let genesis = Genesis {
            shard: self.shard,
            partition_count: self.partition_count.get(),
            tenant_scope: self.tenant_scope(),
            limits,
            keys: vec![
                key_entry(OWNER_KEY, Roles { owner: true, control: false }),
                key_entry(CONTROL_KEY, Roles { owner: false, control: true }),
            ],
        };
        let operation = Operation { retry_until_ms: 0, ..Operation::new([0xe0; 32]) };
        operation.sign(self.shard, ControlPayload::Genesis(Box::new(genesis)))
    }

    /// Appends a command.
    pub fn command(&mut self, command: &ClientCommand) -> SourceRecord {
        self.append(command.encode_frame())
    }

    /// A command whose id is made now and whose retry window has the length that `limits` say.
    pub fn prepare(&mut self, limits: &Limits, message: MessageId, body: CommandBody) -> ClientCommand {
        let uuid = self.uuid(self.now_ms);
        self.prepare_as(uuid, limits, message, body)
    }

    /// A command under this id.
    pub fn prepare_as(&self, uuid: Uuid7, limits: &Limits, message: MessageId, body: CommandBody) -> ClientCommand {
        let command_id = CommandId { shard: message.shard, uuid };
        let retry_until_ms = uuid.unix_ms().saturating_add(limits.command_retry_window_ms);
        ClientCommand::new(command_id, message, retry_until_ms, body).expect("bodies built here are legal")
    }

    /// The frame of a command whose envelope holds and whose body is not one.
    pub fn unreadable_command(&mut self, limits: &Limits, message: MessageId) -> Bytes {
        let command = self.prepare(limits, message, cancel(Precondition::default()));
        let (command_type, body) = (CommandType::Cancel, Bytes::from_static(b"\xff\xff\xff"));
        let hash = command::command_hash(command_type, &command.command_id, &message, command.retry_until_ms, &body);
        let envelope = v1::DelayCommandEnvelope {
            envelope_version: command::ENVELOPE_VERSION,
            command_id: Bytes::copy_from_slice(&command.command_id.to_bytes()),
            delay_message_id: Bytes::copy_from_slice(&message.to_bytes()),
            command_type: command_type.as_u32(),
            retry_until_ms: command.retry_until_ms,
            canonical_body: body,
            command_hash_sha256: Bytes::copy_from_slice(&hash),
            body_version: command::BODY_VERSION,
        };
        envelope_frame(RecordKind::ClientCommand, v1::shard_log_envelope::Record::ClientCommand(envelope))
    }

    /// The frame of a command of a version that nothing reads yet.
    pub fn unactivated_command(&self) -> Bytes {
        let envelope = v1::DelayCommandEnvelope {
            envelope_version: command::ENVELOPE_VERSION + 1,
            command_id: Bytes::new(),
            delay_message_id: Bytes::new(),
            command_type: 1,
            retry_until_ms: 0,
            canonical_body: Bytes::new(),
            command_hash_sha256: Bytes::new(),
            body_version: command::BODY_VERSION,
        };
        envelope_frame(RecordKind::ClientCommand, v1::shard_log_envelope::Record::ClientCommand(envelope))
    }

    /// The frame of a mutation of a legal pair that nothing applies yet.
    pub fn unbuilt_mutation(&self, mutation_type: MutationType) -> Bytes {
        let envelope = v1::ShardSystemMutationEnvelope {
            envelope_version: command::ENVELOPE_VERSION,
            system_mutation_id: Bytes::from_static(&[1; 32]),
            shard_subject: v1::ShardSubject {
                route: Bytes::copy_from_slice(&self.shard.route.0),
                partition: self.shard.partition,
            },
            mutation_type: mutation_type.as_u32(),
            retry_until_ms: 0,
            canonical_body: Bytes::new(),
            mutation_hash_sha256: Bytes::from_static(&[2; 32]),
            body_version: protocol::mutation_v2::BODY_VERSION,
            author_identity: Bytes::new(),
            signing_key_version: OWNER_KEY,
            signature: Bytes::from_static(&[3; 64]),
        };
        envelope_frame(RecordKind::SystemMutation, v1::shard_log_envelope::Record::SystemMutation(envelope))
    }

    /// Appends a record of an owner.
    pub fn owner_record(&mut self, owner: &Owner, body: MutationBody) -> SourceRecord {
        let frame = owner.sign(self.shard, body).encode_frame();
        self.append(frame)
    }

    /// Appends an owner's first record.
    pub fn owner_epoch(&mut self, owner: &mut Owner) -> SourceRecord {
        let stamp = owner.stamp(self.now_ms, self.now_ms);
        let previous_epoch = owner.epoch.saturating_sub(1);
        self.owner_record(
            owner,
            MutationBody::OwnerEpoch(OwnerEpoch { stamp, store_incarnation: owner.run, previous_epoch }),
        )
    }

    /// Appends an admission of these entries, which it puts in order, decided at a time in `[earliest_ms, latest_ms]`.
    pub fn admission(&mut self, owner: &mut Owner, at: (i64, i64), mut entries: Vec<Admission>) -> SourceRecord {
        entries.sort_by_key(|entry| (entry.message, entry.generation));
        let stamp = owner.stamp(at.0, at.1);
        self.owner_record(owner, MutationBody::PublishAdmission(PublishAdmission { stamp, entries }))
    }

    /// Appends outcomes, which it puts in order.
    pub fn outcomes(&mut self, owner: &mut Owner, at: (i64, i64), mut entries: Vec<Outcome>) -> SourceRecord {
        entries.sort_by(Outcome::compare);
        let stamp = owner.stamp(at.0, at.1);
        self.owner_record(owner, MutationBody::PublishOutcome(Outcomes { stamp, entries }))
    }

    /// Appends later evidence, which it puts in order.
    pub fn resolutions(&mut self, owner: &mut Owner, at: (i64, i64), mut entries: Vec<Outcome>) -> SourceRecord {
        entries.sort_by(Outcome::compare);
        let stamp = owner.stamp(at.0, at.1);
        self.owner_record(owner, MutationBody::EvidenceResolution(Outcomes { stamp, entries }))
    }

    /// Appends refusals, which it puts in order.
    pub fn refusals(&mut self, owner: &mut Owner, at: (i64, i64), mut entries: Vec<Refusal>) -> SourceRecord {
        entries.sort_by_key(|entry| (entry.message, entry.generation));
        let stamp = owner.stamp(at.0, at.1);
        self.owner_record(owner, MutationBody::ClaimResult(ClaimResult { stamp, entries }))
    }

    /// Appends a fence.
    pub fn fence(&mut self, owner: &mut Owner, at: (i64, i64), close_through_ms: i64, expire_max: u32) -> SourceRecord {
        let stamp = owner.stamp(at.0, at.1);
        self.owner_record(owner, MutationBody::TimeFence(TimeFence { stamp, close_through_ms, expire_max }))
    }

    /// Appends a new operation of an operator.
    pub fn control(&mut self, payload: ControlPayload) -> SourceRecord {
        let operation = self.operation();
        self.control_as(&operation, payload)
    }

    /// A new operation whose retry window ends a minute from now.
    pub fn operation(&mut self) -> Operation {
        self.ids += 1;
        let operation_id = sha256(&[&b"operation"[..], &self.ids.to_be_bytes()].concat());
        Operation { retry_until_ms: self.now_ms.saturating_add(60_000), ..Operation::new(operation_id) }
    }

    /// Appends an operation of an operator.
    pub fn control_as(&mut self, operation: &Operation, payload: ControlPayload) -> SourceRecord {
        let frame = operation.sign(self.shard, payload).encode_frame();
        self.append(frame)
    }
}

fn envelope_frame(kind: RecordKind, record: v1::shard_log_envelope::Record) -> Bytes {
    use prost::Message;
    let log_envelope_version = command::LOG_ENVELOPE_VERSION;
    frame::encode(kind, &v1::ShardLogEnvelope { log_envelope_version, record: Some(record) }.encode_to_vec())
}

/// One run of one owner epoch: what signs owner records and numbers them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The epoch.
    pub epoch: u64,
    /// The run.
    pub run: [u8; 16],
    /// The key that signs.
    pub key_version: u32,
    sequence: u64,
}

impl Owner {
    /// A first run of an epoch.
    pub fn new(epoch: u64) -> Owner {
        let mut run = [0x0e; 16];
        run[8..].copy_from_slice(&epoch.to_be_bytes());
        Owner { epoch, run, key_version: OWNER_KEY, sequence: 0 }
    }

    /// The next stamp, of a decision at a time in `[earliest_ms, latest_ms]`.
    pub fn stamp(&mut self, earliest_ms: i64, latest_ms: i64) -> Stamp {
        self.sequence += 1;
        let latest_ms = latest_ms.max(earliest_ms).max(0);
        Stamp { epoch: self.epoch, owner_sequence: self.sequence, earliest_ms: earliest_ms.max(0), latest_ms }
    }

    /// Signs a record of this owner.
    pub fn sign(&self, shard: ShardId, body: MutationBody) -> MutationV2 {
        let author = Author::Owner { epoch: self.epoch, worker_run_id: self.run };
        MutationV2::sign(shard, author, 0, body, self.key_version, &signing_key(self.key_version))
            .expect("bodies built here are legal")
    }
}

/// One operation of an operator, whatever it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// Its identity.
    pub operation_id: Hash,
    /// The version that the operator expects.
    pub expected_version: Option<u64>,
    /// Until when the record may be appended again.
    pub retry_until_ms: i64,
    /// The key that signs.
    pub key_version: u32,
}

impl Operation {
    /// An operation that expects nothing and may never be appended again.
    pub fn new(operation_id: Hash) -> Operation {
        Operation { operation_id, expected_version: None, retry_until_ms: 0, key_version: CONTROL_KEY }
    }

    /// Signs a record of this operation.
    pub fn sign(&self, shard: ShardId, payload: ControlPayload) -> MutationV2 {
        let Operation { operation_id, expected_version, retry_until_ms, key_version } = *self;
        let author = Author::Control { principal: "operator".to_owned(), role: "admin".to_owned() };
        let body = MutationBody::ShardControl(ShardControl { operation_id, expected_version, payload });
        MutationV2::sign(shard, author, retry_until_ms, body, key_version, &signing_key(key_version))
            .expect("operations built here are legal")
    }
}

/// A profile version with its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destination {
    /// Id and version.
    pub profile: ProfileVersion,
    /// What it says.
    pub body: DestinationProfile,
}

impl Destination {
    /// Version 1 of an embedded destination with one partition and one lane, whose messages follow `policy`.
    pub fn new(id: &str, policy: &RetryPolicy) -> Destination {
        let digest = sha256(id.as_bytes());
        let body = DestinationProfile {
            resource: Resource::Embedded { topic: digest.first_chunk().copied().unwrap_or_default() },
            partition_count: 1,
            partition_policy: PartitionPolicy::Murmur2Key,
            outcome_capability: OutcomeCapability::AtLeastOnce,
            ordering: AllowedOrdering { best_effort: true, delivery_time_fifo: false },
            record_bytes_max: 1_000_000,
            header_reserve_bytes: 1_000,
            lane_bucket_count: 1,
            expires_after_ms: 30 * 86_400_000,
            delay_ms_max: i64::MAX,
            retry_policy: policy.reference(),
            display_name: id.try_into().expect("names of tests are text"),
            timestamp_policy: TimestampPolicy::EventTime,
        };
        Destination { profile: ProfileVersion { id: Bytes::copy_from_slice(id.as_bytes()), version: 1 }, body }
    }

    /// The reference that a Schedule binds.
    pub fn reference(&self) -> ProfileRef {
        self.body.reference(&self.profile.id, self.profile.version)
    }

    /// Opens it for new messages.
    pub fn activate(&self) -> ControlPayload {
        let (profile, body) = (self.profile.clone(), Box::new(self.body.clone()));
        ControlPayload::ProfileActivate(ProfileActivate { profile, body })
    }

    /// Closes it for new messages.
    pub fn close(&self) -> ControlPayload {
        ControlPayload::ProfileClose(self.profile.clone())
    }

    /// Has it deliver to another topic, in all its versions.
    pub fn rebind(&self, resource: Resource) -> ControlPayload {
        ControlPayload::DestinationRebind(Box::new(DestinationRebind { profile_id: self.profile.id.clone(), resource }))
    }

    /// An intent to deliver `payload` there, without key, headers or an id of the caller's.
    pub fn intent(
        &self,
        policy: &RetryPolicy,
        deliver_at_ms: i64,
        expire_at_ms: i64,
        payload: impl Into<Bytes>,
    ) -> ScheduleIntent {
        ScheduleIntent {
            profile: self.reference(),
            retry_policy: policy.reference(),
            deliver_at_ms,
            expire_at_ms,
            ordering: OrderingMode::BestEffort,
            ordering_key: Bytes::new(),
            payload: Some(Payload::Inline(payload.into())),
            metadata: AdapterMetadata::Kafka(KafkaMetadata::default()),
            business_key: None,
            event_time_ms: None,
        }
    }
}

/// The retry policy that messages get by default.
pub fn default_policy() -> RetryPolicy {
    RetryPolicy {
        id: Bytes::from_static(b"default"),
        version: 1,
        initial_backoff_ms: 1_000,
        backoff_ms_max: 300_000,
        publish_admissions_max: 500,
        retry_duration_ms_max: 86_400_000,
        uncertain: UncertainPolicy::BoundedRetryPossibleDuplicate,
        uncertain_retries_max: 5,
        dlq: DlqExport::NotConfigured,
        terminal_policy_digest: [0; 32],
    }
}

/// The body of a Schedule.
pub fn schedule(intent: ScheduleIntent) -> CommandBody {
    CommandBody::Schedule(Box::new(Schedule::new(intent).expect("intents built here are legal")))
}

/// The body of a Cancel.
pub fn cancel(precondition: Precondition) -> CommandBody {
    CommandBody::Cancel(Cancel { precondition })
}

/// The body of a Reschedule.
pub fn reschedule(precondition: Precondition, deliver_at_ms: i64, expire_at_ms: i64) -> CommandBody {
    CommandBody::Reschedule(Reschedule { precondition, deliver_at_ms, expire_at_ms })
}

/// An attempt in an owner's entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AttemptId {
    /// The message.
    pub message: Uuid7,
    /// Its generation.
    pub generation: u32,
    /// The attempt.
    pub attempt: u32,
}

impl AttemptId {
    fn outcome(self, result: AttemptResult, code: StableCode) -> Outcome {
        let AttemptId { message, generation, attempt } = self;
        Outcome { message, generation, attempt, result, code }
    }

    /// The destination took it at `time_ms`.
    pub fn published(self, time_ms: i64) -> Outcome {
        let ack = TopicAck { topic: [0x70; 16], partition: 0, offset: u64::from(self.attempt), time_ms };
        self.outcome(AttemptResult::Published(PublishedEvidence::Embedded(ack)), StableCode::Ok)
    }

    /// It certainly was not published.
    pub fn not_published(self, disposition: Disposition) -> Outcome {
        let (kind, code) = match disposition {
            Disposition::MessageRetriable => (AbsenceKind::RefusedByBroker, StableCode::DestinationDefinitiveRetriable),
            Disposition::MessagePermanent => (AbsenceKind::RefusedByBroker, StableCode::DestinationDefinitivePermanent),
            Disposition::LaneUnavailable => (AbsenceKind::NotSubmitted, StableCode::CapabilityUnavailable),
        };
        self.outcome(AttemptResult::NotPublished { disposition, absence: Absence { kind, digest: [7; 32] } }, code)
    }

    /// Nobody can tell.
    pub fn unknown(self) -> Outcome {
        self.outcome(AttemptResult::Unknown, StableCode::DestinationOutcomeUnknown)
    }
}
