//! The benchmark: a release server with default settings, scheduled to over HTTP and consumed from over HTTP, with few, many and
//! very many other messages pending, and RocksDB alone beside it in the same run. Or, in a run of its own, a server that delivers
//! to a Kafka broker, and that broker alone.
//!
//! [`scale`] says how much, [`stage`] runs one load with its consumer, [`place`] says where that consumer is, [`restart`]
//! measures starts and memory, [`raw`] is RocksDB alone, [`kafka`] is the run with a broker, [`document`] is what people read. A
//! figure that a name does not qualify is measured with the most messages pending.

mod bodies;
mod connection;
mod consume;
mod document;
pub mod figure;
mod kafka;
mod load;
mod neighbour;
mod place;
mod raw;
mod raw_kafka;
mod reading;
mod restart;
mod sample;
mod scale;
mod stage;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use client::api::destination::{Destination, DestinationSpec, EmbeddedSpec};
use hyper::Method;
use tokio::time::Instant;

use self::bodies::Bodies;
use self::figure::Figures;
use self::place::Place;
use self::raw::{Part, Raw, Shape};
use self::reading::Reading;
use self::sample::{Percentiles, count};
use self::scale::{Level, Scale};
use self::stage::{BATCH_CONNECTIONS, Costs, SINGLE_CONNECTIONS, Subject, Written};
use crate::console::{grouped, say};
use crate::process::{ServerOptions, ServerProcess};
use crate::run_folder::RunFolder;

/// The destination of every message.
const DESTINATION: &str = "bench";
const TOPIC: &str = "bench.due";
const PARTITIONS: u32 = 4;
/// Messages a second that two processors are to keep up with; lateness is promised at half of it.
const RATE_EXPECTED: f64 = 15_000.0;
/// The default, written down so that the benchmark knows when the cache is full.
const CACHE_BYTES: u64 = 256 << 20;
const CONFIG: &str = "\
[storage]
cache_bytes_max = \"256MiB\"
";

/// Where messages go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// To a topic of the server's own log.
    Embedded,
    /// To a topic of a Kafka broker that belongs to the run.
    Kafka,
}

/// What to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The server's program.
    pub binary: PathBuf,
    /// Where messages go.
    pub target: Target,
    /// The same figures at a smaller scale.
    pub is_quick: bool,
    /// Keep the run's folder.
    pub keep: bool,
    /// Where the run's folder is made; where temporary files go, if not given.
    pub parent: Option<PathBuf>,
}

/// What a run came to.
#[derive(Clone, Debug)]
pub struct Report {
    /// Every figure.
    pub figures: Figures,
    /// The machine it ran on.
    pub machine: String,
    /// How long all of it took.
    pub took: Duration,
    /// Where messages went.
    pub target: Target,
    /// Whether it was at the smaller scale.
    pub is_quick: bool,
    /// The run's folder, where it was kept.
    pub folder: Option<PathBuf>,
}

impl Report {
    /// The tables, for a terminal.
    pub fn text(&self) -> String {
        document::text(&self.figures)
    }

    /// The page of a document with the tables of this run in place of those it has.
    ///
    /// # Errors
    /// When the page has no place for them.
    pub fn page(&self, page: &str) -> anyhow::Result<String> {
        document::page(page, self)
    }
}

/// Whether a page has a place for the tables.
///
/// # Errors
/// When it has none.
pub fn check_page(page: &str, target: Target) -> anyhow::Result<()> {
    document::split(page, target).map(drop)
}

