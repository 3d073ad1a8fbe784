//! The consumer: follows every partition of a topic and notes of each record when it was due, when it was appended and when it
//! arrived here.

use std::cell::{Cell, RefCell};

use anyhow::{Context as _, bail};
use bytes::Bytes;
use client::api::topic::Topic;
use futures_util::future::try_join_all;
use http_body_util::BodyExt as _;
use hyper::Method;
use tokio::sync::Notify;

use super::connection::{Connection, shown};
use super::place::Following;
use super::{DESTINATION, TOPIC};
use crate::process::ServerProcess;
use crate::wall_clock::now_ms;

/// Where a line tells when the record was appended. The first in the line is the record's own.
const APPENDED_MARK: &[u8] = b"\"timestamp_ms\":";
/// Where a line tells when the message was due. The delivery headers come last.
const DUE_MARK: &[u8] = b"\"nereus.delay.deliver_at_ms\",\"value\":\"";

/// A record as the consumer saw it, in epoch milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arrival {
    pub(crate) due_ms: i64,
    pub(crate) appended_ms: i64,
    pub(crate) arrived_ms: i64,
}

/// What has arrived since the consumer began.
#[derive(Debug, Default)]
pub(crate) struct Consumer {
    delivered: Cell<u64>,
    arrivals: RefCell<Vec<Arrival>>,
    changed: Notify,
}

impl Consumer {
    /// Follows the topic until something fails.
    pub(crate) async fn follow(&self, following: Following) -> anyhow::Result<()> {
        match following {
            Following::Embedded { address, ends } => {
                let follow = |(partition, offset)| self.follow_one(&address, partition, offset);
                try_join_all((0..).zip(ends).map(follow)).await.map(drop)
            }
            Following::Kafka(mut batches) => {
                while let Some(batch) = batches.recv().await {
                    self.arrived(batch?);
                }
                bail!("the consumer ended")
            }
        }
    }

    fn arrived(&self, batch: Vec<Arrival>) {
        self.delivered.set(self.delivered.get() + batch.len() as u64);
        self.arrivals.borrow_mut().extend(batch);
        self.changed.notify_waiters();
    }

    async fn follow_one(&self, address: &str, partition: u32, offset: u64) -> anyhow::Result<()> {
        let mut connection = Connection::open(address).await?;
        let path = format!("/v1/topics/{TOPIC}/records?partition={partition}&offset={offset}&follow=true");
        let mut body = connection.follow(&path).await?;
        let mut waiting: Vec<u8> = Vec::new();
        while let Some(frame) = body.frame().await {
            let data = frame.with_context(|| format!("{path}: the answer broke off"))?.into_data();
            let Ok(data) = data else { continue };
            self.take(&mut waiting, &data)?;
        }
        bail!("{path}: the answer ended")
    }

    /// Takes every complete line; what is left waits for its end.
    fn take(&self, waiting: &mut Vec<u8>, data: &Bytes) -> anyhow::Result<()> {
        let arrived_ms = now_ms();
        let Some(end) = data.iter().rposition(|byte| *byte == b'\n') else {
            waiting.extend_from_slice(data);
            return Ok(());
        };
        let arrivals = &mut *self.arrivals.borrow_mut();
        let before = arrivals.len();
        let mut lines = data[..end].split(|byte| *byte == b'\n');
        if !waiting.is_empty() {
            waiting.extend_from_slice(lines.next().unwrap_or_default());
            arrivals.push(arrival(waiting, arrived_ms)?);
            waiting.clear();
        }
        for line in lines {
            arrivals.push(arrival(line, arrived_ms)?);
        }
        waiting.extend_from_slice(&data[end + 1..]);
        self.delivered.set(self.delivered.get() + (arrivals.len() - before) as u64);
        self.changed.notify_waiters();
        Ok(())
    }

    /// Records that have arrived.
    pub(crate) fn delivered(&self) -> u64 {
        self.delivered.get()
    }

