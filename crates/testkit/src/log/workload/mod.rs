//! Whole logs at random: everything that can stand in a shard log, with what the [model](crate::model) says it comes to.
//!
//! A [`Workload`] turns numbers into records. It looks at the model to aim: it admits what waits, answers what is open, and
//! puts times on both sides of every boundary, because records chosen blindly would nearly all be refused for the same few
//! reasons. The numbers come from the caller, so a property test can shrink them; zero always means the plainest choice.

mod setup;

use std::num::NonZeroU32;

use bytes::Bytes;
use protocol::code::StableCode;
use protocol::command::{
    AdapterMetadata, ClientCommand, CommandBody, CommittedPayload, KafkaHeader, KafkaMetadata, OrderingMode, Payload,
    Precondition, PrepareLarge, PulsarMetadata, ScheduleIntent,
};
use protocol::id::{MessageId, ShardId, Uuid7};
use protocol::lane::LaneId;
use protocol::mutation::MutationType;
use protocol::mutation_v2::{
    Admission, ControlPayload, DestinationRebind, Disposition, MutationBody, Outcome, Refusal, Roles, TimeFence,
};
use protocol::nulls;
use protocol::policy::RetryPolicy;
use protocol::reference::{ProfileRef, TrustSetRef};
use protocol::resource::Resource;
use shard::commit::ShardIdentity;
use shard::machine::SourceRecord;

use self::setup::{ATTEMPTS, ENDINGS, EVERYTHING, Kind};
use super::{AttemptId, Destination, LogWriter, Operation, Owner, START_MS, cancel, key_entry, reschedule, schedule};
use crate::model::{Answer, Message, Model};

/// One step of a workload.
#[derive(Clone, Debug, Default)]
pub struct Step {
    /// Which kind of record.
    pub what: u16,
    /// Its details, in the order they are decided; missing ones are zero.
    pub choices: Vec<u16>,
}

/// A log and what each of its records comes to.
#[derive(Clone, Debug)]
pub struct RandomLog {
    /// Whose log it is.
    pub identity: ShardIdentity,
    /// The records, genesis first.
    pub records: Vec<SourceRecord>,
    /// What the model says of each.
    pub answers: Vec<Answer>,
    /// The model behind the last record.
    pub model: Model,
}

impl RandomLog {
    /// The log of a setup and its steps.
    pub fn new(setup: &[u16], steps: &[Step]) -> RandomLog {
        let (mut workload, mut records) = Workload::new(setup);
        let mut answers = vec![Answer::Control(StableCode::Ok)];
        for record in &records[1..] {
            answers.push(workload.model.apply(record.position.broker_time_ms(), &record.frame));
        }
        for step in steps {
            if let Some((record, answer)) = workload.step(step) {
                records.push(record);
                answers.push(answer);
            }
        }
        RandomLog { identity: workload.identity(), records, answers, model: workload.model }
    }
}

/// Writes a random log, record by record.
#[derive(Clone, Debug)]
pub struct Workload {
    /// The log.
    pub log: LogWriter,
    /// What the records so far come to.
    pub model: Model,
    genesis_hash: [u8; 32],
    owners: Vec<Owner>,
    policies: Vec<RetryPolicy>,
    destinations: Vec<Destination>,
    messages: Vec<Uuid7>,
    commands: Vec<ClientCommand>,
    operations: Vec<(Operation, ControlPayload)>,
    frames: Vec<Bytes>,
    weights: &'static [(u32, Kind)],
    /// Time passes by hours.
    is_long: bool,
}

/// Numbers that decide, one after the other.
struct Choices<'a>(std::slice::Iter<'a, u16>);

impl Choices<'_> {
    fn number(&mut self) -> u16 {
        self.0.next().copied().unwrap_or(0)
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::from(self.number()) % bound.max(1)
    }

    /// True in `percent` of a hundred cases.
    fn chance(&mut self, percent: u16) -> bool {
        self.number() % 100 >= 100 - percent
    }

    fn pick<T: Clone>(&mut self, from: &[T]) -> Option<T> {
        if from.is_empty() { None } else { from.get(self.below(from.len())).cloned() }
    }

    fn of<T: Copy, const N: usize>(&mut self, from: [T; N]) -> T {
        from[self.below(N)]
    }
}

