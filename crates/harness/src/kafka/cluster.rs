//! A client of a Kafka cluster, as plain as can be: topics made and changed, records written and read back.

use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use bytes::Bytes;
use rdkafka::admin::{
    AdminClient, AdminOptions, AlterConfig, NewPartitions, NewTopic, ResourceSpecifier, TopicReplication,
};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::KafkaError;
use rdkafka::message::{BorrowedMessage, Header, Headers as _, Message as _, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, DefaultProducerContext, Producer as _, ThreadedProducer};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};
use tokio::time::Instant;

use super::broker;

const LIMIT: Duration = Duration::from_secs(30);

/// A record as it was read back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its partition.
    pub partition: i32,
    /// Its offset.
    pub offset: i64,
    /// Its timestamp, epoch milliseconds.
    pub timestamp_ms: Option<i64>,
    /// `None` is null.
    pub key: Option<Bytes>,
    /// `None` is null.
    pub value: Option<Bytes>,
    /// In order.
    pub headers: Vec<(String, Option<Bytes>)>,
}

impl Record {
    /// The value of the last header of this name, as text.
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().rev().find(|(found, _)| found == name)?;
        std::str::from_utf8(found.1.as_ref()?).ok()
    }
}

/// A record to write.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outgoing {
    /// The partition; by the key when `None`.
    pub partition: Option<i32>,
    /// Its timestamp; now when `None`.
    pub timestamp_ms: Option<i64>,
    /// `None` is null.
    pub key: Option<Bytes>,
    /// `None` is null.
    pub value: Option<Bytes>,
    /// In order.
    pub headers: Vec<(String, Option<Bytes>)>,
}

/// A client of one cluster, with every right.
pub struct Cluster {
    bootstrap: String,
    admin: AdminClient<DefaultClientContext>,
}

impl Cluster {
    /// Connects when it is used.
    ///
    /// # Errors
    /// When the client library refuses.
    pub fn new(bootstrap: &str) -> anyhow::Result<Cluster> {
        Ok(Cluster { bootstrap: bootstrap.to_owned(), admin: config(bootstrap).create()? })
    }

    /// The broker that dev/services runs.
    ///
    /// # Errors
    /// When there is none; the error says what to run.
    pub fn shared() -> anyhow::Result<Cluster> {
        Cluster::new(&super::variable("NEREUS_TEST_KAFKA")?)
    }

    /// `HOST:PORT`.
    pub fn bootstrap(&self) -> &str {
        &self.bootstrap
    }

    /// Whether the cluster answers, asked once.
    ///
    /// # Errors
    /// When it does not.
    pub async fn answers(&self) -> anyhow::Result<()> {
        let options = AdminOptions::new().request_timeout(Some(Duration::from_secs(2)));
        self.admin.describe_configs(&[ResourceSpecifier::Broker(1)], &options).await?;
        Ok(())
    }

    /// Makes a topic with these settings.
    ///
    /// # Errors
    /// When the cluster refuses.
    pub async fn create_topic(&self, name: &str, partitions: i32, config: &[(&str, &str)]) -> anyhow::Result<()> {
        let mut topic = NewTopic::new(name, partitions, TopicReplication::Fixed(1));
        topic.config = config.to_vec();
        let results = self.admin.create_topics(&[topic], &AdminOptions::new()).await?;
        each(results.into_iter().map(|result| result.map(drop).map_err(|(topic, code)| format!("{topic}: {code}"))))?;
        self.await_partitions(name, partitions)
    }

    /// Deletes a topic and waits until it is gone.
    ///
    /// # Errors
    /// When the cluster refuses.
    pub async fn delete_topic(&self, name: &str) -> anyhow::Result<()> {
        self.start_deleting(name).await?;
        self.await_partitions(name, 0)
    }

    /// Has a topic deleted and does not wait until every broker knows.
    ///
    /// # Errors
    /// When the cluster refuses.
    pub async fn start_deleting(&self, name: &str) -> anyhow::Result<()> {
        let results = self.admin.delete_topics(&[name], &AdminOptions::new()).await?;
        each(results.into_iter().map(|result| result.map(drop).map_err(|(topic, code)| format!("{topic}: {code}"))))
    }

    /// Gives a topic more partitions.
    ///
    /// # Errors
    /// When the cluster refuses.
    pub async fn add_partitions(&self, name: &str, total: i32) -> anyhow::Result<()> {
        let count = usize::try_from(total)?;
        let results = self.admin.create_partitions(&[NewPartitions::new(name, count)], &AdminOptions::new()).await?;
        each(results.into_iter().map(|result| result.map(drop).map_err(|(topic, code)| format!("{topic}: {code}"))))?;
        self.await_partitions(name, total)
    }

