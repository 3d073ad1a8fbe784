//! The server: every part made, joined and, in the end, taken apart in order.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, bail};
use client::prepare::RouteSnapshot;
use clock::TrustedClock;
use control::cas::Records;
use control::destination::DestinationRecord;
use control::route::{RouteLog, RouteRecord, RouteState, parse_uuid};
use ed25519_dalek::SigningKey;
use embedded::{
    Embedded, EmbeddedDestination, EmbeddedLog, EmbeddedMetadata, EmbeddedOptions, EmbeddedTargets, EmbeddedTopics,
    OpenError, Retention,
};
use gateway::routes::{RouteEntry, RouteTable};
use gateway::{DestinationDefaults, GatewayConfig, GatewayParts, Server, StorageFigures};
use kafka::{Connections, KafkaDestination, KafkaOptions, KafkaSources, KafkaTargets, ReadEnvironment};
use ports::destination::Destination;
use ports::log::ShardLog;
use ports::source::SourceSystem;
use ports::target::TargetSystem;
use protocol::id::ShardId;
use protocol::mutation_v2::Genesis;
use protocol::resource::AdapterKind;
use protocol::routing::tenant_scope;
use shard::commit::ShardIdentity;
use shard::schedule::circuit::CircuitConfig;
use shard::schedule::lane::Load;
use shard::schedule::round_robin::RoundRobinConfig;
use shard::schedule::scheduler::SchedulerConfig;
use shard::store::StoreError;
use store::{ResourceOptions, RocksStore, StoreOptions, StoreResources};
use tokio::sync::watch;
use worker::budget::SharedBudget;
use worker::config::WorkerConfig;
use worker::handle::ShardHandle;
use worker::metrics::Metrics;
use worker::sessions::Destinations;
use worker::task::{ShardParts, shard};

use crate::bootstrap::{self, DEFAULT_ROUTE, KEY_VERSION, RouteSeed};
use crate::config::{Configuration, EMBEDDED_RECORD_BYTES_MAX, KAFKA_RECORD_BYTES_MAX, RECORD_BYTES_MAX};
use crate::host::{HostEnv, fill_random};
use crate::{data_folder, open_files, time};

/// How long open requests are finished after the listener has closed.
const HTTP_DRAIN: Duration = Duration::from_secs(5);
/// How much earlier than the worker Kafka's client library gives a record up.
const KAFKA_ANSWER_MARGIN: Duration = Duration::from_secs(5);
/// The longest pause before a lane that cannot be used is tried again. Trying writes nothing into the log.
const LANE_REOPEN_MAX: Duration = Duration::from_secs(5);

/// Runs the server of a checked configuration until it is told to stop.
///
/// # Errors
/// What kept it from starting, or broke it.
pub(crate) fn serve(config: &Configuration, test_clock: Option<&Path>) -> anyhow::Result<()> {
    data_folder::refuse_newer(&config.server.data)?;
    let connections_max = open_files::connections_max()?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .thread_name("http")
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    runtime.block_on(run(config, test_clock, connections_max))
}

async fn run(config: &Configuration, test_clock: Option<&Path>, connections_max: usize) -> anyhow::Result<()> {
    let data = &config.server.data;
    std::fs::create_dir_all(data).with_context(|| format!("cannot create {}", data.display()))?;
    let clock = time::trusted_clock(&config.clock, test_clock)?;
    let resources = StoreResources::new(ResourceOptions {
        cache_bytes_max: config.storage.cache_bytes_max.size(),
        memtable_bytes_max: config.storage.write_buffer_bytes_max.size(),
        ..ResourceOptions::default()
    })?;
    let embedded = open_embedded(data, &resources, &clock)?;
    let records = Records::new(Arc::new(EmbeddedMetadata::new(&embedded)));
    let key = bootstrap::signing_key(data)?;
    let limits = config.genesis_limits();
    let seed = RouteSeed { tenant: &config.server.tenant, shards: config.server.shards, limits, key: &key };
    let route = bootstrap::default_route(&records, &seed).await?;

    let (stop_http, http_stopped) = watch::channel(false);
    let (stop_shards, shards_stopped) = watch::channel(false);
    let parts = Parts { config, clock, resources, embedded, records, key };
    let is_new = route.state == RouteState::Creating;
    let (entry, threads, metrics) = start_route(&parts, route, &shards_stopped).await?;
    if is_new {
        // Nothing may come before the genesis in a shard's log.
        begin_route(&parts, &entry.shards).await?;
    }
    let server = Server::bind(gateway_parts(&parts, entry, metrics)?, config.server.listen, connections_max)?;
    announce(&parts, &server);

    let served = {
        let serving = server.serve(http_stopped);
        tokio::pin!(serving);
        tokio::select! {
            served = &mut serving => served.map_err(anyhow::Error::from),
            never = time::watch(&parts.clock) => match never {},
            signal = stop_signal() => {
                tracing::info!(signal, "stopping");
                let _ = stop_http.send(true);
                // Readers that follow a topic never finish by themselves.
                tokio::time::timeout(HTTP_DRAIN, serving).await.unwrap_or(Ok(())).map_err(anyhow::Error::from)
            }
            reason = parts.embedded.closed() => {
                tracing::error!(reason, "the embedded log closed itself; stopping");
                let _ = stop_http.send(true);
                // Whoever waits for an answer gets one, if only that nobody knows.
                let _ = tokio::time::timeout(HTTP_DRAIN, serving).await;
                Err(anyhow::Error::msg(data_folder::refused(&format!("the embedded log closed itself: {reason}"))))
            }
        }
    };
    // What was admitted is finished before the log goes.
    let _ = stop_shards.send(true);
    for thread in threads {
        if thread.join().is_err() {
            tracing::error!("a shard's thread has panicked");
        }
    }
    parts.embedded.close();
    tracing::info!("stopped");
    served
}

