//! What holds of an ingress, over a world in which anything may stop or fail between any two steps.

mod exactly_once;
mod operators;
mod stories;

use std::collections::BTreeMap;
use std::time::Duration;

use client::api::ingress::IngressSpec;
use client::api::kafka::KafkaConnection;
use control::ingress::{IngressProgress, progress_key};
use ports::source::SideRecord;

use super::service;
use crate::tests::world::{Cell, DESTINATION, Server, TENANT};

/// The ingress of most tests.
const INGRESS: &str = "in";
const TOPIC: &str = "orders.delayed";
const REFUSALS: &str = "orders.delayed.refused";
const RECEIPTS: &str = "orders.receipts";
const DAY_MS: i64 = 86_400_000;

fn spec() -> IngressSpec {
    IngressSpec {
        kafka: Some(KafkaConnection {
            bootstrap_servers: "k:9092".to_owned(),
            topic: TOPIC.to_owned(),
            settings: BTreeMap::new(),
        }),
        destination: Some(DESTINATION.to_owned()),
        receipts: Some(RECEIPTS.to_owned()),
        ..IngressSpec::default()
    }
}

/// Creates the ingress of most tests, however often it takes.
async fn create(cell: &Cell, server: &Server) {
    while let Err(problem) = service::put(&server.gateway, INGRESS, spec(), false).await {
        assert!(matches!(problem.status, 404 | 500..), "{problem}");
        cell.world.wait(Duration::from_millis(50)).await;
    }
}

/// Waits until everything that is in the source is settled.
async fn settled(cell: &Cell, server: &Server, partitions: u32) {
    for _ in 0..60_000 {
        let mut is_settled = true;
        for partition in 0..partitions {
            let end = cell.source.end(partition);
            let progress = progress(cell, server, partition).await;
            is_settled &= progress.from == end && !progress.is_under_way();
        }
        if is_settled {
            return;
        }
        cell.world.wait(Duration::from_millis(50)).await;
    }
    panic!(
        "not settled: {:?}\n{}",
        server.gateway.ingresses.get(INGRESS).map(|entry| entry.status()),
        cell.world.events_tail()
    );
}

async fn progress(cell: &Cell, server: &Server, partition: u32) -> IngressProgress {
    let key = progress_key(TENANT, INGRESS, &cell.source.topic(), partition);
    let stored = server.gateway.records.get::<IngressProgress>(&key).await;
    stored.ok().flatten().map(|stored| stored.record).unwrap_or_default()
}

/// How often each value was taken.
fn taken(cell: &Cell) -> BTreeMap<String, usize> {
    let mut taken = BTreeMap::new();
    for told in cell.told() {
        *taken.entry(told.value()).or_insert(0) += 1;
    }
    taken
}

fn header<'a>(record: &'a SideRecord, name: &str) -> &'a str {
    let header = record.headers.iter().find(|header| header.name == name.as_bytes());
    let value = header.and_then(|header| header.value.as_deref()).unwrap_or_else(|| panic!("no {name} in {record:?}"));
    std::str::from_utf8(value).expect("text")
}

fn value(record: &SideRecord) -> String {
    String::from_utf8_lossy(record.value.as_deref().unwrap_or_default()).into_owned()
}

/// The codes of refused records, by their values.
fn refused(cell: &Cell) -> BTreeMap<String, String> {
    let refused = cell.source.written(REFUSALS);
    refused.iter().map(|record| (value(record), header(record, "nereus.delay.refusal_code").to_owned())).collect()
}
