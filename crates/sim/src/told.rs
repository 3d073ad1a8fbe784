//! A shard as its log tells it: the log applied again from its beginning, by the real shard and by an independent model, side by side.

use std::collections::{BTreeMap, BTreeSet};

use ports::destination::AttemptRef;
use protocol::code::StableCode;
use protocol::command::CommandBody;
use protocol::hash::Hash;
use protocol::id::Uuid7;
use protocol::mutation_v2::{Author, ControlPayload, Genesis, MutationBody};
use protocol::record::{self, LogRecord};
use shard::commit::Shard;
use shard::effect::Effect;
use shard::machine::SourceRecord;
use shard::machine::verdict::{RecordResult, Verdict};
use shard::memory::MemoryStore;
use shard::query::{self, MessageView};
use shard::state::MessageUuid;
use shard::state::digest::state_digest;
use testkit::model::{Model, audit, compare};

use crate::cell::Cell;

/// Records that are applied at once.
const RUN_LENGTH: usize = 512;

/// What the log says of an attempt's admission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admission {
    /// Whose record it was.
    pub epoch: u64,
    /// Where its record stands.
    pub offset: u64,
    /// When its record was in the log, in true time.
    pub at_ms: i64,
}

/// A record of an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnerRecord {
    /// Where it stands.
    pub offset: u64,
    /// The epoch of its author.
    pub epoch: u64,
    /// The author's run.
    pub worker_run_id: [u8; 16],
    /// Whether it made the author the owner.
    pub is_owner_epoch: bool,
    /// Whether anything came of it.
    pub took_effect: bool,
}

/// A time fence that was in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fence {
    /// Every deadline through this was closed.
    pub close_through_ms: i64,
    /// When its record was in the log, in true time.
    pub at_ms: i64,
}

/// A shard as its log tells it.
pub struct Told {
    shard: Shard<MemoryStore>,
    /// When each accepted generation was to be delivered.
    pub deliver_at_ms: BTreeMap<(MessageUuid, u32), i64>,
    /// When each accepted generation was in the log, in true time.
    scheduled_at_ms: BTreeMap<(MessageUuid, u32), i64>,
    /// The admission of every attempt.
    pub admissions: BTreeMap<AttemptRef, Admission>,
    /// What each command came to at its first copy.
    pub verdicts: BTreeMap<Uuid7, Verdict>,
    /// Where each command's copies stand.
    pub copies: BTreeMap<Uuid7, Vec<u64>>,
    /// Generations that were cancelled.
    pub canceled: BTreeSet<(MessageUuid, u32)>,
    /// Every record of an owner, in order.
    pub owner_records: Vec<OwnerRecord>,
    /// Every fence in force, in order.
    pub fences: Vec<Fence>,
    /// Digests of the state behind the records that were asked for.
    pub digests: BTreeMap<u64, Hash>,
    /// The first thing on which the shard and the model disagreed.
    pub disagreement: Option<String>,
}

impl Told {
    /// Applies a shard's log again.
    pub fn new(cell: &Cell, shard: usize) -> Told {
        Told::with_digests(cell, shard, &BTreeSet::new())
    }

    /// Applies a shard's log again, and notes the state behind so many records, for each of `behind`.
    ///
    /// # Panics
    /// When the log cannot be applied at all.
    pub fn with_digests(cell: &Cell, shard: usize, behind: &BTreeSet<u64>) -> Told {
        let archive = cell.archive(shard);
        let mut told = Told {
            shard: Shard::open(MemoryStore::new(), cell.shards[shard].identity).expect("an empty store opens"),
            deliver_at_ms: BTreeMap::new(),
            scheduled_at_ms: BTreeMap::new(),
            admissions: BTreeMap::new(),
            verdicts: BTreeMap::new(),
            copies: BTreeMap::new(),
            canceled: BTreeSet::new(),
            owner_records: Vec::new(),
            fences: Vec::new(),
            digests: BTreeMap::new(),
            disagreement: None,
        };
        if behind.contains(&0) {
            told.digests.insert(0, told.digest());
        }
        let mut model = None;
        let mut rest = &archive[..];
        while !rest.is_empty() {
            let applied = (archive.len() - rest.len()) as u64;
            let next = behind
                .range(applied + 1..)
                .next()
                .map_or(RUN_LENGTH, |next| usize::try_from(next - applied).unwrap_or(RUN_LENGTH));
            let (run, left) = rest.split_at(next.min(RUN_LENGTH).min(rest.len()));
            told.apply(applied, run, &mut model);
            rest = left;
            let applied = (archive.len() - rest.len()) as u64;
            if behind.contains(&applied) {
                told.digests.insert(applied, told.digest());
            }
        }
        if let Some(model) = &model
            && told.disagreement.is_none()
        {
            compare::assert_agree(told.shard.store(), model);
        }
        audit::assert_consistent(told.shard.store());
        told
    }

