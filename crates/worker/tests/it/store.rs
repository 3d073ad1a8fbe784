//! A store that fails closes the shard, never the eyes: it is opened again, recovered from the log, and nothing is lost or twice.

use std::collections::BTreeMap;
use std::time::Duration;

use protocol::code::StableCode;
use shard::memory::CommitFault;
use shard::query;
use shard::state::MessageUuid;
use shard::state::generation::MessageState;
use sim::world::broker::{Behavior, Evidence};
use sim::world::disk::WorldDisk;
use sim::world::{Delay, Order, Paces, WorldOptions};
use worker::lifecycle::ShardLifecycle;

use sim::account::{self, Account};
use sim::cell::{Cell, CellOptions, Worker};
use sim::told::Told;

const FAULTS: [CommitFault; 3] =
    [CommitFault::NotWritten, CommitFault::UncertainAndLost, CommitFault::UncertainAndKept];

#[test]
fn a_failed_commit_at_any_point_is_recovered_to_what_the_log_says() {
    let mut recoveries = 0;
    for fault in FAULTS {
        for skipped in 0..40 {
            let cell = Cell::new(CellOptions::new(40 + skipped));
            let paces = Paces { there: Delay::between(0, 30), back: Delay::between(0, 30) };
            cell.broker.set_default(Behavior { paces, evidence: Evidence::Exact, ..Behavior::default() });
            let disks = cell.disks("a");
            disks[0].fail_commit(skipped, fault);
            cell.world.run(async {
                let worker = cell.start("worker", &disks);
                let mut random = cell.world.random("messages");
                let start_ms = cell.world.now_ms();
                for number in 0..16 {
                    cell.append(&cell.schedule(0, number % 2, start_ms + 100 + random.i64(0..200)));
                }
                cell.world.wait(Duration::from_secs(10)).await;
                assert_eq!(worker.lifecycle(0), ShardLifecycle::ActiveForCommands);
                recoveries += u64::from(worker.handles[0].status().owner_epoch > 1);
            });
            let account = account::settle(&cell);
            assert_eq!(account, Account { accepted: 16, published: 16, ..Account::default() }, "{fault:?} {skipped}");
            assert_eq!(disks[0].digest(), Told::new(&cell, 0).digest(), "{fault:?} {skipped}");
        }
    }
    assert!(recoveries > 40, "commits failed: {recoveries}");
}

#[test]
fn an_answer_waits_until_its_commit_is_done() {
    for fault in FAULTS {
        let cell = Cell::new(CellOptions::new(44));
        let disks = cell.disks("a");
        cell.world.run(async {
            let worker = cell.start("worker", &disks);
            worker.active().await;
            let message = cell.schedule(0, 0, cell.world.now_ms() + 60_000);
            disks[0].fail_commit(0, fault);
            let submitted_ms = cell.world.now_ms();
            assert_eq!(worker.submit(&message).await.code, StableCode::Scheduled);
            assert!(cell.world.now_ms() - submitted_ms >= 1_000, "{fault:?}: the shard had to be opened again first");
            let stored = query::message(&disks[0].snapshot(), message.message).expect("the disk answers");
            assert_eq!(stored.map(|view| view.state), Some(MessageState::Scheduled), "{fault:?}");
        });
    }
}

#[test]
fn a_store_that_cannot_be_opened_is_tried_again() {
    let cell = Cell::new(CellOptions::new(41));
    let disks = cell.disks("a");
    disks[0].set_unopenable(Some("the disk is not mounted"));
    cell.world.run(async {
        let worker = cell.start("worker", &disks);
        worker.becomes(0, ShardLifecycle::Fenced).await;
        assert!(worker.handles[0].status().reason.contains("the disk is not mounted"));
        disks[0].set_unopenable(None);
        worker.active().await;
    });
}

#[test]
fn the_store_of_another_shard_is_refused() {
    let cell = Cell::new(CellOptions { shard_count: 2, ..CellOptions::new(42) });
    let disks = cell.disks("a");
    cell.world.run(async {
        let worker = cell.start("worker", &disks);
        worker.active().await;
        worker.stop();
        worker.becomes(0, ShardLifecycle::Unassigned).await;
        worker.becomes(1, ShardLifecycle::Unassigned).await;
        let swapped = [disks[1].clone(), disks[0].clone()];
        let before = digests(&disks);
        let worker = cell.start("confused", &swapped);
        for shard in 0..2 {
            worker.becomes(shard, ShardLifecycle::Failed).await;
            let reason = worker.handles[shard].status().reason;
            assert!(reason.contains("store is of"), "{reason}");
        }
        assert_eq!(digests(&disks), before, "nothing was changed");
    });
}

fn digests(disks: &[WorldDisk]) -> Vec<[u8; 32]> {
    disks.iter().map(WorldDisk::digest).collect()
}

/// When the messages of the second shard were delivered, while something happens to the first.
fn neighbour(happens: impl AsyncFnOnce(&Cell, &Worker, &WorldDisk)) -> BTreeMap<MessageUuid, i64> {
    let world = WorldOptions { order: Order::Fifo, ..WorldOptions::new(43) };
    let cell = Cell::new(CellOptions { world, shard_count: 2, ..CellOptions::new(43) });
    for book in &cell.shards {
        book.log.set_paces(Paces::fixed(2, 0));
    }
    let disks = cell.disks("a");
    let mut wanted = Vec::new();
    cell.world.run(async {
        let worker = cell.start("worker", &disks);
        worker.active().await;
        let mut random = cell.world.random("messages");
        let start_ms = cell.world.now_ms();
        for number in 0..200 {
            let due_ms = start_ms + 1_000 + 100 * number + random.i64(0..50);
            cell.append(&cell.schedule(0, 0, due_ms));
            let good = cell.schedule(1, 0, due_ms);
            wanted.push(good.message);
            cell.append(&good);
        }
        cell.world.wait(Duration::from_secs(5)).await;
        happens(&cell, &worker, &disks[0]).await;
        cell.world.wait(Duration::from_secs(60)).await;
    });
    let delivered = cell.broker.delivered().into_iter().filter(|one| one.shard == cell.shards[1].identity.shard);
    let delivered: BTreeMap<MessageUuid, i64> = delivered.map(|one| (one.attempt.message, one.at_us)).collect();
    assert_eq!(delivered.len(), wanted.len(), "everything of the neighbour's is delivered");
    delivered
}

#[test]
fn one_shard_that_recovers_or_fails_delays_no_other() {
    let alone = neighbour(async |_, _, _| {});
    let recovers = neighbour(async |_, worker, disk| {
        for _ in 0..5 {
            disk.fail_commit(0, CommitFault::UncertainAndLost);
            worker.becomes(0, ShardLifecycle::Fenced).await;
            worker.becomes(0, ShardLifecycle::ActiveForCommands).await;
        }
    });
    assert_eq!(recovers, alone);
    let fails = neighbour(async |cell, worker, disk| {
        let records = cell.archive(0).len() as u64;
        cell.shards[0].log.lose_from(records - 20);
        disk.fail_commit(0, CommitFault::UncertainAndKept);
        cell.append(&cell.schedule(0, 0, cell.world.now_ms()));
        worker.becomes(0, ShardLifecycle::Failed).await;
    });
    assert_eq!(fails, alone);
}
