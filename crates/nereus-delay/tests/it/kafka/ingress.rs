//! Scheduling by headers, with plain producers on a real broker.

use std::time::Duration;

use bytes::Bytes;
use harness::kafka::{Cluster, Outgoing, Record};
use harness::process::ServerProcess;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{Server, cluster, delivered, destination, fresh_name, message_with};
use crate::world::{Http, LIMIT, pause, run};

const HOUR_MS: i64 = 3_600_000;

fn headers(headers: &[(&str, &str)]) -> Vec<(String, Option<Bytes>)> {
    headers.iter().map(|(name, value)| ((*name).to_owned(), Some(Bytes::copy_from_slice(value.as_bytes())))).collect()
}

fn record(value: &str, own: &[(&str, &str)]) -> Outgoing {
    Outgoing { value: Some(Bytes::copy_from_slice(value.as_bytes())), headers: headers(own), ..Outgoing::default() }
}

/// A server with a destination and an ingress, each on topics of their own.
struct Scene {
    cluster: Cluster,
    server: Server,
    inbound: String,
    outbound: String,
}

impl Scene {
    async fn new(what: &str) -> Scene {
        let scene = Scene {
            cluster: cluster(),
            server: Server::new("").await,
            inbound: fresh_name(&format!("{what}-in")),
            outbound: fresh_name(&format!("{what}-out")),
        };
        scene.cluster.create_topic(&scene.inbound, 2, &[]).await.expect("made");
        scene.cluster.create_topic(&scene.outbound, 1, &[]).await.expect("made");
        let spec = destination(&scene.cluster, &scene.outbound);
        scene.http().put("/v1/destinations/orders", &spec).await.expect(201);
        let made = scene.http().put("/v1/ingresses/orders", &scene.spec()).await.expect(201);
        assert!(made.body["checks"].to_string().contains("was made"), "{}", made.body);
        scene
    }

    fn http(&self) -> &Http {
        &self.server.http
    }

    fn refusals(&self) -> String {
        format!("{}.refused", self.inbound)
    }

    fn receipts(&self) -> String {
        format!("{}.receipts", self.inbound)
    }

    fn group(&self) -> String {
        format!("group.{}", self.inbound)
    }

    fn spec(&self) -> Value {
        json!({
            "kafka": { "bootstrap.servers": self.cluster.bootstrap(), "topic": self.inbound },
            "destination": "orders", "group": self.group(), "refusals": self.refusals(), "receipts": self.receipts(),
        })
    }

    fn write(&self, records: &[Outgoing]) {
        self.cluster.write(&self.inbound, records).expect("written");
    }

    async fn records(&self, field: &str) -> u64 {
        let found = self.http().get("/v1/ingresses/orders").await.expect(200);
        found.body["records"][field].as_u64().unwrap_or_else(|| panic!("no {field} in {}", found.body))
    }

    async fn wait_for_records(&self, field: &str, count: u64) {
        let deadline = Instant::now() + LIMIT;
        while self.records(field).await < count {
            assert!(Instant::now() < deadline, "{field} does not come to {count}");
            pause(Duration::from_millis(50)).await;
        }
    }

    /// Ends the server, by a kill or by asking it, and starts it again.
    async fn again(self, kill: bool) -> Scene {
        let Server { process, options, folder, .. } = self.server;
        if kill {
            process.kill().await.expect("it dies");
        } else {
            assert!(process.stop().await.expect("it stops").success());
        }
        let process = ServerProcess::start_ready(&options).await.expect("a server");
        let server = Server { http: Http::new(process.address()), process, options, folder };
        Scene { server, ..self }
    }
}

fn now_ms() -> i64 {
    harness::wall_clock::now_ms()
}

fn values(records: &[Record]) -> Vec<String> {
    let mut values: Vec<String> = records
        .iter()
        .map(|record| String::from_utf8_lossy(record.value.as_deref().unwrap_or_default()).into_owned())
        .collect();
    values.sort();
    values
}

