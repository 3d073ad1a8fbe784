//! Folders that must not be opened, and what the error tells the operator.

use std::fs;
use std::sync::Arc;

use embedded::{EmbeddedOptions, LockError, OpenError};
use store::format_file::{Format, FormatError};

use crate::common::{Clock, open, open_with, options};

#[test]
fn a_second_server_is_told_who_has_the_folder() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let engine = open(folder.path());
    let error = open_with(folder.path(), options(), &Clock::at(0)).expect_err("in use");
    let own = std::process::id();
    assert!(matches!(error, OpenError::Lock(LockError::InUse { pid: Some(pid), .. }) if pid == own), "{error}");
    assert!(error.to_string().ends_with(&format!("is in use by another server (process {own})")), "{error}");
    engine.close();
    open(folder.path());
}

#[test]
fn handles_that_linger_do_not_keep_the_folder() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let engine = open(folder.path());
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let partition = runtime.block_on(crate::common::partition(&engine, "t"));
    let topic = engine.topic("t").expect("there");
    drop(engine);
    let again = open(folder.path());
    assert_eq!(again.topics().len(), 1);
    assert_eq!((partition.end_offset(), topic.partition_count()), (0, 1));
}

#[test]
fn a_folder_keeps_the_id_it_was_made_with() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let with_id = |id| EmbeddedOptions { new_incarnation: id, ..options() };
    let first = open_with(folder.path(), with_id([1; 16]), &Clock::at(0)).expect("open");
    assert_eq!(first.incarnation(), [1; 16]);
    drop(first);
    let second = open_with(folder.path(), with_id([2; 16]), &Clock::at(0)).expect("open");
    assert_eq!(second.incarnation(), [1; 16]);
}

#[test]
fn folders_of_other_things_are_refused() {
    let folder = tempfile::tempdir().expect("temporary folder");
    drop(open(folder.path()));
    let format = Format::read(folder.path()).expect("readable").expect("there");
    let refused = |format: Format| {
        format.write(folder.path()).expect("written");
        open_with(folder.path(), options(), &Clock::at(0)).expect_err("refused")
    };
    let error = refused(Format { kind: "shard-store".to_owned(), ..format.clone() });
    assert!(error.to_string().contains("is of kind shard-store, expected embedded"), "{error}");
    let error = refused(Format { version: 2, ..format.clone() });
    let newer =
        store::OpenError::Format(FormatError::Newer { path: folder.path().join("FORMAT"), found: 2, supported: 1 });
    assert_eq!(error.to_string(), newer.to_string());
    format.write(folder.path()).expect("written");
    fs::remove_dir_all(folder.path().join("db")).expect("removed");
    let error = open_with(folder.path(), options(), &Clock::at(0)).expect_err("the database is gone");
    assert!(matches!(error, OpenError::Database(store::OpenError::DatabaseMissing { .. })), "{error}");
}

#[test]
fn a_folder_that_cannot_be_made_is_an_error() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let file = folder.path().join("file");
    fs::write(&file, "").expect("written");
    let error = embedded::Embedded::open(&file.join("data"), options(), Arc::new(|| 0)).expect_err("no folder");
    assert!(matches!(error, OpenError::Io { .. }), "{error}");
}
