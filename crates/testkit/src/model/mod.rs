//! A second state machine, written from the specification and not from `shard`: what every record must come to.
//!
//! [`Model::apply`] is asked before the shard is; whatever the two disagree on is a bug of one of them. Plain maps, one pass,
//! nothing indexed, no rows, no batches, no store. Section numbers are those of the protocol registry (`§4.2`, `T13b`) and of
//! its version 2 part (`v2 §5`). Where neither decides, a comment that starts with "Silent:" says what was chosen and why.

pub mod audit;
pub mod compare;

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;

use bytes::Bytes;
use ed25519_dalek::VerifyingKey;
use protocol::code::StableCode as Code;
use protocol::command::{
    AdapterMetadata, CommandBody, CommandIdentity, OrderingMode, Payload, Precondition, ScheduleIntent, prepare,
};
use protocol::hash::Hash;
use protocol::id::{MessageId, ShardId, Uuid7};
use protocol::jitter::{self, RetryDomain};
use protocol::lane::{self, LaneId, LaneOrdering, LaneTuple};
use protocol::mutation_v2::{
    AttemptResult, Author, ControlPayload, DestinationProfile, Disposition, Genesis, Limits, MutationBody, MutationV2,
    Outcome, PartitionPolicy, PublishedEvidence, Roles, ShardControl, SigningKeyEntry, Stamp, TimeFence,
};
use protocol::policy::{RetryPolicy, UncertainPolicy};
use protocol::record::{self, LogRecord, RecordError};
use protocol::reference::ProfileRef;
use protocol::resource::AdapterKind;
use protocol::{nulls, routing};

const HOUR_MS: i64 = 3_600_000;

/// What a record comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The first copy of a command.
    Command(Verdict),
    /// A later copy: the first one's verdict stands.
    Duplicate(Verdict),
    /// The record decided nothing.
    Position(Code),
    /// An owner's record that was in force.
    Owner {
        /// Entries, or rows of a sweep, that it moved.
        accepted: u32,
        /// Entries that it did not.
        failed: u32,
    },
    /// An operator's record.
    Control(Code),
}

/// The logical result of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Whether it was evaluated; refused otherwise.
    pub applied: bool,
    /// The stable code.
    pub code: Code,
    /// Generation and state version of the message after it.
    pub message: Option<(u32, u64)>,
    /// Another message that stands in the way.
    pub other_message: Option<Uuid7>,
}

/// The public state of a generation.
#[allow(missing_docs, reason = "the names are the registry's")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    Scheduled,
    Publishing,
    RetryWait,
    Uncertain,
    Published,
    Canceled,
    Expired,
    DeadLetter,
}

/// How and when a generation ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// In which state.
    pub state: State,
    /// With which code.
    pub code: Code,
    /// When the deciding record was persisted, or the deadline.
    pub at_ms: i64,
    /// What proves a publication.
    pub evidence: Option<PublishedEvidence>,
    /// From this closed time on it is as if the message had never been.
    pub until_ms: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    Waiting,
    Publishing,
    Over,
}

/// Everything known of a message.
#[derive(Clone, Debug)]
pub struct Message {
    /// Generation.
    pub generation: u32,
    /// What a client's compare-and-set sees.
    pub state_version: u64,
    /// What an owner's entry must name.
    pub log_rev: u64,
    /// Business time.
    pub deliver_at_ms: i64,
    /// No admission from here on.
    pub expire_at_ms: i64,
    /// No admission before.
    pub eligible_at_ms: i64,
    /// Attempts that were admitted.
    pub attempts_used: u32,
    /// Attempts that count against the policy.
    pub attempts_charged: u32,
    /// Attempts nobody has settled; true for those whose outcome is unknown.
    pub open: BTreeMap<u32, bool>,
    /// The destination may have it twice, or have it although it was given up.
    pub possible_duplicate: bool,
    /// The caller's own id.
    pub business_key: Bytes,
    /// Its lane.
    pub lane: LaneKey,
    /// Its charge.
    pub bytes: u64,
    /// Set once.
    pub ended: Option<Ended>,
    work: Work,
    seq: u64,
    unknown: u32,
    first_attempt_ms: Option<i64>,
    policy: (Bytes, u64),
}

impl Message {
    fn is_uncertain(&self) -> bool {
        self.open.values().any(|uncertain| *uncertain)
    }

    /// §5.1: a projection of obligations and work.
    pub fn state(&self) -> State {
        match (&self.ended, self.work) {
            (Some(ended), _) => ended.state,
            _ if self.is_uncertain() => State::Uncertain,
            (None, Work::Publishing) => State::Publishing,
            (None, _) if self.attempts_charged > 0 => State::RetryWait,
            (None, _) => State::Scheduled,
        }
    }

    /// Whether an admission may take it up, or a deadline end it.
    pub fn is_waiting(&self) -> bool {
        self.ended.is_none() && self.work == Work::Waiting
    }

    fn state_when_closed(&self) -> State {
        if self.is_uncertain() { State::DeadLetter } else { State::Expired }
    }
}

/// A lane: profile, version, partition, bucket.
pub type LaneKey = (Bytes, u64, u32, u32);

#[derive(Clone, Debug)]
struct Lane {
    id: LaneId,
    paused: bool,
    version: u64,
}

#[derive(Clone, Debug)]
struct Key {
    entry: SigningKeyEntry,
    key: VerifyingKey,
    retiring: bool,
}

