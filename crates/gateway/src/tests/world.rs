//! Servers of a world: shards, a gateway and an ingress in one process, which may die at any step.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use client::prepare::RouteSnapshot;
use clock::{ClockOptions, TrustedClock};
use control::cas::Records;
use control::destination::{DestinationRecord, DestinationVersion, VersionState, encode_base64};
use control::route::{RouteLog, RouteRecord, RouteState};
use data_encoding::HEXLOWER;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use ports::topics::{TopicDescription, TopicReadError, TopicRun, Topics};
use protocol::command::ScheduleIntent;
use protocol::mutation_v2::{ControlPayload, Limits};
use protocol::policy::RetryPolicy;
use protocol::resource::AdapterKind;
use shard::commit::{Shard, ShardIdentity};
use shard::memory::MemoryStore;
use shard::query::{self, MessageView, list};
use shard::schedule::outgoing::OutgoingRecord;
use sim::cell::SESSION_TIMES;
use sim::world::broker::Broker;
use sim::world::disk::WorldDisk;
use sim::world::log::LogServer;
use sim::world::metadata::MetadataServer;
use sim::world::{Process, World, WorldOptions};
use testkit::log::{CONTROL_KEY, Destination, LogWriter, OWNER_KEY, default_limits, default_policy, signing_key};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use worker::budget::SharedBudget;
use worker::config::WorkerConfig;
use worker::handle::ShardHandle;
use worker::metrics::Metrics;
use worker::task::{ShardParts, shard};

use super::source::FakeSource;
use crate::destinations::{self, DestinationDefaults};
use crate::ingress;
use crate::routes::{RouteEntry, RouteTable};
use crate::state::{Gateway, GatewayConfig, GatewayParts, StorageFigures};

pub(crate) const TENANT: &str = "default";
/// The destination of most tests.
pub(crate) const DESTINATION: &str = "orders";
const SHARD_COUNT: u32 = 2;

fn worker_config(worker: &str) -> WorkerConfig {
    let recovery_deadline = Duration::from_secs(3);
    WorkerConfig { worker: worker.to_owned(), recovery_deadline, ..sim::cell::worker_config() }
}

struct ShardBook {
    identity: ShardIdentity,
    log: LogServer,
    genesis_frame: Bytes,
    scribe: Mutex<LogWriter>,
}

/// What outlives every server.
pub(crate) struct Cell {
    pub(crate) world: World,
    pub(crate) metadata: MetadataServer,
    pub(crate) broker: Broker,
    pub(crate) source: FakeSource,
    shards: Vec<ShardBook>,
    disks: Vec<WorldDisk>,
    policy: RetryPolicy,
    limits: Limits,
}

impl Cell {
    pub(crate) fn new(seed: u64, partition_count: usize) -> Cell {
        Cell::with(WorldOptions::new(seed), partition_count, default_limits())
    }

    pub(crate) fn with(options: WorldOptions, partition_count: usize, limits: Limits) -> Cell {
        let world = World::new(options);
        let (policy, shard_count) = (default_policy(), NonZeroU32::new(SHARD_COUNT).expect("not zero"));
        let destination = Destination::new(DESTINATION, &policy);
        let shards = (0..SHARD_COUNT).map(|partition| {
            let mut scribe = LogWriter::new(partition, shard_count);
            scribe.set_now(world.now_ms());
            let genesis = scribe.genesis_mutation(limits);
            let log = LogServer::new(&world, scribe.shard(), [0x10; 16]);
            let policy = scribe.control(ControlPayload::RetryPolicyActivate(Box::new(policy.clone())));
            log.append(&[genesis.encode_frame(), policy.frame, scribe.control(destination.activate()).frame]);
            ShardBook {
                identity: ShardIdentity { shard: scribe.shard(), genesis_hash: genesis.hash },
                log,
                genesis_frame: genesis.encode_frame(),
                scribe: Mutex::new(scribe),
            }
        });
        let shards: Vec<ShardBook> = shards.collect();
        Cell {
            metadata: MetadataServer::new(&world, SESSION_TIMES),
            broker: Broker::new(&world),
            source: FakeSource::new(partition_count, world.random("source")),
            disks: (0..SHARD_COUNT).map(|shard| WorldDisk::new(&world, &format!("disk {shard}"))).collect(),
            shards,
            policy,
            limits,
            world,
        }
    }

    pub(crate) fn logs(&self) -> impl Iterator<Item = &LogServer> {
        self.shards.iter().map(|book| &book.log)
    }

