//! The open database and the reads that both sides, writer and reader, make of it.

use bytes::Bytes;
use rocksdb::{ColumnFamily, DB, ErrorKind, ReadOptions};
use shard::store::{Family, Pair, StoreError};

/// Below this many keys, single lookups cost less than setting up a batched one.
const BATCHED_KEYS_MIN: usize = 4;

/// An open database with every family present.
pub(crate) struct Engine {
    db: DB,
}

impl Engine {
    /// Takes a database that was opened with every family.
    pub(crate) fn new(db: DB) -> Engine {
        Engine { db }
    }

    pub(crate) fn db(&self) -> &DB {
        &self.db
    }

    pub(crate) fn family(&self, family: Family) -> &ColumnFamily {
        self.db.cf_handle(family.name()).expect("the database was opened with every family, and none is ever dropped")
    }

    pub(crate) fn get(&self, family: Family, key: &[u8], options: &ReadOptions) -> Result<Option<Bytes>, StoreError> {
        let value = self.db.get_pinned_cf_opt(self.family(family), key, options).map_err(store_error)?;
        Ok(value.map(|value| Bytes::copy_from_slice(&value)))
    }

    pub(crate) fn get_many(
        &self,
        family: Family,
        keys: &[&[u8]],
        options: &ReadOptions,
    ) -> Result<Vec<Option<Bytes>>, StoreError> {
        if keys.len() < BATCHED_KEYS_MIN {
            return keys.iter().map(|key| self.get(family, key, options)).collect();
        }
        let is_sorted = keys.is_sorted();
        self.db
            .batched_multi_get_cf_opt(self.family(family), keys.iter().copied(), is_sorted, options)
            .into_iter()
            .map(|value| Ok(value.map_err(store_error)?.map(|value| Bytes::copy_from_slice(&value))))
            .collect()
    }

    /// `options` are the caller's own: the bounds of this scan are set on them.
    pub(crate) fn scan(
        &self,
        family: Family,
        from: &[u8],
        until: &[u8],
        limit: usize,
        mut options: ReadOptions,
    ) -> Result<Vec<Pair>, StoreError> {
        if from >= until || limit == 0 {
            return Ok(Vec::new());
        }
        options.set_iterate_upper_bound(until);
        let mut iterator = self.db.raw_iterator_cf_opt(self.family(family), options);
        let mut pairs = Vec::new();
        iterator.seek(from);
        while let Some((key, value)) = iterator.item() {
            pairs.push((Bytes::copy_from_slice(key), Bytes::copy_from_slice(value)));
            if pairs.len() == limit {
                return Ok(pairs);
            }
            iterator.next();
        }
        iterator.status().map_err(store_error)?;
        Ok(pairs)
    }
}

/// A failed read or an administrative call, in the port's words.
#[expect(clippy::needless_pass_by_value, reason = "used with map_err")]
pub(crate) fn store_error(error: rocksdb::Error) -> StoreError {
    let detail = error.to_string();
    match error.kind() {
        ErrorKind::Corruption => StoreError::Corrupt { detail },
        _ => StoreError::Io { detail },
    }
}
