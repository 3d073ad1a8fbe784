//! The way to one destination's topic: a producer, and a watch over what the topic is.
//!
//! Each destination has a producer of its own, shared by all its lanes: an error that makes the client library drain and begin
//! a new producer epoch then stalls nobody else (ADR 0025). The watch looks at the topic when a lane opens, on a short period,
//! and after every error that could mean that it is another topic, or not ours to write to. What it cannot confirm ends the
//! lanes' sessions.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Weak};
use std::time::Duration;

use ports::destination::{AttemptRef, LaneError};
use protocol::code::StableCode;
use rdkafka::ClientConfig;
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{Message as _, Timestamp};
use rdkafka::producer::{BaseRecord, DeliveryResult, Producer as _, ProducerContext, ThreadedProducer};
use rdkafka::statistics::Statistics;
use shard::schedule::outgoing::OutgoingRecord;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::client::{ClientErrors, log_line};
use crate::native::{self, Persistence};
use crate::outcome::{Report, Trouble, lane_error, trouble};
use crate::record;
use crate::topic::{self, TopicFacts};

/// How often the topic is looked at while nothing gives a reason to.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);
/// How often it is looked at while it cannot be seen.
const LOOK_AGAIN_INTERVAL: Duration = Duration::from_millis(500);
/// A client that has not reached the cluster for so long is given up for another. One that lost every broker may take its time
/// to try them again when it has nothing to send, or never do.
const UNSEEN_MAX: Duration = Duration::from_secs(8);
/// How long the cluster may take for one answer.
const LOOK_TIMEOUT: Duration = Duration::from_secs(5);
/// How often the client library tells its figures, for the remark on throttling.
const STATISTICS_INTERVAL_MS: u32 = 2_000;
/// Records are not gathered beyond this, so that one batch is a small part of what a broker takes a second.
const BATCH_BYTES_MAX: u32 = 1_000_000;

/// The time by our clock, epoch milliseconds.
pub type NowMs = Arc<dyn Fn() -> i64 + Send + Sync>;

/// What a channel knows of its topic.
#[derive(Clone, Debug)]
pub(crate) struct Health {
    /// The number of the last look.
    pub(crate) looks: u64,
    /// When a look last saw the topic, or the channel was made.
    seen_at: Instant,
    /// What it saw; nothing before the first.
    pub(crate) seen: Result<Arc<TopicFacts>, LaneError>,
    /// How often everything became doubtful, and why the last time.
    pub(crate) doubts: u64,
    pub(crate) last_doubt: LaneError,
    /// The channel is of no use any more; another must be made.
    pub(crate) is_dead: bool,
}

/// What the producer's threads and the channel share.
struct Shared {
    topic: String,
    batch_bytes_max: u32,
    health: watch::Sender<Health>,
    looks_wanted: AtomicU64,
    throttled_ms: AtomicU64,
    errors: ClientErrors,
    wake: SyncSender<()>,
    now_ms: NowMs,
}

impl Shared {
    fn doubt(&self, error: LaneError, is_dead: bool) {
        self.health.send_modify(|health| {
            health.doubts += 1;
            health.last_doubt = error;
            health.is_dead |= is_dead;
        });
        self.look_soon();
    }

    /// The topic cannot be written to. The client library remembers that of a topic and refuses records at once, for minutes after
    /// it is over; another client does not.
    fn refused(&self, code: RDKafkaErrorCode) {
        self.doubt(lane_error(code, &format!("topic {} refuses records", self.topic)), true);
    }

    fn look_soon(&self) -> u64 {
        let number = self.looks_wanted.fetch_add(1, Ordering::SeqCst) + 1;
        match self.wake.try_send(()) {
            // A look that has not begun yet will count for this wish too.
            Ok(()) | Err(TrySendError::Full(())) | Err(TrySendError::Disconnected(())) => {}
        }
        number
    }

    fn saw(&self, number: u64, seen: Result<TopicFacts, LaneError>) {
        let shrunk = match &seen {
            Ok(facts) => facts.message_bytes_max.filter(|bytes| *bytes < self.batch_bytes_max),
            Err(_) => None,
        };
        self.health.send_modify(|health| {
            health.looks = number;
            match &seen {
                Ok(_) => health.seen_at = Instant::now(),
                Err(error) => {
                    let is_unreachable = error.code == StableCode::CapabilityUnavailable;
                    health.is_dead |= is_unreachable && health.seen_at.elapsed() > UNSEEN_MAX;
                }
            }
            health.seen = seen.map(Arc::new);
        });
        if let Some(bytes) = shrunk {
            let detail = format!("max.message.bytes of topic {} shrank to {bytes}: connecting anew", self.topic);
            self.doubt(LaneError { code: StableCode::CapabilityUnavailable, detail }, true);
        }
    }
}

