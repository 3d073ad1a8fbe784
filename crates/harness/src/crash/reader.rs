//! The consumer: follows topics while the server lives, and reads all of them from the beginning in the end.

use std::cell::RefCell;
use std::collections::BTreeMap;

use anyhow::{Context as _, bail};
use client::api::message::{Message, MessagePage};
use client::api::topic::{Record, RecordPage};
use client::http::HttpClient;
use hyper::Method;

use super::chance::stream;
use super::check::{Arrival, Place, SeenRecord};
use super::content::{Content, header, number_of};
use super::topics::DESTINATIONS;
use crate::wall_clock::now_ms;

/// Messages and records of one page, at most.
const PAGE_LENGTH_MAX: u32 = 1_000;

/// What following consumers have seen, and where each goes on.
#[derive(Debug, Default)]
pub(crate) struct Followers {
    pub(crate) arrivals: RefCell<BTreeMap<Place, Arrival>>,
    next: RefCell<BTreeMap<(String, u32), u64>>,
}

impl Followers {
    /// Follows a partition until the answer breaks off.
    pub(crate) async fn follow(&self, client: &HttpClient, topic: &str, partition: u32) {
        let place = (topic.to_owned(), partition);
        let next = self.next.borrow().get(&place).copied().unwrap_or(0);
        let call = client.call(Method::GET, &["v1", "topics", topic, "records"]);
        let call = call.query("partition", Some(partition)).query("offset", Some(next)).query("follow", Some(true));
        let Ok(mut lines) = call.stream().await else { return };
        // A line that was cut off is read again after the restart.
        while let Ok(Some(line)) = lines.next_line().await {
            let Ok(record) = serde_json::from_str::<Record>(&line) else { return };
            let message_id = header(&record, "nereus.delay.message_id").unwrap_or_default().to_owned();
            let arrival = Arrival { at_ms: now_ms(), message_id };
            self.arrivals.borrow_mut().insert((topic.to_owned(), partition, record.offset), arrival);
            self.next.borrow_mut().insert(place.clone(), record.offset + 1);
        }
    }
}

/// Every record of every topic, from the beginning, page by page.
pub(crate) async fn read_topics(client: &HttpClient, seed: u64) -> anyhow::Result<Vec<SeenRecord>> {
    let chance = &mut stream(seed, "pages", 0);
    let mut seen = Vec::new();
    for destination in &DESTINATIONS {
        for partition in 0..destination.partitions {
            let mut offset = 0;
            loop {
                let limit = chance.u32(1..=PAGE_LENGTH_MAX);
                let call = client.call(Method::GET, &["v1", "topics", destination.topic, "records"]);
                let call = call.query("partition", Some(partition)).query("offset", Some(offset));
                let page = call.query("limit", Some(limit)).send::<RecordPage>().await?.body;
                seen.extend(page.records.iter().map(|record| see(seed, destination.topic, record)));
                if page.next_offset <= offset || page.next_offset >= page.end_offset {
                    break;
                }
                offset = page.next_offset;
            }
        }
    }
    Ok(seen)
}

/// A record, held against the content that its message was sent with.
pub(crate) fn see(seed: u64, topic: &str, record: &Record) -> SeenRecord {
    let number = number_of(record);
    let delivery = |name: &str| header(record, name).unwrap_or_default();
    SeenRecord {
        topic: topic.to_owned(),
        partition: record.partition,
        offset: record.offset,
        timestamp_ms: record.timestamp_ms,
        number,
        message_id: delivery("nereus.delay.message_id").to_owned(),
        own_id: header(record, "nereus.delay.id").map(str::to_owned),
        generation: delivery("nereus.delay.generation").parse().unwrap_or(u32::MAX),
        attempt: delivery("nereus.delay.attempt").parse().unwrap_or(0),
        deliver_at_ms: delivery("nereus.delay.deliver_at_ms").parse().unwrap_or(i64::MAX),
        difference: number.and_then(|number| Content::of(seed, number).difference(record)),
    }
}

/// Every message the service lists.
pub(crate) async fn list_messages(client: &HttpClient) -> anyhow::Result<Vec<Message>> {
    let (mut messages, mut cursor) = (Vec::new(), None::<String>);
    // Each page looks at rows that no page before looked at, so there are fewer pages than rows.
    for _ in 0..1_000_000 {
        let call = client.call(Method::GET, &["v1", "messages"]).query("limit", Some(PAGE_LENGTH_MAX));
        let page = call.query("cursor", cursor.as_ref()).send::<MessagePage>().await?.body;
        messages.extend(page.items);
        cursor = page.next_cursor;
        if cursor.is_none() {
            return Ok(messages);
        }
    }
    bail!("the list of messages does not end")
}

/// How many live messages are due by now, as far as the first page tells.
pub(crate) async fn overdue(client: &HttpClient, now_ms: i64) -> anyhow::Result<Vec<Message>> {
    let mut cursor = None::<String>;
    loop {
        let call = client.call(Method::GET, &["v1", "messages"]).query("limit", Some(PAGE_LENGTH_MAX));
        let call = call.query("status", Some("scheduled,retrying,publishing,uncertain"));
        let call = call.query("due_before", Some(now_ms)).query("cursor", cursor.as_ref());
        let page = call.send::<MessagePage>().await.context("the list of overdue messages")?.body;
        if !page.items.is_empty() || page.next_cursor.is_none() {
            return Ok(page.items);
        }
        cursor = page.next_cursor;
    }
}
