//! Rows behind their logical end leave the disk, and take nothing else with them.

use crate::common::{commit_row, open};
use bytes::Bytes;
use shard::state::envelope;
use shard::store::{Family, Read, Reader, Store};

fn value(body: &str, end_ms: Option<i64>) -> Bytes {
    envelope::encode_bytes(body.as_bytes(), end_ms)
}

#[test]
fn compaction_drops_ended_rows_of_every_family() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let mut store = open(folder.path()).expect("open");
    for family in Family::ALL {
        for (key, end_ms) in [(b"none", None), (b"past", Some(99)), (b"edge", Some(100)), (b"next", Some(101))] {
            // Large enough for a blob file where there are such.
            commit_row(&mut store, family, key, value(&"x".repeat(3_000), end_ms));
        }
    }
    let remaining = |store: &store::RocksStore, family| {
        let rows = store.scan(family, b"", b"z", 10).expect("scan");
        rows.into_iter().map(|(key, _)| key).collect::<Vec<_>>()
    };
    store.compact().expect("compact");
    for family in Family::ALL {
        assert_eq!(remaining(&store, family).len(), 4, "nothing was released");
    }
    store.release_ended(100);
    store.compact().expect("compact");
    for family in Family::ALL {
        assert_eq!(remaining(&store, family), [&b"next"[..], b"none"], "{}", family.name());
    }
    store.close();
    let store = open(folder.path()).expect("open");
    for family in Family::ALL {
        assert_eq!(remaining(&store, family), [&b"next"[..], b"none"]);
    }
}

/// A live version below, an ended one above it, in tables of different levels: the ended one must go as a tombstone goes.
#[test]
fn a_dropped_row_does_not_uncover_its_older_version() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let mut store = open(folder.path()).expect("open");
    commit_row(&mut store, Family::Messages, b"key", value("live", None));
    commit_row(&mut store, Family::Messages, b"other", value("live", None));
    store.compact().expect("the live version goes to the bottom level");
    commit_row(&mut store, Family::Messages, b"key", value("terminal", Some(100)));
    commit_row(&mut store, Family::Messages, b"last", value("live", None));
    store.flush().expect("the ended version stays in level 0");
    store.release_ended(100);
    // Level 0 is compacted as soon as it holds four tables, whether or not the bottom takes part.
    for number in 0..12_u8 {
        commit_row(&mut store, Family::Messages, &[b'k', number], value("filler", None));
        store.flush().expect("flush");
        let found = store.get(Family::Messages, b"key").expect("get");
        assert!(found.is_none_or(|found| found == value("terminal", Some(100))), "the older version came back");
    }
    store.compact().expect("compact");
    assert_eq!(store.get(Family::Messages, b"key").expect("get"), None);
    assert_eq!(store.get(Family::Messages, b"other").expect("get"), Some(value("live", None)));
}

/// The other way round: an ended version below a live one must not take the live one with it.
#[test]
fn an_ended_older_version_does_not_hide_a_newer_one() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let mut store = open(folder.path()).expect("open");
    commit_row(&mut store, Family::Dedupe, b"key", value("ended", Some(50)));
    store.flush().expect("flush");
    commit_row(&mut store, Family::Dedupe, b"key", value("live", None));
    store.release_ended(100);
    store.compact().expect("compact");
    assert_eq!(store.get(Family::Dedupe, b"key").expect("get"), Some(value("live", None)));
}

#[test]
fn a_read_that_runs_keeps_rows_that_have_not_ended() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let mut store = open(folder.path()).expect("open");
    commit_row(&mut store, Family::Messages, b"ended", value("old", Some(100)));
    commit_row(&mut store, Family::Messages, b"live", value("old", None));
    let reader = store.reader();
    reader.read(|read| {
        assert!(read.get(Family::Messages, b"live").expect("get").is_some());
        commit_row(&mut store, Family::Messages, b"live", value("new", None));
        store.release_ended(100);
        store.compact().expect("compact");
        assert_eq!(read.get(Family::Messages, b"live").expect("get"), Some(value("old", None)), "its snapshot stands");
    });
    assert_eq!(store.get(Family::Messages, b"live").expect("get"), Some(value("new", None)));
}
