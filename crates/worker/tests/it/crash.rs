//! A worker may die between any two steps. What the destination has is published once, what it does not have is delivered once,
//! and what nobody can vouch for says so.

use std::collections::BTreeSet;
use std::time::Duration;

use shard::commit::Shard;
use shard::memory::MemoryStore;
use shard::query;
use shard::state::MessageUuid;
use shard::state::generation::MessageState;
use sim::world::broker::{Behavior, Evidence};
use sim::world::disk::WorldDisk;
use sim::world::{Delay, Paces};

use sim::account::{self, Account};
use sim::cell::{Cell, CellOptions, worker_config};
use sim::told::Told;

const MESSAGES: usize = 16;

/// One life and one afterlife.
struct Crash {
    seed: u64,
    /// The step at which the first worker dies, `None` to let it live.
    step: Option<u64>,
    evidence: Evidence,
    /// The disk is lost with the worker.
    loses_disk: bool,
}

struct Aftermath {
    cell: Cell,
    steps: u64,
    /// Messages of which an attempt was open when the second worker came.
    open: BTreeSet<MessageUuid>,
    /// Of these, how many were delivered by then.
    delivered_before: BTreeSet<MessageUuid>,
    messages: Vec<MessageUuid>,
    account: Account,
}

impl Crash {
    fn play(&self) -> Aftermath {
        let mut config = worker_config();
        config.recovery_deadline = Duration::from_secs(3);
        let cell = Cell::new(CellOptions { config, ..CellOptions::new(self.seed) });
        cell.shards[0].log.set_paces(Paces { there: Delay::between(0, 6), back: Delay::between(0, 6) });
        cell.broker.set_default(Behavior {
            paces: Paces { there: Delay::between(0, 30), back: Delay::between(0, 30) },
            evidence: self.evidence,
            ..Behavior::default()
        });
        let disks = cell.disks("a");
        let mut messages = Vec::new();
        let (steps, open, delivered_before) = cell.world.run(self.lives(&cell, &disks, &mut messages));
        let account = account::settle(&cell);
        Aftermath { cell, steps, open, delivered_before, messages, account }
    }

    async fn lives(
        &self,
        cell: &Cell,
        disks: &[WorldDisk],
        messages: &mut Vec<MessageUuid>,
    ) -> (u64, BTreeSet<MessageUuid>, BTreeSet<MessageUuid>) {
        let first = cell.start("first", disks);
        if let Some(step) = self.step {
            first.process.kill_at_step(step);
        }
        let mut random = cell.world.random("messages");
        let start_ms = cell.world.now_ms();
        for number in 0..MESSAGES {
            let prepared = cell.schedule(0, number % 2, start_ms + 100 + random.i64(0..200));
            messages.push(prepared.message);
            cell.append(&prepared);
        }
        cell.world.wait(Duration::from_millis(1_000)).await;
        let steps = first.process.steps();
        if self.step.is_none() {
            return (steps, BTreeSet::new(), BTreeSet::new());
        }
        first.process.kill();
        // What was on its way has arrived by now, or never will.
        cell.world.wait(Duration::from_millis(200)).await;
        let open = open_attempts(cell);
        let delivered_before = cell.broker.delivered().iter().map(|one| one.attempt.message).collect();
        let new_disks = cell.disks("b");
        let second = cell.start("second", if self.loses_disk { &new_disks } else { disks });
        second.active().await;
        cell.world.wait(Duration::from_secs(60)).await;
        (steps, open, delivered_before)
    }
}

/// The messages with an attempt that is publishing, by the log alone.
fn open_attempts(cell: &Cell) -> BTreeSet<MessageUuid> {
    let mut shard = Shard::open(MemoryStore::new(), cell.shards[0].identity).expect("an empty store opens");
    shard.commit(&cell.archive(0)).expect("the log can be applied");
    let open = query::publishing_attempts(shard.store()).expect("a store in memory answers");
    open.into_iter().map(|open| open.message).collect()
}

/// Steps to die at: each once in a while, so that a few hundred runs see all of a life.
fn steps(stride: usize) -> Vec<u64> {
    let whole = Crash { seed: 5, step: None, evidence: Evidence::Exact, loses_disk: false }.play();
    assert_eq!(whole.account.published, MESSAGES, "without a crash everything is delivered in time");
    assert_eq!(whole.account.possible_duplicates, 0);
    (1..whole.steps).step_by(stride).collect()
}

#[test]
fn exact_evidence_makes_a_crash_invisible() {
    let mut recovered = 0;
    for step in steps(5) {
        let loses_disk = step % 3 == 0;
        let after = Crash { seed: 5 + step, step: Some(step), evidence: Evidence::Exact, loses_disk }.play();
        let Account { published, duplicates, possible_duplicates, .. } = after.account;
        assert_eq!((published, duplicates, possible_duplicates), (MESSAGES, 0, 0), "step {step}");
        recovered += after.open.len();
    }
    assert!(recovered > 100, "crashes left attempts open: {recovered}");
}

#[test]
fn what_nobody_can_vouch_for_may_be_a_duplicate_and_says_so() {
    let (mut uncertain, mut duplicates) = (0, 0);
    for step in steps(5) {
        let loses_disk = step % 3 == 0;
        let after = Crash { seed: 5 + step, step: Some(step), evidence: Evidence::None, loses_disk }.play();
        assert_eq!(after.account.published, MESSAGES, "step {step}");
        let told = Told::new(&after.cell, 0);
        for message in &after.messages {
            let view = told.message(*message);
            let was_open = after.open.contains(message);
            assert_eq!(view.row.possible_duplicate, was_open, "step {step}: {view:?}");
            assert_eq!(view.state, MessageState::Published);
            let copies = after.cell.broker.delivered_of(*message).len();
            let expected = 1 + usize::from(was_open && after.delivered_before.contains(message));
            assert_eq!(copies, expected, "step {step}: {view:?}");
        }
        uncertain += after.open.len();
        duplicates += after.account.duplicates;
    }
    assert!(uncertain > 100 && duplicates > 20, "{uncertain} uncertain attempts, {duplicates} duplicates");
}

#[test]
fn evidence_of_presence_publishes_what_is_there_and_doubts_the_rest() {
    for step in steps(11) {
        let after =
            Crash { seed: 5 + step, step: Some(step), evidence: Evidence::OfPresence, loses_disk: false }.play();
        let told = Told::new(&after.cell, 0);
        for message in &after.messages {
            let view = told.message(*message);
            let doubted = after.open.contains(message) && !after.delivered_before.contains(message);
            assert_eq!((view.state, view.row.possible_duplicate), (MessageState::Published, doubted), "step {step}");
            assert_eq!(after.cell.broker.delivered_of(*message).len(), 1, "step {step}: nothing is delivered twice");
        }
    }
}
