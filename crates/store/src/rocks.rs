//! One shard's store: the single writer.
//!
//! # What a failed write means
//!
//! RocksDB appends a batch to its write-ahead log, syncs the log, and only then inserts it into the memtables. When the append or
//! the sync fails, the batch may be in the log file or not, and whether it survives a crash is unknown: the kernel reports a
//! failed write-back once and may forget the page afterwards. RocksDB then refuses further writes until it is told to resume.
//! We never tell it: a commit that fails closes the store, every later call answers [`StoreError::Closed`], and the way
//! on is to open the folder again. Opening reads what the log really holds, writes it to tables and syncs those, so what the
//! store then shows is durable, and the shard goes on from the position it finds there.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use rocksdb::checkpoint::Checkpoint;
use rocksdb::{BottommostLevelCompaction, CompactOptions, FlushOptions, ReadOptions, WriteBatch, WriteOptions};
use shard::store::{Batch, Change, CommitError, Family, Pair, Read, Store, StoreError};

use crate::database::{self, OpenError};
use crate::end_filter::ReleasedThrough;
use crate::engine::{Engine, store_error};
use crate::format_file::{self, Expected, FormatError};
use crate::gate::Gate;
use crate::reader::{RocksReader, closed};
use crate::resources::StoreResources;
use crate::stats::{self, Counters, StoreStats};
use crate::tuning;

const KIND: &str = "shard-store";
/// Of the folder's layout and the families' names; the rows' own format is the core's business.
const VERSION: u32 = 1;

/// Bytes a batch spends on a key beside key and value: tag, family and two lengths.
const KEY_OVERHEAD_BYTES: usize = 8;

/// What may be set for one store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreOptions {
    /// When a family's memtable is written to disk, in bytes, unless memory runs short before. Default 64 MiB.
    ///
    /// An idle store keeps about 2 % of it and 1 MiB in memory.
    pub write_buffer_bytes_max: usize,
    /// How much write-ahead log is kept, and so read at the next open, in bytes. Default 192 MiB.
    pub log_bytes_max: u64,
    /// How long a row behind its logical end may stay on disk in a table that nothing else compacts. Default a day.
    pub periodic_compaction: Duration,
}

impl Default for StoreOptions {
    fn default() -> Self {
        StoreOptions {
            write_buffer_bytes_max: 64 << 20,
            log_bytes_max: 192 << 20,
            periodic_compaction: Duration::from_secs(24 * 60 * 60),
        }
    }
}

/// A shard's store. Dropping it closes it, as [`RocksStore::close`] does.
pub struct RocksStore {
    gate: Gate<Engine>,
    folder: PathBuf,
    incarnation: [u8; 16],
    released_through: ReleasedThrough,
    counters: Counters,
    synced: WriteOptions,
    latest: ReadOptions,
}

impl RocksStore {
    /// Opens the store in `folder`, or makes it there when the folder is empty or absent.
    ///
    /// `identity` says whose store it is, in bytes that mean something to the caller (route and partition); a store is
    /// opened only with the identity it was made with. `new_incarnation` is given to a store that is made now.
    ///
    /// # Errors
    /// [`OpenError`]; every one names the path, and what was found where something else was expected.
    pub fn open(
        folder: &Path,
        identity: &[u8],
        new_incarnation: [u8; 16],
        resources: &StoreResources,
        options: &StoreOptions,
    ) -> Result<RocksStore, OpenError> {
        let released_through = ReleasedThrough::new();
        let expected = Expected { kind: KIND, version_max: VERSION, identity };
        let mut database_options = resources.database_options();
        database_options.set_max_total_wal_size(options.log_bytes_max);
        let families = tuning::families(resources, options, &released_through);
        let (db, format) = database::open(folder, &expected, new_incarnation, database_options, families)?;
        let mut synced = WriteOptions::default();
        synced.set_sync(true);
        Ok(RocksStore {
            gate: Gate::new(Engine::new(db)),
            folder: folder.to_owned(),
            incarnation: format.incarnation,
            released_through,
            counters: Counters::default(),
            synced,
            latest: ReadOptions::default(),
        })
    }

    /// Refuses a folder that a newer build has written, without touching it.
    ///
    /// # Errors
    /// [`FormatError::Newer`] only.
    pub fn refuse_newer(folder: &Path) -> Result<(), FormatError> {
        format_file::refuse_newer(folder, VERSION)
    }

    /// The folder it is in.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The id this store was given when it was made.
    pub fn incarnation(&self) -> [u8; 16] {
        self.incarnation
    }

    /// Closes the store: waits for the reads that run, then lets go of the folder. Readers that linger answer
    /// [`StoreError::Closed`]; the folder can be opened again at once.
    pub fn close(self) {
        self.gate.close("it was closed by its owner");
    }

