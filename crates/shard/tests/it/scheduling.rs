//! The scheduler on a simulated clock: random lives of messages on small windows, small permits and failing lanes.
//!
//! Never early, never without permits, never twice; and when the trouble is over everything that is due goes out.

use std::collections::BTreeSet;

use proptest::prelude::*;
use protocol::code::StableCode;
use protocol::id::Uuid7;
use protocol::mutation_v2::{Admission, ControlPayload, DestinationRebind, Disposition};
use protocol::resource::Resource;
use shard::query;
use shard::schedule::circuit::Allowance;
use shard::schedule::lane::Load;
use shard::schedule::scheduler::{Scheduler, SchedulerConfig};
use shard::state::LaneNo;

use crate::desk::{CONFIG, Desk, UNLIMITED};

#[derive(Clone, Debug)]
enum Act {
    Schedule { to_b: bool, deliver_in_ms: i64, expires_soon: bool, bytes: usize },
    Cancel(prop::sample::Index),
    Reschedule(prop::sample::Index, i64),
    Pass(i64),
    Turn(Load),
    Propose(usize),
    Admit,
    Withdraw,
    Outcome(prop::sample::Index, u8),
    LaneFails(prop::sample::Index),
    LaneWorks(prop::sample::Index),
    LaneBlocked(prop::sample::Index),
    LaneReady(prop::sample::Index),
    Hold(prop::sample::Index),
    LetGo,
    Pause(bool),
    Resume,
    Rebind(u8),
    Fence,
    RaiseMarks,
    TakeOver,
}

fn act() -> impl Strategy<Value = Act> {
    let index = any::<prop::sample::Index>;
    let budget = (0..8_usize, 0..5_000_u64).prop_map(|(messages, bytes)| Load { messages, bytes });
    prop_oneof![
        10 => (any::<bool>(), -500..3_000_i64, prop::bool::weighted(0.1), 0..2_500_usize).prop_map(
            |(to_b, deliver_in_ms, expires_soon, bytes)| Act::Schedule { to_b, deliver_in_ms, expires_soon, bytes }
        ),
        3 => index().prop_map(Act::Cancel),
        3 => (index(), -100..2_000_i64).prop_map(|(index, deliver_in_ms)| Act::Reschedule(index, deliver_in_ms)),
        8 => (0..900_i64).prop_map(Act::Pass),
        8 => budget.prop_map(Act::Turn),
        4 => Just(Act::Turn(UNLIMITED)),
        8 => (1..6_usize).prop_map(Act::Propose),
        8 => Just(Act::Admit),
        1 => Just(Act::Withdraw),
        8 => (index(), any::<u8>()).prop_map(|(index, result)| Act::Outcome(index, result)),
        2 => index().prop_map(Act::LaneFails),
        1 => index().prop_map(Act::LaneWorks),
        1 => index().prop_map(Act::LaneBlocked),
        3 => index().prop_map(Act::LaneReady),
        1 => index().prop_map(Act::Hold),
        1 => Just(Act::LetGo),
        1 => any::<bool>().prop_map(Act::Pause),
        2 => Just(Act::Resume),
        1 => (0..2_u8).prop_map(Act::Rebind),
        1 => Just(Act::Fence),
        2 => Just(Act::RaiseMarks),
        1 => Just(Act::TakeOver),
    ]
}

struct Life {
    desk: Desk,
    messages: Vec<Uuid7>,
    proposed: Vec<Admission>,
    held: Vec<(LaneNo, Uuid7)>,
}

impl Life {
    fn new(config: SchedulerConfig) -> Life {
        let mut desk = Desk::new(config);
        // A message for each lane, so that all lanes are there.
        let first: Vec<Uuid7> =
            (0..8).map(|number| desk.schedule(if number == 0 { "b" } else { "a" }, 0, 60_000, 10)).collect();
        assert_eq!(desk.lanes().len(), 3, "both partitions of a, and b");
        desk.all_ready();
        Life { desk, messages: first, proposed: Vec::new(), held: Vec::new() }
    }

