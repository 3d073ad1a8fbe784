//! Prometheus metrics, each explained in `docs/metrics.md`. Labels are few and bounded: shard, destination, ingress, partition,
//! kind of event, class of status.

use std::sync::atomic::{AtomicU64, Ordering};

use client::api::admin::Lane;
use client::api::ingress::{IngressRecords, IngressState};
use client::api::problem::{Problem, SurfaceCode};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use worker::handle::ShardStatus;
use worker::metrics::Histogram;

use crate::admin;
use crate::ingress::Entry;
use crate::state::{Gateway, StorageFigures};

/// What the gateway itself counts.
#[derive(Debug, Default)]
pub(crate) struct GatewayMetrics {
    /// Answers by the first digit of their status, 1 to 5.
    answers: [AtomicU64; 5],
    /// Requests refused because too many were being answered.
    pub(crate) requests_shed: AtomicU64,
    /// Requests being answered.
    pub(crate) requests_open: AtomicU64,
    /// Bytes of commands appended to shard logs.
    pub(crate) command_log_bytes: AtomicU64,
}

impl GatewayMetrics {
    pub(crate) fn answered(&self, status: u16) {
        let class = usize::from(status / 100).clamp(1, 5) - 1;
        self.answers[class].fetch_add(1, Ordering::Relaxed);
    }
}

/// One reading of everything.
#[derive(Debug)]
struct Reading {
    shards: Vec<(u32, ShardStatus)>,
    lanes: Vec<Lane>,
    answers: [u64; 5],
    requests_shed: u64,
    requests_open: u64,
    lateness: Buckets,
    commit: Buckets,
    records_applied: u64,
    keys_written: u64,
    bytes_written: u64,
    owner_log_bytes: u64,
    command_log_bytes: u64,
    storage: StorageFigures,
    published_early: u64,
    ingresses: Vec<IngressReading>,
    clock_bound_us: i64,
    clock_qualified: bool,
    clock_synchronised: bool,
    clock_withdrawals: u64,
}

/// One ingress.
#[derive(Debug)]
struct IngressReading {
    name: String,
    records: IngressRecords,
    errors: u64,
    is_running: bool,
    partitions: u64,
    lag: Option<u64>,
}

impl IngressReading {
    fn new(entry: &Entry) -> Option<IngressReading> {
        let (record, status) = (entry.record()?, entry.status());
        Some(IngressReading {
            name: record.name.clone(),
            records: entry.counters.records(),
            errors: entry.counters.errors(),
            is_running: status.state(record.paused).0 == IngressState::Running,
            partitions: status.partitions.len() as u64,
            lag: status.lag().filter(|_| status.is_open),
        })
    }
}

/// A histogram in the units of Prometheus.
#[derive(Debug)]
struct Buckets {
    buckets: Vec<(f64, u64)>,
    count: u64,
    sum: f64,
}

impl Buckets {
    /// From whole numbers of which `per_second` make a second.
    fn new<const N: usize>(histogram: &Histogram<N>, per_second: f64) -> Buckets {
        let (buckets, over, sum) = histogram.snapshot();
        let count = buckets.iter().map(|(_, count)| count).sum::<u64>() + over;
        let mut buckets: Vec<(f64, u64)> =
            buckets.into_iter().map(|(bound, count)| (as_float(bound) / per_second, count)).collect();
        buckets.push((f64::INFINITY, over));
        Buckets { buckets, count, sum: as_float(sum) / per_second }
    }
}

/// Metrics are approximate above 2^53 by their format's nature.
#[expect(clippy::cast_precision_loss, reason = "the exposition format knows floating point only")]
fn as_float(value: u64) -> f64 {
    value as f64
}

