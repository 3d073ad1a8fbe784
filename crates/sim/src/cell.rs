//! A cell of a world: a route with its logs, the metadata store, the destinations, and workers that come and go.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use crate::world::broker::{Behavior, Broker, Place};
use crate::world::disk::WorldDisk;
use crate::world::log::LogServer;
use crate::world::metadata::{MetadataServer, SessionTimes};
use crate::world::{Paces, Process, World, WorldOptions};
use bytes::Bytes;
use clock::ClockOptions;
use control::cas::Records;
use ports::log::SourceRecord;
use protocol::command::{CommandBody, Precondition};
use protocol::hash::Hash;
use protocol::id::{CommandId, MessageId};
use protocol::mutation_v2::{ControlPayload, Limits};
use protocol::policy::RetryPolicy;
use protocol::position::SourcePosition;
use protocol::resource::{AdapterKind, Resource};
use shard::commit::ShardIdentity;
use shard::machine::verdict::Verdict;
use shard::query::{self, MessageView, PositionResult};
use shard::schedule::circuit::CircuitConfig;
use shard::schedule::lane::Load;
use shard::schedule::round_robin::RoundRobinConfig;
use shard::schedule::scheduler::SchedulerConfig;
use shard::state::MessageUuid;
use testkit::log::{
    Destination, LogWriter, OWNER_KEY, cancel, default_limits, default_policy, reschedule, schedule, signing_key,
};
use tokio::sync::watch;
use worker::budget::SharedBudget;
use worker::config::WorkerConfig;
use worker::handle::ShardHandle;
use worker::lifecycle::ShardLifecycle;
use worker::metrics::Metrics;
use worker::task::{ShardParts, shard};

/// A month: what a message gets for its expiry when the test does not care.
pub const MONTH_MS: i64 = 30 * 86_400_000;

/// How long sessions live in a cell.
pub const SESSION_TIMES: SessionTimes =
    SessionTimes { timeout: Duration::from_secs(10), guard: Duration::from_secs(7) };

/// The sizes and paces of a server's defaults.
pub fn worker_config() -> WorkerConfig {
    let load_max = Load { messages: 32_768, bytes: 128 << 20 };
    let round_robin = RoundRobinConfig { quantum: 64 << 10, deficit_max: 2_000_000, cost_min: 512 };
    WorkerConfig {
        worker: "worker".to_owned(),
        scheduler: SchedulerConfig {
            window_entries_max: 16_384,
            page_length: 1_024,
            pages_per_turn_max: 16,
            window_ahead_ms: 5_000,
            claim_lead_ms: 50,
            claims_per_turn_max: 512,
            lane_load_max: Load { messages: 8_192, bytes: 32 << 20 },
            shard_load_max: load_max,
            round_robin,
            circuit: CircuitConfig { open_min: Duration::from_secs(1), open_max: Duration::from_secs(60) },
        },
        load_max,
        run_records_max: 4_096,
        run_bytes_max: 4 << 20,
        records_in_flight_max: 2,
        append_retry_delay: Duration::from_millis(20),
        entries_per_record_max: 512,
        send_deadline: Duration::from_secs(30),
        recovery_deadline: Duration::from_secs(30),
        lane_reopen_min: Duration::from_secs(1),
        lane_reopen_max: Duration::from_secs(60),
        fence_interval_max: Duration::from_secs(600),
        fence_interval_min: Duration::from_millis(100),
        expire_per_fence_max: 1_000,
        release_interval: Duration::from_secs(10),
        drain_deadline: Duration::from_secs(10),
        reacquire_pause: Duration::from_secs(1),
        verdicts_kept_max: 65_536,
        end_watchers_max: 100_000,
    }
}

/// What a cell is made of.
pub struct CellOptions {
    /// The world it stands in.
    pub world: WorldOptions,
    /// Shards of its route.
    pub shard_count: u32,
    /// Names of its destinations.
    pub destinations: Vec<String>,
    /// The retry policy of all of them.
    pub policy: RetryPolicy,
    /// What genesis allows.
    pub limits: Limits,
    /// Sizes and paces of its workers.
    pub config: WorkerConfig,
}

impl CellOptions {
    /// One shard, two destinations, defaults.
    pub fn new(seed: u64) -> CellOptions {
        CellOptions {
            world: WorldOptions::new(seed),
            shard_count: 1,
            destinations: vec!["orders".to_owned(), "bills".to_owned()],
            policy: default_policy(),
            limits: default_limits(),
            config: worker_config(),
        }
    }
}

