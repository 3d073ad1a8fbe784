//! Metadata: compare-and-set, sessions, lists, watches.

use bytes::Bytes;
use embedded::EmbeddedMetadata;
use futures_util::StreamExt as _;
use ports::metadata::{ChangeError, Expected, Metadata, Versioned, WatchEvent};

use crate::common::{Clock, open, open_with, options, spawn};

fn value(text: &'static str) -> Bytes {
    Bytes::from_static(text.as_bytes())
}

async fn keys(metadata: &EmbeddedMetadata, prefix: &str, after: Option<&str>, limit: usize) -> Vec<String> {
    metadata.list(prefix, after, limit).await.expect("list").into_iter().map(|(key, _)| key).collect()
}

#[tokio::test]
async fn changes_happen_only_when_the_expectation_holds() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let engine = open(folder.path());
    let metadata = EmbeddedMetadata::new(&engine);
    assert_eq!(metadata.get("k").await.expect("get"), None);
    let conflict = metadata.put("k", value("x"), Expected::Version(1)).await.expect_err("absent");
    assert!(matches!(conflict, ChangeError::Conflict { expected: Expected::Version(1), found: None }));
    let first = metadata.put("k", value("1"), Expected::Absent).await.expect("put");
    let conflict = metadata.put("k", value("x"), Expected::Absent).await.expect_err("there");
    assert!(matches!(conflict, ChangeError::Conflict { expected: Expected::Absent, found } if found == Some(first)));
    let second = metadata.put("k", value("2"), Expected::Version(first)).await.expect("put");
    assert!(second > first);
    assert!(metadata.put("k", value("x"), Expected::Version(first)).await.is_err(), "stale");
    assert_eq!(metadata.get("k").await.expect("get"), Some(Versioned { value: value("2"), version: second }));
    assert!(metadata.delete("k", first).await.is_err(), "stale");
    metadata.delete("k", second).await.expect("deleted");
    assert_eq!(metadata.get("k").await.expect("get"), None);
    let third = metadata.put("k", value("3"), Expected::Absent).await.expect("put");
    assert!(third > second, "a version is never used again, not even after a deletion");
    engine.close();

    let engine = open(folder.path());
    let metadata = EmbeddedMetadata::new(&engine);
    assert_eq!(metadata.get("k").await.expect("get"), Some(Versioned { value: value("3"), version: third }));
    metadata.delete("k", third).await.expect("deleted");
    let fourth = metadata.put("k", value("4"), Expected::Absent).await.expect("put");
    assert!(fourth > third + 1, "nor after a restart");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_of_many_wins_each_version() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let engine = open(folder.path());
    let metadata = EmbeddedMetadata::new(&engine);
    metadata.put("counter", value("0"), Expected::Absent).await.expect("put");
    let clients = (0..8).map(|_| {
        let metadata = metadata.clone();
        spawn(async move {
            for _ in 0..25 {
                loop {
                    let now = metadata.get("counter").await.expect("get").expect("there");
                    let count: u32 = std::str::from_utf8(&now.value).expect("text").parse().expect("a number");
                    let next = Bytes::from((count + 1).to_string());
                    match metadata.put("counter", next, Expected::Version(now.version)).await {
                        Ok(_) => break,
                        Err(ChangeError::Conflict { .. }) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            }
        })
    });
    for client in clients.collect::<Vec<_>>() {
        client.await.expect("no panic");
    }
    assert_eq!(metadata.get("counter").await.expect("get").expect("there").value, "200");
}

#[tokio::test]
async fn lists_are_ordered_pages_of_a_prefix() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let engine = open(folder.path());
    let metadata = EmbeddedMetadata::new(&engine);
    for key in ["b/2", "a/1", "b/1", "b", "b/10", "c", "b0"] {
        metadata.put(key, value(""), Expected::Absent).await.expect("put");
    }
    assert_eq!(keys(&metadata, "b/", None, 10).await, ["b/1", "b/10", "b/2"]);
    assert_eq!(keys(&metadata, "b/", None, 2).await, ["b/1", "b/10"]);
    assert_eq!(keys(&metadata, "b/", Some("b/10"), 2).await, ["b/2"]);
    assert_eq!(keys(&metadata, "b/", Some("a"), 1).await, ["b/1"], "after may lie before the prefix");
    assert_eq!(keys(&metadata, "b/", Some("b/2"), 1).await, [""; 0]);
    assert_eq!(keys(&metadata, "b/", Some("z"), 1).await, [""; 0]);
    assert_eq!(keys(&metadata, "", None, 10).await, ["a/1", "b", "b/1", "b/10", "b/2", "b0", "c"]);
    assert_eq!(keys(&metadata, "", None, 0).await, [""; 0]);
}

