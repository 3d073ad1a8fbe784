//! One partition: what readers see of it, and the calls on it.

use std::collections::VecDeque;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use bytes::Bytes;
use tokio::sync::{oneshot, watch};

use crate::append::{APPEND_RECORDS_MAX, AppendError, Appended, AttemptsRow};
use crate::core::Core;
use crate::database::Table;
use crate::queue::{AppendCommand, Command, TrimCommand};
use crate::read::{ReadError, ReadLimit, ReadRun};
use crate::retention::{Retention, TrimError};
use crate::rows::PartitionKey;
use crate::run::Run;

/// What is durable of a partition, and its newest runs.
#[derive(Debug, Default)]
pub(crate) struct View {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) append_time_ms: i64,
    /// Record bytes ever appended.
    pub(crate) bytes: u64,
    /// The newest runs, without a gap up to `end`; may be empty.
    pub(crate) tail: VecDeque<Run>,
}

/// How far a partition is, for those who wait for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Progress {
    pub(crate) end: u64,
    pub(crate) is_closed: bool,
}

/// The part of a partition that the writer and all handles share.
#[derive(Debug)]
pub(crate) struct PartitionState {
    pub(crate) key: PartitionKey,
    pub(crate) table: Table,
    view: RwLock<View>,
    progress: watch::Sender<Progress>,
}

impl PartitionState {
    pub(crate) fn new(key: PartitionKey, table: Table, view: View) -> PartitionState {
        let progress = watch::Sender::new(Progress { end: view.end, is_closed: false });
        PartitionState { key, table, view: RwLock::new(view), progress }
    }

    pub(crate) fn view(&self) -> RwLockReadGuard<'_, View> {
        // Every change of a view is complete before anything that could panic.
        self.view.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn view_mut(&self) -> RwLockWriteGuard<'_, View> {
        self.view.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells those who wait that the end has moved.
    pub(crate) fn announce(&self, end: u64) {
        self.progress.send_modify(|progress| progress.end = end);
    }

    /// Tells those who wait that nothing more will come.
    pub(crate) fn announce_closed(&self) {
        self.progress.send_modify(|progress| progress.is_closed = true);
    }
}

/// A handle on one partition of a topic. Clones share it; it does not keep the engine open.
#[derive(Clone)]
pub struct Partition {
    core: Arc<Core>,
    state: Arc<PartitionState>,
    topic_id: [u8; 16],
}

impl Partition {
    pub(crate) fn new(core: Arc<Core>, state: Arc<PartitionState>, topic_id: [u8; 16]) -> Partition {
        Partition { core, state, topic_id }
    }

    /// Its number in the topic.
    pub fn index(&self) -> u32 {
        self.state.key.partition
    }

    /// The id of its topic.
    pub fn topic_id(&self) -> [u8; 16] {
        self.topic_id
    }

