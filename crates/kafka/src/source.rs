//! Topics as sources of schedules: a member of a consumer group that reads what is committed, starts where it is told, and
//! commits what it is told.
//!
//! One thread polls the client library and hands events over in their order through a bounded queue. A reader that does not
//! keep up stops the polling; one that stays away for longer than the group allows is put out of it, and begins again.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use ports::source::{
    SideRecord, Source, SourceError, SourceEvent, SourceHeader, SourcePartition, SourceRecord, SourceSession,
    SourceSpec, SourceSystem,
};
use ports::target::{TargetCheck, TargetError};
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::{ClientContext, DefaultClientContext};
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer as _, ConsumerContext};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::message::{BorrowedMessage, Message as _};
use rdkafka::producer::Producer as _;
use rdkafka::statistics::Statistics;
use rdkafka::types::RDKafkaRespErr;
use rdkafka::{Offset, TopicPartitionList};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::client::{ClientErrors, log_line, on_thread};
use crate::native;
use crate::outcome::kafka_name;
use crate::settings::{Connection, ReadEnvironment, check_topic};
use crate::side::SideWriter;
use crate::target::{asking_client, failed, not_seen, passed};
use crate::topic;

/// How long the cluster may take for one answer.
const TIMEOUT: Duration = Duration::from_secs(8);
/// How long is polled before it is looked whether the session is over.
const POLL: Duration = Duration::from_millis(100);
/// How often it is looked whether the topic is still the same one.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);
/// Records handed over at once, and their bytes; one record may go beyond.
const RECORDS_MAX: usize = 500;
const RECORDS_BYTES_MAX: usize = 1 << 20;
/// Events on their way to the reader.
const EVENTS_MAX: usize = 8;

/// Topics of Kafka clusters as sources.
#[derive(Clone)]
pub struct KafkaSources {
    environment: ReadEnvironment,
    /// Which member of its groups this process is, over restarts: the group then does not wait for one that crashed.
    instance: Arc<str>,
}

impl KafkaSources {
    /// `instance` names this server among the members of a group, and must be its own.
    pub fn new(environment: ReadEnvironment, instance: &str) -> KafkaSources {
        KafkaSources { environment, instance: instance.into() }
    }
}

impl SourceSystem for KafkaSources {
    fn check(&self, spec: SourceSpec, dry_run: bool) -> BoxFuture<'static, Result<Source, TargetError>> {
        let environment = self.environment.clone();
        async move {
            let connection = Connection::from_json(spec.connection.clone())?;
            let side_topics: Vec<String> = std::iter::once(spec.refusals).chain(spec.receipts).collect();
            for name in &side_topics {
                check_topic(name)?;
            }
            let (mut source, missing) = {
                let (connection, environment) = (connection.clone(), environment.clone());
                let unavailable = || TargetError::Unavailable { reason: "no thread for a call to Kafka".to_owned() };
                on_thread("kafka-check", move || check(&connection, &environment, &side_topics))
                    .await
                    .ok_or_else(unavailable)??
            };
            for name in missing {
                let detail = if dry_run {
                    format!("topic {name} would be made")
                } else {
                    create(&connection, &environment, &name)
                        .await
                        .map_err(|detail| failed(source.checks.clone(), "side topic", detail))?;
                    format!("topic {name} was made, partitions: 1")
                };
                source.checks.push(passed("side topic", detail));
            }
            Ok(source)
        }
        .boxed()
    }

    fn open(&self, spec: SourceSpec) -> BoxFuture<'static, Result<Box<dyn SourceSession>, SourceError>> {
        let sources = self.clone();
        async move {
            let unavailable = || SourceError { detail: "no thread for a call to Kafka".to_owned() };
            let session = on_thread("kafka-join", move || sources.join(&spec)).await.ok_or_else(unavailable)??;
            Ok(Box::new(session) as Box<dyn SourceSession>)
        }
        .boxed()
    }
}