/// The model of one shard.
#[derive(Clone, Debug)]
pub struct Model {
    shard: ShardId,
    partition_count: NonZeroU32,
    tenant_scope: Hash,
    limits: Limits,
    keys: BTreeMap<u32, Key>,
    closed_ms: i64,
    owner: Option<(u64, [u8; 16])>,
    stopped: bool,
    seq: u64,
    messages: BTreeMap<Uuid7, Message>,
    /// Deadlines that no sweep has visited.
    deadlines: BTreeMap<(i64, u64), Uuid7>,
    newest_of_key: BTreeMap<Bytes, Uuid7>,
    commands: BTreeMap<Uuid7, (Hash, Verdict)>,
    operations: BTreeMap<Hash, (Hash, Code)>,
    profiles: BTreeMap<(Bytes, u64), (DestinationProfile, bool)>,
    /// Paused, control version.
    profile_gates: BTreeMap<Bytes, (bool, u64)>,
    policies: BTreeMap<(Bytes, u64), (RetryPolicy, bool)>,
    lanes: BTreeMap<LaneKey, Lane>,
}

/// A command that goes no further: only its position is answered, or it has a result.
enum Stop {
    Position(Code),
    Verdict(Verdict),
}

fn rejected(code: Code) -> Stop {
    Stop::Verdict(Verdict { applied: false, code, message: None, other_message: None })
}

fn applied(code: Code, message: Option<&Message>) -> Verdict {
    let message = message.map(|message| (message.generation, message.state_version));
    Verdict { applied: true, code, message, other_message: None }
}

impl Model {
    /// A shard behind its genesis record (v2 §7).
    pub fn new(genesis: &Genesis) -> Model {
        let key = |entry: &SigningKeyEntry| {
            let key = entry.verifying_key().expect("a genesis holds keys that can sign");
            (entry.version, Key { entry: *entry, key, retiring: false })
        };
        Model {
            shard: genesis.shard,
            partition_count: NonZeroU32::new(genesis.partition_count)
                .expect("a shard is one of its route's partitions"),
            tenant_scope: genesis.tenant_scope,
            limits: genesis.limits,
            keys: genesis.keys.iter().map(key).collect(),
            closed_ms: 0,
            owner: None,
            stopped: false,
            seq: 0,
            messages: BTreeMap::new(),
            deadlines: BTreeMap::new(),
            newest_of_key: BTreeMap::new(),
            commands: BTreeMap::new(),
            operations: BTreeMap::new(),
            profiles: BTreeMap::new(),
            profile_gates: BTreeMap::new(),
            policies: BTreeMap::new(),
            lanes: BTreeMap::new(),
        }
    }

    /// Applies the next record, persisted at `bp_ms`, and says what it comes to.
    pub fn apply(&mut self, bp_ms: i64, frame: &Bytes) -> Answer {
        match record::decode(frame) {
            Ok(LogRecord::Command(command)) => self.command(bp_ms, &command.identity(), Some(&command.body)),
            Ok(LogRecord::MutationV2(mutation)) => self.mutation(bp_ms, &mutation),
            Ok(LogRecord::MutationV1(_)) | Err(RecordError::UnactivatedSystem(_)) => {
                Answer::Position(Code::UnactivatedSystemProtocolVersion)
            }
            Err(RecordError::UnactivatedCommand(_)) => Answer::Position(Code::UnactivatedProtocolVersion),
            Err(RecordError::Malformed(malformed)) => match malformed.identity {
                Some(identity) => self.command(bp_ms, &identity, None),
                None => Answer::Position(Code::QuarantinedSourceRecord),
            },
        }
    }

    /// §4.1. A body of `None` is one that nobody can read.
    fn command(&mut self, bp_ms: i64, identity: &CommandIdentity, body: Option<&CommandBody>) -> Answer {
        let CommandIdentity { command_id, message_id, retry_until_ms, hash } = *identity;
        if command_id.shard != self.shard || message_id.shard != self.shard {
            return Answer::Position(Code::IngressRouteMismatch);
        }
        // T13b, for every physical copy and before dedupe.
        if bp_ms > retry_until_ms || retry_until_ms <= self.closed_ms {
            return Answer::Position(Code::CommandRetryWindowExpired);
        }
        if let Some((first_hash, first)) = self.commands.get(&command_id.uuid) {
            return if *first_hash == hash {
                Answer::Duplicate(*first)
            } else {
                Answer::Position(Code::CommandIdConflict)
            };
        }
        // T13a and T12. v2 §8: position-level, nothing is kept.
        let made_ms = command_id.uuid.unix_ms();
        if retry_until_ms != made_ms + self.limits.command_retry_window_ms || !self.is_fresh(bp_ms, made_ms) {
            return Answer::Position(Code::ServerInvalidCommand);
        }
        let message = message_id.uuid;
        let verdict = match body {
            None => Err(rejected(Code::ServerInvalidCommand)),
            Some(CommandBody::Schedule(body)) => self.schedule(bp_ms, message, body.intent()),
            Some(CommandBody::Cancel(body)) => Ok(self.cancel(bp_ms, message, &body.precondition)),
            Some(CommandBody::Reschedule(body)) => {
                self.reschedule(bp_ms, message, &body.precondition, body.deliver_at_ms, body.expire_at_ms)
            }
            // Silent: the activation of a command type is not part of the tuple of §4.1 step 4, so its place is that of the
            // operation's own checks; the id stays free for the day the type is activated.
            Some(CommandBody::PrepareLarge(_) | CommandBody::CommitLarge(_)) => {
                Err(Stop::Position(Code::UnactivatedProtocolVersion))
            }
        };
        match verdict {
            Err(Stop::Position(code)) => Answer::Position(code),
            Ok(verdict) | Err(Stop::Verdict(verdict)) => {
                self.commands.insert(command_id.uuid, (hash, verdict));
                Answer::Command(verdict)
            }
        }
    }