/// One shard's log and what a client must know to write into it.
pub struct ShardBook {
    /// Which shard, and its genesis hash.
    pub identity: ShardIdentity,
    /// Its log.
    pub log: LogServer,
    genesis_frame: Bytes,
    scribe: RefCell<LogWriter>,
}

/// A prepared command.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// Of which shard.
    pub shard: usize,
    /// Of which message.
    pub message: MessageUuid,
    /// Which command.
    pub command: CommandId,
    /// Its exact bytes.
    pub frame: Bytes,
}

/// A route and everything around it.
pub struct Cell {
    /// The metadata store.
    pub metadata: MetadataServer,
    /// Every destination.
    pub broker: Broker,
    /// The shards of the route.
    pub shards: Vec<ShardBook>,
    /// Where messages go.
    pub destinations: Vec<Destination>,
    /// The retry policy.
    pub policy: RetryPolicy,
    /// The seed of its world.
    pub seed: u64,
    /// What genesis allows.
    pub limits: Limits,
    /// Sizes and paces of the workers.
    pub config: WorkerConfig,
    /// The world it stands in.
    pub world: World,
    /// Destinations whose topic was made anew, with the new one's id.
    moved: RefCell<BTreeMap<usize, [u8; 16]>>,
}

impl Cell {
    /// A cell whose logs hold the genesis, the policy and the destinations, and that no worker has touched yet.
    pub fn new(options: CellOptions) -> Cell {
        let cell = Cell::untouched(options);
        for book in &cell.shards {
            let mut frames = vec![book.genesis_frame.clone()];
            let mut scribe = book.scribe.borrow_mut();
            scribe.set_now(cell.world.now_ms());
            let policy = ControlPayload::RetryPolicyActivate(Box::new(cell.policy.clone()));
            frames.push(scribe.control(policy).frame);
            frames.extend(cell.destinations.iter().map(|destination| scribe.control(destination.activate()).frame));
            book.log.append(&frames);
        }
        cell
    }

    /// A cell whose logs are empty.
    pub fn untouched(options: CellOptions) -> Cell {
        let CellOptions { world, shard_count, destinations, policy, limits, config } = options;
        let seed = world.seed;
        let world = World::new(world);
        let partition_count = NonZeroU32::new(shard_count).expect("at least one shard");
        let shards = (0..shard_count).map(|partition| {
            let mut scribe = LogWriter::new(partition, partition_count);
            scribe.set_now(world.now_ms());
            let genesis = scribe.genesis_mutation(limits);
            ShardBook {
                identity: ShardIdentity { shard: scribe.shard(), genesis_hash: genesis.hash },
                log: LogServer::new(&world, scribe.shard(), [0x10; 16]),
                genesis_frame: genesis.encode_frame(),
                scribe: RefCell::new(scribe),
            }
        });
        Cell {
            metadata: MetadataServer::new(&world, SESSION_TIMES),
            broker: Broker::new(&world),
            shards: shards.collect(),
            destinations: destinations.iter().map(|id| Destination::new(id, &policy)).collect(),
            policy,
            seed,
            limits,
            config,
            world,
            moved: RefCell::default(),
        }
    }

    /// The tenant's routing scope.
    pub fn tenant_scope(&self) -> Hash {
        self.shards[0].scribe.borrow().tenant_scope()
    }

    /// The genesis of a shard.
    pub fn genesis_frame(&self, shard: usize) -> Bytes {
        self.shards[shard].genesis_frame.clone()
    }

    /// Where a destination's topic is.
    pub fn place(&self, destination: usize) -> Place {
        if let Some(topic) = self.moved.borrow().get(&destination) {
            return (*topic, 0);
        }
        match &self.destinations[destination].body.resource {
            Resource::Embedded { topic } => (*topic, 0),
            other => panic!("{other:?} is no topic of this world"),
        }
    }

    /// Deletes a destination's topic and makes it again. Returns the operator's word that the destination is there now.
    pub fn recreate(&self, destination: usize) -> ControlPayload {
        let topic = self.broker.recreate_topic(self.place(destination).0);
        self.moved.borrow_mut().insert(destination, topic);
        self.destinations[destination].rebind(Resource::Embedded { topic })
    }

