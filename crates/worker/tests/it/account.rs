//! The account at the end of a run: nothing lost, nothing early, nothing twice without the record saying so.
//!
//! It believes no worker. The log is replayed into a shard of its own, which says what every command came to; the destinations
//! say what they were given and when. Both must tell the same story, and so must the stores that the workers left.

use std::collections::BTreeMap;

use bytes::Bytes;
use ports::destination::AttemptRef;
use protocol::code::StableCode;
use protocol::command::CommandBody;
use protocol::mutation_v2::{Author, MutationBody, PublishedEvidence};
use protocol::record::{self, LogRecord};
use shard::commit::Shard;
use shard::effect::Effect;
use shard::machine::verdict::RecordResult;
use shard::memory::MemoryStore;
use shard::query::{self, MessageView};
use shard::state::MessageUuid;
use shard::state::digest::state_digest;
use shard::state::generation::MessageState;
use testkit::model::audit;
use testkit::world::broker::{Delivered, Place};

use crate::cell::Cell;

/// What became of the accepted messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Account {
    pub(crate) accepted: usize,
    pub(crate) published: usize,
    pub(crate) canceled: usize,
    pub(crate) expired: usize,
    pub(crate) dead_lettered: usize,
    pub(crate) pending: usize,
    /// Messages that say that they may have been delivered twice, or although they were given up.
    pub(crate) possible_duplicates: usize,
    /// Messages that really were delivered more than once.
    pub(crate) duplicates: usize,
}

/// A shard as its log tells it.
pub(crate) struct Told {
    shard: Shard<MemoryStore>,
    /// When each accepted generation was to be delivered.
    deliver_at_ms: BTreeMap<(MessageUuid, u32), i64>,
    admissions: BTreeMap<AttemptRef, Admission>,
}

/// What the log says of an attempt's admission.
#[derive(Clone, Copy, Debug)]
struct Admission {
    epoch: u64,
    /// Where its record stands.
    offset: usize,
    /// When its record was in the log.
    at_ms: i64,
}

impl Told {
    pub(crate) fn new(cell: &Cell, shard: usize) -> Told {
        let identity = cell.shards[shard].identity;
        let mut told = Shard::open(MemoryStore::new(), identity).expect("an empty store opens");
        let mut deliver_at_ms = BTreeMap::new();
        let mut admissions = BTreeMap::new();
        let archive = cell.archive(shard);
        let (mut epoch, mut owner) = (0, Owner::default());
        for run in archive.chunks(4_096) {
            let committed = told.commit(run).expect("the log can be applied");
            for effect in committed.effects() {
                match effect {
                    Effect::OwnerChanged { epoch: taken, .. } => epoch = *taken,
                    Effect::Admitted { message, generation, attempt, admission, .. } => {
                        let attempt = AttemptRef { message: *message, generation: *generation, attempt: *attempt };
                        let offset = offset_of(admission);
                        let at_ms = archive[offset].position.broker_time_ms();
                        let earlier = admissions.insert(attempt, Admission { epoch, offset, at_ms });
                        assert!(earlier.is_none(), "{attempt:?} is admitted twice");
                    }
                    _ => {}
                }
            }
            for (record, applied) in run.iter().zip(committed.results()) {
                owner.check(&record.frame, &applied.result);
                let RecordResult::Command { verdict, .. } = &applied.result else { continue };
                if !matches!(verdict.code, StableCode::Scheduled | StableCode::Superseded) {
                    continue;
                }
                let Ok(LogRecord::Command(command)) = record::decode(&record.frame) else { continue };
                let generation = verdict.generation.expect("an applied command has a generation");
                let at_ms = match &command.body {
                    CommandBody::Schedule(schedule) => schedule.intent().deliver_at_ms,
                    CommandBody::Reschedule(reschedule) => reschedule.deliver_at_ms,
                    _ => continue,
                };
                deliver_at_ms.insert((command.message_id.uuid, generation), at_ms);
            }
        }
        Told { shard: told, deliver_at_ms, admissions }
    }

    pub(crate) fn digest(&self) -> [u8; 32] {
        state_digest(self.shard.store()).expect("a store in memory answers")
    }

    pub(crate) fn message(&self, message: MessageUuid) -> MessageView {
        let view = query::message(self.shard.store(), message).expect("a store in memory answers");
        view.unwrap_or_else(|| panic!("accepted message {message} is lost"))
    }

    fn messages(&self) -> Vec<MessageUuid> {
        let mut messages: Vec<MessageUuid> = self.deliver_at_ms.keys().map(|(message, _)| *message).collect();
        messages.dedup();
        messages
    }
}

/// Who owns the shard at some place of its log.
#[derive(Default)]
struct Owner {
    epoch: u64,
    worker_run_id: [u8; 16],
}

impl Owner {
    /// Only the owner's records take effect, from its OWNER_EPOCH to the next.
    fn check(&mut self, frame: &Bytes, result: &RecordResult) {
        let Ok(LogRecord::MutationV2(mutation)) = record::decode(frame) else { return };
        let Author::Owner { epoch, worker_run_id } = mutation.author else { return };
        if matches!(mutation.body, MutationBody::OwnerEpoch(_)) {
            if epoch > self.epoch {
                *self = Owner { epoch, worker_run_id };
            }
        } else if (epoch, worker_run_id) != (self.epoch, self.worker_run_id) {
            let took_effect = matches!(result, RecordResult::Owner { accepted: 1.., .. });
            assert!(!took_effect, "a record of epoch {epoch} took effect under epoch {}: {result:?}", self.epoch);
        }
    }
}