impl Workload {
    /// A shard with limits that the numbers choose, and the records that found it: genesis, policies, profiles, an owner. The
    /// model stands behind the genesis; the other records are still to be applied.
    pub fn new(numbers: &[u16]) -> (Workload, Vec<SourceRecord>) {
        let mut choices = Choices(numbers.iter());
        let partition_count = choices.of([1, 2]);
        let mut log = LogWriter::new(0, NonZeroU32::new(partition_count).expect("one or two"));
        let weights = choices.of([EVERYTHING, EVERYTHING, ATTEMPTS, ENDINGS]);
        let limits = setup::limits(&mut choices);
        let genesis = log.genesis_mutation(limits);
        let MutationBody::ShardControl(control) = &genesis.body else { unreachable!("a genesis is a control record") };
        let ControlPayload::Genesis(body) = &control.payload else { unreachable!("a genesis says so") };
        let policies = setup::policies();
        let destinations = setup::destinations(&policies);
        let mut workload = Workload {
            model: Model::new(body),
            genesis_hash: genesis.hash,
            owners: vec![Owner::new(1)],
            messages: Vec::new(),
            commands: Vec::new(),
            operations: Vec::new(),
            frames: Vec::new(),
            weights,
            is_long: std::ptr::eq(weights, ENDINGS),
            log: log.clone(),
            policies,
            destinations,
        };
        let mut records = vec![log.genesis(limits)];
        for policy in &workload.policies[..3] {
            records.push(log.control(ControlPayload::RetryPolicyActivate(Box::new(policy.clone()))));
        }
        for destination in &workload.destinations[..4] {
            records.push(log.control(destination.activate()));
        }
        records.push(log.owner_epoch(&mut workload.owners[0]));
        workload.log = log;
        (workload, records)
    }

    /// Which shard it is.
    pub fn identity(&self) -> ShardIdentity {
        ShardIdentity { shard: self.log.shard(), genesis_hash: self.genesis_hash }
    }

    /// Takes a step: appends a record and has the model apply it, or only lets time pass.
    pub fn step(&mut self, step: &Step) -> Option<(SourceRecord, Answer)> {
        let mut choices = Choices(step.choices.iter());
        let total: u32 = self.weights.iter().map(|(weight, _)| weight).sum();
        let mut at = u32::from(step.what) % total;
        let kind = self.weights.iter().find(|(weight, _)| {
            let is_here = at < *weight;
            at = at.saturating_sub(*weight);
            is_here
        });
        let (_, kind) = kind.expect("the number is below the total");
        self.let_time_pass(*kind, &mut choices);
        let record = match kind {
            Kind::Advance => return None,
            Kind::Schedule => self.schedule(&mut choices),
            Kind::Cancel => self.cancel(&mut choices),
            Kind::Reschedule => self.reschedule(&mut choices),
            Kind::Repeat => self.repeat(&mut choices),
            Kind::Conflict => self.conflict(&mut choices),
            Kind::OddCommand => self.odd_command(&mut choices),
            Kind::OwnerEpoch => self.owner_epoch(&mut choices),
            Kind::Admission => self.admission(&mut choices)?,
            Kind::Outcome => self.outcome(&mut choices, false)?,
            Kind::Resolution => self.outcome(&mut choices, true)?,
            Kind::Refusal => self.refusal(&mut choices)?,
            Kind::Fence => self.fence(&mut choices),
            Kind::Control => self.control(&mut choices),
            Kind::Garbage => self.garbage(&mut choices),
        };
        let answer = self.model.apply(record.position.broker_time_ms(), &record.frame);
        self.frames.push(record.frame.clone());
        Some((record, answer))
    }

