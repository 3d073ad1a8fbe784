//! Topics for consumers: pages of one partition, or lines that go on as records come.

use std::sync::Arc;

use axum::body::Body;
use bytes::Bytes;
use client::api::message::{Content, HeaderContent};
use client::api::problem::{Problem, SurfaceCode};
use client::api::topic::{Record, RecordPage, Topic, TopicList, TopicPartition};
use client::instant::format_instant_ms;
use futures_util::stream;
use ports::topics::{TopicDescription, TopicReadError, TopicRecord, Topics};

use crate::messages::read::parameter;
use crate::state::Gateway;

/// Records read at once.
const RECORDS_MAX: usize = 1_000;
/// Bytes after which a read stops.
const BYTES_MAX: usize = 4 << 20;

/// The query of a read, as sent.
#[derive(Debug, Default)]
pub(crate) struct RecordQuery {
    pub(crate) partition: Option<String>,
    pub(crate) offset: Option<String>,
    pub(crate) limit: Option<String>,
    pub(crate) follow: Option<String>,
}

/// From where a read starts.
enum From {
    Start,
    End,
    Offset(u64),
}

pub(crate) fn list(gateway: &Gateway) -> Result<TopicList, Problem> {
    let topics = gateway.topics.list().map_err(topic_problem)?;
    Ok(TopicList { items: topics.into_iter().map(topic).collect() })
}

pub(crate) fn describe(gateway: &Gateway, name: &str) -> Result<Topic, Problem> {
    gateway.topics.describe(name).map(topic).map_err(topic_problem)
}

/// What a read answers with.
pub(crate) enum Records {
    /// One page.
    Page(RecordPage),
    /// Lines of JSON, for as long as the reader stays.
    Lines(Body),
}

pub(crate) fn read(gateway: &Gateway, name: &str, query: &RecordQuery) -> Result<Records, Problem> {
    let partition = number("partition", query.partition.as_deref())?.unwrap_or(0);
    let partition = u32::try_from(partition).map_err(|_| parameter("partition", "there is no such partition"))?;
    let limit = number("limit", query.limit.as_deref())?.unwrap_or(RECORDS_MAX as u64);
    let limit = usize::try_from(limit).unwrap_or(usize::MAX).min(RECORDS_MAX);
    let follow = match query.follow.as_deref() {
        None | Some("false") => false,
        Some("" | "true") => true,
        Some(other) => return Err(parameter("follow", &format!("follow is true or false; found {other:?}"))),
    };
    let topic = gateway.topics.describe(name).map_err(topic_problem)?;
    let offset = start(&topic, partition, query.offset.as_deref())?;
    if follow {
        // The first read tells what is wrong before the answer begins.
        gateway.topics.read(name, partition, offset, 1, 1).map_err(topic_problem)?;
        return Ok(Records::Lines(lines(gateway.topics.clone(), name.to_owned(), partition, offset)));
    }
    let run = gateway.topics.read(name, partition, offset, limit, BYTES_MAX).map_err(topic_problem)?;
    Ok(Records::Page(RecordPage {
        records: run.records.iter().map(|found| record(partition, found)).collect(),
        next_offset: run.next_offset,
        start_offset: run.start_offset,
        end_offset: run.end_offset,
    }))
}

fn start(topic: &TopicDescription, partition: u32, offset: Option<&str>) -> Result<u64, Problem> {
    let from = match offset {
        None | Some("start") => From::Start,
        Some("end") => From::End,
        Some(text) => From::Offset(
            text.parse()
                .map_err(|_| parameter("offset", &format!("offset is a number, start or end; found {text:?}")))?,
        ),
    };
    let partitions = u32::try_from(topic.partitions.len()).unwrap_or(u32::MAX);
    let bounds = usize::try_from(partition).ok().and_then(|partition| topic.partitions.get(partition));
    let (start_offset, end_offset) = *bounds.ok_or_else(|| {
        topic_problem(TopicReadError::UnknownPartition { topic: topic.name.clone(), partition, partitions })
    })?;
    Ok(match from {
        From::Start => start_offset,
        From::End => end_offset,
        From::Offset(offset) => offset,
    })
}

/// Records as lines of JSON, going on when the end is reached. The stream ends when the reader goes or the topic does.
fn lines(topics: Arc<dyn Topics>, name: String, partition: u32, offset: u64) -> Body {
    let stream = stream::unfold(Some((topics, name, offset)), move |state| async move {
        let (topics, name, offset) = state?;
        if topics.wait_for(&name, partition, offset).await.is_err() {
            return None;
        }
        match topics.read(&name, partition, offset, RECORDS_MAX, BYTES_MAX) {
            Ok(run) => {
                let mut text = Vec::new();
                for found in &run.records {
                    // A plain struct of strings and numbers serialises.
                    text.extend(serde_json::to_vec(&record(partition, found)).unwrap_or_default());
                    text.push(b'\n');
                }
                Some((Ok::<Bytes, std::io::Error>(text.into()), Some((topics, name, run.next_offset))))
            }
            Err(error) => {
                let failed = std::io::Error::other(error.to_string());
                Some((Err(failed), None))
            }
        }
    });
    Body::from_stream(stream)
}

fn record(partition: u32, record: &TopicRecord) -> Record {
    let content = |bytes: &Option<Bytes>| bytes.as_deref().map(Content::new);
    Record {
        partition,
        offset: record.offset,
        timestamp: format_instant_ms(record.timestamp_ms),
        timestamp_ms: record.timestamp_ms,
        key: content(&record.key),
        value: content(&record.value),
        headers: record
            .headers
            .iter()
            .map(|header| HeaderContent {
                name: String::from_utf8_lossy(&header.name).into_owned(),
                value: content(&header.value),
            })
            .collect(),
    }
}

fn topic(topic: TopicDescription) -> Topic {
    let partition = |(partition, (start_offset, end_offset))| TopicPartition { partition, start_offset, end_offset };
    Topic { name: topic.name, partitions: (0..).zip(topic.partitions).map(partition).collect() }
}

fn number(name: &'static str, text: Option<&str>) -> Result<Option<u64>, Problem> {
    let parse = |text: &str| text.parse().map_err(|_| parameter(name, &format!("{name} is a number; found {text:?}")));
    text.map(parse).transpose()
}

fn topic_problem(error: TopicReadError) -> Problem {
    let (code, field) = match &error {
        TopicReadError::UnknownTopic { .. } => (SurfaceCode::UnknownTopic, "topic"),
        TopicReadError::UnknownPartition { .. } => (SurfaceCode::UnknownTopic, "partition"),
        TopicReadError::OffsetOutOfRange { .. } => (SurfaceCode::OffsetOutOfRange, "offset"),
        TopicReadError::Unavailable { .. } => (SurfaceCode::Unavailable, "topic"),
    };
    Problem::new(code, error.to_string()).field(field)
}
