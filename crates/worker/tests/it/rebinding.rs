//! A topic that was deleted and made again: its lanes wait until an operator says where it is, and then everything follows.

use std::collections::BTreeMap;
use std::time::Duration;

use protocol::code::StableCode;
use protocol::mutation_v2::{ControlPayload, MutationBody, ShardControl};
use protocol::record::{self, LogRecord};
use protocol::resource::Resource;
use shard::query;
use shard::schedule::circuit::CircuitState;
use shard::schedule::lane::Readiness;
use shard::state::generation::MessageState;
use sim::world::broker::{Answering, Behavior};
use sim::world::{Delay, Paces};

use sim::account::{self, Account};
use sim::cell::{Cell, CellOptions, slow};

#[test]
fn a_blocked_lane_goes_on_where_the_destination_is_rebound_to() {
    let cell = Cell::new(CellOptions::new(90));
    cell.world.run(async {
        let worker = cell.start("worker", &cell.disks("a"));
        worker.active().await;
        let start_ms = cell.world.now_ms();
        let sent = cell.schedule(0, 0, start_ms);
        let (due, later) = (cell.schedule(0, 0, start_ms + 2_000), cell.schedule(0, 0, start_ms + 400_000));
        for message in [&sent, &due, &later] {
            assert_eq!(worker.submit(message).await.code, StableCode::Scheduled);
        }
        cell.world.wait(Duration::from_secs(1)).await;
        let old = cell.place(0);
        let lanes_before = worker.handles[0].read(query::lanes).expect("the store answers");

        let rebind = cell.recreate(0);
        // Long enough for the pauses between tries to grow to a minute.
        cell.world.wait(Duration::from_secs(300)).await;
        let lanes = worker.handles[0].lanes().await.expect("the shard is active");
        assert_eq!(lanes[0].readiness, Readiness::Blocked(StableCode::ResourceIncarnationMismatch));
        assert_eq!(worker.message(0, due.message).state, MessageState::Scheduled);

        worker.append(0, cell.control(0, rebind)).await;
        cell.world.wait(Duration::from_millis(100)).await;
        let lanes = worker.handles[0].lanes().await.expect("the shard is active");
        assert_eq!((lanes[0].readiness, &lanes[0].detail[..]), (Readiness::Ready, ""));
        let new = cell.place(0);
        assert_ne!(new, old);
        let place = |message| cell.broker.delivered_of(message).iter().map(|one| one.place).collect::<Vec<_>>();
        assert_eq!((place(sent.message), place(due.message)), (vec![old], vec![new]));
        assert_eq!(worker.message(0, due.message).row.attempts_used, 1, "the outage cost it nothing");

        // The version that was activated is still the one that messages bind, and its lane the same.
        let bound_later = cell.schedule(0, 0, cell.world.now_ms());
        assert_eq!(worker.submit(&bound_later).await.code, StableCode::Scheduled);
        cell.world.wait(Duration::from_secs(400)).await;
        assert_eq!((place(bound_later.message), place(later.message)), (vec![new], vec![new]));
        let ids = |lanes: Vec<(_, shard::state::row::Lane)>| lanes.into_iter().map(|(_, lane)| lane.lane_id);
        let lanes_after = worker.handles[0].read(query::lanes).expect("the store answers");
        assert!(ids(lanes_after).eq(ids(lanes_before)));
    });
    assert_eq!(account::settle(&cell), Account { accepted: 4, published: 4, ..Account::default() });
}

#[test]
fn what_was_sent_before_is_settled_by_the_old_sessions_answer() {
    let cell = Cell::new(CellOptions::new(91));
    cell.world.run(async {
        let worker = cell.start("worker", &cell.disks("a"));
        worker.active().await;
        let due_ms = cell.world.now_ms() + 2_000;
        let (taken, lost) = (cell.schedule(0, 0, due_ms), cell.schedule(0, 0, due_ms + 5_500));
        worker.submit(&taken).await;
        worker.submit(&lost).await;
        cell.world.wait(Duration::from_secs(1)).await;
        let old = cell.place(0);
        // The first reaches its topic, the second finds it gone; both answers are on their way when the destination moves.
        cell.broker.set(old, slow(5_000, 10_000));
        cell.world.wait_until(due_ms + 6_000).await;
        let rebind = cell.recreate(0);
        worker.append(0, cell.control(0, rebind)).await;
        cell.world.wait(Duration::from_secs(1)).await;
        assert_eq!(worker.message(0, taken.message).state, MessageState::Publishing);
        let third = cell.schedule(0, 0, cell.world.now_ms());
        worker.submit(&third).await;
        cell.world.wait(Duration::from_secs(60)).await;
        let places: BTreeMap<_, _> =
            cell.broker.delivered().into_iter().map(|one| (one.attempt.message, one.place)).collect();
        let new = cell.place(0);
        assert_eq!(places, BTreeMap::from([(taken.message, old), (lost.message, new), (third.message, new)]));
        assert_eq!(worker.message(0, lost.message).row.attempts_charged, 0);
    });
    assert_eq!(account::settle(&cell), Account { accepted: 3, published: 3, ..Account::default() });
}