    fn let_time_pass(&mut self, kind: Kind, choices: &mut Choices<'_>) {
        let now_ms = self.log.now_ms();
        let jumps = if self.is_long { 40 } else { 90 };
        let next_ms = match (kind, choices.below(100)) {
            (Kind::Advance, at) if at < jumps / 2 => self.next_time_ms(choices),
            (Kind::Advance, at) if at < jumps => now_ms + choices.of([100, 1_000, 5_000, 30_000]),
            (Kind::Advance, at) if at < 97 => now_ms + choices.of([60_000, 3_600_000, 2 * 3_600_000]),
            (Kind::Advance, _) => now_ms + choices.of([86_400_000, 3_600_000 - 1]),
            (_, 92..) => self.next_time_ms(choices),
            (_, 88..92) => now_ms - choices.of([1, 30]),
            (_, 60..88) => now_ms,
            _ => now_ms + i64::from(choices.number() % 20),
        };
        self.log.set_now(next_ms.max(START_MS));
    }

    /// The next time at which something becomes possible or impossible, give or take a millisecond.
    fn next_time_ms(&self, choices: &mut Choices<'_>) -> i64 {
        let now_ms = self.log.now_ms();
        let times = self.model.all().flat_map(|(_, row)| [row.eligible_at_ms, row.expire_at_ms]);
        let next = times.filter(|time_ms| *time_ms > now_ms).min();
        next.unwrap_or(now_ms) + choices.of([0, 1, -1])
    }

    /// Nearly always a message that is there, sometimes one that was refused, sometimes one that nobody knows.
    fn message_id(&mut self, choices: &mut Choices<'_>) -> MessageId {
        let there: Vec<Uuid7> = self.model.all().map(|(message, _)| *message).collect();
        let from = if choices.chance(20) { &self.messages } else { &there };
        match choices.pick(from) {
            Some(uuid) if !choices.chance(4) => self.log.message_of(uuid),
            _ => self.log.message_id(),
        }
    }

    fn submit(&mut self, command: ClientCommand) -> SourceRecord {
        let record = self.log.command(&command);
        self.commands.push(command);
        record
    }

    /// A command about `message`, nearly always with an id made just now.
    fn command(&mut self, message: MessageId, body: CommandBody, choices: &mut Choices<'_>) -> SourceRecord {
        let limits = *self.model.limits();
        let now_ms = self.log.now_ms();
        let made_ms = if choices.chance(4) {
            let (oldest, newest) = (limits.preparation_age_ms_max, limits.uuid_future_skew_ms_max);
            let window_ms = limits.command_retry_window_ms;
            now_ms + choices.of([-oldest, -oldest - 1, newest, newest + 1, -window_ms, -window_ms - 1])
        } else {
            now_ms
        };
        let uuid = self.log.uuid(made_ms);
        let mut command = self.log.prepare_as(uuid, &limits, message, body);
        if choices.chance(2) {
            let retry_until_ms = command.retry_until_ms + choices.of([1, -1]);
            command = ClientCommand::new(command.command_id, message, retry_until_ms, command.body)
                .expect("another deadline is as legal");
        }
        self.submit(command)
    }

    fn schedule(&mut self, choices: &mut Choices<'_>) -> SourceRecord {
        let limits = *self.model.limits();
        let now_ms = self.log.now_ms();
        let message = match choices.below(100) {
            0..85 => self.log.message_id(),
            85..92 => self.message_id(choices),
            _ => {
                let (oldest, newest) = (limits.preparation_age_ms_max, limits.uuid_future_skew_ms_max);
                let made_ms = now_ms + choices.of([-oldest, -oldest - 1, newest, newest + 1]);
                let uuid = self.log.uuid(made_ms);
                self.log.message_of(uuid)
            }
        };
        self.messages.push(message.uuid);
        let intent = self.intent(choices);
        self.command(message, schedule(intent), choices)
    }

    fn window(&self, choices: &mut Choices<'_>) -> (i64, i64) {
        let limits = self.model.limits();
        let (now_ms, window_ms) = (self.log.now_ms(), limits.delivery_window_ms_min);
        let ahead_ms = now_ms + limits.uuid_future_skew_ms_max;
        let deliver_ms = match choices.below(40) {
            0..30 => now_ms + i64::from(choices.number() % 300),
            30..34 => now_ms - choices.of([1, 100]),
            34..36 => ahead_ms + limits.delay_ms_max + choices.of([0, 1]),
            _ => now_ms + i64::from(choices.number() % 20_000),
        };
        let expire_ms = match choices.below(40) {
            0..10 => deliver_ms.max(now_ms) + window_ms + i64::from(choices.number() % 500),
            10..34 => deliver_ms.max(now_ms) + window_ms + i64::from(choices.number() % 15_000),
            34..36 => deliver_ms.max(now_ms) + window_ms + choices.of([0, -1]),
            36..38 => ahead_ms + limits.lifetime_ms_max + choices.of([0, 1]),
            _ => self.model.closed_ms() + choices.of([0, 1]),
        };
        (deliver_ms.max(0), expire_ms.max(0))
    }

