//! One group commit while it is put together.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use ports::metadata::{ChangeError, WatchEvent};

use crate::append::{Appended, AttemptsRow};
use crate::database::{Changes, Database, DatabaseError, Table};
use crate::metadata::{MetadataChange, MetadataGroup, MetadataWriter, Sessions};
use crate::partition::{PartitionState, View};
use crate::retention::TrimError;
use crate::rows::{AttemptsKey, PartitionKey, PartitionRow, TopicRow, attempts_bound, encode_attempts};
use crate::run::{Run, RunBuilder};
use crate::topic::{CreateTopicError, Namespace, NewTopic, TopicState, Topics};

/// A partition as it will be once the group is durable.
struct Pending {
    state: Arc<PartitionState>,
    start: u64,
    end: u64,
    append_time_ms: i64,
    bytes: u64,
    builder: Option<RunBuilder>,
    runs: Vec<Run>,
    record_bytes: u64,
    /// Runs before this offset go.
    drop_below: Option<u64>,
}

impl Pending {
    fn new(state: &Arc<PartitionState>, now_ms: i64) -> Pending {
        let view = state.view();
        Pending {
            state: Arc::clone(state),
            start: view.start,
            end: view.end,
            append_time_ms: view.append_time_ms.max(now_ms),
            bytes: view.bytes,
            builder: None,
            runs: Vec::new(),
            record_bytes: 0,
            drop_below: None,
        }
    }

    fn append(&mut self, records: &[Bytes]) -> Appended {
        let first_offset = self.end;
        let mut byte_count: usize = records.iter().map(Bytes::len).sum();
        let mut count = records.len();
        for record in records {
            if self.builder.as_ref().is_some_and(RunBuilder::is_full) {
                self.finish_run();
            }
            let builder = self.builder.get_or_insert_with(|| {
                let mut builder = RunBuilder::new(self.end, self.append_time_ms, self.bytes);
                builder.reserve(count, byte_count.min(crate::run::RUN_BYTES_MAX));
                builder
            });
            builder.push(record);
            self.end += 1;
            self.bytes += record.len() as u64;
            self.record_bytes += record.len() as u64;
            byte_count -= record.len();
            count -= 1;
        }
        Appended { first_offset, append_time_ms: self.append_time_ms }
    }

    fn finish_run(&mut self) {
        self.runs.extend(self.builder.take().and_then(RunBuilder::finish));
    }

    fn trim(&mut self, database: &Database, below_offset: u64) -> Result<u64, TrimError> {
        if below_offset > self.end {
            return Err(TrimError::BeyondEnd { below_offset, end: self.end });
        }
        if below_offset <= self.start {
            return Ok(self.start);
        }
        // From here on runs are whole, so that the boundary is one between runs.
        self.finish_run();
        let boundary = if below_offset == self.end { self.end } else { self.run_start(database, below_offset)? };
        self.start = below_offset;
        self.drop_below = Some(boundary);
        Ok(below_offset)
    }

    /// The first offset of the run that holds `offset`.
    fn run_start(&self, database: &Database, offset: u64) -> Result<u64, TrimError> {
        let holds = |run: &&Run| run.first_offset() <= offset && offset < run.end_offset();
        if let Some(run) = self.runs.iter().find(holds) {
            return Ok(run.first_offset());
        }
        if let Some(run) = self.state.view().tail.iter().find(holds) {
            return Ok(run.first_offset());
        }
        let mut found = None;
        let read = database.runs(self.state.table, self.state.key, offset, |run| {
            found = Some(run.first_offset());
            Ok(false)
        });
        read.map_err(|error| TrimError::Read(error.into()))?;
        found.filter(|first_offset| *first_offset <= offset).ok_or_else(|| {
            let detail = format!("nothing is stored at offset {offset}");
            TrimError::Read(DatabaseError::Corrupt(detail).into())
        })
    }

    fn write(&mut self, changes: &mut Changes<'_>) {
        self.finish_run();
        let PartitionState { key, table, .. } = *self.state;
        for run in &self.runs {
            changes.put(table, key.run(run.first_offset()), run.row());
        }
        if let Some(boundary) = self.drop_below {
            let Pending { start, end, append_time_ms, bytes, .. } = *self;
            changes.put(Table::Meta, key.row_key(), PartitionRow { start, end, append_time_ms, bytes }.encode());
            changes.delete_range(table, key.run(0), key.run(boundary));
        }
    }

    fn done(self) -> DonePartition {
        let Pending { state, start, end, append_time_ms, bytes, runs, record_bytes, .. } = self;
        let record_count = end - state.view().end;
        DonePartition { state, start, end, append_time_ms, bytes, runs, record_count, record_bytes }
    }
}

/// A partition whose changes are durable but not shown yet.
pub(crate) struct DonePartition {
    pub(crate) state: Arc<PartitionState>,
    start: u64,
    end: u64,
    append_time_ms: i64,
    bytes: u64,
    pub(crate) runs: Vec<Run>,
    pub(crate) record_count: u64,
    pub(crate) record_bytes: u64,
}

impl DonePartition {
    /// Lets readers see the changes, and wakes those who wait for the end.
    pub(crate) fn show(self) {
        {
            let mut view = self.state.view_mut();
            view.tail.extend(self.runs);
            while view.tail.front().is_some_and(|run| run.end_offset() <= self.start) {
                view.tail.pop_front();
            }
            view.start = self.start;
            view.end = self.end;
            view.append_time_ms = self.append_time_ms;
            view.bytes = self.bytes;
        }
        if self.record_count > 0 {
            self.state.announce(self.end);
        }
    }
}

