//! Owner records on their way into the log.
//!
//! Entries gather here by kind and leave in records: at most a few of each kind are under way, so that under load each record
//! carries many entries and without load none waits. Bytes whose fate in the log is unknown are sent again as they are; apply
//! lets the second copy change nothing. A log that does not take a record is left alone for a moment: one that refuses at once
//! would be asked as fast as the machine can sign.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use clock::TrustedInterval;
use ed25519_dalek::SigningKey;
use ports::destination::AttemptRef;
use ports::log::AppendError;
use protocol::id::ShardId;
use protocol::mutation_v2::{
    Admission, Author, ClaimResult, MutationBody, MutationV2, Outcome, Outcomes, PublishAdmission, Refusal, Stamp,
    TimeFence,
};
use shard::state::MessageUuid;

/// Names one append until it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct AppendId(u64);

/// The run of an owner: who signs, and as whom.
#[derive(Clone)]
pub(crate) struct OwnerRun {
    pub(crate) shard: ShardId,
    pub(crate) epoch: u64,
    pub(crate) worker_run_id: [u8; 16],
    pub(crate) key_version: u32,
    pub(crate) key: SigningKey,
}

impl OwnerRun {
    /// A signed frame of this run.
    pub(crate) fn sign(&self, body: MutationBody) -> Bytes {
        let author = Author::Owner { epoch: self.epoch, worker_run_id: self.worker_run_id };
        // Entries are gathered ascending, in legal combinations and at least one, so every body of ours is well-formed.
        MutationV2::sign(self.shard, author, 0, body, self.key_version, &self.key)
            .expect("an owner's body is well-formed")
            .encode_frame()
    }
}

/// What an append carries, to be undone when it certainly failed.
#[derive(Clone, Debug)]
pub(crate) enum Cargo {
    Admissions(Vec<Admission>),
    Outcomes(Vec<Outcome>),
    Resolutions(Vec<Outcome>),
    Refusals(Vec<Refusal>),
    Fence,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Admission,
    Outcome,
    Resolution,
    Refusal,
    Fence,
}

impl Cargo {
    fn kind(&self) -> Kind {
        match self {
            Cargo::Admissions(_) => Kind::Admission,
            Cargo::Outcomes(_) => Kind::Outcome,
            Cargo::Resolutions(_) => Kind::Resolution,
            Cargo::Refusals(_) => Kind::Refusal,
            Cargo::Fence => Kind::Fence,
        }
    }
}

struct UnderWay {
    frame: Bytes,
    cargo: Cargo,
    /// The log does not know whether it has it.
    is_in_doubt: bool,
}

/// What the caller has to do about an answered append.
#[derive(Debug)]
pub(crate) enum Answered {
    /// Nothing: the record will come back through the log, or be sent again.
    Appended,
    /// The record never was in the log, and never will be. Entries that stay true are in the outbox again; these are the
    /// caller's.
    NotAppended(Cargo),
}

/// Entries that wait for their record, and records that are under way.
pub(crate) struct Outbox {
    run: OwnerRun,
    in_flight_max: usize,
    entries_max: usize,
    retry_delay: Duration,
    /// When the log is asked again that did not take a record.
    retry_at: Option<Duration>,
    owner_sequence: u64,
    next_id: u64,
    outcomes: BTreeMap<AttemptRef, Outcome>,
    resolutions: BTreeMap<AttemptRef, Outcome>,
    refusals: BTreeMap<MessageUuid, Refusal>,
    under_way: BTreeMap<AppendId, UnderWay>,
}

impl Outbox {
    pub(crate) fn new(run: OwnerRun, in_flight_max: usize, entries_max: usize, retry_delay: Duration) -> Outbox {
        Outbox {
            run,
            in_flight_max,
            entries_max,
            retry_delay,
            retry_at: None,
            owner_sequence: 0,
            next_id: 0,
            outcomes: BTreeMap::new(),
            resolutions: BTreeMap::new(),
            refusals: BTreeMap::new(),
            under_way: BTreeMap::new(),
        }
    }

    /// Notes the first word on an attempt.
    pub(crate) fn outcome(&mut self, attempt: AttemptRef, outcome: Outcome) {
        self.outcomes.entry(attempt).or_insert(outcome);
    }

    /// Replaces a first word that has not left yet. Whether it could.
    pub(crate) fn correct_outcome(&mut self, attempt: AttemptRef, outcome: &Outcome) -> bool {
        match self.outcomes.get_mut(&attempt) {
            Some(waiting) => {
                *waiting = outcome.clone();
                true
            }
            None => false,
        }
    }

    /// Notes later proof about an attempt.
    pub(crate) fn resolution(&mut self, attempt: AttemptRef, outcome: Outcome) {
        self.resolutions.insert(attempt, outcome);
    }

    /// Notes messages that can never be sent.
    pub(crate) fn refuse(&mut self, refusals: Vec<Refusal>) {
        for refusal in refusals {
            self.refusals.insert(refusal.message, refusal);
        }
    }

    /// Whether nothing waits and nothing is under way.
    pub(crate) fn is_empty(&self) -> bool {
        self.outcomes.is_empty() && self.resolutions.is_empty() && self.refusals.is_empty() && self.under_way.is_empty()
    }

    /// When the log is asked again; `None` while nothing is in the way.
    pub(crate) fn retry_at(&self) -> Option<Duration> {
        self.retry_at
    }

    /// Begins again once the log was left alone for long enough: what it may not have is sent again.
    pub(crate) fn retry(&mut self, monotonic: Duration) -> Vec<(AppendId, Bytes)> {
        if self.retry_at.is_none_or(|at| monotonic < at) {
            return Vec::new();
        }
        self.retry_at = None;
        let again = |(id, record): (&AppendId, &mut UnderWay)| {
            std::mem::take(&mut record.is_in_doubt).then(|| (*id, record.frame.clone()))
        };
        self.under_way.iter_mut().filter_map(again).collect()
    }

