//! Lanes on real topics.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::StreamExt as _;
use ports::destination::{AttemptOutcome, AttemptRef, Destination as _, LaneSession};
use protocol::code::StableCode;
use protocol::command::Payload;
use protocol::mutation_v2::{AttemptResult, Disposition, PublishedEvidence};
use shard::schedule::claim::AdmittedAttempt;
use shard::schedule::outgoing::{Header, OutgoingRecord};
use testkit::port_suites::destination::{Subject, run};
use tokio::time::timeout;

use crate::support::{
    ANY_TIME, LIMIT, cluster, connection, connection_of, destination, lane, make_topic, mint, resolve,
};

#[tokio::test]
async fn it_is_a_destination() {
    run(async || {
        let cluster = cluster();
        let topic = make_topic(&cluster, "suite", &[]).await;
        let resource = resolve(connection(&cluster, &topic)).await.expect("well").resource;
        let destination = Arc::new(destination(connection(&cluster, &topic)));
        let records = Box::new(move || {
            let read = cluster.read(&topic).expect("readable");
            read.into_iter()
                .map(|record| OutgoingRecord {
                    key: record.key,
                    value: record.value,
                    headers: record
                        .headers
                        .into_iter()
                        .map(|(name, value)| Header { name: name.into(), value })
                        .collect(),
                    event_time_ms: None,
                })
                .collect()
        });
        Subject { destination, resource, records }
    })
    .await;
}

async fn send(session: &dyn LaneSession, attempts: Vec<AdmittedAttempt>) -> BTreeMap<AttemptRef, AttemptOutcome> {
    let answers = timeout(LIMIT, session.send(attempts).collect::<Vec<_>>()).await.expect("answered in time");
    answers.into_iter().flatten().collect()
}

fn disposition(outcome: &AttemptOutcome) -> Option<Disposition> {
    match &outcome.result {
        AttemptResult::NotPublished { disposition, .. } => Some(*disposition),
        AttemptResult::Published(_) | AttemptResult::Unknown => None,
    }
}

#[tokio::test]
async fn evidence_is_where_the_record_is() {
    let cluster = cluster();
    let topic = make_topic(&cluster, "evidence", &[("message.timestamp.type", "LogAppendTime")]).await;
    let target = resolve(connection(&cluster, &topic)).await.expect("well");
    let mut mint = mint(target.resource.clone(), target.record_bytes_max);
    let session = destination(connection(&cluster, &topic)).open_lane(lane(&mint)).await.expect("opens");
    let outcomes = send(&*session, mint.admit(3, |_, _| {})).await;
    let read = cluster.read(&topic).expect("readable");
    let mut found: Vec<(u64, Option<i64>)> = outcomes
        .values()
        .map(|outcome| match &outcome.result {
            AttemptResult::Published(PublishedEvidence::Kafka(ack)) => (ack.offset, Some(ack.time_ms)),
            other => panic!("{other:?}"),
        })
        .collect();
    found.sort_unstable();
    // The broker's own time of each record, where the topic keeps that.
    let expected: Vec<(u64, Option<i64>)> =
        read.iter().map(|record| (record.offset.unsigned_abs(), record.timestamp_ms)).collect();
    assert_eq!(found, expected);
}

#[tokio::test]
async fn a_topic_that_was_made_anew_is_not_written_to() {
    let cluster = cluster();
    let topic = make_topic(&cluster, "anew", &[]).await;
    let target = resolve(connection(&cluster, &topic)).await.expect("well");
    let mut mint = mint(target.resource.clone(), target.record_bytes_max);
    let destination = destination(connection(&cluster, &topic));
    let session = destination.open_lane(lane(&mint)).await.expect("opens");
    send(&*session, mint.admit(1, |_, _| {})).await;

    cluster.delete_topic(&topic).await.expect("gone");
    let lost = timeout(LIMIT, session.lost()).await.expect("it is noticed");
    assert_eq!(lost.code, StableCode::ResourceIncarnationMismatch, "{lost}");
    assert!(lost.detail.contains("UNKNOWN_TOPIC_OR_PARTITION"), "{lost}");

    cluster.create_topic(&topic, 1, &[]).await.expect("made again");
    let refused = destination.open_lane(lane(&mint)).await.err().expect("another topic");
    assert_eq!(refused.code, StableCode::ResourceIncarnationMismatch);
    assert!(refused.detail.contains("destination rebind"), "{refused}");
    assert_eq!(cluster.read(&topic).expect("readable"), []);
}