/// Where a report goes.
pub(crate) struct Pending {
    attempt: AttemptRef,
    record_bytes: usize,
    reports: mpsc::Sender<(AttemptRef, Report)>,
}

struct ChannelContext {
    shared: Arc<Shared>,
}

impl ClientContext for ChannelContext {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        log_line(level, facility, message);
    }

    fn stats(&self, statistics: Statistics) {
        let throttled = statistics.brokers.values().filter_map(|broker| broker.throttle.as_ref());
        let longest_ms = throttled.map(|window| window.max).max().unwrap_or(0);
        self.shared.throttled_ms.store(longest_ms.try_into().unwrap_or(0), Ordering::Relaxed);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        let code = error.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Fail);
        tracing::debug!(topic = self.shared.topic, ?code, reason, "kafka producer");
        self.shared.errors.note(code, reason);
        match code {
            // Another producer reads the credentials anew: they may have been corrected.
            RDKafkaErrorCode::Authentication | RDKafkaErrorCode::SaslAuthenticationFailed | RDKafkaErrorCode::SSL => {
                self.shared.doubt(lane_error(code, reason), true);
            }
            RDKafkaErrorCode::AllBrokersDown => self.shared.doubt(lane_error(code, reason), false),
            _ => {
                self.shared.look_soon();
            }
        }
    }
}

impl ProducerContext for ChannelContext {
    type DeliveryOpaque = Box<Pending>;

    fn delivery(&self, result: &DeliveryResult<'_>, pending: Box<Pending>) {
        let Pending { attempt, record_bytes, reports } = *pending;
        let report = match result {
            Ok(message) => {
                let time_ms = match message.timestamp() {
                    Timestamp::LogAppendTime(ms) => ms,
                    Timestamp::CreateTime(_) | Timestamp::NotAvailable => (self.shared.now_ms)(),
                };
                match (u32::try_from(message.partition()), u64::try_from(message.offset())) {
                    (Ok(partition), Ok(offset)) => Report::Acknowledged { partition, offset, time_ms },
                    // An acknowledgement that does not say where is no evidence.
                    _ => Report::Failed {
                        persistence: Persistence::Persisted,
                        code: RDKafkaErrorCode::Fail,
                        record_bytes,
                    },
                }
            }
            Err((error, message)) => {
                let code = error.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Fail);
                self.note(code);
                Report::Failed { persistence: native::persistence(message), code, record_bytes }
            }
        };
        // There is room for every attempt; whoever asked may be gone, and then its successor asks for evidence.
        let _ = reports.try_send((attempt, report));
    }
}

impl ChannelContext {
    fn note(&self, code: RDKafkaErrorCode) {
        match trouble(code) {
            Trouble::Message => {}
            Trouble::Topic => {
                self.shared.refused(code);
            }
            Trouble::Passing | Trouble::TooLarge => {
                self.shared.look_soon();
            }
        }
    }
}

/// The way to one topic.
pub(crate) struct Channel {
    producer: ThreadedProducer<ChannelContext>,
    shared: Arc<Shared>,
    health: watch::Receiver<Health>,
}

impl Channel {
    /// Makes a producer for a topic that takes batches of up to `message_bytes_max`. Nothing is sent, and nothing waited for.
    ///
    /// # Errors
    /// What the client library says of its configuration.
    pub(crate) fn open(
        mut config: ClientConfig,
        topic: &str,
        message_bytes_max: u32,
        delivery_timeout: Duration,
        now_ms: NowMs,
    ) -> Result<Arc<Channel>, LaneError> {
        let batch_bytes_max = message_bytes_max.min(BATCH_BYTES_MAX);
        let unseen = LaneError {
            code: StableCode::CapabilityUnavailable,
            detail: format!("topic {topic} has not been looked at yet"),
        };
        let (wake, woken) = sync_channel(1);
        let (sender, health) = watch::channel(Health {
            looks: 0,
            seen_at: Instant::now(),
            seen: Err(unseen.clone()),
            doubts: 0,
            last_doubt: unseen,
            is_dead: false,
        });
        let shared = Arc::new(Shared {
            topic: topic.to_owned(),
            batch_bytes_max,
            health: sender,
            looks_wanted: AtomicU64::new(0),
            throttled_ms: AtomicU64::new(0),
            errors: ClientErrors::default(),
            wake,
            now_ms,
        });
        decide(&mut config, batch_bytes_max, delivery_timeout);
        let refused = |detail: String| LaneError { code: StableCode::CapabilityUnavailable, detail };
        let producer = config
            .create_with_context(ChannelContext { shared: shared.clone() })
            .map_err(|error| refused(format!("the client library refuses the connection: {error}")))?;
        let channel = Arc::new(Channel { producer, shared, health });
        let weak = Arc::downgrade(&channel);
        std::thread::Builder::new()
            .name("kafka-watch".to_owned())
            .spawn(move || keep_looking(&weak, &woken))
            .map_err(|error| refused(format!("no thread to watch topic {topic} with: {error}")))?;
        Ok(channel)
    }

