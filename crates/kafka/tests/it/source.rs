//! Topics as sources.

use std::time::Duration;

use bytes::Bytes;
use harness::kafka::Outgoing;
use kafka::KafkaSources;
use ports::source::{
    SideRecord, SourceEvent, SourceHeader, SourcePartition, SourceRecord, SourceSession, SourceSpec, SourceSystem as _,
};
use ports::target::TargetError;
use tokio::time::timeout;

use crate::support::{LIMIT, cluster, connection, connection_of, environment, fresh_name};

fn spec(connection: serde_json::Value, topic: &str) -> SourceSpec {
    SourceSpec {
        connection,
        group: format!("group.{topic}"),
        refusals: format!("{topic}.refused"),
        receipts: Some(format!("{topic}.receipts")),
    }
}

async fn open(spec: &SourceSpec) -> Box<dyn SourceSession> {
    KafkaSources::new(environment(), "test").open(spec.clone()).await.expect("joins")
}

async fn next(session: &dyn SourceSession) -> SourceEvent {
    timeout(LIMIT, session.next()).await.expect("an event in time").expect("the session goes on")
}

async fn assigned(session: &dyn SourceSession) -> (SourcePartition, Option<u64>, u64, u64) {
    match next(session).await {
        SourceEvent::Assigned { partition, committed, first, end } => (partition, committed, first, end),
        other => panic!("{other:?}"),
    }
}

async fn records(session: &dyn SourceSession, count: usize) -> Vec<SourceRecord> {
    let mut found = Vec::new();
    while found.len() < count {
        match next(session).await {
            SourceEvent::Records { records, .. } => found.extend(records),
            other => panic!("{other:?}"),
        }
    }
    found
}

fn outgoing(number: u32) -> Outgoing {
    Outgoing { value: Some(Bytes::from(number.to_string())), ..Outgoing::default() }
}

fn values(records: &[SourceRecord]) -> Vec<String> {
    records
        .iter()
        .map(|record| String::from_utf8_lossy(record.value.as_deref().unwrap_or_default()).into_owned())
        .collect()
}

#[tokio::test]
async fn records_come_as_they_were_written_and_from_where_is_told() {
    let (cluster, topic) = (cluster(), fresh_name("source"));
    cluster.create_topic(&topic, 1, &[]).await.expect("made");
    let first = Outgoing {
        partition: Some(0),
        timestamp_ms: Some(1_700_000_000_000),
        key: Some(Bytes::new()),
        value: None,
        headers: vec![
            ("h".to_owned(), None),
            ("h".to_owned(), Some(Bytes::new())),
            ("binary".to_owned(), Some(Bytes::from_static(b"\0\xff"))),
        ],
    };
    cluster.write(&topic, &[first, outgoing(1), outgoing(2)]).expect("written");
    let spec = spec(connection(&cluster, &topic), &topic);
    let session = open(&spec).await;
    let (partition, committed, from, end) = assigned(&*session).await;
    assert_eq!((committed, from, end), (None, 0, 3));
    session.start(&partition, 0).expect("starts");
    let found = records(&*session, 3).await;
    let header = |name: &'static str, value: Option<&'static [u8]>| SourceHeader {
        name: Bytes::from_static(name.as_bytes()),
        value: value.map(Bytes::from_static),
    };
    let expected = SourceRecord {
        offset: 0,
        timestamp_ms: Some(1_700_000_000_000),
        key: Some(Bytes::new()),
        value: None,
        headers: vec![header("h", None), header("h", Some(b"")), header("binary", Some(b"\0\xff"))],
    };
    assert_eq!(found[0], expected);
    assert_eq!(session.end(&partition), Some(3));

    // Stopped and started again right behind, and anywhere else.
    session.stop(&partition).expect("stops");
    cluster.write(&topic, &[outgoing(3)]).expect("written");
    session.start(&partition, 3).expect("goes on");
    assert_eq!(values(&records(&*session, 1).await), ["3"]);
    session.start(&partition, 1).expect("goes back");
    assert_eq!(values(&records(&*session, 3).await), ["1", "2", "3"]);

    // What is committed is the group's place, also for the next member.
    session.commit(&partition, 2).await.expect("committed");
    drop(session);
    let again = open(&spec).await;
    let mut found = assigned(&*again).await.1;
    for _ in 0..20 {
        if found == Some(2) {
            break;
        }
        // The commit of a member that left is on its way still.
        drop(open(&spec).await);
        found = assigned(&*open(&spec).await).await.1;
    }
    assert_eq!(found, Some(2));
}

