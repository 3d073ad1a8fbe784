//! What the writer has to do, in the order it was asked: bounded by bytes and by count.
//!
//! One budget holds both bounds: a command takes its bytes, but at least the share of the whole that one command has. Whoever
//! finds no room waits for it without blocking a thread, first come first served.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use ports::metadata::ChangeError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::append::{AppendError, Appended, AttemptsRow};
use crate::metadata::MetadataChange;
use crate::partition::PartitionState;
use crate::retention::TrimError;
use crate::topic::{CreateTopicError, NewTopic, TopicState};

pub(crate) struct AppendCommand {
    pub(crate) partition: Arc<PartitionState>,
    pub(crate) records: Vec<Bytes>,
    pub(crate) attempts: Option<AttemptsRow>,
    pub(crate) reply: oneshot::Sender<Result<Appended, AppendError>>,
}

pub(crate) struct TrimCommand {
    pub(crate) partition: Arc<PartitionState>,
    pub(crate) below_offset: u64,
    pub(crate) reply: oneshot::Sender<Result<u64, TrimError>>,
}

pub(crate) struct CreateTopicCommand {
    pub(crate) topic: NewTopic,
    pub(crate) reply: oneshot::Sender<Result<Arc<TopicState>, CreateTopicError>>,
}

pub(crate) struct ChangeCommand {
    pub(crate) change: MetadataChange,
    pub(crate) reply: oneshot::Sender<Result<u64, ChangeError>>,
}

pub(crate) struct FenceCommand {
    pub(crate) scope: Bytes,
    pub(crate) epoch: u64,
    pub(crate) reply: oneshot::Sender<u64>,
}

/// Something for the writer to do.
pub(crate) enum Command {
    Append(AppendCommand),
    Trim(TrimCommand),
    CreateTopic(CreateTopicCommand),
    Change(ChangeCommand),
    Fence(FenceCommand),
    /// The session is over: its ephemeral records go.
    EndSession {
        session: u64,
    },
}

impl Command {
    /// What it takes of the queue and of a group, in bytes.
    pub(crate) fn byte_count(&self) -> usize {
        match self {
            Command::Append(append) => {
                let attempts = append.attempts.as_ref().map_or(0, |row| row.scope.len() + 24 * row.entries.len());
                append.records.iter().map(|record| record.len() + 4).sum::<usize>() + attempts
            }
            Command::Change(command) => command.change.byte_count(),
            Command::Fence(_) | Command::Trim(_) | Command::CreateTopic(_) | Command::EndSession { .. } => 0,
        }
    }
}

/// A command and the room it takes until the writer is done with it.
pub(crate) struct Queued {
    pub(crate) command: Command,
    pub(crate) byte_count: usize,
    pub(crate) _room: Option<OwnedSemaphorePermit>,
}

/// The queue takes nothing any more.
#[derive(Clone, Debug)]
pub(crate) struct QueueClosed {
    pub(crate) reason: String,
}

#[derive(Default)]
struct State {
    commands: VecDeque<Queued>,
    closed: Option<QueueClosed>,
}

pub(crate) struct Queue {
    state: Mutex<State>,
    not_empty: Condvar,
    room: Arc<Semaphore>,
    room_bytes: u32,
    room_bytes_min: u32,
}

impl Queue {
    pub(crate) fn new(bytes_max: usize, count_max: usize) -> Queue {
        let room_bytes = u32::try_from(bytes_max).unwrap_or(u32::MAX).max(1);
        let count_max = u32::try_from(count_max).unwrap_or(u32::MAX).clamp(1, room_bytes);
        Queue {
            state: Mutex::default(),
            not_empty: Condvar::new(),
            room: Arc::new(Semaphore::new(room_bytes as usize)),
            room_bytes,
            room_bytes_min: room_bytes / count_max,
        }
    }

    fn room_of(&self, byte_count: usize) -> u32 {
        u32::try_from(byte_count).unwrap_or(u32::MAX).clamp(self.room_bytes_min, self.room_bytes)
    }

    /// Takes a place now, or gives the command back when there is no room. A closed queue gives it back too: `push` then
    /// says why.
    pub(crate) fn try_push(&self, command: Command) -> Result<(), Command> {
        let byte_count = command.byte_count();
        match Arc::clone(&self.room).try_acquire_many_owned(self.room_of(byte_count)) {
            Ok(room) => self.put(command, byte_count, Some(room)).map_err(|(command, _)| command),
            Err(_) => Err(command),
        }
    }

    /// Waits for room and takes a place.
    pub(crate) async fn push(&self, command: Command) -> Result<(), QueueClosed> {
        let byte_count = command.byte_count();
        let Ok(room) = Arc::clone(&self.room).acquire_many_owned(self.room_of(byte_count)).await else {
            return Err(self.lock().closed.clone().expect("the room is closed after the queue"));
        };
        self.put(command, byte_count, Some(room)).map_err(|(_, closed)| closed)
    }

    /// Takes a place whether there is room or not: there are no more of these than sessions. Does nothing on a closed queue.
    pub(crate) fn push_end_of_session(&self, session: u64) {
        let _ = self.put(Command::EndSession { session }, 0, None);
    }

    fn put(
        &self,
        command: Command,
        byte_count: usize,
        room: Option<OwnedSemaphorePermit>,
    ) -> Result<(), (Command, QueueClosed)> {
        let mut state = self.lock();
        if let Some(closed) = &state.closed {
            let closed = closed.clone();
            return Err((command, closed));
        }
        state.commands.push_back(Queued { command, byte_count, _room: room });
        let was_empty = state.commands.len() == 1;
        drop(state);
        if was_empty {
            self.not_empty.notify_one();
        }
        Ok(())
    }

    /// The oldest commands, about `bytes_max` of them; waits for one. Empty once the queue is closed and everything was
    /// taken.
    pub(crate) fn take(&self, bytes_max: usize) -> Vec<Queued> {
        let mut state = self.lock();
        while state.commands.is_empty() && state.closed.is_none() {
            state = self.not_empty.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let mut byte_count = 0;
        let count = state.commands.iter().take_while(|queued| {
            let is_taken = byte_count < bytes_max;
            byte_count += queued.byte_count;
            is_taken
        });
        let count = count.count();
        state.commands.drain(..count).collect()
    }

    /// Takes nothing any more; what is queued can still be taken. The first reason stays.
    pub(crate) fn close(&self, reason: &str) {
        self.lock().closed.get_or_insert_with(|| QueueClosed { reason: reason.to_owned() });
        self.room.close();
        self.not_empty.notify_all();
    }

    /// Why it is closed.
    pub(crate) fn closed(&self) -> Option<QueueClosed> {
        self.lock().closed.clone()
    }

    /// Bytes that wait, or are being written.
    pub(crate) fn byte_count(&self) -> usize {
        self.room_bytes as usize - self.room.available_permits()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing that can panic happens between two changes under this lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
