//! The ordered key-value store a Delay Shard keeps its state in, as the core sees it.
//!
//! The core needs five things of a store: point reads, batched point reads, a bounded ascending scan, one atomic and durable
//! commit a run, and a reader that other threads may use. Everything else (files, caches, compaction, checkpoints) belongs to
//! the implementation. [`MemoryStore`](crate::memory::MemoryStore) serves tests and the simulator, the `store` crate puts
//! RocksDB behind the same trait, and one conformance suite in `testkit` holds both to it.

use bytes::Bytes;

/// A column family, by access pattern.
///
/// The numbers are persisted (they name families in the digest) and never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Family {
    /// Identity, applied position, limits, keys, lanes, profiles, policies, counts.
    Meta = 1,
    /// Message uuid → message row.
    Messages = 2,
    /// Message uuid → canonical schedule intent, written once.
    Payloads = 3,
    /// What happens when: due work, expiries, uncertain attempts, dead letters.
    Timeline = 4,
    /// Admission records with attempts that are still publishing.
    Open = 5,
    /// Command results, business keys, control operations, position exceptions.
    Dedupe = 6,
    /// Superseded generations that still have open or uncertain attempts.
    History = 7,
}

impl Family {
    /// Every family, ascending by number.
    pub const ALL: [Family; 7] = [
        Family::Meta,
        Family::Messages,
        Family::Payloads,
        Family::Timeline,
        Family::Open,
        Family::Dedupe,
        Family::History,
    ];

    /// The name under which implementations persist the family.
    pub const fn name(self) -> &'static str {
        match self {
            Family::Meta => "meta",
            Family::Messages => "messages",
            Family::Payloads => "payloads",
            Family::Timeline => "timeline",
            Family::Open => "open",
            Family::Dedupe => "dedupe",
            Family::History => "history",
        }
    }
}

/// A read that failed. Nothing was changed; whether the store can still be used is the implementation's word.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The store was closed, by its owner or after a commit whose outcome is unknown.
    #[error("store is closed: {reason}")]
    Closed {
        /// Why it was closed.
        reason: String,
    },
    /// Bytes that this format cannot have written.
    #[error("store is corrupt: {detail}")]
    Corrupt {
        /// What was found where.
        detail: String,
    },
    /// The operating system or the storage engine refused.
    #[error("store failed: {detail}")]
    Io {
        /// The engine's own words.
        detail: String,
    },
}

/// A commit that did not return success.
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    /// Certainly nothing of the batch was or will be written; the store is as it was.
    #[error("commit was not written: {0}")]
    NotWritten(StoreError),
    /// The batch may or may not be durable. The store refuses every further call: it must be closed, reopened and the log
    /// replayed from the position it then shows (`WRITE_OUTCOME_UNCERTAIN`).
    #[error("commit outcome is uncertain, the store is closed: {0}")]
    OutcomeUncertain(StoreError),
}

/// One pair of a scan.
pub type Pair = (Bytes, Bytes);

/// Reads of one consistent state.
pub trait Read {
    /// The value of `key`, or `None`.
    fn get(&self, family: Family, key: &[u8]) -> Result<Option<Bytes>, StoreError>;

    /// The values of `keys`, in their order. Cheapest when the keys ascend.
    fn get_many(&self, family: Family, keys: &[&[u8]]) -> Result<Vec<Option<Bytes>>, StoreError>;

    /// At most `limit` pairs with `from <= key < until`, ascending by key bytes.
    fn scan(&self, family: Family, from: &[u8], until: &[u8], limit: usize) -> Result<Vec<Pair>, StoreError>;
}

/// A handle other threads read through while the writer goes on.
pub trait Reader: Clone + Send + Sync + 'static {
    /// Runs `read` on one consistent state: that of some commit which had returned when this was called, or a later one.
    fn read<T>(&self, read: impl FnOnce(&dyn Read) -> T) -> T;
}

/// The single writer's side.
pub trait Store: Read {
    /// What [`Store::reader`] hands out.
    type Reader: Reader;

    /// Writes the batch atomically and durably: when this returns `Ok`, a crash of the process or the machine keeps it.
    fn commit(&mut self, batch: Batch) -> Result<(), CommitError>;

    /// A handle for reads from other threads. It fails with [`StoreError::Closed`] once the store is closed.
    fn reader(&self) -> Self::Reader;

    /// Allows the store to drop, now or ever, every row whose logical end
    /// ([`envelope::logical_end`](crate::state::envelope::logical_end)) is at or before `closed_through_ms`. Apply and
    /// queries already treat those rows as absent, so nobody can notice.
    fn release_ended(&mut self, closed_through_ms: i64);
}

/// One change of a [`Batch`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Sets the key to the value.
    Put(Bytes, Bytes),
    /// Removes the key; it need not exist.
    Delete(Bytes),
}

/// The changes of one commit, in the order they are applied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    changes: Vec<(Family, Change)>,
    byte_count: usize,
}

impl Batch {
    /// Sets `key` to `value`.
    pub fn put(&mut self, family: Family, key: impl Into<Bytes>, value: impl Into<Bytes>) {
        let (key, value) = (key.into(), value.into());
        self.byte_count += key.len() + value.len();
        self.changes.push((family, Change::Put(key, value)));
    }

    /// Removes `key`.
    pub fn delete(&mut self, family: Family, key: impl Into<Bytes>) {
        let key = key.into();
        self.byte_count += key.len();
        self.changes.push((family, Change::Delete(key)));
    }

    /// The changes in order.
    pub fn changes(&self) -> &[(Family, Change)] {
        &self.changes
    }

    /// How many keys the batch puts or deletes.
    pub fn len(&self) -> usize {
        self.changes.len()
    }

    /// Whether the batch changes nothing.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// Bytes of all keys and values.
    pub fn byte_count(&self) -> usize {
        self.byte_count
    }
}