    /// Looks at the topic now. The answer is from after this call.
    ///
    /// # Errors
    /// Why it cannot be seen.
    pub(crate) async fn look(&self) -> Result<Arc<TopicFacts>, LaneError> {
        let number = self.shared.look_soon();
        let mut health = self.health.clone();
        let gone = |_| LaneError {
            code: StableCode::CapabilityUnavailable,
            detail: format!("the watch over topic {} has ended", self.shared.topic),
        };
        let health = health.wait_for(|health| health.looks >= number).await.map_err(gone)?;
        health.seen.clone()
    }

    /// What is known now, and changes of it.
    pub(crate) fn health(&self) -> watch::Receiver<Health> {
        self.health.clone()
    }

    /// The topic's name.
    pub(crate) fn topic(&self) -> &str {
        &self.shared.topic
    }

    /// How long the broker made us wait at most, lately, because of a quota.
    pub(crate) fn throttled_ms(&self) -> u64 {
        self.shared.throttled_ms.load(Ordering::Relaxed)
    }

    /// Hands a record over; its report comes through `reports`.
    ///
    /// # Errors
    /// Why the client library did not take it. It will not be sent.
    pub(crate) fn produce(
        &self,
        partition: i32,
        record: &OutgoingRecord,
        timestamp_ms: i64,
        attempt: AttemptRef,
        reports: &mpsc::Sender<(AttemptRef, Report)>,
    ) -> Result<(), RDKafkaErrorCode> {
        let headers = record::headers(record).ok_or(RDKafkaErrorCode::InvalidRecord)?;
        let record_bytes = record::solo_batch_bytes(record);
        let pending = Box::new(Pending { attempt, record_bytes, reports: reports.clone() });
        let mut outgoing = BaseRecord::<[u8], [u8], _>::with_opaque_to(&self.shared.topic, pending)
            .partition(partition)
            .timestamp(timestamp_ms)
            .headers(headers);
        outgoing.key = record.key.as_deref();
        outgoing.payload = record.value.as_deref();
        match self.producer.send(outgoing) {
            Ok(()) => Ok(()),
            Err((error, _)) => {
                let code = error.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Fail);
                if trouble(code) == Trouble::Topic {
                    self.shared.refused(code);
                }
                Err(code)
            }
        }
    }
}

/// What is not the caller's to decide.
fn decide(config: &mut ClientConfig, batch_bytes_max: u32, delivery_timeout: Duration) {
    config.set("acks", "all");
    config.set("enable.idempotence", "true");
    // The library's answer comes before the worker gives an attempt up, so that what was never sent is known not to be.
    config.set("message.timeout.ms", delivery_timeout.as_millis().to_string());
    config.set("request.timeout.ms", "10000");
    // The worker bounds what is under way, by lane and in all; a bound here would let one lane's backlog refuse another's record.
    config.set("queue.buffering.max.messages", "0");
    config.set("queue.buffering.max.kbytes", "2097151");
    config.set("topic.metadata.propagation.max.ms", "2000");
    // The broker's limit decides, not the library's guess of it.
    config.set("message.max.bytes", "1000000000");
    config.set("batch.size", batch_bytes_max.max(1).to_string());
    config.set("statistics.interval.ms", STATISTICS_INTERVAL_MS.to_string());
    for (name, value) in [("linger.ms", "1"), ("socket.timeout.ms", "10000")] {
        if config.get(name).is_none() {
            config.set(name, value);
        }
    }
}

/// Looks whenever there is a reason, and on a period, until the channel is gone.
fn keep_looking(channel: &Weak<Channel>, woken: &std::sync::mpsc::Receiver<()>) {
    let mut pause = LOOK_INTERVAL;
    loop {
        match woken.recv_timeout(pause) {
            Ok(()) | Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        let Some(channel) = channel.upgrade() else { return };
        let number = channel.shared.looks_wanted.load(Ordering::SeqCst);
        let topic = channel.topic();
        let seen = topic::look_up(channel.producer.client(), topic, LOOK_TIMEOUT, &channel.shared.errors);
        pause = if seen.is_ok() { LOOK_INTERVAL } else { LOOK_AGAIN_INTERVAL };
        let seen = seen.map_err(|error| lane_error(error.code, &format!("topic {topic}: {}", error.detail)));
        // An idempotent producer that could not get its id is of no use ever after, and says so by an ordinary error.
        let is_known = channel.health.borrow().is_dead;
        if let Some((code, detail)) = channel.producer.client().fatal_error().filter(|_| !is_known) {
            channel.shared.doubt(lane_error(code, &format!("topic {topic}: {detail}")), true);
        }
        channel.shared.saw(number, seen);
    }
}