/// What every part of a server is made from.
struct Parts<'a> {
    config: &'a Configuration,
    clock: TrustedClock,
    resources: StoreResources,
    embedded: Embedded,
    records: Records,
    key: SigningKey,
}

fn open_embedded(data: &Path, resources: &StoreResources, clock: &TrustedClock) -> anyhow::Result<Embedded> {
    let mut incarnation = [0; 16];
    fill_random(&mut incarnation);
    let options = EmbeddedOptions { new_incarnation: incarnation, ..EmbeddedOptions::new(resources.clone()) };
    let clock = clock.clone();
    let append_time = Arc::new(move || clock.append_time_ms());
    match Embedded::open(&data_folder::embedded(data), options, append_time) {
        Ok(embedded) => Ok(embedded),
        Err(OpenError::Lock(error)) => Err(error).with_context(|| {
            format!("data folder {} is used by another server; each needs its own (--data)", data.display())
        }),
        Err(error @ (OpenError::Io { .. } | OpenError::Database(store::OpenError::Io { .. }))) => {
            bail!(data_folder::refused(&error))
        }
        Err(error) => bail!(data_folder::damaged(&error)),
    }
}

/// Starts every shard of a route on a few threads.
async fn start_route(
    parts: &Parts<'_>,
    record: RouteRecord,
    stop: &watch::Receiver<bool>,
) -> anyhow::Result<(RouteEntry, Vec<JoinHandle<()>>, Arc<Metrics>)> {
    let damaged = || format!("the record of route {} is damaged", record.name);
    let RouteLog::Embedded { topic, topic_id } = &record.log;
    let topic_id = parse_uuid(topic_id).with_context(damaged)?;
    let partition_count = NonZeroU32::new(record.partition_count()).with_context(damaged)?;
    let topic = parts.embedded.create_internal_topic(topic, partition_count.get(), topic_id).await?;
    let retention = Retention {
        bytes_max: parts.config.storage.log_bytes_max.0,
        age_max: parts.config.storage.log_age_max.duration(),
    };
    let metrics = Arc::new(Metrics::default());
    let worker_config = worker_config(parts.config);
    let budget = Arc::new(SharedBudget::new(worker_config.load_max, worker_config.scheduler.round_robin));
    let destinations = destinations(parts);

    let mut seeds = Vec::new();
    let mut first_genesis = None;
    for (shard, genesis) in record.shards().with_context(damaged)? {
        let genesis_hash = genesis.mutation_hash().with_context(damaged)?;
        let genesis_frame = genesis.frame().with_context(damaged)?;
        first_genesis.get_or_insert(bootstrap::read_genesis(&genesis_frame)?);
        let partition = topic.partition(shard.partition).with_context(damaged)?;
        let log: Arc<dyn ShardLog> = Arc::new(EmbeddedLog::new(shard.route, partition).with_retention(retention));
        let (store, store_incarnation) = store_opener(parts, shard);
        seeds.push(ShardSeed {
            identity: ShardIdentity { shard, genesis_hash },
            genesis_frame,
            log,
            records: parts.records.clone(),
            destinations: destinations.clone(),
            open_store: store,
            store_incarnation,
            key: (KEY_VERSION, parts.key.clone()),
            config: worker_config.clone(),
            budget: budget.clone(),
            metrics: metrics.clone(),
        });
    }
    let genesis = first_genesis.with_context(damaged)?;
    warn_of_other_limits(parts.config, &genesis);
    let (shards, threads) = spawn_shards(parts, seeds, stop).await?;
    let snapshot = RouteSnapshot {
        route: genesis.shard.route,
        partition_count,
        tenant_scope: tenant_scope(&record.tenant),
        limits: genesis.limits,
        past_ms_max: parts.config.limits.past_max.0,
    };
    Ok((RouteEntry { record, snapshot, shards }, threads, metrics))
}

