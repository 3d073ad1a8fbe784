//! What may be under way is bounded, shared fairly, and given back: a backlog never starves those beside it.

use std::time::Duration;

use bytes::Bytes;
use shard::schedule::lane::Load;
use sim::world::{Paces, WorldOptions};

use sim::account::{self, Account};
use sim::cell::{Cell, CellOptions, MONTH_MS, slow, worker_config};

/// A worker that has this many permits in all, and each of its shards and lanes no fewer.
fn few_permits(seed: u64, messages: usize) -> CellOptions {
    let mut config = worker_config();
    config.load_max = Load { messages, bytes: 1 << 20 };
    config.scheduler.shard_load_max = config.load_max;
    config.scheduler.lane_load_max = config.load_max;
    config.scheduler.round_robin.quantum = 4 << 10;
    CellOptions { config, shard_count: 2, world: WorldOptions::new(seed), ..CellOptions::new(seed) }
}

#[test]
fn permits_are_given_back_whatever_they_were_used_for() {
    let cell = Cell::new(few_permits(80, 8));
    let disks = cell.disks("a");
    cell.broker.set(cell.place(0), slow(5, 5));
    cell.world.run(async {
        let worker = cell.start("worker", &disks);
        worker.active().await;
        for number in 0..400 {
            let scheduled = cell.schedule(number % 2, number / 2 % 2, cell.world.now_ms() + 2_000);
            cell.append(&scheduled);
            if number % 10 == 0 {
                // Claimed ahead of its time, and given up again.
                cell.world.wait(Duration::from_millis(1)).await;
                cell.append(&cell.cancel(number % 2, scheduled.message));
            }
        }
        // Waves of eight, each as long as the slower of the destinations takes.
        cell.world.wait(Duration::from_secs(10)).await;
    });
    assert_eq!(account::settle(&cell), Account { accepted: 400, published: 360, canceled: 40, ..Account::default() });
}

#[test]
fn a_backlog_starves_neither_another_lane_nor_another_shard() {
    let cell = Cell::new(few_permits(81, 32));
    for book in &cell.shards {
        book.log.set_paces(Paces::fixed(1, 0));
    }
    let disks = cell.disks("a");
    let mut beside = Vec::new();
    cell.world.run(async {
        let worker = cell.start("worker", &disks);
        worker.active().await;
        let start_ms = cell.world.now_ms();
        let large = Bytes::from(vec![0; 2_000]);
        for _ in 0..30_000 {
            cell.append(&cell.schedule_payload(0, 0, (start_ms, start_ms + MONTH_MS), large.clone()));
        }
        for number in 0..40 {
            for shard in 0..2 {
                let due_ms = start_ms + 500 + 50 * number;
                let message = cell.schedule(shard, 1, due_ms);
                cell.append(&message);
                beside.push((message.message, due_ms));
            }
        }
        cell.world.wait(Duration::from_secs(3)).await;
        let undelivered = 30_080 - cell.broker.delivered_count();
        assert!(undelivered > 5_000, "the backlog lasts as long as the test: {undelivered}");
    });
    for (message, due_ms) in beside {
        let delivered = cell.broker.delivered_of(message);
        assert_eq!(delivered.len(), 1, "{message} starves");
        let late_ms = delivered[0].at_us / 1_000 - due_ms;
        assert!(late_ms <= 200, "{message} waits for others for {late_ms} ms");
    }
}
