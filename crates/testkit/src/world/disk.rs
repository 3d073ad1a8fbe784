//! Disks of a world: stores in memory whose commits can be made to fail, and whose commits are seen in the event log.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use shard::memory::{CommitFault, MemoryDisk, MemoryReader, MemoryStore};
use shard::state::digest::state_digest;
use shard::store::{Batch, CommitError, Family, Pair, Read, Store, StoreError};

use super::World;
use super::shared::Shared;

#[derive(Debug, Default)]
struct Plan {
    commits: u64,
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
        WorldDisk { shared: world.shared().clone(), name: name.into(), disk: MemoryDisk::new(), plan: Arc::default() }
    }

    /// A copy that shares nothing, as a checkpoint would be.
    pub fn fork(&self, name: &str) -> WorldDisk {
        WorldDisk { name: name.into(), disk: self.disk.fork(), plan: Arc::default(), shared: self.shared.clone() }
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
        Ok(WorldStore { store: self.disk.open(), disk: self.clone() })
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
    pub fn digest(&self) -> [u8; 32] {
        state_digest(&self.disk.fork().open()).expect("a store in memory answers")
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
        let mut plan = self.disk.plan();
        plan.commits += 1;
        let commit = plan.commits;
        let fault = plan.fault.take_if(|(failing, _)| *failing == commit).map(|(_, fault)| fault);
        drop(plan);
        if let Some(fault) = fault {
            self.store.fail_next_commit(fault);
        }
        let keys = batch.len();
        let committed = self.store.commit(batch);
        let outcome = match &committed {
            Ok(()) => "committed",
            Err(CommitError::NotWritten(_)) => "not written",
            Err(CommitError::OutcomeUncertain(_)) => "outcome uncertain",
        };
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