/// Measures everything.
///
/// # Errors
/// When a stage could not be carried out, or a message arrived early; the folder is kept then.
pub async fn run(options: &Options) -> anyhow::Result<Report> {
    let began = Instant::now();
    let scale = if options.is_quick { Scale::quick() } else { Scale::full() };
    let folder = RunFolder::new(options.parent.as_deref(), "bench")?;
    let mut server = ServerOptions::new(&options.binary, folder.path().join("server"));
    server.config = CONFIG.to_owned();
    let measured = match options.target {
        Target::Embedded => {
            let mut run = Run { figures: Figures::new(scale.text()), scale, options: server };
            run.measure(folder.path()).await.map(|()| run.figures)
        }
        Target::Kafka => kafka::measure(scale, server, folder.path()).await,
    };
    let figures = match measured {
        Ok(figures) => figures,
        Err(error) => {
            let kept = folder.keep();
            return Err(error.context(format!("the run broke off; its folder is {}", kept.display())));
        }
    };
    let folder = options.keep.then(|| folder.keep());
    Ok(Report {
        figures,
        machine: document::machine(),
        took: began.elapsed(),
        target: options.target,
        is_quick: options.is_quick,
        folder,
    })
}

struct Run {
    scale: Scale,
    options: ServerOptions,
    figures: Figures,
}

impl Run {
    async fn measure(&mut self, folder: &Path) -> anyhow::Result<()> {
        let mut server = ServerProcess::start_ready(&self.options).await?;
        create_destination(&server).await?;
        let (mut scheduled, mut lived) = (None, None);
        let mut pending = 0;
        for level in self.scale.levels {
            let more = level.pending - pending;
            pending = level.pending;
            say(&format!("{} messages pending", grouped(pending)));
            let name = format!("fill, {}", level.label);
            let (before, after) = stage::fill(&server, &name, more).await?;
            scheduled = Some(self.filled(level, &before, &after, more)?);

            let took;
            (server, took) = restart::restart(server, &self.options).await?;
            say(&format!("  restart, {}: first delivery after {} ms", level.label, took.as_millis()));
            self.add("restart_to_first_delivery_ms", level, took.as_secs_f64() * 1e3, "ms");
            lived = Some(self.rates(&server, level).await?);
            self.burst(&server, level).await?;
            if level.label != self.scale.levels[0].label {
                let name = format!("resident_memory_{}", level.label);
                self.figures.add(name, restart::resident_mib(&server).await?, "MiB");
            }
        }
        self.singles(&server).await?;
        server.stop().await?;
        self.raw(&folder.join("raw"), scheduled.zip(lived))?;
        self.compare();
        Ok(())
    }

    /// Adds a figure of a level: the most pending under the bare name, the others with theirs.
    fn add(&mut self, name: &str, level: Level, value: f64, unit: &'static str) {
        self.figures.add(self.name(name, level), value, unit);
    }

    fn name(&self, name: &str, level: Level) -> String {
        name_of(name, level, self.scale.levels)
    }

    fn add_percentiles(&mut self, name: &str, suffix: &str, level: Level, values: Percentiles) {
        let levels = self.scale.levels;
        self.figures.add_percentiles(values, |kind| name_of(&format!("{name}_{kind}_ms_{suffix}"), level, levels));
    }

    /// What scheduling alone came to. The first level is too few messages to tell a rate.
    fn filled(&mut self, level: Level, before: &Reading, after: &Reading, messages: u64) -> anyhow::Result<Written> {
        let [first, ..] = self.scale.levels;
        if level != first {
            let span = after.at - before.at;
            self.add("schedule_rate", level, count(messages) / span.as_secs_f64(), "messages/s");
        }
        Ok(Costs::of(before, after, messages)?.written())
    }

