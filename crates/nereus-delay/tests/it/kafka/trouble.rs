//! Everything that goes wrong with a topic or its broker, on one real broker and at once: what operators see, what the messages
//! do, and that a healthy neighbour notices nothing.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use harness::kafka::{Broker, Cluster, PASSWORD, Record, USER};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{Server, delivered, destination, message_with};
use crate::world::{Http, LIMIT, pause, run};

/// Lanes are tried again soon, and destinations compared with their topics often, so that the test is short.
const CONFIG: &str = "[delivery]\ncircuit_pause_max = \"2s\"\n[destinations]\nrefresh_interval = \"500ms\"\n";
/// Messages for each sick destination, and for the healthy one meanwhile.
const SICK_MESSAGES: usize = 20;
const HEALTHY_MESSAGES: usize = 300;
/// What the password of [`USER`] is changed to.
const NEW_PASSWORD: &str = "nereus-test-2";
/// How long the broker is paused.
const BROKER_PAUSE: Duration = Duration::from_secs(20);

struct Scene {
    broker: Broker,
    cluster: Cluster,
    server: Server,
    /// Every id that was taken.
    taken: usize,
}

impl Scene {
    async fn new() -> Scene {
        let server = Server::new(CONFIG).await;
        let broker = Broker::start(&server.folder.path().join("kafka")).await.expect("a broker");
        let cluster = broker.cluster().expect("a client");
        let mut scene = Scene { broker, cluster, server, taken: 0 };
        std::fs::write(scene.password_file(), PASSWORD).expect("written");
        for name in ["healthy", "denied", "deleted", "recreated", "small", "throttled", "grows"] {
            scene.cluster.create_topic(name, 1, &[]).await.expect("made");
            if name == "denied" {
                scene.allow("--add").await;
            }
            let spec = scene.spec(name);
            scene.http().put(&format!("/v1/destinations/{name}"), &spec).await.expect(201);
            scene.schedule(name, "warm", 1, 10).await;
            message_with(scene.http(), &format!("{name}-warm-0"), "published").await;
        }
        scene
    }

    fn http(&self) -> &Http {
        &self.server.http
    }

    fn spec(&self, name: &str) -> Value {
        let mut spec = destination(&self.cluster, name);
        match name {
            "denied" => {
                let kafka = &mut spec["kafka"];
                kafka["bootstrap.servers"] = json!(self.broker.bootstrap_sasl());
                kafka["security.protocol"] = json!("sasl_plaintext");
                kafka["sasl.mechanism"] = json!("SCRAM-SHA-512");
                kafka["sasl.username"] = json!(USER);
                kafka["sasl.password"] = json!(format!("file:{}", self.password_file().display()));
            }
            "throttled" => spec["kafka"]["client.id"] = json!("slow"),
            _ => {}
        }
        spec
    }

    fn password_file(&self) -> PathBuf {
        self.server.folder.path().join("password")
    }

    async fn allow(&self, verb: &str) {
        let principal = format!("User:{USER}");
        let mut acl = vec![verb, "--allow-principal", &principal, "--producer", "--topic", "denied"];
        if verb == "--remove" {
            acl.push("--force");
        }
        self.broker.tool("org.apache.kafka.tools.AclCommand", &acl).await.expect("rights are changed");
    }

    async fn quota(&self, change: &[&str]) {
        let quota = [&["--alter", "--entity-type", "clients", "--entity-name", "slow"], change].concat();
        self.broker.tool("org.apache.kafka.tools.ConfigCommand", &quota).await.expect("the quota is changed");
    }

    /// Messages that are due at once, with ids of their destination and batch.
    async fn schedule(&mut self, name: &str, batch: &str, count: usize, bytes: usize) {
        self.schedule_in("1ms", name, batch, count, bytes).await;
    }

    async fn schedule_in(&mut self, delay: &str, name: &str, batch: &str, count: usize, bytes: usize) {
        let message = |number: usize| {
            json!({
                "destination": name, "delay": delay, "id": format!("{name}-{batch}-{number}"), "key": format!("{number}"),
                "value": "v".repeat(bytes),
            })
        };
        let messages: Vec<Value> = (0..count).map(message).collect();
        self.http().schedule_all(&messages).await;
        self.taken += count;
    }

    async fn lanes(&self, name: &str) -> Vec<Value> {
        let answer = self.http().get(&format!("/v1/admin/lanes?destination={name}")).await.expect(200);
        answer.body["items"].as_array().expect("lanes").clone()
    }