#[test]
fn a_plain_record_with_a_header_or_two_is_scheduled_as_it_is() {
    run(async {
        let scene = Scene::new("plain").await;
        let timestamp_ms = now_ms() - 1_000;
        let mut first = record("as it is", &[("trace", "00-1"), ("nereus-delay", "3s"), ("nereus-id", "first")]);
        first.key = Some(Bytes::from_static(b"\0key"));
        first.timestamp_ms = Some(timestamp_ms);
        let later_ms = now_ms() + 600_000;
        scene.write(&[
            first,
            record("to cancel", &[("nereus-deliver-at", &later_ms.to_string()), ("nereus-id", "to-cancel")]),
            record("to move", &[("nereus-deliver-at", &later_ms.to_string()), ("nereus-id", "to-move")]),
        ]);
        scene.wait_for_records("scheduled", 3).await;
        assert_eq!(message_with(scene.http(), "to-cancel", "scheduled").await["deliver_at_ms"], later_ms);
        scene.write(&[
            record("", &[("nereus-cancel", "to-cancel")]),
            record("", &[("nereus-reschedule", "to-move"), ("nereus-delay", "1s")]),
        ]);
        message_with(scene.http(), "to-cancel", "canceled").await;
        message_with(scene.http(), "to-move", "published").await;
        let records = delivered(&scene.cluster, &scene.outbound, 2).await;
        assert_eq!(values(&records), ["as it is", "to move"]);
        let first = records.iter().find(|record| record.value.as_deref() == Some(b"as it is")).expect("it is there");
        assert_eq!((first.key.as_deref(), first.timestamp_ms), (Some(&b"\0key"[..]), Some(timestamp_ms)));
        let own: Vec<&str> = first
            .headers
            .iter()
            .map(|(name, _)| name.as_str())
            .take_while(|name| !name.starts_with("nereus."))
            .collect();
        assert_eq!(own, ["trace"], "the headers that asked are gone, the others are not");
        // The delay counts from the record's own time.
        assert_eq!(first.header("nereus.delay.deliver_at_ms"), Some((timestamp_ms + 3_000).to_string().as_str()));
        let receipts = delivered(&scene.cluster, &scene.receipts(), 5).await;
        assert_eq!(receipts.len(), 5);
    });
}

#[test]
fn what_cannot_be_taken_is_kept_with_its_code() {
    run(async {
        let scene = Scene::new("refused").await;
        let mut misspelt = record("misspelt", &[("other", "x"), ("nereus-dealy", "1s")]);
        misspelt.key = Some(Bytes::from_static(b"k"));
        scene.write(&[
            misspelt,
            record("no unit", &[("nereus-delay", "30")]),
            record("nothing asked", &[]),
            record("nowhere", &[("nereus-delay", "1s"), ("nereus-destination", "no-such")]),
            record("good", &[("nereus-delay", "1ms")]),
        ]);
        let refused = delivered(&scene.cluster, &scene.refusals(), 4).await;
        assert_eq!(values(&refused), ["misspelt", "no unit", "nothing asked", "nowhere"]);
        let misspelt = refused.iter().find(|record| record.value.as_deref() == Some(b"misspelt")).expect("it is there");
        assert_eq!(misspelt.key.as_deref(), Some(&b"k"[..]));
        assert_eq!(misspelt.header("nereus-dealy"), Some("1s"), "the record is whole");
        assert_eq!(misspelt.header("nereus.delay.refusal_code"), Some("INVALID_HEADER"));
        assert!(misspelt.header("nereus.delay.refusal_detail").expect("why").contains("nereus-dealy"), "{misspelt:?}");
        let nowhere = refused.iter().find(|record| record.value.as_deref() == Some(b"nowhere")).expect("it is there");
        assert_eq!(nowhere.header("nereus.delay.refusal_code"), Some("UNKNOWN_DESTINATION"));
        assert_eq!(values(&delivered(&scene.cluster, &scene.outbound, 1).await), ["good"]);
    });
}

