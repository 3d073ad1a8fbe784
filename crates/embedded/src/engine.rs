//! The engine as a whole: opening, closing, and the calls that are about no single partition.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::thread::JoinHandle;

use bytes::Bytes;
use store::OpenError as DatabaseOpenError;
use store::format_file::FormatError;
use store::gate::Gate;
use tokio::sync::oneshot;

use crate::attempts::{self, AppendedAttempts, Forgotten};
use crate::core::{AppendTime, Core, Counters};
use crate::database::{Changes, Database, DatabaseError, Table};
use crate::lock::{FolderLock, LockError};
use crate::metadata::{MetadataWriter, Sessions, prefix_end};
use crate::options::EmbeddedOptions;
use crate::partition::{PartitionState, View};
use crate::queue::{Command, CreateTopicCommand, FenceCommand, Queue};
use crate::read::ReadError;
use crate::rows::{EPHEMERAL_PREFIX, PartitionKey, PartitionRow, TOPIC_PREFIX, TopicRow, ephemeral_key, text_of};
use crate::topic::{CreateTopicError, Namespace, NewTopic, PARTITIONS_MAX, Topic, TopicState, Topics};
use crate::watch::WatchHub;
use crate::writer::Writer;

/// A data folder that could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another server has it, or its lock cannot be taken.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// The folder is not ours to open, or the database in it does not open.
    #[error(transparent)]
    Database(#[from] DatabaseOpenError),
    /// What is stored is not what was written.
    #[error("{} is corrupt: {detail}", folder.display())]
    Corrupt {
        /// The folder.
        folder: PathBuf,
        /// What is wrong.
        detail: String,
    },
    /// The operating system or the disk refused.
    #[error("{}: {detail}", folder.display())]
    Io {
        /// The folder.
        folder: PathBuf,
        /// What it said.
        detail: String,
    },
}

/// A fence that was not set: the engine is closed, and nothing will be appended any more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not fenced, the engine is closed: {reason}")]
pub struct FenceError {
    /// Why it is closed.
    pub reason: String,
}

/// Figures for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EmbeddedStats {
    /// Records appended since the engine was opened.
    pub record_count: u64,
    /// Bytes of those records.
    pub record_bytes: u64,
    /// Group commits since then.
    pub commit_count: u64,
    /// Keys they put or deleted. A run of records is one.
    pub key_count: u64,
    /// Bytes that wait for the writer or are being written.
    pub queue_bytes: u64,
    /// Newest records kept in memory, in bytes.
    pub tail_bytes: u64,
    /// Bytes on disk.
    pub disk_bytes: u64,
}

/// The engine. Clones share it; it closes when the last one is dropped, or by [`close`](Embedded::close). Handles on topics
/// and partitions do not keep it open.
#[derive(Clone)]
pub struct Embedded {
    core: Arc<Core>,
    owner: Arc<Owner>,
}

struct Owner {
    core: Arc<Core>,
    incarnation: [u8; 16],
    writer: Mutex<Option<JoinHandle<()>>>,
}

impl Owner {
    fn close(&self, reason: &str) {
        self.core.queue.close(reason);
        // Held while waiting, so that everybody who closes returns only once it is closed.
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(writer) = writer.take() {
            // A writer that panicked has closed everything on its way out.
            let _ = writer.join();
        }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.close("its owner dropped it");
    }
}

impl Embedded {
    /// Refuses a folder that a newer build has written, without touching it.
    ///
    /// # Errors
    /// [`FormatError::Newer`] only.
    pub fn refuse_newer(folder: &Path) -> Result<(), FormatError> {
        Database::refuse_newer(folder)
    }

    /// Opens the engine in `folder`, making it there when the folder is empty or absent. `append_time` tells the time for
    /// append stamps; it is asked once a group commit and may go backwards, the stamps do not.
    ///
    /// # Errors
    /// [`OpenError`]; each names the folder and, when another server has it, that server's process id.
    pub fn open(folder: &Path, options: EmbeddedOptions, append_time: AppendTime) -> Result<Embedded, OpenError> {
        let io_error = |error: io::Error| OpenError::Io { folder: folder.to_owned(), detail: error.to_string() };
        fs::create_dir_all(folder).map_err(io_error)?;
        let lock = FolderLock::acquire(folder)?;
        let (database, format) = Database::open(folder, &options, lock)?;
        let stored = |error| match error {
            DatabaseError::Corrupt(detail) => OpenError::Corrupt { folder: folder.to_owned(), detail },
            DatabaseError::Io(detail) => OpenError::Io { folder: folder.to_owned(), detail },
        };
        end_earlier_sessions(&database).map_err(stored)?;
        let topics = load_topics(&database).map_err(stored)?;
        let metadata = MetadataWriter::open(&database).map_err(stored)?;
        let core = Arc::new(Core {
            queue: Queue::new(options.queue_bytes_max, options.queue_count_max),
            hub: WatchHub::new(options.watch_events_max),
            options,
            append_time,
            gate: Gate::new(database),
            topics: RwLock::new(topics),
            sessions: Sessions::default(),
            forgotten: Forgotten::default(),
            is_closed: tokio::sync::watch::Sender::new(false),
            counters: Counters::default(),
        });
        let writer = Writer::new(Arc::clone(&core), metadata);
        let writer = std::thread::Builder::new()
            .name("embedded-writer".to_owned())
            .spawn(move || writer.run())
            .map_err(io_error)?;
        let owner =
            Owner { core: Arc::clone(&core), incarnation: format.incarnation, writer: Mutex::new(Some(writer)) };
        Ok(Embedded { core, owner: Arc::new(owner) })
    }

