//! Folders that must not be opened, and what the error tells the operator.

use std::fs;

use crate::common::{IDENTITY, INCARNATION, commit_row, open, resources};
use rocksdb::{ColumnFamilyDescriptor, DB, Options};
use shard::store::{Family, Read};
use store::format_file::{DatabaseState, Format, FormatError};
use store::{OpenError, ResourceOptions, ResourcesError, RocksStore, StoreOptions, StoreResources};

#[test]
fn another_owners_folder_is_refused() {
    let folder = tempfile::tempdir().expect("temporary folder");
    open(folder.path()).expect("open").close();
    let error = RocksStore::open(folder.path(), b"default/1", INCARNATION, &resources(), &StoreOptions::default())
        .expect_err("not ours");
    assert!(matches!(error, OpenError::Format(FormatError::Foreign { .. })));
    let text = error.to_string();
    assert!(text.ends_with(r#"FORMAT belongs to "default/0", expected "default/1""#), "{text}");
    open(folder.path()).expect("its owner still opens it");
}

#[test]
fn a_newer_version_is_refused() {
    let folder = tempfile::tempdir().expect("temporary folder");
    open(folder.path()).expect("open").close();
    let format = Format::read(folder.path()).expect("readable").expect("there");
    Format { version: 2, ..format }.write(folder.path()).expect("written");
    let error = open(folder.path()).expect_err("newer");
    assert!(matches!(error, OpenError::Format(FormatError::Newer { found: 2, supported: 1, .. })), "{error}");
    let refused = RocksStore::refuse_newer(folder.path()).expect_err("newer");
    assert_eq!(refused.to_string(), error.to_string());
}

#[test]
fn only_what_is_newer_is_refused_before_it_is_opened() {
    let folder = tempfile::tempdir().expect("temporary folder");
    RocksStore::refuse_newer(folder.path()).expect("nothing is there");
    open(folder.path()).expect("open").close();
    RocksStore::refuse_newer(folder.path()).expect("of this version");
    fs::write(folder.path().join("FORMAT"), "nereus-delay").expect("written");
    RocksStore::refuse_newer(folder.path()).expect("what is wrong with it shows when it is opened");
}

#[test]
fn a_corrupt_format_file_is_refused() {
    let folder = tempfile::tempdir().expect("temporary folder");
    open(folder.path()).expect("open").close();
    fs::write(folder.path().join("FORMAT"), "nereus-delay").expect("written");
    let error = open(folder.path()).expect_err("corrupt");
    assert!(matches!(error, OpenError::Format(FormatError::Corrupt { .. })), "{error}");
}

#[test]
fn a_database_without_a_format_file_is_refused() {
    let folder = tempfile::tempdir().expect("temporary folder");
    open(folder.path()).expect("open").close();
    fs::remove_file(folder.path().join("FORMAT")).expect("removed");
    for folder in [folder.path().to_owned(), folder.path().join("db")] {
        let error = open(&folder).expect_err("nothing says whose it is");
        assert!(matches!(error, OpenError::DatabaseWithoutFormat { .. }), "{error}");
        assert!(!folder.join("FORMAT").exists(), "nothing was claimed");
    }
}

#[test]
fn a_database_that_is_gone_is_not_made_anew() {
    let folder = tempfile::tempdir().expect("temporary folder");
    open(folder.path()).expect("open").close();
    fs::remove_dir_all(folder.path().join("db")).expect("removed");
    let error = open(folder.path()).expect_err("rows are missing");
    assert!(matches!(error, OpenError::DatabaseMissing { .. }), "{error}");
}

#[test]
fn a_folder_whose_making_was_interrupted_is_made_again() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let half_made = Format {
        kind: "shard-store".to_owned(),
        version: 1,
        state: DatabaseState::Creating,
        incarnation: [1; 16],
        identity: IDENTITY.to_vec(),
    };
    half_made.write(folder.path()).expect("written");
    fs::create_dir(folder.path().join("db")).expect("made");
    fs::write(folder.path().join("db/CURRENT"), "MANIFEST-").expect("written");
    let mut store = open(folder.path()).expect("nothing was ever in it");
    assert_eq!(store.incarnation(), [1; 16]);
    commit_row(&mut store, Family::Meta, b"key", "value");
    store.close();
    let store = open(folder.path()).expect("open");
    assert!(store.get(Family::Meta, b"key").expect("get").is_some(), "once made it is kept");
}

#[test]
fn other_column_families_are_refused() {
    let folder = tempfile::tempdir().expect("temporary folder");
    open(folder.path()).expect("open").close();
    let database = folder.path().join("db");
    let names = DB::list_cf(&Options::default(), &database).expect("listed");
    let descriptors = names.iter().map(|name| ColumnFamilyDescriptor::new(name, Options::default()));
    let mut raw = DB::open_cf_descriptors(&Options::default(), &database, descriptors).expect("open");
    raw.drop_cf("open").expect("dropped");
    raw.create_cf("novel", &Options::default()).expect("made");
    drop(raw);
    let error = open(folder.path()).expect_err("not the families of this version");
    let text = error.to_string();
    assert!(matches!(error, OpenError::ColumnFamilies { .. }), "{error}");
    assert!(text.ends_with("missing [open], unexpected [novel]"), "{text}");
}

#[test]
fn a_folder_in_use_is_refused() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let _first = open(folder.path()).expect("open");
    let error = open(folder.path()).expect_err("in use");
    assert!(matches!(error, OpenError::InUse { .. }), "{error}");
}

#[test]
fn an_error_of_the_disk_is_not_a_lock_whatever_the_folder_is_called() {
    let parent = tempfile::tempdir().expect("temporary folder");
    let folder = parent.path().join("BLOCK");
    open(&folder).expect("open").close();
    fs::write(folder.join("db/CURRENT"), "MANIFEST-999999\n").expect("written");
    let error = open(&folder).expect_err("there is no such manifest");
    assert!(matches!(error, OpenError::Io { .. }), "{error}");
}

#[test]
fn resources_that_do_not_fit_are_refused() {
    let refused = |options| StoreResources::new(options).map(|_| ());
    let default = ResourceOptions::default();
    assert_eq!(
        refused(ResourceOptions { memtable_bytes_max: (128 << 20) + 1, ..default }),
        Err(ResourcesError::MemtablesTooLarge { memtable_bytes_max: (128 << 20) + 1, cache_bytes_max: 256 << 20 })
    );
    assert!(matches!(
        refused(ResourceOptions { compaction_threads: 0, ..default }),
        Err(ResourcesError::NoThreads { .. })
    ));
}
