//! Reads from other threads, each on one snapshot.

use std::sync::{Arc, PoisonError, RwLock};

use bytes::Bytes;
use rocksdb::{ReadOptions, Snapshot};
use shard::store::{Family, Pair, Read, Reader, StoreError};

use crate::engine::Engine;

/// The database while it is open, and why it is not afterwards.
pub(crate) enum Gate {
    Open(Engine),
    Closed { reason: String },
}

impl Gate {
    pub(crate) fn engine(&self) -> Result<&Engine, StoreError> {
        match self {
            Gate::Open(engine) => Ok(engine),
            Gate::Closed { reason } => Err(StoreError::Closed { reason: reason.clone() }),
        }
    }
}

/// What a store and its readers share. Reads hold the lock shared; closing takes it alone, so that it waits for the reads
/// that run, and the database is gone when it returns, whoever still holds a handle.
pub(crate) type SharedGate = Arc<RwLock<Gate>>;

/// Closes the database, if it is open, for this reason.
pub(crate) fn close(gate: &SharedGate, reason: &str) {
    let mut gate = gate.write().unwrap_or_else(PoisonError::into_inner);
    if matches!(*gate, Gate::Open(_)) {
        *gate = Gate::Closed { reason: reason.to_owned() };
    }
}

/// A handle for reads from any thread. It keeps nothing open: once its store is closed every read answers
/// [`StoreError::Closed`].
///
/// A read must not start another one on the same store from inside its closure: a close that waits between the two would
/// wait for ever.
#[derive(Clone)]
pub struct RocksReader {
    gate: SharedGate,
}

impl RocksReader {
    pub(crate) fn new(gate: SharedGate) -> RocksReader {
        RocksReader { gate }
    }
}

impl Reader for RocksReader {
    fn read<T>(&self, read: impl FnOnce(&dyn Read) -> T) -> T {
        let gate = self.gate.read().unwrap_or_else(PoisonError::into_inner);
        match &*gate {
            Gate::Open(engine) => read(&SnapshotRead { engine, snapshot: engine.db().snapshot() }),
            Gate::Closed { reason } => read(&ClosedRead { reason }),
        }
    }
}

impl std::fmt::Debug for RocksReader {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("RocksReader").finish_non_exhaustive()
    }
}

struct SnapshotRead<'a> {
    engine: &'a Engine,
    snapshot: Snapshot<'a>,
}

impl SnapshotRead<'_> {
    fn options(&self) -> ReadOptions {
        let mut options = ReadOptions::default();
        options.set_snapshot(&self.snapshot);
        options
    }
}

impl Read for SnapshotRead<'_> {
    fn get(&self, family: Family, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        self.engine.get(family, key, &self.options())
    }

    fn get_many(&self, family: Family, keys: &[&[u8]]) -> Result<Vec<Option<Bytes>>, StoreError> {
        self.engine.get_many(family, keys, &self.options())
    }

    fn scan(&self, family: Family, from: &[u8], until: &[u8], limit: usize) -> Result<Vec<Pair>, StoreError> {
        self.engine.scan(family, from, until, limit, self.options())
    }
}

struct ClosedRead<'a> {
    reason: &'a str,
}

impl ClosedRead<'_> {
    fn error(&self) -> StoreError {
        StoreError::Closed { reason: self.reason.to_owned() }
    }
}

impl Read for ClosedRead<'_> {
    fn get(&self, _: Family, _: &[u8]) -> Result<Option<Bytes>, StoreError> {
        Err(self.error())
    }

    fn get_many(&self, _: Family, _: &[&[u8]]) -> Result<Vec<Option<Bytes>>, StoreError> {
        Err(self.error())
    }

    fn scan(&self, _: Family, _: &[u8], _: &[u8], _: usize) -> Result<Vec<Pair>, StoreError> {
        Err(self.error())
    }
}