    /// Takes nothing more, writes what is queued, and lets go of the folder. Everything that was answered is durable
    /// without it. Later calls answer that the engine is closed.
    pub fn close(&self) {
        self.owner.close("it was closed by its owner");
    }

    /// Resolves once the engine is closed, by its owner or by itself after a failed write, with the reason.
    pub fn closed(&self) -> impl Future<Output = String> + Send + 'static + use<> {
        let mut is_closed = self.core.is_closed.subscribe();
        let core = Arc::clone(&self.core);
        async move {
            // The sender lives in the core, so waiting ends only by the value.
            let _ = is_closed.wait_for(|is_closed| *is_closed).await;
            core.closed_reason()
        }
    }

    /// The id this data folder was given when it was made.
    pub fn incarnation(&self) -> [u8; 16] {
        self.owner.incarnation
    }

    /// Creates a topic, or returns the one of this name if it has as many partitions; then `id` is not used.
    ///
    /// # Errors
    /// [`CreateTopicError`]; names that start with `_` are refused.
    pub fn create_topic(
        &self,
        name: &str,
        partitions: u32,
        id: [u8; 16],
    ) -> impl Future<Output = Result<Topic, CreateTopicError>> + Send + 'static + use<> {
        self.create(NewTopic::check(name, Namespace::Public, partitions, id))
    }

    /// [`create_topic`](Self::create_topic) for the system's own topics, such as route logs (`_route.<uuid>`).
    ///
    /// # Errors
    /// [`CreateTopicError`]; names that do not start with `_` are refused.
    pub fn create_internal_topic(
        &self,
        name: &str,
        partitions: u32,
        id: [u8; 16],
    ) -> impl Future<Output = Result<Topic, CreateTopicError>> + Send + 'static + use<> {
        self.create(NewTopic::check(name, Namespace::Internal, partitions, id))
    }

    fn create(
        &self,
        topic: Result<NewTopic, CreateTopicError>,
    ) -> impl Future<Output = Result<Topic, CreateTopicError>> + Send + 'static + use<> {
        let core = Arc::clone(&self.core);
        async move {
            let (reply, answer) = oneshot::channel();
            let command = Command::CreateTopic(CreateTopicCommand { topic: topic?, reply });
            core.queue.push(command).await.map_err(|closed| CreateTopicError::Closed { reason: closed.reason })?;
            match answer.await {
                Ok(created) => Ok(Topic::new(core, created?)),
                Err(_) => Err(CreateTopicError::Unknown { reason: core.closed_reason() }),
            }
        }
    }

    /// A topic by its name, the system's own included.
    pub fn topic(&self, name: &str) -> Option<Topic> {
        let state = self.core.topics().get(name).map(Arc::clone)?;
        Some(Topic::new(Arc::clone(&self.core), state))
    }

    /// A topic by its id.
    pub fn topic_by_id(&self, id: [u8; 16]) -> Option<Topic> {
        let state = self.core.topics().iter().find(|topic| topic.id == id).map(Arc::clone)?;
        Some(Topic::new(Arc::clone(&self.core), state))
    }

    /// Every topic that people made, by name.
    pub fn topics(&self) -> Vec<Topic> {
        let topics = self.core.topics();
        let public = topics.iter().filter(|topic| Namespace::of(&topic.name) == Namespace::Public);
        public.map(|state| Topic::new(Arc::clone(&self.core), Arc::clone(state))).collect()
    }

    /// From when this resolves, appends that carry attempts of the scope under a lower epoch are refused, and every one before
    /// it is durable or was refused: what [`attempts`](Self::attempts) then lists is complete. Returns the epoch that
    /// now counts: this one, or a higher one set before. It holds until the process ends, as does everyone who could append under
    /// a lower epoch.
    ///
    /// # Errors
    /// [`FenceError`] when the engine is closed.
    pub fn fence(
        &self,
        scope: Bytes,
        epoch: u64,
    ) -> impl Future<Output = Result<u64, FenceError>> + Send + 'static + use<> {
        let core = Arc::clone(&self.core);
        async move {
            let (reply, answer) = oneshot::channel();
            let command = Command::Fence(FenceCommand { scope, epoch, reply });
            core.queue.push(command).await.map_err(|closed| FenceError { reason: closed.reason })?;
            answer.await.map_err(|_| FenceError { reason: core.closed_reason() })
        }
    }

    /// The appends of the scope that carried attempts admitted at an offset in `orders`, oldest admission first. As many as
    /// were not [forgotten](Self::forget_attempts).
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn attempts(&self, scope: &Bytes, orders: std::ops::Range<u64>) -> Result<Vec<AppendedAttempts>, ReadError> {
        attempts::list(&self.core, scope, orders)
    }

    /// Lets evidence of attempts admitted below this offset go, some appends later: nothing is written for it alone. Until
    /// then [`attempts`](Self::attempts) goes on listing it, and after a crash it may again.
    pub fn forget_attempts(&self, scope: Bytes, below_order: u64) {
        self.core.forgotten.add(scope, below_order);
    }

    /// Figures for metrics. Cheap: counters and a few properties of the storage engine.
    pub fn stats(&self) -> EmbeddedStats {
        let counters = &self.core.counters;
        EmbeddedStats {
            record_count: counters.record_count.load(Ordering::Relaxed),
            record_bytes: counters.record_bytes.load(Ordering::Relaxed),
            commit_count: counters.commit_count.load(Ordering::Relaxed),
            key_count: counters.key_count.load(Ordering::Relaxed),
            queue_bytes: self.core.queue.byte_count() as u64,
            tail_bytes: counters.tail_bytes.load(Ordering::Relaxed),
            disk_bytes: self.core.gate.enter().resource().map_or(0, Database::disk_bytes),
        }
    }

    /// Writes memtables to disk. Appends are durable without it; it shortens the next open.
    ///
    /// # Errors
    /// [`ReadError`] when the engine is closed or the disk refuses.
    pub fn flush(&self) -> Result<(), ReadError> {
        let inside = self.core.gate.enter();
        let database = inside.resource().map_err(|reason| ReadError::Closed { reason: reason.to_owned() })?;
        Ok(database.flush()?)
    }

    /// Rewrites every table, so that the space of trimmed records is free at once and not some time later. For operators and
    /// tests.
    ///
    /// # Errors
    /// [`ReadError`] when the engine is closed or the disk refuses.
    pub fn compact(&self) -> Result<(), ReadError> {
        let inside = self.core.gate.enter();
        let database = inside.resource().map_err(|reason| ReadError::Closed { reason: reason.to_owned() })?;
        Ok(database.compact()?)
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }
}

