//! The Kafka side of a run: a broker of its own, the topics, a consumer that follows them all the time, and header ingress.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use client::api::message::{Content, HeaderContent};
use client::api::topic;
use tokio::time::Instant;

use super::check::{Arrival, Place, SeenRecord};
use super::ingress::Ingress;
use super::reader::see;
use super::topics::DESTINATIONS;
use crate::kafka::{Broker, Cluster, Record, Tail};
use crate::wall_clock::now_ms;

/// Has the broker write down when it appended a record, so that its time can be held against the message's.
const APPEND_TIME: (&str, &str) = ("message.timestamp.type", "LogAppendTime");
/// How long the following consumer waits for a record before it looks whether it is to end.
const POLL: Duration = Duration::from_millis(100);
/// How long it may take to catch up in the end.
const CATCH_UP_LIMIT: Duration = Duration::from_secs(30);

/// A broker and what a run has on it.
pub(crate) struct KafkaSide {
    pub(crate) broker: Broker,
    pub(crate) ingress: Ingress,
    cluster: Cluster,
    followers: Vec<Follower>,
}

impl KafkaSide {
    /// Starts a broker in a folder, with the topics of the load.
    pub(crate) async fn start(folder: &Path) -> anyhow::Result<KafkaSide> {
        let broker = Broker::start(folder).await?;
        let cluster = broker.cluster()?;
        for destination in &DESTINATIONS {
            let partitions = i32::try_from(destination.partitions)?;
            cluster.create_topic(destination.topic, partitions, &[APPEND_TIME]).await?;
        }
        let ingress = Ingress::prepare(&cluster).await?;
        let followers = DESTINATIONS
            .iter()
            .map(|destination| Follower::start(destination.topic, cluster.tail(destination.topic)?))
            .collect::<anyhow::Result<_>>()?;
        Ok(KafkaSide { broker, ingress, cluster, followers })
    }

    /// `HOST:PORT`.
    pub(crate) fn bootstrap(&self) -> String {
        self.broker.bootstrap()
    }

    /// Every record of every topic, from the beginning.
    pub(crate) fn read_topics(&self, seed: u64) -> anyhow::Result<Vec<SeenRecord>> {
        let mut seen = Vec::new();
        for destination in &DESTINATIONS {
            for record in &self.cluster.read(destination.topic)? {
                seen.push(see(seed, destination.topic, &as_served(record)?));
            }
        }
        Ok(seen)
    }

    /// Ends the following consumers once they have seen everything that is there.
    pub(crate) fn take_arrivals(&mut self) -> anyhow::Result<BTreeMap<Place, Arrival>> {
        let mut arrivals = BTreeMap::new();
        for follower in self.followers.drain(..) {
            arrivals.extend(follower.end()?);
        }
        Ok(arrivals)
    }
}

/// A record in the form in which the server's own topics are read, so that both are held against the same.
fn as_served(record: &Record) -> anyhow::Result<topic::Record> {
    let content = |bytes: &bytes::Bytes| Content::new(bytes);
    Ok(topic::Record {
        partition: u32::try_from(record.partition)?,
        offset: u64::try_from(record.offset)?,
        timestamp: String::new(),
        timestamp_ms: record.timestamp_ms.context("a record without a timestamp")?,
        key: record.key.as_ref().map(content),
        value: record.value.as_ref().map(content),
        headers: record
            .headers
            .iter()
            .map(|(name, value)| HeaderContent { name: name.clone(), value: value.as_ref().map(content) })
            .collect(),
    })
}

/// A consumer in a thread of its own.
struct Follower {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<BTreeMap<Place, Arrival>>,
}

impl Follower {
    fn start(topic: &'static str, tail: Tail) -> anyhow::Result<Follower> {
        let is_over = Arc::new(AtomicBool::new(false));
        let seen_over = is_over.clone();
        let thread = std::thread::Builder::new()
            .name("follower".to_owned())
            .spawn(move || follow(topic, tail, &seen_over))
            .context("no thread for a consumer")?;
        Ok(Follower { is_over, thread })
    }

    fn end(self) -> anyhow::Result<BTreeMap<Place, Arrival>> {
        self.is_over.store(true, Ordering::SeqCst);
        self.thread.join().map_err(|_| anyhow!("a following consumer panicked"))
    }
}

impl Drop for KafkaSide {
    /// A run that broke off leaves no consumer behind that polls a broker that is gone.
    fn drop(&mut self) {
        for follower in &self.followers {
            follower.is_over.store(true, Ordering::SeqCst);
        }
    }
}

fn follow(topic: &str, mut tail: Tail, is_over: &AtomicBool) -> BTreeMap<Place, Arrival> {
    let mut arrivals = BTreeMap::new();
    let mut catch_up_until = None;
    loop {
        // Errors are the broker's, which is killed and comes back; what was not read is read then.
        if let Ok(Some(record)) = tail.poll(POLL) {
            let message_id = record.header("nereus.delay.message_id").unwrap_or_default().to_owned();
            let arrival = Arrival { at_ms: now_ms(), message_id };
            let place = (u32::try_from(record.partition), u64::try_from(record.offset));
            if let (Ok(partition), Ok(offset)) = place {
                arrivals.insert((topic.to_owned(), partition, offset), arrival);
            }
        }
        if is_over.load(Ordering::SeqCst) {
            let until = *catch_up_until.get_or_insert_with(|| Instant::now() + CATCH_UP_LIMIT);
            if tail.is_at_end() || Instant::now() > until {
                return arrivals;
            }
        }
    }
}