#[test]
fn the_new_topic_does_not_vouch_for_the_old_one() {
    let cell = Cell::new(CellOptions::new(92));
    let answering = Answering::FallsSilent { takes_percent: 100 };
    cell.world.run(async {
        let worker = cell.start("worker", &cell.disks("a"));
        worker.active().await;
        let due_ms = cell.world.now_ms() + 2_000;
        let message = cell.schedule(0, 0, due_ms);
        worker.submit(&message).await;
        cell.world.wait(Duration::from_secs(1)).await;
        cell.broker.set(cell.place(0), Behavior { answering, ..Behavior::default() });
        cell.world.wait_until(due_ms + 20).await;
        assert_eq!(cell.broker.delivered_count(), 1, "the old topic has it and says nothing");
        let rebind = cell.recreate(0);
        worker.append(0, cell.control(0, rebind)).await;
        cell.world.wait(Duration::from_secs(60)).await;
        let view = worker.message(0, message.message);
        assert_eq!((view.state, view.row.possible_duplicate), (MessageState::Published, true));
    });
    let expected = Account { accepted: 1, published: 1, possible_duplicates: 1, duplicates: 1, ..Account::default() };
    assert_eq!(account::settle(&cell), expected);
}

/// Where the rebinding stands in the shard's log.
fn rebound_at(cell: &Cell) -> usize {
    let is_rebinding = |frame| match record::decode(frame) {
        Ok(LogRecord::MutationV2(mutation)) => {
            let rebind = |control: &ShardControl| matches!(control.payload, ControlPayload::DestinationRebind(_));
            matches!(&mutation.body, MutationBody::ShardControl(control) if rebind(control))
        }
        _ => false,
    };
    cell.archive(0).iter().position(|record| is_rebinding(&record.frame)).expect("a rebinding")
}

/// The log decides: what is admitted behind the rebinding goes to the new topic, also while the old one takes everything and
/// sessions, admissions and the rebinding are under way together.
#[test]
fn an_admission_behind_the_rebinding_goes_to_the_new_topic() {
    let (mut before, mut behind) = (0, 0);
    for seed in 0..60 {
        let cell = Cell::new(CellOptions::new(seed));
        cell.shards[0].log.set_paces(Paces { there: Delay::between(0, 6), back: Delay::between(0, 6) });
        let paces = Paces { there: Delay::between(0, 30), back: Delay::between(0, 30) };
        cell.broker.set_default(Behavior { paces, ..Behavior::default() });
        let old = cell.place(0);
        let new = [0x99; 16];
        cell.world.run(async {
            let worker = cell.start("worker", &cell.disks("a"));
            worker.active().await;
            let start_ms = cell.world.now_ms();
            for number in 0..60 {
                cell.append(&cell.schedule(0, 0, start_ms + 200 + 5 * number));
            }
            // In some runs the lane's first session is still in the making.
            cell.world.wait(Duration::from_millis(cell.world.random("rebinding").u64(0..400))).await;
            let rebind = cell.destinations[0].rebind(Resource::Embedded { topic: new });
            cell.shards[0].log.append(&[cell.control(0, rebind)]);
            cell.world.wait(Duration::from_secs(5)).await;
            let lanes = worker.handles[0].lanes().await.expect("the shard is active");
            assert_eq!((lanes[0].circuit, lanes[0].failures), (CircuitState::Closed, 0), "moving is no failure");
        });
        let account = account::settle(&cell);
        assert_eq!(account, Account { accepted: 60, published: 60, ..Account::default() }, "seed {seed}");
        let rebound_at = rebound_at(&cell);
        for (place, admitted_at) in account::deliveries(&cell, 0) {
            let is_behind = admitted_at > rebound_at;
            let expected = if is_behind { (new, 0) } else { old };
            assert_eq!(place, expected, "seed {seed}: admitted at {admitted_at}, rebound at {rebound_at}");
            *if is_behind { &mut behind } else { &mut before } += 1;
        }
    }
    assert!(before > 500 && behind > 500, "{before} before, {behind} behind");
}

/// A session on the old topic that opens while the rebinding is read is not taken for one on the new.
#[test]
fn a_session_in_the_making_is_given_up() {
    for seed in 0..300 {
        let cell = Cell::new(CellOptions::new(seed));
        cell.shards[0].log.set_paces(Paces::fixed(1, 1));
        let paces = Paces { there: Delay::between(0, 8), back: Delay::between(0, 8) };
        cell.broker.set_default(Behavior { paces, ..Behavior::default() });
        // Time enough to send something through the wrong one.
        cell.broker.set(([0x99; 16], 0), slow(100, 100));
        cell.world.run(async {
            let worker = cell.start("worker", &cell.disks("a"));
            worker.active().await;
            let message = cell.schedule(0, 0, cell.world.now_ms() + 30);
            cell.append(&message);
            cell.world.wait(Duration::from_millis(cell.world.random("rebinding").u64(1..16))).await;
            let rebind = cell.destinations[0].rebind(Resource::Embedded { topic: [0x99; 16] });
            cell.shards[0].log.append(&[cell.control(0, rebind)]);
            cell.world.wait(Duration::from_secs(1)).await;
            let delivered = cell.broker.delivered_of(message.message);
            let places: Vec<_> = delivered.iter().map(|one| one.place).collect();
            assert_eq!(places, [([0x99; 16], 0)], "seed {seed}");
        });
    }
}

/// A destination that is closed takes nothing new and delivers what it has.
#[test]
fn a_closed_destination_delivers_what_it_has() {
    let cell = Cell::new(CellOptions::new(93));
    cell.world.run(async {
        let worker = cell.start("worker", &cell.disks("a"));
        worker.active().await;
        let bound = cell.schedule(0, 0, cell.world.now_ms() + 2_000);
        worker.submit(&bound).await;
        worker.append(0, cell.control(0, cell.destinations[0].close())).await;
        let refused = worker.submit(&cell.schedule(0, 0, cell.world.now_ms())).await;
        assert_eq!(refused.code, StableCode::ProfileDeprecatedForNewUse);
        cell.world.wait(Duration::from_secs(5)).await;
        assert_eq!(worker.message(0, bound.message).state, MessageState::Published);
    });
    assert_eq!(account::settle(&cell), Account { accepted: 1, published: 1, ..Account::default() });
}