    /// The operator's word on where each destination is now whose topic was made anew.
    pub fn rebinds(&self) -> Vec<ControlPayload> {
        let moved = self.moved.borrow();
        let rebind = |(destination, topic): (&usize, &[u8; 16])| {
            self.destinations[*destination].rebind(Resource::Embedded { topic: *topic })
        };
        moved.iter().map(rebind).collect()
    }

    /// Changes how a destination behaves from now on.
    pub fn misbehave(&self, destination: usize, change: impl FnOnce(&mut Behavior)) {
        let place = self.place(destination);
        let mut behavior = self.broker.behavior(place);
        change(&mut behavior);
        self.broker.set(place, behavior);
    }

    /// Disks for every shard, all empty.
    pub fn disks(&self, host: &str) -> Vec<WorldDisk> {
        (0..self.shards.len()).map(|shard| WorldDisk::new(&self.world, &format!("disk {host}{shard}"))).collect()
    }

    /// Starts a worker for every shard of the route.
    pub fn start(&self, name: &str, disks: &[WorldDisk]) -> Worker {
        self.start_with(name, disks, ClockOptions::default())
    }

    /// Starts a worker that trusts its clock as these options say.
    pub fn start_with(&self, name: &str, disks: &[WorldDisk], clock: ClockOptions) -> Worker {
        let process = self.world.process(name);
        let env = process.env(clock);
        let (stop, stopped) = watch::channel(false);
        let budget = Arc::new(SharedBudget::new(self.config.load_max, self.config.scheduler.round_robin));
        let metrics = Arc::new(Metrics::default());
        let destinations = Arc::new(BTreeMap::from([(AdapterKind::Embedded, self.broker.client(&process))]));
        let mut handles = Vec::new();
        for (book, disk) in self.shards.iter().zip(disks) {
            let disk = disk.clone();
            let parts = ShardParts {
                identity: book.identity,
                genesis_frame: book.genesis_frame.clone(),
                log: book.log.client(&process),
                records: Records::new(self.metadata.client(&process)),
                destinations: destinations.clone(),
                open_store: Box::new(move || disk.open()),
                store_incarnation: [7; 16],
                key: (OWNER_KEY, signing_key(OWNER_KEY)),
                config: WorkerConfig { worker: name.to_owned(), ..self.config.clone() },
                budget: budget.clone(),
                metrics: metrics.clone(),
            };
            let (handle, life) = shard(parts, env.clone(), stopped.clone());
            process.spawn("shard", life);
            handles.push(handle);
        }
        Worker { process, handles, metrics, stop }
    }

    /// Prepares a Schedule with a small payload of its own.
    pub fn schedule(&self, shard: usize, destination: usize, deliver_at_ms: i64) -> Prepared {
        self.schedule_until(shard, destination, deliver_at_ms, deliver_at_ms.max(self.world.now_ms()) + MONTH_MS)
    }

    /// Prepares a Schedule with an expiry.
    pub fn schedule_until(&self, shard: usize, destination: usize, deliver_at_ms: i64, expire_at_ms: i64) -> Prepared {
        self.schedule_payload(shard, destination, (deliver_at_ms, expire_at_ms), Bytes::from_static(b"payload"))
    }

    /// Prepares a Schedule of a payload.
    pub fn schedule_payload(
        &self,
        shard: usize,
        destination: usize,
        (deliver_at_ms, expire_at_ms): (i64, i64),
        payload: Bytes,
    ) -> Prepared {
        let mut scribe = self.shards[shard].scribe.borrow_mut();
        scribe.set_now(self.world.now_ms());
        let message = scribe.message_id();
        let destination = &self.destinations[destination];
        let intent = destination.intent(&self.policy, deliver_at_ms, expire_at_ms, payload);
        self.prepare(shard, &mut scribe, message, schedule(intent))
    }

    /// Prepares a Cancel.
    pub fn cancel(&self, shard: usize, message: MessageUuid) -> Prepared {
        let mut scribe = self.shards[shard].scribe.borrow_mut();
        scribe.set_now(self.world.now_ms());
        let message = scribe.message_of(message);
        self.prepare(shard, &mut scribe, message, cancel(Precondition::default()))
    }

