//! The one database below everything, and how its families are tuned.

use std::path::Path;

use bytes::Bytes;
use rocksdb::{
    BlockBasedOptions, ColumnFamily, ColumnFamilyDescriptor, DB, DBCompressionType, Options, ReadOptions, WriteBatch,
    WriteOptions,
};
use store::database::{self, OpenError};
use store::format_file::{self, Expected, Format, FormatError};

use crate::lock::FolderLock;
use crate::options::EmbeddedOptions;
use crate::rows::{PartitionKey, RowError, run_offset};
use crate::run::Run;

const KIND: &str = "embedded";
/// Of the folder, the families' names, and every row in them.
const VERSION: u32 = 1;

/// A column family, by what is in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Table {
    /// Topics, partitions, counters.
    Meta,
    /// Runs of the internal topics: the shard logs.
    Logs,
    /// Runs of the topics people made.
    Topics,
    /// Which attempts stand at which offsets.
    Attempts,
    /// The metadata records.
    Metadata,
}

impl Table {
    const ALL: [Table; 5] = [Table::Meta, Table::Logs, Table::Topics, Table::Attempts, Table::Metadata];

    const fn name(self) -> &'static str {
        match self {
            Table::Meta => "meta",
            Table::Logs => "logs",
            Table::Topics => "topics",
            Table::Attempts => "attempts",
            Table::Metadata => "metadata",
        }
    }
}

/// A read that failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DatabaseError {
    #[error("{0}")]
    Corrupt(String),
    #[error("{0}")]
    Io(String),
}

impl From<rocksdb::Error> for DatabaseError {
    fn from(error: rocksdb::Error) -> DatabaseError {
        match error.kind() {
            rocksdb::ErrorKind::Corruption => DatabaseError::Corrupt(error.into_string()),
            _ => DatabaseError::Io(error.into_string()),
        }
    }
}

impl From<RowError> for DatabaseError {
    fn from(error: RowError) -> DatabaseError {
        DatabaseError::Corrupt(error.to_string())
    }
}

/// The open database.
pub(crate) struct Database {
    // Dropped in this order: the folder is given back once the database has let go of its files.
    db: DB,
    synced: WriteOptions,
    _lock: FolderLock,
}

impl Database {
    pub(crate) fn refuse_newer(folder: &Path) -> Result<(), FormatError> {
        format_file::refuse_newer(folder, VERSION)
    }

    pub(crate) fn open(
        folder: &Path,
        options: &EmbeddedOptions,
        lock: FolderLock,
    ) -> Result<(Database, Format), OpenError> {
        let expected = Expected { kind: KIND, version_max: VERSION, identity: b"" };
        let mut tuned = options.resources.database_options();
        tuned.set_max_total_wal_size(options.log_bytes_max);
        let families = Table::ALL
            .into_iter()
            .map(|table| ColumnFamilyDescriptor::new(table.name(), table_options(table, options)))
            .collect();
        let (db, format) = database::open(folder, &expected, options.new_incarnation, tuned, families)?;
        let mut synced = WriteOptions::default();
        synced.set_sync(true);
        Ok((Database { db, synced, _lock: lock }, format))
    }

    fn family(&self, table: Table) -> &ColumnFamily {
        self.db.cf_handle(table.name()).expect("the database was opened with every family, and none is ever dropped")
    }

    pub(crate) fn get(&self, table: Table, key: &[u8]) -> Result<Option<Bytes>, DatabaseError> {
        Ok(self.db.get_cf(self.family(table), key)?.map(Bytes::from))
    }

    /// Calls `visit` with the pairs of `from..until` in order, until it returns false.
    pub(crate) fn scan(
        &self,
        table: Table,
        from: &[u8],
        until: Option<Vec<u8>>,
        mut visit: impl FnMut(&[u8], &[u8]) -> Result<bool, DatabaseError>,
    ) -> Result<(), DatabaseError> {
        let mut options = ReadOptions::default();
        if let Some(until) = until {
            options.set_iterate_upper_bound(until);
        }
        let mut iterator = self.db.raw_iterator_cf_opt(self.family(table), options);
        iterator.seek(from);
        while let Some((key, value)) = iterator.item() {
            if !visit(key, value)? {
                return Ok(());
            }
            iterator.next();
        }
        Ok(iterator.status()?)
    }

    /// Calls `visit` with the run that contains `offset`, if it is stored, and the runs behind it, until it returns false.
    pub(crate) fn runs(
        &self,
        table: Table,
        partition: PartitionKey,
        offset: u64,
        mut visit: impl FnMut(Run) -> Result<bool, DatabaseError>,
    ) -> Result<(), DatabaseError> {
        let mut options = ReadOptions::default();
        options.set_iterate_range(partition.run(0).to_vec()..partition_end(partition));
        let mut iterator = self.db.raw_iterator_cf_opt(self.family(table), options);
        iterator.seek_for_prev(partition.run(offset));
        if !iterator.valid() {
            iterator.status()?;
            iterator.seek(partition.run(offset));
        }
        while let Some((key, value)) = iterator.item() {
            let run = Run::decode(run_offset(key)?, Bytes::copy_from_slice(value))?;
            // The run before `offset` need not reach it.
            if run.end_offset() > offset && !visit(run)? {
                return Ok(());
            }
            iterator.next();
        }
        Ok(iterator.status()?)
    }

