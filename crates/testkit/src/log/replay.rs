//! Replay equality: one log gives one state, however it was applied (architecture §6).
//!
//! [`replay`] applies a log along a course of batches, redeliveries, crashes, failed commits, forks and physical releases that
//! numbers choose, and [`Expected`] holds it to what record by record application on a store in memory gives: the same digest
//! at every stop, the same results, the same effects.

use shard::commit::{Committed, RunError, Shard};
use shard::effect::Effect;
use shard::machine::SourceRecord;
use shard::machine::verdict::RecordResult;
use shard::memory::{CommitFault, MemoryDisk, MemoryStore};
use shard::query;
use shard::state::digest::state_digest;
use shard::state::keys::timeline::{self, DueKey};
use shard::store::{CommitError, Family, Store};

use super::workload::RandomLog;
use crate::model::audit;

/// What survives the crash of a store.
pub trait Disk: Sized {
    /// The store on it.
    type Store: Store;

    /// Opens the disk. No other store is open on it.
    fn open(&self) -> Self::Store;

    /// A copy that shares nothing, made while no store is open: a checkpoint.
    fn fork(&self) -> Self;

    /// Has the next commit of the store fail, if the store can be told to.
    fn fail_next_commit(_store: &mut Self::Store, _fault: CommitFault) {}

    /// Drops what has logically ended, as far as the store can be brought to do it now.
    fn release(shard: &mut Shard<Self::Store>) {
        shard.release_ended();
    }
}

impl Disk for MemoryDisk {
    type Store = MemoryStore;

    fn open(&self) -> MemoryStore {
        MemoryDisk::open(self)
    }

    fn fork(&self) -> MemoryDisk {
        MemoryDisk::fork(self)
    }

    fn fail_next_commit(store: &mut MemoryStore, fault: CommitFault) {
        store.fail_next_commit(fault);
    }
}

/// What every replay of a log must come to.
#[derive(Clone, Debug)]
pub struct Expected {
    /// The digest behind each record.
    digests: Vec<[u8; 32]>,
    results: Vec<RecordResult>,
    effects: Vec<Effect>,
    /// How many effects there are before each record.
    effects_before: Vec<usize>,
}

impl Expected {
    /// Applies the log record by record.
    pub fn new(log: &RandomLog) -> Expected {
        let mut shard = Shard::open(MemoryStore::new(), log.identity).expect("an empty store opens");
        let (mut digests, mut results, mut effects, mut effects_before) = (vec![], vec![], vec![], vec![]);
        for record in &log.records {
            effects_before.push(effects.len());
            let committed = shard.commit(std::slice::from_ref(record)).expect("the store answers");
            results.extend(committed.results().iter().map(|applied| applied.result.clone()));
            effects.extend_from_slice(committed.effects());
            digests.push(state_digest(shard.store()).expect("the store answers"));
        }
        effects_before.push(effects.len());
        Expected { digests, results, effects, effects_before }
    }

    /// A commit of `records[from..until]` said and did what it must.
    fn check(&self, committed: &Committed, from: usize, until: usize) {
        let results: Vec<_> = committed.results().iter().map(|applied| applied.result.clone()).collect();
        assert_eq!(results, self.results[from..until], "results of records {from}..{until}");
        let effects = &self.effects[self.effects_before[from]..self.effects_before[until]];
        assert_eq!(committed.effects(), effects, "effects of records {from}..{until}");
    }
}

/// Numbers that choose a course; when they are used up, everything is plain.
struct Course<'a>(std::slice::Iter<'a, u16>);

impl Course<'_> {
    fn below(&mut self, bound: usize) -> usize {
        usize::from(self.0.next().copied().unwrap_or(0)) % bound.max(1)
    }
}

