//! An owner's desk without a worker: shard, scheduler, a log, and a clock that stands still until it is moved.

use std::collections::BTreeMap;
use std::time::Duration;

use clock::TrustedInterval;
use protocol::command::{CommandBody, Precondition};
use protocol::id::{MessageId, Uuid7};
use protocol::mutation_v2::{Admission, ControlPayload, Limits, Outcome};
use protocol::policy::RetryPolicy;
use shard::commit::{Shard, ShardIdentity};
use shard::effect::Effect;
use shard::machine::SourceRecord;
use shard::memory::{MemoryDisk, MemoryStore};
use shard::query::{self, MessageView};
use shard::schedule::circuit::CircuitConfig;
use shard::schedule::claim::{AdmittedAttempt, UnclaimedAttempt};
use shard::schedule::lane::Load;
use shard::schedule::round_robin::RoundRobinConfig;
use shard::schedule::scheduler::{Scheduler, SchedulerConfig, Turn};
use shard::state::LaneNo;
use testkit::log::{
    AttemptId, Destination, LogWriter, Owner, cancel, default_limits, default_policy, reschedule, schedule,
};

/// More than anybody asks for.
pub(crate) const UNLIMITED: Load = Load { messages: 1_000_000, bytes: 1 << 40 };

/// Sizes that a short test reaches.
pub(crate) const CONFIG: SchedulerConfig = SchedulerConfig {
    window_entries_max: 4,
    page_length: 3,
    pages_per_turn_max: 50,
    window_ahead_ms: 1_000,
    claim_lead_ms: 100,
    claims_per_turn_max: 10,
    lane_load_max: Load { messages: 6, bytes: 6_000 },
    shard_load_max: Load { messages: 10, bytes: 10_000 },
    round_robin: RoundRobinConfig { quantum: 500, deficit_max: 4_000, cost_min: 10 },
    circuit: CircuitConfig { open_min: Duration::from_secs(1), open_max: Duration::from_secs(60) },
};

/// An owner, its shard and its scheduler, with destinations `a` (two partitions) and `b`.
pub(crate) struct Desk {
    pub(crate) shard: Shard<MemoryStore>,
    pub(crate) scheduler: Scheduler,
    pub(crate) log: LogWriter,
    pub(crate) owner: Owner,
    pub(crate) limits: Limits,
    pub(crate) policy: RetryPolicy,
    pub(crate) monotonic: Duration,
    /// Half the width of the trusted interval around the log's time.
    pub(crate) bound_ms: i64,
    /// Attempts that are out.
    pub(crate) sent: BTreeMap<Uuid7, AdmittedAttempt>,
    pub(crate) unclaimed: Vec<UnclaimedAttempt>,
    pub(crate) effects: Vec<Effect>,
    config: SchedulerConfig,
    disk: MemoryDisk,
    identity: ShardIdentity,
}

impl Desk {
    pub(crate) fn new(config: SchedulerConfig) -> Desk {
        let mut log = LogWriter::default();
        let limits = default_limits();
        let identity = ShardIdentity { shard: log.shard(), genesis_hash: log.genesis_mutation(limits).hash };
        let disk = MemoryDisk::new();
        let mut shard = Shard::open(disk.open(), identity).expect("an empty store opens");
        let policy = RetryPolicy { initial_backoff_ms: 200, backoff_ms_max: 400, ..default_policy() };
        let mut owner = Owner::new(1);
        let records = vec![
            log.genesis(limits),
            log.control(ControlPayload::RetryPolicyActivate(Box::new(policy.clone()))),
            log.control(destination("a", &policy).activate()),
            log.control(destination("b", &policy).activate()),
            log.owner_epoch(&mut owner),
        ];
        shard.commit(&records).expect("the store answers");
        let scheduler = activate(config, &shard);
        Desk {
            scheduler,
            shard,
            log,
            owner,
            limits,
            policy,
            monotonic: Duration::ZERO,
            bound_ms: 1,
            sent: BTreeMap::new(),
            unclaimed: Vec::new(),
            effects: Vec::new(),
            config,
            disk,
            identity,
        }
    }

