//! What is said of a data folder that cannot be used: what was found, and what an operator can do.

use std::fmt::Display;
use std::fs;
use std::path::{Path, PathBuf};

use embedded::Embedded;
use store::RocksStore;

/// For damage. Nothing is repaired here: what was answered is in these files, and leaving out a part of them would lose it.
const AFTER_DAMAGE: &str = "nothing was repaired or left out. Restore the whole data folder from a copy that was made while its \
                            server was stopped; a part of it does not fit the rest";
/// For a disk that refuses.
const AFTER_REFUSAL: &str = "nothing that was answered is lost. Start the server again once the disk takes writes (if it is full, \
                             free some space)";

/// The folder of the embedded log.
pub(crate) fn embedded(data: &Path) -> PathBuf {
    data.join("embedded")
}

/// The folders of shards, by route.
pub(crate) fn shards(data: &Path) -> PathBuf {
    data.join("shards")
}

/// Refuses a data folder of which a newer build has written any part, before anything in it is opened: an upgrade that is taken
/// back must leave the folder as the newer build knows it.
///
/// # Errors
/// The first such part, with both versions.
pub(crate) fn refuse_newer(data: &Path) -> anyhow::Result<()> {
    Embedded::refuse_newer(&embedded(data))?;
    for route in entries(&shards(data)) {
        for shard in entries(&route) {
            RocksStore::refuse_newer(&shard)?;
        }
    }
    Ok(())
}

/// What is in a folder, in order; nothing, where there is none.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let mut entries: Vec<PathBuf> =
        fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    entries.sort();
    entries
}

/// Something in the folder is damaged, and what to do about it.
pub(crate) fn damaged(error: &dyn Display) -> String {
    format!("{error}; {AFTER_DAMAGE}")
}

/// The disk refused, and what to do about it.
pub(crate) fn refused(error: &dyn Display) -> String {
    format!("{error}; {AFTER_REFUSAL}")
}
