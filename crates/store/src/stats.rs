//! What a store tells metrics.

use std::ffi::CStr;
use std::sync::atomic::{AtomicU64, Ordering};

use rocksdb::properties;
use shard::store::Family;

use crate::engine::Engine;

/// A property the bindings have no name for.
const LIVE_BLOB_FILE_BYTES: &CStr = c"rocksdb.live-blob-file-size";

/// Figures of one store. The counts are since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreStats {
    /// Commits that returned.
    pub commit_count: u64,
    /// Keys they put or deleted.
    pub key_count: u64,
    /// Bytes of those keys and values.
    pub byte_count: u64,
    /// Memtables of this store, in bytes.
    pub memtable_bytes: u64,
    /// Tables on disk that hold live rows, in bytes.
    pub table_bytes: u64,
    /// Blob files on disk, in bytes.
    pub blob_bytes: u64,
    /// What compaction is behind, in bytes.
    pub pending_compaction_bytes: u64,
    /// Whether the engine refuses writes until it has flushed or compacted.
    pub is_write_stopped: bool,
    /// The rate to which the engine slows writes down, in bytes per second; zero when it does not.
    pub delayed_write_rate: u64,
}

/// Counted by the writer, read by anyone.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    commit_count: AtomicU64,
    key_count: AtomicU64,
    byte_count: AtomicU64,
}

impl Counters {
    pub(crate) fn count(&self, keys: usize, bytes: usize) {
        self.commit_count.fetch_add(1, Ordering::Relaxed);
        self.key_count.fetch_add(keys as u64, Ordering::Relaxed);
        self.byte_count.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

/// The figures now. A property the engine does not answer counts as zero.
pub(crate) fn collect(engine: &Engine, counters: &Counters) -> StoreStats {
    let db = engine.db();
    let sum = |property: &CStr| {
        Family::ALL
            .into_iter()
            .filter_map(|family| db.property_int_value_cf(engine.family(family), property).ok().flatten())
            .sum()
    };
    let whole = |property: &CStr| db.property_int_value(property).ok().flatten().unwrap_or(0);
    StoreStats {
        commit_count: counters.commit_count.load(Ordering::Relaxed),
        key_count: counters.key_count.load(Ordering::Relaxed),
        byte_count: counters.byte_count.load(Ordering::Relaxed),
        memtable_bytes: sum(properties::CUR_SIZE_ALL_MEM_TABLES.as_c_str()),
        table_bytes: sum(properties::LIVE_SST_FILES_SIZE.as_c_str()),
        blob_bytes: sum(LIVE_BLOB_FILE_BYTES),
        pending_compaction_bytes: sum(properties::ESTIMATE_PENDING_COMPACTION_BYTES.as_c_str()),
        is_write_stopped: whole(properties::IS_WRITE_STOPPED.as_c_str()) != 0,
        delayed_write_rate: whole(properties::ACTUAL_DELAYED_WRITE_RATE.as_c_str()),
    }
}
