//! What every request handler shares.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use client::api::problem::{Problem, SurfaceCode};
use clock::TrustedClock;
use control::cas::Records;
use ed25519_dalek::SigningKey;
use ports::source::SourceSystem;
use ports::target::TargetSystem;
use ports::topics::Topics;
use protocol::id::Uuid7;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use worker::metrics::Metrics;

use crate::destinations::{DestinationCache, DestinationDefaults};
use crate::idempotency::KeysInUse;
use crate::ingress::Ingresses;
use crate::metrics::GatewayMetrics;
use crate::routes::RouteTable;

/// In what units the memory for bodies is counted.
const BODY_ROOM_UNIT_BYTES: usize = 1 << 10;

/// Fills a buffer with random bytes.
pub type FillRandom = Box<dyn Fn(&mut [u8]) + Send + Sync>;

/// Reads the figures of what lies below the log and the shards, for metrics.
pub type ReadStorage = Box<dyn Fn() -> StorageFigures + Send + Sync>;

/// Figures of the embedded log and of the memory that all databases share. The counts are since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StorageFigures {
    /// Records appended to shard logs and topics.
    pub log_records: u64,
    /// Bytes of those records.
    pub log_record_bytes: u64,
    /// Group commits that wrote them.
    pub log_commits: u64,
    /// Keys those commits put or deleted.
    pub log_keys_written: u64,
    /// Bytes of the embedded log on disk.
    pub log_disk_bytes: u64,
    /// Blocks, indexes, filters and write buffers of all databases, in bytes.
    pub cache_bytes: u64,
    /// The write buffers among them, in bytes.
    pub write_buffer_bytes: u64,
}

/// Settings of the HTTP surface.
#[derive(Clone, Debug)]
pub struct GatewayConfig {
    /// Whose messages this server takes.
    pub tenant: String,
    /// Who signs operations of operators.
    pub principal: String,
    /// What a destination has where its request says nothing.
    pub destination_defaults: DestinationDefaults,
    /// How often destinations are compared with their topics.
    pub destination_refresh_interval: Duration,
    /// How long a request waits for a verdict when it does not say.
    pub wait_default: Duration,
    /// How long a request may wait.
    pub wait_max: Duration,
    /// The largest body of a single message.
    pub body_bytes_max: usize,
    /// The largest body of a batch.
    pub batch_bytes_max: usize,
    /// All bodies that are being read or answered.
    pub bodies_bytes_max: usize,
    /// Messages in a batch.
    pub batch_messages_max: usize,
    /// Requests being answered at once.
    pub requests_max: usize,
    /// How long an Idempotency-Key is bound.
    pub idempotency_retention: Duration,
    /// Items of a page at most.
    pub page_items_max: usize,
    /// Rows a page may look at.
    pub page_rows_max: usize,
}

/// Everything the gateway is made of.
pub struct GatewayParts {
    /// Settings.
    pub config: GatewayConfig,
    /// The clock that turns delays into times.
    pub clock: TrustedClock,
    /// Randomness for ids.
    pub fill_random: FillRandom,
    /// The metadata store.
    pub records: Records,
    /// Routes and shards.
    pub routes: RouteTable,
    /// Systems that destinations can be on, by their name in requests.
    pub systems: BTreeMap<&'static str, Arc<dyn TargetSystem>>,
    /// Systems whose topics can schedule, by their name in requests.
    pub sources: BTreeMap<&'static str, Arc<dyn SourceSystem>>,
    /// Topics that can be read.
    pub topics: Arc<dyn Topics>,
    /// The control key and its version.
    pub control_key: (u32, SigningKey),
    /// The worker's counters.
    pub worker_metrics: Arc<Metrics>,
    /// Figures of the storage.
    pub read_storage: ReadStorage,
}

/// The gateway.
pub struct Gateway {
    pub(crate) config: GatewayConfig,
    pub(crate) clock: TrustedClock,
    fill_random: FillRandom,
    pub(crate) records: Records,
    pub(crate) routes: RouteTable,
    pub(crate) systems: BTreeMap<&'static str, Arc<dyn TargetSystem>>,
    pub(crate) sources: BTreeMap<&'static str, Arc<dyn SourceSystem>>,
    pub(crate) topics: Arc<dyn Topics>,
    pub(crate) control_key: (u32, SigningKey),
    pub(crate) worker_metrics: Arc<Metrics>,
    pub(crate) read_storage: ReadStorage,
    pub(crate) destinations: DestinationCache,
    pub(crate) ingresses: Ingresses,
    pub(crate) keys_in_use: KeysInUse,
    pub(crate) metrics: GatewayMetrics,
    pub(crate) request_count: AtomicU64,
    body_room: Arc<Semaphore>,
}

impl Gateway {
    /// A gateway that knows no destinations and ingresses yet.
    pub(crate) fn new(parts: GatewayParts) -> Gateway {
        let body_units = parts.config.bodies_bytes_max.max(parts.config.batch_bytes_max).div_ceil(BODY_ROOM_UNIT_BYTES);
        let GatewayParts { config, clock, fill_random, records, routes, systems, topics, .. } = parts;
        let GatewayParts { sources, control_key, worker_metrics, read_storage, .. } = parts;
        Gateway {
            config,
            clock,
            fill_random,
            records,
            routes,
            systems,
            sources,
            topics,
            control_key,
            worker_metrics,
            read_storage,
            destinations: DestinationCache::default(),
            ingresses: Ingresses::default(),
            keys_in_use: KeysInUse::default(),
            metrics: GatewayMetrics::default(),
            request_count: AtomicU64::new(0),
            body_room: Arc::new(Semaphore::new(body_units.min(Semaphore::MAX_PERMITS))),
        }
    }

    pub(crate) fn fill_random(&self, buffer: &mut [u8]) {
        (self.fill_random)(buffer);
    }

    pub(crate) fn random_id(&self) -> [u8; 16] {
        let mut id = [0; 16];
        (self.fill_random)(&mut id);
        id
    }

    /// A fresh version 7 UUID of about now.
    pub(crate) fn fresh_uuid(&self) -> Uuid7 {
        let mut random = [0; 10];
        (self.fill_random)(&mut random);
        let now_ms = self.clock.carried().midpoint_ms().unsigned_abs().min(Uuid7::UNIX_MS_MAX);
        Uuid7::from_parts(now_ms, random).expect("the time was cut to what a uuid holds")
    }

    /// Until when a read waits for its shard to catch up.
    pub(crate) fn read_deadline(&self) -> Instant {
        Instant::now() + self.config.wait_default
    }

    /// Memory for a request's body, waited for.
    pub(crate) async fn body_room(&self, bytes: usize) -> Result<OwnedSemaphorePermit, Problem> {
        let units = u32::try_from(bytes.div_ceil(BODY_ROOM_UNIT_BYTES)).unwrap_or(u32::MAX);
        let closed = |_| Problem::new(SurfaceCode::Unavailable, "the server is stopping; nothing was taken");
        self.body_room.clone().acquire_many_owned(units).await.map_err(closed)
    }

    /// The service's clock, for answers.
    pub(crate) fn now_ms(&self) -> i64 {
        self.clock.carried().midpoint_ms()
    }

    /// The later bound of trusted time: delays count from here, so that none is short.
    pub(crate) fn now_latest_ms(&self) -> i64 {
        self.clock.carried().latest_ms()
    }
}