    /// Appends the records next to each other, and resolves once they are durable.
    ///
    /// Appends take their place when this is called if the queue has room, otherwise when the future is first polled. A
    /// future that is dropped before it resolves leaves the outcome unknown.
    ///
    /// # Errors
    /// [`AppendError`]; only [`AppendError::Unknown`] leaves open whether the records are there.
    pub fn append(
        &self,
        records: Vec<Bytes>,
    ) -> impl Future<Output = Result<Appended, AppendError>> + Send + 'static + use<> {
        self.queue_append(records, None)
    }

    /// [`append`](Self::append), with the attempts the records carry out.
    ///
    /// # Errors
    /// As for [`append`](Self::append); [`AppendError::Fenced`] once the scope is fenced at a higher epoch.
    pub fn append_attempts(
        &self,
        records: Vec<Bytes>,
        attempts: AttemptsRow,
    ) -> impl Future<Output = Result<Appended, AppendError>> + Send + 'static + use<> {
        self.queue_append(records, Some(attempts))
    }

    fn queue_append(
        &self,
        records: Vec<Bytes>,
        attempts: Option<AttemptsRow>,
    ) -> impl Future<Output = Result<Appended, AppendError>> + Send + 'static + use<> {
        let (reply, answer) = oneshot::channel();
        let checked = self.check(&records, attempts.as_ref());
        let command = Command::Append(AppendCommand { partition: Arc::clone(&self.state), records, attempts, reply });
        // Taking a place at once keeps appends in the order of their calls as long as there is room.
        let queued = checked.map(|()| self.core.queue.try_push(command));
        let core = Arc::clone(&self.core);
        async move {
            if let Err(command) = queued? {
                core.queue.push(command).await.map_err(|closed| AppendError::Closed { reason: closed.reason })?;
            }
            match answer.await {
                Ok(outcome) => outcome,
                Err(_) => Err(AppendError::Unknown { reason: core.closed_reason() }),
            }
        }
    }

    fn check(&self, records: &[Bytes], attempts: Option<&AttemptsRow>) -> Result<(), AppendError> {
        if records.is_empty() || records.len() > APPEND_RECORDS_MAX {
            return Err(AppendError::RecordCount { count: records.len() });
        }
        let bytes_max = self.core.options.record_bytes_max;
        if let Some((index, record)) = records.iter().enumerate().find(|(_, record)| record.len() > bytes_max) {
            return Err(AppendError::RecordTooLarge { index, bytes: record.len(), bytes_max });
        }
        match attempts {
            Some(row) if row.entries.len() != records.len() || row.scope.len() > usize::from(u16::MAX) => {
                Err(AppendError::Attempts {
                    attempts: row.entries.len(),
                    records: records.len(),
                    scope_bytes: row.scope.len(),
                })
            }
            _ => Ok(()),
        }
    }

    /// Reads durable records from `offset` on, from memory when they are new and from disk otherwise. At the end it returns
    /// none.
    ///
    /// # Errors
    /// [`ReadError`]; [`ReadError::OffsetOutOfRange`] before the start and beyond the end.
    pub fn read(&self, offset: u64, limit: ReadLimit) -> Result<ReadRun, ReadError> {
        crate::read::read(&self.core, &self.state, offset, limit)
    }

    /// The offset of the oldest record that is kept; the end when none is.
    pub fn start_offset(&self) -> u64 {
        self.state.view().start
    }

    /// The offset the next record will have. Everything before it is durable.
    pub fn end_offset(&self) -> u64 {
        self.state.view().end
    }

    /// Offset and append time of the newest record, whether it is still kept or not; `None` when there never was one.
    pub fn last(&self) -> Option<(u64, i64)> {
        let view = self.state.view();
        view.end.checked_sub(1).map(|offset| (offset, view.append_time_ms))
    }

    /// Resolves with the end once that is beyond `offset`: once the record at `offset` can be read.
    ///
    /// # Errors
    /// [`ReadError::Closed`] when the engine closes before.
    pub fn wait_beyond(&self, offset: u64) -> impl Future<Output = Result<u64, ReadError>> + Send + 'static + use<> {
        let mut progress = self.state.progress.subscribe();
        let core = Arc::clone(&self.core);
        async move {
            let reached = progress.wait_for(|progress| progress.end > offset || progress.is_closed).await;
            match reached.as_deref().copied() {
                Ok(Progress { end, .. }) if end > offset => Ok(end),
                _ => Err(ReadError::Closed { reason: core.closed_reason() }),
            }
        }
    }

    /// Lets everything before `below_offset` go, durably, and returns the new start: the given offset, or the old start
    /// when that is later.
    ///
    /// # Errors
    /// [`TrimError`]; [`TrimError::BeyondEnd`] for an offset that no record has yet and that is not the next one.
    pub fn trim(&self, below_offset: u64) -> impl Future<Output = Result<u64, TrimError>> + Send + 'static + use<> {
        let (reply, answer) = oneshot::channel();
        let partition = Arc::clone(&self.state);
        let command = Command::Trim(TrimCommand { partition, below_offset, reply });
        let core = Arc::clone(&self.core);
        async move {
            core.queue.push(command).await.map_err(|closed| TrimError::Closed { reason: closed.reason })?;
            match answer.await {
                Ok(outcome) => outcome,
                Err(_) => Err(TrimError::Unknown { reason: core.closed_reason() }),
            }
        }
    }

    /// Trims the oldest records as far as `retention` does not want them kept, but never at or above `below_offset`, and
    /// returns the new start.
    ///
    /// # Errors
    /// [`TrimError`].
    pub fn retain(
        &self,
        retention: Retention,
        below_offset: u64,
    ) -> impl Future<Output = Result<u64, TrimError>> + Send + 'static + use<> {
        let partition = self.clone();
        async move {
            let target = crate::retention::target(&partition.core, &partition.state, retention, below_offset)?;
            if target <= partition.start_offset() {
                return Ok(partition.start_offset());
            }
            partition.trim(target).await
        }
    }
}

impl std::fmt::Debug for Partition {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Partition").field("key", &self.state.key).finish_non_exhaustive()
    }
}
