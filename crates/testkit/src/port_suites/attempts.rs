//! Admitted attempts for the test of a destination: minted as an owner mints them, there is no other way.

use std::time::Duration;

use bytes::Bytes;
use clock::TrustedInterval;
use protocol::command::ScheduleIntent;
use protocol::id::ShardId;
use protocol::mutation_v2::{ControlPayload, Limits};
use protocol::policy::RetryPolicy;
use shard::commit::{Shard, ShardIdentity};
use shard::machine::SourceRecord;
use shard::memory::MemoryStore;
use shard::query::{self, OpenAttempt};
use shard::schedule::circuit::CircuitConfig;
use shard::schedule::claim::AdmittedAttempt;
use shard::schedule::lane::Load;
use shard::schedule::round_robin::RoundRobinConfig;
use shard::schedule::scheduler::{Scheduler, SchedulerConfig};

use crate::log::{Destination, LogWriter, Owner, default_limits, default_policy, schedule};

const LOAD_MAX: Load = Load { messages: 10_000, bytes: 1 << 30 };

const CONFIG: SchedulerConfig = SchedulerConfig {
    window_entries_max: 1_000,
    page_length: 1_000,
    pages_per_turn_max: 10,
    window_ahead_ms: 1_000,
    claim_lead_ms: 100,
    claims_per_turn_max: 1_000,
    lane_load_max: LOAD_MAX,
    shard_load_max: LOAD_MAX,
    round_robin: RoundRobinConfig { quantum: 1 << 20, deficit_max: 1 << 24, cost_min: 1 },
    circuit: CircuitConfig { open_min: Duration::from_secs(1), open_max: Duration::from_secs(60) },
};

/// A shard with an owner, all of it in memory, whose only purpose is to admit.
pub struct AttemptMint {
    shard: Shard<MemoryStore>,
    scheduler: Scheduler,
    log: LogWriter,
    owner: Owner,
    limits: Limits,
    policy: RetryPolicy,
    destination: Destination,
}

impl AttemptMint {
    /// A shard whose messages go to this destination.
    ///
    /// # Panics
    /// When the destination cannot be activated.
    pub fn new(destination: impl FnOnce(&RetryPolicy) -> Destination) -> AttemptMint {
        let (limits, policy) = (default_limits(), default_policy());
        let (mut log, mut owner) = (LogWriter::default(), Owner::new(1));
        let destination = destination(&policy);
        let identity = ShardIdentity { shard: log.shard(), genesis_hash: log.genesis_mutation(limits).hash };
        let mut shard = Shard::open(MemoryStore::new(), identity).expect("an empty store opens");
        let records = [
            log.genesis(limits),
            log.control(ControlPayload::RetryPolicyActivate(Box::new(policy.clone()))),
            log.control(destination.activate()),
            log.owner_epoch(&mut owner),
        ];
        shard.commit(&records).expect("a store in memory answers");
        let scheduler = activate(&shard);
        AttemptMint { shard, scheduler, log, owner, limits, policy, destination }
    }

    /// Which shard it is.
    pub fn shard(&self) -> ShardId {
        self.log.shard()
    }

    /// Where its messages go.
    pub fn destination(&self) -> &Destination {
        &self.destination
    }

    /// The epoch of its owner.
    pub fn owner_epoch(&self) -> u64 {
        self.owner.epoch
    }

    /// Attempts of new messages, admitted by one record; `change` completes each message's intent.
    ///
    /// # Panics
    /// When they are not admitted.
    pub fn admit(&mut self, count: usize, change: impl Fn(usize, &mut ScheduleIntent)) -> Vec<AdmittedAttempt> {
        self.log.set_now(self.log.now_ms() + 10);
        let now_ms = self.log.now_ms();
        let mut records = Vec::new();
        for number in 0..count {
            let message = self.log.message_id();
            let mut intent = self.destination.intent(&self.policy, now_ms, now_ms + 3_600_000, Bytes::new());
            change(number, &mut intent);
            let command = self.log.prepare(&self.limits, message, schedule(intent));
            records.push(self.log.command(&command));
        }
        self.commit(&records);
        for lane_no in self.scheduler.lanes().keys().copied().collect::<Vec<_>>() {
            self.scheduler.lane_ready(lane_no);
        }
        let now = TrustedInterval::new(now_ms, now_ms).expect("in order");
        let store = self.shard.store();
        self.scheduler.turn(store, now, Duration::ZERO, LOAD_MAX).expect("a store in memory answers");
        let entries = self.scheduler.propose(now, count);
        assert_eq!(entries.len(), count, "everything is due");
        let record = self.log.admission(&mut self.owner, (now_ms, now_ms), entries);
        let attempts = self.commit(&[record]);
        assert_eq!(attempts.len(), count, "everything is admitted");
        attempts
    }

    /// Every attempt that is open, as a successor asks about it.
    ///
    /// # Panics
    /// Never: a store in memory answers.
    pub fn open(&self) -> Vec<OpenAttempt> {
        query::publishing_attempts(self.shard.store()).expect("a store in memory answers")
    }

    /// The next owner takes over.
    pub fn take_over(&mut self) {
        self.owner = Owner::new(self.owner.epoch + 1);
        let record = self.log.owner_epoch(&mut self.owner);
        self.shard.commit(&[record]).expect("a store in memory answers");
        self.scheduler = activate(&self.shard);
    }

    fn commit(&mut self, records: &[SourceRecord]) -> Vec<AdmittedAttempt> {
        let committed = self.shard.commit(records).expect("a store in memory answers");
        let shard = self.log.shard();
        let admissions = committed.admit(self.scheduler.claims_mut(), shard, self.owner.epoch, self.owner.run);
        self.scheduler.observe(committed.effects(), self.shard.store()).expect("a store in memory answers");
        admissions.attempts
    }
}

fn activate(shard: &Shard<MemoryStore>) -> Scheduler {
    let low_water_ms = |lane_no| shard.low_water_ms(lane_no);
    Scheduler::activate(CONFIG, shard.store(), shard.identity().shard, low_water_ms).expect("a store in memory answers")
}
