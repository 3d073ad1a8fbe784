//! Topics for consumers.

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use ports::topics::{TopicDescription, TopicHeader, TopicReadError, TopicRecord as PortRecord, TopicRun, Topics};

use crate::engine::Embedded;
use crate::partition::Partition;
use crate::read::{ReadError, ReadLimit, Record};
use crate::record::TopicRecord;
use crate::topic::Topic;

/// Topics of the embedded log that are no route's log.
#[derive(Clone, Debug)]
pub struct EmbeddedTopics {
    embedded: Embedded,
}

impl EmbeddedTopics {
    /// Over an engine.
    pub fn new(embedded: Embedded) -> EmbeddedTopics {
        EmbeddedTopics { embedded }
    }

    fn topic(&self, name: &str) -> Result<Topic, TopicReadError> {
        // Route logs are nobody's topics.
        let topic = self.embedded.topic(name).filter(|_| !name.starts_with('_'));
        topic.ok_or_else(|| TopicReadError::UnknownTopic { topic: name.to_owned() })
    }

    fn partition(&self, name: &str, partition: u32) -> Result<Partition, TopicReadError> {
        let topic = self.topic(name)?;
        topic.partition(partition).ok_or_else(|| TopicReadError::UnknownPartition {
            topic: name.to_owned(),
            partition,
            partitions: topic.partition_count(),
        })
    }
}

impl Topics for EmbeddedTopics {
    fn list(&self) -> Result<Vec<TopicDescription>, TopicReadError> {
        Ok(self.embedded.topics().iter().map(description).collect())
    }

    fn describe(&self, topic: &str) -> Result<TopicDescription, TopicReadError> {
        self.topic(topic).map(|topic| description(&topic))
    }

    fn read(
        &self,
        topic: &str,
        partition: u32,
        offset: u64,
        records_max: usize,
        bytes_max: usize,
    ) -> Result<TopicRun, TopicReadError> {
        let partition = self.partition(topic, partition)?;
        let limit = ReadLimit { records_max: records_max.max(1), bytes_max: bytes_max.max(1) };
        let run = partition.read(offset, limit).map_err(read_error)?;
        let records: Vec<PortRecord> = run.records.iter().map(record).collect::<Result<_, _>>()?;
        let next_offset = offset + records.len() as u64;
        Ok(TopicRun { records, next_offset, start_offset: run.start_offset, end_offset: run.end_offset })
    }

    fn wait_for(&self, topic: &str, partition: u32, offset: u64) -> BoxFuture<'static, Result<(), TopicReadError>> {
        let partition = self.partition(topic, partition);
        async move { partition?.wait_beyond(offset).await.map(drop).map_err(read_error) }.boxed()
    }
}

fn description(topic: &Topic) -> TopicDescription {
    let partitions = (0..topic.partition_count()).filter_map(|index| topic.partition(index));
    TopicDescription {
        name: topic.name().to_owned(),
        partitions: partitions.map(|partition| (partition.start_offset(), partition.end_offset())).collect(),
    }
}

fn record(record: &Record) -> Result<PortRecord, TopicReadError> {
    let decoded = TopicRecord::decode(&record.value).map_err(|error| TopicReadError::Unavailable {
        reason: format!("the record at offset {} is damaged: {error}", record.offset),
    })?;
    let header = |header: crate::record::Header| TopicHeader { name: header.name.into(), value: header.value };
    Ok(PortRecord {
        offset: record.offset,
        timestamp_ms: record.append_time_ms,
        key: decoded.key,
        value: decoded.value,
        headers: decoded.headers.into_iter().map(header).collect(),
    })
}

fn read_error(error: ReadError) -> TopicReadError {
    match error {
        ReadError::OffsetOutOfRange { offset, start, end } => {
            TopicReadError::OffsetOutOfRange { offset, start_offset: start, end_offset: end }
        }
        error => TopicReadError::Unavailable { reason: error.to_string() },
    }
}