    /// Writes every memtable to disk. Commits are durable without it; it shortens the next open.
    ///
    /// # Errors
    /// [`StoreError`] when the store is closed or the disk refuses.
    pub fn flush(&self) -> Result<(), StoreError> {
        self.with_engine(|engine| {
            let mut options = FlushOptions::default();
            options.set_wait(true);
            let families: Vec<_> = Family::ALL.into_iter().map(|family| engine.family(family)).collect();
            engine.db().flush_cfs_opt(&families, &options).map_err(store_error)
        })
    }

    /// Rewrites every table: rows behind their logical end and overwritten versions are gone afterwards. For tests,
    /// benchmarks and operators; reads everything there is.
    ///
    /// # Errors
    /// [`StoreError`] when the store is closed or the disk refuses.
    pub fn compact(&self) -> Result<(), StoreError> {
        self.flush()?;
        self.with_engine(|engine| {
            let mut options = CompactOptions::default();
            options.set_bottommost_level_compaction(BottommostLevelCompaction::Force);
            for family in Family::ALL {
                engine.db().compact_range_cf_opt(engine.family(family), None::<&[u8]>, None::<&[u8]>, &options);
            }
            Ok(())
        })
    }

    /// Writes a copy of the database as it is now to `target`, which must not exist. Tables are linked, not copied, when
    /// it is on the same file system.
    ///
    /// # Errors
    /// [`StoreError`] when the store is closed or the disk refuses.
    pub fn checkpoint(&self, target: &Path) -> Result<(), StoreError> {
        self.with_engine(|engine| {
            let checkpoint = Checkpoint::new(engine.db()).map_err(store_error)?;
            checkpoint.create_checkpoint(target).map_err(store_error)
        })
    }

    /// Figures for metrics. Cheap: counters and a few properties the engine keeps.
    ///
    /// # Errors
    /// [`StoreError::Closed`].
    pub fn stats(&self) -> Result<StoreStats, StoreError> {
        self.with_engine(|engine| Ok(stats::collect(engine, &self.counters)))
    }

    fn with_engine<T>(&self, call: impl FnOnce(&Engine) -> Result<T, StoreError>) -> Result<T, StoreError> {
        call(self.gate.enter().resource().map_err(closed)?)
    }

    fn write(&self, engine: &Engine, batch: &Batch) -> Result<(), rocksdb::Error> {
        let families = Family::ALL.map(|family| engine.family(family));
        let mut write = WriteBatch::with_capacity_bytes(batch.byte_count() + batch.len() * KEY_OVERHEAD_BYTES + 16);
        for (family, change) in batch.changes() {
            let family = families[*family as usize - 1];
            match change {
                Change::Put(key, value) => write.put_cf(family, key, value),
                Change::Delete(key) => write.delete_cf(family, key),
            }
        }
        engine.db().write_opt(write, &self.synced)
    }
}

impl Read for RocksStore {
    fn get(&self, family: Family, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        self.with_engine(|engine| engine.get(family, key, &self.latest))
    }

    fn get_many(&self, family: Family, keys: &[&[u8]]) -> Result<Vec<Option<Bytes>>, StoreError> {
        self.with_engine(|engine| engine.get_many(family, keys, &self.latest))
    }

    fn scan(&self, family: Family, from: &[u8], until: &[u8], limit: usize) -> Result<Vec<Pair>, StoreError> {
        self.with_engine(|engine| engine.scan(family, from, until, limit, ReadOptions::default()))
    }
}

impl Store for RocksStore {
    type Reader = RocksReader;

    fn commit(&mut self, batch: Batch) -> Result<(), CommitError> {
        let inside = self.gate.enter();
        let engine = inside.resource().map_err(|reason| CommitError::NotWritten(closed(reason)))?;
        if batch.is_empty() {
            return Ok(());
        }
        match self.write(engine, &batch) {
            Ok(()) => {
                self.counters.count(batch.len(), batch.byte_count());
                Ok(())
            }
            Err(error) => {
                drop(inside);
                self.gate.close(&format!("a commit failed and its outcome is unknown: {error}"));
                Err(CommitError::OutcomeUncertain(store_error(error)))
            }
        }
    }

    fn reader(&self) -> RocksReader {
        RocksReader::new(self.gate.clone())
    }

    /// Rows go when their table is compacted. The watermark must be durable before it is passed here.
    fn release_ended(&mut self, closed_through_ms: i64) {
        self.released_through.advance(closed_through_ms);
    }
}

impl Drop for RocksStore {
    fn drop(&mut self) {
        self.gate.close("its owner dropped it");
    }
}

impl std::fmt::Debug for RocksStore {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("RocksStore").field("folder", &self.folder).finish_non_exhaustive()
    }
}
