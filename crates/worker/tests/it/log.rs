//! A log that has lost something, or is another one, stops the shard for good: nothing is guessed, nothing is sent.

use std::sync::atomic::Ordering;
use std::time::Duration;

use protocol::record::{self, LogRecord};
use sim::world::Paces;
use sim::world::broker::Broker;
use sim::world::log::LogFaults;
use testkit::log::default_limits;
use worker::lifecycle::ShardLifecycle;

use sim::account::{self, Account};
use sim::cell::{Cell, CellOptions, Worker};

/// A shard that was active, has delivered one message, holds one that is overdue, and is stopped now.
async fn stopped_shard(cell: &Cell, disks: &[sim::world::disk::WorldDisk]) {
    let worker = cell.start("first", disks);
    worker.active().await;
    cell.append(&cell.schedule(0, 0, cell.world.now_ms()));
    let waiting = cell.schedule(0, 0, cell.world.now_ms() + 10_000);
    assert!(worker.submit(&waiting).await.generation.is_some());
    cell.world.wait(Duration::from_secs(1)).await;
    worker.stop();
    worker.becomes(0, ShardLifecycle::Unassigned).await;
    cell.world.wait(Duration::from_secs(60)).await;
}

/// It fails, says why, and touches neither log nor destinations, however long it stands there.
async fn fails_for_good(cell: &Cell, worker: &Worker, reason: &str) {
    let (records, sent) = (cell.archive(0).len(), sent(&cell.broker));
    assert!(worker.handles[0].active().await.is_err(), "the shard does not become active");
    assert_eq!(worker.lifecycle(0), ShardLifecycle::Failed);
    let status = worker.handles[0].status();
    assert!(status.reason.contains(reason), "{}", status.reason);
    cell.world.wait(Duration::from_secs(600)).await;
    assert_eq!(worker.lifecycle(0), ShardLifecycle::Failed);
    assert_eq!((cell.archive(0).len(), self::sent(&cell.broker)), (records, sent));
}

fn sent(broker: &Broker) -> usize {
    broker.received().len()
}

#[test]
fn a_log_that_is_shorter_than_what_was_applied_fails_the_shard() {
    for lost in 1..=3 {
        let cell = Cell::new(CellOptions::new(50));
        let disks = cell.disks("a");
        cell.world.run(async {
            stopped_shard(&cell, &disks).await;
            let log = &cell.shards[0].log;
            log.lose_from(cell.archive(0).len() as u64 - lost);
            let worker = cell.start("second", &disks);
            fails_for_good(&cell, &worker, "the log has gone backwards").await;
        });
    }
}

#[test]
fn a_log_that_grew_again_after_a_loss_fails_the_shard() {
    let cell = Cell::new(CellOptions::new(51));
    let disks = cell.disks("a");
    cell.world.run(async {
        stopped_shard(&cell, &disks).await;
        let log = &cell.shards[0].log;
        log.lose_from(cell.archive(0).len() as u64 - 1);
        cell.append(&cell.schedule(0, 0, cell.world.now_ms()));
        let worker = cell.start("second", &disks);
        fails_for_good(&cell, &worker, "the log has gone backwards").await;
    });
}

#[test]
fn an_empty_log_beside_a_store_fails_the_shard() {
    let cell = Cell::new(CellOptions::new(52));
    let disks = cell.disks("a");
    cell.world.run(async {
        stopped_shard(&cell, &disks).await;
        cell.shards[0].log.lose_from(0);
        let worker = cell.start("second", &disks);
        fails_for_good(&cell, &worker, "the log is empty").await;
    });
}

#[test]
fn a_store_behind_the_start_of_the_log_fails_the_shard() {
    let cell = Cell::new(CellOptions::new(53));
    let disks = cell.disks("a");
    cell.world.run(async {
        stopped_shard(&cell, &disks).await;
        let log = &cell.shards[0].log;
        let applied = cell.archive(0).len() as u64;
        for _ in 0..10 {
            cell.append(&cell.schedule(0, 0, cell.world.now_ms()));
        }
        log.lose_before(applied + 1);
        let worker = cell.start("second", &disks);
        fails_for_good(&cell, &worker, "gap in the shard log").await;
    });
}

#[test]
fn a_log_that_loses_records_under_its_owner_fails_the_shard() {
    let cell = Cell::new(CellOptions::new(54));
    let disks = cell.disks("a");
    cell.world.run(async {
        let worker = cell.start("worker", &disks);
        worker.active().await;
        cell.append(&cell.schedule(0, 0, cell.world.now_ms() + 5_000));
        cell.world.wait(Duration::from_secs(1)).await;
        let log = &cell.shards[0].log;
        log.lose_from(cell.archive(0).len() as u64 - 2);
        cell.append(&cell.schedule(0, 0, cell.world.now_ms() + 5_000));
        worker.becomes(0, ShardLifecycle::Failed).await;
        fails_for_good(&cell, &worker, "gap").await;
        assert_eq!(sent(&cell.broker), 0);
    });
}

