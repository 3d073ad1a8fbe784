//! What producers and consumers notice.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use client::api::ingress::IngressState;
use ports::source::{SourceHeader, SourceRecord};
use protocol::mutation_v2::Limits;
use shard::state::generation::MessageState;
use sim::world::WorldOptions;
use testkit::log::default_limits;

use super::{DAY_MS, INGRESS, RECEIPTS, REFUSALS, TOPIC, create, header, refused, service, settled, taken, value};
use crate::messages::change::{self, ChangeRequest};
use crate::messages::submit::{Wait, WaitFor};
use crate::tests::source::record;
use crate::tests::world::{Cell, Server};

const HOUR_MS: i64 = 3_600_000;

/// A running server with its ingress.
async fn begin(cell: &Cell) -> Server {
    let server = cell.start("server");
    server.active().await;
    create(cell, &server).await;
    server
}

fn headers(record: &SourceRecord) -> Vec<(String, Option<Bytes>)> {
    record
        .headers
        .iter()
        .map(|header| (String::from_utf8_lossy(&header.name).into_owned(), header.value.clone()))
        .collect()
}

/// The receipts, in the order they were written.
fn receipts(cell: &Cell) -> Vec<serde_json::Value> {
    let receipts = cell.source.written(RECEIPTS).into_iter();
    receipts.map(|receipt| serde_json::from_slice(&receipt.value.expect("a value")).expect("JSON")).collect()
}

#[test]
fn a_record_is_delivered_as_it_was_written() {
    let cell = Cell::new(1, 1);
    cell.world.run(async {
        let server = begin(&cell).await;
        let timestamp_ms = cell.world.now_ms() - 5_000;
        let of = |name: &'static str, value: Option<&'static [u8]>| SourceHeader {
            name: name.into(),
            value: value.map(Bytes::from_static),
        };
        let others = vec![of("a", Some(b"1")), of("b", None), of("a", Some(b"\xff")), of("", Some(b""))];
        let mut headers_in = others.clone();
        headers_in.insert(1, of("nereus-delay", Some(b"10s")));
        headers_in.insert(3, of("nereus-id", Some(b"mine")));
        let record =
            SourceRecord { headers: headers_in, value: None, key: Some("".into()), ..record("", timestamp_ms, &[]) };
        cell.source.produce(0, record);
        settled(&cell, &server, 1).await;
        let due_ms = timestamp_ms + 10_000;
        cell.world.wait_until(due_ms - 1).await;
        assert_eq!(cell.broker.delivered_count(), 0);
        cell.world.wait(Duration::from_secs(1)).await;
        let delivered = &cell.broker.delivered()[0];
        assert_eq!(delivered.deliver_at_ms, due_ms);
        let record = &delivered.record;
        assert_eq!((record.key.as_deref(), record.value.as_deref()), (Some(&b""[..]), None));
        assert_eq!(record.event_time_ms, Some(timestamp_ms), "the record's own time is passed on");
        let found: Vec<(&[u8], Option<&[u8]>)> =
            record.headers.iter().map(|header| (&header.name[..], header.value.as_deref())).collect();
        let expected: Vec<(&[u8], Option<&[u8]>)> =
            others.iter().map(|header| (&header.name[..], header.value.as_deref())).collect();
        assert_eq!(found[..others.len()], expected);
        assert!(found[others.len()..].iter().all(|(name, _)| name.starts_with(b"nereus.delay.")));
        assert!(found.contains(&(b"nereus.delay.id", Some(b"mine"))));
    });
}

#[test]
fn fifty_hops_keep_the_headers() {
    let cell = Cell::new(2, 1);
    cell.world.run(async {
        let server = begin(&cell).await;
        let first = record("v", cell.world.now_ms(), &[("traceparent", "00"), ("nereus-delay", "1s"), ("x", "1")]);
        cell.source.produce(0, first);
        let mut ids = BTreeSet::new();
        let mut names_at_first: Option<Vec<String>> = None;
        for hop in 1..=50 {
            while cell.broker.delivered_count() < hop {
                cell.world.wait(Duration::from_millis(200)).await;
            }
            let delivered = cell.broker.delivered().pop().expect("just delivered");
            let copied = delivered
                .record
                .headers
                .iter()
                .map(|header| SourceHeader { name: header.name.clone(), value: header.value.clone() });
            let mut again = SourceRecord { headers: copied.collect(), ..record("v", cell.world.now_ms(), &[]) };
            let names: Vec<String> = headers(&again).into_iter().map(|(name, _)| name).collect();
            assert_eq!(names_at_first.get_or_insert_with(|| names.clone()), &names, "hop {hop}");
            let id = headers(&again).into_iter().find(|(name, _)| name == "nereus.delay.message_id");
            assert!(ids.insert(id.expect("a message id").1), "hop {hop} is a message of its own");
            again.headers.push(SourceHeader { name: "nereus-delay".into(), value: Some("1s".into()) });
            cell.source.produce(0, again);
        }
        settled(&cell, &server, 1).await;
        assert_eq!(refused(&cell), BTreeMap::new());
    });
}