    /// The last run of a partition.
    pub(crate) fn last_run(&self, table: Table, partition: PartitionKey) -> Result<Option<Run>, DatabaseError> {
        let mut options = ReadOptions::default();
        options.set_iterate_range(partition.run(0).to_vec()..partition_end(partition));
        let mut iterator = self.db.raw_iterator_cf_opt(self.family(table), options);
        iterator.seek_to_last();
        match iterator.item() {
            Some((key, value)) => Ok(Some(Run::decode(run_offset(key)?, Bytes::copy_from_slice(value))?)),
            None => Ok(iterator.status().map(|()| None)?),
        }
    }

    /// Drops the table files that hold only runs of the partition before `offset`. What is left of them is covered by the
    /// range tombstone that the caller has written.
    pub(crate) fn drop_files_before(
        &self,
        table: Table,
        partition: PartitionKey,
        offset: u64,
    ) -> Result<(), DatabaseError> {
        let Some(last) = offset.checked_sub(1) else { return Ok(()) };
        // The end of a file range is inclusive.
        Ok(self.db.delete_file_in_range_cf(self.family(table), partition.run(0), partition.run(last))?)
    }

    /// Writes the batch atomically and durably.
    pub(crate) fn write(&self, batch: WriteBatch) -> Result<(), rocksdb::Error> {
        self.db.write_opt(batch, &self.synced)
    }

    pub(crate) fn flush(&self) -> Result<(), DatabaseError> {
        let mut options = rocksdb::FlushOptions::default();
        options.set_wait(true);
        let families: Vec<_> = Table::ALL.into_iter().map(|table| self.family(table)).collect();
        Ok(self.db.flush_cfs_opt(&families, &options)?)
    }

    pub(crate) fn compact(&self) -> Result<(), DatabaseError> {
        self.flush()?;
        let mut options = rocksdb::CompactOptions::default();
        options.set_bottommost_level_compaction(rocksdb::BottommostLevelCompaction::Force);
        for table in Table::ALL {
            self.db.compact_range_cf_opt(self.family(table), None::<&[u8]>, None::<&[u8]>, &options);
        }
        Ok(())
    }

    /// Bytes on disk in tables and blob files.
    pub(crate) fn disk_bytes(&self) -> u64 {
        let properties = [rocksdb::properties::LIVE_SST_FILES_SIZE.as_c_str(), c"rocksdb.live-blob-file-size"];
        let of_table = |table: Table| {
            let family = self.family(table);
            properties.map(|name| self.db.property_int_value_cf(family, name).ok().flatten().unwrap_or(0))
        };
        Table::ALL.into_iter().flat_map(of_table).sum()
    }
}

/// Behind every run of a partition; its last possible offset is never used.
fn partition_end(partition: PartitionKey) -> Vec<u8> {
    partition.run(u64::MAX).to_vec()
}

/// Changes of one group commit.
pub(crate) struct Changes<'a> {
    database: &'a Database,
    batch: WriteBatch,
}

impl<'a> Changes<'a> {
    pub(crate) fn new(database: &'a Database) -> Changes<'a> {
        Changes { database, batch: WriteBatch::default() }
    }

    pub(crate) fn put(&mut self, table: Table, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        self.batch.put_cf(self.database.family(table), key, value);
    }

    pub(crate) fn delete(&mut self, table: Table, key: impl AsRef<[u8]>) {
        self.batch.delete_cf(self.database.family(table), key);
    }

    pub(crate) fn delete_range(&mut self, table: Table, from: impl AsRef<[u8]>, until: impl AsRef<[u8]>) {
        self.batch.delete_range_cf(self.database.family(table), from.as_ref(), until.as_ref());
    }

    pub(crate) fn len(&self) -> usize {
        self.batch.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.batch.is_empty()
    }

    /// Commits; an empty batch costs nothing.
    pub(crate) fn commit(self) -> Result<(), rocksdb::Error> {
        if self.batch.is_empty() { Ok(()) } else { self.database.write(self.batch) }
    }
}

fn table_options(table: Table, options: &EmbeddedOptions) -> Options {
    let mut tuned = Options::default();
    tuned.set_arena_block_size(128 << 10);
    tuned.set_level_compaction_dynamic_level_bytes(true);
    tuned.set_compression_type(DBCompressionType::Lz4);
    let mut blocks = BlockBasedOptions::default();
    blocks.set_block_cache(options.resources.cache());
    blocks.set_format_version(6);
    blocks.set_block_size(8 << 10);
    blocks.set_cache_index_and_filter_blocks(true);
    blocks.set_pin_l0_filter_and_index_blocks_in_cache(true);
    match table {
        // Logs are bounded by their retention, so their space is not worth the CPU.
        Table::Logs => runs(&mut tuned, DBCompressionType::None),
        Table::Topics => runs(&mut tuned, DBCompressionType::Lz4),
        Table::Metadata => {
            blocks.set_bloom_filter(10.0, false);
            blocks.set_optimize_filters_for_memory(true);
        }
        // Its rows die young, and its range tombstones with them when it is flushed.
        Table::Attempts => tuned.set_write_buffer_size(8 << 20),
        Table::Meta => {}
    }
    tuned.set_block_based_table_factory(&blocks);
    tuned
}

/// Runs are written once and leave in the order they came. So their bytes go to blob files when a memtable is flushed, and
/// are never copied again: compaction moves only keys. A blob file goes when everything in it was trimmed. There is no
/// garbage collection of blobs, which would copy old runs that live on over and over; the logs, which are trimmed all the
/// time, have files of their own.
fn runs(tuned: &mut Options, compression: DBCompressionType) {
    tuned.set_write_buffer_size(64 << 20);
    tuned.set_enable_blob_files(true);
    tuned.set_min_blob_size(1 << 10);
    tuned.set_blob_compression_type(compression);
}