    /// T12.
    fn is_fresh(&self, bp_ms: i64, made_ms: i64) -> bool {
        bp_ms - self.limits.preparation_age_ms_max <= made_ms && made_ms <= bp_ms + self.limits.uuid_future_skew_ms_max
    }

    /// What a record that looks at a message sees. v2 §4: a waiting message whose deadline is closed has ended.
    /// Silent: whether the first look releases its quota or only the sweep; chosen: the look, so that both sides of the ledger
    /// say the same to the record that looks.
    fn look(&mut self, message: Uuid7) -> Option<&Message> {
        let row = self.messages.get(&message)?;
        if row.is_waiting() && row.expire_at_ms <= self.closed_ms {
            self.end_closed(message);
        }
        self.messages.get(&message).filter(|row| row.ended.as_ref().is_none_or(|ended| ended.until_ms > self.closed_ms))
    }

    /// §4.2, in the order of its table.
    fn schedule(&mut self, bp_ms: i64, message: Uuid7, intent: &ScheduleIntent) -> Result<Verdict, Stop> {
        if self.stopped {
            return Err(rejected(Code::RouteNotActive));
        }
        if self.look(message).is_some() {
            return Err(rejected(Code::DelayMessageIdConflict));
        }
        // Silent: where the business key's checks stand; chosen: with the other identity.
        let business_key = intent.business_key.clone().unwrap_or_default();
        if business_key.len() as u64 > u64::from(self.limits.business_key_bytes_max) {
            return Err(rejected(Code::ServerInvalidMetadata));
        }
        let home =
            routing::ingress_partition(self.shard.route, &self.tenant_scope, &business_key, self.partition_count);
        let is_indexed =
            !business_key.is_empty() && intent.ordering == OrderingMode::BestEffort && home == self.shard.partition;
        if is_indexed
            && let Some(holder) = self.newest_of_key.get(&business_key).copied()
            && self.look(holder).is_some_and(|holder| holder.ended.is_none())
        {
            let verdict = Verdict {
                applied: false,
                code: Code::DelayMessageIdConflict,
                message: None,
                other_message: Some(holder),
            };
            return Err(Stop::Verdict(verdict));
        }
        // T14, then T12 for the message id.
        let made_ms = message.unix_ms();
        if self.closed_ms >= made_ms + self.limits.preparation_age_ms_max {
            return Err(rejected(Code::DelayMessageIdExpired));
        }
        if !self.is_fresh(bp_ms, made_ms) {
            return Err(Stop::Position(Code::ServerInvalidCommand));
        }
        let (id, version) = (intent.profile.id.clone(), intent.profile.version);
        let profile = match self.profiles.get(&(id.clone(), version)) {
            Some((body, _)) if body.semantic_hash(&id, version) != intent.profile.semantic_hash => None,
            found => found,
        };
        let profile = match profile {
            None => return Err(rejected(Code::ProfileVersionNotActiveAtSourcePosition)),
            Some((_, true)) => return Err(rejected(Code::ProfileDeprecatedForNewUse)),
            Some((profile, false)) => profile.clone(),
        };
        let policy = (intent.retry_policy.id.clone(), intent.retry_policy.version);
        let is_active = |(policy, closed): &(RetryPolicy, bool)| !closed && policy.reference() == intent.retry_policy;
        if !self.policies.get(&policy).is_some_and(is_active) {
            return Err(rejected(Code::RetryPolicyNotActiveAtSourcePosition));
        }
        let (key, bytes) = record_of(intent, &profile)?;
        if intent.ordering != OrderingMode::BestEffort || !profile.ordering.best_effort {
            return Err(rejected(Code::OrderingCapabilityUnavailable));
        }
        if bytes > u64::from(profile.record_bytes_max - profile.header_reserve_bytes) {
            return Err(rejected(Code::ServerPayloadTooLarge));
        }
        let lane = self.lane_of(message, &intent.profile, &profile, key);
        self.check_window(bp_ms, (intent.deliver_at_ms, intent.expire_at_ms), profile.delay_ms_max)?;
        if !self.lanes.contains_key(&lane) && self.lanes.len() as u64 >= u64::from(self.limits.lanes_max) {
            return Err(rejected(Code::DestinationLaneLimitExceeded));
        }
        let (active_messages, active_bytes) = self.active();
        if active_messages >= self.limits.active_messages_max || active_bytes + bytes > self.limits.active_bytes_max {
            return Err(rejected(Code::HardQuotaExceeded));
        }

        self.open_lane(&lane, &intent.profile, &profile);
        let row = Message {
            generation: 0,
            state_version: 1,
            log_rev: 1,
            deliver_at_ms: intent.deliver_at_ms,
            expire_at_ms: intent.expire_at_ms,
            eligible_at_ms: intent.deliver_at_ms,
            attempts_used: 0,
            attempts_charged: 0,
            open: BTreeMap::new(),
            possible_duplicate: false,
            business_key: business_key.clone(),
            lane,
            bytes,
            ended: None,
            work: Work::Waiting,
            seq: self.next_seq(),
            unknown: 0,
            first_attempt_ms: None,
            policy,
        };
        if is_indexed {
            self.newest_of_key.insert(business_key, message);
        }
        self.deadlines.insert((row.expire_at_ms, row.seq), message);
        let verdict = applied(Code::Scheduled, Some(&row));
        self.messages.insert(message, row);
        Ok(verdict)
    }