/// Looks at the source and its side topics; says which of these are missing.
fn check(
    connection: &Connection,
    environment: &ReadEnvironment,
    side_topics: &[String],
) -> Result<(Source, Vec<String>), TargetError> {
    let topic = &connection.topic;
    let (client, errors) =
        asking_client(connection, environment).map_err(|detail| failed(Vec::new(), "connection", detail))?;
    let facts =
        topic::look_up(client.client(), topic, TIMEOUT, &errors).map_err(|error| not_seen(connection, &error))?;
    let servers = &connection.bootstrap_servers;
    let mut checks: Vec<TargetCheck> = vec![
        passed("connection", format!("cluster {} answers at {servers}", facts.cluster_id)),
        passed("topic", format!("topic {topic} exists, partitions: {}", facts.partition_count)),
    ];
    match facts.may_read {
        Some(false) => {
            let detail = format!("this client may not read topic {topic}: allow it READ on the topic and on the group");
            return Err(failed(checks, "read", detail));
        }
        Some(true) => checks.push(passed("read", format!("this client may read topic {topic}"))),
        None => checks.push(passed("read", "the broker does not say what this client may do".to_owned())),
    }
    let mut missing = Vec::new();
    for name in side_topics {
        match native::describe_topic(client.client().native_ptr(), name, TIMEOUT, &errors) {
            Ok(found) if found.may_write == Some(false) => {
                let detail = format!("this client may not write to topic {name}: allow it WRITE on the topic");
                return Err(failed(checks, "side topic", detail));
            }
            Ok(_) => checks.push(passed("side topic", format!("topic {name} exists and may be written to"))),
            Err(error) if error.code == RDKafkaErrorCode::UnknownTopicOrPartition => missing.push(name.clone()),
            Err(error) => {
                let detail = format!("topic {name}: {} ({})", error.detail, kafka_name(error.code));
                return Err(failed(checks, "side topic", detail));
            }
        }
    }
    Ok((Source { topic: topic.clone(), partition_count: facts.partition_count, checks }, missing))
}

async fn create(connection: &Connection, environment: &ReadEnvironment, topic: &str) -> Result<(), String> {
    let refused =
        |reason: String| format!("topic {topic} is missing and cannot be made ({reason}); make it, or name another");
    let admin: AdminClient<DefaultClientContext> =
        connection.client_config(environment)?.create().map_err(|error| refused(error.to_string()))?;
    // As many replicas as the brokers give by themselves.
    let new = NewTopic::new(topic, 1, TopicReplication::Fixed(-1));
    let results = admin
        .create_topics(&[new], &AdminOptions::new().request_timeout(Some(TIMEOUT)))
        .await
        .map_err(|error| refused(error.to_string()))?;
    match results.into_iter().next() {
        Some(Ok(_) | Err((_, RDKafkaErrorCode::TopicAlreadyExists))) => Ok(()),
        Some(Err((_, code))) => Err(refused(kafka_name(code))),
        None => Err(refused("the cluster does not say why".to_owned())),
    }
}

/// Which topic this is. A consumer complains only while it is polled; a client for questions says at once why it gets no answer.
fn topic_id(connection: &Connection, environment: &ReadEnvironment) -> Result<[u8; 16], String> {
    let topic = &connection.topic;
    let (client, errors) = asking_client(connection, environment)?;
    native::describe_topic(client.client().native_ptr(), topic, TIMEOUT, &errors)
        .map(|described| described.topic_id)
        .map_err(|error| format!("topic {topic}: {} ({})", error.detail, kafka_name(error.code)))
}