#[test]
fn two_hours_of_outage_refuse_nothing() {
    let options = WorldOptions { time_max: Duration::from_secs(10_000), ..WorldOptions::new(3) };
    let cell = Cell::with(options, 1, default_limits());
    cell.world.run(async {
        let written_ms = cell.world.now_ms();
        let put = |value: &str, name: &str, text: &str| {
            cell.source.produce(0, record(value, written_ms, &[(name, text)]));
        };
        put("30m", "nereus-delay", "30m");
        put("3h", "nereus-delay", "3h");
        put("in 1h", "nereus-deliver-at", &(written_ms + HOUR_MS).to_string());
        put("1h ago", "nereus-deliver-at", &(written_ms - HOUR_MS).to_string());
        put("too long ago", "nereus-deliver-at", &(written_ms - HOUR_MS - 1).to_string());
        cell.world.wait(Duration::from_secs(7_200)).await;
        let server = begin(&cell).await;
        settled(&cell, &server, 1).await;
        cell.world.wait(Duration::from_secs(5)).await;
        // What is overdue is delivered at once, the rest when it was to be.
        let delivered: BTreeMap<String, i64> = cell
            .broker
            .delivered()
            .into_iter()
            .map(|one| (String::from_utf8_lossy(&one.record.value.unwrap_or_default()).into_owned(), one.deliver_at_ms))
            .collect();
        let expected = [("30m", HOUR_MS / 2), ("in 1h", HOUR_MS), ("1h ago", -HOUR_MS)];
        assert_eq!(delivered, expected.map(|(value, at_ms)| (value.to_owned(), written_ms + at_ms)).into());
        assert_eq!(taken(&cell).get("3h"), Some(&1));
        let expected = [("too long ago".to_owned(), "INVALID_DELIVERY_WINDOW".to_owned())];
        assert_eq!(refused(&cell), expected.into());
    });
}

#[test]
fn a_producer_whose_clock_is_ahead_is_not_refused_for_it() {
    let cell = Cell::new(4, 1);
    cell.world.run(async {
        let server = begin(&cell).await;
        let now_ms = cell.world.now_ms();
        let at = (now_ms + 60_000).to_string();
        cell.source.produce(0, record("a", now_ms + 3 * HOUR_MS, &[("nereus-deliver-at", &at)]));
        let no_time = SourceRecord { timestamp_ms: None, ..record("b", 0, &[("nereus-delay", "1h")]) };
        cell.source.produce(0, no_time);
        settled(&cell, &server, 1).await;
        assert_eq!(taken(&cell), [("a".to_owned(), 1), ("b".to_owned(), 1)].into());
        assert_eq!(refused(&cell), BTreeMap::new());
    });
}