    fn lane(&self, index: &prop::sample::Index) -> LaneNo {
        *index.get(&self.desk.lanes())
    }

    fn act(&mut self, act: &Act) {
        let monotonic = self.desk.monotonic;
        match act {
            Act::Schedule { to_b, deliver_in_ms, expires_soon, bytes } => {
                let expire_in_ms = (*deliver_in_ms).max(0) + if *expires_soon { 5_000 } else { 3_600_000 };
                let to = if *to_b { "b" } else { "a" };
                self.messages.push(self.desk.schedule(to, *deliver_in_ms, expire_in_ms, *bytes));
            }
            Act::Cancel(index) => self.desk.cancel(*index.get(&self.messages)),
            Act::Reschedule(index, deliver_in_ms) => {
                self.desk.reschedule(*index.get(&self.messages), *deliver_in_ms);
            }
            Act::Pass(pass_ms) => self.desk.let_pass(*pass_ms),
            Act::Turn(budget) => {
                let before = self.desk.scheduler.load();
                let turn = self.desk.turn(*budget);
                assert!(turn.claimed <= budget.messages && turn.refusals.is_empty());
                let after = self.desk.scheduler.load();
                assert!(after.messages - before.messages <= turn.claimed);
            }
            Act::Propose(entries_max) => {
                let entries = self.desk.propose(*entries_max);
                let again: BTreeSet<Uuid7> = self.proposed.iter().map(|entry| entry.message).collect();
                for entry in &entries {
                    let twin = self.proposed.iter().find(|other| other.message == entry.message);
                    assert!(twin.is_none_or(|twin| twin.log_rev != entry.log_rev), "proposed twice: {again:?}");
                }
                self.proposed.extend(entries);
            }
            Act::Admit => {
                let mut entries = std::mem::take(&mut self.proposed);
                entries.sort_by_key(|entry| (entry.message, entry.generation, entry.log_rev));
                // A message that moved meanwhile may have been proposed again; the log has both, one after the other.
                while !entries.is_empty() {
                    let mut rest = Vec::new();
                    let mut first: Vec<Admission> = Vec::new();
                    for entry in entries {
                        let is_twin = first.last().is_some_and(|last| last.message == entry.message);
                        if is_twin { rest.push(entry) } else { first.push(entry) }
                    }
                    self.desk.admit(first);
                    entries = rest;
                }
                assert!(self.desk.unclaimed.is_empty(), "an admission without claim");
            }
            Act::Withdraw => {
                let entries = std::mem::take(&mut self.proposed);
                self.desk.scheduler.withdraw(&entries);
            }
            Act::Outcome(index, result) => {
                let out: Vec<Uuid7> = self.desk.sent.keys().copied().collect();
                if out.is_empty() {
                    return;
                }
                let message = *index.get(&out);
                let lane_no = self.desk.sent[&message].lane_no();
                match result % 10 {
                    0..3 => self.desk.scheduler.lane_succeeded(lane_no),
                    8 | 9 => self.desk.scheduler.lane_failed(lane_no, monotonic),
                    _ => {}
                }
                let result = *result;
                self.desk.outcomes(
                    |attempt, now_ms| match result % 10 {
                        0..5 => attempt.published(now_ms),
                        5 | 6 => attempt.not_published(Disposition::MessageRetriable),
                        7 => attempt.not_published(Disposition::MessagePermanent),
                        8 => attempt.not_published(Disposition::LaneUnavailable),
                        _ => attempt.unknown(),
                    },
                    &[message],
                );
            }
            Act::LaneFails(index) => {
                let lane_no = self.lane(index);
                self.desk.scheduler.lane_failed(lane_no, monotonic);
            }
            Act::LaneWorks(index) => {
                let lane_no = self.lane(index);
                self.desk.scheduler.lane_succeeded(lane_no);
            }
            Act::LaneBlocked(index) => {
                let lane_no = self.lane(index);
                self.desk.scheduler.lane_blocked(lane_no, StableCode::CapabilityUnavailable);
            }
            Act::LaneReady(index) => {
                let lane_no = self.lane(index);
                self.desk.scheduler.lane_ready(lane_no);
            }
            Act::Hold(index) => {
                let out: Vec<Uuid7> = self.desk.sent.keys().copied().collect();
                let load = self.desk.scheduler.load();
                if !out.is_empty() && load.messages < 5 {
                    let message = *index.get(&out);
                    let lane_no = self.desk.sent[&message].lane_no();
                    self.held.push((lane_no, message));
                    self.desk.scheduler.hold(lane_no, message);
                    self.desk.outcomes(|attempt, _| attempt.unknown(), &[message]);
                }
            }
            Act::LetGo => {
                for (lane_no, message) in std::mem::take(&mut self.held) {
                    self.desk.scheduler.let_go(lane_no, message);
                }
            }
            Act::Pause(lane) if *lane => {
                let lane = query::lane(self.desk.shard.store(), LaneNo(1)).expect("the first lane");
                let id = protocol::lane::LaneId(lane.lane_id[..].try_into().expect("32 bytes"));
                self.desk.control(ControlPayload::LanePause(id));
            }
            Act::Pause(_) => self.desk.control(ControlPayload::DestinationPause { profile_id: "a".into() }),
            Act::Resume => self.resume(),
            Act::Rebind(number) => {
                let resource = Resource::Embedded { topic: [*number; 16] };
                let rebind = DestinationRebind { profile_id: "a".into(), resource };
                self.desk.control(ControlPayload::DestinationRebind(Box::new(rebind)));
            }
            Act::Fence => self.fence(),
            Act::RaiseMarks => {
                for (lane_no, at_ms) in self.desk.scheduler.take_low_water() {
                    self.desk.shard.raise_low_water(lane_no, at_ms);
                }
            }
            Act::TakeOver => {
                self.proposed.clear();
                self.held.clear();
                self.desk.take_over();
                self.recover();
            }
        }
        self.desk.check();
    }

