//! A worker that is asked to stop finishes what is under way, starts nothing, and leaves what does not finish to the next.

use std::time::Duration;

use shard::state::generation::MessageState;
use sim::world::broker::Answering;
use worker::lifecycle::ShardLifecycle;

use sim::account::{self, Account};
use sim::cell::{Cell, CellOptions, slow};
use sim::told::Told;

#[test]
fn what_is_under_way_is_settled_and_what_is_due_meanwhile_waits() {
    let cell = Cell::new(CellOptions::new(30));
    let disks = cell.disks("a");
    cell.broker.set(cell.place(0), slow(1_000, 2_000));
    cell.world.run(async {
        let first = cell.start("first", &disks);
        first.active().await;
        let due_ms = cell.world.now_ms() + 6_000;
        let (early, late) = (cell.schedule(0, 0, due_ms), cell.schedule(0, 1, due_ms + 1_000));
        cell.append(&early);
        cell.append(&late);
        cell.world.wait_until(due_ms + 500).await;
        first.stop();
        first.becomes(0, ShardLifecycle::Draining).await;
        first.becomes(0, ShardLifecycle::Unassigned).await;
        let drained_ms = cell.world.now_ms() - due_ms;
        assert!(
            (3_000..3_200).contains(&drained_ms),
            "the attempt was answered after 3 s, drained after {drained_ms} ms"
        );
        let told = Told::new(&cell, 0);
        assert_eq!(told.message(early.message).state, MessageState::Published);
        assert_eq!(told.message(late.message).state, MessageState::Scheduled);
        assert_eq!(cell.broker.received_of(late.message), [], "a draining shard admits nothing");
        assert_eq!(disks[0].digest(), told.digest());
        let second = cell.start("second", &disks);
        second.active().await;
        cell.world.wait(Duration::from_secs(5)).await;
    });
    assert_eq!(account::settle(&cell), Account { accepted: 2, published: 2, ..Account::default() });
}

#[test]
fn what_does_not_finish_in_time_is_settled_by_the_next_owner() {
    let cell = Cell::new(CellOptions::new(31));
    let disks = cell.disks("a");
    cell.misbehave(0, |behavior| behavior.answering = Answering::Hangs { takes_percent: 0 });
    cell.world.run(async {
        let first = cell.start("first", &disks);
        first.active().await;
        let due_ms = cell.world.now_ms() + 1_000;
        cell.append(&cell.schedule(0, 0, due_ms));
        cell.world.wait_until(due_ms + 500).await;
        let stopped_ms = cell.world.now_ms();
        first.stop();
        first.becomes(0, ShardLifecycle::Unassigned).await;
        let drained_ms = cell.world.now_ms() - stopped_ms;
        assert!((10_000..10_100).contains(&drained_ms), "the deadline is 10 s: {drained_ms} ms");
        cell.misbehave(0, |behavior| behavior.answering = Answering::Takes);
        let second = cell.start("second", &disks);
        second.active().await;
        cell.world.wait(Duration::from_secs(5)).await;
    });
    assert_eq!(account::settle(&cell), Account { accepted: 1, published: 1, ..Account::default() });
}

#[test]
fn draining_without_trusted_time_still_settles() {
    let cell = Cell::new(CellOptions::new(32));
    let disks = cell.disks("a");
    cell.broker.set(cell.place(0), slow(1_000, 1_000));
    cell.world.run(async {
        let worker = cell.start("worker", &disks);
        worker.active().await;
        let due_ms = cell.world.now_ms() + 6_000;
        cell.append(&cell.schedule(0, 0, due_ms));
        cell.world.wait_until(due_ms + 500).await;
        worker.process.host().lose_sync();
        worker.process.host().step(3_000_000);
        worker.stop();
        worker.becomes(0, ShardLifecycle::Unassigned).await;
        assert!(cell.world.now_ms() - due_ms < 2_200);
    });
    assert_eq!(account::settle(&cell), Account { accepted: 1, published: 1, ..Account::default() });
}
