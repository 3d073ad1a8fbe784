//! Drops rows behind their logical end while RocksDB compacts.
//!
//! A row whose end is at or before the shard's `closed` watermark is absent for apply, queries and the digest already, so
//! dropping it costs nothing and nobody can notice when it happens. RocksDB turns a row that the filter removes into a
//! tombstone wherever an older version of the key may lie below, so a removed row never uncovers an older one; where nothing can
//! lie below, the row just goes.
//!
//! Open snapshots do not protect rows from the filter. That is fine for the same reason.

use std::ffi::CStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use rocksdb::CompactionDecision;
use rocksdb::compaction_filter::CompactionFilter;
use rocksdb::compaction_filter_factory::{CompactionFilterContext, CompactionFilterFactory};
use shard::state::envelope;

const NAME: &CStr = c"nereus-delay.logical-end";

/// Up to where ends may be acted on, shared by the store and its compactions.
#[derive(Clone, Debug)]
pub(crate) struct ReleasedThrough(Arc<AtomicI64>);

impl ReleasedThrough {
    /// Nothing is released yet.
    pub(crate) fn new() -> ReleasedThrough {
        ReleasedThrough(Arc::new(AtomicI64::new(i64::MIN)))
    }

    pub(crate) fn advance(&self, closed_through_ms: i64) {
        self.0.fetch_max(closed_through_ms, Ordering::Relaxed);
    }

    fn get(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Makes one filter a compaction.
pub(crate) struct EndFilterFactory {
    pub(crate) released_through: ReleasedThrough,
}

impl CompactionFilterFactory for EndFilterFactory {
    type Filter = EndFilter;

    fn create(&mut self, _: CompactionFilterContext) -> EndFilter {
        EndFilter { closed_through_ms: self.released_through.get() }
    }

    fn name(&self) -> &CStr {
        NAME
    }
}

/// The filter of one compaction, with the watermark as it stood at its start.
pub(crate) struct EndFilter {
    closed_through_ms: i64,
}

impl CompactionFilter for EndFilter {
    fn filter(&mut self, _: u32, _: &[u8], value: &[u8]) -> CompactionDecision {
        if envelope::has_ended(value, self.closed_through_ms) {
            CompactionDecision::Remove
        } else {
            CompactionDecision::Keep
        }
    }

    fn name(&self) -> &CStr {
        NAME
    }
}