    fn intent(&mut self, choices: &mut Choices<'_>) -> ScheduleIntent {
        let (deliver_at_ms, expire_at_ms) = self.window(choices);
        let policy = match choices.below(40) {
            0..20 => 0,
            20..30 => 1,
            30..36 => 2,
            _ => choices.of([3, 4]),
        };
        let destination = match choices.below(40) {
            0..20 => 0,
            20..34 => 1,
            _ => choices.of([2, 3, 4, 5]),
        };
        let payload = match choices.below(20) {
            0..18 => usize::from(choices.number() % 40),
            _ => choices.of([0, 150, 151, 200]),
        };
        let mut intent = self.destinations[destination].intent(
            &self.policies[policy],
            deliver_at_ms,
            expire_at_ms,
            Bytes::from(vec![b'x'; payload]),
        );
        if choices.chance(50) {
            let key = choices.of(["k0", "k1", "k2", "k3"]);
            intent.business_key = Some(Bytes::from_static(key.as_bytes()));
        }
        if choices.chance(50) {
            let key = Bytes::from(format!("key {}", choices.below(6)));
            intent.metadata = AdapterMetadata::Kafka(KafkaMetadata { key: Some(key), headers: Vec::new() });
        }
        if choices.chance(8) {
            make_odd(&mut intent, choices);
        }
        intent
    }

    fn precondition(&self, message: Uuid7, choices: &mut Choices<'_>) -> Precondition {
        let row = self.model.message(message);
        let generation = row.map_or(0, |row| row.generation);
        let state_version = row.map_or(1, |row| row.state_version);
        match choices.below(10) {
            0..6 => Precondition::default(),
            6 => Precondition { generation: Some(generation), state_version: Some(state_version) },
            7 => Precondition { generation: Some(choices.of([generation, generation + 1])), state_version: None },
            8 => Precondition { generation: Some(generation.saturating_sub(1)), state_version: Some(state_version) },
            _ => Precondition { generation: None, state_version: Some(state_version + 1) },
        }
    }

    fn cancel(&mut self, choices: &mut Choices<'_>) -> SourceRecord {
        let message = self.message_id(choices);
        let body = cancel(self.precondition(message.uuid, choices));
        self.command(message, body, choices)
    }

    fn reschedule(&mut self, choices: &mut Choices<'_>) -> SourceRecord {
        let message = self.message_id(choices);
        let expected = self.precondition(message.uuid, choices);
        let (deliver_at_ms, expire_at_ms) = self.window(choices);
        self.command(message, reschedule(expected, deliver_at_ms, expire_at_ms), choices)
    }

    /// The same bytes again: a client's retry, or an append whose first outcome was unknown.
    fn repeat(&mut self, choices: &mut Choices<'_>) -> SourceRecord {
        let recent = self.frames.len().saturating_sub(12);
        let from = if choices.chance(20) { &self.frames[..] } else { &self.frames[recent..] };
        let frame = choices.pick(from).unwrap_or_default();
        self.log.append(frame)
    }

    /// An id that was used for something else.
    fn conflict(&mut self, choices: &mut Choices<'_>) -> SourceRecord {
        let limits = *self.model.limits();
        let message = self.message_id(choices);
        let body = cancel(Precondition { generation: Some(choices.of([7, 8])), state_version: None });
        match choices.pick(&self.commands) {
            Some(command) => {
                let uuid = command.command_id.uuid;
                let command = self.log.prepare_as(uuid, &limits, message, body);
                self.submit(command)
            }
            None => self.command(message, body, choices),
        }
    }