    /// Sets a topic's configuration; what is not named has its default again.
    ///
    /// # Errors
    /// When the cluster refuses.
    pub async fn alter_topic(&self, name: &str, config: &[(&str, &str)]) -> anyhow::Result<()> {
        let mut alter = AlterConfig::new(ResourceSpecifier::Topic(name));
        for (key, value) in config {
            alter = alter.set(key, value);
        }
        let results = self.admin.alter_configs(&[alter], &AdminOptions::new()).await?;
        each(results.into_iter().map(|result| result.map(drop).map_err(|(what, code)| format!("{what:?}: {code}"))))
    }

    /// A metadata answer may be of before the change.
    fn await_partitions(&self, topic: &str, wanted: i32) -> anyhow::Result<()> {
        let consumer: BaseConsumer = config(&self.bootstrap).create()?;
        let deadline = Instant::now() + LIMIT;
        loop {
            let found = partitions(&consumer, topic)?.len();
            if i32::try_from(found)? == wanted {
                return Ok(());
            }
            if Instant::now() > deadline {
                bail!("topic {topic} has {found} partitions, not {wanted}, {LIMIT:?} after the change");
            }
        }
    }

    /// Runs one of Kafka's own tools.
    ///
    /// # Errors
    /// When it fails; the error has what it said.
    pub async fn tool(&self, class: &str, arguments: &[&str]) -> anyhow::Result<String> {
        broker::tool(&broker::libraries()?, &self.bootstrap, class, arguments).await
    }

    /// Writes records and waits until the broker has them all.
    ///
    /// # Errors
    /// When it does not take one.
    pub fn write(&self, topic: &str, records: &[Outgoing]) -> anyhow::Result<()> {
        let producer: BaseProducer = config(&self.bootstrap)
            .set("acks", "all")
            .set("message.max.bytes", "100000000")
            .set("enable.idempotence", "true")
            .create()?;
        for record in records {
            let sent = producer.send(outgoing(topic, record));
            sent.map_err(|(error, _)| error)?;
        }
        producer.flush(LIMIT).context("the broker did not take every record")
    }

    /// Writes records in one transaction, which is committed or aborted.
    ///
    /// # Errors
    /// When the cluster refuses.
    pub fn write_transaction(&self, topic: &str, records: &[Outgoing], commit: bool) -> anyhow::Result<()> {
        let id = format!("test-{:016x}", fastrand::u64(..));
        let producer: ThreadedProducer<DefaultProducerContext> =
            config(&self.bootstrap).set("transactional.id", id).create()?;
        producer.init_transactions(LIMIT)?;
        producer.begin_transaction()?;
        for record in records {
            let sent = producer.send(outgoing(topic, record));
            sent.map_err(|(error, _)| error)?;
        }
        if commit {
            producer.commit_transaction(LIMIT)?;
        } else {
            producer.abort_transaction(LIMIT)?;
        }
        Ok(())
    }

    /// Every record that is in a topic now, by partition and offset; of transactions only what is committed.
    ///
    /// # Errors
    /// When the topic cannot be read.
    pub fn read(&self, topic: &str) -> anyhow::Result<Vec<Record>> {
        let mut tail = self.tail(topic)?;
        let mut records = Vec::new();
        let deadline = Instant::now() + LIMIT;
        while !tail.is_at_end() {
            records.extend(tail.poll(Duration::from_millis(100))?);
            if Instant::now() > deadline {
                bail!("topic {topic} could not be read to its end in {LIMIT:?}");
            }
        }
        records.sort_by_key(|record| (record.partition, record.offset));
        Ok(records)
    }

    /// A reader of a topic from its beginning.
    ///
    /// # Errors
    /// When the topic cannot be read.
    pub fn tail(&self, topic: &str) -> anyhow::Result<Tail> {
        self.tail_from(topic, Offset::Beginning)
    }

    /// A reader of what is written to a topic from now on.
    ///
    /// # Errors
    /// When the topic cannot be read.
    pub fn tail_end(&self, topic: &str) -> anyhow::Result<Tail> {
        self.tail_from(topic, Offset::End)
    }