    fn apply(&mut self, first: u64, run: &[SourceRecord], model: &mut Option<Model>) {
        let committed = self.shard.commit(run).expect("the log can be applied");
        let mut epoch = self
            .owner_records
            .iter()
            .rev()
            .find(|record| record.is_owner_epoch && record.took_effect)
            .map_or(0, |record| record.epoch);
        for effect in committed.effects() {
            match effect {
                Effect::OwnerChanged { epoch: taken, .. } => epoch = *taken,
                Effect::Admitted { message, generation, attempt, admission, .. } => {
                    let attempt = AttemptRef { message: *message, generation: *generation, attempt: *attempt };
                    let offset = offset_of(admission);
                    let index = usize::try_from(offset - first).expect("a record of this run");
                    let at_ms = run[index].position.broker_time_ms();
                    let earlier = self.admissions.insert(attempt, Admission { epoch, offset, at_ms });
                    assert!(earlier.is_none(), "{attempt:?} is admitted twice");
                }
                _ => {}
            }
        }
        for ((offset, record), applied) in (first..).zip(run).zip(committed.results()) {
            self.note(offset, record, &applied.result);
            self.hold_against(offset, record, &applied.result, model);
        }
    }

    fn note(&mut self, offset: u64, source: &SourceRecord, result: &RecordResult) {
        match record::decode(&source.frame) {
            Ok(LogRecord::Command(command)) => {
                self.copies.entry(command.command_id.uuid).or_default().push(offset);
                let RecordResult::Command { verdict, .. } = result else { return };
                self.verdicts.insert(command.command_id.uuid, *verdict);
                let Some(generation) = verdict.generation else { return };
                let generation = (command.message_id.uuid, generation);
                self.scheduled_at_ms.entry(generation).or_insert(source.position.broker_time_ms());
                match (&command.body, verdict.code) {
                    (CommandBody::Schedule(schedule), StableCode::Scheduled) => {
                        self.deliver_at_ms.insert(generation, schedule.intent().deliver_at_ms);
                    }
                    (CommandBody::Reschedule(reschedule), StableCode::Superseded) => {
                        self.deliver_at_ms.insert(generation, reschedule.deliver_at_ms);
                    }
                    (CommandBody::Cancel(_), StableCode::Canceled) => {
                        self.canceled.insert(generation);
                    }
                    _ => {}
                }
            }
            Ok(LogRecord::MutationV2(mutation)) => {
                let Author::Owner { epoch, worker_run_id } = mutation.author else { return };
                let is_owner_epoch = matches!(mutation.body, MutationBody::OwnerEpoch(_));
                let took_effect = match result {
                    RecordResult::Owner { accepted, .. } => is_owner_epoch || *accepted > 0,
                    _ => false,
                };
                self.owner_records.push(OwnerRecord { offset, epoch, worker_run_id, is_owner_epoch, took_effect });
                if let (MutationBody::TimeFence(fence), RecordResult::Owner { .. }) = (&mutation.body, result) {
                    let (close_through_ms, at_ms) = (fence.close_through_ms, source.position.broker_time_ms());
                    self.fences.push(Fence { close_through_ms, at_ms });
                }
            }
            _ => {}
        }
    }

    /// The model is asked the same, and must say the same.
    fn hold_against(&mut self, offset: u64, source: &SourceRecord, result: &RecordResult, model: &mut Option<Model>) {
        let Some(model) = model else {
            *model = genesis_of(source).map(|genesis| Model::of_trusted_log(&genesis));
            return;
        };
        let expected = model.apply(source.position.broker_time_ms(), &source.frame);
        let found = compare::answer(result);
        if expected != found && self.disagreement.is_none() {
            self.disagreement =
                Some(format!("record {offset}: the shard says {found:?}, the specification {expected:?}"));
        }
    }

    /// The digest of the state behind the last record.
    ///
    /// # Panics
    /// Never: a store in memory answers.
    pub fn digest(&self) -> Hash {
        state_digest(self.shard.store()).expect("a store in memory answers")
    }

    /// A message that was accepted.
    ///
    /// # Panics
    /// When nobody knows of it.
    pub fn message(&self, message: MessageUuid) -> MessageView {
        let view = query::message(self.shard.store(), message).expect("a store in memory answers");
        view.unwrap_or_else(|| panic!("accepted message {message} is lost"))
    }

    /// Every message that was accepted.
    pub fn messages(&self) -> Vec<MessageUuid> {
        let mut messages: Vec<MessageUuid> = self.deliver_at_ms.keys().map(|(message, _)| *message).collect();
        messages.dedup();
        messages
    }

    /// When a generation was in the log, in true time.
    pub fn scheduled_at_ms(&self, message: MessageUuid, generation: u32) -> i64 {
        self.scheduled_at_ms.get(&(message, generation)).copied().unwrap_or(0)
    }

    /// What quotas compare: live messages and their bytes.
    ///
    /// # Panics
    /// Never: a store in memory answers.
    pub fn active(&self) -> (u64, u64) {
        let progress = query::progress(self.shard.store()).expect("a store in memory answers");
        (progress.active_messages, progress.active_bytes)
    }
}

fn genesis_of(source: &SourceRecord) -> Option<Genesis> {
    let Ok(LogRecord::MutationV2(mutation)) = record::decode(&source.frame) else { return None };
    let MutationBody::ShardControl(control) = mutation.body else { return None };
    match control.payload {
        ControlPayload::Genesis(genesis) => Some(*genesis),
        _ => None,
    }
}

/// The offset in an order token of this world's logs: the last eight bytes.
fn offset_of(order_token: &[u8]) -> u64 {
    order_token.last_chunk().map(|offset| u64::from_be_bytes(*offset)).expect("the order token of an embedded position")
}
