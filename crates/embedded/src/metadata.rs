//! Metadata: small records with versions, compare-and-set, and records that go with their session.
//!
//! Reads go to the database; changes go through the writer, which alone decides what holds. A record that is put again
//! without a session is no longer ephemeral, as in Oxia.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use ports::metadata::{ChangeError, Expected, Versioned, WatchEvent};

use crate::database::{Changes, Database, DatabaseError, Table};
use crate::rows::{MARK, MetadataRow, VERSIONS_KEY, decode_version, encode_version, ephemeral_key};

/// How many versions are set aside by one write of the counter; what a restart leaves unused is never used.
const VERSIONS_RESERVED: u64 = 1 << 20;

/// A change that was asked for.
#[derive(Clone, Debug)]
pub(crate) enum MetadataChange {
    Put { key: String, value: Bytes, expected: Expected },
    PutEphemeral { key: String, value: Bytes, session: u64 },
    Delete { key: String, version: u64 },
}

impl MetadataChange {
    pub(crate) fn byte_count(&self) -> usize {
        match self {
            MetadataChange::Put { key, value, .. } | MetadataChange::PutEphemeral { key, value, .. } => {
                key.len() + value.len()
            }
            MetadataChange::Delete { key, .. } => key.len(),
        }
    }
}

/// The sessions that live. Numbers are of this process only: records of an earlier one's sessions are deleted at open.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    last: AtomicU64,
    live: Mutex<BTreeSet<u64>>,
}

impl Sessions {
    pub(crate) fn open(&self) -> u64 {
        let session = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        self.live().insert(session);
        session
    }

    pub(crate) fn end(&self, session: u64) {
        self.live().remove(&session);
    }

    pub(crate) fn is_live(&self, session: u64) -> bool {
        self.live().contains(&session)
    }