    fn odd_command(&mut self, choices: &mut Choices<'_>) -> SourceRecord {
        let limits = *self.model.limits();
        let message = self.message_id(choices);
        match choices.below(3) {
            0 => {
                let frame = self.log.unreadable_command(&limits, message);
                self.log.append(frame)
            }
            1 => {
                let intent = ScheduleIntent { payload: None, ..self.intent(choices) };
                let reference = ProfileRef { id: "objects".into(), version: 1, semantic_hash: [1; 32] };
                let trust_set = TrustSetRef { version: 1, semantic_hash: [2; 32] };
                let body = PrepareLarge::new(intent, 1_000, [3; 32], 1_000, trust_set, reference)
                    .expect("an intent without payload");
                self.command(message, CommandBody::PrepareLarge(Box::new(body)), choices)
            }
            _ => {
                let other = ShardId { partition: 1, ..self.log.shard() };
                let message = MessageId { shard: other, uuid: message.uuid };
                self.command(message, cancel(Precondition::default()), choices)
            }
        }
    }

    fn owner_epoch(&mut self, choices: &mut Choices<'_>) -> SourceRecord {
        let newest = self.owners.last().expect("there is always an owner").clone();
        let mut owner = match choices.below(10) {
            0..6 => Owner { key_version: newest.key_version, ..Owner::new(newest.epoch + 1) },
            6 => Owner { key_version: newest.key_version, ..Owner::new(newest.epoch + 5) },
            // Another run of the same epoch, and a former one.
            7 => Owner { run: [0x77; 16], ..newest },
            8 => choices.pick(&self.owners).unwrap_or(newest),
            _ => newest,
        };
        if choices.chance(50) {
            owner.key_version = choices.pick(&self.model.key_versions()).unwrap_or(owner.key_version);
        }
        let record = self.log.owner_epoch(&mut owner);
        self.owners.push(owner);
        record
    }

    /// Nearly always the owner in force; sometimes one that was.
    fn owner(&self, choices: &mut Choices<'_>) -> usize {
        let in_force = self.model.owner();
        let index = self.owners.iter().rposition(|owner| Some((owner.epoch, owner.run)) == in_force).unwrap_or(0);
        if choices.chance(4) { choices.below(self.owners.len()) } else { index }
    }

    fn interval(&self, choices: &mut Choices<'_>) -> (i64, i64) {
        let earliest_ms = self.log.now_ms() + choices.of([0, 0, 0, 5, -5, 50]);
        let width_ms_max = self.model.limits().clock_interval_ms_max;
        let width_ms =
            if choices.chance(5) { width_ms_max + choices.of([0, 1]) } else { i64::from(choices.number()) % 10 };
        (earliest_ms, earliest_ms + width_ms)
    }

    fn admission(&mut self, choices: &mut Choices<'_>) -> Option<SourceRecord> {
        let mut at = self.interval(choices);
        let waiting: Vec<(Uuid7, Message)> =
            self.model.all().filter(|(_, row)| row.is_waiting()).map(|(uuid, row)| (*uuid, row.clone())).collect();
        let divergence_ms = self.model.limits().broker_time_divergence_ms_max;
        let latest_ms = at.1.max(self.log.now_ms() + divergence_ms);
        let is_due = |row: &Message| row.eligible_at_ms <= at.0 && latest_ms < row.expire_at_ms;
        let due: Vec<(Uuid7, Message)> = waiting.iter().filter(|(_, row)| is_due(row)).cloned().collect();
        let mut targets = Vec::new();
        if choices.chance(12) {
            // One message on the very edge of what its times allow.
            let (uuid, row) = choices.pick(&waiting)?;
            let beyond_ms = choices.of([0, 1]);
            match choices.below(3) {
                0 => at = (row.eligible_at_ms - beyond_ms, at.1.max(row.eligible_at_ms)),
                1 => at = (row.eligible_at_ms.min(at.0), row.expire_at_ms - 1 + beyond_ms),
                _ => self.log.set_now((row.expire_at_ms - divergence_ms - 1 + beyond_ms).max(START_MS)),
            }
            at.1 = at.1.max(at.0);
            targets.push((uuid, row));
        } else {
            let from = if choices.chance(10) { &waiting } else { &due };
            for _ in 0..=choices.below(3) {
                targets.extend(choices.pick(from));
            }
        }
        let mut entries: Vec<Admission> = targets
            .iter()
            .map(|(message, row)| Admission {
                message: *message,
                generation: row.generation,
                log_rev: row.log_rev,
                sequence: None,
            })
            .collect();
        if choices.chance(10) {
            let message = self.message_id(choices).uuid;
            let row = self.model.message(message);
            let (generation, log_rev) = row.map_or((0, 1), |row| (row.generation, row.log_rev));
            let generation = choices.of([generation, generation + 1]);
            let log_rev = choices.of([log_rev, log_rev.saturating_sub(1), log_rev + 1]);
            entries.push(Admission { message, generation, log_rev, sequence: Some(1) });
        }
        entries.sort_by_key(|entry| (entry.message, entry.generation));
        entries.dedup_by_key(|entry| (entry.message, entry.generation));
        if entries.is_empty() {
            return None;
        }
        let owner = self.owner(choices);
        Some(self.log.admission(&mut self.owners[owner], at, entries))
    }

