//! What a restart and a crash leave.

use std::fs;
use std::path::Path;

use crate::common::{INCARNATION, commit_row, open, resources};
use bytes::Bytes;
use shard::store::{Batch, CommitError, Family, Read, Reader, Store, StoreError};
use store::{RocksStore, StoreOptions};

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("folder");
    for entry in fs::read_dir(from).expect("folder") {
        let entry = entry.expect("entry");
        let target = to.join(entry.file_name());
        if entry.file_type().expect("type").is_dir() {
            copy_folder(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).expect("copied");
        }
    }
}

#[test]
fn rows_survive_a_restart() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let mut store = open(folder.path()).expect("open");
    let large = Bytes::from(vec![3; 100_000]);
    commit_row(&mut store, Family::Payloads, b"large", large.clone());
    commit_row(&mut store, Family::Messages, b"small", "value");
    store.close();
    for _ in 0..3 {
        let store =
            RocksStore::open(folder.path(), crate::common::IDENTITY, [9; 16], &resources(), &StoreOptions::default())
                .expect("open again");
        assert_eq!(store.incarnation(), INCARNATION, "it keeps the id it was made with");
        assert_eq!(store.get(Family::Payloads, b"large").expect("get"), Some(large.clone()));
        assert_eq!(store.get(Family::Messages, b"small").expect("get"), Some(Bytes::from("value")));
        store.flush().expect("flush");
    }
}

/// The folder as it stands on disk while the store runs is what a killed process leaves.
#[test]
fn every_commit_that_returned_survives_a_kill() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let mut store = open(&folder.path().join("live")).expect("open");
    for number in 0..100_u32 {
        let mut batch = Batch::default();
        for family in Family::ALL {
            batch.put(family, number.to_be_bytes().to_vec(), vec![0xab; 2_000]);
            batch.delete(family, number.wrapping_sub(50).to_be_bytes().to_vec());
        }
        store.commit(batch).expect("commit");
        if number % 33 == 0 {
            let image = folder.path().join(format!("killed-after-{number}"));
            copy_folder(&folder.path().join("live"), &image);
            let killed = open(&image).expect("what a killed process leaves opens");
            for family in Family::ALL {
                let rows = killed.scan(family, b"", &[0xff; 5], 1_000).expect("scan");
                let keys: Vec<_> = rows.iter().map(|(key, _)| key.clone()).collect();
                let expected: Vec<_> = (number.saturating_sub(49)..=number)
                    .map(|number| Bytes::copy_from_slice(&number.to_be_bytes()))
                    .collect();
                assert_eq!(keys, expected, "{} after {number}", family.name());
            }
        }
    }
}

#[test]
fn a_record_that_was_only_begun_is_dropped_and_a_broken_one_is_reported() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let mut store = open(&folder.path().join("live")).expect("open");
    commit_row(&mut store, Family::Meta, b"first", vec![1; 500]);
    commit_row(&mut store, Family::Meta, b"second", vec![2; 500]);
    let newest_log = |folder: &Path| {
        let mut logs: Vec<_> = fs::read_dir(folder.join("db"))
            .expect("folder")
            .map(|entry| entry.expect("entry").path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "log"))
            .collect();
        logs.sort();
        logs.pop().expect("a log")
    };

    let torn = folder.path().join("torn");
    copy_folder(&folder.path().join("live"), &torn);
    let log = newest_log(&torn);
    let bytes = fs::read(&log).expect("log");
    fs::write(&log, &bytes[..bytes.len() - 100]).expect("log");
    let opened = open(&torn).expect("a torn last record was never acknowledged");
    assert!(opened.get(Family::Meta, b"first").expect("get").is_some());
    assert!(opened.get(Family::Meta, b"second").expect("get").is_none());

    let broken = folder.path().join("broken");
    copy_folder(&folder.path().join("live"), &broken);
    let mut bytes = bytes;
    let middle_of_first = bytes.windows(100).position(|window| window == [1; 100]).expect("the first value");
    bytes[middle_of_first] ^= 0xff;
    fs::write(newest_log(&broken), &bytes).expect("log");
    let error = open(&broken).expect_err("an acknowledged record is damaged");
    assert!(matches!(error, store::OpenError::Corrupt { .. }), "{error}");
}

