//! Finding out whose a folder is before the engine touches it.
//!
//! ```text
//! FOLDER/FORMAT     what the folder is and whose (see `format_file`)
//! FOLDER/db/        the database
//! ```

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rocksdb::{DB, ErrorKind};
use shard::store::Family;

use crate::end_filter::ReleasedThrough;
use crate::engine::Engine;
use crate::format_file::{DatabaseState, Expected, Format, FormatError, sync_folder};
use crate::resources::StoreResources;
use crate::tuning;

const KIND: &str = "shard-store";
/// Of the folder's layout and the families' names; the rows' own format is the core's business.
const VERSION: u32 = 1;
const DATABASE_FOLDER: &str = "db";

/// What may be set for one store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreOptions {
    /// When a family's memtable is written to disk, in bytes, unless memory runs short before. Default 64 MiB.
    ///
    /// An idle store keeps about 6 % of it and 1 MiB in memory.
    pub write_buffer_bytes_max: usize,
    /// How much write-ahead log is kept, and so read at the next open, in bytes. Default 192 MiB.
    pub log_bytes_max: u64,
    /// How long a row behind its logical end may stay on disk in a table that nothing else compacts. Default a day.
    pub periodic_compaction: Duration,
}

impl Default for StoreOptions {
    fn default() -> Self {
        StoreOptions {
            write_buffer_bytes_max: 64 << 20,
            log_bytes_max: 192 << 20,
            periodic_compaction: Duration::from_secs(24 * 60 * 60),
        }
    }
}

/// A store that could not be opened. Nothing was changed on disk, except that a folder that was empty may have been made.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The format file is missing its meaning: corrupt, newer, of another kind or another owner's.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// There is a database but nothing says whose.
    #[error("{} holds a database but no FORMAT file: it was not made by this system, or only partly copied", path.display())]
    DatabaseWithoutFormat {
        /// The folder.
        path: PathBuf,
    },
    /// The format file says there is a database, but there is none.
    #[error("{} has a FORMAT file but its database is gone", path.display())]
    DatabaseMissing {
        /// Where the database should be.
        path: PathBuf,
    },
    /// The database does not have exactly the column families of its version.
    #[error(
        "{} has other column families than format version {VERSION}: missing [{}], unexpected [{}]",
        path.display(), missing.join(", "), unexpected.join(", ")
    )]
    ColumnFamilies {
        /// The database.
        path: PathBuf,
        /// Families that should be there.
        missing: Vec<String>,
        /// Families that should not.
        unexpected: Vec<String>,
    },
    /// Another handle, of this process or another one, has the database open.
    #[error("{} is in use: {detail}", path.display())]
    InUse {
        /// The database.
        path: PathBuf,
        /// The engine's own words.
        detail: String,
    },
    /// The database fails its own checks.
    #[error("{} is corrupt: {detail}", path.display())]
    Corrupt {
        /// The database.
        path: PathBuf,
        /// The engine's own words.
        detail: String,
    },
    /// The operating system refused.
    #[error("{}: {detail}", path.display())]
    Io {
        /// What could not be read or written.
        path: PathBuf,
        /// The operating system's or the engine's own words.
        detail: String,
    },
}

/// An open database and what its format file says.
pub(crate) struct Opened {
    pub(crate) engine: Engine,
    pub(crate) format: Format,
}

/// Opens the store in `folder`, making it when the folder is empty or absent.
pub(crate) fn open(
    folder: &Path,
    identity: &[u8],
    new_incarnation: [u8; 16],
    resources: &StoreResources,
    options: &StoreOptions,
    released_through: &ReleasedThrough,
) -> Result<Opened, OpenError> {
    let database = folder.join(DATABASE_FOLDER);
    let format = match Format::read(folder)? {
        Some(format) => {
            format.check(folder, &Expected { kind: KIND, version_max: VERSION, identity })?;
            format
        }
        None => create(folder, &database, identity, new_incarnation)?,
    };
    let is_new = format.state == DatabaseState::Creating;
    if is_new {
        remove_half_made(&database)?;
    } else {
        check_families(&database)?;
    }
    let mut database_options = resources.database_options();
    database_options.create_if_missing(is_new);
    database_options.create_missing_column_families(is_new);
    database_options.set_error_if_exists(is_new);
    database_options.set_max_total_wal_size(options.log_bytes_max);
    let families = tuning::families(resources, options, released_through);
    let db = DB::open_cf_descriptors(&database_options, &database, families)
        .map_err(|error| engine_error(&database, &error))?;
    let format = if is_new {
        // The database's files must be findable before the file says that they are there.
        sync_folder(&database).and_then(|()| sync_folder(folder)).map_err(|error| io_error(&database, &error))?;
        let ready = Format { state: DatabaseState::Ready, ..format };
        ready.write(folder)?;
        ready
    } else {
        format
    };
    Ok(Opened { engine: Engine::new(db), format })
}

/// Makes the folder and its format file, unless something is there already.
fn create(folder: &Path, database: &Path, identity: &[u8], incarnation: [u8; 16]) -> Result<Format, OpenError> {
    for place in [folder, database] {
        // CURRENT names the newest manifest in every RocksDB folder.
        if place.join("CURRENT").exists() {
            return Err(OpenError::DatabaseWithoutFormat { path: place.to_owned() });
        }
    }
    fs::create_dir_all(folder).map_err(|error| io_error(folder, &error))?;
    if let Some(parent) = folder.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        sync_folder(parent).map_err(|error| io_error(parent, &error))?;
    }
    let format = Format {
        kind: KIND.to_owned(),
        version: VERSION,
        state: DatabaseState::Creating,
        incarnation,
        identity: identity.to_vec(),
    };
    format.write(folder)?;
    Ok(format)
}

fn remove_half_made(database: &Path) -> Result<(), OpenError> {
    match fs::remove_dir_all(database) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(io_error(database, &error)),
    }
}

fn check_families(database: &Path) -> Result<(), OpenError> {
    if !database.join("CURRENT").exists() {
        return Err(OpenError::DatabaseMissing { path: database.to_owned() });
    }
    let found = DB::list_cf(&rocksdb::Options::default(), database).map_err(|error| engine_error(database, &error))?;
    let found: BTreeSet<String> = found.into_iter().collect();
    let mut expected: BTreeSet<String> = Family::ALL.into_iter().map(|family| family.name().to_owned()).collect();
    expected.insert(rocksdb::DEFAULT_COLUMN_FAMILY_NAME.to_owned());
    if found == expected {
        return Ok(());
    }
    Err(OpenError::ColumnFamilies {
        path: database.to_owned(),
        missing: expected.difference(&found).cloned().collect(),
        unexpected: found.difference(&expected).cloned().collect(),
    })
}

fn engine_error(database: &Path, error: &rocksdb::Error) -> OpenError {
    let (path, detail) = (database.to_owned(), error.to_string());
    match error.kind() {
        ErrorKind::Corruption => OpenError::Corrupt { path, detail },
        // RocksDB has no kind of its own for a lock that is held.
        ErrorKind::IOError if detail.contains("LOCK") || detail.contains("lock hold") => {
            OpenError::InUse { path, detail }
        }
        _ => OpenError::Io { path, detail },
    }
}

fn io_error(path: &Path, error: &io::Error) -> OpenError {
    OpenError::Io { path: path.to_owned(), detail: error.to_string() }
}