/// Opens a shard's store, at its start and after every loss.
type OpenStore = Box<dyn Fn() -> Result<RocksStore, StoreError> + Send>;

/// What a shard is made from, as far as it can change threads.
struct ShardSeed {
    identity: ShardIdentity,
    genesis_frame: bytes::Bytes,
    log: Arc<dyn ShardLog>,
    records: Records,
    destinations: Arc<Destinations>,
    open_store: OpenStore,
    store_incarnation: [u8; 16],
    key: (u32, SigningKey),
    config: WorkerConfig,
    budget: Arc<SharedBudget>,
    metrics: Arc<Metrics>,
}

fn store_opener(parts: &Parts<'_>, shard: ShardId) -> (OpenStore, [u8; 16]) {
    let folder = data_folder::shards(&parts.config.server.data);
    let folder = folder.join(shard.route.to_string()).join(shard.partition.to_string());
    let resources = parts.resources.clone();
    let mut incarnation = [0; 16];
    fill_random(&mut incarnation);
    let open = move || {
        let identity = shard.to_string();
        std::fs::create_dir_all(&folder).map_err(|error| StoreError::Io { detail: error.to_string() })?;
        RocksStore::open(&folder, identity.as_bytes(), incarnation, &resources, &StoreOptions::default()).map_err(
            |error| match error {
                store::OpenError::Io { .. } => StoreError::Io { detail: error.to_string() },
                error => StoreError::Corrupt { detail: data_folder::damaged(&error) },
            },
        )
    };
    (Box::new(open), incarnation)
}

/// Runs shards on as many threads as there are processors; each thread's runtime blocks only in its shards' commits.
async fn spawn_shards(
    parts: &Parts<'_>,
    seeds: Vec<ShardSeed>,
    stop: &watch::Receiver<bool>,
) -> anyhow::Result<(Vec<ShardHandle>, Vec<JoinHandle<()>>)> {
    let thread_count = std::thread::available_parallelism().map_or(2, usize::from).min(seeds.len()).max(1);
    let mut by_thread: Vec<Vec<ShardSeed>> = (0..thread_count).map(|_| Vec::new()).collect();
    for (index, seed) in seeds.into_iter().enumerate() {
        by_thread[index % thread_count].push(seed);
    }
    let (mut handles, mut threads) = (Vec::new(), Vec::new());
    for (index, seeds) in by_thread.into_iter().enumerate() {
        let (clock, stop) = (parts.clock.clone(), stop.clone());
        let (report, started) = tokio::sync::oneshot::channel();
        let thread = std::thread::Builder::new()
            .name(format!("shards-{index}"))
            .spawn(move || run_thread(seeds, clock, &stop, report))
            .context("cannot start a thread")?;
        threads.push(thread);
        handles.extend(started.await.context("a shard's thread did not start")?);
    }
    handles.sort_by_key(ShardHandle::shard);
    Ok((handles, threads))
}

fn run_thread(
    seeds: Vec<ShardSeed>,
    clock: TrustedClock,
    stop: &watch::Receiver<bool>,
    report: tokio::sync::oneshot::Sender<Vec<ShardHandle>>,
) {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            tracing::error!(%error, "a shard's thread cannot start its runtime");
            return;
        }
    };
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, async {
        let env = HostEnv::new(clock);
        let (handles, lives): (Vec<_>, Vec<_>) = seeds
            .into_iter()
            .map(|seed| {
                let ShardSeed { identity, genesis_frame, log, records, destinations, open_store, .. } = seed;
                let ShardSeed { store_incarnation, key, config, budget, metrics, .. } = seed;
                let parts = ShardParts {
                    identity,
                    genesis_frame,
                    log,
                    records,
                    destinations,
                    open_store,
                    store_incarnation,
                    key,
                    config,
                    budget,
                    metrics,
                };
                shard(parts, env.clone(), stop.clone())
            })
            .unzip();
        if report.send(handles).is_ok() {
            futures_util::future::join_all(lives).await;
        }
    });
}