#[test]
fn a_lingering_reader_does_not_keep_the_folder() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let mut store = open(folder.path()).expect("open");
    commit_row(&mut store, Family::Meta, b"key", "value");
    let reader = store.reader();
    store.close();
    let closed = reader.read(|read| read.get(Family::Meta, b"key"));
    assert!(matches!(closed, Err(StoreError::Closed { ref reason }) if reason.contains("owner")), "{closed:?}");

    let again = open(folder.path()).expect("the reader does not hold the folder");
    let new_reader = again.reader();
    drop(again);
    for reader in [&reader, &new_reader] {
        let closed = reader.read(|read| {
            (
                read.get(Family::Meta, b"key").is_err(),
                read.get_many(Family::Meta, &[b"key"]).is_err(),
                read.scan(Family::Meta, b"", b"z", 1).is_err(),
            )
        });
        assert_eq!(closed, (true, true, true));
    }
    open(folder.path()).expect("nor does a dropped store");
}

#[test]
fn closing_waits_for_the_reads_that_run() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let mut store = open(folder.path()).expect("open");
    commit_row(&mut store, Family::Meta, b"key", "value");
    let reader = store.reader();
    let (started, wait_started) = std::sync::mpsc::sync_channel(0);
    let (go_on, wait_go_on) = std::sync::mpsc::sync_channel(0);
    std::thread::scope(|scope| {
        let reading = scope.spawn(move || {
            reader.read(|read| {
                started.send(()).expect("the test listens");
                wait_go_on.recv().expect("the test sends");
                read.get(Family::Meta, b"key")
            })
        });
        wait_started.recv().expect("the reader started");
        let closing = scope.spawn(move || store.close());
        go_on.send(()).expect("the reader listens");
        let value = reading.join().expect("no panic").expect("a read that runs is not disturbed");
        assert_eq!(value, Some(Bytes::from("value")));
        closing.join().expect("no panic");
    });
    open(folder.path()).expect("closed");
}

/// A full or failing disk is played by taking the folder's log away from under the store: RocksDB cannot make the next one.
#[test]
fn a_commit_that_fails_closes_the_store() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let mut store = open(folder.path()).expect("open");
    commit_row(&mut store, Family::Meta, b"before", "value");
    let reader = store.reader();
    fs::rename(folder.path().join("db"), folder.path().join("elsewhere")).expect("moved");
    // The open log still takes commits; switching to the next log file does not.
    let _ = store.flush();
    let mut batch = Batch::default();
    batch.put(Family::Meta, "during", "value");
    let error = store.commit(batch.clone()).expect_err("there is no folder to write to");
    assert!(matches!(error, CommitError::OutcomeUncertain(_)), "{error}");
    let error = store.commit(batch).expect_err("closed");
    assert!(matches!(error, CommitError::NotWritten(StoreError::Closed { .. })), "{error}");
    for closed in [store.get(Family::Meta, b"before"), reader.read(|read| read.get(Family::Meta, b"before"))] {
        assert!(matches!(closed, Err(StoreError::Closed { ref reason }) if reason.contains("unknown")), "{closed:?}");
    }
    fs::rename(folder.path().join("elsewhere"), folder.path().join("db")).expect("moved back");
    let again = open(folder.path()).expect("open again");
    assert_eq!(again.get(Family::Meta, b"before").expect("get"), Some(Bytes::from("value")));
}

#[test]
fn a_checkpoint_is_a_store_of_its_own() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let mut store = open(&folder.path().join("live")).expect("open");
    commit_row(&mut store, Family::Payloads, b"before", vec![1; 5_000]);
    let copy = folder.path().join("copy");
    fs::create_dir(&copy).expect("folder");
    fs::copy(folder.path().join("live/FORMAT"), copy.join("FORMAT")).expect("copied");
    store.checkpoint(&copy.join("db")).expect("checkpoint");
    commit_row(&mut store, Family::Payloads, b"after", "value");
    let copy = open(&copy).expect("open");
    assert_eq!(copy.get(Family::Payloads, b"before").expect("get"), Some(Bytes::from(vec![1; 5_000])));
    assert_eq!(copy.get(Family::Payloads, b"after").expect("get"), None);
}

#[test]
fn stats_count_what_was_committed() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let mut store = open(folder.path()).expect("open");
    let mut batch = Batch::default();
    batch.put(Family::Payloads, "key", vec![0; 10_000]);
    batch.delete(Family::Meta, "key");
    store.commit(batch).expect("commit");
    let stats = store.stats().expect("open");
    assert_eq!((stats.commit_count, stats.key_count, stats.byte_count), (1, 2, 10_006));
    assert!(stats.memtable_bytes >= 10_000);
    assert_eq!((stats.table_bytes, stats.blob_bytes), (0, 0));
    store.flush().expect("flush");
    let stats = store.stats().expect("open");
    assert!(stats.table_bytes > 0 && stats.blob_bytes > 0, "{stats:?}");
    assert!(!stats.is_write_stopped);
}
