//! Topics, and what appending to and reading from one partition gives.

use embedded::{AppendError, CreateTopicError, Embedded, ReadError, ReadLimit};

use crate::common::{ALL, Clock, id_of, open, open_with, options, partition, read_all, records, spawn, values};

#[tokio::test]
async fn a_topic_is_created_once() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let engine = open(folder.path());
    let topic = engine.create_topic("orders.due", 4, [1; 16]).await.expect("created");
    let again = engine.create_topic("orders.due", 4, [2; 16]).await.expect("there already");
    assert_eq!((again.id(), again.partition_count(), again.name()), ([1; 16], 4, "orders.due"));
    assert!(topic.partition(3).is_some() && topic.partition(4).is_none());
    let error = engine.create_topic("orders.due", 5, [1; 16]).await.expect_err("other number");
    assert_eq!(error.to_string(), "topic orders.due exists with 4 partitions, 5 asked for");
    let error = engine.create_topic("other", 1, [1; 16]).await.expect_err("the id is taken");
    assert!(matches!(error, CreateTopicError::IdInUse { ref owner, .. } if owner == "orders.due"), "{error}");
    let error = engine.create_topic("_route.x", 1, [3; 16]).await.expect_err("not for people");
    assert!(matches!(error, CreateTopicError::Name { .. }), "{error}");
}

#[tokio::test]
async fn topics_survive_a_restart_and_internal_ones_are_not_listed() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let names = |engine: &Embedded| engine.topics().iter().map(|topic| topic.name().to_owned()).collect::<Vec<_>>();
    let engine = open(folder.path());
    for name in ["b", "a"] {
        engine.create_topic(name, 2, id_of(name)).await.expect("created");
    }
    engine.create_internal_topic("_route.x", 3, [9; 16]).await.expect("created");
    assert_eq!(names(&engine), ["a", "b"]);
    engine.close();
    let engine = open(folder.path());
    assert_eq!(names(&engine), ["a", "b"]);
    assert_eq!(engine.topic("_route.x").expect("there").partition_count(), 3);
    assert_eq!(engine.topic_by_id([9; 16]).expect("there").name(), "_route.x");
    assert_eq!(engine.topic("b").expect("there").id(), id_of("b"));
    assert!(engine.topic("c").is_none() && engine.topic_by_id([8; 16]).is_none());
    let topic = engine.create_topic("c", 1, id_of("c")).await.expect("created");
    topic.partition(0).expect("one").append(records(["c"])).await.expect("appended");
    assert_eq!(engine.topic("a").expect("there").partition(0).expect("one").end_offset(), 0, "numbers are not reused");
}

#[tokio::test]
async fn offsets_are_dense_and_times_never_fall() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let clock = Clock::at(1_000);
    let engine = open_with(folder.path(), options(), &clock).expect("open");
    let partition = partition(&engine, "t").await;
    assert_eq!((partition.start_offset(), partition.end_offset(), partition.last()), (0, 0, None));
    let first = partition.append(records(["a", "b", "c"])).await.expect("appended");
    assert_eq!((first.first_offset, first.append_time_ms), (0, 1_000));
    clock.set(500);
    let second = partition.append(records(["d"])).await.expect("appended");
    assert_eq!((second.first_offset, second.append_time_ms), (3, 1_000), "the clock went back, the log does not");
    clock.set(2_000);
    let third = partition.append(records(["e"])).await.expect("appended");
    assert_eq!((third.first_offset, third.append_time_ms), (4, 2_000));
    let found = read_all(&partition, 0).expect("read");
    let stamps: Vec<_> = found.iter().map(|record| (record.offset, record.append_time_ms)).collect();
    assert_eq!(stamps, [(0, 1_000), (1, 1_000), (2, 1_000), (3, 1_000), (4, 2_000)]);
    assert_eq!(values(&found), records(["a", "b", "c", "d", "e"]));
    assert_eq!(partition.last(), Some((4, 2_000)));
    drop(engine);
    clock.set(0);
    let engine = open_with(folder.path(), options(), &clock).expect("open");
    let partition = crate::common::partition(&engine, "t").await;
    assert_eq!(partition.last(), Some((4, 2_000)));
    let fourth = partition.append(records(["f"])).await.expect("appended");
    assert_eq!((fourth.first_offset, fourth.append_time_ms), (5, 2_000), "nor does a restart take it back");
}