/// Takes mallory's only right away, so that what the client library asks for beside writing is refused too: a producer's id is
/// for users who may write to any topic.
#[tokio::test]
async fn a_right_that_is_taken_away_blocks_the_lane_until_it_is_given_back() {
    let cluster = cluster();
    let topic = make_topic(&cluster, "denied", &[]).await;
    let acl = |verb: &'static str| {
        let mut arguments = vec![verb, "--allow-principal", "User:mallory", "--producer", "--topic", &topic];
        if verb == "--remove" {
            arguments.push("--force");
        }
        arguments
    };
    cluster.tool("org.apache.kafka.tools.AclCommand", &acl("--add")).await.expect("allowed");
    let connection = connection_of("mallory", &topic);
    let target = resolve(connection.clone()).await.expect("well");
    let mut mint = mint(target.resource.clone(), target.record_bytes_max);
    let destination = destination(connection);
    let session = destination.open_lane(lane(&mint)).await.expect("opens");
    cluster.tool("org.apache.kafka.tools.AclCommand", &acl("--remove")).await.expect("denied");
    let outcomes = send(&*session, mint.admit(2, |_, _| {})).await;
    for outcome in outcomes.values() {
        // The message is not at fault and is not charged; nothing was written.
        assert_eq!(disposition(outcome), Some(Disposition::LaneUnavailable), "{outcome:?}");
    }
    let lost = timeout(LIMIT, session.lost()).await.expect("it is noticed");
    assert!(lost.detail.contains("AUTHORIZATION_FAILED"), "{lost}");
    let refused = destination.open_lane(lane(&mint)).await.err().expect("no right");
    assert!(refused.detail.contains("AUTHORIZATION_FAILED"), "{refused}");

    cluster.tool("org.apache.kafka.tools.AclCommand", &acl("--add")).await.expect("allowed again");
    let deliver = async {
        loop {
            // Brokers learn of a change a moment later.
            let Ok(session) = destination.open_lane(lane(&mint)).await else { continue };
            let outcomes = send(&*session, mint.admit(2, |_, _| {})).await;
            if outcomes.values().all(|outcome| matches!(outcome.result, AttemptResult::Published(_))) {
                break;
            }
            // A session that does not deliver says that it is over.
            session.lost().await;
        }
    };
    timeout(LIMIT, deliver).await.expect("delivered again");
    assert_eq!(cluster.read(&topic).expect("readable").len(), 2);
    cluster.tool("org.apache.kafka.tools.AclCommand", &acl("--remove")).await.expect("as it was");
}

#[tokio::test]
async fn when_a_topic_takes_less_than_before_only_what_is_too_large_is_given_up() {
    let cluster = cluster();
    let topic = make_topic(&cluster, "shrunk", &[("max.message.bytes", "900000")]).await;
    let target = resolve(connection(&cluster, &topic)).await.expect("well");
    let mut mint = mint(target.resource.clone(), target.record_bytes_max);
    let destination = destination(connection(&cluster, &topic));
    let session = destination.open_lane(lane(&mint)).await.expect("opens");
    cluster.alter_topic(&topic, &[("max.message.bytes", "20000"), ANY_TIME]).await.expect("shrunk");
    // Ten of them fill a batch that is too large by now, although each of them but one is not.
    let mut waiting: Vec<usize> = (0..10).map(|number| if number == 4 { 50_000 } else { 5_000 }).collect();
    let (mut session, mut published, mut given_up) = (session, Vec::new(), Vec::new());
    while !waiting.is_empty() {
        let attempts = mint.admit(waiting.len(), |index, intent| {
            intent.payload = Some(Payload::Inline(Bytes::from(vec![7; waiting[index]])));
        });
        let sizes: BTreeMap<AttemptRef, usize> = attempts
            .iter()
            .map(|attempt| (reference_of(attempt), attempt.delivered_record().value.map_or(0, |value| value.len())))
            .collect();
        waiting.clear();
        for (reference, outcome) in send(&*session, attempts).await {
            match (&outcome.result, disposition(&outcome)) {
                (AttemptResult::Published(_), _) => published.push(sizes[&reference]),
                (_, Some(Disposition::MessagePermanent)) => given_up.push(sizes[&reference]),
                (_, Some(Disposition::LaneUnavailable)) => waiting.push(sizes[&reference]),
                other => panic!("{other:?}"),
            }
        }
        if !waiting.is_empty() {
            timeout(LIMIT, session.lost()).await.expect("smaller batches need another producer");
            session = destination.open_lane(lane(&mint)).await.expect("opens");
        }
    }
    assert_eq!((published, given_up), (vec![5_000; 9], vec![50_000]));
    assert_eq!(cluster.read(&topic).expect("readable").len(), 9);
}

fn reference_of(attempt: &AdmittedAttempt) -> AttemptRef {
    AttemptRef { message: attempt.message_id().uuid, generation: attempt.generation(), attempt: attempt.attempt() }
}