    /// Waits until so many have arrived.
    pub(crate) async fn wait_for(&self, count: u64) {
        while self.delivered.get() < count {
            self.changed.notified().await;
        }
    }

    /// All of them.
    pub(crate) fn into_arrivals(self) -> Vec<Arrival> {
        self.arrivals.into_inner()
    }
}

fn arrival(line: &[u8], arrived_ms: i64) -> anyhow::Result<Arrival> {
    let not_understood = || format!("a record of {DESTINATION} is not understood: {}", shown(line));
    let appended = position(line, APPENDED_MARK).map(|at| number(&line[at + APPENDED_MARK.len()..]));
    let due = last_position(line, DUE_MARK).map(|at| number(&line[at + DUE_MARK.len()..]));
    let (Some(Some(appended_ms)), Some(Some(due_ms))) = (appended, due) else { bail!(not_understood()) };
    Ok(Arrival { due_ms, appended_ms, arrived_ms })
}

fn position(text: &[u8], mark: &[u8]) -> Option<usize> {
    text.windows(mark.len()).position(|window| window == mark)
}

fn last_position(text: &[u8], mark: &[u8]) -> Option<usize> {
    text.windows(mark.len()).rposition(|window| window == mark)
}

/// The number that a text begins with.
fn number(text: &[u8]) -> Option<i64> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    std::str::from_utf8(&text[..digits]).ok()?.parse().ok()
}

/// The topic as it is now.
pub(crate) async fn topic(server: &ServerProcess) -> anyhow::Result<Topic> {
    let topic = server.client().call(Method::GET, &["v1", "topics", TOPIC]).send::<Topic>().await;
    Ok(topic.context("asking for the topic's ends")?.body)
}

/// The topic's end offsets, by partition.
pub(crate) async fn end_offsets(server: &ServerProcess) -> anyhow::Result<Vec<u64>> {
    Ok(topic(server).await?.partitions.iter().map(|partition| partition.end_offset).collect())
}

#[cfg(test)]
mod tests {
    use client::api::message::{Content, HeaderContent};
    use client::api::topic::Record;

    use super::*;

    fn line(due_ms: i64, appended_ms: i64) -> Vec<u8> {
        let header =
            |name: &str, value: String| HeaderContent { name: name.to_owned(), value: Some(Content::Text(value)) };
        let record = Record {
            partition: 1,
            offset: 7,
            timestamp: String::new(),
            timestamp_ms: appended_ms,
            key: None,
            value: Some(Content::Text("\"timestamp_ms\":5".to_owned())),
            headers: vec![
                header("nereus.delay.message_id", "ndm1_x".to_owned()),
                header("nereus.delay.deliver_at_ms", due_ms.to_string()),
                header("nereus.delay.owner_epoch", "1".to_owned()),
            ],
        };
        let mut line = serde_json::to_vec(&record).unwrap();
        line.push(b'\n');
        line
    }

    #[test]
    fn lines_are_taken_wherever_they_are_cut() {
        let text: Vec<u8> = [line(1_000, 1_002), line(2_000, 2_003), line(3_000, 3_004)].concat();
        for cut in 0..text.len() {
            let consumer = Consumer::default();
            let mut waiting = Vec::new();
            for part in [&text[..cut], &text[cut..]] {
                consumer.take(&mut waiting, &Bytes::copy_from_slice(part)).unwrap();
            }
            assert_eq!(consumer.delivered(), 3);
            assert!(waiting.is_empty());
            let times: Vec<_> =
                consumer.into_arrivals().iter().map(|arrival| (arrival.due_ms, arrival.appended_ms)).collect();
            assert_eq!(times, [(1_000, 1_002), (2_000, 2_003), (3_000, 3_004)]);
        }
    }

    #[test]
    fn a_line_without_a_delivery_time_is_an_error() {
        let consumer = Consumer::default();
        let error = consumer.take(&mut Vec::new(), &Bytes::from_static(b"{\"timestamp_ms\":1}\n")).unwrap_err();
        assert!(error.to_string().contains("not understood"), "{error}");
    }
}
