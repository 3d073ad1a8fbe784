//! Many at once: order, density, and one sync for all that wait.

use bytes::Bytes;
use futures_util::future::join_all;

use crate::common::{ALL, Clock, open, open_with, options, read_all, records, spawn};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_appender_finds_its_records_where_it_was_told() {
    const APPENDERS: usize = 8;
    const APPENDS: usize = 200;
    let folder = tempfile::tempdir().expect("temporary folder");
    let engine = open(folder.path());
    let topic = engine.create_topic("t", 3, [1; 16]).await.expect("created");
    let appenders = (0..APPENDERS).map(|appender| {
        let topic = topic.clone();
        spawn(async move {
            let mut told = Vec::new();
            for append in 0..APPENDS {
                let partition = u32::try_from((appender + append) % 3).expect("small");
                let values: Vec<Bytes> =
                    (0..append % 4 + 1).map(|index| format!("{appender} {append} {index}").into()).collect();
                let appended = topic.partition(partition).expect("there").append(values.clone()).await;
                told.push((partition, appended.expect("appended").first_offset, values));
            }
            told
        })
    });
    let told: Vec<_> = join_all(appenders).await.into_iter().map(|told| told.expect("no panic")).collect();
    let partitions: Vec<_> = (0..3).map(|index| topic.partition(index).expect("there")).collect();
    let stored: Vec<_> = partitions.iter().map(|partition| read_all(partition, 0).expect("read")).collect();
    let total: usize = stored.iter().map(Vec::len).sum();
    assert_eq!(total, told.iter().flatten().map(|(_, _, values)| values.len()).sum::<usize>());
    for records in &stored {
        assert!(records.iter().zip(0..).all(|(record, offset)| record.offset == offset), "dense");
        assert!(records.is_sorted_by_key(|record| record.append_time_ms));
    }
    for appender in &told {
        let mut last = [None; 3];
        for (partition, first_offset, values) in appender {
            let partition = *partition as usize;
            assert!(last[partition] < Some(*first_offset), "an appender's own appends are in its order");
            last[partition] = Some(*first_offset);
            let at = usize::try_from(*first_offset).expect("small");
            let found: Vec<_> = stored[partition][at..at + values.len()].iter().map(|record| &record.value).collect();
            assert_eq!(found, values.iter().collect::<Vec<_>>(), "next to each other");
        }
    }
}

#[tokio::test]
async fn appends_that_wait_together_share_a_commit() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let engine = open(folder.path());
    let topic = engine.create_topic("t", 4, [1; 16]).await.expect("created");
    let before = engine.stats();
    let appends = (0..1_000_u32).map(|number| {
        let partition = topic.partition(number % 4).expect("there");
        partition.append(records([number.to_be_bytes()]))
    });
    let appended = join_all(appends).await;
    assert!(appended.iter().all(Result::is_ok));
    let after = engine.stats();
    assert_eq!((after.record_count - before.record_count, after.record_bytes - before.record_bytes), (1_000, 4_000));
    let commits = after.commit_count - before.commit_count;
    assert!(commits < 500, "{commits} commits for 1,000 appends queued at once");
    assert_eq!(after.queue_bytes, 0);
}

#[tokio::test]
async fn calls_keep_their_order_without_being_awaited() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let engine = open(folder.path());
    let partition = crate::common::partition(&engine, "t").await;
    let appends: Vec<_> = (0..100_u8).map(|number| partition.append(records([[number]]))).collect();
    let offsets: Vec<_> = join_all(appends.into_iter().rev())
        .await
        .into_iter()
        .map(|appended| appended.expect("done").first_offset)
        .collect();
    assert!(offsets.iter().rev().copied().eq(0..100), "{offsets:?}");
}

#[tokio::test]
async fn a_full_queue_makes_appends_wait_and_loses_none() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let mut options = options();
    options.queue_bytes_max = 1_000;
    options.queue_count_max = 4;
    options.group_bytes_max = 300;
    let engine = open_with(folder.path(), options, &Clock::at(0)).expect("open");
    let partition = crate::common::partition(&engine, "t").await;
    let sizes = [1, 5_000, 1, 900, 300, 1, 1, 1, 1, 1, 2_000, 7];
    let appends = sizes.iter().map(|size| partition.append(vec![Bytes::from(vec![1; *size])]));
    assert!(join_all(appends).await.iter().all(Result::is_ok));
    let mut found: Vec<_> = read_all(&partition, 0).expect("read").iter().map(|record| record.value.len()).collect();
    found.sort_unstable();
    let mut expected = sizes.to_vec();
    expected.sort_unstable();
    assert_eq!(found, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn followers_see_every_record_once_whether_in_memory_or_on_disk() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let mut options = options();
    // A few runs only: followers that are slow find them on disk.
    options.tail_bytes_max = 2_000;
    let engine = open_with(folder.path(), options, &Clock::at(0)).expect("open");
    let partition = crate::common::partition(&engine, "t").await;
    let followers = (0..3_u64).map(|follower| {
        let partition = partition.clone();
        spawn(async move {
            let mut next = 0;
            while next < 3_000 {
                if next % 7 == follower {
                    tokio::task::yield_now().await;
                }
                partition.wait_beyond(next).await.expect("open");
                for record in partition.read(next, ALL).expect("read").records {
                    assert_eq!((record.offset, &record.value[..]), (next, &next.to_be_bytes()[..]));
                    next += 1;
                }
            }
        })
    });
    let followers: Vec<_> = followers.collect();
    for number in 0..1_000_u64 {
        let values = (number * 3..number * 3 + 3).map(u64::to_be_bytes);
        partition.append(records(values)).await.expect("appended");
    }
    for follower in followers {
        follower.await.expect("it saw all");
    }
    assert!(engine.stats().tail_bytes <= 2_000);
}