/// The metrics as text.
pub(crate) async fn text(gateway: &Gateway) -> Result<String, Problem> {
    let worker = &gateway.worker_metrics;
    let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let clock = gateway.clock.status();
    let reading = Reading {
        shards: gateway.routes.shards().map(|place| (place.handle.shard().partition, place.handle.status())).collect(),
        // Shards that are not active have no lanes to show.
        lanes: admin::lanes(gateway, None).await.map(|list| list.items).unwrap_or_default(),
        answers: gateway.metrics.answers.each_ref().map(load),
        requests_shed: load(&gateway.metrics.requests_shed),
        requests_open: load(&gateway.metrics.requests_open),
        lateness: Buckets::new(&worker.lateness_ms, 1e3),
        commit: Buckets::new(&worker.commit_us, 1e6),
        records_applied: load(&worker.records_applied),
        keys_written: load(&worker.keys_written),
        bytes_written: load(&worker.bytes_written),
        owner_log_bytes: load(&worker.owner_log_bytes),
        command_log_bytes: load(&gateway.metrics.command_log_bytes),
        storage: (gateway.read_storage)(),
        published_early: load(&worker.published_early),
        ingresses: gateway.ingresses.all().iter().filter_map(|entry| IngressReading::new(entry)).collect(),
        clock_bound_us: clock.bound_us,
        clock_qualified: matches!(clock.reading, clock::Reading::Qualified(_)),
        clock_synchronised: clock.synchronised,
        clock_withdrawals: clock.withdrawal_count,
    };
    let mut registry = Registry::with_prefix("nereus_delay");
    registry.register_collector(Box::new(reading));
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry)
        .map_err(|error| Problem::new(SurfaceCode::Internal, error.to_string()))?;
    Ok(text)
}

type Encoded = Result<(), std::fmt::Error>;

impl Collector for Reading {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Encoded {
        self.encode_delivery(&mut encoder)?;
        self.encode_shards(&mut encoder)?;
        self.encode_lanes(&mut encoder)?;
        self.encode_ingresses(&mut encoder)?;
        self.encode_storage(&mut encoder)?;
        self.encode_clock(&mut encoder)?;
        self.encode_http(&mut encoder)
    }
}

impl Reading {
    fn encode_delivery(&self, encoder: &mut DescriptorEncoder<'_>) -> Encoded {
        histogram(
            encoder,
            "delivery_lateness_seconds",
            "From the delivery time until the destination had the message",
            &self.lateness,
        )?;
        counter(
            encoder,
            "published_early",
            "Messages published before their time; not zero means a broken promise",
            self.published_early,
        )?;
        let oldest_ms = self.lanes.iter().map(|lane| lane.due_age_ms).max().unwrap_or(0);
        let oldest = as_float(oldest_ms.unsigned_abs()) / 1e3;
        gauge(
            encoder,
            "oldest_due_age_seconds",
            "How long the first message that waits is overdue, over all lanes",
            oldest,
        )
    }

