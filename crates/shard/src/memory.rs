//! A [`Store`] in memory, for tests, models and the simulator.
//!
//! It keeps what was committed apart from the handle that commits, as a disk does: [`MemoryDisk`] survives the crash of its
//! store and can be opened again, and [`CommitFault`] lets a test lose a commit before or after it took effect.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use bytes::Bytes;

use crate::state::envelope;
use crate::store::{Batch, Change, CommitError, Family, Pair, Read, Reader, Store, StoreError};

type Rows = BTreeMap<Bytes, Bytes>;

#[derive(Debug, Default)]
struct Contents {
    families: BTreeMap<Family, Rows>,
    /// Bumped at every open, so that handles of an earlier open (a crashed owner's) are refused.
    open_count: u64,
    commit_count: u64,
}

/// What survives a crash: the durable rows of one store.
#[derive(Clone, Debug, Default)]
pub struct MemoryDisk {
    contents: Arc<RwLock<Contents>>,
}

impl MemoryDisk {
    /// An empty disk.
    pub fn new() -> MemoryDisk {
        MemoryDisk::default()
    }

    /// Opens the disk. Handles from earlier opens are closed by it.
    pub fn open(&self) -> MemoryStore {
        let mut contents = self.write();
        contents.open_count += 1;
        let open_count = contents.open_count;
        drop(contents);
        MemoryStore { reader: MemoryReader { disk: self.clone(), open_count }, fault: None, closed: None }
    }

    /// A copy that shares nothing, as a checkpoint would.
    pub fn fork(&self) -> MemoryDisk {
        let families = self.read().families.clone();
        MemoryDisk { contents: Arc::new(RwLock::new(Contents { families, ..Contents::default() })) }
    }

    /// How many commits took effect since the disk was made.
    pub fn commit_count(&self) -> u64 {
        self.read().commit_count
    }