impl std::fmt::Debug for Embedded {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Embedded").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

/// The sessions of an earlier process ended with it: their records go before anything is served.
fn end_earlier_sessions(database: &Database) -> Result<(), DatabaseError> {
    let mut changes = Changes::new(database);
    database.scan(Table::Meta, &[EPHEMERAL_PREFIX], prefix_end(&[EPHEMERAL_PREFIX]), |key, _| {
        let key = text_of("ephemeral", key)?;
        changes.delete(Table::Metadata, &key);
        changes.delete(Table::Meta, ephemeral_key(&key));
        Ok(true)
    })?;
    Ok(changes.commit()?)
}

fn load_topics(database: &Database) -> Result<Topics, DatabaseError> {
    let mut rows = BTreeMap::new();
    database.scan(Table::Meta, &[TOPIC_PREFIX], prefix_end(&[TOPIC_PREFIX]), |key, row| {
        rows.insert(text_of("topic", key)?, TopicRow::decode(row)?);
        Ok(true)
    })?;
    let mut topics = Topics::default();
    for (name, TopicRow { topic_no, partition_count, id }) in rows {
        if partition_count > PARTITIONS_MAX || topics.by_no(topic_no).is_some() {
            let detail = format!("topic {name} has number {topic_no} and {partition_count} partitions");
            return Err(DatabaseError::Corrupt(detail));
        }
        let table = Namespace::of(&name).table();
        let mut partitions = Vec::with_capacity(partition_count as usize);
        for partition in 0..partition_count {
            let key = PartitionKey { topic_no, partition };
            let view = load_partition(database, table, key)?;
            partitions.push(Arc::new(PartitionState::new(key, table, view)));
        }
        topics.insert(Arc::new(TopicState { name, id, topic_no, partitions }));
    }
    Ok(topics)
}

fn load_partition(database: &Database, table: Table, key: PartitionKey) -> Result<View, DatabaseError> {
    let trimmed = database.get(Table::Meta, &key.row_key())?;
    let trimmed = trimmed.map_or(Ok(PartitionRow::default()), |row| PartitionRow::decode(&row))?;
    let PartitionRow { start, end, append_time_ms, bytes } = trimmed;
    let last = database.last_run(table, key)?;
    let view = match last {
        // The newest run tells, unless everything was trimmed after it.
        Some(run) if run.end_offset() >= end => View {
            start,
            end: run.end_offset(),
            append_time_ms: run.append_time_ms(),
            bytes: run.bytes_before() + run.record_bytes(),
            ..View::default()
        },
        _ => View { start, end, append_time_ms, bytes, ..View::default() },
    };
    Ok(view)
}
