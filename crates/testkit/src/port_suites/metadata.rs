//! What every [`Metadata`] store must do.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use ports::metadata::{ChangeError, Expected, Metadata, Session, Versioned, WatchEvent};

/// Runs every check; `make` gives a new, empty store each time.
pub async fn run(mut make: impl AsyncFnMut() -> Arc<dyn Metadata>) {
    changes_happen_when_the_expectation_holds(&*make().await).await;
    one_of_many_wins_each_version(&*make().await).await;
    lists_are_ordered_pages_of_a_prefix(&*make().await).await;
    ephemeral_records_live_as_long_as_their_session(&*make().await).await;
    a_session_of_nobody_holds_nothing(&*make().await).await;
    an_ephemeral_record_may_be_deleted_and_taken_by_another(&*make().await).await;
    a_watch_starts_with_resync_and_tells_changes_in_order(&*make().await).await;
}

fn value(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

async fn put(store: &dyn Metadata, key: &str, text: &str, expected: Expected) -> u64 {
    store.put(key, value(text), expected).await.expect("put")
}

async fn get(store: &dyn Metadata, key: &str) -> Option<Versioned> {
    store.get(key).await.expect("get")
}

async fn session(store: &dyn Metadata) -> Box<dyn Session> {
    store.open_session().await.expect("a session")
}

async fn keys(store: &dyn Metadata, prefix: &str, after: Option<&str>, limit: usize) -> Vec<String> {
    store.list(prefix, after, limit).await.expect("list").into_iter().map(|(key, _)| key).collect()
}

async fn changes_happen_when_the_expectation_holds(store: &dyn Metadata) {
    assert_eq!(get(store, "/k").await, None);
    let error = store.put("/k", value("x"), Expected::Version(1)).await.expect_err("it is not there");
    assert!(matches!(error, ChangeError::Conflict { expected: Expected::Version(1), found: None }), "{error}");
    let first = put(store, "/k", "1", Expected::Absent).await;
    let error = store.put("/k", value("x"), Expected::Absent).await.expect_err("it is there");
    assert!(matches!(error, ChangeError::Conflict { expected: Expected::Absent, found } if found == Some(first)));
    let second = put(store, "/k", "2", Expected::Version(first)).await;
    assert!(second > first, "versions rise");
    assert!(store.put("/k", value("x"), Expected::Version(first)).await.is_err(), "the version is an old one");
    assert!(store.delete("/k", first).await.is_err(), "the version is an old one");
    assert_eq!(get(store, "/k").await, Some(Versioned { value: value("2"), version: second }));
    assert_eq!(get(store, "/k/").await, None, "another key");
    store.delete("/k", second).await.expect("deleted");
    assert_eq!(get(store, "/k").await, None);
    let error = store.delete("/k", second).await.expect_err("it is gone");
    assert!(matches!(error, ChangeError::Conflict { found: None, .. }), "{error}");
    put(store, "/k", "", Expected::Absent).await;
    assert_eq!(get(store, "/k").await.expect("it is there again").value, Bytes::new(), "values may be empty");
}

async fn one_of_many_wins_each_version(store: &dyn Metadata) {
    put(store, "/count", "0", Expected::Absent).await;
    let count = async || {
        let mut counted = 0;
        while counted < 10 {
            let stored = get(store, "/count").await.expect("there");
            let text = std::str::from_utf8(&stored.value).expect("text");
            let next = text.parse::<u32>().expect("a number") + 1;
            match store.put("/count", value(&next.to_string()), Expected::Version(stored.version)).await {
                Ok(_) => counted += 1,
                Err(ChangeError::Conflict { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
    };
    tokio::join!(count(), count(), count());
    assert_eq!(get(store, "/count").await.expect("there").value, value("30"));
}

async fn lists_are_ordered_pages_of_a_prefix(store: &dyn Metadata) {
    for key in ["/a/2", "/a/1", "/a/10", "/a", "/b/1", "/a0"] {
        put(store, key, key, Expected::Absent).await;
    }
    assert_eq!(keys(store, "/a/", None, 10).await, ["/a/1", "/a/10", "/a/2"]);
    assert_eq!(keys(store, "/a/", None, 2).await, ["/a/1", "/a/10"]);
    assert_eq!(keys(store, "/a/", Some("/a/10"), 10).await, ["/a/2"]);
    assert_eq!(keys(store, "/a/", Some("/a/11"), 10).await, ["/a/2"], "after need not be there");
    assert_eq!(keys(store, "/a/", Some("/a/2"), 10).await, [""; 0]);
    assert_eq!(keys(store, "/a", None, 10).await, ["/a", "/a/1", "/a/10", "/a/2", "/a0"]);
    assert_eq!(keys(store, "/none", None, 10).await, [""; 0]);
    let listed = store.list("/b", None, 1).await.expect("list");
    assert_eq!(listed, [("/b/1".to_owned(), get(store, "/b/1").await.expect("there"))]);
}

async fn ephemeral_records_live_as_long_as_their_session(store: &dyn Metadata) {
    let (mine, other) = (session(store).await, session(store).await);
    assert_ne!(mine.id(), other.id());
    assert!(mine.remaining() > Duration::ZERO);
    store.put_ephemeral("/e/mine", value("1"), mine.id()).await.expect("put");
    store.put_ephemeral("/e/other", value("2"), other.id()).await.expect("put");
    let error = store.put_ephemeral("/e/mine", value("x"), other.id()).await.expect_err("it is there");
    assert!(matches!(error, ChangeError::Conflict { expected: Expected::Absent, .. }), "{error}");
    put(store, "/e/stays", "3", Expected::Absent).await;
    let mut watch = store.watch("/e/mine");
    let id = mine.id();
    drop(mine);
    // It goes when the end of the session gets through.
    while get(store, "/e/mine").await.is_some() {
        watch.next().await.expect("the watch goes on");
    }
    assert_eq!(keys(store, "/e/", None, 10).await, ["/e/other", "/e/stays"]);
    let error = store.put_ephemeral("/e/mine", value("1"), id).await.expect_err("the session is over");
    assert!(matches!(error, ChangeError::SessionOver { session } if session == id), "{error}");
    assert!(other.remaining() > Duration::ZERO);
}

async fn a_session_of_nobody_holds_nothing(store: &dyn Metadata) {
    let error = store.put_ephemeral("/e", value("1"), u64::MAX).await.expect_err("no such session");
    assert!(matches!(error, ChangeError::SessionOver { session: u64::MAX }), "{error}");
    assert_eq!(get(store, "/e").await, None);
}

/// As the owner of a lease gives it back for a successor to take.
async fn an_ephemeral_record_may_be_deleted_and_taken_by_another(store: &dyn Metadata) {
    let (first, second) = (session(store).await, session(store).await);
    let version = store.put_ephemeral("/lease", value("first"), first.id()).await.expect("put");
    store.delete("/lease", version).await.expect("deleted");
    store.put_ephemeral("/lease", value("second"), second.id()).await.expect("put");
    drop(first);
    // A change behind the end of the first session: the lease is not its any more.
    put(store, "/after", "", Expected::Absent).await;
    assert_eq!(get(store, "/lease").await.expect("it is the second's").value, value("second"));
}

async fn a_watch_starts_with_resync_and_tells_changes_in_order(store: &dyn Metadata) {
    put(store, "/w/before", "0", Expected::Absent).await;
    let mut watch = store.watch("/w/");
    assert_eq!(watch.next().await, Some(WatchEvent::Resync));
    let key = || "/w/k".to_owned();
    let first = put(store, &key(), "1", Expected::Absent).await;
    put(store, "/other", "x", Expected::Absent).await;
    let second = put(store, &key(), "2", Expected::Version(first)).await;
    store.delete(&key(), second).await.expect("deleted");
    let expected = [
        WatchEvent::Put { key: key(), record: Versioned { value: value("1"), version: first } },
        WatchEvent::Put { key: key(), record: Versioned { value: value("2"), version: second } },
        WatchEvent::Deleted { key: key() },
    ];
    for event in expected {
        assert_eq!(watch.next().await, Some(event));
    }
}