    /// Answers to attempts that are publishing, or evidence about uncertain ones; sometimes to the other kind, or to none.
    fn outcome(&mut self, choices: &mut Choices<'_>, resolves: bool) -> Option<SourceRecord> {
        let mut attempts = Vec::new();
        let aims_wrong = choices.chance(8);
        for (message, row) in self.model.all() {
            for (attempt, uncertain) in &row.open {
                if (*uncertain == resolves) != aims_wrong {
                    attempts.push(AttemptId { message: *message, generation: row.generation, attempt: *attempt });
                }
            }
        }
        let mut entries: Vec<Outcome> = Vec::new();
        for _ in 0..=choices.below(3) {
            let mut attempt = choices.pick(&attempts)?;
            if choices.chance(3) {
                attempt.attempt += 1;
            }
            if choices.chance(3) {
                attempt.generation += 1;
            }
            entries.push(match choices.below(20) {
                0..5 => attempt.not_published(Disposition::MessageRetriable),
                5..10 => attempt.unknown(),
                10..14 => attempt.published(self.log.now_ms()),
                14..19 => attempt.not_published(Disposition::LaneUnavailable),
                _ => attempt.not_published(Disposition::MessagePermanent),
            });
        }
        entries.sort_by(Outcome::compare);
        entries.dedup_by(|a, b| a.compare(b).is_eq());
        let mut at = self.interval(choices);
        if choices.chance(6) {
            at.1 += choices.of([1_000, 100_000]);
        }
        let owner = self.owner(choices);
        let owner = &mut self.owners[owner];
        Some(match resolves {
            true => self.log.resolutions(owner, at, entries),
            false => self.log.outcomes(owner, at, entries),
        })
    }

    fn refusal(&mut self, choices: &mut Choices<'_>) -> Option<SourceRecord> {
        let at = self.interval(choices);
        let rows: Vec<(Uuid7, u32, u64)> =
            self.model.all().map(|(message, row)| (*message, row.generation, row.log_rev)).collect();
        let (message, generation, log_rev) = choices.pick(&rows)?;
        let log_rev = if choices.chance(20) { log_rev + 1 } else { log_rev };
        let code = StableCode::ClaimPermanentFailure;
        let owner = self.owner(choices);
        Some(self.log.refusals(&mut self.owners[owner], at, vec![Refusal { message, generation, log_rev, code }]))
    }

    fn fence(&mut self, choices: &mut Choices<'_>) -> SourceRecord {
        let limits = *self.model.limits();
        let latest_ms = self.log.now_ms() + limits.broker_time_divergence_ms_max;
        let close_through_ms = match choices.below(20) {
            0..8 => latest_ms,
            8..16 => {
                let ends = self.model.all().flat_map(|(_, row)| {
                    [Some(row.expire_at_ms), row.ended.as_ref().map(|ended| ended.until_ms)].into_iter().flatten()
                });
                let ends: Vec<i64> = ends.filter(|end_ms| *end_ms <= latest_ms).collect();
                choices.pick(&ends).unwrap_or(latest_ms) - choices.of([0, 1])
            }
            16..18 => self.model.closed_ms() - choices.of([0, 100]),
            _ => latest_ms + choices.of([1, 10]),
        };
        let close_through_ms = close_through_ms.max(0);
        let earliest_ms = close_through_ms + limits.fence_margin_ms - i64::from(choices.chance(5));
        let width_ms = if choices.chance(3) { limits.clock_interval_ms_max + 1 } else { choices.of([0, 5]) };
        let expire_max = match choices.below(4) {
            0 | 1 => 100,
            2 => 1,
            _ => choices.of([0, 2]),
        };
        let owner = self.owner(choices);
        self.log.fence(&mut self.owners[owner], (earliest_ms, earliest_ms + width_ms), close_through_ms, expire_max)
    }