    fn read(&self) -> RwLockReadGuard<'_, Contents> {
        self.contents.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Contents> {
        self.contents.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What goes wrong at the next commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitFault {
    /// Nothing is written and the store says so.
    NotWritten,
    /// Nothing is written, and the store cannot say.
    UncertainAndLost,
    /// Everything is written, and the store cannot say.
    UncertainAndKept,
}

/// The single writer's handle on a [`MemoryDisk`].
#[derive(Debug)]
pub struct MemoryStore {
    reader: MemoryReader,
    fault: Option<CommitFault>,
    closed: Option<String>,
}

impl MemoryStore {
    /// A store on a new disk.
    pub fn new() -> MemoryStore {
        MemoryDisk::new().open()
    }

    /// The disk below, which outlives this handle.
    pub fn disk(&self) -> MemoryDisk {
        self.reader.disk.clone()
    }

    /// Makes the next commit fail in this way.
    pub fn fail_next_commit(&mut self, fault: CommitFault) {
        self.fault = Some(fault);
    }

    fn check_open(&self) -> Result<(), StoreError> {
        match &self.closed {
            Some(reason) => Err(StoreError::Closed { reason: reason.clone() }),
            None => Ok(()),
        }
    }

    fn close_uncertain(&mut self) -> CommitError {
        let reason = "write outcome uncertain".to_owned();
        self.closed = Some(reason.clone());
        CommitError::OutcomeUncertain(StoreError::Closed { reason })
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        MemoryStore::new()
    }
}

impl Read for MemoryStore {
    fn get(&self, family: Family, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        self.check_open()?;
        self.reader.snapshot()?.get(family, key)
    }

    fn get_many(&self, family: Family, keys: &[&[u8]]) -> Result<Vec<Option<Bytes>>, StoreError> {
        self.check_open()?;
        self.reader.snapshot()?.get_many(family, keys)
    }

    fn scan(&self, family: Family, from: &[u8], until: &[u8], limit: usize) -> Result<Vec<Pair>, StoreError> {
        self.check_open()?;
        self.reader.snapshot()?.scan(family, from, until, limit)
    }
}

impl Store for MemoryStore {
    type Reader = MemoryReader;

    fn commit(&mut self, batch: Batch) -> Result<(), CommitError> {
        self.check_open().map_err(CommitError::NotWritten)?;
        let fault = self.fault.take();
        match fault {
            Some(CommitFault::NotWritten) => {
                return Err(CommitError::NotWritten(StoreError::Io { detail: "injected".to_owned() }));
            }
            Some(CommitFault::UncertainAndLost) => return Err(self.close_uncertain()),
            Some(CommitFault::UncertainAndKept) | None => {}
        }
        let mut contents = self.reader.disk.write();
        if contents.open_count != self.reader.open_count {
            return Err(CommitError::NotWritten(reopened()));
        }
        for (family, change) in batch.changes() {
            let rows = contents.families.entry(*family).or_default();
            match change {
                Change::Put(key, value) => {
                    rows.insert(key.clone(), value.clone());
                }
                Change::Delete(key) => {
                    rows.remove(key);
                }
            }
        }
        contents.commit_count += 1;
        drop(contents);
        match fault {
            Some(_) => Err(self.close_uncertain()),
            None => Ok(()),
        }
    }

    fn reader(&self) -> MemoryReader {
        self.reader.clone()
    }

    fn release_ended(&mut self, closed_through_ms: i64) {
        let mut contents = self.reader.disk.write();
        for rows in contents.families.values_mut() {
            rows.retain(|_, value| envelope::logical_end(value).is_none_or(|end_ms| end_ms > closed_through_ms));
        }
    }
}

fn reopened() -> StoreError {
    StoreError::Closed { reason: "the store was opened again".to_owned() }
}

/// Reads from other threads.
#[derive(Clone, Debug)]
pub struct MemoryReader {
    disk: MemoryDisk,
    open_count: u64,
}

impl MemoryReader {
    fn snapshot(&self) -> Result<Snapshot<'_>, StoreError> {
        let contents = self.disk.read();
        if contents.open_count == self.open_count { Ok(Snapshot { contents }) } else { Err(reopened()) }
    }
}

impl Reader for MemoryReader {
    fn read<T>(&self, read: impl FnOnce(&dyn Read) -> T) -> T {
        match self.snapshot() {
            Ok(snapshot) => read(&snapshot),
            Err(_) => read(&Reopened),
        }
    }
}

struct Snapshot<'a> {
    contents: RwLockReadGuard<'a, Contents>,
}

impl Read for Snapshot<'_> {
    fn get(&self, family: Family, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        Ok(self.contents.families.get(&family).and_then(|rows| rows.get(key)).cloned())
    }

    fn get_many(&self, family: Family, keys: &[&[u8]]) -> Result<Vec<Option<Bytes>>, StoreError> {
        keys.iter().map(|key| self.get(family, key)).collect()
    }

    fn scan(&self, family: Family, from: &[u8], until: &[u8], limit: usize) -> Result<Vec<Pair>, StoreError> {
        let Some(rows) = self.contents.families.get(&family) else { return Ok(Vec::new()) };
        if from >= until {
            return Ok(Vec::new());
        }
        let range = (Bound::Included(from), Bound::Excluded(until));
        Ok(rows.range::<[u8], _>(range).take(limit).map(|(key, value)| (key.clone(), value.clone())).collect())
    }
}

/// What a reader of an earlier open sees.
struct Reopened;

impl Read for Reopened {
    fn get(&self, _: Family, _: &[u8]) -> Result<Option<Bytes>, StoreError> {
        Err(reopened())
    }

    fn get_many(&self, _: Family, _: &[&[u8]]) -> Result<Vec<Option<Bytes>>, StoreError> {
        Err(reopened())
    }

    fn scan(&self, _: Family, _: &[u8], _: &[u8], _: usize) -> Result<Vec<Pair>, StoreError> {
        Err(reopened())
    }
}