    /// Gives the destination another version, everywhere, however often metadata fails.
    pub(crate) async fn renew_destination(&self, records: &Records) {
        let key = control::destination::key(TENANT, DESTINATION);
        loop {
            if let Ok(Some(stored)) = records.get::<DestinationRecord>(&key).await {
                let mut next = stored.record.clone();
                let mut destination = Destination::new(DESTINATION, &self.policy);
                let version_last = next.versions.last().expect("a version").version;
                destination.profile.version = version_last + 1;
                destination.body.record_bytes_max -= u32::try_from(version_last).expect("few versions");
                for book in &self.shards {
                    let mut scribe = book.scribe.lock().expect("one thread");
                    scribe.set_now(self.world.now_ms());
                    book.log.append(&[scribe.control(destination.activate()).frame]);
                }
                next.versions.push(version(&destination, &self.policy));
                if let Ok(Some(_)) = records.swap(&key, Some(&stored), next).await {
                    return;
                }
            }
            self.world.wait(Duration::from_millis(50)).await;
        }
    }

    /// Starts a server.
    pub(crate) fn start(&self, name: &str) -> Server {
        let process = self.world.process(name);
        let env = process.env(ClockOptions::default());
        let (stop, stopped) = watch::channel(false);
        let config = worker_config(name);
        let budget = Arc::new(SharedBudget::new(config.load_max, config.scheduler.round_robin));
        let metrics = Arc::new(Metrics::default());
        let destinations = Arc::new(BTreeMap::from([(AdapterKind::Embedded, self.broker.client(&process))]));
        let records = Records::new(self.metadata.client(&process));
        let mut handles = Vec::new();
        for (book, disk) in self.shards.iter().zip(&self.disks) {
            let disk = disk.clone();
            let parts = ShardParts {
                identity: book.identity,
                genesis_frame: book.genesis_frame.clone(),
                log: book.log.client(&process),
                records: records.clone(),
                destinations: destinations.clone(),
                open_store: Box::new(move || disk.open()),
                store_incarnation: [7; 16],
                key: (OWNER_KEY, signing_key(OWNER_KEY)),
                config: config.clone(),
                budget: budget.clone(),
                metrics: metrics.clone(),
            };
            let (handle, life) = shard(parts, env.clone(), stopped.clone());
            process.spawn("shard", life);
            handles.push(handle);
        }
        let clock = TrustedClock::new(process.host().clone(), ClockOptions::default()).expect("options fit");
        let gateway = Arc::new(Gateway::new(self.parts(&process, clock.clone(), records, handles, metrics)));
        process.spawn("sample", async move {
            loop {
                clock.now();
                sleep_until(Instant::now() + Duration::from_millis(500)).await;
            }
        });
        process.spawn(
            "gateway",
            serve(gateway.clone(), version(&Destination::new(DESTINATION, &self.policy), &self.policy)),
        );
        Server { process, gateway, _stop: stop }
    }

    fn parts(
        &self,
        process: &Process,
        clock: TrustedClock,
        records: Records,
        handles: Vec<ShardHandle>,
        worker_metrics: Arc<Metrics>,
    ) -> GatewayParts {
        let scribe = self.shards[0].scribe.lock().expect("one thread");
        let record = RouteRecord {
            name: "default".to_owned(),
            route: HEXLOWER.encode(&scribe.shard().route.0),
            tenant: TENANT.to_owned(),
            state: RouteState::Active,
            log: RouteLog::Embedded { topic: "_route".to_owned(), topic_id: HEXLOWER.encode(&[0x10; 16]) },
            genesis: Vec::new(),
        };
        let snapshot = RouteSnapshot {
            route: scribe.shard().route,
            partition_count: scribe.partition_count(),
            tenant_scope: scribe.tenant_scope(),
            limits: self.limits,
            past_ms_max: 3_600_000,
        };
        let random = Mutex::new(self.world.random(&format!("gateway of {}", process.name())));
        GatewayParts {
            config: gateway_config(),
            clock,
            fill_random: Box::new(move |buffer| random.lock().expect("one thread").fill(buffer)),
            records,
            routes: RouteTable::new(vec![RouteEntry { record, snapshot, shards: handles }]).expect("has shards"),
            systems: BTreeMap::new(),
            sources: BTreeMap::from([("kafka", Arc::new(self.source.clone()) as _)]),
            topics: Arc::new(NoTopics),
            control_key: (CONTROL_KEY, signing_key(CONTROL_KEY)),
            worker_metrics,
            read_storage: Box::new(StorageFigures::default),
        }
    }