/// What became durable with a group.
pub(crate) struct Done {
    pub(crate) partitions: Vec<DonePartition>,
    pub(crate) topics: Vec<Arc<TopicState>>,
    pub(crate) events: Vec<WatchEvent>,
}

pub(crate) struct Group<'a> {
    database: &'a Database,
    now_ms: i64,
    changes: Changes<'a>,
    partitions: BTreeMap<PartitionKey, Pending>,
    topics: Vec<Arc<TopicState>>,
    metadata: MetadataGroup,
}

impl<'a> Group<'a> {
    pub(crate) fn new(database: &'a Database, now_ms: i64) -> Group<'a> {
        Group {
            database,
            now_ms,
            changes: Changes::new(database),
            partitions: BTreeMap::new(),
            topics: Vec::new(),
            metadata: MetadataGroup::default(),
        }
    }

    fn partition(&mut self, state: &Arc<PartitionState>) -> &mut Pending {
        self.partitions.entry(state.key).or_insert_with(|| Pending::new(state, self.now_ms))
    }

    pub(crate) fn append(
        &mut self,
        partition: &Arc<PartitionState>,
        records: &[Bytes],
        attempts: Option<&AttemptsRow>,
    ) -> Appended {
        let appended = self.partition(partition).append(records);
        if let Some(row) = attempts {
            let AttemptsRow { scope, order, entries, .. } = row;
            let Appended { first_offset, append_time_ms } = appended;
            let key = AttemptsKey { order: *order, partition: partition.key, first_offset };
            let key = key.encode(scope).expect("the scope's length was checked when the append was queued");
            self.changes.put(Table::Attempts, key, encode_attempts(append_time_ms, entries));
        }
        appended
    }

    pub(crate) fn trim(&mut self, partition: &Arc<PartitionState>, below_offset: u64) -> Result<u64, TrimError> {
        let database = self.database;
        self.partition(partition).trim(database, below_offset)
    }

    /// Creates the topic, or finds the one there is.
    pub(crate) fn create_topic(&mut self, new: NewTopic, topics: &Topics) -> Result<Arc<TopicState>, CreateTopicError> {
        let NewTopic { name, partition_count, id } = new;
        let pending = |name: &str| self.topics.iter().find(|topic| topic.name == name);
        if let Some(topic) = topics.get(&name).or_else(|| pending(&name)) {
            return match u32::try_from(topic.partitions.len()) {
                Ok(existing) if existing != partition_count => {
                    Err(CreateTopicError::OtherPartitionCount { name, existing, asked: partition_count })
                }
                _ => Ok(Arc::clone(topic)),
            };
        }
        if let Some(owner) = topics.iter().chain(&self.topics).find(|topic| topic.id == id) {
            return Err(CreateTopicError::IdInUse { name, id, owner: owner.name.clone() });
        }
        let topic_no = topics.next_no() + u32::try_from(self.topics.len()).expect("fewer than 2^32 topics a group");
        let table = Namespace::of(&name).table();
        let partitions = (0..partition_count)
            .map(|partition| {
                let key = PartitionKey { topic_no, partition };
                Arc::new(PartitionState::new(key, table, View::default()))
            })
            .collect();
        self.changes.put(Table::Meta, TopicRow::key(&name), TopicRow { topic_no, partition_count, id }.encode());
        let topic = Arc::new(TopicState { name, id, topic_no, partitions });
        self.topics.push(Arc::clone(&topic));
        Ok(topic)
    }

    pub(crate) fn change_metadata(
        &mut self,
        change: MetadataChange,
        writer: &mut MetadataWriter,
        sessions: &Sessions,
    ) -> Result<u64, ChangeError> {
        writer.apply(change, &mut self.metadata, self.database, &mut self.changes, sessions)
    }

    pub(crate) fn end_session(&mut self, session: u64, writer: &mut MetadataWriter) {
        writer.end_session(session, &mut self.metadata, &mut self.changes);
    }

    /// Puts the partitions' changes into the batch; returns whether there is anything to commit.
    pub(crate) fn write(&mut self) -> bool {
        for partition in self.partitions.values_mut() {
            partition.write(&mut self.changes);
        }
        !self.changes.is_empty()
    }

    /// Deletes the scopes' attempts below the orders.
    pub(crate) fn forget(&mut self, forgotten: BTreeMap<Bytes, u64>) {
        for (scope, below_order) in forgotten {
            // A scope too long to be stored has no rows.
            if let (Some(from), Some(until)) = (attempts_bound(&scope, 0), attempts_bound(&scope, below_order)) {
                self.changes.delete_range(Table::Attempts, from, until);
            }
        }
    }

    /// Keys that the commit puts or deletes.
    pub(crate) fn key_count(&self) -> usize {
        self.changes.len()
    }

    /// Makes the group durable.
    pub(crate) fn commit(self) -> Result<Done, rocksdb::Error> {
        self.changes.commit()?;
        let mut partitions = Vec::with_capacity(self.partitions.len());
        for pending in self.partitions.into_values() {
            let boundary = pending.drop_below;
            let done = pending.done();
            if let Some(boundary) = boundary {
                // Only gives disk space back sooner: the runs are gone either way.
                let _ = self.database.drop_files_before(done.state.table, done.state.key, boundary);
            }
            partitions.push(done);
        }
        Ok(Done { partitions, topics: self.topics, events: self.metadata.events })
    }
}