    fn encode_shards(&self, encoder: &mut DescriptorEncoder<'_>) -> Encoded {
        histogram(encoder, "commit_seconds", "From the start of a commit until it was durable", &self.commit)?;
        counter(encoder, "records_applied", "Log records applied", self.records_applied)?;
        counter(encoder, "store_keys_written", "Keys put or deleted by commits", self.keys_written)?;
        counter(encoder, "store_bytes_written", "Bytes of keys and values written by commits", self.bytes_written)?;
        counter(encoder, "owner_log_bytes", "Bytes of owner records appended to shard logs", self.owner_log_bytes)?;
        counter(encoder, "command_log_bytes", "Bytes of commands appended to shard logs", self.command_log_bytes)?;
        let by_shard = |pick: fn(&ShardStatus) -> u64| {
            self.shards
                .iter()
                .map(move |(partition, status)| ([("shard", partition.to_string())], as_float(pick(status))))
        };
        gauges(
            encoder,
            "shard_active",
            "1 while the shard answers commands",
            by_shard(|status| u64::from(status.is_active())),
        )?;
        gauges(encoder, "owner_epoch", "The owner's epoch", by_shard(|status| status.owner_epoch))?;
        gauges(encoder, "active_messages", "Live messages", by_shard(|status| status.progress.active_messages))?;
        gauges(encoder, "active_bytes", "Bytes of live messages", by_shard(|status| status.progress.active_bytes))?;
        let events = self.shards.iter().flat_map(|(partition, status)| {
            let totals = admin::totals(status.progress.totals.unwrap_or_default());
            let events = [
                ("scheduled", totals.scheduled),
                ("rescheduled", totals.rescheduled),
                ("canceled", totals.canceled),
                ("published", totals.published),
                ("expired", totals.expired),
                ("dead_lettered", totals.dead_lettered),
                ("admitted", totals.admitted),
                ("retried", totals.retried),
                ("command_rejected", totals.commands_rejected),
                ("command_duplicate", totals.commands_duplicate),
                ("record_quarantined", totals.records_quarantined),
                ("mutation_stale", totals.mutations_stale),
                ("entry_failed", totals.entries_failed),
            ];
            events.map(|(event, count)| ([("shard", partition.to_string()), ("event", event.to_owned())], count))
        });
        counters(encoder, "events", "What happened in each shard since it was made", events)
    }

    fn encode_lanes(&self, encoder: &mut DescriptorEncoder<'_>) -> Encoded {
        let labels = |lane: &Lane| {
            [
                ("destination", lane.destination.clone()),
                ("shard", lane.shard.to_string()),
                ("partition", lane.partition.to_string()),
            ]
        };
        let by_lane = |pick: fn(&Lane) -> u64| self.lanes.iter().map(move |lane| (labels(lane), as_float(pick(lane))));
        gauges(
            encoder,
            "lane_ready",
            "1 while the lane can be sent to and its gate is open",
            by_lane(|lane| u64::from(lane.readiness == "ready" && lane.gate == "open" && lane.circuit == "closed")),
        )?;
        gauges(
            encoder,
            "lane_scheduled",
            "Messages of the lane that wait for their time",
            by_lane(|lane| lane.scheduled),
        )?;
        gauges(
            encoder,
            "lane_retrying",
            "Messages of the lane that wait for another attempt",
            by_lane(|lane| lane.retrying),
        )?;
        gauges(
            encoder,
            "lane_publishing",
            "Messages of the lane with an attempt under way",
            by_lane(|lane| lane.publishing),
        )?;
        gauges(
            encoder,
            "lane_uncertain",
            "Messages of the lane with an attempt nobody can vouch for",
            by_lane(|lane| lane.uncertain),
        )?;
        gauges(encoder, "lane_in_flight", "Messages of the lane claimed or sent", by_lane(|lane| lane.in_flight))?;
        gauges(
            encoder,
            "lane_due_age_seconds",
            "How long the lane's first message is overdue",
            self.lanes.iter().map(|lane| (labels(lane), as_float(lane.due_age_ms.unsigned_abs()) / 1e3)),
        )
    }

    fn encode_ingresses(&self, encoder: &mut DescriptorEncoder<'_>) -> Encoded {
        let records = self.ingresses.iter().flat_map(|ingress| {
            let outcomes = [
                ("scheduled", ingress.records.scheduled),
                ("rescheduled", ingress.records.rescheduled),
                ("canceled", ingress.records.canceled),
                ("refused", ingress.records.refused),
                ("skipped", ingress.records.skipped),
            ];
            outcomes
                .map(|(outcome, count)| ([("ingress", ingress.name.clone()), ("outcome", outcome.to_owned())], count))
        });
        counters(
            encoder,
            "ingress_records",
            "What became of records of each ingress since the server started",
            records,
        )?;
        let by_ingress = |pick: fn(&IngressReading) -> Option<u64>| {
            self.ingresses
                .iter()
                .filter_map(move |ingress| Some(([("ingress", ingress.name.clone())], as_float(pick(ingress)?))))
        };
        gauges(
            encoder,
            "ingress_running",
            "1 while the ingress takes records",
            by_ingress(|ingress| Some(u64::from(ingress.is_running))),
        )?;
        gauges(
            encoder,
            "ingress_partitions",
            "Partitions that this server reads for the ingress",
            by_ingress(|ingress| Some(ingress.partitions)),
        )?;
        gauges(
            encoder,
            "ingress_lag_records",
            "Offsets between what the ingress has settled and the ends of those partitions",
            by_ingress(|ingress| ingress.lag),
        )?;
        let errors = self.ingresses.iter().map(|ingress| ([("ingress", ingress.name.clone())], ingress.errors));
        counters(encoder, "ingress_errors", "How often something kept the ingress from taking records", errors)
    }