    fn next_seq(&mut self) -> u64 {
        self.seq += 1;
        self.seq
    }

    fn lane_of(
        &self,
        message: Uuid7,
        reference: &ProfileRef,
        profile: &DestinationProfile,
        key: Option<&[u8]>,
    ) -> LaneKey {
        let count = NonZeroU32::new(profile.partition_count).expect("profiles have partitions");
        let (id, version) = (&reference.id, reference.version);
        let partition = match (profile.partition_policy, key) {
            (PartitionPolicy::Murmur2Key, Some(key)) => routing::kafka_partition(key, count),
            (_, key) => routing::target_partition(id, version, key.unwrap_or(message.as_bytes()), count),
        };
        let buckets = NonZeroU32::new(profile.lane_bucket_count).expect("profiles have lanes");
        let bucket = lane::unordered_bucket(&MessageId { shard: self.shard, uuid: message }, buckets);
        (id.clone(), version, partition, bucket)
    }

    fn open_lane(&mut self, lane: &LaneKey, reference: &ProfileRef, profile: &DestinationProfile) {
        let tuple = LaneTuple {
            tenant_scope: self.tenant_scope,
            resource: profile.resource.clone(),
            partition: lane.2,
            destination: reference.clone(),
            // Silent: v2 has no capability profiles; every lane has this one in its identity.
            capability: ProfileRef { id: "at-least-once".into(), version: 1, semantic_hash: [0; 32] },
            ordering: LaneOrdering::Bucket(lane.3),
        };
        let new = Lane { id: tuple.lane_id(), paused: false, version: 1 };
        self.lanes.entry(lane.clone()).or_insert(new);
    }

    /// T1, T2, T3, and v2 §4: the deadline is not closed.
    fn check_window(&self, bp_ms: i64, (deliver_ms, expire_ms): (i64, i64), delay_ms_max: i64) -> Result<(), Stop> {
        let limits = &self.limits;
        let fits = i128::from(expire_ms)
            >= i128::from(deliver_ms.max(bp_ms)) + i128::from(limits.delivery_window_ms_min)
            && i128::from(deliver_ms) <= i128::from(bp_ms) + i128::from(limits.delay_ms_max.min(delay_ms_max))
            && i128::from(expire_ms) <= i128::from(bp_ms) + i128::from(limits.lifetime_ms_max)
            && expire_ms > self.closed_ms;
        if fits { Ok(()) } else { Err(rejected(Code::InvalidDeliveryWindow)) }
    }

    /// §4.5: precondition first, then state.
    fn reversible(&mut self, message: Uuid7, expected: &Precondition) -> Result<Message, Verdict> {
        let Some(row) = self.look(message) else { return Err(applied(Code::NotFound, None)) };
        let code = match row.state() {
            _ if expected.generation.is_some_and(|generation| generation < row.generation) => {
                Code::GenerationSuperseded
            }
            _ if expected.generation.is_some_and(|generation| generation > row.generation) => Code::VersionConflict,
            _ if expected.state_version.is_some_and(|version| version != row.state_version) => Code::VersionConflict,
            State::Scheduled | State::RetryWait => return Ok(row.clone()),
            State::Publishing | State::Uncertain => Code::TooLate,
            State::Published => Code::AlreadyPublished,
            State::Canceled => Code::AlreadyCanceled,
            State::Expired => Code::AlreadyExpired,
            State::DeadLetter => Code::AlreadyDeadLettered,
        };
        Err(applied(code, Some(row)))
    }

    fn cancel(&mut self, bp_ms: i64, message: Uuid7, expected: &Precondition) -> Verdict {
        let mut row = match self.reversible(message, expected) {
            Ok(row) => row,
            Err(verdict) => return verdict,
        };
        row.state_version += 1;
        self.end(message, &mut row, State::Canceled, Code::Canceled, bp_ms, None);
        let verdict = applied(Code::Canceled, Some(&row));
        self.put(message, row);
        verdict
    }

    /// §4.6: a new generation with fresh counters and the same payload, binding and policy.
    fn reschedule(
        &mut self,
        bp_ms: i64,
        message: Uuid7,
        expected: &Precondition,
        deliver_at_ms: i64,
        expire_at_ms: i64,
    ) -> Result<Verdict, Stop> {
        let mut row = self.reversible(message, expected).map_err(Stop::Verdict)?;
        let (profile, _) = &self.profiles[&(row.lane.0.clone(), row.lane.1)];
        if let Err(Stop::Verdict(verdict)) =
            self.check_window(bp_ms, (deliver_at_ms, expire_at_ms), profile.delay_ms_max)
        {
            return Err(Stop::Verdict(Verdict { message: Some((row.generation, row.state_version)), ..verdict }));
        }
        self.deadlines.remove(&(row.expire_at_ms, row.seq));
        row.generation += 1;
        row.state_version += 1;
        row.seq = self.next_seq();
        (row.deliver_at_ms, row.expire_at_ms, row.eligible_at_ms) = (deliver_at_ms, expire_at_ms, deliver_at_ms);
        (row.attempts_used, row.attempts_charged, row.unknown, row.first_attempt_ms) = (0, 0, 0, None);
        self.deadlines.insert((row.expire_at_ms, row.seq), message);
        let verdict = applied(Code::Superseded, Some(&row));
        self.put(message, row);
        Ok(verdict)
    }

