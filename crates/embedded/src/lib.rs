//! Topics, metadata and locks on one machine: what a laptop, or a single server, runs instead of Kafka, Pulsar and Oxia.
//!
//! Everything is in one RocksDB under one folder, and everything is written by one thread in synced group commits: appends to
//! topics with partitions, trims, metadata changes. So an append of a destination and the evidence of which attempts
//! it carried out are one write, and one sync pays for all that wait. Readers at the tail are served from memory.
//!
//! ```text
//! FOLDER/server.lock     held by the server that uses the folder; its process id
//! FOLDER/FORMAT          what the folder is
//! FOLDER/db/             the database
//! ```
//!
//! The engine ([`Embedded`], [`Topic`], [`Partition`]) knows nothing of shards; [`EmbeddedLog`] and [`EmbeddedMetadata`] put the
//! ports of the worker on it.

mod append;
mod attempts;
mod core;
mod database;
mod engine;
mod group;
mod lock;
mod metadata;
mod options;
mod partition;
mod ports_destination;
mod ports_log;
mod ports_metadata;
mod ports_target;
mod ports_topics;
mod queue;
mod read;
mod record;
mod retention;
mod rows;
mod run;
mod topic;
mod watch;
mod writer;

pub use append::{APPEND_RECORDS_MAX, AppendError, Appended, AttemptEntry, AttemptsRow};
pub use attempts::AppendedAttempts;
pub use core::AppendTime;
pub use engine::{Embedded, EmbeddedStats, FenceError, OpenError};
pub use lock::LockError;
pub use options::EmbeddedOptions;
pub use partition::Partition;
pub use ports_destination::EmbeddedDestination;
pub use ports_log::EmbeddedLog;
pub use ports_metadata::{EmbeddedMetadata, EmbeddedSession};
pub use ports_target::EmbeddedTargets;
pub use ports_topics::EmbeddedTopics;
pub use read::{ReadError, ReadLimit, ReadRun, Record};
pub use record::{Header, RecordError, RecordTooLarge, TopicRecord};
pub use retention::{Retention, TrimError};
pub use topic::{CreateTopicError, NAME_BYTES_MAX, PARTITIONS_MAX, Topic};
pub use watch::Watch;