    async fn rates(&mut self, server: &ServerProcess, level: Level) -> anyhow::Result<Written> {
        let name = format!("full rate, {}", level.label);
        let span = self.scale.rate_span;
        let full = stage::saturate(embedded(server), &name, Bodies::batches(), BATCH_CONNECTIONS, span).await?;
        let rate = full.steady_rate(self.scale.warm_up);
        self.add("schedule_deliver_rate", level, rate, "messages/s");
        self.add_percentiles("lateness", "full_load", level, full.lateness());
        let costs = Costs::of(&full.before, &full.after, full.delivered)?;
        self.add("log_bytes_per_message", level, costs.log_bytes, "bytes");
        self.add("store_writes_per_message", level, costs.store_keys + costs.log_keys, "keys");
        self.add("cpu_us_per_message", level, costs.cpu_us, "us");
        self.add("generator_cpu_us_per_message", level, costs.generator_cpu_us, "us");
        self.add("other_cpu_cores_full_load", level, full.after.other_cores(&full.before), "cores");
        self.add("messages_per_commit", level, costs.written().batch_length, "messages");

        self.paced(server, level, "half_load", rate / 2.0).await?;
        self.paced(server, level, "at_7500", RATE_EXPECTED / 2.0).await?;
        Ok(costs.written())
    }

    /// Lateness and costs at a rate that leaves the machine room.
    async fn paced(&mut self, server: &ServerProcess, level: Level, suffix: &str, rate: f64) -> anyhow::Result<()> {
        let name = format!("{}, {}", suffix.replace('_', " "), level.label);
        let paced = stage::paced(embedded(server), &name, Bodies::batches(), rate, self.scale.paced_span).await?;
        self.add(&format!("{suffix}_rate"), level, paced.steady_rate(self.scale.warm_up), "messages/s");
        self.add_percentiles("lateness", suffix, level, paced.lateness());
        self.add_percentiles("append_lateness", suffix, level, paced.append_lateness());
        let Percentiles { p50, p99, .. } = paced.answer_latency();
        self.add(&format!("schedule_answer_p50_ms_{suffix}"), level, p50, "ms");
        self.add(&format!("schedule_answer_p99_ms_{suffix}"), level, p99, "ms");
        let costs = Costs::of(&paced.before, &paced.after, paced.delivered)?;
        self.add(&format!("cpu_us_per_message_{suffix}"), level, costs.cpu_us, "us");
        self.add(&format!("other_cpu_cores_{suffix}"), level, paced.after.other_cores(&paced.before), "cores");
        self.add(&format!("messages_per_commit_{suffix}"), level, costs.written().batch_length, "messages");
        Ok(())
    }

    async fn burst(&mut self, server: &ServerProcess, level: Level) -> anyhow::Result<()> {
        let name = format!("burst, {}", level.label);
        // Scheduling alone is faster than scheduling beside deliveries.
        let rate_expected = self.figures.value(&self.name("schedule_deliver_rate", level)).unwrap_or_default();
        let burst = stage::burst(embedded(server), &name, self.scale.burst, rate_expected).await?;
        self.add("burst_drain_rate", level, burst.drain_rate(), "messages/s");
        self.add_percentiles("lateness", "burst", level, burst.stage.lateness());
        Ok(())
    }

    async fn singles(&mut self, server: &ServerProcess) -> anyhow::Result<()> {
        let span = self.scale.singles_span;
        let singles = stage::saturate(embedded(server), "singles", Bodies::singles(), SINGLE_CONNECTIONS, span).await?;
        let warm_up = self.scale.warm_up.min(span / 4);
        self.figures.add("schedule_deliver_rate_singles", singles.steady_rate(warm_up), "messages/s");
        let Percentiles { p50, p99, .. } = singles.answer_latency();
        self.figures.add("schedule_answer_p50_ms_singles", p50, "ms");
        self.figures.add("schedule_answer_p99_ms_singles", p99, "ms");
        let costs = Costs::of(&singles.before, &singles.after, singles.delivered)?;
        self.figures.add("cpu_us_per_message_singles", costs.cpu_us, "us");
        Ok(())
    }