    pub(crate) fn now(&self) -> TrustedInterval {
        let now_ms = self.log.now_ms();
        TrustedInterval::new(now_ms - self.bound_ms, now_ms + self.bound_ms).expect("the log's time is positive")
    }

    pub(crate) fn let_pass(&mut self, pass_ms: i64) {
        self.log.set_now(self.log.now_ms() + pass_ms);
        self.monotonic += Duration::from_millis(pass_ms.unsigned_abs());
    }

    /// Applies records as an owner does: takes the admissions, then tells the scheduler.
    pub(crate) fn commit(&mut self, records: &[SourceRecord]) {
        let committed = self.shard.commit(records).expect("the store answers");
        let shard = self.identity.shard;
        let admissions = committed.admit(self.scheduler.claims_mut(), shard, self.owner.epoch, self.owner.run);
        for attempt in admissions.attempts {
            assert!(attempt.material().deliver_at_ms <= self.now().earliest_ms(), "sent before its time");
            assert_eq!(attempt.owner_epoch(), self.owner.epoch);
            let other = self.sent.insert(attempt.message_id().uuid, attempt);
            assert!(other.is_none(), "sent while another attempt is out");
        }
        self.unclaimed.extend(admissions.unclaimed);
        self.scheduler.observe(committed.effects(), self.shard.store()).expect("the store answers");
        self.effects.extend_from_slice(committed.effects());
        self.check();
    }

    pub(crate) fn command(&mut self, message: MessageId, body: CommandBody) {
        let command = self.log.prepare(&self.limits, message, body);
        let record = self.log.command(&command);
        self.commit(&[record]);
    }

    /// Schedules a message of this size, relative to now.
    pub(crate) fn schedule(&mut self, to: &str, deliver_in_ms: i64, expire_in_ms: i64, bytes: usize) -> Uuid7 {
        let message = self.log.message_id();
        let (now_ms, bytes) = (self.log.now_ms(), vec![b'x'; bytes]);
        let intent =
            destination(to, &self.policy).intent(&self.policy, now_ms + deliver_in_ms, now_ms + expire_in_ms, bytes);
        self.command(message, schedule(intent));
        message.uuid
    }

    pub(crate) fn cancel(&mut self, message: Uuid7) {
        self.command(self.log.message_of(message), cancel(Precondition::default()));
    }

    pub(crate) fn reschedule(&mut self, message: Uuid7, deliver_in_ms: i64) {
        let deliver_at_ms = self.log.now_ms() + deliver_in_ms;
        let body = reschedule(Precondition::default(), deliver_at_ms, deliver_at_ms + 60_000);
        self.command(self.log.message_of(message), body);
    }

    pub(crate) fn control(&mut self, payload: ControlPayload) {
        let record = self.log.control(payload);
        self.commit(&[record]);
    }

    pub(crate) fn turn(&mut self, budget: Load) -> Turn {
        let turn = self.scheduler.turn(self.shard.store(), self.now(), self.monotonic, budget);
        let turn = turn.expect("the store answers");
        self.check();
        turn
    }

    /// Takes turns until there is nothing more to claim.
    pub(crate) fn claim_all(&mut self) {
        let turns = (0..1_000).find(|_| !self.turn(UNLIMITED).has_more);
        assert!(turns.is_some(), "turns without end");
    }

    /// Proposes what is due; every entry must be one that may be admitted now.
    pub(crate) fn propose(&mut self, entries_max: usize) -> Vec<Admission> {
        let now = self.now();
        let entries = self.scheduler.propose(now, entries_max);
        assert!(entries.len() <= entries_max && entries.is_sorted_by(|a, b| a.message < b.message));
        for entry in &entries {
            let row = self.view(entry.message).row;
            assert_eq!((row.generation, row.log_rev), (entry.generation, entry.log_rev), "a stale claim");
            assert!(row.is_reversible() && now.is_due(row.eligible_at_ms), "proposed before its time: {row:?}");
            assert!(now.latest_ms() + self.limits.broker_time_divergence_ms_max < row.expire_at_ms, "too late");
        }
        entries
    }