#[tokio::test]
async fn reads_keep_their_limits_from_memory_and_from_disk() {
    let folder = tempfile::tempdir().expect("temporary folder");
    for round in 0..2 {
        let engine = open(folder.path());
        let partition = partition(&engine, "t").await;
        if round == 0 {
            for chunk in 0..10_u8 {
                let appended = partition.append((0..10).map(|_| vec![chunk; 100].into()).collect());
                appended.await.expect("appended");
            }
        }
        let read = |offset, records_max, bytes_max| {
            let run = partition.read(offset, ReadLimit { records_max, bytes_max }).expect("read");
            assert_eq!((run.start_offset, run.end_offset), (0, 100));
            assert!(run.records.iter().zip(offset..).all(|(record, offset)| record.offset == offset));
            assert!(run.records.iter().all(|record| u64::from(record.value[0]) == record.offset / 10));
            run.records.len()
        };
        assert_eq!(read(0, usize::MAX, usize::MAX), 100);
        assert_eq!(read(15, usize::MAX, usize::MAX), 85);
        assert_eq!(read(15, 1, usize::MAX), 1);
        assert_eq!(read(15, 33, usize::MAX), 33);
        assert_eq!(read(15, usize::MAX, 1), 1, "the record that reaches the limit is still returned");
        assert_eq!(read(15, usize::MAX, 100), 1);
        assert_eq!(read(15, usize::MAX, 101), 2);
        assert_eq!(read(15, usize::MAX, 3_000), 30);
        assert_eq!(read(99, 5, 5), 1);
        assert_eq!(read(100, 5, 5), 0, "the end is no error");
        assert_eq!(read(0, 0, 5), 0);
        let error = partition.read(101, ALL).expect_err("beyond the end");
        assert_eq!(error, ReadError::OffsetOutOfRange { offset: 101, start: 0, end: 100 });
        engine.close();
        let after = partition.read(0, ALL);
        assert_eq!(after.is_ok(), round == 0, "what is in memory can still be read: {after:?}");
    }
}

#[tokio::test]
async fn records_of_every_size_come_back() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let sizes = [0, 1, 1_000, 256 << 10, (256 << 10) + 1, 0, 3 << 20, 5];
    let written: Vec<bytes::Bytes> = sizes.iter().map(|size| (0..=255).cycle().take(*size).collect()).collect();
    for round in 0..3 {
        let engine = open(folder.path());
        let partition = partition(&engine, "t").await;
        if round == 0 {
            let appended = partition.append(written.clone()).await.expect("appended");
            assert_eq!(appended.first_offset, 0);
        }
        assert!(values(&read_all(&partition, 0).expect("read")) == written);
        for (offset, record) in (0..).zip(&written) {
            let one = partition.read(offset, ReadLimit { records_max: 1, bytes_max: 1 }).expect("read");
            assert!(values(&one.records) == [record]);
        }
        engine.flush().expect("flush");
        engine.close();
    }
}

#[tokio::test]
async fn appends_that_cannot_be_are_refused_for_certain() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let mut options = options();
    options.record_bytes_max = 10;
    let engine = open_with(folder.path(), options, &Clock::at(0)).expect("open");
    let partition = partition(&engine, "t").await;
    assert_eq!(partition.append(Vec::new()).await, Err(AppendError::RecordCount { count: 0 }));
    assert_eq!(
        partition.append(records(["short", "far too long"])).await,
        Err(AppendError::RecordTooLarge { index: 1, bytes: 12, bytes_max: 10 })
    );
    assert_eq!(partition.end_offset(), 0);
    partition.append(records(["just fits."])).await.expect("ten bytes");
    engine.close();
    let error = partition.append(records(["late"])).await.expect_err("closed");
    assert!(matches!(error, AppendError::Closed { ref reason } if reason.contains("owner")), "{error}");
    let error = engine.create_topic("late", 1, [5; 16]).await.expect_err("closed");
    assert!(matches!(error, CreateTopicError::Closed { .. }), "{error}");
}

#[tokio::test]
async fn waiting_ends_with_the_record_or_with_the_engine() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let engine = open(folder.path());
    let partition = partition(&engine, "t").await;
    let reader = partition.clone();
    let (at_first, at_second) = (reader.wait_beyond(0), reader.wait_beyond(1));
    let appending = async {
        partition.append(records(["first"])).await.expect("appended");
    };
    assert_eq!(futures_util::future::join(at_first, appending).await.0, Ok(1));
    let is_waiting = spawn(at_second);
    let closed = engine.closed();
    let last_handle = engine;
    drop(last_handle);
    assert!(matches!(is_waiting.await.expect("no panic"), Err(ReadError::Closed { .. })));
    assert!(closed.await.contains("dropped"));
    assert_eq!(reader.wait_beyond(0).await, Ok(1), "what is there needs no engine to wait for");
}

#[tokio::test]
async fn a_dropped_append_still_happens_once_it_has_its_place() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let engine = open(folder.path());
    let partition = partition(&engine, "t").await;
    drop(partition.append(records(["nobody waits for this"])));
    let after = partition.append(records(["this"])).await.expect("appended");
    assert_eq!(after.first_offset, 1);
    assert_eq!(values(&read_all(&partition, 0).expect("read"))[0], "nobody waits for this");
}
