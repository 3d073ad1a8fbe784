//! One owner at a time: who loses the lease stops by itself, who takes over fences the log, and a zombie does no harm.

use std::time::Duration;

use control::cas::Records;
use control::route::format_uuid;
use control::shard_control::{OwnerLease, lease_key};
use protocol::mutation_v2::MutationBody;
use protocol::record::{self, LogRecord};
use shard::state::MessageUuid;
use sim::world::broker::{Behavior, Evidence};
use sim::world::metadata::MetadataServer;
use sim::world::{Delay, Paces};
use worker::lifecycle::ShardLifecycle;

use sim::account::{self, Account};
use sim::cell::{Cell, CellOptions, SESSION_TIMES, Worker};

/// The owner epochs in a shard's log, in its order.
fn epochs(cell: &Cell) -> Vec<u64> {
    let archive = cell.archive(0);
    let epoch = |frame| match record::decode(frame) {
        Ok(LogRecord::MutationV2(mutation)) => match mutation.body {
            MutationBody::OwnerEpoch(body) => Some(body.stamp.epoch),
            _ => None,
        },
        _ => None,
    };
    archive.iter().filter_map(|record| epoch(&record.frame)).collect()
}

/// Messages due one after the other, `every_ms`.
fn schedule_row(cell: &Cell, count: i64, every_ms: i64) -> Vec<MessageUuid> {
    let start_ms = cell.world.now_ms() + 1_000;
    let prepared = (0..count).map(|number| cell.schedule(0, 0, start_ms + number * every_ms));
    prepared.inspect(|prepared| cell.append(prepared)).map(|prepared| prepared.message).collect()
}

async fn two_workers(cell: &Cell) -> (Worker, Worker) {
    let first = cell.start("first", &cell.disks("a"));
    first.active().await;
    let second = cell.start("second", &cell.disks("b"));
    cell.follow(&first);
    cell.follow(&second);
    (first, second)
}

#[test]
fn only_one_of_two_is_active_and_the_other_follows_a_stop_at_once() {
    let cell = Cell::new(CellOptions::new(20));
    cell.world.run(async {
        let (first, second) = two_workers(&cell).await;
        cell.world.wait(Duration::from_secs(60)).await;
        assert_eq!(first.lifecycle(0), ShardLifecycle::ActiveForCommands);
        assert_eq!(second.lifecycle(0), ShardLifecycle::Acquiring);
        let stopped_ms = cell.world.now_ms();
        first.stop();
        second.active().await;
        let took_ms = cell.world.now_ms() - stopped_ms;
        assert!(took_ms < 100, "a lease that was given back need not run out: {took_ms} ms");
        assert_eq!(first.lifecycle(0), ShardLifecycle::Unassigned);
    });
    assert!(matches!(epochs(&cell)[..], [1, second] if second > 1));
}

#[test]
fn an_owner_out_of_reach_of_the_metadata_store_stops_before_another_starts() {
    let cell = Cell::new(CellOptions::new(21));
    cell.world.run(async {
        let (first, second) = two_workers(&cell).await;
        schedule_row(&cell, 400, 100);
        cell.world.wait(Duration::from_secs(10)).await;
        let cut_off_ms = cell.world.now_ms();
        first.process.cut_off();
        first.becomes(0, ShardLifecycle::Fenced).await;
        let fenced_ms = cell.world.now_ms() - cut_off_ms;
        assert!((6_000..=7_000).contains(&fenced_ms), "the guard is stricter than the timeout: {fenced_ms} ms");
        let fenced_ms = cell.world.now_ms();
        second.active().await;
        let active_ms = cell.world.now_ms() - cut_off_ms;
        assert!(active_ms >= 10_000, "the session has to run out first: {active_ms} ms");
        cell.world.wait(Duration::from_secs(60)).await;
        first.process.reconnect();
        cell.world.wait(Duration::from_secs(10)).await;
        assert_eq!(first.lifecycle(0), ShardLifecycle::Acquiring);
        assert_eq!(second.lifecycle(0), ShardLifecycle::ActiveForCommands);
        for received in cell.broker.received() {
            let is_of_first = received.owner_epoch == 1;
            assert_eq!(is_of_first, received.at_us < (fenced_ms + 3) * 1_000, "{received:?} fenced at {fenced_ms}");
        }
    });
    assert_eq!(account::settle(&cell), Account { accepted: 400, published: 400, ..Account::default() });
}

