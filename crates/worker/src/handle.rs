//! How the rest of the process talks to a shard: append, await a verdict, read, watch.
//!
//! A [`ShardHandle`] is cheap to clone and may be used from any thread. Commands do not pass through the shard's own thread: they
//! are appended to its log and their results awaited; reads run on snapshots on the caller's thread.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use ports::log::{AppendError, Barrier, ReadError, ShardLog};
use protocol::id::{CommandId, ShardId};
use protocol::position::SourcePosition;
use shard::machine::verdict::RecordResult;
use shard::query::{self, PositionResult};
use shard::state::MessageUuid;
use shard::state::generation::MessageState;
use shard::state::row;
use shard::store::{Read, Reader, StoreError};
use tokio::sync::{mpsc, oneshot, watch};

use crate::lifecycle::ShardLifecycle;
use crate::report::LaneReport;
use crate::verdicts::VerdictRing;

/// What a shard says of itself.
#[derive(Clone, Debug, PartialEq)]
pub struct ShardStatus {
    /// Where it is in its lifecycle.
    pub lifecycle: ShardLifecycle,
    /// Why, for states that have a reason.
    pub reason: String,
    /// The epoch it holds or last held.
    pub owner_epoch: u64,
    /// The last applied record.
    pub applied: Option<SourcePosition>,
    /// What its commits have moved.
    pub progress: row::Progress,
}

impl ShardStatus {
    pub(crate) fn unassigned() -> ShardStatus {
        ShardStatus {
            lifecycle: ShardLifecycle::Unassigned,
            reason: String::new(),
            owner_epoch: 0,
            applied: None,
            progress: row::Progress::default(),
        }
    }

    /// Whether the shard answers commands and queries.
    pub fn is_active(&self) -> bool {
        self.lifecycle == ShardLifecycle::ActiveForCommands
    }

    fn has_applied(&self, position: &SourcePosition) -> bool {
        let compare = |applied: &SourcePosition| applied.compare(position);
        self.applied.as_ref().and_then(compare).is_some_and(std::cmp::Ordering::is_ge)
    }
}

/// A question to the shard's own thread.
pub(crate) enum ShardRequest {
    /// How the lanes are.
    Lanes(oneshot::Sender<Vec<LaneReport>>),
}

/// Why a shard does not answer.
#[derive(Debug, thiserror::Error)]
pub enum ShardError {
    /// No owner is active here now; try again.
    #[error("shard {shard} is {lifecycle}: {reason}")]
    NotActive {
        /// Which shard.
        shard: ShardId,
        /// Where it is.
        lifecycle: ShardLifecycle,
        /// Why.
        reason: String,
    },
    /// The store did not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The log did not answer.
    #[error(transparent)]
    Log(#[from] ReadError),
    /// The shard's task has ended.
    #[error("shard {shard} has stopped")]
    Stopped {
        /// Which shard.
        shard: ShardId,
    },
    /// Too many callers wait.
    #[error("{waiting} callers wait for messages of shard {shard} to end already")]
    TooManyWaiting {
        /// Which shard.
        shard: ShardId,
        /// How many.
        waiting: usize,
    },
}

/// A reader whose type is forgotten, so that handles of any store look the same.
pub(crate) trait AnyReader: Send + Sync {
    fn read(&self, visit: &mut dyn FnMut(&dyn Read));
}

impl<R: Reader> AnyReader for R {
    fn read(&self, visit: &mut dyn FnMut(&dyn Read)) {
        Reader::read(self, visit);
    }
}

/// State shared between a shard's task and its handles.
pub(crate) struct Shared {
    pub(crate) status: watch::Sender<ShardStatus>,
    pub(crate) verdicts: VerdictRing,
    pub(crate) reader: Mutex<Option<Arc<dyn AnyReader>>>,
    pub(crate) end_watchers: EndWatchers,
}

/// Callers that wait for a message's generation to end.
pub(crate) struct EndWatchers {
    capacity: usize,
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    count: usize,
    by_message: BTreeMap<MessageUuid, Vec<oneshot::Sender<MessageState>>>,
}

impl EndWatchers {
    pub(crate) fn new(capacity: usize) -> EndWatchers {
        EndWatchers { capacity, waiting: Mutex::default() }
    }

    fn watch(&self, message: MessageUuid) -> Result<oneshot::Receiver<MessageState>, usize> {
        let mut waiting = self.lock();
        if waiting.count >= self.capacity {
            // Callers that gave up still take room; sweep them out before refusing.
            waiting.by_message.retain(|_, senders| {
                senders.retain(|sender| !sender.is_closed());
                !senders.is_empty()
            });
            waiting.count = waiting.by_message.values().map(Vec::len).sum();
        }
        if waiting.count >= self.capacity {
            return Err(waiting.count);
        }
        let (sender, receiver) = oneshot::channel();
        waiting.count += 1;
        waiting.by_message.entry(message).or_default().push(sender);
        Ok(receiver)
    }