    /// How many admission entries the next record may take; `None` while there is no room for another record.
    pub(crate) fn admission_room(&self) -> Option<usize> {
        self.has_room(Kind::Admission, self.in_flight_max).then_some(self.entries_max)
    }

    /// Whether a fence may be sent: one at a time.
    pub(crate) fn has_fence_room(&self) -> bool {
        self.has_room(Kind::Fence, 1)
    }

    /// A record with these admissions.
    pub(crate) fn admit(&mut self, entries: Vec<Admission>, decided_at: TrustedInterval) -> (AppendId, Bytes) {
        let stamp = self.stamp(decided_at);
        let body = MutationBody::PublishAdmission(PublishAdmission { stamp, entries: entries.clone() });
        self.send(body, Cargo::Admissions(entries))
    }

    /// A fence.
    pub(crate) fn fence(
        &mut self,
        close_through_ms: i64,
        expire_max: u32,
        proven_at: TrustedInterval,
    ) -> (AppendId, Bytes) {
        let stamp = self.stamp(proven_at);
        self.send(MutationBody::TimeFence(TimeFence { stamp, close_through_ms, expire_max }), Cargo::Fence)
    }

    /// Records with what waits, as far as they may be under way.
    pub(crate) fn flush(&mut self, observed_at: TrustedInterval) -> Vec<(AppendId, Bytes)> {
        let mut appends = Vec::new();
        while !self.outcomes.is_empty() && self.has_room(Kind::Outcome, self.in_flight_max) {
            let entries = take_front(&mut self.outcomes, self.entries_max);
            let stamp = self.stamp(observed_at);
            let body = MutationBody::PublishOutcome(Outcomes { stamp, entries: entries.clone() });
            appends.push(self.send(body, Cargo::Outcomes(entries)));
        }
        while !self.resolutions.is_empty() && self.has_room(Kind::Resolution, self.in_flight_max) {
            let entries = take_front(&mut self.resolutions, self.entries_max);
            let stamp = self.stamp(observed_at);
            let body = MutationBody::EvidenceResolution(Outcomes { stamp, entries: entries.clone() });
            appends.push(self.send(body, Cargo::Resolutions(entries)));
        }
        while !self.refusals.is_empty() && self.has_room(Kind::Refusal, self.in_flight_max) {
            let entries = take_front(&mut self.refusals, self.entries_max);
            let stamp = self.stamp(observed_at);
            let body = MutationBody::ClaimResult(ClaimResult { stamp, entries: entries.clone() });
            appends.push(self.send(body, Cargo::Refusals(entries)));
        }
        appends
    }

    /// Takes in the log's answer to an append.
    pub(crate) fn answered(&mut self, id: AppendId, result: Result<(), AppendError>, monotonic: Duration) -> Answered {
        if result.is_err() {
            self.retry_at = Some(monotonic + self.retry_delay);
        }
        if let Err(AppendError::Unknown { .. }) = result {
            if let Some(record) = self.under_way.get_mut(&id) {
                record.is_in_doubt = true;
            }
            return Answered::Appended;
        }
        match (self.under_way.remove(&id), result) {
            (Some(UnderWay { cargo, .. }), Err(_)) => {
                self.take_back(&cargo);
                Answered::NotAppended(cargo)
            }
            _ => Answered::Appended,
        }
    }

    fn take_back(&mut self, cargo: &Cargo) {
        match cargo {
            Cargo::Outcomes(entries) => {
                for (attempt, entry) in keyed(entries) {
                    self.outcomes.entry(attempt).or_insert(entry);
                }
            }
            Cargo::Resolutions(entries) => {
                for (attempt, entry) in keyed(entries) {
                    self.resolutions.entry(attempt).or_insert(entry);
                }
            }
            Cargo::Refusals(entries) => self.refuse(entries.clone()),
            Cargo::Admissions(_) | Cargo::Fence => {}
        }
    }

    fn send(&mut self, body: MutationBody, cargo: Cargo) -> (AppendId, Bytes) {
        let frame = self.run.sign(body);
        self.next_id += 1;
        let id = AppendId(self.next_id);
        self.under_way.insert(id, UnderWay { frame: frame.clone(), cargo, is_in_doubt: false });
        (id, frame)
    }

    fn stamp(&mut self, interval: TrustedInterval) -> Stamp {
        self.owner_sequence += 1;
        Stamp {
            epoch: self.run.epoch,
            owner_sequence: self.owner_sequence,
            earliest_ms: interval.earliest_ms(),
            latest_ms: interval.latest_ms(),
        }
    }

    fn has_room(&self, kind: Kind, records_max: usize) -> bool {
        let records = self.under_way.values().filter(|under_way| under_way.cargo.kind() == kind).count();
        self.retry_at.is_none() && records < records_max
    }
}

fn keyed(entries: &[Outcome]) -> impl Iterator<Item = (AttemptRef, Outcome)> {
    entries.iter().map(|entry| {
        let Outcome { message, generation, attempt, .. } = *entry;
        (AttemptRef { message, generation, attempt }, entry.clone())
    })
}

fn take_front<Key: Ord, Entry>(waiting: &mut BTreeMap<Key, Entry>, count: usize) -> Vec<Entry> {
    let mut taken = Vec::with_capacity(count.min(waiting.len()));
    while taken.len() < count
        && let Some((_, entry)) = waiting.pop_first()
    {
        taken.push(entry);
    }
    taken
}