    /// Waits until a lane of the destination shows this code and says this.
    async fn wait_for_code(&self, name: &str, code: &str, detail: &str) {
        let deadline = Instant::now() + LIMIT;
        loop {
            let lanes = self.lanes(name).await;
            let shows =
                |lane: &Value| lane["code"] == code && lane["detail"].as_str().is_some_and(|d| d.contains(detail));
            if lanes.iter().any(shows) {
                return;
            }
            assert!(Instant::now() < deadline, "{name} shows no {code} with {detail:?}: {lanes:?}");
            pause(Duration::from_millis(50)).await;
        }
    }

    async fn wait_until_delivered(&self, name: &str, batch: &str, count: usize) {
        for number in 0..count {
            message_with(self.http(), &format!("{name}-{batch}-{number}"), "published").await;
        }
    }

    /// A message that waits for its lane costs itself nothing: it is neither failed nor charged.
    async fn assert_waiting(&self, name: &str, batch: &str, code: &str) {
        let id = format!("{name}-{batch}-0");
        let deadline = Instant::now() + LIMIT;
        loop {
            let found = self.http().get(&format!("/v1/messages/{id}")).await.expect(200).body;
            assert!(matches!(found["status"].as_str(), Some("scheduled" | "retrying" | "publishing")), "{found}");
            assert_eq!(found["possible_duplicate"], false, "{found}");
            // It says what it waits for once it is overdue and no attempt of it is under way.
            if found["waiting_for"]["code"] == code {
                return;
            }
            assert!(Instant::now() < deadline, "{found}");
            pause(Duration::from_millis(50)).await;
        }
    }
}

fn by_id(records: &[Record]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for record in records {
        *counts.entry(record.header("nereus.delay.id").expect("an id").to_owned()).or_insert(0) += 1;
    }
    counts
}

#[test]
fn sick_lanes_hurt_nobody_and_recover_without_a_restart() {
    run(async {
        let mut scene = Scene::new().await;
        fall_sick(&mut scene).await;
        recover(&mut scene).await;
        change_a_password(&mut scene).await;
        broker_away(&mut scene).await;
        close_the_account(&scene).await;
    });
}

/// Every trouble of a topic at once, and the neighbour in the midst of it.
async fn fall_sick(scene: &mut Scene) {
    // Taken while the topic still takes so much, and due when it does not any more.
    scene.schedule_in("5s", "small", "large", 1, 50_000).await;
    scene.cluster.alter_topic("small", &[("max.message.bytes", "10000")]).await.expect("shrunk");
    scene.allow("--remove").await;
    scene.cluster.delete_topic("deleted").await.expect("gone");
    scene.cluster.delete_topic("recreated").await.expect("gone");
    scene.cluster.create_topic("recreated", 1, &[]).await.expect("made again");
    scene.cluster.add_partitions("grows", 3).await.expect("grown");
    scene.quota(&["--add-config", "producer_byte_rate=3000"]).await;
    // A topic that was made anew is noticed within seconds; nothing is claimed of what is sent before.
    scene.wait_for_code("recreated", "RESOURCE_INCARNATION_MISMATCH", "destination rebind").await;
    for name in ["denied", "deleted", "recreated", "throttled", "grows"] {
        scene.schedule(name, "sick", SICK_MESSAGES, 500).await;
    }
    scene.schedule("small", "sick", SICK_MESSAGES, 500).await;
    scene.schedule("healthy", "meanwhile", HEALTHY_MESSAGES, 500).await;

    scene.wait_until_delivered("healthy", "meanwhile", HEALTHY_MESSAGES).await;
    scene.wait_for_code("denied", "CAPABILITY_UNAVAILABLE", "TOPIC_AUTHORIZATION_FAILED").await;
    scene.wait_for_code("deleted", "RESOURCE_INCARNATION_MISMATCH", "UNKNOWN_TOPIC_OR_PARTITION").await;
    scene.wait_for_code("recreated", "RESOURCE_INCARNATION_MISMATCH", "destination rebind").await;
    scene.wait_for_code("throttled", "ADMISSION_CAPACITY_GATED", "throttles").await;
    scene.assert_waiting("denied", "sick", "CAPABILITY_UNAVAILABLE").await;
    scene.assert_waiting("deleted", "sick", "RESOURCE_INCARNATION_MISMATCH").await;
    scene.assert_waiting("recreated", "sick", "RESOURCE_INCARNATION_MISMATCH").await;
    assert_eq!(scene.cluster.read("recreated").expect("readable"), [], "nothing is sent to another topic by chance");

    // What is too large for the topic now is a dead letter; what fits goes out.
    let large = message_with(scene.http(), "small-large-0", "dead_letter").await;
    assert_eq!(large["last_error"], "DESTINATION_DEFINITIVE_PERMANENT", "{large}");
    scene.wait_until_delivered("small", "sick", SICK_MESSAGES).await;
    // A topic that grew goes on, with a new version for what comes.
    scene.wait_until_delivered("grows", "sick", SICK_MESSAGES).await;
    let deadline = Instant::now() + LIMIT;
    while scene.http().get("/v1/destinations/grows").await.expect(200).number("partitions") != 3 {
        assert!(Instant::now() < deadline, "the destination does not follow its topic");
        pause(Duration::from_millis(50)).await;
    }
}