    fn encode_storage(&self, encoder: &mut DescriptorEncoder<'_>) -> Encoded {
        let storage = &self.storage;
        counter(encoder, "embedded_records", "Records appended to shard logs and topics", storage.log_records)?;
        counter(encoder, "embedded_record_bytes", "Bytes of those records", storage.log_record_bytes)?;
        counter(encoder, "embedded_commits", "Group commits of the embedded log", storage.log_commits)?;
        counter(encoder, "embedded_keys_written", "Keys put or deleted by them", storage.log_keys_written)?;
        gauge(encoder, "embedded_disk_bytes", "Bytes of the embedded log on disk", as_float(storage.log_disk_bytes))?;
        gauge(
            encoder,
            "storage_cache_bytes",
            "Blocks, indexes, filters and write buffers of all databases",
            as_float(storage.cache_bytes),
        )?;
        gauge(
            encoder,
            "storage_write_buffer_bytes",
            "The write buffers among them",
            as_float(storage.write_buffer_bytes),
        )
    }

    fn encode_clock(&self, encoder: &mut DescriptorEncoder<'_>) -> Encoded {
        let bound = as_float(self.clock_bound_us.unsigned_abs()) / 1e6;
        gauge(encoder, "clock_bound_seconds", "How far the clock may be off; part of every lateness", bound)?;
        gauge(encoder, "clock_qualified", "1 while the clock is trusted", f64::from(u8::from(self.clock_qualified)))?;
        gauge(
            encoder,
            "clock_synchronised",
            "1 while the kernel vouches for its clock",
            f64::from(u8::from(self.clock_synchronised)),
        )?;
        counter(encoder, "clock_withdrawals", "How often trust in the clock was withdrawn", self.clock_withdrawals)
    }

    fn encode_http(&self, encoder: &mut DescriptorEncoder<'_>) -> Encoded {
        let classes = ["1xx", "2xx", "3xx", "4xx", "5xx"];
        let answers =
            classes.into_iter().zip(self.answers).map(|(class, count)| ([("status", class.to_owned())], count));
        counters(encoder, "http_answers", "HTTP answers by class of status", answers)?;
        counter(
            encoder,
            "http_requests_shed",
            "Requests refused because too many were being answered",
            self.requests_shed,
        )?;
        gauge(encoder, "http_requests_open", "Requests being answered", as_float(self.requests_open))
    }
}

fn counter(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: u64) -> Encoded {
    let metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    ConstCounter::new(value).encode(metric)
}

fn gauge(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: f64) -> Encoded {
    let metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    ConstGauge::new(value).encode(metric)
}

fn counters<const N: usize>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    values: impl Iterator<Item = ([(&'static str, String); N], u64)>,
) -> Encoded {
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    for (labels, value) in values {
        ConstCounter::new(value).encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}

fn gauges<const N: usize>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    values: impl Iterator<Item = ([(&'static str, String); N], f64)>,
) -> Encoded {
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for (labels, value) in values {
        ConstGauge::new(value).encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}

fn histogram(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, values: &Buckets) -> Encoded {
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
    metric.encode_histogram::<NoLabelSet>(values.sum, values.count, &values.buckets, None)
}
