//! One stage: a load, a consumer beside it, and what the server used meanwhile.

use std::time::Duration;

use anyhow::{Context as _, bail};
use tokio::time::{Instant, sleep_until};

use super::bodies::Bodies;
use super::consume::{Arrival, Consumer};
use super::load::{Due, End, Load, Plan};
use super::place::Place;
use super::reading::Reading;
use super::sample::{Percentiles, count};
use crate::console::{grouped, say};
use crate::process::ServerProcess;
use crate::wall_clock::now_ms;

/// Connections that post batches.
pub(crate) const BATCH_CONNECTIONS: usize = 8;
/// Connections that post batches at a pace: enough that a slow answer does not hold back the next request.
const PACED_CONNECTIONS: usize = 32;
/// Connections that post single messages.
pub(crate) const SINGLE_CONNECTIONS: usize = 64;
/// Messages sent and not delivered at most, at full rate: about two seconds of them.
const OUTSTANDING_MAX: u64 = 40_000;
/// How often progress is told.
const PROGRESS_PERIOD: Duration = Duration::from_secs(2);
/// Without any message taken or delivered for so long, the stage has failed.
const STALL_LIMIT: Duration = Duration::from_secs(60);
/// How long the server may take to settle what has been delivered.
const SETTLE_LIMIT: Duration = Duration::from_secs(60);
const SETTLE_PAUSE: Duration = Duration::from_millis(20);
/// How much longer than expected a burst's scheduling may take, and then some: what is due must be waiting, not on its way.
const BURST_MARGIN: f64 = 1.3;
const BURST_LEAD: Duration = Duration::from_secs(2);
/// How often a burst is repeated with a later time when its scheduling took too long.
const BURST_TRIES: u32 = 3;

/// What is measured: a server, and where its deliveries arrive.
#[derive(Clone, Copy)]
pub(crate) struct Subject<'a> {
    pub(crate) server: &'a ServerProcess,
    pub(crate) place: &'a Place,
}

/// What a stage came to.
#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) delivered: u64,
    pub(crate) arrivals: Vec<Arrival>,
    latencies_us: Vec<i64>,
    pub(crate) before: Reading,
    pub(crate) after: Reading,
    /// When the generator began and ended, in epoch milliseconds.
    began_ms: i64,
    ended_ms: i64,
}

impl Stage {
    /// From the delivery time to the arrival at the consumer, in milliseconds.
    pub(crate) fn lateness(&self) -> Percentiles {
        let mut values: Vec<i64> = self.arrivals.iter().map(|arrival| arrival.arrived_ms - arrival.due_ms).collect();
        Percentiles::of(&mut values, 1.0)
    }

    /// From the delivery time to the record's append time, in milliseconds.
    pub(crate) fn append_lateness(&self) -> Percentiles {
        let mut values: Vec<i64> = self.arrivals.iter().map(|arrival| arrival.appended_ms - arrival.due_ms).collect();
        Percentiles::of(&mut values, 1.0)
    }

    /// From when a request was to be sent to its answer, in milliseconds.
    pub(crate) fn answer_latency(&self) -> Percentiles {
        Percentiles::of(&mut self.latencies_us.clone(), 1e3)
    }

    /// Messages delivered a second between the warm-up and the generator's end.
    pub(crate) fn steady_rate(&self, warm_up: Duration) -> f64 {
        let from_ms = self.began_ms + i64::try_from(warm_up.as_millis()).unwrap_or(0);
        let arrived = self.arrivals.iter().filter(|arrival| (from_ms..self.ended_ms).contains(&arrival.arrived_ms));
        per_second(arrived.count() as u64, self.ended_ms - from_ms)
    }

    /// Records that arrived before their time: never.
    pub(crate) fn early(&self) -> usize {
        self.arrivals.iter().filter(|arrival| arrival.arrived_ms < arrival.due_ms).count()
    }
}

/// So many in so many milliseconds, a second.
pub(crate) fn per_second(number: u64, span_ms: i64) -> f64 {
    count(number) * 1_000.0 / count(span_ms.max(1).unsigned_abs())
}

/// Schedules as fast as the server takes and delivers messages.
pub(crate) async fn saturate(
    subject: Subject<'_>,
    name: &str,
    bodies: Bodies,
    connections: usize,
    span: Duration,
) -> anyhow::Result<Stage> {
    let end = End::After(span);
    let plan = Plan { connections, interval: None, end, due: Due::Soon, outstanding_max: OUTSTANDING_MAX };
    delivering(subject, name, plan, bodies).await
}