/// The troubles are mended, one after the other, and what was pending goes out.
async fn recover(scene: &mut Scene) {
    scene.allow("--add").await;
    scene.wait_until_delivered("denied", "sick", SICK_MESSAGES).await;
    scene.quota(&["--delete-config", "producer_byte_rate"]).await;
    scene.wait_until_delivered("throttled", "sick", SICK_MESSAGES).await;
    scene.cluster.create_topic("deleted", 1, &[]).await.expect("made again");
    for name in ["deleted", "recreated"] {
        let again = scene.http().put(&format!("/v1/destinations/{name}"), &scene.spec(name)).await;
        assert_eq!((again.status, again.code()), (409, "DESTINATION_CONFLICT"), "{}", again.body);
        scene.http().post(&format!("/v1/destinations/{name}:rebind"), &json!({})).await.expect(200);
        scene.wait_until_delivered(name, "sick", SICK_MESSAGES).await;
        let records = delivered(&scene.cluster, name, SICK_MESSAGES).await;
        assert_eq!(records.len(), SICK_MESSAGES, "{:?}", by_id(&records));
        scene.schedule(name, "after", 1, 10).await;
        scene.wait_until_delivered(name, "after", 1).await;
    }
}

/// A password is changed at the broker, which starts anew and so asks everybody who they are; and a while later in its file.
async fn change_a_password(scene: &mut Scene) {
    let password = format!("SCRAM-SHA-512=[password={NEW_PASSWORD}]");
    let alter = ["--alter", "--entity-type", "users", "--entity-name", USER, "--add-config", &password];
    scene.broker.tool("org.apache.kafka.tools.ConfigCommand", &alter).await.expect("changed");
    // Connections that are open would stay as good as they were.
    scene.broker.stop().await.expect("it stops");
    scene.broker.restart().await.expect("it comes back");
    for name in ["denied", "healthy"] {
        scene.schedule(name, "changed", SICK_MESSAGES, 500).await;
    }
    scene.wait_until_delivered("healthy", "changed", SICK_MESSAGES).await;
    scene.wait_for_code("denied", "CAPABILITY_UNAVAILABLE", "(AUTHENTICATION)").await;
    scene.assert_waiting("denied", "changed", "CAPABILITY_UNAVAILABLE").await;
    std::fs::write(scene.password_file(), NEW_PASSWORD).expect("written");
    scene.wait_until_delivered("denied", "changed", SICK_MESSAGES).await;
}

/// The broker itself is paused, and then killed: everything waits, and everything comes.
async fn broker_away(scene: &mut Scene) {
    let paused_at = Instant::now();
    scene.broker.pause().expect("paused");
    scene.schedule("healthy", "paused", SICK_MESSAGES, 500).await;
    scene.wait_for_code("healthy", "CAPABILITY_UNAVAILABLE", "").await;
    tokio::time::sleep_until(paused_at + BROKER_PAUSE).await;
    scene.broker.resume().expect("resumed");
    scene.wait_until_delivered("healthy", "paused", SICK_MESSAGES).await;

    scene.broker.kill().await.expect("killed");
    scene.schedule("healthy", "killed", SICK_MESSAGES, 500).await;
    scene.wait_for_code("healthy", "CAPABILITY_UNAVAILABLE", "").await;
    scene.broker.restart().await.expect("it comes back");
    scene.wait_until_delivered("healthy", "killed", SICK_MESSAGES).await;
}

/// Everything taken has one end, and is where its end says.
async fn close_the_account(scene: &Scene) {
    let counts = scene.http().get("/v1/counts").await.expect(200);
    let (published, dead) = (counts.number("published"), counts.number("dead_letter"));
    assert_eq!((published + dead, dead), (i64::try_from(scene.taken).expect("few"), 1), "{}", counts.body);
    for (name, count) in [("healthy", 1 + HEALTHY_MESSAGES + 3 * SICK_MESSAGES), ("denied", 1 + 2 * SICK_MESSAGES)] {
        let records = by_id(&delivered(&scene.cluster, name, count).await);
        assert_eq!(records.len(), count, "{records:?}");
        for (id, copies) in records {
            let message = scene.http().get(&format!("/v1/messages/{id}")).await.expect(200).body;
            assert!(copies == 1 || message["possible_duplicate"] == true, "{id} is there {copies} times: {message}");
        }
    }
}