    /// Every message that was ever taken, as the logs alone tell.
    pub(crate) fn told(&self) -> Vec<Told> {
        let mut messages = Vec::new();
        for book in &self.shards {
            let mut shard = Shard::open(MemoryStore::new(), book.identity).expect("an empty store opens");
            for run in book.log.archive().chunks(4_096) {
                shard.commit(run).expect("the log can be applied");
            }
            let store = shard.store();
            let filter = list::ListFilter::default();
            let page = list::list(store, book.identity.shard.partition, &filter, None, usize::MAX, usize::MAX);
            for (_, view) in page.expect("a store in memory answers").items {
                let intent = query::intent(store, view.message).expect("a store in memory answers");
                let intent = intent.map(|intent| ScheduleIntent::decode(&intent).expect("an intent"));
                let record = intent.as_ref().and_then(OutgoingRecord::from_intent);
                messages.push(Told { view, record });
            }
        }
        messages
    }
}

/// A message as the logs tell it.
pub(crate) struct Told {
    pub(crate) view: MessageView,
    /// What will be delivered, as long as it is kept.
    pub(crate) record: Option<OutgoingRecord>,
}

impl Told {
    /// What tells it from others.
    pub(crate) fn value(&self) -> String {
        let value = self.record.as_ref().and_then(|record| record.value.as_deref()).unwrap_or_default();
        String::from_utf8_lossy(value).into_owned()
    }
}

fn version(destination: &Destination, policy: &RetryPolicy) -> DestinationVersion {
    let version = destination.profile.version;
    DestinationVersion {
        version,
        state: VersionState::Active,
        spec: serde_json::json!({"embedded": {"topic": "orders.due"}}),
        profile: encode_base64(&destination.body.encode()),
        semantic_hash: HEXLOWER.encode(&destination.body.semantic_hash(&destination.profile.id, version)),
        retry_policy: encode_base64(&policy.encode().expect("a policy")),
        created_at_ms: 0,
    }
}

/// What a server does beside answering, tried again until metadata answers.
async fn serve(gateway: Arc<Gateway>, first: DestinationVersion) {
    loop {
        let record = DestinationRecord { name: DESTINATION.to_owned(), versions: vec![first.clone()], paused: false };
        let key = control::destination::key(TENANT, DESTINATION);
        let began = async {
            if gateway.records.get::<DestinationRecord>(&key).await?.is_none() {
                gateway.records.swap(&key, None, record).await?;
            }
            let destinations = destinations::load(&gateway).await?;
            Ok::<_, control::cas::RecordError>((destinations, ingress::load(&gateway).await?))
        };
        if let Ok((destinations, ingresses)) = began.await {
            tokio::join!(destinations, ingresses);
        }
        sleep_until(Instant::now() + Duration::from_millis(100)).await;
    }
}

fn gateway_config() -> GatewayConfig {
    GatewayConfig {
        tenant: TENANT.to_owned(),
        principal: "test".to_owned(),
        destination_defaults: DestinationDefaults {
            expires_after_ms: 1,
            delay_ms_max: 1,
            initial_backoff_ms: 1,
            backoff_ms_max: 1,
            attempts_max: 1,
            retry_duration_ms_max: 1,
            uncertain_retries_max: 1,
        },
        destination_refresh_interval: Duration::from_secs(60),
        wait_default: Duration::from_secs(10),
        wait_max: Duration::from_secs(60),
        body_bytes_max: 1 << 20,
        batch_bytes_max: 8 << 20,
        bodies_bytes_max: 64 << 20,
        batch_messages_max: 1_000,
        requests_max: 1_000,
        idempotency_retention: Duration::from_secs(86_400),
        page_items_max: 1_000,
        page_rows_max: 10_000,
    }
}

/// A server in its process.
pub(crate) struct Server {
    pub(crate) process: Process,
    pub(crate) gateway: Arc<Gateway>,
    _stop: watch::Sender<bool>,
}

impl Server {
    /// Waits until every shard answers.
    pub(crate) async fn active(&self) {
        for place in self.gateway.routes.shards() {
            place.handle.active().await.expect("the shard becomes active");
        }
    }
}

/// This world has no topics for readers.
struct NoTopics;

impl NoTopics {
    fn none<T>() -> Result<T, TopicReadError> {
        Err(TopicReadError::Unavailable { reason: "there are none".to_owned() })
    }
}

impl Topics for NoTopics {
    fn list(&self) -> Result<Vec<TopicDescription>, TopicReadError> {
        NoTopics::none()
    }

    fn describe(&self, _: &str) -> Result<TopicDescription, TopicReadError> {
        NoTopics::none()
    }

    fn read(&self, _: &str, _: u32, _: u64, _: usize, _: usize) -> Result<TopicRun, TopicReadError> {
        NoTopics::none()
    }

    fn wait_for(&self, _: &str, _: u32, _: u64) -> BoxFuture<'static, Result<(), TopicReadError>> {
        std::future::ready(NoTopics::none()).boxed()
    }
}
