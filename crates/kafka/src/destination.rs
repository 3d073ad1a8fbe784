//! Kafka topics as destinations, AT_LEAST_ONCE (architecture §9): acknowledged by all in-sync replicas, idempotent within a
//! producer's life, and honest about what a crash leaves unknown.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream};
use futures_util::{FutureExt as _, StreamExt as _};
use ports::destination::{AttemptOutcome, AttemptRef, Destination, LaneError, LaneSession, LaneTarget};
use protocol::code::StableCode;
use protocol::id::ShardId;
use protocol::mutation_v2::{AbsenceKind, AttemptResult, Disposition, TimestampPolicy};
use protocol::resource::Resource;
use rdkafka::error::RDKafkaErrorCode;
use shard::query::OpenAttempt;
use shard::schedule::claim::AdmittedAttempt;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::channel::{Channel, Health, NowMs};
use crate::outcome::{Report, Trouble, judge, kafka_name, trouble};
use crate::settings::{Connection, ReadEnvironment};
use crate::topic::{MESSAGE_BYTES_MAX_DEFAULT, TopicFacts, display_id};

/// Reports that are judged at once.
const REPORTS_MAX: usize = 512;
/// A producer that no lane has used for this long is closed.
const IDLE_MAX: Duration = Duration::from_secs(600);

/// Finds the connection of a destination's version: its `kafka` object as JSON, or why there is none.
pub type Connections = Arc<dyn Fn(Bytes, u64) -> BoxFuture<'static, Result<serde_json::Value, String>> + Send + Sync>;

/// What a [`KafkaDestination`] takes from the process it runs in.
#[derive(Clone)]
pub struct KafkaOptions {
    /// Where connections are recorded.
    pub connections: Connections,
    /// Where references to the environment lead.
    pub environment: ReadEnvironment,
    /// The time by our clock, for acknowledgements that carry none of the broker's.
    pub now_ms: NowMs,
    /// When the client library gives a record up. Below the worker's send deadline, so that its answer counts.
    pub delivery_timeout: Duration,
}

/// Kafka topics as destinations.
#[derive(Clone)]
pub struct KafkaDestination {
    options: KafkaOptions,
    channels: Arc<Mutex<BTreeMap<ChannelKey, Entry>>>,
    /// The newest epoch of each shard that has opened a lane.
    epochs: Arc<Mutex<BTreeMap<ShardId, Arc<AtomicU64>>>>,
}

type ChannelKey = (Bytes, Connection);

struct Entry {
    channel: Arc<Channel>,
    used_at: Instant,
}

impl KafkaDestination {
    /// With nothing connected yet.
    pub fn new(options: KafkaOptions) -> KafkaDestination {
        KafkaDestination { options, channels: Arc::default(), epochs: Arc::default() }
    }

    /// The destination's channel: one for all its lanes, made anew when the one there was is of no use any more.
    fn channel(&self, target: &LaneTarget, connection: Connection) -> Result<Arc<Channel>, LaneError> {
        let mut channels = self.channels.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        channels
            .retain(|_, entry| Arc::strong_count(&entry.channel) > 1 || now.duration_since(entry.used_at) < IDLE_MAX);
        let key = (target.profile_id.clone(), connection);
        let mut message_bytes_max = target.profile.record_bytes_max;
        if let Some(entry) = channels.get_mut(&key) {
            let health = entry.channel.health();
            let health = health.borrow();
            if !health.is_dead {
                entry.used_at = now;
                return Ok(entry.channel.clone());
            }
            if let Ok(facts) = &health.seen {
                message_bytes_max = facts.message_bytes_max.unwrap_or(MESSAGE_BYTES_MAX_DEFAULT);
            }
        }
        let unavailable = |detail: String| LaneError { code: StableCode::CapabilityUnavailable, detail };
        let config = key.1.client_config(&self.options.environment).map_err(unavailable)?;
        let options = &self.options;
        let channel =
            Channel::open(config, &key.1.topic, message_bytes_max, options.delivery_timeout, options.now_ms.clone())?;
        channels.insert(key, Entry { channel: channel.clone(), used_at: now });
        Ok(channel)
    }

    /// Ends the sessions of lower epochs of the shard.
    ///
    /// # Errors
    /// When the shard has a newer epoch already.
    fn fence(&self, shard: ShardId, epoch: u64) -> Result<Arc<AtomicU64>, LaneError> {
        let mut epochs = self.epochs.lock().unwrap_or_else(PoisonError::into_inner);
        let newest = epochs.entry(shard).or_default().clone();
        let before = newest.fetch_max(epoch, Ordering::SeqCst);
        if before > epoch {
            let detail = format!("epoch {epoch} is fenced by epoch {before}");
            return Err(LaneError { code: StableCode::CapabilityUnavailable, detail });
        }
        Ok(newest)
    }
}