#[test]
fn lag_refuses_nothing_and_aborted_transactions_schedule_nothing() {
    run(async {
        let scene = Scene::new("lag").await;
        let at = |value: &str, delay: &str, ago_ms: i64| Outgoing {
            timestamp_ms: Some(now_ms() - ago_ms),
            ..record(value, &[("nereus-delay", delay)])
        };
        scene.write(&[at("overdue", "30m", 2 * HOUR_MS)]);
        scene.cluster.write_transaction(&scene.inbound, &[at("aborted", "1ms", 0)], false).expect("aborted");
        scene.cluster.write_transaction(&scene.inbound, &[at("committed", "1ms", 0)], true).expect("committed");
        scene.wait_for_records("scheduled", 2).await;
        assert_eq!(values(&delivered(&scene.cluster, &scene.outbound, 2).await), ["committed", "overdue"]);
        assert_eq!(scene.records("refused").await, 0);
    });
}

#[test]
fn a_record_schedules_once_over_kills_stops_and_reading_from_the_beginning() {
    run(async {
        let mut scene = Scene::new("once").await;
        let batch = |round: usize| -> Vec<Outgoing> {
            (0..200).map(|number| record(&format!("{round}-{number}"), &[("nereus-delay", "1ms")])).collect()
        };
        for round in 0..4 {
            scene.write(&batch(round));
            // Wherever it is by then.
            let deadline = Instant::now() + LIMIT;
            while scene.records("scheduled").await + scene.records("skipped").await < 50 {
                assert!(Instant::now() < deadline, "nothing is taken");
                pause(Duration::from_millis(5)).await;
            }
            scene = scene.again(round % 2 == 0).await;
        }
        assert_eq!(distinct_after(&scene, 800).await, 800);

        // The group's place is lost altogether.
        let Server { process, options, folder, .. } = scene.server;
        process.stop().await.expect("it stops");
        let group = format!("group.{}", scene.inbound);
        let deadline = Instant::now() + LIMIT;
        let arguments = ["--group", &group, "--topic", &scene.inbound, "--reset-offsets", "--to-earliest", "--execute"];
        while let Err(error) =
            scene.cluster.tool("org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", &arguments).await
        {
            // A member that left is in the group until its session is over.
            assert!(Instant::now() < deadline, "{error}");
        }
        let process = ServerProcess::start_ready(&options).await.expect("a server");
        let server = Server { http: Http::new(process.address()), process, options, folder };
        let scene = Scene { server, ..scene };
        scene.write(&[record("last", &[("nereus-delay", "1ms"), ("nereus-id", "last")])]);
        message_with(scene.http(), "last", "published").await;
        assert_eq!(distinct_after(&scene, 801).await, 801);
    });
}

/// How many messages there were, once each of `count` values is in the topic. A message may be there twice after a kill; a value
/// that was scheduled twice is another message.
async fn distinct_after(scene: &Scene, count: usize) -> usize {
    let deadline = Instant::now() + LIMIT;
    loop {
        let records = scene.cluster.read(&scene.outbound).expect("readable");
        let values: std::collections::BTreeSet<_> = records.iter().map(|record| record.value.clone()).collect();
        if values.len() >= count {
            let messages: std::collections::BTreeSet<_> = records
                .iter()
                .map(|record| record.header("nereus.delay.message_id").expect("an id").to_owned())
                .collect();
            return messages.len();
        }
        assert!(Instant::now() < deadline, "{} of {count} values are there", values.len());
        pause(Duration::from_millis(100)).await;
    }
}

#[test]
fn a_record_that_goes_round_keeps_its_headers() {
    run(async {
        let scene = Scene::new("round").await;
        scene.write(&[record("round", &[("own", "1"), ("nereus-delay", "1ms")])]);
        let mut tail = scene.cluster.tail(&scene.outbound).expect("readable");
        for _ in 0..50 {
            let newest = tail.take(1, LIMIT).expect("the next hop").remove(0);
            let count = |name: &str| newest.headers.iter().filter(|(found, _)| found == name).count();
            assert_eq!((newest.headers.len(), count("own"), count("nereus.delay.message_id")), (6, 1, 1), "{newest:?}");
            // As a consumer that wants to see it again later: what it got, and the header that asks.
            let mut again =
                Outgoing { value: newest.value.clone(), headers: newest.headers.clone(), ..Outgoing::default() };
            again.headers.extend(headers(&[("nereus-delay", "1ms")]));
            scene.write(&[again]);
        }
    });
}