    fn resume(&mut self) {
        let lane = query::lane(self.desk.shard.store(), LaneNo(1)).expect("the first lane");
        let id = protocol::lane::LaneId(lane.lane_id[..].try_into().expect("32 bytes"));
        self.desk.control(ControlPayload::LaneResume(id));
        self.desk.control(ControlPayload::DestinationResume { profile_id: "a".into() });
    }

    fn fence(&mut self) {
        let close_through_ms = self.desk.log.now_ms() - self.desk.limits.fence_margin_ms;
        let at = (self.desk.log.now_ms(), self.desk.log.now_ms());
        let record = self.desk.log.fence(&mut self.desk.owner, at, close_through_ms, 100);
        self.desk.commit(&[record]);
    }

    /// What a new owner does: nobody can vouch for what is publishing.
    fn recover(&mut self) {
        let open = query::publishing_attempts(self.desk.shard.store()).expect("the store answers");
        let entries: Vec<_> = open
            .iter()
            .map(|open| {
                let (message, generation, attempt) = (open.message, open.generation, open.attempt);
                testkit::log::AttemptId { message, generation, attempt }.unknown()
            })
            .collect();
        if !entries.is_empty() {
            let now_ms = self.desk.log.now_ms();
            let record = self.desk.log.outcomes(&mut self.desk.owner, (now_ms, now_ms), entries);
            self.desk.commit(&[record]);
        }
        self.desk.all_ready();
    }

    /// Ends every trouble.
    fn heal(&mut self) {
        self.act(&Act::Withdraw);
        self.act(&Act::LetGo);
        self.desk.publish_all();
        self.resume();
        self.desk.all_ready();
        self.desk.let_pass(120_000);
        self.fence();
    }