    fn live(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The writer's side: versions, and which records are ephemeral.
#[derive(Debug)]
pub(crate) struct MetadataWriter {
    last_version: u64,
    reserved_version: u64,
    ephemeral: BTreeMap<u64, BTreeSet<String>>,
}

impl MetadataWriter {
    /// Reads the counter. Every version given from now on is above all that were ever given.
    pub(crate) fn open(database: &Database) -> Result<MetadataWriter, DatabaseError> {
        let stored = database.get(Table::Meta, VERSIONS_KEY)?;
        let last_version = stored.map_or(Ok(0), |row| decode_version(&row))?;
        Ok(MetadataWriter { last_version, reserved_version: last_version, ephemeral: BTreeMap::new() })
    }

    fn next_version(&mut self, changes: &mut Changes<'_>) -> u64 {
        self.last_version += 1;
        if self.last_version > self.reserved_version {
            self.reserved_version = self.last_version + VERSIONS_RESERVED;
            changes.put(Table::Meta, VERSIONS_KEY, encode_version(self.reserved_version));
        }
        self.last_version
    }

    /// Decides one change on top of those of its group, and writes it.
    pub(crate) fn apply(
        &mut self,
        change: MetadataChange,
        group: &mut MetadataGroup,
        database: &Database,
        changes: &mut Changes<'_>,
        sessions: &Sessions,
    ) -> Result<u64, ChangeError> {
        let (key, value, expected, session) = match change {
            MetadataChange::Put { key, value, expected } => (key, Some(value), expected, 0),
            MetadataChange::PutEphemeral { key, value, session } => {
                if !sessions.is_live(session) {
                    return Err(ChangeError::SessionOver { session });
                }
                (key, Some(value), Expected::Absent, session)
            }
            MetadataChange::Delete { key, version } => (key, None, Expected::Version(version), 0),
        };
        let old =
            group.current(&key, database).map_err(|error| ChangeError::Unavailable { reason: error.to_string() })?;
        let found = old.as_ref().map(|row| row.version);
        let holds = match expected {
            Expected::Absent => found.is_none(),
            Expected::Version(version) => found == Some(version),
        };
        if !holds {
            return Err(ChangeError::Conflict { expected, found });
        }
        let old_session = old.map_or(0, |row| row.session);
        if old_session != 0 && old_session != session {
            self.forget_ephemeral(old_session, &key, changes);
        }
        let version = self.next_version(changes);
        match value {
            Some(value) => self.put(key, MetadataRow { session, version, value }, group, changes),
            None => group.delete(key, changes),
        }
        Ok(version)
    }

    fn put(&mut self, key: String, row: MetadataRow, group: &mut MetadataGroup, changes: &mut Changes<'_>) {
        if row.session != 0 {
            changes.put(Table::Meta, ephemeral_key(&key), MARK);
            self.ephemeral.entry(row.session).or_default().insert(key.clone());
        }
        changes.put(Table::Metadata, &key, row.encode());
        let record = Versioned { value: row.value.clone(), version: row.version };
        group.events.push(WatchEvent::Put { key: key.clone(), record });
        group.rows.insert(key, Some(row));
    }

    fn forget_ephemeral(&mut self, session: u64, key: &str, changes: &mut Changes<'_>) {
        changes.delete(Table::Meta, ephemeral_key(key));
        if let Some(keys) = self.ephemeral.get_mut(&session) {
            keys.remove(key);
        }
    }

    /// Deletes what the session leaves.
    pub(crate) fn end_session(&mut self, session: u64, group: &mut MetadataGroup, changes: &mut Changes<'_>) {
        for key in self.ephemeral.remove(&session).unwrap_or_default() {
            changes.delete(Table::Meta, ephemeral_key(&key));
            group.delete(key, changes);
        }
    }
}

/// Metadata changes of one group commit, on top of what is stored.
#[derive(Debug, Default)]
pub(crate) struct MetadataGroup {
    rows: BTreeMap<String, Option<MetadataRow>>,
    pub(crate) events: Vec<WatchEvent>,
}

impl MetadataGroup {
    fn current(&self, key: &str, database: &Database) -> Result<Option<MetadataRow>, DatabaseError> {
        match self.rows.get(key) {
            Some(row) => Ok(row.clone()),
            None => stored(database, key),
        }
    }

    fn delete(&mut self, key: String, changes: &mut Changes<'_>) {
        changes.delete(Table::Metadata, &key);
        self.events.push(WatchEvent::Deleted { key: key.clone() });
        self.rows.insert(key, None);
    }
}

fn stored(database: &Database, key: &str) -> Result<Option<MetadataRow>, DatabaseError> {
    let row = database.get(Table::Metadata, key.as_bytes())?;
    Ok(row.map(MetadataRow::decode).transpose()?)
}

/// The record of a key.
pub(crate) fn get(database: &Database, key: &str) -> Result<Option<Versioned>, DatabaseError> {
    Ok(stored(database, key)?.map(|row| Versioned { value: row.value, version: row.version }))
}

/// At most `limit` records whose key starts with `prefix` and is greater than `after`.
pub(crate) fn list(
    database: &Database,
    prefix: &str,
    after: Option<&str>,
    limit: usize,
) -> Result<Vec<(String, Versioned)>, DatabaseError> {
    let mut records = Vec::new();
    if limit == 0 {
        return Ok(records);
    }
    // The first key behind `after` is `after` and a zero byte.
    let from = after.map(|after| [after.as_bytes(), b"\0"].concat()).unwrap_or_default();
    let from = from.max(prefix.as_bytes().to_vec());
    database.scan(Table::Metadata, &from, prefix_end(prefix.as_bytes()), |key, row| {
        let key = String::from_utf8(key.to_vec()).map_err(|error| DatabaseError::Corrupt(error.to_string()))?;
        let row = MetadataRow::decode(Bytes::copy_from_slice(row))?;
        records.push((key, Versioned { value: row.value, version: row.version }));
        Ok(records.len() < limit)
    })?;
    Ok(records)
}

/// The first key behind all that start with `prefix`; `None` when there is no such key.
pub(crate) fn prefix_end(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte != u8::MAX)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_prefix_is_behind_all_of_it() {
        assert_eq!(prefix_end(b"a/"), Some(b"a0".to_vec()));
        assert_eq!(prefix_end(b"a\xff\xff"), Some(b"b".to_vec()));
        assert_eq!(prefix_end(b"\xff"), None);
        assert_eq!(prefix_end(b""), None);
    }
}