    /// Every change that the log makes to a message moves its revision.
    fn put(&mut self, message: Uuid7, mut row: Message) {
        row.log_rev += 1;
        self.messages.insert(message, row);
    }

    /// Writes the terminal decision, once (v2 §4), and fixes its logical end (v2 §8).
    fn end(
        &mut self,
        message: Uuid7,
        row: &mut Message,
        state: State,
        code: Code,
        at_ms: i64,
        evidence: Option<PublishedEvidence>,
    ) {
        let limits = &self.limits;
        let retention_ms = match state {
            State::DeadLetter => limits.dead_letter_retention_ms,
            _ => limits.terminal_retention_ms,
        };
        let reusable_ms = message.unix_ms() + limits.preparation_age_ms_max;
        // Silent: how exact the end is; chosen: the next full hour, so that counts by state can be kept by the hour.
        let until_ms = (at_ms + retention_ms).max(reusable_ms);
        let until_ms = (until_ms + HOUR_MS - 1) / HOUR_MS * HOUR_MS;
        self.deadlines.remove(&(row.expire_at_ms, row.seq));
        row.work = Work::Over;
        row.ended = Some(Ended { state, code, at_ms, evidence, until_ms });
    }

    /// v2 §4: the deadline is the terminal time; what was possibly delivered is never called expired.
    fn end_at_deadline(&mut self, message: Uuid7, row: &mut Message) {
        let state = row.state_when_closed();
        // Silent: the codes of both; chosen: what a later Cancel would be told, and what is known of the attempt.
        let code = if state == State::Expired { Code::AlreadyExpired } else { Code::DestinationOutcomeUnknown };
        self.end(message, row, state, code, row.expire_at_ms, None);
    }

    fn end_closed(&mut self, message: Uuid7) {
        let Some(mut row) = self.messages.get(&message).cloned() else { return };
        self.end_at_deadline(message, &mut row);
        self.put(message, row);
    }

    /// §6.1 and v2 §§2 and 4.
    fn mutation(&mut self, bp_ms: i64, mutation: &MutationV2) -> Answer {
        let may_sign = |roles: Roles| match mutation.author {
            Author::Owner { .. } => roles.owner,
            Author::Control { .. } => roles.control,
        };
        let key = self.keys.get(&mutation.signing_key_version).filter(|key| may_sign(key.entry.roles));
        if mutation.shard != self.shard || !key.is_some_and(|key| mutation.verify(&key.key)) {
            return Answer::Position(Code::UnauthorizedSystemMutation);
        }
        let author = match &mutation.author {
            Author::Owner { epoch, worker_run_id } => (*epoch, *worker_run_id),
            Author::Control { .. } => return self.control(bp_ms, mutation),
        };
        if let MutationBody::OwnerEpoch(_) = &mutation.body {
            return self.owner_epoch(author, mutation.signing_key_version);
        }
        let entries = match &mutation.body {
            MutationBody::PublishAdmission(body) => body.entries.len(),
            MutationBody::PublishOutcome(body) | MutationBody::EvidenceResolution(body) => body.entries.len(),
            MutationBody::ClaimResult(body) => body.entries.len(),
            _ => 0,
        };
        if self.owner != Some(author) || entries as u64 > u64::from(self.limits.entries_per_record_max) {
            return Answer::Position(Code::StaleSystemMutation);
        }
        let accepted: Vec<bool> = match &mutation.body {
            MutationBody::PublishAdmission(body) if self.is_too_wide(&body.stamp) => {
                return Answer::Position(Code::StaleSystemMutation);
            }
            MutationBody::PublishAdmission(body) => {
                let admit = |entry: &protocol::mutation_v2::Admission| {
                    self.admit(bp_ms, &body.stamp, entry.message, entry.generation, entry.log_rev)
                };
                body.entries.iter().map(admit).collect()
            }
            MutationBody::PublishOutcome(body) => {
                body.entries.iter().map(|entry| self.outcome(bp_ms, &body.stamp, entry)).collect()
            }
            MutationBody::EvidenceResolution(body) => {
                body.entries.iter().map(|entry| self.resolve(bp_ms, entry)).collect()
            }
            MutationBody::ClaimResult(body) => {
                let refuse = |entry: &protocol::mutation_v2::Refusal| {
                    self.refuse(bp_ms, entry.message, (entry.generation, entry.log_rev), entry.code)
                };
                body.entries.iter().map(refuse).collect()
            }
            MutationBody::TimeFence(body) => return self.fence(bp_ms, body),
            MutationBody::OwnerEpoch(_) | MutationBody::ShardControl(_) => unreachable!("dealt with above"),
        };
        let accepted = accepted.iter().fold((0, 0), |(yes, no), ok| if *ok { (yes + 1, no) } else { (yes, no + 1) });
        Answer::Owner { accepted: accepted.0, failed: accepted.1 }
    }

    fn owner_epoch(&mut self, author: (u64, [u8; 16]), key_version: u32) -> Answer {
        if self.owner == Some(author) {
            return Answer::Owner { accepted: 0, failed: 0 };
        }
        if author.0 <= self.owner.map_or(0, |(epoch, _)| epoch) {
            return Answer::Position(Code::StaleSystemMutation);
        }
        self.owner = Some(author);
        // v2 §7: a retirement takes effect at the next OWNER_EPOCH that another key signs.
        self.keys.retain(|version, key| !key.retiring || *version == key_version);
        Answer::Owner { accepted: 1, failed: 0 }
    }

