//! What the writer and every handle share.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use store::gate::Gate;
use tokio::sync::watch;

use crate::attempts::Forgotten;
use crate::database::Database;
use crate::metadata::Sessions;
use crate::options::EmbeddedOptions;
use crate::queue::Queue;
use crate::topic::Topics;
use crate::watch::WatchHub;

/// Tells the time for append stamps, in milliseconds since 1970.
pub type AppendTime = Arc<dyn Fn() -> i64 + Send + Sync>;

/// Counts since the engine was opened.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) record_count: AtomicU64,
    pub(crate) record_bytes: AtomicU64,
    pub(crate) commit_count: AtomicU64,
    pub(crate) key_count: AtomicU64,
    pub(crate) tail_bytes: AtomicU64,
}

impl Counters {
    pub(crate) fn add(counter: &AtomicU64, count: u64) {
        counter.fetch_add(count, Ordering::Relaxed);
    }
}

pub(crate) struct Core {
    pub(crate) options: EmbeddedOptions,
    pub(crate) append_time: AppendTime,
    pub(crate) gate: Gate<Database>,
    pub(crate) queue: Queue,
    pub(crate) topics: RwLock<Topics>,
    pub(crate) sessions: Sessions,
    pub(crate) hub: WatchHub,
    pub(crate) forgotten: Forgotten,
    pub(crate) is_closed: watch::Sender<bool>,
    pub(crate) counters: Counters,
}

impl Core {
    pub(crate) fn topics(&self) -> RwLockReadGuard<'_, Topics> {
        self.topics.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn topics_mut(&self) -> RwLockWriteGuard<'_, Topics> {
        self.topics.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Why nothing can be done any more.
    pub(crate) fn closed_reason(&self) -> String {
        self.queue.closed().map_or_else(|| "the writer is gone".to_owned(), |closed| closed.reason)
    }

    /// Ends everything: nothing more is taken, the database is let go of, and whoever waits is told. The first reason stays.
    pub(crate) fn shut(&self, reason: &str) {
        self.queue.close(reason);
        self.gate.close(reason);
        self.hub.close();
        self.is_closed.send_replace(true);
        for topic in self.topics().iter() {
            for partition in &topic.partitions {
                partition.announce_closed();
            }
        }
    }
}
