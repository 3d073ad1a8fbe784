//! Where deliveries arrive: a topic of the server's own log, followed over HTTP, or a topic of Kafka, followed as any consumer
//! follows it. Everything else about a stage is the same for both.

use std::time::Duration;

use anyhow::{Context as _, bail};
use rdkafka::message::{BorrowedMessage, Headers as _, Message as _};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::consume::{Arrival, end_offsets};
use crate::kafka::{Cluster, Tail};
use crate::process::ServerProcess;
use crate::wall_clock::now_ms;

/// The delivery header with the message's time.
const DUE_HEADER: &str = "nereus.delay.deliver_at_ms";
/// How long a record is waited for before it is looked whether anybody still wants one.
const POLL: Duration = Duration::from_millis(50);
/// How long a consumer may take until it is where the topic ends.
const READY_LIMIT: Duration = Duration::from_secs(30);
/// Records that are handed over at once, and such batches that may wait.
const BATCH_LENGTH_MAX: usize = 2_000;
const BATCHES_MAX: usize = 1_000;

/// Where delivered records are read.
pub(crate) enum Place {
    /// In the benchmark's topic of the server's own log.
    Embedded,
    /// In a topic of Kafka.
    Kafka(KafkaPlace),
}

/// A topic of Kafka.
pub(crate) struct KafkaPlace {
    pub(crate) cluster: Cluster,
    pub(crate) topic: String,
}

/// A consumer that stands where the topic ended.
pub(crate) enum Following {
    /// Offsets from which it is followed over HTTP.
    Embedded { address: String, ends: Vec<u64> },
    /// What a consumer in a thread of its own has read.
    Kafka(mpsc::Receiver<anyhow::Result<Vec<Arrival>>>),
}

impl Place {
    /// A consumer of what is delivered from now on, ready to take it.
    pub(crate) async fn follow_from_now(&self, server: &ServerProcess) -> anyhow::Result<Following> {
        match self {
            Place::Embedded => {
                Ok(Following::Embedded { address: server.address().to_owned(), ends: end_offsets(server).await? })
            }
            Place::Kafka(place) => place.follow_from_now().await,
        }
    }
}

impl KafkaPlace {
    /// A consumer of what is written from now on, ready to take it.
    pub(crate) async fn follow_from_now(&self) -> anyhow::Result<Following> {
        let tail = self.cluster.tail_end(&self.topic)?;
        let (ready, is_ready) = oneshot::channel();
        let (sender, batches) = mpsc::channel(BATCHES_MAX);
        std::thread::Builder::new()
            .name("consumer".to_owned())
            .spawn(move || read(tail, ready, &sender))
            .context("no thread for a consumer")?;
        is_ready.await.context("the consumer ended at once")??;
        Ok(Following::Kafka(batches))
    }
}

/// Reads until nobody wants more.
fn read(
    mut tail: Tail,
    ready: oneshot::Sender<anyhow::Result<()>>,
    batches: &mpsc::Sender<anyhow::Result<Vec<Arrival>>>,
) {
    // Whoever waits for it to be ready may be gone, and then nobody wants records either.
    let is_there = ready.send(reach_end(&mut tail)).is_ok();
    while is_there && !batches.is_closed() {
        let batch = next_batch(&mut tail);
        let is_over = batch.is_err();
        let is_empty = batch.as_ref().is_ok_and(Vec::is_empty);
        if (!is_empty && batches.blocking_send(batch).is_err()) || is_over {
            return;
        }
    }
}

fn reach_end(tail: &mut Tail) -> anyhow::Result<()> {
    let deadline = Instant::now() + READY_LIMIT;
    while !tail.is_at_end() {
        if tail.poll_with(POLL, |_| ())?.is_some() {
            bail!("the topic is written to before its consumer is ready");
        }
        if Instant::now() > deadline {
            bail!("the consumer is not where the topic ends within {READY_LIMIT:?}");
        }
    }
    Ok(())
}

/// What is there, or comes within a moment.
fn next_batch(tail: &mut Tail) -> anyhow::Result<Vec<Arrival>> {
    let mut batch = Vec::new();
    let mut limit = POLL;
    while batch.len() < BATCH_LENGTH_MAX {
        let was_at_end = tail.is_at_end();
        match tail.poll_with(limit, arrival)? {
            Some(arrival) => batch.push(arrival?),
            // That a partition's end was reached is told in a record's place.
            None if tail.is_at_end() == was_at_end => break,
            None => {}
        }
        limit = Duration::ZERO;
    }
    Ok(batch)
}

fn arrival(message: &BorrowedMessage<'_>) -> anyhow::Result<Arrival> {
    let arrived_ms = now_ms();
    let headers = message.headers().context("a record without headers")?;
    // The delivery headers come last.
    let due = (0..headers.count()).rev().map(|index| headers.get(index)).find(|header| header.key == DUE_HEADER);
    let due_ms = due.and_then(|header| std::str::from_utf8(header.value?).ok()?.parse().ok());
    Ok(Arrival {
        due_ms: due_ms.context("a record without a delivery time")?,
        appended_ms: message.timestamp().to_millis().unwrap_or(arrived_ms),
        arrived_ms,
    })
}
