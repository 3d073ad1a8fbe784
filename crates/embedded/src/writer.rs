//! The one thread that writes.
//!
//! It takes whatever is queued, puts all of it into one batch, commits that with one sync, and only then shows and answers it:
//! group commit. While it waits for the disk the next group gathers behind it, so the cost of a sync is shared by as
//! many as wait.
//!
//! A commit that fails leaves the outcome of its whole group unknown (see the `store` crate on what a failed write means), so
//! the engine answers just that to each of them and closes itself.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use ports::metadata::ChangeError;
use tokio::sync::oneshot;

use crate::append::{AppendError, Appended};
use crate::core::{Core, Counters};
use crate::database::Database;
use crate::group::{Done, Group};
use crate::metadata::MetadataWriter;
use crate::partition::PartitionState;
use crate::queue::{AppendCommand, Command, CreateTopicCommand, FenceCommand, Queued, TrimCommand};
use crate::retention::TrimError;
use crate::topic::{CreateTopicError, TopicState};

/// An answer that waits for the group's commit.
pub(crate) enum Answer {
    Appended(oneshot::Sender<Result<Appended, AppendError>>, Appended),
    Trimmed(oneshot::Sender<Result<u64, TrimError>>, u64),
    Created(oneshot::Sender<Result<Arc<TopicState>, CreateTopicError>>, Arc<TopicState>),
    Changed(oneshot::Sender<Result<u64, ChangeError>>, u64),
    Fenced(oneshot::Sender<u64>, u64),
}

impl Answer {
    /// Whoever asked may be gone; what was done stands all the same.
    fn give(self) {
        match self {
            Answer::Appended(reply, appended) => drop(reply.send(Ok(appended))),
            Answer::Trimmed(reply, start) => drop(reply.send(Ok(start))),
            Answer::Created(reply, topic) => drop(reply.send(Ok(topic))),
            Answer::Changed(reply, version) => drop(reply.send(Ok(version))),
            Answer::Fenced(reply, epoch) => drop(reply.send(epoch)),
        }
    }

    fn give_unknown(self, reason: &str) {
        let reason = reason.to_owned();
        match self {
            Answer::Appended(reply, _) => drop(reply.send(Err(AppendError::Unknown { reason }))),
            Answer::Trimmed(reply, _) => drop(reply.send(Err(TrimError::Unknown { reason }))),
            Answer::Created(reply, _) => drop(reply.send(Err(CreateTopicError::Unknown { reason }))),
            Answer::Changed(reply, _) => drop(reply.send(Err(ChangeError::Unknown { reason }))),
            // A fence is not stored: without an answer the caller knows that the engine is gone.
            Answer::Fenced(..) => {}
        }
    }
}

/// The newest runs in memory, oldest first over all partitions.
#[derive(Default)]
struct Tail {
    order: VecDeque<(Arc<PartitionState>, u64, usize)>,
    byte_count: usize,
}

impl Tail {
    fn push(&mut self, partition: &Arc<PartitionState>, first_offset: u64, byte_count: usize) {
        self.order.push_back((Arc::clone(partition), first_offset, byte_count));
        self.byte_count += byte_count;
    }

    fn shrink(&mut self, bytes_max: usize) {
        while self.byte_count > bytes_max {
            let Some((partition, first_offset, byte_count)) = self.order.pop_front() else { return };
            self.byte_count -= byte_count;
            let mut view = partition.view_mut();
            // It may have been trimmed before its turn came.
            if view.tail.front().is_some_and(|run| run.first_offset() == first_offset) {
                view.tail.pop_front();
            }
        }
    }
}

pub(crate) struct Writer {
    core: Arc<Core>,
    metadata: MetadataWriter,
    /// The highest epoch each scope was fenced at. Kept in memory only: whoever could append under a lower epoch is in this
    /// process, because the folder's lock keeps every other one out, and the queue such an append would come from ends with
    /// the process.
    fences: BTreeMap<Bytes, u64>,
    /// Commits that wrote something, for what is done every so many.
    commit_number: u64,
    tail: Tail,
}

impl Writer {
    pub(crate) fn new(core: Arc<Core>, metadata: MetadataWriter) -> Writer {
        Writer { core, metadata, fences: BTreeMap::new(), commit_number: 0, tail: Tail::default() }
    }

    /// Serves the queue until it is closed and empty, or a commit fails.
    pub(crate) fn run(mut self) {
        let core = Arc::clone(&self.core);
        let shut = ShutOnExit { core: &core };
        loop {
            let queued = core.queue.take(core.options.group_bytes_max);
            if queued.is_empty() {
                break;
            }
            let inside = core.gate.enter();
            let Ok(database) = inside.resource() else { break };
            let outcome = self.commit_group(database, queued);
            drop(inside);
            if let Err(error) = outcome {
                core.shut(&format!("a commit failed and its outcome is unknown: {error}"));
                break;
            }
        }
        drop(shut);
        // What is queued behind a failed group was never begun.
        let reason = core.closed_reason();
        core.queue.take(usize::MAX).into_iter().for_each(|queued| refuse_closed(queued.command, &reason));
    }