fn destinations(parts: &Parts<'_>) -> Arc<Destinations> {
    let embedded: Arc<dyn Destination> = Arc::new(EmbeddedDestination::new(parts.embedded.clone()));
    let clock = parts.clock.clone();
    let kafka: Arc<dyn Destination> = Arc::new(KafkaDestination::new(KafkaOptions {
        connections: kafka_connections(parts),
        environment: environment(),
        now_ms: Arc::new(move || clock.carried().midpoint_ms()),
        delivery_timeout: kafka_delivery_timeout(parts.config.delivery.send_deadline.duration()),
    }));
    Arc::new(BTreeMap::from([(AdapterKind::Embedded, embedded), (AdapterKind::Kafka, kafka)]))
}

/// The client library gives a record up before the worker does, so that what was never sent is known not to be.
fn kafka_delivery_timeout(send_deadline: Duration) -> Duration {
    send_deadline.saturating_sub(KAFKA_ANSWER_MARGIN).max(send_deadline / 2)
}

/// A destination's connection is in its record, under the version that the lane is bound to.
fn kafka_connections(parts: &Parts<'_>) -> Connections {
    let (records, tenant) = (parts.records.clone(), parts.config.server.tenant.clone());
    Arc::new(move |profile_id, version| {
        let (records, tenant) = (records.clone(), tenant.clone());
        Box::pin(async move {
            let name = String::from_utf8_lossy(&profile_id);
            let stored = records
                .get::<DestinationRecord>(&control::destination::key(&tenant, &name))
                .await
                .map_err(|error| error.to_string())?
                .ok_or_else(|| format!("destination {name:?} has no record"))?;
            let found = stored.record.version(version).and_then(|version| version.spec.get("kafka").cloned());
            found.ok_or_else(|| format!("version {version} of destination {name:?} has no Kafka connection"))
        })
    })
}

/// Where references of the form env:NAME lead.
#[expect(clippy::disallowed_methods, reason = "secrets are named in requests and read when a client is made")]
fn environment() -> ReadEnvironment {
    Arc::new(|name| std::env::var(name).ok())
}

fn worker_config(config: &Configuration) -> WorkerConfig {
    let delivery = &config.delivery;
    let largest_record = u64::from(RECORD_BYTES_MAX);
    let round_robin = RoundRobinConfig { quantum: 64 << 10, deficit_max: 2 * largest_record, cost_min: 512 };
    let load_max = Load { messages: delivery.messages_max, bytes: delivery.bytes_max.0 };
    WorkerConfig {
        worker: config.server.worker.clone(),
        scheduler: SchedulerConfig {
            window_entries_max: delivery.window_entries_max,
            page_length: 1_024,
            pages_per_turn_max: 16,
            window_ahead_ms: delivery.window_ahead.0,
            claim_lead_ms: delivery.claim_lead.0,
            claims_per_turn_max: 512,
            lane_load_max: Load { messages: delivery.lane_messages_max, bytes: delivery.lane_bytes_max.0 },
            shard_load_max: load_max,
            round_robin,
            circuit: CircuitConfig {
                open_min: delivery.circuit_pause_min.duration(),
                open_max: delivery.circuit_pause_max.duration(),
            },
        },
        load_max,
        run_records_max: delivery.run_records_max,
        run_bytes_max: 4 << 20,
        records_in_flight_max: 2,
        append_retry_delay: Duration::from_millis(20),
        entries_per_record_max: 512,
        send_deadline: delivery.send_deadline.duration(),
        recovery_deadline: delivery.recovery_deadline.duration(),
        lane_reopen_min: delivery.circuit_pause_min.duration(),
        lane_reopen_max: delivery.circuit_pause_max.duration().min(LANE_REOPEN_MAX),
        fence_interval_max: delivery.fence_interval_max.duration(),
        fence_interval_min: Duration::from_millis(100),
        expire_per_fence_max: config.limits.expire_per_fence_max,
        release_interval: Duration::from_secs(10),
        drain_deadline: config.server.drain_deadline.duration(),
        reacquire_pause: Duration::from_secs(1),
        verdicts_kept_max: 65_536,
        end_watchers_max: 100_000,
    }
}