    pub(crate) fn ended(&self, message: MessageUuid, state: MessageState) {
        let mut waiting = self.lock();
        if waiting.count == 0 {
            return;
        }
        let Some(senders) = waiting.by_message.remove(&message) else { return };
        waiting.count -= senders.len();
        for sender in senders {
            // A caller that gave up does not mind.
            let _ = sender.send(state);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The way to one shard.
#[derive(Clone)]
pub struct ShardHandle {
    pub(crate) shard: ShardId,
    pub(crate) log: Arc<dyn ShardLog>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) requests: mpsc::Sender<ShardRequest>,
}

impl ShardHandle {
    /// Which shard.
    pub fn shard(&self) -> ShardId {
        self.shard
    }

    /// What it says of itself now.
    pub fn status(&self) -> ShardStatus {
        self.shared.status.borrow().clone()
    }

    /// What it says of itself from now on, for those who follow it. Steps that come too fast are skipped.
    pub fn watch_status(&self) -> watch::Receiver<ShardStatus> {
        self.shared.status.subscribe()
    }

    /// Waits until the shard is active.
    ///
    /// # Errors
    /// [`ShardError::NotActive`] when it has failed for good, [`ShardError::Stopped`] when its task has ended.
    pub async fn active(&self) -> Result<(), ShardError> {
        let mut status = self.shared.status.subscribe();
        let settled = status
            .wait_for(|status| status.is_active() || status.lifecycle == ShardLifecycle::Failed)
            .await
            .map_err(|_| ShardError::Stopped { shard: self.shard })?
            .clone();
        if settled.is_active() { Ok(()) } else { Err(self.not_active(&settled)) }
    }

    /// Appends frames to the shard's log and returns their positions once they are durable: QUEUED.
    ///
    /// # Errors
    /// [`AppendError`].
    pub async fn append(&self, frames: Vec<Bytes>) -> Result<Vec<SourcePosition>, AppendError> {
        self.log.append(frames).await
    }

    /// Waits until everything through a position is applied. Dropping the future is how a caller gives up.
    ///
    /// # Errors
    /// [`ShardError`] when the shard stops or fails first.
    pub async fn applied(&self, position: &SourcePosition) -> Result<(), ShardError> {
        let mut status = self.shared.status.subscribe();
        let settled = status
            .wait_for(|status| status.has_applied(position) || status.lifecycle == ShardLifecycle::Failed)
            .await
            .map_err(|_| ShardError::Stopped { shard: self.shard })?
            .clone();
        if settled.has_applied(position) { Ok(()) } else { Err(self.not_active(&settled)) }
    }

    /// What the command at an applied position came to.
    ///
    /// # Errors
    /// [`ShardError`] when the store does not answer.
    pub fn result_at(&self, position: &SourcePosition, command: CommandId) -> Result<PositionResult, ShardError> {
        let order_token = position.order_token();
        match self.shared.verdicts.get(&order_token) {
            Some(RecordResult::Command { verdict, .. } | RecordResult::Duplicate { verdict, .. }) => {
                Ok(PositionResult::Command(verdict))
            }
            Some(RecordResult::Position(verdict)) => Ok(PositionResult::Exception(verdict)),
            Some(RecordResult::Owner { .. } | RecordResult::Control { .. }) => Ok(PositionResult::Unknown),
            None => self.read(|read| query::result_at(read, order_token.as_bytes(), command.uuid.to_bytes())),
        }
    }

    /// What the record at an applied position came to, if that is recent.
    pub fn recent_result(&self, position: &SourcePosition) -> Option<RecordResult> {
        self.shared.verdicts.get(&position.order_token())
    }

    /// Waits until everything appended before this call is applied: behind it, a read shows every acknowledged write.
    ///
    /// # Errors
    /// [`ShardError`].
    pub async fn barrier(&self) -> Result<(), ShardError> {
        match self.log.barrier().await? {
            Barrier::Empty => Ok(()),
            Barrier::Through(position) => self.applied(&position).await,
        }
    }

    /// Reads one consistent state. The closure runs on this thread.
    ///
    /// # Errors
    /// [`ShardError::NotActive`] when no store is open here, or what the closure returns.
    pub fn read<T>(&self, read: impl FnOnce(&dyn Read) -> Result<T, StoreError>) -> Result<T, ShardError> {
        let reader = self.shared.reader.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(reader) = reader else { return Err(self.not_active(&self.status())) };
        let mut read = Some(read);
        let mut result = None;
        reader.read(&mut |snapshot| result = read.take().map(|read| read(snapshot)));
        match result {
            Some(result) => Ok(result?),
            None => Err(ShardError::Stopped { shard: self.shard }),
        }
    }

    /// Resolves when a message's current generation ends. Check its state afterwards: it may have ended before.
    ///
    /// # Errors
    /// [`ShardError::TooManyWaiting`].
    pub fn watch_end(&self, message: MessageUuid) -> Result<oneshot::Receiver<MessageState>, ShardError> {
        let shard = self.shard;
        self.shared.end_watchers.watch(message).map_err(|waiting| ShardError::TooManyWaiting { shard, waiting })
    }

    /// How the lanes are, from the owner's memory.
    ///
    /// # Errors
    /// [`ShardError`] when the shard is not active here.
    pub async fn lanes(&self) -> Result<Vec<LaneReport>, ShardError> {
        let status = self.status();
        if !status.is_active() {
            return Err(self.not_active(&status));
        }
        let (sender, receiver) = oneshot::channel();
        let stopped = || ShardError::Stopped { shard: self.shard };
        self.requests.send(ShardRequest::Lanes(sender)).await.map_err(|_| stopped())?;
        receiver.await.map_err(|_| stopped())
    }

    fn not_active(&self, status: &ShardStatus) -> ShardError {
        ShardError::NotActive { shard: self.shard, lifecycle: status.lifecycle, reason: status.reason.clone() }
    }
}
