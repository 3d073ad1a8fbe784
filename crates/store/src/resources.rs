//! Memory and threads that all databases of a process share, so that their sum is bounded whatever their number.

use rocksdb::{Cache, Env, Options, WriteBufferManager};

/// How much the databases of one process may use together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResourceOptions {
    /// Blocks, indexes, filters and memtables of all databases, in bytes. Default 256 MiB.
    ///
    /// The cache gives way to memtables and never grows with the data; a working set beyond it costs disk reads.
    pub cache_bytes_max: usize,
    /// The share of it that memtables may take, in bytes. Default 128 MiB.
    ///
    /// The larger it is, the more short-lived rows die in memory without ever being written to a table.
    pub memtable_bytes_max: usize,
    /// Threads that write memtables to disk. Default 1.
    pub flush_threads: i32,
    /// Threads that compact. Default: one less than the machine has cores, at least 1, at most 4.
    pub compaction_threads: i32,
}

impl Default for ResourceOptions {
    fn default() -> Self {
        let cores =
            std::thread::available_parallelism().map_or(2, |cores| i32::try_from(cores.get()).unwrap_or(i32::MAX));
        ResourceOptions {
            cache_bytes_max: 256 << 20,
            memtable_bytes_max: 128 << 20,
            flush_threads: 1,
            compaction_threads: (cores - 1).clamp(1, 4),
        }
    }
}

/// Shared resources that cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResourcesError {
    /// Memtables are charged to the cache and have to fit with room for blocks.
    #[error("memtable_bytes_max ({memtable_bytes_max}) must be at most half of cache_bytes_max ({cache_bytes_max})")]
    MemtablesTooLarge {
        /// The option.
        memtable_bytes_max: usize,
        /// What it is held against.
        cache_bytes_max: usize,
    },
    /// A database that nobody flushes or compacts stops taking writes.
    #[error("flush_threads ({flush_threads}) and compaction_threads ({compaction_threads}) must be at least 1")]
    NoThreads {
        /// The option.
        flush_threads: i32,
        /// The option.
        compaction_threads: i32,
    },
    /// The engine refused.
    #[error("storage engine environment: {detail}")]
    Engine {
        /// Its own words.
        detail: String,
    },
}

/// The shared cache, write-buffer manager and thread pools. Clones share them.
#[derive(Clone)]
pub struct StoreResources {
    cache: Cache,
    write_buffers: WriteBufferManager,
    env: Env,
    options: ResourceOptions,
}

impl StoreResources {
    /// Makes the resources; once a process.
    ///
    /// # Errors
    /// [`ResourcesError`] when the numbers do not fit together.
    pub fn new(options: ResourceOptions) -> Result<StoreResources, ResourcesError> {
        let ResourceOptions { cache_bytes_max, memtable_bytes_max, flush_threads, compaction_threads } = options;
        if memtable_bytes_max > cache_bytes_max / 2 {
            return Err(ResourcesError::MemtablesTooLarge { memtable_bytes_max, cache_bytes_max });
        }
        if flush_threads < 1 || compaction_threads < 1 {
            return Err(ResourcesError::NoThreads { flush_threads, compaction_threads });
        }
        let cache = Cache::new_hyper_clock_cache(cache_bytes_max, 0);
        // Writers are not stalled by the manager: it flushes, and the databases' own limits slow writers down.
        let write_buffers =
            WriteBufferManager::new_write_buffer_manager_with_cache(memtable_bytes_max, false, cache.clone());
        let mut env = Env::new().map_err(|error| ResourcesError::Engine { detail: error.into_string() })?;
        env.set_high_priority_background_threads(flush_threads);
        env.set_low_priority_background_threads(compaction_threads);
        Ok(StoreResources { cache, write_buffers, env, options })
    }

    /// The block cache, for the table options of a database.
    pub fn cache(&self) -> &Cache {
        &self.cache
    }

    /// Options of a database that uses these resources and the settings that hold for every database of the project:
    /// what a crash may cost (nothing that was synced), how it is noticed, and how much is logged.
    pub fn database_options(&self) -> Options {
        let mut options = Options::default();
        options.set_env(&self.env);
        options.set_write_buffer_manager(&self.write_buffers);
        options.set_max_background_jobs(self.options.flush_threads + self.options.compaction_threads);

        // Every commit is synced, so the only record that may be incomplete is the last one. Anything else wrong in the
        // write-ahead log is corruption and must show, not shorten what was acknowledged. This mode excludes recycled log
        // files, which would save a tenth of a sync.
        options.set_wal_recovery_mode(rocksdb::DBRecoveryMode::TolerateCorruptedTailRecords);
        options.set_paranoid_checks(true);
        options.set_track_and_verify_wals_in_manifest(true);

        // One writer at a time: the simplest write path is the fastest.
        options.set_allow_concurrent_memtable_write(false);
        options.set_enable_write_thread_adaptive_yield(false);

        // Bounded whatever the number of tables, at the price of opening one now and then.
        options.set_max_open_files(512);
        options.set_skip_stats_update_on_db_open(true);
        // Writes back in small steps, so that a large flush does not make the next sync of the log wait for it.
        options.set_bytes_per_sync(1 << 20);
        options.set_avoid_unnecessary_blocking_io(true);

        options.set_log_level(rocksdb::LogLevel::Warn);
        options.set_keep_log_file_num(4);
        options.set_max_log_file_size(8 << 20);
        options.set_stats_dump_period_sec(0);
        options.set_stats_persist_period_sec(0);
        options
    }

    /// Bytes in the cache now, memtables included.
    pub fn cache_bytes(&self) -> usize {
        self.cache.get_usage()
    }

    /// Bytes of memtables now, over all databases.
    pub fn memtable_bytes(&self) -> usize {
        self.write_buffers.get_usage()
    }
}

impl std::fmt::Debug for StoreResources {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("StoreResources").field("options", &self.options).finish_non_exhaustive()
    }
}