    fn control(&mut self, choices: &mut Choices<'_>) -> SourceRecord {
        let (operation, payload) = match choices.pick(&self.operations) {
            Some((operation, payload)) if choices.chance(10) => {
                // The same operation again, or another under its id.
                if choices.chance(50) {
                    (operation, payload)
                } else {
                    (operation, ControlPayload::DestinationPause { profile_id: "nobody".into() })
                }
            }
            _ => self.operation(choices),
        };
        self.operations.push((operation, payload.clone()));
        self.log.control_as(&operation, payload)
    }

    fn operation(&mut self, choices: &mut Choices<'_>) -> (Operation, ControlPayload) {
        let payload = self.payload(choices);
        let mut operation = self.log.operation();
        let window_ms = self.model.limits().control_retry_window_ms_max;
        let now_ms = self.log.now_ms();
        operation.retry_until_ms = match choices.below(20) {
            0..16 => now_ms + window_ms,
            _ => now_ms + choices.of([0, -1, window_ms + 1, self.model.closed_ms() - now_ms]),
        };
        operation.retry_until_ms = operation.retry_until_ms.max(0);
        if choices.chance(20) {
            operation.expected_version = Some(u64::from(choices.number() % 3));
        }
        operation.key_version = match choices.below(20) {
            0..16 => operation.key_version,
            _ => choices.of([1, 3, 4, 5]),
        };
        (operation, payload)
    }

