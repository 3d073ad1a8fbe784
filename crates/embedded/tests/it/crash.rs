//! What a killed process leaves, and what a failing disk does.

use std::fs;

use bytes::Bytes;
use embedded::EmbeddedMetadata;
use embedded::{AppendError, AttemptEntry, AttemptsRow, ReadError};
use ports::metadata::{ChangeError, Expected, Metadata as _};

use crate::common::{copy_folder, open, partition, read_all, records, spawn, values};

#[tokio::test]
async fn everything_that_was_answered_survives_a_kill() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let live = folder.path().join("live");
    let engine = open(&live);
    let partition = partition(&engine, "t").await;
    let metadata = EmbeddedMetadata::new(&engine);
    let session = metadata.open_session().await.expect("open");
    metadata.put_ephemeral("lease", Bytes::from("owner"), session.id()).await.expect("put");
    let mut expected = Vec::new();
    for round in 0..30_u32 {
        let batch: Vec<Bytes> = (0..round % 7 + 1).map(|index| format!("{round}.{index}").into()).collect();
        expected.extend(batch.clone());
        let entries = batch.iter().map(|_| AttemptEntry { message: [1; 16], generation: 1, attempt: round });
        let attempts =
            AttemptsRow { scope: Bytes::from("s"), epoch: 1, order: u64::from(round), entries: entries.collect() };
        partition.append_attempts(batch, attempts).await.expect("appended");
        metadata.put(&format!("key/{round:02}"), Bytes::from("value"), Expected::Absent).await.expect("put");
        if round % 10 == 9 {
            partition.trim(u64::from(round) / 10).await.expect("trimmed");
            let image = folder.path().join(format!("killed-after-{round}"));
            copy_folder(&live, &image);
            let killed = open(&image);
            let found = crate::common::partition(&killed, "t").await;
            let start = found.start_offset();
            assert_eq!(start, u64::from(round) / 10);
            let skipped = usize::try_from(start).expect("small");
            assert_eq!(values(&read_all(&found, start).expect("read")), expected[skipped..]);
            let attempts = killed.attempts(&Bytes::from("s"), 0..u64::MAX).expect("read");
            assert_eq!(attempts.len(), usize::try_from(round).expect("small") + 1);
            let metadata = EmbeddedMetadata::new(&killed);
            assert_eq!(metadata.list("key/", None, 1_000).await.expect("list").len(), attempts.len());
            assert_eq!(metadata.get("lease").await.expect("get"), None, "its session ended with the process");
        }
    }
}

/// A failing disk is played by taking the folder away: the next log file cannot be made.
#[tokio::test]
async fn a_failed_write_is_unknown_to_its_group_and_closes_the_engine() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let live = folder.path().join("live");
    let engine = open(&live);
    let partition = partition(&engine, "t").await;
    let metadata = EmbeddedMetadata::new(&engine);
    let session = metadata.open_session().await.expect("open");
    partition.append(records(["before"])).await.expect("appended");
    let waiting = spawn(partition.wait_beyond(1));
    fs::rename(live.join("db"), live.join("elsewhere")).expect("moved");
    let _ = engine.flush();

    let error = partition.append(records(["during"])).await.expect_err("there is no folder to write to");
    assert!(matches!(error, AppendError::Unknown { .. }), "{error}");
    let reason = engine.closed().await;
    assert!(reason.contains("outcome is unknown"), "{reason}");
    session.lost().await;
    assert!(session.remaining().is_zero());

    let error = partition.append(records(["after"])).await.expect_err("closed");
    assert!(matches!(error, AppendError::Closed { .. }), "{error}");
    let error = metadata.put("key", Bytes::new(), Expected::Absent).await.expect_err("closed");
    assert!(matches!(error, ChangeError::Unavailable { .. }), "{error}");
    assert!(metadata.open_session().await.is_err());
    assert!(engine.fence(Bytes::from("s"), 1).await.is_err());
    assert!(matches!(waiting.await.expect("no panic"), Err(ReadError::Closed { .. })));

    fs::rename(live.join("elsewhere"), live.join("db")).expect("moved back");
    let again = open(&live);
    let partition = crate::common::partition(&again, "t").await;
    assert_eq!(values(&read_all(&partition, 0).expect("read"))[0], "before");
}
