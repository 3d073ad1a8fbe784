//! Nothing is ever early, whatever somebody does to the host's clock.

use std::time::Duration;

use bytes::Bytes;
use clock::ClockOptions;
use sim::world::{Delay, Order, Paces, World, WorldOptions};

use sim::account;
use sim::cell::{Cell, CellOptions, MONTH_MS, Worker};

const MESSAGES: usize = 100_000;
const DESTINATIONS: usize = 4;

/// Steps the host's clock by up to five seconds again and again; the kernel loses sync by it and finds it again later, with an
/// error inside the bound it states.
async fn spoil_clock(world: &World, worker: &Worker) {
    let mut random = world.random("clock");
    let host = worker.process.host();
    loop {
        host.set_drift_ppm(random.i32(-400..=400));
        world.wait(Duration::from_millis(random.u64(1_000..6_000))).await;
        host.lose_sync();
        host.step(random.i64(-5_000_000..=5_000_000));
        world.wait(Duration::from_millis(random.u64(0..3_000))).await;
        let bound_us = random.u64(1..3_000);
        let offset_us = random.i64(-3_000..=3_000).clamp(-bound_us.cast_signed(), bound_us.cast_signed());
        host.synchronise(offset_us, Duration::from_micros(bound_us));
    }
}

/// A due time where mistakes would show: crowds on one millisecond, neighbours of whole seconds, and anything else.
fn due_ms(random: &mut fastrand::Rng, start_ms: i64) -> i64 {
    let second_ms = start_ms + 1_000 * random.i64(1..60);
    match random.u8(0..4) {
        0 => second_ms,
        1 => second_ms + random.i64(-2..=2),
        2 => second_ms + 10 * random.i64(0..100),
        _ => start_ms + random.i64(1_000..60_000),
    }
}

#[test]
fn nothing_is_early_while_the_clock_is_set_back_and_forth() {
    let world = WorldOptions { start_us: 370, order: Order::Seeded, events_kept_max: 1_000, ..WorldOptions::new(2) };
    let destinations = (0..DESTINATIONS).map(|number| format!("topic-{number}")).collect();
    let cell = Cell::new(CellOptions { world, shard_count: 2, destinations, ..CellOptions::new(2) });
    for book in &cell.shards {
        book.log.set_paces(Paces { there: Delay::between(0, 4), back: Delay::between(0, 2) });
    }
    let disks = cell.disks("a");
    cell.world.run(async {
        let clock = ClockOptions { require_sync: true, ..ClockOptions::default() };
        let worker = cell.start_with("worker", &disks, clock);
        worker.active().await;
        let start_ms = cell.world.now_ms();
        let mut random = cell.world.random("messages");
        for shard in 0..2 {
            let mut frames = Vec::with_capacity(MESSAGES / 2);
            for _ in 0..MESSAGES / 2 {
                let due_ms = due_ms(&mut random, start_ms);
                let destination = random.usize(..DESTINATIONS);
                let payload = Bytes::from_static(b"{}");
                let times = (due_ms, due_ms + MONTH_MS);
                frames.push(cell.schedule_payload(shard, destination, times, payload).frame);
            }
            cell.shards[shard].log.append(&frames);
        }
        let all_delivered = async {
            while cell.broker.delivered_count() < MESSAGES {
                cell.world.wait(Duration::from_secs(1)).await;
            }
            cell.world.wait(Duration::from_secs(1)).await;
        };
        tokio::select! {
            biased;
            () = all_delivered => {}
            () = spoil_clock(&cell.world, &worker) => {}
        }
        assert_eq!(worker.metrics.published_early.load(std::sync::atomic::Ordering::Relaxed), 0);
    });
    for one in cell.broker.delivered() {
        let early_us = one.deliver_at_ms * 1_000 - one.at_us;
        assert!(early_us <= 0, "{:?} came {early_us} us early", one.attempt);
    }
    let account = account::settle(&cell);
    assert_eq!((account.accepted, account.published, account.duplicates), (MESSAGES, MESSAGES, 0));
}