    /// T11.
    fn is_too_wide(&self, stamp: &Stamp) -> bool {
        stamp.latest_ms - stamp.earliest_ms > self.limits.clock_interval_ms_max
    }

    fn admit(&mut self, bp_ms: i64, stamp: &Stamp, message: Uuid7, generation: u32, log_rev: u64) -> bool {
        let Some(mut row) = self.look(message).cloned() else { return false };
        if (row.generation, row.log_rev) != (generation, log_rev) || !row.is_waiting() {
            return false;
        }
        let (policy, _) = &self.policies[&row.policy];
        let may_start = !self.lanes[&row.lane].paused
            && !self.profile_gates.get(&row.lane.0).is_some_and(|(paused, _)| *paused)
            && stamp.earliest_ms >= row.eligible_at_ms
            && stamp.latest_ms < row.expire_at_ms
            && bp_ms + self.limits.broker_time_divergence_ms_max < row.expire_at_ms
            && row.expire_at_ms > self.closed_ms
            && row.attempts_charged < policy.publish_admissions_max;
        if may_start {
            row.work = Work::Publishing;
            row.attempts_used += 1;
            row.first_attempt_ms = row.first_attempt_ms.or(Some(stamp.latest_ms));
            row.open.insert(row.attempts_used, false);
        }
        // v2 §4: also a failed entry moves the revision, so that a second copy cannot revive it.
        self.put(message, row);
        may_start
    }

    /// The row of an entry's attempt, when the attempt is open and in this condition.
    fn attempt(&mut self, entry: &Outcome, uncertain: bool) -> Option<Message> {
        let row = self.look(entry.message)?;
        let is_open = row.generation == entry.generation && row.open.get(&entry.attempt) == Some(&uncertain);
        is_open.then(|| row.clone())
    }

    fn outcome(&mut self, bp_ms: i64, stamp: &Stamp, entry: &Outcome) -> bool {
        let Some(mut row) = self.attempt(entry, false) else { return false };
        let is_current = row.ended.is_none() && row.attempts_used == entry.attempt;
        if entry.result == AttemptResult::Unknown {
            row.open.insert(entry.attempt, true);
            row.possible_duplicate = true;
        } else {
            row.open.remove(&entry.attempt);
        }
        let (policy, _) = self.policies[&row.policy].clone();
        match &entry.result {
            AttemptResult::Published(evidence) => self.published(bp_ms, entry.message, &mut row, evidence),
            _ if !is_current => {}
            AttemptResult::NotPublished { disposition: Disposition::MessagePermanent, .. } => {
                self.end(entry.message, &mut row, State::DeadLetter, entry.code, bp_ms, None);
            }
            // v2 §5: nothing is charged, and while nothing is charged the retry clock has not started.
            AttemptResult::NotPublished { disposition: Disposition::LaneUnavailable, .. } => {
                if row.attempts_charged == 0 {
                    row.first_attempt_ms = None;
                }
                self.wait_again(entry.message, &mut row);
            }
            AttemptResult::NotPublished { disposition: Disposition::MessageRetriable, .. } => {
                self.retry(bp_ms, stamp, entry, &mut row, &policy);
            }
            AttemptResult::Unknown => {
                row.unknown += 1;
                // Silent: what the uncertain budget counts; chosen: outcomes that were unknown.
                let goes_on = policy.uncertain == UncertainPolicy::BoundedRetryPossibleDuplicate
                    && row.unknown <= policy.uncertain_retries_max;
                if goes_on {
                    self.retry(bp_ms, stamp, entry, &mut row, &policy);
                } else {
                    self.end(entry.message, &mut row, State::DeadLetter, entry.code, bp_ms, None);
                }
            }
        }
        self.put(entry.message, row);
        true
    }

    /// v2 §5 and §8.6. Attempts and duration come first: with either used up, no deadline is asked for.
    fn retry(&mut self, bp_ms: i64, stamp: &Stamp, entry: &Outcome, row: &mut Message, policy: &RetryPolicy) {
        row.attempts_charged += 1;
        let n = row.attempts_charged;
        let id = MessageId { shard: self.shard, uuid: entry.message };
        let cap_ms = jitter::backoff_cap_ms(policy.initial_backoff_ms, policy.backoff_ms_max, n);
        let wait_ms = jitter::delay_ms(RetryDomain::MessagePublish, &id, row.generation, n, cap_ms);
        let next_ms = i128::from(stamp.latest_ms) + i128::from(wait_ms);
        let first_ms = row.first_attempt_ms.expect("an attempt has been admitted");
        let is_used_up = n >= policy.publish_admissions_max
            || next_ms > i128::from(first_ms) + i128::from(policy.retry_duration_ms_max);
        if is_used_up {
            return self.end(entry.message, row, State::DeadLetter, entry.code, bp_ms, None);
        }
        row.eligible_at_ms = row.deliver_at_ms.max(i64::try_from(next_ms).unwrap_or(i64::MAX));
        self.wait_again(entry.message, row);
    }

    /// v2 §4: a record that would make work reversible behind its closed deadline ends it instead.
    fn wait_again(&mut self, message: Uuid7, row: &mut Message) {
        row.work = Work::Waiting;
        if row.expire_at_ms <= self.closed_ms {
            self.end_at_deadline(message, row);
        }
    }

    /// A proven publication ends a live generation, whichever attempt it was; a duplicate is possible while any other stands,
    /// and certain when the message had ended before.
    fn published(&mut self, bp_ms: i64, message: Uuid7, row: &mut Message, evidence: &PublishedEvidence) {
        if row.ended.is_some() {
            row.possible_duplicate = true;
        } else {
            row.possible_duplicate = !row.open.is_empty();
            self.end(message, row, State::Published, Code::Ok, bp_ms, Some(evidence.clone()));
        }
    }

