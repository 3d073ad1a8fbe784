//! Kafka without us: records that were delivered, produced to the same broker again as fast as it takes them, with the same
//! consumer beside.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use tokio::time::{Instant, sleep_until, timeout};

use super::PARTITIONS;
use super::consume::Consumer;
use super::place::KafkaPlace;
use super::stage::per_second;
use crate::console::say;
use crate::kafka::{Cluster, Outgoing, Writer};
use crate::wall_clock::now_ms;

const TOPIC: &str = "bench.raw";
/// How long the broker may take for what is on its way when producing ends.
const FLUSH_LIMIT: Duration = Duration::from_secs(60);
/// The settings that our own producers have beside acknowledgements and idempotence.
const SETTINGS: [(&str, &str); 2] = [("linger.ms", "1"), ("batch.size", "1000000")];

/// What came of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RawKafka {
    /// Records a second that arrived at a consumer, once warm.
    pub(crate) rate: f64,
    /// Records a second that were acknowledged, first to last.
    pub(crate) acknowledged_rate: f64,
    /// Records a second of a burst, from its first being handed over until its last is with the consumer.
    pub(crate) burst_rate: f64,
}

/// Produces for a while, and then a burst.
pub(crate) async fn measure(
    cluster: &Cluster,
    records: Vec<Outgoing>,
    span: Duration,
    warm_up: Duration,
    burst: u64,
) -> anyhow::Result<RawKafka> {
    cluster.create_topic(TOPIC, i32::try_from(PARTITIONS)?, &[]).await?;
    let place = KafkaPlace { cluster: Cluster::new(cluster.bootstrap())?, topic: TOPIC.to_owned() };
    let records: Arc<[Outgoing]> = records.into();

    say("raw produce");
    let warm_up = warm_up.min(span / 2);
    let produced = produce(&place, records.clone(), End::After(span)).await?;
    let (from_ms, to_ms) = (produced.began_ms + span_ms(warm_up), produced.began_ms + span_ms(span));
    let arrived = produced.arrived_ms.iter().filter(|at_ms| (from_ms..to_ms).contains(*at_ms)).count();
    let rate = per_second(arrived as u64, to_ms - from_ms);
    let acknowledged_rate = per_second(produced.acknowledged, produced.flushed_ms - produced.began_ms);

    say("raw burst");
    let produced = produce(&place, records, End::Count(burst)).await?;
    let last_ms = produced.arrived_ms.iter().max().copied().unwrap_or(produced.began_ms);
    let burst_rate = per_second(produced.arrived_ms.len() as u64, last_ms - produced.began_ms);
    Ok(RawKafka { rate, acknowledged_rate, burst_rate })
}

fn span_ms(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}

#[derive(Clone, Copy)]
enum End {
    After(Duration),
    Count(u64),
}

struct Produced {
    began_ms: i64,
    flushed_ms: i64,
    acknowledged: u64,
    arrived_ms: Vec<i64>,
}

/// Records in turn until the end, and until all of them have arrived.
async fn produce(place: &KafkaPlace, records: Arc<[Outgoing]>, end: End) -> anyhow::Result<Produced> {
    let consumer = Consumer::default();
    let following = place.follow_from_now().await?;
    let writer = Writer::new(place.cluster.bootstrap(), &SETTINGS)?;
    writer.connect(&place.topic)?;
    let is_over = Arc::new(AtomicBool::new(false));
    let count = match end {
        End::After(_) => u64::MAX,
        End::Count(count) => count,
    };
    let began_ms = now_ms();
    let thread = start(writer, records, count, is_over.clone())?;
    let work = async {
        if let End::After(span) = end {
            sleep_until(Instant::now() + span).await;
            is_over.store(true, Ordering::SeqCst);
        }
        while !thread.is_finished() {
            sleep_until(Instant::now() + Duration::from_millis(1)).await;
        }
        let (acknowledged, flushed_ms) = thread.join().map_err(|_| anyhow!("the producer panicked"))??;
        timeout(FLUSH_LIMIT, consumer.wait_for(acknowledged)).await.context("not every record arrives")?;
        anyhow::Ok((acknowledged, flushed_ms))
    };
    let (acknowledged, flushed_ms) = tokio::select! {
        result = work => result?,
        result = consumer.follow(following) => {
            result?;
            bail!("the consumer ended")
        }
    };
    let arrived_ms = consumer.into_arrivals().iter().map(|arrival| arrival.arrived_ms).collect();
    Ok(Produced { began_ms, flushed_ms, acknowledged, arrived_ms })
}

/// A producer in a thread of its own. Returns how many records were acknowledged, and when the last one was.
fn start(
    writer: Writer,
    records: Arc<[Outgoing]>,
    count: u64,
    is_over: Arc<AtomicBool>,
) -> anyhow::Result<JoinHandle<anyhow::Result<(u64, i64)>>> {
    let work = move || {
        let mut sent = 0;
        for record in records.iter().cycle() {
            if sent == count || is_over.load(Ordering::Relaxed) {
                break;
            }
            writer.send(TOPIC, record)?;
            sent += 1;
        }
        writer.flush(FLUSH_LIMIT)?;
        if writer.acknowledged() != sent {
            bail!("{} of {sent} records were acknowledged", writer.acknowledged());
        }
        Ok((sent, now_ms()))
    };
    std::thread::Builder::new().name("producer".to_owned()).spawn(work).context("no thread for a producer")
}
