//! One server a folder.
//!
//! The lock is the kernel's advisory lock on a file, so it goes with the process that holds it, however that ends; the process id
//! inside is only there to be shown to whoever comes second.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

const FILE_NAME: &str = "server.lock";

/// The lock could not be had.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another server uses the folder.
    #[error("{} is in use by another server{}", folder.display(), of_process(*pid))]
    InUse {
        /// The folder.
        folder: PathBuf,
        /// The other server's process id, when it could be read.
        pid: Option<u32>,
    },
    /// The operating system refused.
    #[error("{}: {source}", path.display())]
    Io {
        /// The lock file.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
}

fn of_process(pid: Option<u32>) -> String {
    pid.map_or(String::new(), |pid| format!(" (process {pid})"))
}

/// Holds the folder until it is dropped.
#[derive(Debug)]
pub(crate) struct FolderLock {
    _file: File,
}

impl FolderLock {
    /// Takes the lock of an existing folder, without waiting.
    pub(crate) fn acquire(folder: &Path) -> Result<FolderLock, LockError> {
        let path = folder.join(FILE_NAME);
        let io_error = |source| LockError::Io { path: path.clone(), source };
        let mut file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path).map_err(io_error)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut text = String::new();
                let pid = file.read_to_string(&mut text).ok().and_then(|_| text.trim().parse().ok());
                return Err(LockError::InUse { folder: folder.to_owned(), pid });
            }
            Err(TryLockError::Error(source)) => return Err(io_error(source)),
        }
        file.set_len(0).map_err(io_error)?;
        writeln!(file, "{}", std::process::id()).map_err(io_error)?;
        Ok(FolderLock { _file: file })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_is_told_who_the_first_is() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let first = FolderLock::acquire(folder.path()).expect("free");
        let error = FolderLock::acquire(folder.path()).expect_err("taken");
        let expected =
            format!("{} is in use by another server (process {})", folder.path().display(), std::process::id());
        assert_eq!(error.to_string(), expected);
        drop(first);
        FolderLock::acquire(folder.path()).expect("free again");
    }

    #[test]
    fn what_a_killed_server_left_in_the_file_does_not_matter() {
        let folder = tempfile::tempdir().expect("temporary folder");
        std::fs::write(folder.path().join(FILE_NAME), "4294967295 and more than a process id").expect("written");
        let _held = FolderLock::acquire(folder.path()).expect("free");
        let text = std::fs::read_to_string(folder.path().join(FILE_NAME)).expect("readable");
        assert_eq!(text, format!("{}\n", std::process::id()));
    }

    #[test]
    fn a_missing_folder_is_an_error_with_its_path() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let error = FolderLock::acquire(&folder.path().join("absent")).expect_err("no folder");
        assert!(error.to_string().contains("absent/server.lock"), "{error}");
    }
}