    /// Later proof about an attempt. A proof of absence leaves work where it is: with HOLD refused, a live generation never is
    /// without.
    fn resolve(&mut self, bp_ms: i64, entry: &Outcome) -> bool {
        let Some(mut row) = self.attempt(entry, true) else { return false };
        match &entry.result {
            AttemptResult::Unknown => return false,
            AttemptResult::Published(evidence) => {
                row.open.remove(&entry.attempt);
                self.published(bp_ms, entry.message, &mut row, evidence);
            }
            AttemptResult::NotPublished { .. } => {
                row.open.remove(&entry.attempt);
                // §5.4: behind the terminal decision the risk only rises.
                if row.ended.is_none() {
                    row.possible_duplicate = row.is_uncertain();
                }
            }
        }
        self.put(entry.message, row);
        true
    }

    fn refuse(&mut self, bp_ms: i64, message: Uuid7, expected: (u32, u64), code: Code) -> bool {
        let Some(mut row) = self.look(message).cloned() else { return false };
        // Silent: work that is not reversible; chosen: a refusal is of work before any attempt.
        if (row.generation, row.log_rev) != expected || !row.is_waiting() {
            return false;
        }
        self.end(message, &mut row, State::DeadLetter, code, bp_ms, None);
        self.put(message, row);
        true
    }

    /// T16, T11, and a bounded sweep in deadline order.
    fn fence(&mut self, bp_ms: i64, body: &TimeFence) -> Answer {
        if self.is_too_wide(&body.stamp) {
            return Answer::Position(Code::StaleSystemMutation);
        }
        let is_proven = body.stamp.earliest_ms >= body.close_through_ms.saturating_add(self.limits.fence_margin_ms);
        if !is_proven || body.close_through_ms > bp_ms + self.limits.broker_time_divergence_ms_max {
            return Answer::Position(Code::UnauthorizedSystemMutation);
        }
        self.closed_ms = self.closed_ms.max(body.close_through_ms);
        let visits_max = body.expire_max.min(self.limits.expire_per_fence_max);
        let mut visits = 0;
        while visits < visits_max
            && let Some(entry) = self.deadlines.first_entry().filter(|entry| entry.key().0 <= self.closed_ms)
        {
            let message = entry.remove();
            self.look(message);
            visits += 1;
        }
        Answer::Owner { accepted: visits, failed: 0 }
    }

    fn control(&mut self, bp_ms: i64, mutation: &MutationV2) -> Answer {
        let MutationBody::ShardControl(body) = &mutation.body else { unreachable!("an operator writes nothing else") };
        // T15.
        let latest_ms = bp_ms + self.limits.control_retry_window_ms_max;
        let retry_until_ms = mutation.retry_until_ms;
        if !(bp_ms..=latest_ms).contains(&retry_until_ms) || retry_until_ms <= self.closed_ms {
            return Answer::Position(Code::SystemMutationRetryWindowExpired);
        }
        if let Some((hash, code)) = self.operations.get(&body.operation_id) {
            return if *hash == mutation.hash {
                Answer::Control(*code)
            } else {
                Answer::Position(Code::CommandIdConflict)
            };
        }
        let code = self.operate(body);
        self.operations.insert(body.operation_id, (mutation.hash, code));
        Answer::Control(code)
    }

    fn operate(&mut self, body: &ShardControl) -> Code {
        match &body.payload {
            ControlPayload::Genesis(_) => return Code::UnauthorizedSystemMutation,
            ControlPayload::StopNewSchedules => self.stopped = true,
            ControlPayload::KeyAdd(entry) => match self.keys.get(&entry.version) {
                Some(key) if key.entry != *entry => return Code::VersionConflict,
                Some(_) => {}
                None => {
                    let key = entry.verifying_key().expect("decoding refuses keys that are none");
                    self.keys.insert(entry.version, Key { entry: *entry, key, retiring: false });
                }
            },
            ControlPayload::KeyRetire { version } => {
                let Some(key) = self.keys.get(version) else { return Code::NotFound };
                let others = || self.keys.values().filter(|key| key.entry.version != *version && !key.retiring);
                let Roles { owner, control } = key.entry.roles;
                let is_last = (owner && !others().any(|key| key.entry.roles.owner))
                    || (control && !others().any(|key| key.entry.roles.control));
                if is_last {
                    return Code::ServerInvalidCommand;
                }
                self.keys.entry(*version).and_modify(|key| key.retiring = true);
            }
            ControlPayload::ProfileActivate(payload) => {
                let version = (payload.profile.id.clone(), payload.profile.version);
                let new = (payload.body.as_ref().clone(), false);
                if *self.profiles.entry(version).or_insert_with(|| new.clone()) != new {
                    return Code::VersionConflict;
                }
            }
            ControlPayload::ProfileClose(profile) => {
                match self.profiles.get_mut(&(profile.id.clone(), profile.version)) {
                    None => return Code::NotFound,
                    Some((_, closed)) => *closed = true,
                }
            }
            // v2 §5: a policy that holds is refused until somebody can resolve what it holds.
            ControlPayload::RetryPolicyActivate(policy) if policy.uncertain == UncertainPolicy::HoldForEvidence => {
                return Code::ServerInvalidCommand;
            }
            ControlPayload::RetryPolicyActivate(policy) => {
                let new = (policy.as_ref().clone(), false);
                if *self.policies.entry((policy.id.clone(), policy.version)).or_insert_with(|| new.clone()) != new {
                    return Code::VersionConflict;
                }
            }
            ControlPayload::RetryPolicyClose { policy_id, version } => {
                match self.policies.get_mut(&(policy_id.clone(), *version)) {
                    None => return Code::NotFound,
                    Some((_, closed)) => *closed = true,
                }
            }
            ControlPayload::LanePause(id) | ControlPayload::LaneResume(id) => {
                let pauses = matches!(body.payload, ControlPayload::LanePause(_));
                match self.lanes.values_mut().find(|lane| lane.id == *id) {
                    None => return Code::NotFound,
                    Some(lane) => return set_gate(&mut lane.paused, &mut lane.version, pauses, body.expected_version),
                }
            }
            ControlPayload::DestinationPause { profile_id } | ControlPayload::DestinationResume { profile_id } => {
                if !self.profiles.keys().any(|(id, _)| id == profile_id) {
                    return Code::NotFound;
                }
                let pauses = matches!(body.payload, ControlPayload::DestinationPause { .. });
                let (paused, version) = self.profile_gates.entry(profile_id.clone()).or_default();
                return set_gate(paused, version, pauses, body.expected_version);
            }
        }
        Code::Ok
    }