#[test]
fn an_owner_whose_session_the_store_has_ended_stops_at_once() {
    let cell = Cell::new(CellOptions::new(22));
    cell.world.run(async {
        let (first, second) = two_workers(&cell).await;
        schedule_row(&cell, 200, 100);
        cell.world.wait(Duration::from_secs(10)).await;
        let ended_ms = cell.world.now_ms();
        cell.metadata.end_sessions(&first.process);
        first.becomes(0, ShardLifecycle::Fenced).await;
        let fenced_ms = cell.world.now_ms() - ended_ms;
        assert!(fenced_ms <= 1, "{fenced_ms} ms\n{}", cell.world.events_tail());
        second.active().await;
        assert!(cell.world.now_ms() - ended_ms < 100, "nobody holds the lease any more");
        cell.world.wait(Duration::from_secs(60)).await;
    });
    assert_eq!(account::settle(&cell), Account { accepted: 200, published: 200, ..Account::default() });
}

#[test]
fn an_owner_that_stood_still_finds_itself_fenced() {
    let cell = Cell::new(CellOptions::new(23));
    cell.world.run(async {
        let (first, second) = two_workers(&cell).await;
        schedule_row(&cell, 400, 100);
        cell.world.wait(Duration::from_secs(10)).await;
        first.process.pause();
        second.active().await;
        cell.world.wait(Duration::from_secs(10)).await;
        assert_eq!(first.lifecycle(0), ShardLifecycle::ActiveForCommands, "nobody told it");
        first.process.resume();
        first.becomes(0, ShardLifecycle::Fenced).await;
        first.becomes(0, ShardLifecycle::Acquiring).await;
        cell.world.wait(Duration::from_secs(60)).await;
        assert_eq!(second.lifecycle(0), ShardLifecycle::ActiveForCommands);
    });
    assert!(matches!(epochs(&cell)[..], [1, second] if second > 1));
    assert_eq!(account::settle(&cell), Account { accepted: 400, published: 400, ..Account::default() });
}

#[test]
fn epochs_rise_even_when_the_metadata_store_has_lost_its_records() {
    let mut cell = Cell::new(CellOptions::new(24));
    let disks = cell.disks("a");
    for expected in 1..=3 {
        cell.metadata = MetadataServer::new(&cell.world, SESSION_TIMES);
        cell.world.run(async {
            let worker = cell.start("worker", &disks);
            worker.active().await;
            assert_eq!(worker.handles[0].status().owner_epoch, expected);
            worker.process.kill();
        });
    }
    assert_eq!(epochs(&cell), [1, 2, 3]);
}

#[test]
fn owners_who_cannot_see_each_other_are_kept_apart_by_the_log() {
    for seed in 0..20 {
        let mut cell = Cell::new(CellOptions::new(26 + seed));
        cell.shards[0].log.set_paces(Paces { there: Delay::between(0, 20), back: Delay::between(0, 20) });
        let first = cell.world.run(async {
            let first = cell.start("first", &cell.disks("a"));
            first.active().await;
            first
        });
        // The second is told nothing of the first.
        cell.metadata = MetadataServer::new(&cell.world, SESSION_TIMES);
        cell.world.run(async {
            schedule_row(&cell, 100, 10);
            cell.world.wait(Duration::from_millis(1_000 + 30 * seed)).await;
            if seed % 2 == 0 {
                // It reads of the new owner and of what that one admitted in one go.
                let mut random = cell.world.random("steps");
                first.process.pause_at_step(first.process.steps() + random.u64(1..30));
            }
            let second = cell.start("second", &cell.disks("b"));
            second.active().await;
            cell.world.wait(Duration::from_millis(500)).await;
            first.process.resume();
            first.becomes(0, ShardLifecycle::Fenced).await;
            let reason = first.handles[0].status().reason;
            assert!(reason.contains("of another run"), "{reason}");
            // One of them has to go, or they fence each other as long as they live.
            first.process.kill();
            cell.world.wait(Duration::from_secs(60)).await;
        });
        assert_eq!(account::settle(&cell), Account { accepted: 100, published: 100, ..Account::default() });
    }
}

/// Waits until a worker is active, and makes sure that the log shows its run as the owner then.
async fn active_as_the_log_has_it(cell: &Cell, worker: &Worker, metadata: &MetadataServer) {
    worker.active().await;
    let status = worker.handles[0].status();
    let observer = metadata.client(&cell.world.process("observer"));
    let lease = Records::new(observer).get::<OwnerLease>(&lease_key(cell.shards[0].identity.shard)).await;
    let lease = lease.expect("the store answers").expect("an active owner has the lease").record;
    let run = status.progress.worker_run_id[..].try_into().expect("the log shows an owner");
    assert_eq!(lease.worker_run, format_uuid(&run));
}