/// Schedules so many messages a second.
pub(crate) async fn paced(
    subject: Subject<'_>,
    name: &str,
    bodies: Bodies,
    rate: f64,
    span: Duration,
) -> anyhow::Result<Stage> {
    let plan = pace(&bodies, rate, span);
    delivering(subject, name, plan, bodies).await
}

/// So many messages a second, however long their answers take.
pub(crate) fn pace(bodies: &Bodies, rate: f64, span: Duration) -> Plan {
    Plan {
        connections: PACED_CONNECTIONS,
        interval: Some(Duration::from_secs_f64(count(bodies.length as u64) / rate.max(1.0))),
        end: End::After(span),
        due: Due::Soon,
        outstanding_max: u64::MAX,
    }
}

/// What a burst came to.
#[derive(Debug)]
pub(crate) struct Burst {
    pub(crate) stage: Stage,
    pub(crate) due_ms: i64,
}

impl Burst {
    /// From the burst's time to the last arrival, a second.
    pub(crate) fn drain_rate(&self) -> f64 {
        let last_ms = self.stage.arrivals.iter().map(|arrival| arrival.arrived_ms).max().unwrap_or(self.due_ms);
        per_second(self.stage.delivered, last_ms - self.due_ms)
    }
}

/// Schedules messages that are all due in one millisecond, and waits for them.
pub(crate) async fn burst(subject: Subject<'_>, name: &str, length: u64, rate_expected: f64) -> anyhow::Result<Burst> {
    let mut scheduling = Duration::from_secs_f64(count(length) / rate_expected.max(1.0));
    for _ in 0..BURST_TRIES {
        let ahead = scheduling.mul_f64(BURST_MARGIN) + BURST_LEAD;
        let due_ms = now_ms() + i64::try_from(ahead.as_millis())?;
        let plan = Plan {
            connections: BATCH_CONNECTIONS,
            interval: None,
            end: End::Count(length),
            due: Due::At(due_ms),
            outstanding_max: u64::MAX,
        };
        let stage = delivering(subject, name, plan, Bodies::batches()).await?;
        if stage.ended_ms < due_ms {
            return Ok(Burst { stage, due_ms });
        }
        say(&format!("  {name}: scheduling ended after the burst's time; once more, later"));
        scheduling *= 2;
    }
    bail!("{name}: {} messages could not be scheduled ahead of their time", grouped(length))
}

/// Schedules messages that stay pending for the whole run. Returns the readings around it.
pub(crate) async fn fill(server: &ServerProcess, name: &str, length: u64) -> anyhow::Result<(Reading, Reading)> {
    let plan = Plan {
        connections: BATCH_CONNECTIONS,
        interval: None,
        end: End::Count(length),
        due: Due::Far,
        outstanding_max: u64::MAX,
    };
    let load = Load::new(plan, Bodies::batches());
    let before = Reading::take(server).await?;
    tokio::select! {
        result = load.run(server.address()) => result?,
        stalled = progress(name, &load, None) => bail!(stalled.context(server.log_tail())),
    }
    Ok((before, Reading::take(server).await?))
}

/// Runs a load with a consumer beside it until everything sent has arrived and is settled.
async fn delivering(subject: Subject<'_>, name: &str, plan: Plan, bodies: Bodies) -> anyhow::Result<Stage> {
    let Subject { server, place } = subject;
    let consumer = Consumer::default();
    let following = place.follow_from_now(server).await?;
    let before = Reading::take(server).await?;
    let load = Load::new(plan, bodies);
    let began_ms = now_ms();
    let work = async {
        load.run(server.address()).await?;
        let ended_ms = now_ms();
        consumer.wait_for(load.accepted()).await;
        anyhow::Ok(ended_ms)
    };
    // What has arrived makes room for what is to be sent.
    let make_room = async {
        let mut delivered = 0;
        loop {
            consumer.wait_for(delivered + 1).await;
            delivered = consumer.delivered();
            load.set_delivered(delivered);
        }
    };
    let ended_ms = tokio::select! {
        result = work => result?,
        () = make_room => 0,
        result = consumer.follow(following) => {
            result?;
            0
        }
        stalled = progress(name, &load, Some(&consumer)) => bail!(stalled.context(server.log_tail())),
    };
    let after = settled(server, &before).await?;
    let delivered = consumer.delivered();
    let stage = Stage {
        delivered,
        arrivals: consumer.into_arrivals(),
        latencies_us: load.into_latencies_us(),
        before,
        after,
        began_ms,
        ended_ms,
    };
    if stage.early() > 0 {
        bail!("{name}: {} messages arrived before their time", stage.early());
    }
    Ok(stage)
}