#[test]
fn what_is_written_in_order_happens_in_order() {
    let cell = Cell::new(5, 1);
    cell.world.run(async {
        let server = cell.start("server");
        server.active().await;
        let written_ms = cell.world.now_ms();
        let put = |value: &str, headers: &[(&str, &str)]| cell.source.produce(0, record(value, written_ms, headers));
        // All of it is there before the ingress is, so that it comes as one run.
        put("first", &[("nereus-delay", "1d"), ("nereus-id", "a")]);
        put("in use", &[("nereus-delay", "1d"), ("nereus-id", "a")]);
        put("", &[("nereus-cancel", "a")]);
        put("", &[("nereus-cancel", "a")]);
        put("second", &[("nereus-delay", "1d"), ("nereus-id", "a"), ("nereus-destination", "orders")]);
        put("", &[("nereus-reschedule", "a"), ("nereus-delay", "2d")]);
        put("", &[("nereus-reschedule", "a"), ("nereus-delay", "3d"), ("nereus-expires-at", "2100-01-01T00:00:00Z")]);
        put("gone", &[("nereus-cancel", "b")]);
        put("nowhere", &[("nereus-delay", "1d"), ("nereus-destination", "bills")]);
        put("taken id", &[("nereus-delay", "1d"), ("nereus-id", "ndm1_x")]);
        let last = put("nulls", &[("nereus-delay", "1d"), ("nereus.nulls", "x")]);
        create(&cell, &server).await;
        settled(&cell, &server, 1).await;

        let receipts = receipts(&cell);
        let codes: Vec<&str> = receipts.iter().map(|receipt| receipt["code"].as_str().expect("a code")).collect();
        let expected = [
            "SCHEDULED",
            "DELAY_MESSAGE_ID_CONFLICT",
            "CANCELED",
            "CANCELED",
            "SCHEDULED",
            "SUPERSEDED",
            "INVALID_DELIVERY_WINDOW",
            "NOT_FOUND",
            "UNKNOWN_DESTINATION",
            "INVALID_HEADER",
            "INVALID_METADATA",
        ];
        assert_eq!(codes, expected);
        let told = cell.told();
        let of = |state| {
            let found: Vec<_> = told.iter().filter(|told| told.view.state == state).collect();
            assert_eq!(found.len(), 1, "{state:?}");
            found[0]
        };
        assert_eq!(of(MessageState::Canceled).view.row.business_key, "a");
        let second = of(MessageState::Scheduled);
        assert_eq!((second.value().as_str(), second.view.row.generation), ("second", 1));
        assert_eq!(second.view.row.deliver_at_ms, written_ms + 2 * DAY_MS);

        let message = &receipts[4];
        assert_eq!((message["id"].as_str(), message["destination"].as_str()), (Some("a"), Some("orders")));
        assert_eq!(message["deliver_at_ms"].as_i64(), Some(written_ms + DAY_MS));
        assert_eq!(receipts[5]["message_id"], message["message_id"], "the message that was moved");
        assert_eq!(receipts[7]["message_id"], serde_json::Value::Null);
        assert_eq!(receipts[10]["source_offset"].as_u64(), Some(last));
        assert_eq!(
            (receipts[0]["source_topic"].as_str(), receipts[0]["source_partition"].as_u64()),
            (Some(TOPIC), Some(0))
        );
        let receipt = &cell.source.written(RECEIPTS)[0];
        assert_eq!(receipt.key.as_deref(), Some(&b"key of first"[..]));

        let refusals = cell.source.written(REFUSALS);
        let values: Vec<String> = refusals.iter().map(value).collect();
        assert_eq!(values, ["in use", "", "gone", "nowhere", "taken id", "nulls"]);
        let refusal = &refusals[3];
        assert_eq!(header(refusal, "nereus-destination"), "bills", "the record is whole");
        assert!(header(refusal, "nereus.delay.refusal_detail").contains("there is no destination \"bills\""));
        assert_eq!(refusal.key.as_deref(), Some(&b"key of nowhere"[..]));
        assert_eq!(header(refusal, "nereus.delay.source_topic"), TOPIC);
    });
}

#[test]
fn a_full_shard_holds_the_topic_back_and_refuses_nothing() {
    let limits = Limits { active_messages_max: 3, ..default_limits() };
    let cell = Cell::with(WorldOptions { time_max: Duration::from_secs(7_200), ..WorldOptions::new(6) }, 1, limits);
    cell.world.run(async {
        let server = begin(&cell).await;
        for number in 0..20 {
            let id = format!("id-{number}");
            cell.source.produce(0, record("v", cell.world.now_ms(), &[("nereus-delay", "1d"), ("nereus-id", &id)]));
        }
        cell.world.wait(Duration::from_secs(60)).await;
        let ingress = service::get(&server.gateway, INGRESS).await.expect("is there");
        assert_eq!(ingress.state, IngressState::Failed);
        assert!(ingress.reason.as_deref().is_some_and(|reason| reason.contains("HARD_QUOTA_EXCEEDED")), "{ingress:?}");
        assert!(ingress.lag.is_some_and(|lag| lag >= 20), "{ingress:?}");
        let records_before: usize = cell.logs().map(|log| log.archive().len()).sum();
        cell.world.wait(Duration::from_secs(600)).await;
        let records: usize = cell.logs().map(|log| log.archive().len()).sum();
        assert!(records < records_before + 20, "waiting costs the logs nothing: {}", records - records_before);
        // Room comes one message at a time.
        let mut canceled = BTreeSet::new();
        for _ in 0..20 {
            for told in cell.told() {
                let id = String::from_utf8_lossy(&told.view.row.business_key).into_owned();
                if told.view.state == MessageState::Scheduled && canceled.insert(id.clone()) {
                    let wait = Wait::new(WaitFor::Applied, Duration::from_secs(10));
                    let request = ChangeRequest { id: &id, if_match: None, idempotency_key: None, wait };
                    assert!(change::cancel(&server.gateway, request).await.is_ok());
                    break;
                }
            }
            cell.world.wait(Duration::from_secs(40)).await;
        }
        settled(&cell, &server, 1).await;
        assert_eq!(refused(&cell), BTreeMap::new());
        assert_eq!(cell.told().len(), 20);
    });
}