impl KafkaSources {
    fn join(&self, spec: &SourceSpec) -> Result<KafkaSession, SourceError> {
        let failed = |detail: String| SourceError { detail };
        let connection = Connection::from_json(spec.connection.clone()).map_err(|error| failed(error.to_string()))?;
        let mut config = connection.client_config(&self.environment).map_err(failed)?;
        config.set("group.id", &spec.group);
        config.set("group.instance.id", &*self.instance);
        config.set("isolation.level", "read_committed");
        config.set("enable.auto.commit", "false");
        config.set("enable.auto.offset.store", "false");
        // A place that is not there any more is told, not replaced by another.
        config.set("auto.offset.reset", "error");
        config.set("partition.assignment.strategy", "range,roundrobin");
        // Bounds what lies fetched and unread in memory.
        config.set("queued.max.messages.kbytes", "16384");
        let topic: Arc<str> = connection.topic.as_str().into();
        let topic_id = topic_id(&connection, &self.environment).map_err(failed)?;
        let writer = SideWriter::open(&connection, &self.environment).map_err(failed)?;
        let shared = Arc::new(Shared::default());
        let context = GroupContext { shared: shared.clone() };
        let consumer: BaseConsumer<GroupContext> = config
            .create_with_context(context)
            .map_err(|error| failed(format!("the client library refuses the connection: {error}")))?;
        consumer.subscribe(&[&topic]).map_err(|error| failed(error.to_string()))?;
        let consumer = Arc::new(consumer);
        let (sender, events) = mpsc::channel(EVENTS_MAX);
        let reader = Reader {
            consumer: consumer.clone(),
            shared: shared.clone(),
            topic: topic.clone(),
            topic_id,
            looked_at: Instant::now(),
            side_errors: writer.errors(),
            events: sender,
        };
        std::thread::Builder::new()
            .name("kafka-source".to_owned())
            .spawn(move || reader.run())
            .map_err(|error| failed(format!("no thread to read topic {topic} with: {error}")))?;
        Ok(KafkaSession { consumer, shared, topic, events: tokio::sync::Mutex::new(events), writer })
    }
}

/// What the client library's callbacks, the polling thread and the session share.
#[derive(Default)]
struct Shared {
    /// Assignments and revocations in their order, noted by the callback and told by the polling thread.
    moves: Mutex<VecDeque<Move>>,
    errors: ClientErrors,
    is_over: AtomicBool,
}

impl Shared {
    fn take_moves(&self) -> VecDeque<Move> {
        std::mem::take(&mut *self.moves.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

enum Move {
    Assigned(i32),
    Revoked(i32),
}

struct GroupContext {
    shared: Arc<Shared>,
}

impl ClientContext for GroupContext {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        log_line(level, facility, message);
    }

    fn stats(&self, _: Statistics) {}

    fn error(&self, error: KafkaError, reason: &str) {
        self.shared.errors.note(error.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Fail), reason);
    }
}

impl ConsumerContext for GroupContext {
    /// Takes partitions over without a place and held back: where to read them is the reader's to say, and only then.
    fn rebalance(&self, consumer: &BaseConsumer<Self>, code: RDKafkaRespErr, partitions: &mut TopicPartitionList) {
        let numbers: Vec<i32> = partitions.elements().iter().map(|element| element.partition()).collect();
        let mut moves = self.shared.moves.lock().unwrap_or_else(PoisonError::into_inner);
        let done = if code == RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS {
            moves.extend(numbers.into_iter().map(Move::Assigned));
            partitions
                .set_all_offsets(Offset::Beginning)
                .and_then(|()| consumer.assign(partitions))
                .and_then(|()| consumer.pause(partitions))
        } else {
            moves.extend(numbers.into_iter().map(Move::Revoked));
            consumer.unassign()
        };
        if let Err(error) = done {
            tracing::warn!(%error, "a rebalance failed");
        }
    }

    fn commit_callback(&self, result: KafkaResult<()>, _: &TopicPartitionList) {
        if let Err(error) = result {
            // The reader knows what is settled by its own record; the group's offset follows with the next commit.
            tracing::debug!(%error, "an offset was not committed");
        }
    }
}

/// The polling thread.
struct Reader {
    consumer: Arc<BaseConsumer<GroupContext>>,
    shared: Arc<Shared>,
    topic: Arc<str>,
    topic_id: [u8; 16],
    looked_at: Instant,
    /// What the writer beside it complains of: a session is as good as both of its clients.
    side_errors: Arc<ClientErrors>,
    events: mpsc::Sender<Result<SourceEvent, SourceError>>,
}

impl Reader {
    fn run(mut self) {
        while !self.shared.is_over.load(Ordering::SeqCst) {
            if let Err(error) = self.step() {
                // The session may be gone already.
                let _ = self.events.blocking_send(Err(error));
                return;
            }
        }
    }