fn gateway_parts(parts: &Parts<'_>, entry: RouteEntry, worker_metrics: Arc<Metrics>) -> anyhow::Result<GatewayParts> {
    let config = parts.config;
    let http = &config.http;
    let embedded: Arc<dyn TargetSystem> =
        Arc::new(EmbeddedTargets::new(parts.embedded.clone(), EMBEDDED_RECORD_BYTES_MAX));
    let kafka: Arc<dyn TargetSystem> = Arc::new(KafkaTargets::new(environment(), KAFKA_RECORD_BYTES_MAX));
    // The route's own id: no other server has it, and this one keeps it over restarts.
    let instance = format!("nereus-delay-{}", entry.record.route);
    let sources: Arc<dyn SourceSystem> = Arc::new(KafkaSources::new(environment(), &instance));
    let defaults = &config.destinations;
    let Some(routes) = RouteTable::new(vec![entry]) else { bail!("the default route has no shards") };
    Ok(GatewayParts {
        config: GatewayConfig {
            tenant: config.server.tenant.clone(),
            principal: config.server.worker.clone(),
            destination_defaults: DestinationDefaults {
                expires_after_ms: defaults.expires_after.0,
                delay_ms_max: config.limits.delay_max.0,
                initial_backoff_ms: defaults.initial_backoff.0.unsigned_abs(),
                backoff_ms_max: defaults.backoff_max.0.unsigned_abs(),
                attempts_max: defaults.attempts_max,
                retry_duration_ms_max: defaults.retry_duration_max.0.unsigned_abs(),
                uncertain_retries_max: defaults.uncertain_retries_max,
            },
            destination_refresh_interval: defaults.refresh_interval.duration(),
            wait_default: http.wait_default.duration(),
            wait_max: http.wait_max.duration(),
            body_bytes_max: http.body_bytes_max.size(),
            batch_bytes_max: http.batch_bytes_max.size(),
            bodies_bytes_max: http.bodies_bytes_max.size(),
            batch_messages_max: http.batch_messages_max,
            requests_max: http.requests_max,
            idempotency_retention: http.idempotency_retention.duration(),
            page_items_max: http.page_items_max,
            page_rows_max: http.page_rows_max,
        },
        clock: parts.clock.clone(),
        fill_random: Box::new(fill_random),
        records: parts.records.clone(),
        routes,
        systems: BTreeMap::from([("embedded", embedded), ("kafka", kafka)]),
        sources: BTreeMap::from([("kafka", sources)]),
        topics: Arc::new(EmbeddedTopics::new(parts.embedded.clone())),
        control_key: (KEY_VERSION, parts.key.clone()),
        worker_metrics,
        read_storage: Box::new(storage_reader(parts)),
    })
}

fn storage_reader(parts: &Parts<'_>) -> impl Fn() -> StorageFigures + Send + Sync + use<> {
    let (embedded, resources) = (parts.embedded.clone(), parts.resources.clone());
    move || {
        let stats = embedded.stats();
        StorageFigures {
            log_records: stats.record_count,
            log_record_bytes: stats.record_bytes,
            log_commits: stats.commit_count,
            log_keys_written: stats.key_count,
            log_disk_bytes: stats.disk_bytes,
            cache_bytes: resources.cache_bytes() as u64,
            write_buffer_bytes: resources.memtable_bytes() as u64,
        }
    }
}

/// Waits until every shard of a new route has begun its log, and makes the route usable.
async fn begin_route(parts: &Parts<'_>, shards: &[ShardHandle]) -> anyhow::Result<()> {
    for shard in shards {
        shard.active().await.context("a new shard cannot begin")?;
    }
    bootstrap::route_is_active(&parts.records, DEFAULT_ROUTE).await?;
    Ok(())
}

/// The one line on standard output: scripts wait for it, and read the address from it.
#[expect(clippy::print_stdout, reason = "this line is the command's output")]
fn announce(parts: &Parts<'_>, server: &Server) {
    let version = env!("CARGO_PKG_VERSION");
    println!("nereus-delay {version} listening on http://{}", server.address());
    // A closed standard output does not stop a server.
    let _ = std::io::stdout().flush();
    tracing::info!(data = %parts.config.server.data.display(), address = %server.address(), "listening");
}

fn warn_of_other_limits(config: &Configuration, genesis: &Genesis) {
    let configured = config.genesis_limits();
    if configured != genesis.limits {
        tracing::warn!(
            ?configured,
            in_force = ?genesis.limits,
            "the configured limits differ from those the route was made with; the route's hold"
        );
    }
}

async fn stop_signal() -> &'static str {
    use tokio::signal::unix::{SignalKind, signal};

    let (Ok(mut terminate), Ok(mut interrupt)) = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
    else {
        tracing::error!("signals cannot be watched; only killing the process will stop it");
        return std::future::pending().await;
    };
    tokio::select! {
        _ = terminate.recv() => "SIGTERM",
        _ = interrupt.recv() => "SIGINT",
    }
}