impl Destination for KafkaDestination {
    fn open_lane(&self, target: LaneTarget) -> BoxFuture<'static, Result<Box<dyn LaneSession>, LaneError>> {
        let destination = self.clone();
        async move {
            let unavailable = |detail: String| LaneError { code: StableCode::CapabilityUnavailable, detail };
            let newest_epoch = destination.fence(target.shard, target.owner_epoch)?;
            let connections = &destination.options.connections;
            let connection =
                connections(target.profile_id.clone(), target.profile_version).await.map_err(unavailable)?;
            let connection = Connection::from_json(connection).map_err(|error| unavailable(error.to_string()))?;
            let channel = destination.channel(&target, connection)?;
            let doubts = channel.health().borrow().doubts;
            let pin = Pin::new(&target)?;
            channel.look().await?;
            if let Some(error) = reason_of_loss(&channel.health().borrow(), doubts, &pin, channel.topic()) {
                return Err(error);
            }
            Ok(Box::new(KafkaLane {
                channel,
                pin,
                doubts,
                newest_epoch,
                epoch: target.owner_epoch,
                timestamp_policy: target.profile.timestamp_policy,
            }) as Box<dyn LaneSession>)
        }
        .boxed()
    }
}

/// What a lane is pinned to.
#[derive(Clone, Debug)]
struct Pin {
    cluster_id: Arc<str>,
    topic_id: [u8; 16],
    partition: u32,
}

impl Pin {
    fn new(target: &LaneTarget) -> Result<Pin, LaneError> {
        let Resource::Kafka { cluster_id, topic } = &target.profile.resource else {
            return Err(mismatch("the profile's topic is not of Kafka".to_owned()));
        };
        Ok(Pin { cluster_id: cluster_id.clone(), topic_id: *topic, partition: target.partition })
    }

    /// Whether this is still the topic, has the partition, and may be written to.
    fn check(&self, topic: &str, facts: &TopicFacts) -> Result<(), LaneError> {
        if facts.cluster_id != *self.cluster_id {
            return Err(mismatch(format!(
                "topic {topic} is on cluster {}, the destination is pinned to cluster {}",
                facts.cluster_id, self.cluster_id
            )));
        }
        if facts.topic_id != self.topic_id {
            return Err(mismatch(format!(
                "topic {topic} was deleted and made again: its id is {}, the destination is pinned to {}; `destination \
                 rebind` moves what is pending to the new one",
                display_id(facts.topic_id),
                display_id(self.topic_id)
            )));
        }
        if self.partition >= facts.partition_count {
            return Err(mismatch(format!(
                "topic {topic} has {} partitions, the lane is for partition {}",
                facts.partition_count, self.partition
            )));
        }
        if facts.may_write == Some(false) {
            let detail =
                format!("topic {topic} may not be written to: the right WRITE is missing (TOPIC_AUTHORIZATION_FAILED)");
            return Err(LaneError { code: StableCode::CapabilityUnavailable, detail });
        }
        Ok(())
    }
}

fn mismatch(detail: String) -> LaneError {
    LaneError { code: StableCode::ResourceIncarnationMismatch, detail }
}

/// A session on one partition.
struct KafkaLane {
    channel: Arc<Channel>,
    pin: Pin,
    /// The doubts that were settled when it opened.
    doubts: u64,
    newest_epoch: Arc<AtomicU64>,
    epoch: u64,
    timestamp_policy: TimestampPolicy,
}

type Answers = Vec<(AttemptRef, AttemptOutcome)>;

impl KafkaLane {
    fn is_over(&self) -> bool {
        let health = self.channel.health();
        let is_lost = reason_of_loss(&health.borrow(), self.doubts, &self.pin, self.channel.topic()).is_some();
        is_lost || self.newest_epoch.load(Ordering::SeqCst) > self.epoch
    }

    fn hand_over(
        &self,
        attempt: &AdmittedAttempt,
        reports: &mpsc::Sender<(AttemptRef, Report)>,
    ) -> Result<(), AttemptOutcome> {
        let reference = reference_of(attempt);
        let record = attempt.delivered_record();
        let deliver_at_ms = attempt.material().deliver_at_ms;
        let timestamp_ms = match self.timestamp_policy {
            TimestampPolicy::EventTime => record.event_time_ms.unwrap_or(deliver_at_ms),
            TimestampPolicy::DeliveryTime => deliver_at_ms,
        };
        let permanent =
            || not_submitted(reference, Disposition::MessagePermanent, StableCode::DestinationDefinitivePermanent);
        let partition = i32::try_from(self.pin.partition).map_err(|_| permanent())?;
        self.channel.produce(partition, &record, timestamp_ms, reference, reports).map_err(|code| match trouble(code) {
            Trouble::Message | Trouble::TooLarge => permanent(),
            Trouble::Passing | Trouble::Topic => {
                tracing::debug!(topic = self.channel.topic(), ?code, "a record was not taken by the client library");
                not_submitted(reference, Disposition::LaneUnavailable, StableCode::CapabilityUnavailable)
            }
        })
    }
}