    /// Polls once, gathers what else is there, and hands it over.
    fn step(&mut self) -> Result<(), SourceError> {
        let mut records: BTreeMap<i32, Vec<SourceRecord>> = BTreeMap::new();
        let mut next = self.consumer.poll(POLL);
        let (mut count, mut bytes) = (0, 0);
        loop {
            match next {
                None => break,
                Some(Ok(message)) => {
                    count += 1;
                    bytes += message.payload_len() + message.key_len();
                    records.entry(message.partition()).or_default().push(record(&message));
                }
                Some(Err(error)) => self.weigh(&error)?,
            }
            // What was read before a rebalance goes before it.
            let is_full = count >= RECORDS_MAX || bytes >= RECORDS_BYTES_MAX;
            if is_full || !self.shared.moves.lock().unwrap_or_else(PoisonError::into_inner).is_empty() {
                break;
            }
            next = self.consumer.poll(Duration::ZERO);
        }
        for (partition, records) in records {
            self.tell(SourceEvent::Records { partition: self.partition(partition), records });
        }
        for moved in self.shared.take_moves() {
            let event = match moved {
                Move::Assigned(partition) => self.assigned(partition)?,
                Move::Revoked(partition) => SourceEvent::Revoked { partition: self.partition(partition) },
            };
            self.tell(event);
        }
        if let Some(error) = self.side_errors.hopeless() {
            let detail = format!(
                "topic {}: refusals and receipts cannot be written: {} ({})",
                self.topic,
                error.detail,
                kafka_name(error.code)
            );
            return Err(SourceError { detail });
        }
        if self.looked_at.elapsed() > LOOK_INTERVAL {
            self.look()?;
        }
        Ok(())
    }

    fn tell(&self, event: SourceEvent) {
        // A session that is gone wants no events; the loop ends by itself.
        let _ = self.events.blocking_send(Ok(event));
    }

    fn partition(&self, partition: i32) -> SourcePartition {
        SourcePartition { topic: self.topic_id, partition: partition.unsigned_abs() }
    }

    fn assigned(&self, partition: i32) -> Result<SourceEvent, SourceError> {
        let failed =
            |error: KafkaError| SourceError { detail: format!("topic {} partition {partition}: {error}", self.topic) };
        let (first, end) = self.consumer.fetch_watermarks(&self.topic, partition, TIMEOUT).map_err(failed)?;
        let mut asked = TopicPartitionList::new();
        asked.add_partition(&self.topic, partition);
        let committed = self.consumer.committed_offsets(asked, TIMEOUT).map_err(failed)?;
        let committed = committed.elements().first().and_then(|element| match element.offset() {
            Offset::Offset(offset) => u64::try_from(offset).ok(),
            _ => None,
        });
        let offset = |offset: i64| u64::try_from(offset).unwrap_or(0);
        Ok(SourceEvent::Assigned {
            partition: self.partition(partition),
            committed,
            first: offset(first),
            end: offset(end),
        })
    }

    /// Whether an error ends the session. What passes by itself does not.
    fn weigh(&self, error: &KafkaError) -> Result<(), SourceError> {
        use RDKafkaErrorCode as Code;
        let code = error.rdkafka_error_code().unwrap_or(Code::Fail);
        let passes = matches!(
            code,
            Code::BrokerTransportFailure
                | Code::AllBrokersDown
                | Code::OperationTimedOut
                | Code::RequestTimedOut
                | Code::Resolve
        );
        if passes {
            tracing::debug!(topic = &*self.topic, %error, "kafka consumer");
            return Ok(());
        }
        Err(SourceError { detail: format!("topic {}: {error} ({})", self.topic, kafka_name(code)) })
    }

