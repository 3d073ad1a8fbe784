//! Reads from other threads, each on one snapshot.

use bytes::Bytes;
use rocksdb::{ReadOptions, Snapshot};
use shard::store::{Family, Pair, Read, Reader, StoreError};

use crate::engine::Engine;
use crate::gate::Gate;

/// What every call on a closed store answers.
pub(crate) fn closed(reason: &str) -> StoreError {
    StoreError::Closed { reason: reason.to_owned() }
}

/// A handle for reads from any thread. It keeps nothing open: once its store is closed every read answers
/// [`StoreError::Closed`].
///
/// A read must not start another one on the same store from inside its closure: a close that waits between the two would
/// wait for ever.
#[derive(Clone)]
pub struct RocksReader {
    gate: Gate<Engine>,
}

impl RocksReader {
    pub(crate) fn new(gate: Gate<Engine>) -> RocksReader {
        RocksReader { gate }
    }
}

impl Reader for RocksReader {
    fn read<T>(&self, read: impl FnOnce(&dyn Read) -> T) -> T {
        match self.gate.enter().resource() {
            Ok(engine) => read(&SnapshotRead { engine, snapshot: engine.db().snapshot() }),
            Err(reason) => read(&ClosedRead { reason }),
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

impl Read for ClosedRead<'_> {
    fn get(&self, _: Family, _: &[u8]) -> Result<Option<Bytes>, StoreError> {
        Err(closed(self.reason))
    }

    fn get_many(&self, _: Family, _: &[&[u8]]) -> Result<Vec<Option<Bytes>>, StoreError> {
        Err(closed(self.reason))
    }

    fn scan(&self, _: Family, _: &[u8], _: &[u8], _: usize) -> Result<Vec<Pair>, StoreError> {
        Err(closed(self.reason))
    }
}