    /// Everything that waits, is due and may still be admitted.
    fn due(&self) -> BTreeSet<Uuid7> {
        let now = self.desk.now();
        let divergence_ms = self.desk.limits.broker_time_divergence_ms_max;
        let is_due = |message: &&Uuid7| {
            let row = self.desk.view(**message).row;
            row.due_key().is_some_and(|key| now.is_due(key.eligible_at_ms))
                && now.latest_ms() + divergence_ms < row.expire_at_ms
        };
        self.messages.iter().filter(is_due).copied().collect()
    }
}

/// Everything that a scheduler proposes now, with all the permits it has.
fn proposals(scheduler: &mut Scheduler, desk: &Desk) -> BTreeSet<(Uuid7, u32, u64)> {
    let store = desk.shard.store();
    while scheduler.turn(store, desk.now(), desk.monotonic, UNLIMITED).expect("the store answers").has_more {}
    let entries = scheduler.propose(desk.now(), usize::MAX);
    entries.into_iter().map(|entry| (entry.message, entry.generation, entry.log_rev)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn everything_due_goes_out_once_and_never_early(acts in prop::collection::vec(act(), 0..120)) {
        let mut life = Life::new(CONFIG);
        for act in &acts {
            life.act(act);
        }
        life.heal();
        // The circuits' pauses are over; a probe that is answered lets the rest go.
        for _ in 0..500 {
            if life.due().is_empty() {
                break;
            }
            life.desk.send();
            prop_assert!(!life.desk.sent.is_empty(), "due and not sent: {:?}", life.due());
            let wake = life.desk.scheduler.wake();
            let monotonic = life.desk.monotonic;
            prop_assert!(wake.earliest_ms.is_none_or(|at_ms| at_ms > life.desk.now().earliest_ms()), "{wake:?}");
            prop_assert!(wake.monotonic.is_none_or(|at| at > monotonic), "{wake:?} at {monotonic:?}");
            for lane_no in life.desk.lanes() {
                let is_probing = life.desk.scheduler.lanes()[&lane_no].circuit.allowance(monotonic) != Allowance::All;
                if is_probing && life.desk.sent.values().any(|attempt| attempt.lane_no() == lane_no) {
                    life.desk.scheduler.lane_succeeded(lane_no);
                }
            }
            life.desk.publish_all();
        }
        prop_assert_eq!(life.due(), BTreeSet::new());
        prop_assert_eq!(life.desk.scheduler.load(), Load::default(), "permits came back");
        testkit::model::audit::assert_consistent(life.desk.shard.store());
    }

    #[test]
    fn a_rebuilt_scheduler_proposes_the_same(acts in prop::collection::vec(act(), 0..100)) {
        let config = SchedulerConfig {
            lane_load_max: UNLIMITED,
            shard_load_max: UNLIMITED,
            claims_per_turn_max: 1_000,
            ..CONFIG
        };
        let mut life = Life::new(config);
        for act in &acts {
            life.act(act);
        }
        life.act(&Act::Withdraw);
        life.act(&Act::LetGo);
        life.desk.publish_all();
        life.resume();
        life.desk.all_ready();
        for lane_no in life.desk.lanes() {
            life.desk.scheduler.lane_succeeded(lane_no);
        }
        life.act(&Act::RaiseMarks);
        life.fence();
        let expected = life.due();
        let mut rebuilt = life.desk.rebuilt();
        let from_rebuilt = proposals(&mut rebuilt, &life.desk);
        let fresh = life.desk.rebuilt();
        let mut grown = std::mem::replace(&mut life.desk.scheduler, fresh);
        let from_grown = proposals(&mut grown, &life.desk);
        prop_assert_eq!(&from_grown, &from_rebuilt);
        prop_assert_eq!(from_grown.into_iter().map(|(message, _, _)| message).collect::<BTreeSet<_>>(), expected);
    }
}