    /// A topic that was made anew under the name has other records at the same offsets.
    fn look(&mut self) -> Result<(), SourceError> {
        self.looked_at = Instant::now();
        let client = self.consumer.client().native_ptr();
        match native::describe_topic(client, &self.topic, TIMEOUT, &self.shared.errors) {
            Ok(found) if found.topic_id != self.topic_id => {
                Err(SourceError { detail: format!("topic {} was deleted and made again", self.topic) })
            }
            Err(error) if error.code == RDKafkaErrorCode::UnknownTopicOrPartition => {
                Err(SourceError { detail: format!("topic {} does not exist any more", self.topic) })
            }
            Ok(_) | Err(_) => Ok(()),
        }
    }
}

fn record(message: &BorrowedMessage<'_>) -> SourceRecord {
    let copy = Bytes::copy_from_slice;
    let headers = native::headers(message).into_iter().map(|(name, value)| SourceHeader { name, value }).collect();
    SourceRecord {
        offset: u64::try_from(message.offset()).unwrap_or(0),
        timestamp_ms: message.timestamp().to_millis(),
        key: message.key().map(copy),
        value: message.payload().map(copy),
        headers,
    }
}

/// A member of a group.
struct KafkaSession {
    consumer: Arc<BaseConsumer<GroupContext>>,
    shared: Arc<Shared>,
    topic: Arc<str>,
    events: tokio::sync::Mutex<mpsc::Receiver<Result<SourceEvent, SourceError>>>,
    writer: SideWriter,
}

impl KafkaSession {
    fn list(&self, partition: &SourcePartition, offset: Option<u64>) -> Result<TopicPartitionList, SourceError> {
        let failed = |detail: String| SourceError { detail };
        let number = i32::try_from(partition.partition).map_err(|error| failed(error.to_string()))?;
        let mut list = TopicPartitionList::new();
        match offset {
            None => {
                list.add_partition(&self.topic, number);
            }
            Some(offset) => {
                let offset = i64::try_from(offset).map_err(|error| failed(error.to_string()))?;
                list.add_partition_offset(&self.topic, number, Offset::Offset(offset))
                    .map_err(|error| failed(error.to_string()))?;
            }
        }
        Ok(list)
    }
}

impl SourceSession for KafkaSession {
    fn next(&self) -> BoxFuture<'_, Result<SourceEvent, SourceError>> {
        async move {
            let ended = || SourceError { detail: format!("the reader of topic {} has ended", self.topic) };
            self.events.lock().await.recv().await.unwrap_or_else(|| Err(ended()))
        }
        .boxed()
    }

    fn start(&self, partition: &SourcePartition, offset: u64) -> Result<(), SourceError> {
        let failed = |error: KafkaError| SourceError { detail: format!("topic {}: {error}", self.topic) };
        self.consumer.seek_partitions(self.list(partition, Some(offset))?, Duration::ZERO).map_err(failed)?;
        self.consumer.resume(&self.list(partition, None)?).map_err(failed)
    }

    fn stop(&self, partition: &SourcePartition) -> Result<(), SourceError> {
        let failed = |error: KafkaError| SourceError { detail: format!("topic {}: {error}", self.topic) };
        self.consumer.pause(&self.list(partition, None)?).map_err(failed)
    }

    fn end(&self, partition: &SourcePartition) -> Option<u64> {
        let number = i32::try_from(partition.partition).ok()?;
        native::known_end(self.consumer.client().native_ptr(), &self.topic, number)
    }

    fn commit(&self, partition: &SourcePartition, offset: u64) -> BoxFuture<'_, Result<(), SourceError>> {
        let committed = self.list(partition, Some(offset)).and_then(|list| {
            let failed = |error: KafkaError| SourceError { detail: format!("topic {}: {error}", self.topic) };
            self.consumer.commit(&list, CommitMode::Async).map_err(failed)
        });
        std::future::ready(committed).boxed()
    }

    fn write(&self, topic: &str, records: Vec<SideRecord>) -> BoxFuture<'_, Result<(), SourceError>> {
        self.writer.write(topic, records)
    }
}

impl Drop for KafkaSession {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::SeqCst);
    }
}
