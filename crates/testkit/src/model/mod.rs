//! A second state machine, written from the specification and not from `shard`: what every record must come to.
//!
//! [`Model::apply`] is asked before the shard is; whatever the two disagree on is a bug of one of them. Plain maps, one pass,
//! nothing indexed, no rows, no batches, no store. Section numbers are those of the protocol registry (`§4.2`, `T13b`) and of
//! its version 2 part (`v2 §5`). Where neither decides, a comment that starts with "Silent:" says what was chosen and why.

pub mod audit;
mod command;
pub mod compare;
mod control;
mod owner;

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use bytes::Bytes;
use ed25519_dalek::VerifyingKey;
use protocol::code::StableCode as Code;
use protocol::hash::Hash;
use protocol::id::{ShardId, Uuid7};
use protocol::lane::LaneId;
use protocol::mutation_v2::{DestinationProfile, Genesis, Limits, PublishedEvidence, SigningKeyEntry};
use protocol::policy::RetryPolicy;
use protocol::record::{self, LogRecord, RecordError};
use protocol::resource::Resource;

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
    trusts_signatures: bool,
    stopped: bool,
    seq: u64,
    messages: BTreeMap<Uuid7, Message>,
    /// Deadlines that no sweep has visited.
    deadlines: BTreeMap<(i64, u64), Uuid7>,
    newest_of_key: BTreeMap<Bytes, Uuid7>,
    commands: BTreeMap<Uuid7, (Hash, Verdict)>,
    /// Hash and result of operations, and until when they are kept.
    operations: BTreeMap<Hash, (Hash, Code, i64)>,
    profiles: BTreeMap<(Bytes, u64), (DestinationProfile, bool)>,
    /// Where versions deliver that were told to deliver elsewhere than their body says.
    rebound: BTreeMap<(Bytes, u64), Resource>,
    /// Paused, control version.
    profile_gates: BTreeMap<Bytes, (bool, u64)>,
    policies: BTreeMap<(Bytes, u64), (RetryPolicy, bool)>,
    lanes: BTreeMap<LaneKey, Lane>,
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
            trusts_signatures: false,
            stopped: false,
            seq: 0,
            messages: BTreeMap::new(),
            deadlines: BTreeMap::new(),
            newest_of_key: BTreeMap::new(),
            commands: BTreeMap::new(),
            operations: BTreeMap::new(),
            profiles: BTreeMap::new(),
            rebound: BTreeMap::new(),
            profile_gates: BTreeMap::new(),
            policies: BTreeMap::new(),
            lanes: BTreeMap::new(),
        }
    }

    /// The same for a log that only holds records of those who may write them: no signature is verified, which is most of the time
    /// that a record takes.
    pub fn of_trusted_log(genesis: &Genesis) -> Model {
        Model { trusts_signatures: true, ..Model::new(genesis) }
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

    fn active(&self) -> (u64, u64) {
        let live = || self.messages.values().filter(|row| row.ended.is_none());
        (live().count() as u64, live().map(|row| row.bytes).sum())
    }
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
        let look = |(message, row): (&Uuid7, &Message)| Some((*message, (after.look(*message)?.state(), row.clone())));
        self.messages.iter().filter_map(look).collect()
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

    /// Where each version of each profile delivers.
    pub fn resources(&self) -> BTreeMap<(Bytes, u64), Resource> {
        let pinned = self.profiles.iter().map(|(version, (profile, _))| (version.clone(), profile.resource.clone()));
        let rebound = self.rebound.iter().map(|(version, resource)| (version.clone(), resource.clone()));
        pinned.chain(rebound).collect()
    }

    /// Versions of the keys that may sign.
    pub fn key_versions(&self) -> Vec<u32> {
        self.keys.keys().copied().collect()
    }
}