    fn payload(&mut self, choices: &mut Choices<'_>) -> ControlPayload {
        let lane = |choices: &mut Choices<'_>| {
            let lanes: Vec<_> = self.model.lanes().values().map(|(id, _, _)| *id).collect();
            choices.pick(&lanes).unwrap_or(LaneId([9; 32]))
        };
        let id =
            |choices: &mut Choices<'_>| Bytes::from_static(choices.of(["alpha", "alpha", "beta", "nobody"]).as_bytes());
        match choices.below(34) {
            0..4 => ControlPayload::LaneResume(lane(choices)),
            4..7 => ControlPayload::LanePause(lane(choices)),
            7..10 => ControlPayload::DestinationResume { profile_id: id(choices) },
            10..12 => ControlPayload::DestinationPause { profile_id: id(choices) },
            12..15 => self.destinations[choices.below(self.destinations.len())].activate(),
            15 => self.destinations[choices.below(self.destinations.len())].close(),
            16 => {
                let mut other = self.destinations[choices.below(2)].clone();
                other.body.delay_ms_max -= 1;
                other.activate()
            }
            17..20 => {
                ControlPayload::RetryPolicyActivate(Box::new(self.policies[choices.below(self.policies.len())].clone()))
            }
            20 => {
                let policy = &self.policies[choices.below(self.policies.len())];
                ControlPayload::RetryPolicyClose { policy_id: policy.id.clone(), version: policy.version }
            }
            21 => {
                let mut other = self.policies[choices.below(2)].clone();
                other.publish_admissions_max += 1;
                ControlPayload::RetryPolicyActivate(Box::new(other))
            }
            22..26 => {
                let roles = Roles { owner: choices.chance(70), control: true };
                ControlPayload::KeyAdd(key_entry(choices.of([3, 4, 2, 1]), roles))
            }
            26..28 => ControlPayload::KeyRetire { version: u32::from(choices.number() % 5 + 1) },
            28 => self.genesis_again(),
            29..33 => self.rebinding(choices),
            _ if choices.chance(30) => ControlPayload::StopNewSchedules,
            _ => ControlPayload::LaneResume(lane(choices)),
        }
    }

    /// To one of few topics, so that some are where they are told to go, and back to where they came from.
    fn rebinding(&self, choices: &mut Choices<'_>) -> ControlPayload {
        let profile_id =
            Bytes::from_static(choices.of(["alpha", "alpha", "beta", "pulsar", "later", "nobody"]).as_bytes());
        let made_anew = choices.of([Some(1_u8), Some(2), None]);
        let destination = self.destinations[choices.of([0, 1, 3])].body.resource.clone();
        let resource = match (destination, made_anew) {
            (pinned, None) => pinned,
            (Resource::Embedded { .. }, Some(number)) => Resource::Embedded { topic: [number; 16] },
            (Resource::Kafka { cluster_id, .. }, Some(number)) => Resource::Kafka { cluster_id, topic: [number; 16] },
            (Resource::Pulsar { cluster_id, topic, creation_time_ms, .. }, Some(number)) => {
                Resource::Pulsar { cluster_id, incarnation: [number; 32], topic, creation_time_ms }
            }
        };
        ControlPayload::DestinationRebind(Box::new(DestinationRebind { profile_id, resource }))
    }

    fn genesis_again(&self) -> ControlPayload {
        match self.log.genesis_mutation(*self.model.limits()).body {
            MutationBody::ShardControl(control) => control.payload,
            _ => unreachable!("a genesis is a control record"),
        }
    }

    fn garbage(&mut self, choices: &mut Choices<'_>) -> SourceRecord {
        let frame = match choices.below(6) {
            0 => Bytes::from_static(b"no frame at all"),
            1 => self.frames.last().map_or_else(Bytes::new, |frame| frame.slice(..frame.len() / 2)),
            2 => self.log.unbuilt_mutation(MutationType::ReplayDeadLetter),
            3 => {
                // A damaged byte.
                let mut bytes = self.frames.last().map_or_else(Vec::new, |frame| frame.to_vec());
                let at = choices.below(bytes.len());
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 0x40;
                }
                bytes.into()
            }
            4 => {
                // An owner's record for another shard, rightly signed.
                let other = ShardId { partition: 1, ..self.log.shard() };
                let owner = self.owner(choices);
                let stamp = self.owners[owner].stamp(0, 0);
                let body = TimeFence { stamp, close_through_ms: 0, expire_max: 1 };
                self.owners[owner].sign(other, MutationBody::TimeFence(body)).encode_frame()
            }
            _ => self.log.unactivated_command(),
        };
        self.log.append(frame)
    }
}

/// Makes an intent that apply refuses, or nearly.
fn make_odd(intent: &mut ScheduleIntent, choices: &mut Choices<'_>) {
    let header = |name: &str, value: &'static [u8]| KafkaHeader {
        name: name.try_into().expect("names of tests are text"),
        value: Bytes::from_static(value),
    };
    let with_headers = |headers: Vec<KafkaHeader>| AdapterMetadata::Kafka(KafkaMetadata { key: None, headers });
    match choices.below(9) {
        0 => intent.business_key = Some(Bytes::from_static(b"more than the limit")),
        1 => intent.metadata = with_headers(vec![header("Nereus.Delay.id", b"")]),
        2 => intent.metadata = with_headers(vec![header(nulls::MARKER_NAME, b"\x00")]),
        3 => intent.metadata = AdapterMetadata::Pulsar(PulsarMetadata::default()),
        4 => (intent.ordering, intent.ordering_key) = (OrderingMode::DeliveryTimeFifo, Bytes::from_static(b"account")),
        5 => intent.profile.semantic_hash = [0; 32],
        6 => intent.retry_policy.semantic_hash = [0; 32],
        7 => intent.metadata = with_headers(vec![header("a", b""), header(nulls::MARKER_NAME, b"\x00\x00\x00")]),
        _ => {
            let object_store = ProfileRef { id: "objects".into(), version: 1, semantic_hash: [1; 32] };
            intent.payload = Some(Payload::Committed(Box::new(CommittedPayload {
                object_store,
                container: Bytes::from_static(b"bucket"),
                object_key: Bytes::from_static(b"object"),
                object_version: Bytes::from_static(b"1"),
                etag: None,
                length: 5,
                sha256: [4; 32],
                reservation_id: [5; 32],
                proof_id: [6; 32],
            })));
        }
    }
}
