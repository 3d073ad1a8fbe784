//! What every [`ShardLog`] must do.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt as _;
use ports::log::{Barrier, ReadError, ReadLimit, ShardLog, SourceRecord};
use protocol::id::ShardId;
use protocol::position::SourcePosition;

const EVERYTHING: ReadLimit = ReadLimit { records_max: 10_000, bytes_max: 1 << 30 };

/// Runs every check; `make` gives a new, empty log of this shard each time.
pub async fn run(shard: ShardId, mut make: impl AsyncFnMut() -> Arc<dyn ShardLog>) {
    an_empty_log_has_no_end(&*make().await).await;
    frames_come_back_as_they_were_in_their_order(&*make().await, shard).await;
    every_read_goes_on_where_the_last_one_ended(&*make().await).await;
    a_read_at_the_end_waits(&*make().await).await;
    a_dropped_read_changes_nothing(&*make().await).await;
    a_dropped_append_leaves_whole_frames_and_an_order(&*make().await).await;
    batches_of_several_writers_keep_their_order(&*make().await).await;
    a_position_that_is_not_in_the_log_is_a_gap(&*make().await).await;
    a_trim_keeps_its_position_and_what_follows(&*make().await).await;
}

fn frames(texts: &[&'static str]) -> Vec<Bytes> {
    texts.iter().map(|text| Bytes::from_static(text.as_bytes())).collect()
}

async fn append(log: &dyn ShardLog, texts: &[&'static str]) -> Vec<SourcePosition> {
    let positions = log.append(frames(texts)).await.expect("appended");
    assert_eq!(positions.len(), texts.len());
    positions
}

async fn read(log: &dyn ShardLog, after: Option<&SourcePosition>, limit: ReadLimit) -> Vec<SourceRecord> {
    let records = log.read(after, limit).await.expect("read");
    assert!(!records.is_empty(), "a read returns something");
    records
}

/// Everything behind a position up to the end of the log.
async fn read_to_end(log: &dyn ShardLog, after: Option<&SourcePosition>, limit: ReadLimit) -> Vec<SourceRecord> {
    let Barrier::Through(end) = log.barrier().await.expect("barrier") else { return Vec::new() };
    let mut records: Vec<SourceRecord> = Vec::new();
    let mut last = after.cloned();
    while last.as_ref() != Some(&end) {
        records.extend(read(log, last.as_ref(), limit).await);
        last = records.last().map(|record| record.position.clone());
    }
    records
}

fn texts(records: &[SourceRecord]) -> Vec<&[u8]> {
    records.iter().map(|record| &record.frame[..]).collect()
}

fn assert_ascending(records: &[SourceRecord]) {
    for pair in records.windows(2) {
        let (one, next) = (&pair[0].position, &pair[1].position);
        assert!(one.compare(next).is_some_and(std::cmp::Ordering::is_lt), "{one:?} before {next:?}");
        assert!(one.order_token() < next.order_token());
        assert!(one.broker_time_ms() <= next.broker_time_ms(), "the log's time does not go back");
    }
}

async fn an_empty_log_has_no_end(log: &dyn ShardLog) {
    assert_eq!(log.barrier().await.expect("barrier"), Barrier::Empty);
}

async fn frames_come_back_as_they_were_in_their_order(log: &dyn ShardLog, shard: ShardId) {
    let mut written = frames(&["one", "\0\u{ff}", "three"]);
    written.push(Bytes::from(vec![7; 100_000]));
    let first = log.append(written.clone()).await.expect("appended");
    let second = append(log, &["five"]).await;
    written.extend(frames(&["five"]));
    let positions: Vec<SourcePosition> = first.into_iter().chain(second).collect();
    assert_eq!(log.barrier().await.expect("barrier"), Barrier::Through(positions[4].clone()));
    let records = read_to_end(log, None, EVERYTHING).await;
    let found: Vec<(SourcePosition, Bytes)> =
        records.iter().map(|record| (record.position.clone(), record.frame.clone())).collect();
    assert_eq!(found, positions.iter().cloned().zip(written).collect::<Vec<_>>());
    assert_ascending(&records);
    assert!(positions.iter().all(|position| position.shard() == shard));
}

async fn every_read_goes_on_where_the_last_one_ended(log: &dyn ShardLog) {
    append(log, &["a", "bb", "ccc"]).await;
    append(log, &["d", "e"]).await;
    let all = read_to_end(log, None, EVERYTHING).await;
    assert_eq!(texts(&all), [&b"a"[..], b"bb", b"ccc", b"d", b"e"]);
    let limits = [
        ReadLimit { records_max: 1, ..EVERYTHING },
        ReadLimit { records_max: 2, ..EVERYTHING },
        ReadLimit { bytes_max: 1, ..EVERYTHING },
        ReadLimit { bytes_max: 3, ..EVERYTHING },
    ];
    for limit in limits {
        assert!(read(log, None, limit).await.len() <= limit.records_max);
        assert_eq!(read_to_end(log, None, limit).await, all, "{limit:?}");
    }
    assert_eq!(read(log, None, ReadLimit { bytes_max: 1, ..EVERYTHING }).await.len(), 1, "one reaches the bytes");
    for (number, record) in all[..4].iter().enumerate() {
        assert_eq!(read_to_end(log, Some(&record.position), EVERYTHING).await, all[number + 1..]);
    }
}

async fn a_read_at_the_end_waits(log: &dyn ShardLog) {
    let first = append(log, &["a"]).await;
    for (after, text) in [(Some(first[0].clone()), "b"), (None, "a")] {
        let (records, _) = tokio::join!(log.read(after.as_ref(), EVERYTHING), log.append(frames(&["b"])));
        assert_eq!(records.expect("read")[0].frame, text.as_bytes());
    }
}

async fn a_dropped_read_changes_nothing(log: &dyn ShardLog) {
    let first = append(log, &["a"]).await;
    assert!(log.read(Some(&first[0]), EVERYTHING).now_or_never().is_none(), "there is nothing to read");
    drop(log.read(Some(&first[0]), EVERYTHING));
    append(log, &["b"]).await;
    assert_eq!(texts(&read_to_end(log, None, EVERYTHING).await), [b"a", b"b"]);
}

async fn a_dropped_append_leaves_whole_frames_and_an_order(log: &dyn ShardLog) {
    drop(log.append(frames(&["maybe 1", "maybe 2"])));
    let _ = log.append(frames(&["maybe 3"])).now_or_never();
    append(log, &["certainly"]).await;
    // Late effects of dropped appends may still come; what has come is whole and in its batch's order.
    let records = read_to_end(log, None, EVERYTHING).await;
    let place = |text: &str| texts(&records).iter().position(|found| *found == text.as_bytes());
    assert!(place("certainly").is_some());
    assert!(place("maybe 2").is_none() || place("maybe 1") < place("maybe 2"));
    let known = [&b"maybe 1"[..], b"maybe 2", b"maybe 3", b"certainly"];
    assert!(texts(&records).iter().all(|found| known.contains(found)));
    assert_ascending(&records);
}

async fn batches_of_several_writers_keep_their_order(log: &dyn ShardLog) {
    let write = async |writer: u8| {
        for number in 0..20_u8 {
            let batch = (0..3).map(|place| Bytes::from(vec![writer, number, place])).collect();
            log.append(batch).await.expect("appended");
        }
    };
    tokio::join!(write(0), write(1), write(2));
    let records = read_to_end(log, None, ReadLimit { records_max: 7, ..EVERYTHING }).await;
    assert_eq!(records.len(), 180);
    assert_ascending(&records);
    assert_eq!(texts(&records).into_iter().collect::<BTreeSet<_>>().len(), 180);
    for writer in 0..3 {
        let of_writer: Vec<&[u8]> = texts(&records).into_iter().filter(|frame| frame[0] == writer).collect();
        assert!(of_writer.is_sorted(), "{of_writer:?}");
    }
}

async fn a_position_that_is_not_in_the_log_is_a_gap(log: &dyn ShardLog) {
    let positions = append(log, &["a", "b"]).await;
    for position in [beyond(&positions[1]), foreign(&positions[0])] {
        let error = log.read(Some(&position), EVERYTHING).await.expect_err("nothing follows it");
        assert!(matches!(error, ReadError::Gap { .. }), "{position:?}: {error}");
    }
    let error = log.trim(&foreign(&positions[0])).await.expect_err("it is of another log");
    assert!(matches!(error, ReadError::Gap { .. }), "{error}");
    assert_eq!(read_to_end(log, None, EVERYTHING).await.len(), 2);
}

/// A position that the log will reach one day, and has not.
fn beyond(position: &SourcePosition) -> SourcePosition {
    let mut beyond = position.clone();
    match &mut beyond {
        SourcePosition::Kafka(at) => at.offset += 1_000,
        SourcePosition::Pulsar(at) => at.ledger += 1_000,
        SourcePosition::Embedded(at) => at.offset += 1_000,
    }
    beyond
}

/// The same place in a log that was made anew under the same name.
fn foreign(position: &SourcePosition) -> SourcePosition {
    let mut foreign = position.clone();
    match &mut foreign {
        SourcePosition::Kafka(at) => at.topic[0] ^= 1,
        SourcePosition::Pulsar(at) => at.incarnation = Bytes::from_static(b"another"),
        SourcePosition::Embedded(at) => at.log[0] ^= 1,
    }
    foreign
}

async fn a_trim_keeps_its_position_and_what_follows(log: &dyn ShardLog) {
    let positions = append(log, &["a", "b", "c", "d"]).await;
    for position in &positions[1..3] {
        log.trim(position).await.expect("trimmed");
        log.trim(position).await.expect("trimmed again");
        log.trim(&positions[0]).await.expect("what is gone may be allowed to go again");
    }
    assert_eq!(texts(&read_to_end(log, Some(&positions[1]), EVERYTHING).await), [b"c", b"d"]);
    append(log, &["e"]).await;
    assert_eq!(texts(&read_to_end(log, Some(&positions[2]), EVERYTHING).await), [b"d", b"e"]);
}
