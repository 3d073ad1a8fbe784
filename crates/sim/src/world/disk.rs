//! Disks of a world: stores in memory whose commits can be made to fail, and whose commits are seen in the event log.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use fastrand::Rng;
use protocol::hash::Hash;
use protocol::position::SourcePosition;
use shard::memory::{CommitFault, MemoryDisk, MemoryReader, MemoryStore};
use shard::planted::{self, Mistake};
use shard::query;
use shard::state::digest::state_digest;
use shard::state::keys::meta;
use shard::state::{envelope, row};
use shard::store::{Batch, Change, CommitError, Family, Pair, Read, Store, StoreError};

use super::World;
use super::random::chance;
use super::shared::Shared;

/// A commit that took effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskCommit {
    /// When, in true time.
    pub at_us: i64,
    /// How many records of the log are applied behind it.
    pub applied: u64,
}

/// What a commit changed, the other way round.
type Undo = Vec<(Family, Bytes, Option<Bytes>)>;

#[derive(Debug)]
struct Plan {
    commits: u64,
    committed: Vec<DiskCommit>,
    /// How often commits fail, of a hundred, in a way of chance.
    faults_percent: u8,
    random: Rng,
    /// What is lost when the host stops now. Nothing, unless a store answers before it has synced.
    unsynced: Vec<Undo>,
    /// The commit, counted from 1, that fails.
    fault: Option<(u64, CommitFault)>,
    /// Whether opening fails, and how.
    unopenable: Option<String>,
}

/// A shard's disk on one host. It outlives every process.
#[derive(Clone)]
pub struct WorldDisk {
    shared: Arc<Shared>,
    name: Arc<str>,
    disk: MemoryDisk,
    plan: Arc<Mutex<Plan>>,
}

impl WorldDisk {
    /// An empty disk.
    pub fn new(world: &World, name: &str) -> WorldDisk {
        WorldDisk::over(world.shared().clone(), name, MemoryDisk::new())
    }

    fn over(shared: Arc<Shared>, name: &str, disk: MemoryDisk) -> WorldDisk {
        let plan = Plan {
            commits: 0,
            committed: Vec::new(),
            faults_percent: 0,
            random: shared.stream(name),
            unsynced: Vec::new(),
            fault: None,
            unopenable: None,
        };
        WorldDisk { shared, name: name.into(), disk, plan: Arc::new(Mutex::new(plan)) }
    }

    /// A copy that shares nothing, as a checkpoint would be.
    pub fn fork(&self, name: &str) -> WorldDisk {
        WorldDisk::over(self.shared.clone(), name, self.disk.fork())
    }

    /// Opens the store on it; stores opened before are closed by that.
    ///
    /// # Errors
    /// When it was told to fail.
    pub fn open(&self) -> Result<WorldStore, StoreError> {
        if let Some(detail) = self.plan().unopenable.clone() {
            return Err(StoreError::Io { detail });
        }
        self.shared.event(format_args!("{} opened", self.name));
        let mut store = self.disk.open();
        self.lose_unsynced(&mut store)?;
        Ok(WorldStore { store, disk: self.clone() })
    }

    /// Whoever opens a store again was stopped before.
    fn lose_unsynced(&self, store: &mut MemoryStore) -> Result<(), StoreError> {
        let unsynced = std::mem::take(&mut self.plan().unsynced);
        let mut batch = Batch::default();
        for (family, key, before) in unsynced.into_iter().rev().flat_map(|undo| undo.into_iter().rev()) {
            match before {
                Some(value) => batch.put(family, key, value),
                None => batch.delete(family, key),
            }
        }
        if batch.is_empty() {
            return Ok(());
        }
        let lost = |error: CommitError| StoreError::Io { detail: error.to_string() };
        store.commit(batch).map_err(lost)
    }

    /// How often commits fail from now on, of a hundred: not written, or uncertain and either.
    pub fn set_faults(&self, percent: u8) {
        self.plan().faults_percent = percent;
    }

    /// Every commit that took effect, in their order.
    pub fn commits(&self) -> Vec<DiskCommit> {
        self.plan().committed.clone()
    }

    /// How many records of the log are applied on it, and the digest of the logical state they make.
    ///
    /// # Panics
    /// When the state cannot be read.
    pub fn state(&self) -> (u64, Hash) {
        let snapshot = self.snapshot();
        let applied = query::progress(&snapshot).ok().and_then(|progress| offset_behind(&progress)).unwrap_or(0);
        (applied, state_digest(&snapshot).expect("a store in memory answers"))
    }