#[test]
fn of_two_with_one_epoch_only_the_one_that_the_log_took_becomes_active() {
    let mut races = 0;
    for seed in 0..20 {
        let mut cell = Cell::new(CellOptions::new(90 + seed));
        cell.shards[0].log.set_paces(Paces { there: Delay::between(0, 20), back: Delay::between(0, 20) });
        let metadata = cell.metadata.clone();
        let first = cell.world.run(async { cell.start("first", &cell.disks("a")) });
        cell.metadata = MetadataServer::new(&cell.world, SESSION_TIMES);
        cell.world.run(async {
            let second = cell.start("second", &cell.disks("b"));
            let (one, other) = (
                active_as_the_log_has_it(&cell, &first, &metadata),
                active_as_the_log_has_it(&cell, &second, &cell.metadata),
            );
            futures_util::future::join(one, other).await;
        });
        races += usize::from(epochs(&cell).starts_with(&[1, 1]));
    }
    assert!(races >= 5, "both took the same epoch {races} times");
}

#[test]
fn a_stop_gives_the_lease_back_also_to_those_who_come_later() {
    let cell = Cell::new(CellOptions::new(25));
    cell.world.run(async {
        let (first, second) = two_workers(&cell).await;
        second.stop();
        second.becomes(0, ShardLifecycle::Unassigned).await;
        assert_eq!(first.lifecycle(0), ShardLifecycle::ActiveForCommands);
        first.stop();
        first.becomes(0, ShardLifecycle::Unassigned).await;
        let observer = cell.world.process("observer");
        let lease = cell.metadata.client(&observer).get(&lease_key(cell.shards[0].identity.shard)).await;
        assert_eq!(lease.expect("the store answers"), None);
    });
}

/// The first of two workers stands still at a step of its life (at none for 0), the other takes over, and then it goes on.
fn zombie_from(step: u64, evidence: Evidence) -> (Cell, u64) {
    let cell = Cell::new(CellOptions::new(1_000 + step));
    cell.shards[0].log.set_paces(Paces { there: Delay::between(0, 6), back: Delay::between(0, 6) });
    let paces = Paces { there: Delay::between(0, 30), back: Delay::between(0, 30) };
    cell.broker.set_default(Behavior { paces, evidence, ..Behavior::default() });
    let steps = cell.world.run(async {
        let first = cell.start("first", &cell.disks("a"));
        first.process.pause_at_step(step);
        let mut random = cell.world.random("messages");
        let start_ms = cell.world.now_ms();
        for number in 0..16 {
            cell.append(&cell.schedule(0, number % 2, start_ms + 100 + random.i64(0..200)));
        }
        cell.world.wait(Duration::from_secs(1)).await;
        let steps = first.process.steps();
        let second = cell.start("second", &cell.disks("b"));
        // What the first has under way may wait in its memory until it goes on: also after the second is done.
        cell.world.wait(Duration::from_secs(random.u64(10..14))).await;
        first.process.resume();
        cell.world.wait(Duration::from_secs(120)).await;
        let is_active = |worker: &Worker| worker.lifecycle(0) == ShardLifecycle::ActiveForCommands;
        assert!(is_active(&first) != is_active(&second), "step {step}: one of them owns the shard");
        steps
    });
    (cell, steps)
}

#[test]
fn a_zombie_sends_nothing_that_was_not_admitted_before_it_was_fenced() {
    let (_, steps) = zombie_from(0, Evidence::Exact);
    let (mut takeovers, mut duplicates) = (0, 0);
    for step in (1..steps).step_by(7) {
        // The account holds every delivery against the admission in the log: it must be valid there, and of the sender's epoch.
        let (cell, _) = zombie_from(step, Evidence::Exact);
        let account = account::settle(&cell);
        assert_eq!(account, Account { accepted: 16, published: 16, ..Account::default() }, "step {step}");
        takeovers += usize::from(epochs(&cell).len() > 1);
        let (cell, _) = zombie_from(step, Evidence::None);
        let account = account::settle(&cell);
        assert_eq!(account.published, 16, "step {step}");
        duplicates += account.duplicates;
    }
    assert!(takeovers > 20 && duplicates > 0, "{takeovers} takeovers, {duplicates} duplicates that say so");
}