    pub(crate) fn admit(&mut self, entries: Vec<Admission>) {
        if entries.is_empty() {
            return;
        }
        let at = (self.now().earliest_ms(), self.now().latest_ms());
        let record = self.log.admission(&mut self.owner, at, entries);
        self.commit(&[record]);
    }

    /// Claims, proposes and admits everything that is due and has permits.
    pub(crate) fn send(&mut self) {
        for _ in 0..1_000 {
            self.claim_all();
            let entries = self.propose(usize::MAX);
            if entries.is_empty() {
                return;
            }
            self.admit(entries);
        }
        panic!("what is proposed comes back for ever");
    }

    /// Logs outcomes of attempts that are out.
    pub(crate) fn outcomes(&mut self, outcome: impl Fn(AttemptId, i64) -> Outcome, messages: &[Uuid7]) {
        let now_ms = self.log.now_ms();
        let entries: Vec<Outcome> = messages
            .iter()
            .filter_map(|message| self.sent.remove(message))
            .map(|attempt| {
                let (generation, number) = (attempt.generation(), attempt.attempt());
                outcome(AttemptId { message: attempt.message_id().uuid, generation, attempt: number }, now_ms)
            })
            .collect();
        if !entries.is_empty() {
            let record = self.log.outcomes(&mut self.owner, (now_ms, now_ms), entries);
            self.commit(&[record]);
        }
    }

    pub(crate) fn publish_all(&mut self) {
        let out: Vec<Uuid7> = self.sent.keys().copied().collect();
        self.outcomes(|attempt, now_ms| attempt.published(now_ms), &out);
    }

    pub(crate) fn view(&self, message: Uuid7) -> MessageView {
        query::message(self.shard.store(), message).expect("the store answers").expect("a message that was scheduled")
    }

    pub(crate) fn lanes(&self) -> Vec<LaneNo> {
        self.scheduler.lanes().keys().copied().collect()
    }

    pub(crate) fn all_ready(&mut self) {
        for lane_no in self.lanes() {
            self.scheduler.lane_ready(lane_no);
        }
    }

    /// Another owner takes over: the next epoch, on the same disk.
    pub(crate) fn take_over(&mut self) {
        self.shard = Shard::open(self.disk.open(), self.identity).expect("it was open before");
        self.owner = Owner::new(self.owner.epoch + 1);
        let record = self.log.owner_epoch(&mut self.owner);
        self.shard.commit(&[record]).expect("the store answers");
        self.scheduler = activate(self.config, &self.shard);
        self.sent.clear();
    }

    /// A scheduler of the same store that has seen nothing of how it came about.
    pub(crate) fn rebuilt(&self) -> Scheduler {
        let mut scheduler = activate(self.config, &self.shard);
        for lane_no in self.lanes() {
            scheduler.lane_ready(lane_no);
        }
        scheduler
    }

    /// Permits add up and are never exceeded; windows are bounded.
    pub(crate) fn check(&self) {
        let mut total = Load::default();
        for (lane_no, lane) in self.scheduler.lanes() {
            let limit = self.config.lane_load_max;
            assert!(within(lane.load, limit), "lane {lane_no:?}: {:?}", lane.load);
            assert!(lane.window.len() <= self.config.window_entries_max, "window of {lane_no:?}");
            total.messages += lane.load.messages;
            total.bytes += lane.load.bytes;
        }
        assert_eq!(self.scheduler.load(), total);
        assert!(within(total, self.config.shard_load_max), "{total:?}");
    }
}

/// A single item always fits.
fn within(load: Load, limit: Load) -> bool {
    load.messages <= limit.messages && (load.messages <= 1 || load.bytes <= limit.bytes)
}

fn destination(id: &str, policy: &RetryPolicy) -> Destination {
    let mut destination = Destination::new(id, policy);
    destination.body.partition_count = if id == "a" { 2 } else { 1 };
    destination
}

fn activate(config: SchedulerConfig, shard: &Shard<MemoryStore>) -> Scheduler {
    let of = shard.identity().shard;
    Scheduler::activate(config, shard.store(), of, |lane_no| shard.low_water_ms(lane_no)).expect("the store answers")
}
