//! Opening the database of a folder, once it is clear whose the folder is.
//!
//! ```text
//! FOLDER/FORMAT     what the folder is and whose (see `format_file`)
//! FOLDER/db/        the database
//! ```

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rocksdb::{ColumnFamilyDescriptor, DB, ErrorKind, Options};

use crate::format_file::{DatabaseState, Expected, Format, FormatError, sync_folder};

const DATABASE_FOLDER: &str = "db";

/// A database that could not be opened. Nothing was changed on disk, except that a folder that was empty may have been made.
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
        "{} has other column families than format version {version}: missing [{}], unexpected [{}]",
        path.display(), missing.join(", "), unexpected.join(", ")
    )]
    ColumnFamilies {
        /// The database.
        path: PathBuf,
        /// The format version the folder states.
        version: u32,
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

/// Opens the database in `folder` with exactly these column families, and returns it with what the folder's format file says.
/// Makes both when the folder is empty or absent; a making that a crash interrupted is begun again.
///
/// # Errors
/// [`OpenError`]; every one names the path, and what was found where something else was expected.
pub fn open(
    folder: &Path,
    expected: &Expected<'_>,
    new_incarnation: [u8; 16],
    mut options: Options,
    families: Vec<ColumnFamilyDescriptor>,
) -> Result<(DB, Format), OpenError> {
    let database = folder.join(DATABASE_FOLDER);
    let format = match Format::read(folder)? {
        Some(format) => {
            format.check(folder, expected)?;
            format
        }
        None => create(folder, &database, expected, new_incarnation)?,
    };
    let is_new = format.state == DatabaseState::Creating;
    if is_new {
        remove_half_made(&database)?;
    } else {
        check_families(&database, format.version, &families)?;
    }
    options.create_if_missing(is_new);
    options.create_missing_column_families(is_new);
    options.set_error_if_exists(is_new);
    let db = DB::open_cf_descriptors(&options, &database, families).map_err(|error| engine_error(&database, &error))?;
    if !is_new {
        return Ok((db, format));
    }
    // The database's files must be findable before the file says that they are there.
    sync_folder(&database).and_then(|()| sync_folder(folder)).map_err(|error| io_error(&database, &error))?;
    let ready = Format { state: DatabaseState::Ready, ..format };
    ready.write(folder)?;
    Ok((db, ready))
}

/// Makes the folder and its format file, unless something is there already.
fn create(folder: &Path, database: &Path, expected: &Expected<'_>, incarnation: [u8; 16]) -> Result<Format, OpenError> {
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
        kind: expected.kind.to_owned(),
        version: expected.version_max,
        state: DatabaseState::Creating,
        incarnation,
        identity: expected.identity.to_vec(),
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

fn check_families(database: &Path, version: u32, families: &[ColumnFamilyDescriptor]) -> Result<(), OpenError> {
    if !database.join("CURRENT").exists() {
        return Err(OpenError::DatabaseMissing { path: database.to_owned() });
    }
    let found = DB::list_cf(&Options::default(), database).map_err(|error| engine_error(database, &error))?;
    let found: BTreeSet<String> = found.into_iter().collect();
    let mut expected: BTreeSet<String> = families.iter().map(|family| family.name().to_owned()).collect();
    expected.insert(rocksdb::DEFAULT_COLUMN_FAMILY_NAME.to_owned());
    if found == expected {
        return Ok(());
    }
    Err(OpenError::ColumnFamilies {
        path: database.to_owned(),
        version,
        missing: expected.difference(&found).cloned().collect(),
        unexpected: found.difference(&expected).cloned().collect(),
    })
}

fn engine_error(database: &Path, error: &rocksdb::Error) -> OpenError {
    let (path, detail) = (database.to_owned(), error.to_string());
    match error.kind() {
        ErrorKind::Corruption => OpenError::Corrupt { path, detail },
        // RocksDB has no kind of its own for a lock that is held. These are its words for one of another process, and of this one.
        ErrorKind::IOError if detail.contains("While lock file") || detail.contains("lock hold by") => {
            OpenError::InUse { path, detail }
        }
        _ => OpenError::Io { path, detail },
    }
}

fn io_error(path: &Path, error: &io::Error) -> OpenError {
    OpenError::Io { path: path.to_owned(), detail: error.to_string() }
}