    fn commit_group(&mut self, database: &Database, queued: Vec<Queued>) -> Result<(), rocksdb::Error> {
        let now_ms = (self.core.append_time)();
        let mut group = Group::new(database, now_ms);
        let mut room = Vec::with_capacity(queued.len());
        let mut answers = Vec::with_capacity(queued.len());
        for Queued { command, _room, .. } in queued {
            room.push(_room);
            answers.extend(self.prepare(&mut group, command));
        }
        let done = match self.commit(group) {
            Ok(done) => done,
            Err(error) => {
                let reason = format!("the group commit failed: {error}");
                answers.into_iter().for_each(|answer| answer.give_unknown(&reason));
                return Err(error);
            }
        };
        for topic in done.topics {
            self.core.topics_mut().insert(topic);
        }
        for partition in done.partitions {
            for run in &partition.runs {
                self.tail.push(&partition.state, run.first_offset(), run.memory_bytes());
            }
            let counters = &self.core.counters;
            Counters::add(&counters.record_count, partition.record_count);
            Counters::add(&counters.record_bytes, partition.record_bytes);
            partition.show();
        }
        self.tail.shrink(self.core.options.tail_bytes_max);
        self.core.counters.tail_bytes.store(self.tail.byte_count as u64, Ordering::Relaxed);
        done.events.iter().for_each(|event| self.core.hub.publish(event));
        answers.into_iter().for_each(Answer::give);
        Ok(())
    }

    fn commit(&mut self, mut group: Group<'_>) -> Result<Done, rocksdb::Error> {
        if group.write() {
            self.commit_number += 1;
            self.core.counters.commit_count.store(self.commit_number, Ordering::Relaxed);
            group.forget(self.core.forgotten.take(self.commit_number));
            Counters::add(&self.core.counters.key_count, group.key_count() as u64);
        }
        group.commit()
    }

    /// Adds the command to the group, or refuses it at once.
    fn prepare(&mut self, group: &mut Group<'_>, command: Command) -> Option<Answer> {
        match command {
            Command::Append(append) => self.prepare_append(group, append),
            Command::Trim(TrimCommand { partition, below_offset, reply }) => match group.trim(&partition, below_offset)
            {
                Ok(start) => Some(Answer::Trimmed(reply, start)),
                Err(error) => refuse(reply, error),
            },
            Command::CreateTopic(CreateTopicCommand { topic, reply }) => {
                match group.create_topic(topic, &self.core.topics()) {
                    Ok(topic) => Some(Answer::Created(reply, topic)),
                    Err(error) => refuse(reply, error),
                }
            }
            Command::Change(command) => {
                match group.change_metadata(command.change, &mut self.metadata, &self.core.sessions) {
                    Ok(version) => Some(Answer::Changed(command.reply, version)),
                    Err(error) => refuse(command.reply, error),
                }
            }
            Command::Fence(FenceCommand { scope, epoch, reply }) => {
                let current = self.fences.entry(scope).or_default();
                *current = epoch.max(*current);
                Some(Answer::Fenced(reply, *current))
            }
            Command::EndSession { session } => {
                group.end_session(session, &mut self.metadata);
                None
            }
        }
    }

    fn prepare_append(&mut self, group: &mut Group<'_>, append: AppendCommand) -> Option<Answer> {
        let AppendCommand { partition, records, attempts, reply } = append;
        if let Some(row) = &attempts {
            let current = self.fences.get(&row.scope).copied().unwrap_or(0);
            if row.epoch < current {
                return refuse(reply, AppendError::Fenced { epoch: row.epoch, current });
            }
        }
        let appended = group.append(&partition, &records, attempts.as_ref());
        Some(Answer::Appended(reply, appended))
    }
}

fn refuse_closed(command: Command, reason: &str) {
    let reason = reason.to_owned();
    match command {
        Command::Append(append) => drop(append.reply.send(Err(AppendError::Closed { reason }))),
        Command::Trim(trim) => drop(trim.reply.send(Err(TrimError::Closed { reason }))),
        Command::CreateTopic(create) => drop(create.reply.send(Err(CreateTopicError::Closed { reason }))),
        Command::Change(change) => drop(change.reply.send(Err(ChangeError::Unavailable { reason }))),
        Command::Fence(_) | Command::EndSession { .. } => {}
    }
}

fn refuse<T, E>(reply: oneshot::Sender<Result<T, E>>, error: E) -> Option<Answer> {
    // Whoever asked may be gone.
    drop(reply.send(Err(error)));
    None
}

/// However the writer ends, also by a panic, nobody waits for it for ever.
struct ShutOnExit<'a> {
    core: &'a Core,
}

impl Drop for ShutOnExit<'_> {
    fn drop(&mut self) {
        self.core.shut("the writer is gone");
    }
}