    /// Prepares a Reschedule.
    pub fn reschedule(&self, shard: usize, message: MessageUuid, deliver_at_ms: i64) -> Prepared {
        let mut scribe = self.shards[shard].scribe.borrow_mut();
        scribe.set_now(self.world.now_ms());
        let message = scribe.message_of(message);
        let body = reschedule(Precondition::default(), deliver_at_ms, deliver_at_ms + MONTH_MS);
        self.prepare(shard, &mut scribe, message, body)
    }

    fn prepare(&self, shard: usize, scribe: &mut LogWriter, message: MessageId, body: CommandBody) -> Prepared {
        let command = scribe.prepare(&self.limits, message, body);
        Prepared { shard, message: message.uuid, command: command.command_id, frame: command.encode_frame() }
    }

    /// An operator's record.
    pub fn control(&self, shard: usize, payload: ControlPayload) -> Bytes {
        let mut scribe = self.shards[shard].scribe.borrow_mut();
        scribe.set_now(self.world.now_ms());
        scribe.control(payload).frame
    }

    /// Puts a command into its shard's log at once.
    pub fn append(&self, prepared: &Prepared) {
        self.shards[prepared.shard].log.append(std::slice::from_ref(&prepared.frame));
    }

    /// Every record of a shard.
    pub fn archive(&self, shard: usize) -> Vec<SourceRecord> {
        self.shards[shard].log.archive()
    }

    /// Follows a worker's shards in the event log.
    pub fn follow(&self, worker: &Worker) {
        for (number, handle) in worker.handles.iter().enumerate() {
            let mut status = handle.watch_status();
            let process = worker.process.id();
            let events = self.world.recorder();
            self.world.spawn("follow status", async move {
                let mut last = (ShardLifecycle::Unassigned, String::new());
                while status.changed().await.is_ok() {
                    let (lifecycle, reason, epoch) = {
                        let status = status.borrow_and_update();
                        (status.lifecycle, status.reason.clone(), status.owner_epoch)
                    };
                    if (lifecycle, &reason) != (last.0, &last.1) {
                        events.event(format_args!("shard {number} of={process:?} {lifecycle} epoch={epoch} {reason}"));
                        last = (lifecycle, reason);
                    }
                }
            });
        }
    }
}

/// A worker in its process.
pub struct Worker {
    /// Its process.
    pub process: Process,
    /// The way to each of its shards.
    pub handles: Vec<ShardHandle>,
    /// Its counters.
    pub metrics: Arc<Metrics>,
    stop: watch::Sender<bool>,
}

impl Worker {
    /// Waits until every shard is active.
    pub async fn active(&self) {
        for handle in &self.handles {
            handle.active().await.expect("the shard becomes active");
        }
    }

    /// Asks every shard to drain.
    pub fn stop(&self) {
        self.stop.send_replace(true);
    }

    /// Where a shard is.
    pub fn lifecycle(&self, shard: usize) -> ShardLifecycle {
        self.handles[shard].status().lifecycle
    }

    /// Waits until a shard is in a state.
    pub async fn becomes(&self, shard: usize, lifecycle: ShardLifecycle) {
        let mut status = self.handles[shard].watch_status();
        status.wait_for(|status| status.lifecycle == lifecycle).await.expect("the shard lives");
    }

    /// Appends a command and waits for what it comes to.
    pub async fn submit(&self, prepared: &Prepared) -> Verdict {
        let handle = &self.handles[prepared.shard];
        let position = self.append(prepared.shard, prepared.frame.clone()).await;
        handle.applied(&position).await.expect("the shard lives");
        match handle.result_at(&position, prepared.command).expect("the store answers") {
            PositionResult::Command(verdict) => verdict,
            other => panic!("{prepared:?} came to {other:?}"),
        }
    }

    /// Appends a frame until the log takes it.
    pub async fn append(&self, shard: usize, frame: Bytes) -> SourcePosition {
        loop {
            if let Ok(positions) = self.handles[shard].append(vec![frame.clone()]).await {
                return positions[0].clone();
            }
        }
    }

    /// A message as users see it.
    pub fn message(&self, shard: usize, message: MessageUuid) -> MessageView {
        let view = self.handles[shard].read(|read| query::message(read, message)).expect("the store answers");
        view.expect("the message is known")
    }
}

/// A partition that takes this long to answer.
pub fn slow(there_ms: u64, back_ms: u64) -> Behavior {
    Behavior { paces: Paces::fixed(there_ms, back_ms), ..Behavior::default() }
}