#[tokio::test]
async fn ephemeral_records_live_as_long_as_their_session() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let engine = open(folder.path());
    let metadata = EmbeddedMetadata::new(&engine);
    let session = metadata.open_session().await.expect("open");
    let other = metadata.open_session().await.expect("open");
    assert_ne!(session.id(), other.id());
    assert!(session.remaining().as_secs() > 1_000_000);
    metadata.put_ephemeral("e/1", value("1"), session.id()).await.expect("put");
    let kept = metadata.put_ephemeral("e/2", value("2"), session.id()).await.expect("put");
    metadata.put_ephemeral("e/3", value("3"), other.id()).await.expect("put");
    let found = metadata.put_ephemeral("e/1", value("x"), other.id()).await.expect_err("there");
    assert!(matches!(found, ChangeError::Conflict { expected: Expected::Absent, .. }));
    metadata.put("e/2", value("for good"), Expected::Version(kept)).await.expect("put");
    let id = session.id();
    drop(session);
    // Behind the end of the session in the writer's queue.
    metadata.put("after", value(""), Expected::Absent).await.expect("put");
    assert_eq!(keys(&metadata, "e/", None, 10).await, ["e/2", "e/3"]);
    let over = metadata.put_ephemeral("e/4", value(""), id).await.expect_err("over");
    assert!(matches!(over, ChangeError::SessionOver { session } if session == id));
    let never = metadata.put_ephemeral("e/4", value(""), 999).await.expect_err("never was");
    assert!(matches!(never, ChangeError::SessionOver { session: 999 }));
}

#[tokio::test]
async fn sessions_of_an_earlier_process_are_over() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let engine = open(folder.path());
    let metadata = EmbeddedMetadata::new(&engine);
    let session = metadata.open_session().await.expect("open");
    for number in 0..20 {
        metadata.put_ephemeral(&format!("e/{number}"), value(""), session.id()).await.expect("put");
    }
    metadata.put("kept", value(""), Expected::Absent).await.expect("put");
    engine.close();
    session.lost().await;
    assert!(session.remaining().is_zero());
    let again = open(folder.path());
    let metadata = EmbeddedMetadata::new(&again);
    assert_eq!(keys(&metadata, "", None, 100).await, ["kept"]);
    metadata.put("e/1", value("anew"), Expected::Absent).await.expect("put");
    again.close();
    drop(session);
    let metadata = EmbeddedMetadata::new(&open(folder.path()));
    assert_eq!(metadata.list("e/", None, 1).await.map(|found| found.len()).unwrap_or(0), 0, "the engine is gone");
    let engine = open(folder.path());
    assert_eq!(keys(&EmbeddedMetadata::new(&engine), "e/", None, 10).await, ["e/1"], "it is not ephemeral any more");
}

#[tokio::test]
async fn a_watch_begins_with_resync_and_tells_every_change_of_its_prefix() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let engine = open(folder.path());
    let metadata = EmbeddedMetadata::new(&engine);
    metadata.put("a/before", value(""), Expected::Absent).await.expect("put");
    let mut watch = Metadata::watch(&metadata, "a/");
    assert_eq!(watch.next().await, Some(WatchEvent::Resync));
    let version = metadata.put("a/k", value("1"), Expected::Absent).await.expect("put");
    metadata.put("b/k", value("x"), Expected::Absent).await.expect("put");
    let session = metadata.open_session().await.expect("open");
    let ephemeral = metadata.put_ephemeral("a/e", value("2"), session.id()).await.expect("put");
    metadata.delete("a/k", version).await.expect("deleted");
    drop(session);
    let put = |key: &str, value, version| WatchEvent::Put { key: key.to_owned(), record: Versioned { value, version } };
    assert_eq!(watch.next().await, Some(put("a/k", value("1"), version)));
    assert_eq!(watch.next().await, Some(put("a/e", value("2"), ephemeral)));
    assert_eq!(watch.next().await, Some(WatchEvent::Deleted { key: "a/k".to_owned() }));
    assert_eq!(watch.next().await, Some(WatchEvent::Deleted { key: "a/e".to_owned() }));
    engine.close();
    assert_eq!(watch.next().await, None);
}

#[tokio::test]
async fn a_watch_that_falls_behind_is_told_to_list_again() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let mut options = options();
    options.watch_events_max = 4;
    let engine = open_with(folder.path(), options, &Clock::at(0)).expect("open");
    let metadata = EmbeddedMetadata::new(&engine);
    let mut watch = metadata.watch("");
    for number in 0..3 {
        metadata.put(&format!("early/{number}"), value(""), Expected::Absent).await.expect("put");
    }
    assert_eq!(watch.next().await, Some(WatchEvent::Resync));
    for number in 0..5 {
        metadata.put(&format!("late/{number}"), value(""), Expected::Absent).await.expect("put");
    }
    assert_eq!(watch.next().await, Some(WatchEvent::Resync), "the fifth did not fit, and four alone would mislead");
    metadata.put("last", value(""), Expected::Absent).await.expect("put");
    assert!(matches!(watch.next().await, Some(WatchEvent::Put { key, .. }) if key == "last"));
}
