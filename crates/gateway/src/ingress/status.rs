//! How ingresses are: for operators, and for metrics.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use client::api::ingress::{IngressRecords, IngressState};
use control::ingress::IngressRecord;
use ports::source::SourcePartition;
use tokio::sync::watch;

/// How one partition is that this server has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PartitionStatus {
    /// Everything below is settled; `None` before that was read.
    pub(crate) floor: Option<u64>,
    /// Where the partition ends, as it was last heard of.
    pub(crate) end: Option<u64>,
    /// What keeps its records waiting.
    pub(crate) reason: Option<String>,
}

impl PartitionStatus {
    /// Offsets from the floor to the end.
    pub(crate) fn lag(&self) -> Option<u64> {
        Some(self.end?.saturating_sub(self.floor?))
    }
}

/// How an ingress is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Status {
    /// Whether it is a member of its group.
    pub(crate) is_open: bool,
    /// What keeps it from being one.
    pub(crate) reason: Option<String>,
    /// The last thing that went wrong.
    pub(crate) last_error: Option<String>,
    /// By partition.
    pub(crate) partitions: BTreeMap<SourcePartition, PartitionStatus>,
}

impl Status {
    /// In one word, and what keeps it from taking records.
    pub(crate) fn state(&self, paused: bool) -> (IngressState, Option<String>) {
        let waits = || self.partitions.values().find_map(|partition| partition.reason.clone());
        match (paused, self.reason.clone().or_else(waits)) {
            (true, _) => (IngressState::Paused, None),
            (false, Some(reason)) => (IngressState::Failed, Some(reason)),
            (false, None) if self.is_open => (IngressState::Running, None),
            (false, None) => (IngressState::Starting, None),
        }
    }

    /// Records that are not settled, over all partitions; `None` while that is not known of one.
    pub(crate) fn lag(&self) -> Option<u64> {
        self.partitions.values().map(PartitionStatus::lag).sum()
    }
}

/// What became of records.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(super) scheduled: AtomicU64,
    pub(super) rescheduled: AtomicU64,
    pub(super) canceled: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) skipped: AtomicU64,
    errors: AtomicU64,
}

impl Counters {
    pub(crate) fn records(&self) -> IngressRecords {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        IngressRecords {
            scheduled: load(&self.scheduled),
            rescheduled: load(&self.rescheduled),
            canceled: load(&self.canceled),
            refused: load(&self.refused),
            skipped: load(&self.skipped),
        }
    }

    pub(crate) fn errors(&self) -> u64 {
        self.errors.load(Ordering::Relaxed)
    }
}

/// An ingress as this server knows it.
pub(crate) struct Entry {
    /// Its record; `None` once it is deleted.
    record: watch::Sender<Option<Arc<IngressRecord>>>,
    is_alive: AtomicBool,
    status: Mutex<Status>,
    pub(crate) counters: Counters,
}

impl Entry {
    pub(super) fn new(record: IngressRecord) -> Entry {
        Entry {
            record: watch::Sender::new(Some(Arc::new(record))),
            is_alive: AtomicBool::new(false),
            status: Mutex::default(),
            counters: Counters::default(),
        }
    }

    pub(crate) fn record(&self) -> Option<Arc<IngressRecord>> {
        self.record.borrow().clone()
    }

    /// Whether its life has yet to begin; it does by this.
    pub(super) fn begins(&self) -> bool {
        !self.is_alive.swap(true, Ordering::Relaxed)
    }

    pub(super) fn follow(&self) -> watch::Receiver<Option<Arc<IngressRecord>>> {
        self.record.subscribe()
    }

    /// Takes what the record says now; the same again changes nothing.
    pub(super) fn put(&self, record: Option<IngressRecord>) {
        self.record.send_if_modified(|current| {
            let is_same = current.as_deref() == record.as_ref();
            if !is_same {
                *current = record.map(Arc::new);
            }
            !is_same
        });
    }

    pub(crate) fn status(&self) -> Status {
        self.lock().clone()
    }

    pub(super) fn change(&self, change: impl FnOnce(&mut Status)) {
        change(&mut self.lock());
    }

    /// Changes what is known of a partition, as long as this server has it.
    pub(super) fn change_partition(&self, partition: &SourcePartition, change: impl FnOnce(&mut PartitionStatus)) {
        if let Some(status) = self.lock().partitions.get_mut(partition) {
            change(status);
        }
    }

    /// Something went wrong that will be tried again.
    pub(super) fn failed(&self, reason: &str) {
        self.counters.errors.fetch_add(1, Ordering::Relaxed);
        self.lock().last_error = Some(reason.to_owned());
    }

    fn lock(&self) -> MutexGuard<'_, Status> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