/// Settles the account of every shard.
///
/// # Panics
/// At the first message whose story is not one, with the end of the event log.
pub(crate) fn settle(cell: &Cell) -> Account {
    let mut account = Account::default();
    let mut delivered: BTreeMap<MessageUuid, Vec<Delivered>> = BTreeMap::new();
    for one in cell.broker.delivered() {
        delivered.entry(one.attempt.message).or_default().push(one);
    }
    for shard in 0..cell.shards.len() {
        let told = Told::new(cell, shard);
        audit::assert_consistent(told.shard.store());
        for message in told.messages() {
            let delivered = delivered.remove(&message).unwrap_or_default();
            let view = told.message(message);
            check_admissions(&told, &delivered);
            if let Err(reason) = account.add(&view, &delivered) {
                panic!("{message} {reason}: {view:?} {delivered:?}\n{}", cell.world.events_tail());
            }
        }
    }
    assert!(delivered.is_empty(), "nobody accepted {delivered:?}");
    let Account { accepted, published, canceled, expired, dead_lettered, pending, .. } = account;
    assert_eq!(accepted, published + canceled + expired + dead_lettered + pending);
    account
}

/// Where everything of a shard was delivered, with the offset of the record that admitted it.
pub(crate) fn deliveries(cell: &Cell, shard: usize) -> Vec<(Place, usize)> {
    let admissions = Told::new(cell, shard).admissions;
    let delivered = cell.broker.delivered().into_iter().filter(|one| one.shard == cell.shards[shard].identity.shard);
    delivered.map(|one| (one.place, admissions[&one.attempt].offset)).collect()
}

/// Nothing is delivered early, and nothing before the log has admitted it in the name of the one who sends it.
fn check_admissions(told: &Told, delivered: &[Delivered]) {
    for one in delivered {
        let attempt = one.attempt;
        let deliver_at_ms = told.deliver_at_ms[&(attempt.message, attempt.generation)];
        assert_eq!(one.deliver_at_ms, deliver_at_ms, "{attempt:?} was sent for another time");
        let early_us = deliver_at_ms * 1_000 - one.at_us;
        assert!(early_us <= 0, "{attempt:?} was delivered {early_us} us early");
        let admission = told.admissions.get(&attempt);
        let admission = admission.unwrap_or_else(|| panic!("{attempt:?} was delivered and never admitted"));
        assert_eq!(
            one.owner_epoch, admission.epoch,
            "{attempt:?} was sent by another owner than the one who admitted it"
        );
        assert!(admission.at_ms * 1_000 <= one.at_us, "{attempt:?} was sent before it was admitted");
    }
}

/// The offset in an order token of this world's logs: the last eight bytes.
fn offset_of(order_token: &[u8]) -> usize {
    let offset = order_token.last_chunk().map(|offset| u64::from_be_bytes(*offset));
    offset.and_then(|offset| usize::try_from(offset).ok()).expect("the order token of an embedded position")
}

impl Account {
    fn add(&mut self, view: &MessageView, delivered: &[Delivered]) -> Result<(), &'static str> {
        let row = &view.row;
        let current = delivered.iter().filter(|one| one.attempt.generation == row.generation).count();
        self.accepted += 1;
        self.possible_duplicates += usize::from(row.possible_duplicate);
        self.duplicates += usize::from(current > 1);
        let counter = match view.state {
            MessageState::Published => &mut self.published,
            MessageState::Canceled => &mut self.canceled,
            MessageState::Expired => &mut self.expired,
            MessageState::DeadLetter => &mut self.dead_lettered,
            _ => &mut self.pending,
        };
        *counter += 1;
        let says_so = row.possible_duplicate || row.has_uncertain_attempt() || view.state == MessageState::Publishing;
        match view.state {
            MessageState::Published if current == 0 => return Err("is PUBLISHED and was never delivered"),
            MessageState::Published if current > 1 && !says_so => {
                return Err("was delivered twice and does not say so");
            }
            MessageState::Published => check_evidence(view, delivered)?,
            _ if current > 0 && !says_so => return Err("was delivered and does not say so"),
            MessageState::Canceled | MessageState::Expired if current > 0 => return Err("was delivered and has ended"),
            _ => {}
        }
        Ok(())
    }
}

/// The evidence of a publication is what the destination has.
fn check_evidence(view: &MessageView, delivered: &[Delivered]) -> Result<(), &'static str> {
    let terminal = view.row.terminal.as_ref().expect("a published message has ended");
    let evidence = terminal.evidence.clone().expect("a publication has evidence");
    let Ok(PublishedEvidence::Embedded(ack)) = PublishedEvidence::from_proto(evidence) else {
        return Err("has evidence of another system");
    };
    let is_it = |one: &Delivered| {
        one.place == (ack.topic, ack.partition)
            && one.offset == ack.offset
            && one.attempt.attempt == terminal.attempt
            && one.attempt.generation == view.row.generation
    };
    if delivered.iter().any(is_it) { Ok(()) } else { Err("has evidence of something else") }
}