#[test]
fn a_log_that_leaves_a_record_out_fails_the_shard() {
    let cell = Cell::new(CellOptions::new(58));
    let disks = cell.disks("a");
    cell.world.run(async {
        let worker = cell.start("worker", &disks);
        worker.active().await;
        let prepared = cell.schedule(0, 0, cell.world.now_ms());
        cell.shards[0].log.skip(cell.archive(0).len() as u64);
        cell.shards[0].log.append(&[prepared.frame.clone(), cell.schedule(0, 0, cell.world.now_ms()).frame]);
        worker.becomes(0, ShardLifecycle::Failed).await;
        fails_for_good(&cell, &worker, "expected the record at offset").await;
        assert_eq!(sent(&cell.broker), 0);
        // Nor is it passed over on the way to the barrier by one that replays the whole log.
        let next = cell.start("next", &cell.disks("b"));
        fails_for_good(&cell, &next, "expected the record at offset").await;
    });
}

#[test]
fn a_log_with_another_genesis_is_refused() {
    let cell = Cell::untouched(CellOptions::new(55));
    let mut limits = default_limits();
    limits.active_messages_max += 1;
    let other = Cell::untouched(CellOptions { limits, ..CellOptions::new(55) });
    cell.shards[0].log.append(&[other.genesis_frame(0)]);
    let disks = cell.disks("a");
    cell.world.run(async {
        let worker = cell.start("worker", &disks);
        fails_for_good(&cell, &worker, "genesis").await;
    });
    let cell = Cell::untouched(CellOptions::new(55));
    cell.append(&cell.schedule(0, 0, cell.world.now_ms()));
    let disks = cell.disks("a");
    cell.world.run(async {
        let worker = cell.start("worker", &disks);
        fails_for_good(&cell, &worker, "genesis").await;
    });
}

#[test]
fn an_empty_log_gets_its_genesis_once_whatever_the_log_answers() {
    for seed in 0..20 {
        let cell = Cell::untouched(CellOptions::new(56 + seed));
        cell.shards[0].log.set_faults(LogFaults {
            not_appended_percent: 30,
            unknown_percent: 40,
            ..LogFaults::default()
        });
        let (here, there) = (cell.disks("a"), cell.disks("b"));
        cell.world.run(async {
            let first = cell.start("first", &here);
            let second = cell.start("second", &there);
            tokio::select! {
                () = first.active() => {}
                () = second.active() => {}
            }
        });
        let archive = cell.archive(0);
        assert_eq!(archive[0].frame, cell.genesis_frame(0));
        assert!(archive.iter().all(|record| matches!(record::decode(&record.frame), Ok(LogRecord::MutationV2(_)))));
    }
}

#[test]
fn a_log_out_of_reach_is_waited_for() {
    let cell = Cell::new(CellOptions::new(57));
    let disks = cell.disks("a");
    let log = &cell.shards[0].log;
    log.set_unavailable(true);
    cell.world.run(async {
        let worker = cell.start("worker", &disks);
        worker.becomes(0, ShardLifecycle::Fenced).await;
        cell.world.wait(Duration::from_secs(30)).await;
        log.set_unavailable(false);
        worker.active().await;
        // Now while something is due: admissions and outcomes wait for the log and are appended once.
        cell.append(&cell.schedule(0, 0, cell.world.now_ms() + 5_000));
        cell.world.wait(Duration::from_secs(1)).await;
        log.set_unavailable(true);
        cell.world.wait(Duration::from_secs(30)).await;
        assert_eq!(sent(&cell.broker), 0);
        log.set_unavailable(false);
        cell.world.wait(Duration::from_secs(30)).await;
    });
    assert_eq!(account::settle(&cell), Account { accepted: 1, published: 1, ..Account::default() });
}

#[test]
fn lost_answers_of_the_log_cost_no_attempt() {
    let cell = Cell::new(CellOptions::new(59));
    let disks = cell.disks("a");
    cell.world.run(async {
        let worker = cell.start("worker", &disks);
        worker.active().await;
        cell.shards[0].log.set_faults(LogFaults {
            not_appended_percent: 20,
            unknown_percent: 40,
            ..LogFaults::default()
        });
        for due_in_ms in (1_000..2_000).step_by(10) {
            cell.append(&cell.schedule(0, 0, cell.world.now_ms() + due_in_ms));
        }
        cell.world.wait(Duration::from_secs(10)).await;
    });
    let received = cell.broker.received();
    assert!(received.iter().all(|received| received.attempt.attempt == 1), "{received:?}");
    assert_eq!(account::settle(&cell), Account { accepted: 100, published: 100, ..Account::default() });
}

/// Nor does anything else of an owner turn as fast as it can: at one moment, the world allows so many steps and no more.
#[test]
fn a_log_that_refuses_at_once_is_left_alone_for_a_moment() {
    let cell = Cell::new(CellOptions::new(60));
    let disks = cell.disks("a");
    cell.world.run(async {
        let worker = cell.start("worker", &disks);
        worker.active().await;
        cell.append(&cell.schedule(0, 0, cell.world.now_ms() + 1_000));
        let log = &cell.shards[0].log;
        log.set_paces(Paces::fixed(0, 0));
        cell.world.wait(Duration::from_millis(500)).await;
        log.set_unavailable(true);
        let sent = || worker.metrics.owner_log_bytes.load(Ordering::Relaxed);
        let before = sent();
        cell.world.wait(Duration::from_secs(10)).await;
        // One record a moment, and few bytes each.
        let records = (sent() - before) / 300;
        assert!((100..=1_000).contains(&records), "{records} in ten seconds");
        log.set_unavailable(false);
        cell.world.wait(Duration::from_millis(200)).await;
        assert_eq!(account::settle(&cell), Account { accepted: 1, published: 1, ..Account::default() });
    });
}
