//! The engine as a shard's log.

use std::time::Duration;

use bytes::Bytes;
use embedded::{EmbeddedLog, Retention};
use ports::log::{Barrier, ReadError, ReadLimit, ShardLog};
use protocol::id::RouteId;
use protocol::position::SourcePosition;

use crate::common::{open, records, spawn};

const LIMIT: ReadLimit = ReadLimit { records_max: 100, bytes_max: 1 << 20 };

fn route() -> RouteId {
    RouteId([3; 16])
}

async fn log(engine: &embedded::Embedded) -> EmbeddedLog {
    let topic = engine.create_internal_topic("_route.test", 2, [4; 16]).await.expect("created");
    EmbeddedLog::new(route(), topic.partition(1).expect("there"))
}

fn embedded_position(position: &SourcePosition) -> protocol::position::EmbeddedPosition {
    match position {
        SourcePosition::Embedded(position) => *position,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn frames_are_read_back_behind_a_position() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let engine = open(folder.path());
    let log = log(&engine).await;
    assert_eq!(log.barrier().await.expect("barrier"), Barrier::Empty);
    let positions = log.append(records(["a", "b", "c"])).await.expect("appended");
    let first = embedded_position(&positions[0]);
    assert_eq!((first.route, first.log, first.partition, first.offset), (route(), [4; 16], 1, 0));
    assert_eq!(first.append_time_ms, 1_000);
    assert_eq!(log.barrier().await.expect("barrier"), Barrier::Through(positions[2].clone()));
    let read = log.read(None, LIMIT).await.expect("read");
    assert_eq!(read.iter().map(|record| &record.position).collect::<Vec<_>>(), positions.iter().collect::<Vec<_>>());
    assert_eq!(read.iter().map(|record| record.frame.clone()).collect::<Vec<_>>(), records(["a", "b", "c"]));
    let read = log.read(Some(&positions[1]), LIMIT).await.expect("read");
    assert_eq!(read.len(), 1);
    assert_eq!(read[0].frame, "c");
    let one = ReadLimit { records_max: 0, bytes_max: 0 };
    assert_eq!(log.read(None, one).await.expect("read").len(), 1, "a limit of nothing still makes progress");
}

#[tokio::test]
async fn a_read_at_the_end_waits_for_the_next_record() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let engine = open(folder.path());
    let log = log(&engine).await;
    let positions = log.append(records(["a"])).await.expect("appended");
    let waiting = spawn(log.read(Some(&positions[0]), LIMIT));
    log.append(records(["b"])).await.expect("appended");
    assert_eq!(waiting.await.expect("no panic").expect("read")[0].frame, "b");
    let waiting = spawn(log.read(Some(&log.append(records(["c"])).await.expect("appended")[0]), LIMIT));
    engine.close();
    let error = waiting.await.expect("no panic").expect_err("closed");
    assert!(matches!(error, ReadError::Unavailable { .. }), "{error}");
}

#[tokio::test]
async fn what_does_not_follow_is_a_gap() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let engine = open(folder.path());
    let log = log(&engine).await.with_retention(Retention { bytes_max: 0, age_max: Duration::from_secs(1_000) });
    let positions = log.append(records(["a", "b", "c", "d"])).await.expect("appended");
    let at = embedded_position(&positions[3]);
    let foreign = [
        protocol::position::EmbeddedPosition { offset: 9, ..at },
        protocol::position::EmbeddedPosition { offset: u64::MAX, ..at },
        protocol::position::EmbeddedPosition { route: RouteId([5; 16]), ..at },
        protocol::position::EmbeddedPosition { log: [5; 16], ..at },
        protocol::position::EmbeddedPosition { partition: 0, ..at },
    ];
    for position in foreign {
        let error = log.read(Some(&SourcePosition::Embedded(position)), LIMIT).await.expect_err("a gap");
        assert!(matches!(error, ReadError::Gap { .. }), "{error}");
    }
    // The runs before the trimmed position's go; those records are gone.
    log.trim(&positions[2]).await.expect("trimmed");
    log.append(records(["e"])).await.expect("appended");
    for after in [None, Some(&positions[0])] {
        let error = log.read(after, LIMIT).await.expect_err("a gap");
        assert!(matches!(error, ReadError::Gap { .. }), "{error}");
    }
    let read = log.read(Some(&positions[1]), LIMIT).await.expect("the trimmed position itself is kept");
    assert_eq!(read[0].position, positions[2]);
    let beyond = SourcePosition::Embedded(protocol::position::EmbeddedPosition { offset: 99, ..at });
    assert!(matches!(log.trim(&beyond).await, Err(ReadError::Gap { .. })));
}

#[tokio::test]
async fn a_trim_keeps_what_retention_wants() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let engine = open(folder.path());
    let log = log(&engine).await;
    let positions = log.append(vec![Bytes::from(vec![0; 1_000]); 10]).await.expect("appended");
    log.trim(&positions[9]).await.expect("trimmed");
    assert_eq!(log.read(None, LIMIT).await.expect("a gibibyte is kept").len(), 10);
}