    fn tail_from(&self, topic: &str, from: Offset) -> anyhow::Result<Tail> {
        let consumer: BaseConsumer = config(&self.bootstrap)
            .set("group.id", "none")
            .set("enable.auto.commit", "false")
            .set("enable.partition.eof", "true")
            .set("isolation.level", "read_committed")
            .set("fetch.message.max.bytes", "50000000")
            // A reader that falls behind for a moment goes on fetching: what it waits for is the broker, not its own queue.
            .set("queued.min.messages", "1000000")
            .set("queued.max.messages.kbytes", "262144")
            .create()?;
        let mut assignment = TopicPartitionList::new();
        let partitions = partitions(&consumer, topic)?;
        for partition in &partitions {
            assignment.add_partition_offset(topic, *partition, from)?;
        }
        consumer.assign(&assignment)?;
        Ok(Tail { consumer, partition_count: partitions.len(), at_end: std::collections::BTreeSet::new() })
    }
}

/// A reader of a topic.
pub struct Tail {
    consumer: BaseConsumer,
    partition_count: usize,
    at_end: std::collections::BTreeSet<i32>,
}

impl Tail {
    /// Whether every partition has been read to where it ended.
    pub fn is_at_end(&self) -> bool {
        self.at_end.len() == self.partition_count
    }

    /// The next record, if one comes in time.
    ///
    /// # Errors
    /// When the topic cannot be read.
    pub fn poll(&mut self, limit: Duration) -> anyhow::Result<Option<Record>> {
        self.poll_with(limit, record)
    }

    /// What `take` makes of the next record, if one comes in time: for readers that cannot afford a copy of everything.
    pub(crate) fn poll_with<T>(
        &mut self,
        limit: Duration,
        take: impl FnOnce(&BorrowedMessage<'_>) -> T,
    ) -> anyhow::Result<Option<T>> {
        match self.consumer.poll(limit) {
            None => Ok(None),
            Some(Ok(message)) => {
                self.at_end.remove(&message.partition());
                Ok(Some(take(&message)))
            }
            Some(Err(KafkaError::PartitionEOF(partition))) => {
                self.at_end.insert(partition);
                Ok(None)
            }
            Some(Err(error)) => Err(error.into()),
        }
    }

    /// The next `count` records.
    ///
    /// # Errors
    /// When they do not come within `limit`.
    pub fn take(&mut self, count: usize, limit: Duration) -> anyhow::Result<Vec<Record>> {
        let deadline = Instant::now() + limit;
        let mut records = Vec::new();
        while records.len() < count {
            // A broker that is away comes back; the deadline bounds how long that is waited for.
            if let Ok(Some(record)) = self.poll(Duration::from_millis(100)) {
                records.push(record);
            }
            if Instant::now() > deadline && records.len() < count {
                return Err(anyhow!("{} of {count} records came within {limit:?}", records.len()));
            }
        }
        Ok(records)
    }
}

/// A client's settings, whatever it does.
pub(super) fn config(bootstrap: &str) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", bootstrap).set("reconnect.backoff.max.ms", "500");
    // What the client library says about brokers that were killed on purpose interests nobody.
    config.set_log_level(RDKafkaLogLevel::Emerg);
    config
}

fn each(results: impl Iterator<Item = Result<(), String>>) -> anyhow::Result<()> {
    results.collect::<Result<(), String>>().map_err(|refusal| anyhow!(refusal))
}

fn partitions(consumer: &BaseConsumer, topic: &str) -> anyhow::Result<Vec<i32>> {
    let metadata = consumer.fetch_metadata(Some(topic), LIMIT)?;
    let found = metadata.topics().iter().find(|found| found.name() == topic);
    Ok(found.map(|topic| topic.partitions().iter().map(|partition| partition.id()).collect()).unwrap_or_default())
}

/// A record as the client library takes it.
pub(super) fn outgoing<'a>(topic: &'a str, record: &'a Outgoing) -> BaseRecord<'a, [u8], [u8]> {
    let mut headers = OwnedHeaders::new();
    for (key, value) in &record.headers {
        headers = headers.insert(Header { key, value: value.as_deref() });
    }
    let mut outgoing = BaseRecord::<[u8], [u8]>::to(topic).headers(headers);
    outgoing.partition = record.partition;
    outgoing.timestamp = record.timestamp_ms;
    outgoing.key = record.key.as_deref();
    outgoing.payload = record.value.as_deref();
    outgoing
}

fn record(message: &BorrowedMessage<'_>) -> Record {
    let copy = Bytes::copy_from_slice;
    let headers = message
        .headers()
        .map(|headers| headers.iter().map(|header| (header.key.to_owned(), header.value.map(copy))).collect());
    Record {
        partition: message.partition(),
        offset: message.offset(),
        timestamp_ms: message.timestamp().to_millis(),
        key: message.key().map(copy),
        value: message.payload().map(copy),
        headers: headers.unwrap_or_default(),
    }
}