impl LaneSession for KafkaLane {
    fn send(&self, attempts: Vec<AdmittedAttempt>) -> BoxStream<'static, Answers> {
        let (sender, reports) = mpsc::channel(attempts.len().max(1));
        let is_over = self.is_over();
        let mut refused = Answers::new();
        for attempt in &attempts {
            let handed_over = if is_over {
                let reference = reference_of(attempt);
                Err(not_submitted(reference, Disposition::LaneUnavailable, StableCode::CapabilityUnavailable))
            } else {
                self.hand_over(attempt, &sender)
            };
            if let Err(outcome) = handed_over {
                refused.push((reference_of(attempt), outcome));
            }
        }
        drop(sender);
        let (channel, topic_id) = (self.channel.clone(), self.pin.topic_id);
        let answers = batches(reports).then(move |batch| judge_batch(channel.clone(), topic_id, batch));
        if refused.is_empty() { answers.boxed() } else { stream::iter([refused]).chain(answers).boxed() }
    }

    /// Without receipts nobody can vouch for an attempt that another run has sent.
    fn recover(&self, _: Vec<OpenAttempt>) -> BoxFuture<'static, Result<Answers, LaneError>> {
        std::future::ready(Ok(Answers::new())).boxed()
    }

    fn forget_before(&self, _: Bytes) {}

    fn lost(&self) -> BoxFuture<'static, LaneError> {
        let (mut health, pin, doubts) = (self.channel.health(), self.pin.clone(), self.doubts);
        let topic = self.channel.topic().to_owned();
        async move {
            let over = |health: &Health| reason_of_loss(health, doubts, &pin, &topic);
            match health.wait_for(|health| over(health).is_some()).await {
                Ok(health) => over(&health).unwrap_or_else(|| health.last_doubt.clone()),
                Err(watch::error::RecvError { .. }) => LaneError {
                    code: StableCode::CapabilityUnavailable,
                    detail: format!("the watch over topic {topic} has ended"),
                },
            }
        }
        .boxed()
    }

    fn remark(&self) -> Option<LaneError> {
        let throttled_ms = self.channel.throttled_ms();
        (throttled_ms > 0).then(|| LaneError {
            code: StableCode::AdmissionCapacityGated,
            detail: format!("the broker throttles this client by a quota, lately by up to {throttled_ms} ms a request"),
        })
    }
}

/// Why a session is over, or cannot begin.
fn reason_of_loss(health: &Health, doubts: u64, pin: &Pin, topic: &str) -> Option<LaneError> {
    if health.doubts != doubts {
        return Some(health.last_doubt.clone());
    }
    match &health.seen {
        Ok(_) if health.is_dead => Some(LaneError {
            code: StableCode::CapabilityUnavailable,
            detail: format!("the connection for topic {topic} is given up for another"),
        }),
        Ok(facts) => pin.check(topic, facts).err(),
        Err(error) => Some(error.clone()),
    }
}

/// Reports as they come, as many at once as there are.
fn batches(
    reports: mpsc::Receiver<(AttemptRef, Report)>,
) -> impl futures_util::Stream<Item = Vec<(AttemptRef, Report)>> {
    stream::unfold(reports, |mut reports| async move {
        let mut batch = Vec::new();
        let received = reports.recv_many(&mut batch, REPORTS_MAX).await;
        (received > 0).then_some((batch, reports))
    })
}

async fn judge_batch(channel: Arc<Channel>, topic_id: [u8; 16], batch: Vec<(AttemptRef, Report)>) -> Answers {
    let is_too_large =
        |report: &Report| matches!(report, Report::Failed { code: RDKafkaErrorCode::MessageSizeTooLarge, .. });
    let mut limit = usize::MAX;
    if batch.iter().any(|(_, report)| is_too_large(report)) {
        // What the topic takes now decides whether the record or only its batch was too large. While nobody can say, neither
        // is given up.
        if let Ok(facts) = channel.look().await {
            limit = facts.message_bytes_max.unwrap_or(MESSAGE_BYTES_MAX_DEFAULT) as usize;
        }
    }
    let judge_one = |(attempt, report): (AttemptRef, Report)| {
        let outcome = judge(attempt, topic_id, report, limit);
        if let (
            AttemptResult::NotPublished { disposition: Disposition::MessagePermanent, .. },
            Report::Failed { code, .. },
        ) = (&outcome.result, report)
        {
            let (topic, message, code) = (channel.topic(), attempt.message.to_string(), kafka_name(code));
            tracing::warn!(topic, message, code, "the broker refuses a record for good");
        }
        (attempt, outcome)
    };
    batch.into_iter().map(judge_one).collect()
}

fn reference_of(attempt: &AdmittedAttempt) -> AttemptRef {
    AttemptRef { message: attempt.message_id().uuid, generation: attempt.generation(), attempt: attempt.attempt() }
}

fn not_submitted(attempt: AttemptRef, disposition: Disposition, code: StableCode) -> AttemptOutcome {
    AttemptOutcome::not_published(attempt, disposition, AbsenceKind::NotSubmitted, code)
}
