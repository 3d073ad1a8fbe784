//! The metadata store: small records with versions, shared by all workers of a cell.
//!
//! One key at a time, compare-and-set, ephemeral records that live as long as a session, ranges, and a watch that may miss
//! events but never silently: after a gap it says [`WatchEvent::Resync`] and the reader lists again.

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;

/// A record and its version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Versioned {
    /// The record's bytes.
    pub value: Bytes,
    /// Rises with every change of this key; never reused while the key exists.
    pub version: u64,
}

/// What must be true of the key for a change to happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// The key does not exist.
    Absent,
    /// The key exists in exactly this version.
    Version(u64),
}

/// A change that did not happen, or may have.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// The expectation did not hold; nothing was changed.
    #[error("expected {expected:?}, found version {found:?}")]
    Conflict {
        /// What was expected.
        expected: Expected,
        /// The version there is, `None` for no record.
        found: Option<u64>,
    },
    /// The session of an ephemeral record is over; nothing was changed.
    #[error("metadata session {session} is over")]
    SessionOver {
        /// Which session.
        session: u64,
    },
    /// Certainly nothing was changed; try again.
    #[error("metadata store is unavailable: {reason}")]
    Unavailable {
        /// Why.
        reason: String,
    },
    /// The change may have happened: read the key and compare.
    #[error("metadata change has an unknown outcome: {reason}")]
    Unknown {
        /// What was seen.
        reason: String,
    },
}

/// A read that could not be answered; try again.
#[derive(Debug, thiserror::Error)]
#[error("metadata store is unavailable: {reason}")]
pub struct MetadataUnavailable {
    /// Why.
    pub reason: String,
}

/// One thing a watch tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchEvent {
    /// The key now has this record.
    Put {
        /// The key.
        key: String,
        /// Its record.
        record: Versioned,
    },
    /// The key is gone.
    Deleted {
        /// The key.
        key: String,
    },
    /// Events may have been missed, or repeated from before: list the range again. Also the first event of every watch.
    Resync,
}

/// A live session, to which ephemeral records are bound.
pub trait Session: Send + Sync + 'static {
    /// Its id, as [`Metadata::put_ephemeral`] takes it.
    fn id(&self) -> u64;

    /// How long the session is certainly still alive, by the caller's monotonic clock, counted from this call. Zero when
    /// that cannot be promised any more.
    fn remaining(&self) -> Duration;

    /// Ready once the session is over or in doubt.
    fn lost(&self) -> BoxFuture<'static, ()>;
}

/// The metadata store. Keys are `/`-separated paths of UTF-8 text, ordered by their bytes.
pub trait Metadata: Send + Sync + 'static {
    /// The record of `key`.
    fn get(&self, key: &str) -> BoxFuture<'static, Result<Option<Versioned>, MetadataUnavailable>>;

    /// Sets `key` if the expectation holds, and returns the new version.
    fn put(&self, key: &str, value: Bytes, expected: Expected) -> BoxFuture<'static, Result<u64, ChangeError>>;

    /// Creates `key` for as long as the session lives. The key must not exist.
    fn put_ephemeral(&self, key: &str, value: Bytes, session: u64) -> BoxFuture<'static, Result<u64, ChangeError>>;

    /// Deletes `key` if it exists in this version.
    fn delete(&self, key: &str, version: u64) -> BoxFuture<'static, Result<(), ChangeError>>;

    /// At most `limit` records whose key starts with `prefix` and is greater than `after`, ascending by key.
    fn list(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> BoxFuture<'static, Result<Vec<(String, Versioned)>, MetadataUnavailable>>;

    /// Changes of the keys that start with `prefix`, in each key's order, from now on. Starts with
    /// [`WatchEvent::Resync`].
    fn watch(&self, prefix: &str) -> BoxStream<'static, WatchEvent>;

    /// Opens a session.
    fn open_session(&self) -> BoxFuture<'static, Result<Box<dyn Session>, MetadataUnavailable>>;
}
