//! Letting old records go.

use std::time::Duration;

use bytes::Bytes;
use embedded::{Embedded, Partition, ReadError, Retention, TrimError};

use crate::common::{Clock, open, open_with, options, partition, read_all, records, values};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

async fn with_ten(engine: &Embedded) -> Partition {
    let partition = partition(engine, "t").await;
    for chunk in [&["0", "1", "2"][..], &["3", "4", "5"], &["6", "7", "8", "9"]] {
        partition.append(records(chunk)).await.expect("appended");
    }
    partition
}

#[tokio::test]
async fn what_is_trimmed_is_gone_and_the_rest_stays() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let engine = open(folder.path());
    let partition = with_ten(&engine).await;
    let out_of_range = |partition: &Partition, offset| {
        let expected = ReadError::OffsetOutOfRange { offset, start: partition.start_offset(), end: 10 };
        assert_eq!(read_all(partition, offset), Err(expected));
    };
    assert_eq!(partition.trim(4).await, Ok(4), "in the middle of a run");
    out_of_range(&partition, 3);
    assert_eq!(values(&read_all(&partition, 4).expect("read")), records(["4", "5", "6", "7", "8", "9"]));
    assert_eq!(partition.trim(2).await, Ok(4), "never back");
    assert_eq!(partition.trim(11).await, Err(TrimError::BeyondEnd { below_offset: 11, end: 10 }));
    engine.close();

    let engine = open(folder.path());
    let partition = crate::common::partition(&engine, "t").await;
    assert_eq!((partition.start_offset(), partition.end_offset()), (4, 10), "durable");
    out_of_range(&partition, 0);
    assert_eq!(values(&read_all(&partition, 4).expect("read")), records(["4", "5", "6", "7", "8", "9"]));
    assert_eq!(partition.trim(6).await, Ok(6), "between two runs, none of them in memory");
    assert_eq!(values(&read_all(&partition, 6).expect("read")), records(["6", "7", "8", "9"]));
}

#[tokio::test]
async fn offsets_go_on_after_everything_was_trimmed() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let engine = open(folder.path());
    let partition = with_ten(&engine).await;
    assert_eq!(partition.trim(10).await, Ok(10));
    assert_eq!(read_all(&partition, 10).expect("the end"), []);
    engine.close();
    let engine = open(folder.path());
    let partition = crate::common::partition(&engine, "t").await;
    assert_eq!((partition.start_offset(), partition.end_offset(), partition.last()), (10, 10, Some((9, 1_000))));
    let appended = partition.append(records(["next"])).await.expect("appended");
    assert_eq!(appended.first_offset, 10);
    assert_eq!(values(&read_all(&partition, 10).expect("read")), records(["next"]));
    drop(engine);
    let engine = open(folder.path());
    let partition = crate::common::partition(&engine, "t").await;
    assert_eq!((partition.start_offset(), partition.end_offset()), (10, 11));
}

#[tokio::test]
async fn appends_and_trims_of_one_group_keep_their_order() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let engine = open(folder.path());
    let partition = with_ten(&engine).await;
    // All four are queued while the writer is busy with the first, so that some share a group.
    let appends = [partition.append(records(["10", "11"])), partition.append(records(["12"]))];
    let trims = futures_util::future::join(partition.trim(11), partition.trim(12));
    let last = partition.append(records(["13"]));
    let (appended, trimmed, last) = tokio::join!(futures_util::future::join_all(appends), trims, last);
    assert!(appended.iter().all(Result::is_ok));
    assert_eq!(last.expect("appended").first_offset, 13);
    assert_eq!(trimmed, (Ok(11), Ok(12)));
    assert_eq!(values(&read_all(&partition, 12).expect("read")), records(["12", "13"]));
    engine.close();
    let partition = crate::common::partition(&open(folder.path()), "t").await;
    assert_eq!((partition.start_offset(), partition.end_offset()), (12, 14));
}

#[tokio::test]
async fn retention_goes_by_size_and_by_age_but_never_above_the_given_offset() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let clock = Clock::at(0);
    let engine = open_with(folder.path(), options(), &clock).expect("open");
    let partition = partition(&engine, "t").await;
    // A hundred runs of one record of 1,000 bytes, one a second.
    for second in 0..100 {
        clock.set(second * 1_000);
        partition.append(vec![Bytes::from(vec![7; 1_000])]).await.expect("appended");
    }
    let keep = |bytes_max, age_max| Retention { bytes_max, age_max };
    assert_eq!(partition.retain(keep(1 << 30, DAY), 100).await, Ok(0), "within both");
    assert_eq!(partition.retain(keep(95_000, DAY), 100).await, Ok(5));
    assert_eq!(partition.retain(keep(95_000, DAY), 100).await, Ok(5), "nothing to do");
    assert_eq!(partition.retain(keep(94_999, DAY), 100).await, Ok(6));
    assert_eq!(partition.retain(keep(1 << 30, Duration::from_secs(89)), 100).await, Ok(10), "99 s less 89 s");
    assert_eq!(partition.retain(keep(20_000, DAY), 50).await, Ok(30), "counted below the given offset");
    assert_eq!(partition.retain(keep(0, Duration::ZERO), 50).await, Ok(50), "never above it");
    assert_eq!(partition.retain(keep(0, DAY), 40).await, Ok(50), "never back");
    assert_eq!(partition.retain(keep(0, DAY), 101).await, Err(TrimError::BeyondEnd { below_offset: 101, end: 100 }));
    assert_eq!(partition.retain(keep(0, DAY), 100).await, Ok(100));
}

#[tokio::test]
async fn trimmed_space_is_given_back() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let engine = open(folder.path());
    let partition = partition(&engine, "t").await;
    let mut random = 1_u64;
    // Bytes that do not compress, in blob files.
    let mut noise = |length: usize| {
        let mut bytes = Vec::with_capacity(length);
        while bytes.len() < length {
            random = random.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
            bytes.extend_from_slice(&random.to_be_bytes());
        }
        Bytes::from(bytes)
    };
    for _ in 0..8 {
        partition.append((0..20).map(|_| noise(100_000)).collect()).await.expect("appended");
        engine.flush().expect("flush");
    }
    let full = engine.stats().disk_bytes;
    assert!(full >= 16_000_000, "{full} bytes");
    partition.trim(partition.end_offset()).await.expect("trimmed");
    for _ in 0..8 {
        partition.append(records(["small"])).await.expect("appended");
        engine.flush().expect("flush");
    }
    engine.compact().expect("compact");
    let left = engine.stats().disk_bytes;
    assert!(left < 100_000, "{left} of {full} bytes are left");
    assert_eq!(read_all(&partition, partition.start_offset()).expect("read").len(), 8);
}
