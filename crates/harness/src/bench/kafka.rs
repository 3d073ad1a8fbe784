//! The run with a Kafka broker beside the server: throughput, lateness and a burst against the same records produced to the same
//! broker without us, and what a neighbour of a destination in trouble notices.

use std::path::Path;

use anyhow::Context as _;
use client::api::destination::{Destination, DestinationSpec};
use client::api::kafka::KafkaConnection;
use hyper::Method;

use super::bodies::Bodies;
use super::figure::Figures;
use super::neighbour::{self, Neighbour};
use super::place::{KafkaPlace, Place};
use super::raw_kafka::{self, RawKafka};
use super::reading::Reading;
use super::sample::{Percentiles, count};
use super::scale::Scale;
use super::stage::{self, BATCH_CONNECTIONS, Costs, Stage, Subject};
use super::{DESTINATION, PARTITIONS, RATE_EXPECTED, TOPIC};
use crate::console::{grouped, say};
use crate::kafka::{Broker, Outgoing};
use crate::process::{ServerOptions, ServerProcess, Usage};

/// Delivered records that are produced again without us.
const SAMPLE_LENGTH: usize = 50_000;
const SAMPLE_LIMIT: std::time::Duration = std::time::Duration::from_secs(60);
/// How many bursts' messages are delivered with nothing else to do.
const ALONE_BURSTS: u64 = 4;
/// Of raw produce, on two processors with the broker beside us.
const SHARE_EXPECTED: f64 = 0.25;
const NEIGHBOUR_RATIO_MAX: f64 = 1.5;

/// Measures everything.
pub(crate) async fn measure(scale: Scale, options: ServerOptions, folder: &Path) -> anyhow::Result<Figures> {
    say("starting a broker");
    let broker = Broker::start(&folder.join("kafka")).await?;
    broker.cluster()?.create_topic(TOPIC, i32::try_from(PARTITIONS)?, &[]).await?;
    let place = Place::Kafka(KafkaPlace { cluster: broker.cluster()?, topic: TOPIC.to_owned() });
    let mut run = Run { figures: Figures::new(scale.kafka_text()), scale, broker, place };
    run.deliveries(&options).await?;
    run.neighbour(&options, folder).await?;
    // Last: what it writes in seconds keeps the disk busy for longer than that, and a neighbour would notice.
    run.raw().await?;
    run.compare();
    Ok(run.figures)
}

struct Run {
    scale: Scale,
    figures: Figures,
    broker: Broker,
    place: Place,
}

impl Run {
    /// What the server delivers, and when.
    async fn deliveries(&mut self, options: &ServerOptions) -> anyhow::Result<()> {
        let server = ServerProcess::start_ready(options).await?;
        create_destination(&server, DESTINATION, connection(&self.broker.bootstrap(), TOPIC)).await?;
        let pending = self.scale.kafka_level().pending;
        say(&format!("{} messages pending", grouped(pending)));
        stage::fill(&server, "fill", pending).await?;

        let (warm_up, span) = (self.scale.warm_up, self.scale.rate_span);
        let broker_before = self.broker.usage()?;
        let subject = Subject { server: &server, place: &self.place };
        let full = stage::saturate(subject, "full rate", Bodies::batches(), BATCH_CONNECTIONS, span).await?;
        let broker_after = self.broker.usage()?;
        let rate = full.steady_rate(warm_up);
        self.figures.add("kafka_schedule_deliver_rate", rate, "messages/s");
        self.figures.add_percentiles(full.lateness(), |kind| format!("kafka_lateness_{kind}_ms_full_load"));
        self.costs("full_load", &full, broker_before, broker_after)?;

        for (suffix, rate) in [("half_load", rate / 2.0), ("at_7500", RATE_EXPECTED / 2.0)] {
            let broker_before = self.broker.usage()?;
            let subject = Subject { server: &server, place: &self.place };
            let name = suffix.replace('_', " ");
            let paced = stage::paced(subject, &name, Bodies::batches(), rate, self.scale.paced_span).await?;
            let broker_after = self.broker.usage()?;
            self.figures.add(format!("kafka_{suffix}_rate"), paced.steady_rate(warm_up), "messages/s");
            self.figures.add_percentiles(paced.lateness(), |kind| format!("kafka_lateness_{kind}_ms_{suffix}"));
            self.costs(suffix, &paced, broker_before, broker_after)?;
        }

        let subject = Subject { server: &server, place: &self.place };
        let burst = stage::burst(subject, "burst", self.scale.burst, rate).await?;
        self.figures.add("kafka_burst_drain_rate", burst.drain_rate(), "messages/s");
        self.figures.add_percentiles(burst.stage.lateness(), |kind| format!("kafka_lateness_{kind}_ms_burst"));

        // The same for longer: what deliveries alone come to, with nothing to be scheduled meanwhile.
        let subject = Subject { server: &server, place: &self.place };
        let alone = stage::burst(subject, "deliveries alone", ALONE_BURSTS * self.scale.burst, rate).await?;
        self.figures.add("kafka_deliver_rate", alone.drain_rate(), "messages/s");
        server.stop().await.map(drop)
    }