#[test]
fn shards_that_do_not_answer_hold_the_topic_back() {
    const RECORDS: usize = 5_000;
    let cell = Cell::new(7, 2);
    cell.world.run(async {
        let server = begin(&cell).await;
        cell.logs().for_each(|log| log.set_unavailable(true));
        for number in 0..RECORDS {
            let partition = u32::from(number % 50 == 0);
            let value = number.to_string();
            cell.source.produce(partition, record(&value, cell.world.now_ms(), &[("nereus-delay", "1d")]));
        }
        cell.world.wait(Duration::from_secs(300)).await;
        assert!(cell.source.read_to(0) < 3_000, "no more is read than what can wait: {}", cell.source.read_to(0));
        let ingress = service::get(&server.gateway, INGRESS).await.expect("is there");
        assert_eq!(ingress.state, IngressState::Failed);
        assert!(ingress.lag.is_some_and(|lag| lag >= RECORDS as u64), "what waits is seen: {ingress:?}");
        cell.logs().for_each(|log| log.set_unavailable(false));
        settled(&cell, &server, 2).await;
        let taken = taken(&cell);
        assert!(taken.len() == RECORDS && taken.values().all(|count| *count == 1));
        let ingress = service::get(&server.gateway, INGRESS).await.expect("is there");
        assert_eq!((ingress.state, ingress.lag, ingress.reason), (IngressState::Running, Some(0), None));
        assert_eq!(ingress.records.scheduled, RECORDS as u64);
    });
}

#[test]
fn a_topic_that_is_read_from_its_beginning_after_a_month_schedules_nothing_again() {
    let options = WorldOptions { time_max: Duration::from_secs(60 * 86_400), ..WorldOptions::new(8) };
    let cell = Cell::with(options, 1, default_limits());
    cell.world.run(async {
        let server = begin(&cell).await;
        for number in 0..30 {
            let value = number.to_string();
            cell.source.produce(0, record(&value, cell.world.now_ms(), &[("nereus-delay", "1s")]));
        }
        settled(&cell, &server, 1).await;
        cell.world.wait(Duration::from_secs(60)).await;
        assert_eq!(cell.broker.delivered_count(), 30);
        server.process.kill();
        cell.world.wait(Duration::from_secs(40 * 86_400)).await;
        cell.source.seek(None);
        let server = cell.start("second");
        cell.source.produce(0, record("new", cell.world.now_ms(), &[("nereus-delay", "1s")]));
        settled(&cell, &server, 1).await;
        cell.world.wait(Duration::from_secs(60)).await;
        assert_eq!(cell.broker.delivered_count(), 31, "only what is new");
    });
}

#[test]
fn a_topic_that_was_made_anew_is_read_from_its_beginning() {
    let cell = Cell::new(9, 1);
    cell.world.run(async {
        let server = begin(&cell).await;
        for value in ["a", "b"] {
            cell.source.produce(0, record(value, cell.world.now_ms(), &[("nereus-delay", "1d")]));
        }
        settled(&cell, &server, 1).await;
        cell.source.recreate([0xbb; 16]);
        cell.source.produce(0, record("c", cell.world.now_ms(), &[("nereus-delay", "1d")]));
        settled(&cell, &server, 1).await;
        assert_eq!(taken(&cell), ["a", "b", "c"].map(|value| (value.to_owned(), 1)).into());
        let ingress = service::get(&server.gateway, INGRESS).await.expect("is there");
        let ids: Vec<&str> = ingress.partitions.iter().map(|partition| partition.topic_id.as_str()).collect();
        assert_eq!(ids, ["aa".repeat(16), "bb".repeat(16)]);
        assert_eq!((ingress.partitions[0].state, ingress.partitions[1].state), (None, Some(IngressState::Running)));
    });
}

#[test]
fn a_topic_that_lost_records_is_not_read_on() {
    let cell = Cell::new(10, 2);
    cell.world.run(async {
        let server = begin(&cell).await;
        for value in ["a", "b", "c"] {
            cell.source.produce(0, record(value, cell.world.now_ms(), &[("nereus-delay", "1d")]));
        }
        settled(&cell, &server, 2).await;
        cell.source.lose_from(0, 1);
        cell.source.produce(0, record("d", cell.world.now_ms(), &[("nereus-delay", "1d")]));
        // The other partition goes on.
        cell.source.produce(1, record("e", cell.world.now_ms(), &[("nereus-delay", "1d")]));
        cell.world.wait(Duration::from_secs(120)).await;
        assert_eq!(taken(&cell), ["a", "b", "c", "e"].map(|value| (value.to_owned(), 1)).into());
        let ingress = service::get(&server.gateway, INGRESS).await.expect("is there");
        assert_eq!(ingress.state, IngressState::Failed);
        assert!(ingress.reason.as_deref().is_some_and(|reason| reason.contains("it lost records")), "{ingress:?}");
    });
}