    /// RocksDB alone, with the batches and bytes that the server had with the most pending.
    fn raw(&mut self, folder: &Path, written: Option<(Written, Written)>) -> anyhow::Result<()> {
        let (scheduled, lived) = written.context("no level was measured")?;
        for (part, written) in [(Part::Schedule, scheduled), (Part::Life, lived)] {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small positive number")]
            let batch_length = written.batch_length.round().max(1.0) as usize;
            let shape = Shape {
                part,
                shards: usize::try_from(self.options.shards)?,
                batch_length,
                message_bytes: written.message_bytes,
            };
            let (name, folder) = match part {
                Part::Schedule => ("raw_rocksdb_schedule", folder.join("schedule")),
                Part::Life => ("raw_rocksdb_life", folder.join("life")),
            };
            say(&format!("RocksDB alone, {} in batches of {batch_length}", name.trim_start_matches("raw_rocksdb_")));
            let Raw { rate, keys, bytes } = raw::measure(&folder, shape, self.scale.raw_span)?;
            self.figures.add(format!("{name}_rate"), rate, "messages/s");
            self.figures.add(format!("{name}_batch"), count(batch_length as u64), "messages");
            self.figures.add(format!("{name}_keys"), keys, "keys/message");
            self.figures.add(format!("{name}_bytes"), bytes, "bytes/message");
        }
        Ok(())
    }

    /// What each figure is held against.
    fn compare(&mut self) {
        let figures = &mut self.figures;
        let levels = self.scale.levels;
        for suffix in ["", "_1k", "_100k"] {
            let with = |name: &str| format!("{name}{suffix}");
            figures.compare_figures(&with("schedule_deliver_rate"), "raw_rocksdb_life_rate");
            figures.compare_figures(&with("schedule_rate"), "raw_rocksdb_schedule_rate");
            figures.compare_figures(&with("burst_drain_rate"), &with("schedule_deliver_rate"));
            for (name, text, expected) in [
                ("lateness_p99_ms_half_load", "expected below 20 ms", 20.0),
                ("lateness_p99_ms_at_7500", "expected below 20 ms", 20.0),
                ("log_bytes_per_message", "expected at most 700", 700.0),
                ("store_writes_per_message", "budget of 14", 14.0),
                ("cpu_us_per_message", "budget of 40", 40.0),
            ] {
                figures.compare(&with(name), text, Some(expected));
            }
            figures.compare_figures(&with("half_load_rate"), &with("schedule_deliver_rate"));
        }
        figures.compare_figures("restart_to_first_delivery_ms", "restart_to_first_delivery_ms_1k");
        figures.compare_figures("restart_to_first_delivery_ms_100k", "restart_to_first_delivery_ms_1k");
        figures.compare_figures("schedule_deliver_rate_singles", "schedule_deliver_rate");
        figures.compare_figures("cpu_us_per_message_singles", "cpu_us_per_message");

        let [_, fewer, most] = levels;
        let memory = |level: Level| format!("resident_memory_{}", level.label);
        let over = (memory(most), memory(fewer));
        figures.add_ratio("resident_memory_2m_over_100k", (&over.0, &over.1), "expected at most 1.3", 1.3);
        let over = ("schedule_rate", "raw_rocksdb_schedule_rate");
        figures.add_ratio("apply_rate_over_raw_rocksdb", over, "schedule_rate / raw_rocksdb_schedule_rate", 1.0);
    }
}

/// A server whose deliveries arrive in its own log.
fn embedded(server: &ServerProcess) -> Subject<'_> {
    Subject { server, place: &Place::Embedded }
}

fn name_of(name: &str, level: Level, levels: [Level; 3]) -> String {
    let [.., most] = levels;
    if level == most { name.to_owned() } else { format!("{name}_{}", level.label) }
}

async fn create_destination(server: &ServerProcess) -> anyhow::Result<()> {
    let embedded = EmbeddedSpec { topic: TOPIC.to_owned(), partitions: Some(PARTITIONS) };
    let spec = DestinationSpec { embedded: Some(embedded), ..DestinationSpec::default() };
    let call = server.client().call(Method::PUT, &["v1", "destinations", DESTINATION]).json(&spec);
    call.send::<Destination>().await.context("creating the destination").map(drop)
}
