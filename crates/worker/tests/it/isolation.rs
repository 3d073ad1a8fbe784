//! One bad destination never delays another: the neighbour's messages come at the very same instants as if nothing were wrong.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use protocol::code::StableCode;
use protocol::mutation_v2::Disposition;
use shard::state::MessageUuid;
use sim::world::broker::{Answering, Behavior, Opening};
use sim::world::{Order, Paces, WorldOptions};

use sim::account;
use sim::cell::{Cell, CellOptions, MONTH_MS};

const BAD: usize = 0;
const GOOD: usize = 1;
/// How many messages each of the two gets.
const MESSAGES: i64 = 400;

/// When the neighbour's messages were delivered, of a run in which the other destination behaves like this.
fn neighbour(change: impl FnOnce(&mut Behavior)) -> BTreeMap<MessageUuid, i64> {
    let world = WorldOptions { order: Order::Fifo, ..WorldOptions::new(3) };
    let cell = Cell::new(CellOptions { world, ..CellOptions::new(3) });
    cell.shards[0].log.set_paces(Paces::fixed(2, 0));
    cell.misbehave(BAD, change);
    let disks = cell.disks("a");
    let mut wanted = Vec::new();
    cell.world.run(async {
        let worker = cell.start("worker", &disks);
        worker.active().await;
        let mut random = cell.world.random("messages");
        let start_ms = cell.world.now_ms();
        for number in 0..MESSAGES {
            let due_ms = start_ms + 1_000 + 100 * number + random.i64(0..50);
            let times = (due_ms, due_ms + MONTH_MS);
            let large = Bytes::from(vec![0; 2_000]);
            cell.append(&cell.schedule_payload(0, BAD, times, large));
            let good =
                cell.schedule_payload(0, GOOD, (due_ms + random.i64(0..50), times.1), Bytes::from_static(b"small"));
            wanted.push(good.message);
            cell.append(&good);
        }
        cell.world.wait(Duration::from_secs(120)).await;
    });
    account::settle(&cell);
    let place = cell.place(GOOD);
    let delivered = cell.broker.delivered().into_iter().filter(|one| one.place == place);
    let delivered: BTreeMap<MessageUuid, i64> = delivered.map(|one| (one.attempt.message, one.at_us)).collect();
    assert_eq!(delivered.len(), wanted.len(), "everything of the neighbour's is delivered");
    delivered
}

fn undisturbed_by(change: impl FnOnce(&mut Behavior)) {
    let (alone, beside) = (neighbour(|_| {}), neighbour(change));
    for (message, at_us) in &alone {
        assert_eq!(beside[message], *at_us, "{message} comes at another time");
    }
}

#[test]
fn a_destination_that_refuses_delays_nobody() {
    undisturbed_by(|behavior| behavior.answering = Answering::Refuses(Disposition::MessageRetriable));
    undisturbed_by(|behavior| behavior.answering = Answering::Refuses(Disposition::LaneUnavailable));
    undisturbed_by(|behavior| behavior.answering = Answering::Refuses(Disposition::MessagePermanent));
}

#[test]
fn a_destination_that_is_missing_delays_nobody() {
    undisturbed_by(|behavior| behavior.opening = Opening::Fails(StableCode::ResourceIncarnationMismatch));
    undisturbed_by(|behavior| behavior.opening = Opening::Hangs);
}

#[test]
fn a_destination_that_takes_only_small_records_delays_nobody() {
    undisturbed_by(|behavior| behavior.record_bytes_max = 1_000);
}

#[test]
fn a_destination_that_hangs_delays_nobody() {
    undisturbed_by(|behavior| behavior.answering = Answering::Hangs { takes_percent: 0 });
    undisturbed_by(|behavior| behavior.answering = Answering::Hangs { takes_percent: 100 });
}