    fn active(&self) -> (u64, u64) {
        let live = || self.messages.values().filter(|row| row.ended.is_none());
        (live().count() as u64, live().map(|row| row.bytes).sum())
    }
}

/// §6.2, kinds 8 and 9; v2 §3, kinds 17 and 18. Silent: a pause of what is paused; chosen: no change.
fn set_gate(paused: &mut bool, version: &mut u64, pauses: bool, expected_version: Option<u64>) -> Code {
    if expected_version.is_some_and(|expected| expected != *version) {
        return Code::VersionConflict;
    }
    if *paused == pauses {
        return if pauses { Code::Ok } else { Code::AlreadyOpen };
    }
    (*paused, *version) = (pauses, *version + 1);
    Code::Ok
}

/// §4.2 rows 7 and 9: the key and the size of what will be delivered: key, value and the caller's headers.
fn record_of<'a>(intent: &'a ScheduleIntent, profile: &DestinationProfile) -> Result<(Option<&'a [u8]>, u64), Stop> {
    let invalid = || rejected(Code::ServerInvalidMetadata);
    let AdapterMetadata::Kafka(metadata) = &intent.metadata else { return Err(invalid()) };
    if profile.resource.adapter() == AdapterKind::Pulsar {
        return Err(invalid());
    }
    let Some(Payload::Inline(value)) = &intent.payload else { return Err(rejected(Code::ServerInvalidCommand)) };
    let (_, headers) = nulls::split(&metadata.headers, value.len() as u64).map_err(|_| invalid())?;
    if headers.iter().any(|header| prepare::is_reserved_name(&header.name)) {
        return Err(invalid());
    }
    let headers: usize = headers.iter().map(|header| header.name.len() + header.value.len()).sum();
    let key = metadata.key.as_deref();
    Ok((key, (key.unwrap_or_default().len() + value.len() + headers) as u64))
}

/// What an observer may ask.
impl Model {
    /// Every deadline through this time is closed.
    pub fn closed_ms(&self) -> i64 {
        self.closed_ms
    }

    /// Epoch and run of the owner.
    pub fn owner(&self) -> Option<(u64, [u8; 16])> {
        self.owner
    }

    /// The limits.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Every message that is not gone yet, with its state behind the fence.
    pub fn messages(&self) -> BTreeMap<Uuid7, (State, Message)> {
        let mut after = self.clone();
        let waiting: BTreeSet<Uuid7> = self.messages.keys().copied().collect();
        let visible = waiting.into_iter().filter_map(|message| {
            let row = after.look(message)?;
            Some((message, (row.state(), self.messages[&message].clone())))
        });
        visible.collect()
    }

    /// Every message ever seen, as its record left it.
    pub fn all(&self) -> impl Iterator<Item = (&Uuid7, &Message)> {
        self.messages.iter()
    }

    /// A message as its record left it.
    pub fn message(&self, message: Uuid7) -> Option<&Message> {
        self.messages.get(&message)
    }

    /// Kept messages by lane and state: those that no record has looked at since their deadline closed count as waiting.
    pub fn counts(&self) -> BTreeMap<(LaneKey, State), u64> {
        let mut counts = BTreeMap::new();
        for row in self.messages.values() {
            if row.ended.as_ref().is_none_or(|ended| ended.until_ms > self.closed_ms) {
                *counts.entry((row.lane.clone(), row.state())).or_default() += 1;
            }
        }
        counts
    }

    /// Live messages and their bytes: what quotas compare.
    pub fn quota(&self) -> (u64, u64) {
        self.active()
    }

    /// The newest message of a business key, whatever became of it.
    pub fn newest_of(&self, business_key: &[u8]) -> Option<Uuid7> {
        self.newest_of_key.get(business_key).copied()
    }

    /// The lanes, with their identity, whether their gate is closed, and their control version.
    pub fn lanes(&self) -> BTreeMap<LaneKey, (LaneId, bool, u64)> {
        self.lanes.iter().map(|(key, lane)| (key.clone(), (lane.id, lane.paused, lane.version))).collect()
    }

    /// Versions of the keys that may sign.
    pub fn key_versions(&self) -> Vec<u32> {
        self.keys.keys().copied().collect()
    }
}