/// Waits until everything that is due has been delivered and settled.
pub(crate) async fn idle(server: &ServerProcess) -> anyhow::Result<()> {
    let deadline = Instant::now() + SETTLE_LIMIT;
    loop {
        let reading = Reading::take(server).await?;
        // A shard that has only just become active has no lanes to show yet.
        let waiting = [reading.sample("lane_publishing"), reading.sample("oldest_due_age_seconds")];
        if waiting.into_iter().all(|waiting| waiting.is_ok_and(|waiting| waiting == 0.0)) {
            return Ok(());
        }
        if Instant::now() > deadline {
            bail!("messages are still waiting; the log ends:\n{}", server.log_tail());
        }
        sleep_until(Instant::now() + SETTLE_PAUSE).await;
    }
}

/// A reading once as many messages live as before: the outcome of everything delivered has been applied.
async fn settled(server: &ServerProcess, before: &Reading) -> anyhow::Result<Reading> {
    let live = before.sample("active_messages")?;
    let deadline = Instant::now() + SETTLE_LIMIT;
    loop {
        let reading = Reading::take(server).await?;
        if reading.sample("active_messages")? <= live {
            return Ok(reading);
        }
        if Instant::now() > deadline {
            bail!("{} messages live, {live} before", reading.sample("active_messages")?);
        }
        sleep_until(Instant::now() + SETTLE_PAUSE).await;
    }
}

/// Tells how far it is until nothing moves any more, which is an error.
async fn progress(name: &str, load: &Load, consumer: Option<&Consumer>) -> anyhow::Error {
    let (mut accepted, mut delivered) = (0, 0);
    let mut moved_at = Instant::now();
    let mut next = Instant::now() + PROGRESS_PERIOD;
    loop {
        sleep_until(next).await;
        next += PROGRESS_PERIOD;
        let (accepted_now, delivered_now) = (load.accepted(), consumer.map_or(0, Consumer::delivered));
        if accepted_now != accepted || delivered_now != delivered {
            moved_at = Instant::now();
        }
        let rate = |now: u64, before: u64| grouped((now - before) / PROGRESS_PERIOD.as_secs());
        let mut text = format!("  {name}: {} scheduled ({}/s)", grouped(accepted_now), rate(accepted_now, accepted));
        if consumer.is_some() {
            text.push_str(&format!(", {} delivered ({}/s)", grouped(delivered_now), rate(delivered_now, delivered)));
        }
        say(&text);
        (accepted, delivered) = (accepted_now, delivered_now);
        if moved_at.elapsed() > STALL_LIMIT {
            return anyhow::anyhow!("{name}: nothing moves any more");
        }
    }
}

/// The message costs of a stage that began and ended idle.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Costs {
    pub(crate) log_bytes: f64,
    pub(crate) store_keys: f64,
    pub(crate) log_keys: f64,
    pub(crate) store_bytes: f64,
    pub(crate) cpu_us: f64,
    pub(crate) generator_cpu_us: f64,
    pub(crate) commits: f64,
}

/// What the shards' commits wrote, for RocksDB alone to write as well.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Written {
    /// Messages a commit.
    pub(crate) batch_length: f64,
    /// Bytes of keys and values a message.
    pub(crate) message_bytes: f64,
}

impl Costs {
    pub(crate) fn of(before: &Reading, after: &Reading, messages: u64) -> anyhow::Result<Costs> {
        let messages = count(messages.max(1));
        let growth = |name: &str| after.growth(before, name).context("the costs of a stage");
        Ok(Costs {
            log_bytes: (growth("owner_log_bytes_total")? + growth("command_log_bytes_total")?) / messages,
            store_keys: growth("store_keys_written_total")? / messages,
            log_keys: growth("embedded_keys_written_total")? / messages,
            store_bytes: growth("store_bytes_written_total")? / messages,
            cpu_us: after.server_cpu_us(before) / messages,
            generator_cpu_us: after.generator_cpu_us(before) / messages,
            commits: growth("commit_seconds_count")? / messages,
        })
    }

    /// What the shards' commits wrote.
    pub(crate) fn written(&self) -> Written {
        Written { batch_length: 1.0 / self.commits.max(f64::MIN_POSITIVE), message_bytes: self.store_bytes }
    }
}