    /// What the machine had to do for it. The broker is neither ours nor anything else's.
    fn costs(&mut self, suffix: &str, stage: &Stage, before: Usage, after: Usage) -> anyhow::Result<()> {
        let costs = Costs::of(&stage.before, &stage.after, stage.delivered)?;
        let broker_s = after.cpu.saturating_sub(before.cpu).as_secs_f64();
        let other = other_cores((&stage.before, &stage.after), before, after);
        let figures = &mut self.figures;
        figures.add(format!("kafka_cpu_us_per_message_{suffix}"), costs.cpu_us, "us");
        let broker_us = broker_s * 1e6 / count(stage.delivered.max(1));
        figures.add(format!("kafka_broker_cpu_us_per_message_{suffix}"), broker_us, "us");
        figures.add(format!("kafka_generator_cpu_us_per_message_{suffix}"), costs.generator_cpu_us, "us");
        figures.add(format!("other_cpu_cores_kafka_{suffix}"), other, "cores");
        Ok(())
    }

    /// The same records on the same broker, without us.
    async fn raw(&mut self) -> anyhow::Result<()> {
        let cluster = self.broker.cluster()?;
        let sample = cluster.tail(TOPIC)?.take(SAMPLE_LENGTH.min(usize::try_from(self.scale.burst)?), SAMPLE_LIMIT)?;
        let again = |record: crate::kafka::Record| Outgoing {
            partition: Some(record.partition),
            timestamp_ms: record.timestamp_ms,
            key: record.key,
            value: record.value,
            headers: record.headers,
        };
        let records: Vec<Outgoing> = sample.into_iter().map(again).collect();
        let RawKafka { rate, burst_rate, acknowledged_rate } =
            raw_kafka::measure(&cluster, records, self.scale.raw_span, self.scale.warm_up, self.scale.burst).await?;
        self.figures.add("kafka_raw_rate", rate, "messages/s");
        self.figures.add("kafka_raw_acknowledged_rate", acknowledged_rate, "messages/s");
        self.figures.add("kafka_raw_burst_rate", burst_rate, "messages/s");
        Ok(())
    }

    async fn neighbour(&mut self, options: &ServerOptions, folder: &Path) -> anyhow::Result<()> {
        let options = ServerOptions { folder: folder.join("neighbour"), ..options.clone() };
        let Neighbour { calm, trouble, by_trouble, other_cores } =
            neighbour::measure(&self.broker, &options, self.scale.neighbour_span).await?;
        let figures = &mut self.figures;
        figures.add("neighbour_rate", neighbour::HEALTHY_RATE, "messages/s");
        figures.add("other_cpu_cores_neighbour", other_cores, "cores");
        let all = [("calm", calm), ("trouble", trouble)].into_iter().chain(by_trouble);
        for (name, Percentiles { p50, p99, .. }) in all {
            figures.add(format!("neighbour_lateness_p50_ms_{name}"), p50, "ms");
            figures.add(format!("neighbour_lateness_p99_ms_{name}"), p99, "ms");
            if name != "calm" {
                figures.compare_figures(&format!("neighbour_lateness_p99_ms_{name}"), "neighbour_lateness_p99_ms_calm");
            }
        }
        Ok(())
    }

    /// What each figure is held against.
    fn compare(&mut self) {
        let figures = &mut self.figures;
        let text = "expected at least 0.25";
        let over = ("kafka_deliver_rate", "kafka_raw_rate");
        figures.add_ratio("kafka_deliver_rate_over_raw", over, text, SHARE_EXPECTED);
        let over = ("kafka_burst_drain_rate", "kafka_raw_burst_rate");
        figures.add_ratio("kafka_burst_drain_over_raw", over, text, SHARE_EXPECTED);
        let over = ("neighbour_lateness_p99_ms_trouble", "neighbour_lateness_p99_ms_calm");
        figures.add_ratio("neighbour_lateness_p99_over_calm", over, "expected at most 1.5", NEIGHBOUR_RATIO_MAX);
        figures.compare_figures("kafka_schedule_deliver_rate", "kafka_raw_rate");
        figures.compare_figures("kafka_burst_drain_rate", "kafka_raw_burst_rate");
        figures.compare_figures("kafka_half_load_rate", "kafka_schedule_deliver_rate");
        figures.compare_figures("kafka_raw_acknowledged_rate", "kafka_raw_rate");
    }
}

/// How many processors were busy with neither server nor generator nor broker between two readings.
pub(crate) fn other_cores((before, after): (&Reading, &Reading), broker_before: Usage, broker_after: Usage) -> f64 {
    let broker_s = broker_after.cpu.saturating_sub(broker_before.cpu).as_secs_f64();
    (after.other_cores(before) - broker_s / (after.at - before.at).as_secs_f64()).max(0.0)
}

/// How a topic is reached without authentication.
pub(crate) fn connection(bootstrap: &str, topic: &str) -> KafkaConnection {
    KafkaConnection { bootstrap_servers: bootstrap.to_owned(), topic: topic.to_owned(), ..KafkaConnection::default() }
}

/// Sets a destination up.
pub(crate) async fn create_destination(
    server: &ServerProcess,
    name: &str,
    connection: KafkaConnection,
) -> anyhow::Result<()> {
    let spec = DestinationSpec { kafka: Some(connection), ..DestinationSpec::default() };
    let call = server.client().call(Method::PUT, &["v1", "destinations", name]).json(&spec);
    call.send::<Destination>().await.with_context(|| format!("creating destination {name}")).map(drop)
}