/// Applies the log to an empty disk along a course.
///
/// # Panics
/// When anything comes out otherwise than `expected`.
pub fn replay<D: Disk>(disk: &D, log: &RandomLog, expected: &Expected, course: &[u16]) {
    let mut course = Course(course.iter());
    let mut shard = Shard::open(disk.open(), log.identity).expect("an empty store opens");
    let mut at = 0;
    while at < log.records.len() {
        let event = course.below(16);
        match event {
            // A crash, or an orderly change of owners: the store is opened again.
            0 | 1 => shard = reopen(disk, shard, log),
            // The store drops what has ended, or some of it later.
            2 => D::release(&mut shard),
            3 | 4 => raise_marks(&mut shard),
            // The rest of the log, from a checkpoint, by somebody else.
            5 => {
                drop(shard);
                finish(&disk.fork(), log, expected, at);
                shard = Shard::open(disk.open(), log.identity).expect("it was open before");
            }
            _ => {}
        }
        let until = (at + 1 + course.below(9)).min(log.records.len());
        // Logs deliver again what was not acknowledged.
        let from = at.saturating_sub(course.below(4));
        let run = &log.records[from..until];
        match event {
            6 => shard = fail(disk, shard, log, run, CommitFault::NotWritten),
            7 => shard = fail(disk, shard, log, run, CommitFault::UncertainAndLost),
            8 => shard = fail(disk, shard, log, run, CommitFault::UncertainAndKept),
            _ => {}
        }
        let applied = behind(&shard, log);
        assert!(applied == at || applied == until, "a commit was half applied");
        let committed = shard.commit(run).expect("the store answers");
        expected.check(&committed, applied, until);
        at = until;
        let digest = state_digest(shard.store()).expect("the store answers");
        assert_eq!(digest, expected.digests[at - 1], "state behind record {}", at - 1);
    }
    audit::assert_consistent(shard.store());
}

/// How many records of the log the shard has applied.
fn behind<S: Store>(shard: &Shard<S>, log: &RandomLog) -> usize {
    let Some(applied) = shard.applied_position() else { return 0 };
    log.records.iter().position(|record| record.position == *applied).expect("a record of this log") + 1
}

fn reopen<D: Disk>(disk: &D, shard: Shard<D::Store>, log: &RandomLog) -> Shard<D::Store> {
    drop(shard);
    Shard::open(disk.open(), log.identity).expect("it was open before")
}

fn finish<D: Disk>(disk: &D, log: &RandomLog, expected: &Expected, at: usize) {
    let mut shard = Shard::open(disk.open(), log.identity).expect("a checkpoint opens");
    let committed = shard.commit(&log.records).expect("the store answers");
    expected.check(&committed, at, log.records.len());
    assert_eq!(
        Some(&state_digest(shard.store()).expect("the store answers")),
        expected.digests.last(),
        "from a checkpoint"
    );
    audit::assert_consistent(shard.store());
}

/// Tries a run whose commit fails, where the store can be told to. What was not written is tried again by the same shard;
/// where the store cannot say, it is opened again.
fn fail<D: Disk>(
    disk: &D,
    shard: Shard<D::Store>,
    log: &RandomLog,
    run: &[SourceRecord],
    fault: CommitFault,
) -> Shard<D::Store> {
    let mut store = shard.into_store();
    D::fail_next_commit(&mut store, fault);
    let mut shard = Shard::open(store, log.identity).expect("it was open before");
    raise_marks(&mut shard);
    match shard.commit(run) {
        Ok(_) | Err(RunError::Commit(CommitError::NotWritten(_))) => shard,
        Err(RunError::Commit(CommitError::OutcomeUncertain(_))) => {
            assert!(shard.commit(run).is_err(), "an uncertain store takes no more");
            reopen(disk, shard, log)
        }
        Err(error) => panic!("{error}"),
    }
}

/// Tells the shard the truth about where due keys begin, as the scheduler does.
fn raise_marks<S: Store>(shard: &mut Shard<S>) {
    for (lane_no, _) in query::lanes(shard.store()).expect("the store answers") {
        let (from, until) = timeline::due_from(lane_no, DueKey::MIN);
        let first = shard.store().scan(Family::Timeline, &from, &until, 1).expect("the store answers");
        let first = first.first().map(|(key, _)| DueKey::decode(key).expect("a due key").1.eligible_at_ms);
        shard.raise_low_water(lane_no, first.unwrap_or(i64::MAX));
    }
}