    /// The commit after `skipped` more fails in this way.
    pub fn fail_commit(&self, skipped: u64, fault: CommitFault) {
        let mut plan = self.plan();
        plan.fault = Some((plan.commits + skipped + 1, fault));
    }

    /// Opening fails with this detail from now on, or works again.
    pub fn set_unopenable(&self, detail: Option<&str>) {
        self.plan().unopenable = detail.map(str::to_owned);
    }

    /// Commits that took effect.
    pub fn commit_count(&self) -> u64 {
        self.disk.commit_count()
    }

    /// The digest of the logical state on it.
    ///
    /// # Panics
    /// When the state cannot be read.
    pub fn digest(&self) -> Hash {
        self.state().1
    }

    /// The store that is on it, for a look that closes nothing.
    pub fn snapshot(&self) -> MemoryStore {
        self.disk.fork().open()
    }

    fn plan(&self) -> std::sync::MutexGuard<'_, Plan> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The single writer's handle on a [`WorldDisk`].
pub struct WorldStore {
    store: MemoryStore,
    disk: WorldDisk,
}

impl Read for WorldStore {
    fn get(&self, family: Family, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        self.store.get(family, key)
    }

    fn get_many(&self, family: Family, keys: &[&[u8]]) -> Result<Vec<Option<Bytes>>, StoreError> {
        self.store.get_many(family, keys)
    }

    fn scan(&self, family: Family, from: &[u8], until: &[u8], limit: usize) -> Result<Vec<Pair>, StoreError> {
        self.store.scan(family, from, until, limit)
    }
}

impl Store for WorldStore {
    type Reader = MemoryReader;

    fn commit(&mut self, batch: Batch) -> Result<(), CommitError> {
        const FAULTS: [CommitFault; 3] =
            [CommitFault::NotWritten, CommitFault::UncertainAndKept, CommitFault::UncertainAndLost];
        let mut plan = self.disk.plan();
        plan.commits += 1;
        let commit = plan.commits;
        let planned = plan.fault.take_if(|(failing, _)| *failing == commit).map(|(_, fault)| fault);
        let (percent, kind) = (plan.faults_percent, plan.random.usize(..FAULTS.len()));
        let by_chance = chance(&mut plan.random, percent).then(|| FAULTS[kind]);
        let is_unsynced = planted::is(Mistake::SkipSync) && plan.random.bool();
        drop(plan);
        let fault = planned.or(by_chance);
        if let Some(fault) = fault {
            self.store.fail_next_commit(fault);
        }
        let applied = applied_by(&batch);
        let undo = if is_unsynced { self.undo_of(&batch) } else { Undo::new() };
        let keys = batch.len();
        let committed = self.store.commit(batch);
        let outcome = match &committed {
            Ok(()) => "committed",
            Err(CommitError::NotWritten(_)) => "not written",
            Err(CommitError::OutcomeUncertain(_)) => "outcome uncertain",
        };
        if committed.is_ok() || fault == Some(CommitFault::UncertainAndKept) {
            let mut plan = self.disk.plan();
            let at_us = self.disk.shared.time.now_us();
            plan.committed.extend(applied.map(|applied| DiskCommit { at_us, applied }));
            if is_unsynced {
                plan.unsynced.push(undo);
            } else {
                plan.unsynced.clear();
            }
        }
        self.disk.shared.event(format_args!("{} {outcome} keys={keys}", self.disk.name));
        committed
    }

    fn reader(&self) -> MemoryReader {
        self.store.reader()
    }

    fn release_ended(&mut self, closed_through_ms: i64) {
        self.store.release_ended(closed_through_ms);
    }
}

impl WorldStore {
    fn undo_of(&self, batch: &Batch) -> Undo {
        let before = |(family, change): &(Family, Change)| {
            let (Change::Put(key, _) | Change::Delete(key)) = change;
            let value = self.store.get(*family, key).unwrap_or_default();
            (*family, key.clone(), value)
        };
        batch.changes().iter().map(before).collect()
    }
}

/// How many records of its log are applied once this is written.
fn applied_by(batch: &Batch) -> Option<u64> {
    let progress = batch.changes().iter().rev().find_map(|(family, change)| match change {
        Change::Put(key, value) if *family == Family::Meta && key[..] == *meta::PROGRESS => Some(value),
        _ => None,
    });
    envelope::decode(progress?).ok().and_then(|progress| offset_behind(&progress))
}

fn offset_behind(progress: &row::Progress) -> Option<u64> {
    match SourcePosition::from_bytes(&progress.applied_position) {
        Ok(SourcePosition::Embedded(position)) => Some(position.offset + 1),
        _ => None,
    }
}
