//! Evidence of publication: written with the records, complete behind a fence, gone when it is forgotten.

use bytes::Bytes;
use embedded::{AppendError, AttemptEntry, AttemptsRow, Embedded};

use crate::common::{id_of, open, partition, records};

fn entry(number: u8) -> AttemptEntry {
    AttemptEntry { message: [number; 16], generation: u32::from(number), attempt: 1 }
}

fn row(scope: &'static str, epoch: u64, order: u64, entries: &[u8]) -> AttemptsRow {
    AttemptsRow { scope: Bytes::from(scope), epoch, order, entries: entries.iter().copied().map(entry).collect() }
}

fn orders(engine: &Embedded, scope: &'static str, range: std::ops::Range<u64>) -> Vec<u64> {
    let found = engine.attempts(&Bytes::from(scope), range).expect("read");
    found.iter().map(|appended| appended.order).collect()
}

#[tokio::test]
async fn attempts_are_found_with_their_offsets_also_after_a_restart() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let engine = open(folder.path());
    let (first, second) = (partition(&engine, "first").await, partition(&engine, "second").await);
    first.append(records(["x", "y"])).await.expect("appended");
    first.append_attempts(records(["a", "b"]), row("s", 1, 7, &[1, 2])).await.expect("appended");
    second.append_attempts(records(["c"]), row("s", 1, 7, &[3])).await.expect("appended");
    first.append_attempts(records(["d"]), row("s", 1, 8, &[4])).await.expect("appended");
    first.append_attempts(records(["e"]), row("s2", 1, 7, &[5])).await.expect("appended");
    engine.close();
    let engine = open(folder.path());
    let found = engine.attempts(&Bytes::from("s"), 7..8).expect("read");
    assert_eq!(found.len(), 2);
    assert_eq!((found[0].topic_id, found[0].partition, found[0].append_time_ms), (id_of("first"), 0, 1_000));
    assert_eq!(found[0].offsets().collect::<Vec<_>>(), [(entry(1), 2), (entry(2), 3)]);
    assert_eq!(found[1].topic_id, id_of("second"));
    assert_eq!(found[1].offsets().collect::<Vec<_>>(), [(entry(3), 0)]);
    assert_eq!(orders(&engine, "s", 0..u64::MAX), [7, 7, 8]);
    assert_eq!(orders(&engine, "s", 8..8), [0; 0]);
    assert_eq!(orders(&engine, "s2", 0..u64::MAX), [7]);
    assert_eq!(orders(&engine, "", 0..u64::MAX), [0; 0]);
}

#[tokio::test]
async fn a_fence_refuses_lower_epochs_and_nothing_else() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let engine = open(folder.path());
    let partition = partition(&engine, "t").await;
    let append = |scope, epoch| partition.append_attempts(records(["r"]), row(scope, epoch, epoch, &[1]));
    append("s", 3).await.expect("no fence yet");
    let queued_before = append("s", 3);
    assert_eq!(engine.fence(Bytes::from("s"), 5).await, Ok(5));
    queued_before.await.expect("it came before the fence");
    assert_eq!(orders(&engine, "s", 0..u64::MAX), [3, 3], "complete when the fence stands");
    assert_eq!(append("s", 4).await, Err(AppendError::Fenced { epoch: 4, current: 5 }));
    append("s", 5).await.expect("the epoch of the fence");
    append("s", 6).await.expect("a higher epoch");
    append("other", 1).await.expect("another scope");
    partition.append(records(["plain"])).await.expect("no attempts");
    assert_eq!(engine.fence(Bytes::from("s"), 2).await, Ok(5), "a fence is never lowered");
    assert_eq!(append("s", 4).await, Err(AppendError::Fenced { epoch: 4, current: 5 }));
    assert_eq!(partition.end_offset(), 6, "what was refused is not there");
}

#[tokio::test]
async fn forgotten_attempts_go_while_others_are_appended() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let engine = open(folder.path());
    let partition = partition(&engine, "t").await;
    for order in 0..10 {
        partition.append_attempts(records(["r"]), row("s", 1, order, &[1])).await.expect("appended");
    }
    partition.append_attempts(records(["r"]), row("other", 1, 0, &[1])).await.expect("appended");
    engine.forget_attempts(Bytes::from("s"), 4);
    engine.forget_attempts(Bytes::from("s"), 2);
    for _ in 0..100 {
        partition.append(records(["ride"])).await.expect("appended");
    }
    assert_eq!(orders(&engine, "s", 0..u64::MAX), [4, 5, 6, 7, 8, 9]);
    assert_eq!(orders(&engine, "other", 0..u64::MAX), [0]);
    engine.close();
    let engine = open(folder.path());
    assert_eq!(orders(&engine, "s", 0..u64::MAX), [4, 5, 6, 7, 8, 9]);
}

#[tokio::test]
async fn attempts_that_do_not_fit_the_records_are_refused() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let engine = open(folder.path());
    let partition = partition(&engine, "t").await;
    let error = partition.append_attempts(records(["a", "b"]), row("s", 1, 1, &[1])).await.expect_err("one missing");
    assert_eq!(error.to_string(), "not appended, 1 attempts for 2 records and a scope of 1 bytes");
    let long = AttemptsRow { scope: Bytes::from(vec![0; 65_536]), ..row("s", 1, 1, &[1]) };
    assert!(matches!(partition.append_attempts(records(["a"]), long).await, Err(AppendError::Attempts { .. })));
    assert_eq!(partition.end_offset(), 0);
}
