//! A producer that goes on through whatever happens to its broker, as a caller's own would.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::{BaseProducer, DeliveryResult, Producer as _, ProducerContext};

use super::cluster::{Outgoing, config, outgoing};

/// How long the client library tries to write a record: longer than a broker is away.
const WRITE_LIMIT_MS: &str = "300000";
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// How long room in the client library's queue is waited for at once.
const ROOM_PAUSE: Duration = Duration::from_millis(1);

/// An idempotent producer with acknowledgements of all replicas.
pub struct Writer {
    producer: BaseProducer<Tally>,
    counts: Arc<Counts>,
}

#[derive(Default)]
struct Counts {
    acknowledged: AtomicU64,
    failed: AtomicU64,
}

struct Tally(Arc<Counts>);

impl ClientContext for Tally {
    /// Brokers are killed on purpose here.
    fn log(&self, _: RDKafkaLogLevel, _: &str, _: &str) {}

    fn error(&self, _: KafkaError, _: &str) {}
}

impl ProducerContext for Tally {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        let counter = if result.is_ok() { &self.0.acknowledged } else { &self.0.failed };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

impl Writer {
    /// Connects when it is used. `settings` are further ones of the client library.
    ///
    /// # Errors
    /// When the client library refuses.
    pub fn new(bootstrap: &str, settings: &[(&str, &str)]) -> anyhow::Result<Writer> {
        let counts = Arc::new(Counts::default());
        let mut config = config(bootstrap);
        config.set("acks", "all").set("enable.idempotence", "true").set("message.timeout.ms", WRITE_LIMIT_MS);
        config.set("queue.buffering.max.kbytes", "2097151");
        for (name, value) in settings {
            config.set(*name, *value);
        }
        Ok(Writer { producer: config.create_with_context(Tally(counts.clone()))?, counts })
    }

    /// Connects at once, so that the first record does not have to.
    ///
    /// # Errors
    /// When the topic cannot be seen.
    pub fn connect(&self, topic: &str) -> anyhow::Result<()> {
        self.producer
            .client()
            .fetch_metadata(Some(topic), CONNECT_LIMIT)
            .map(drop)
            .context("the broker does not answer")
    }

    /// Hands a record over, waiting for room where there is none. It is written in its turn.
    ///
    /// # Errors
    /// When the client library refuses it.
    pub fn send(&self, topic: &str, record: &Outgoing) -> anyhow::Result<()> {
        loop {
            match self.producer.send(outgoing(topic, record)) {
                Ok(()) => return Ok(()),
                Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), _)) => {
                    self.producer.poll(ROOM_PAUSE);
                }
                Err((error, _)) => return Err(error.into()),
            }
        }
    }

    /// Waits until every record has been written, or given up.
    ///
    /// # Errors
    /// When that takes longer than `limit`.
    pub fn flush(&self, limit: Duration) -> anyhow::Result<()> {
        self.producer.flush(limit).context("the broker did not take every record")
    }

    /// Takes note of acknowledgements that have come.
    pub fn poll(&self) {
        self.producer.poll(Duration::ZERO);
    }

    /// Records that the broker has, as far as has been taken note of.
    pub fn acknowledged(&self) -> u64 {
        self.counts.acknowledged.load(Ordering::Relaxed)
    }

    /// Records that were given up: the broker may have them, and nobody knows.
    pub fn failed(&self) -> u64 {
        self.counts.failed.load(Ordering::Relaxed)
    }
}
