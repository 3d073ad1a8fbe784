//! The folder of one run: made new, removed when the run was good, kept when somebody has to look at it.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use tempfile::TempDir;

/// A folder that is removed when it is dropped, unless it is kept.
#[derive(Debug)]
pub struct RunFolder {
    folder: TempDir,
}

impl RunFolder {
    /// A new folder in `parent`, or where temporary files go.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn new(parent: Option<&Path>, name: &str) -> anyhow::Result<RunFolder> {
        let prefix = format!("nereus-{name}-");
        let mut builder = tempfile::Builder::new();
        builder.prefix(&prefix);
        let folder = match parent {
            Some(parent) => {
                std::fs::create_dir_all(parent).with_context(|| format!("cannot make {}", parent.display()))?;
                builder.tempdir_in(parent)
            }
            None => builder.tempdir(),
        };
        Ok(RunFolder { folder: folder.context("cannot make a folder for the run")? })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Leaves it where it is.
    pub fn keep(self) -> PathBuf {
        self.folder.keep()
    }
}