#[tokio::test]
async fn only_what_a_transaction_committed_is_read() {
    let (cluster, topic) = (cluster(), fresh_name("source"));
    cluster.create_topic(&topic, 1, &[]).await.expect("made");
    cluster.write_transaction(&topic, &[outgoing(1)], true).expect("committed");
    cluster.write_transaction(&topic, &[outgoing(2)], false).expect("aborted");
    cluster.write(&topic, &[outgoing(3)]).expect("written");
    let session = open(&spec(connection(&cluster, &topic), &topic)).await;
    let (partition, ..) = assigned(&*session).await;
    session.start(&partition, 0).expect("starts");
    assert_eq!(values(&records(&*session, 2).await), ["1", "3"]);
}

#[tokio::test]
async fn a_topic_that_is_gone_or_another_ends_the_session() {
    let (cluster, topic) = (cluster(), fresh_name("source"));
    cluster.create_topic(&topic, 1, &[]).await.expect("made");
    let session = open(&spec(connection(&cluster, &topic), &topic)).await;
    let (old, ..) = assigned(&*session).await;
    session.start(&old, 0).expect("starts");
    cluster.delete_topic(&topic).await.expect("gone");
    cluster.create_topic(&topic, 1, &[]).await.expect("made again");
    let ended = loop {
        match timeout(LIMIT, session.next()).await.expect("it is noticed") {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert!(ended.detail.contains(&topic), "{ended}");
    drop(session);
    let session = open(&spec(connection(&cluster, &topic), &topic)).await;
    assert_ne!(assigned(&*session).await.0.topic, old.topic);
}

#[tokio::test]
async fn side_topics_are_made_and_written() {
    let (cluster, topic) = (cluster(), fresh_name("source"));
    cluster.create_topic(&topic, 2, &[]).await.expect("made");
    let spec = spec(connection(&cluster, &topic), &topic);
    let sources = KafkaSources::new(environment(), "test");
    let planned = sources.check(spec.clone(), true).await.expect("well");
    assert!(planned.checks.iter().any(|check| check.detail.contains("would be made")), "{planned:?}");
    let made = sources.check(spec.clone(), false).await.expect("well");
    assert_eq!((made.topic.as_str(), made.partition_count), (topic.as_str(), 2));
    let side = SideRecord {
        key: None,
        value: Some(Bytes::new()),
        headers: vec![SourceHeader { name: Bytes::from_static(b"why"), value: None }],
        timestamp_ms: Some(1_700_000_000_000),
    };
    let session = open(&spec).await;
    let name = format!("{topic}.refused");
    timeout(Duration::from_secs(60), session.write(&name, vec![side.clone(), side]))
        .await
        .expect("in time")
        .expect("written");
    let read = cluster.read(&name).expect("readable");
    assert_eq!(read.len(), 2);
    assert_eq!(
        (&read[0].key, &read[0].value, read[0].timestamp_ms),
        (&None, &Some(Bytes::new()), Some(1_700_000_000_000))
    );
    assert_eq!(read[0].headers, [("why".to_owned(), None)]);

    let refused = sources.check(self::spec(connection_of("mallory", &topic), &topic), true).await;
    assert!(matches!(refused, Err(TargetError::CheckFailed { .. })), "{refused:?}");
}
