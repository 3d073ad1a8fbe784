//! Passwords that are changed at the broker under connections that work, and a while later in the files that lanes and ingresses
//! name.

use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{FutureExt as _, StreamExt as _};
use harness::kafka::{Broker, Cluster, Outgoing, PASSWORD};
use kafka::KafkaSources;
use ports::destination::{Destination as _, LaneSession};
use ports::source::{
    SideRecord, SourceError, SourceEvent, SourcePartition, SourceSession, SourceSpec, SourceSystem as _,
};
use protocol::code::StableCode;
use protocol::mutation_v2::{AttemptResult, Disposition};
use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::port_suites::attempts::AttemptMint;
use tokio::time::{Instant, sleep_until, timeout};

use crate::support::{ANY_TIME, LIMIT, destination, environment, lane, mint, resolve};

/// The user whose password is changed.
const CHANGED: &str = "carol";
/// A user beside, whose password stays.
const NEIGHBOUR: &str = "dave";
const NEW_PASSWORD: &str = "nereus-test-2";
const GROUP: &str = "group";
/// What an ingress's connections may stand idle: more than the three seconds between two heartbeats of a group's member.
const IDLE_MAX: Duration = Duration::from_secs(5);

/// A broker of the test's own, and two users of it, each with a topic of its name.
struct Scene {
    broker: Broker,
    cluster: Cluster,
    folder: TempDir,
}

impl Scene {
    async fn new() -> Scene {
        let folder = tempfile::tempdir().expect("a folder");
        let broker = Broker::start(&folder.path().join("kafka")).await.expect("a broker");
        let cluster = broker.cluster().expect("a client");
        let scene = Scene { broker, cluster, folder };
        for user in [CHANGED, NEIGHBOUR] {
            scene.change_at_the_broker(user, PASSWORD).await;
            scene.change_in_the_file(user, PASSWORD);
            scene.cluster.create_topic(user, 1, &[ANY_TIME]).await.expect("made");
            scene.allow(user, &["--producer", "--topic", user]).await;
        }
        scene
    }

    /// With a broker that asks its clients every few seconds who they are: no connection outlives a change for longer.
    async fn that_asks_again() -> Scene {
        let mut scene = Scene::new().await;
        let properties = scene.folder.path().join("kafka/server.properties");
        let before = std::fs::read_to_string(&properties).expect("readable");
        std::fs::write(&properties, format!("{before}connections.max.reauth.ms=3000\n")).expect("written");
        scene.broker.stop().await.expect("it stops");
        scene.broker.restart().await.expect("it starts");
        scene
    }

    async fn change_at_the_broker(&self, user: &str, password: &str) {
        let password = format!("SCRAM-SHA-512=[password={password}]");
        let alter = ["--alter", "--entity-type", "users", "--entity-name", user, "--add-config", &password];
        self.broker.tool("org.apache.kafka.tools.ConfigCommand", &alter).await.expect("changed");
    }

    fn change_in_the_file(&self, user: &str, password: &str) {
        std::fs::write(self.file(user), format!("{password}\n")).expect("written");
    }

    async fn allow(&self, user: &str, rights: &[&str]) {
        let principal = format!("User:{user}");
        let acl = [&["--add", "--allow-principal", &principal], rights].concat();
        self.broker.tool("org.apache.kafka.tools.AclCommand", &acl).await.expect("allowed");
    }

    fn file(&self, user: &str) -> PathBuf {
        self.folder.path().join(user)
    }

    fn connection(&self, user: &str) -> Value {
        json!({
            "bootstrap.servers": self.broker.bootstrap_sasl(),
            "topic": user,
            "security.protocol": "sasl_plaintext",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": user,
            "sasl.password": format!("file:{}", self.file(user).display()),
        })
    }

    /// What an ingress is asked for that reads a topic of the changed user's, and writes what it refuses to another.
    async fn source(&self) -> SourceSpec {
        let refusals = format!("{CHANGED}.refused");
        self.cluster.create_topic(&refusals, 1, &[]).await.expect("made");
        self.allow(CHANGED, &["--producer", "--topic", &refusals]).await;
        self.allow(CHANGED, &["--consumer", "--topic", CHANGED, "--group", GROUP]).await;
        SourceSpec { connection: self.connection(CHANGED), group: GROUP.to_owned(), refusals, receipts: None }
    }

    fn write(&self, value: &'static str) {
        let record = Outgoing { value: Some(Bytes::from_static(value.as_bytes())), ..Outgoing::default() };
        self.cluster.write(CHANGED, &[record]).expect("written");
    }
}

/// It says that the password was not taken, and not which.
fn assert_refused(detail: &str) {
    assert!(detail.contains("(AUTHENTICATION)"), "{detail}");
    assert!(!detail.contains(PASSWORD), "{detail}");
}

async fn send(session: &dyn LaneSession, mint: &mut AttemptMint) -> AttemptResult {
    let answers = session.send(mint.admit(1, |_, _| {})).concat();
    let mut answers = timeout(LIMIT, answers).await.expect("answered in time");
    answers.pop().expect("an answer").1.result
}

async fn publish(session: &dyn LaneSession, mint: &mut AttemptMint) {
    let result = send(session, mint).await;
    assert!(matches!(result, AttemptResult::Published(_)), "{result:?}");
}

#[tokio::test]
async fn a_lane_whose_password_is_changed_waits_for_the_new_one_and_no_other_lane_notices() {
    let scene = Scene::that_asks_again().await;
    let open = async |user| {
        let target = resolve(scene.connection(user)).await.expect("well");
        let mut mint = mint(target.resource, target.record_bytes_max);
        let destination = destination(scene.connection(user));
        let session = destination.open_lane(lane(&mint)).await.expect("opens");
        publish(&*session, &mut mint).await;
        (destination, session, mint)
    };
    let (destination, session, mut mint) = open(CHANGED).await;
    let (_, beside, mut beside_mint) = open(NEIGHBOUR).await;

    scene.change_at_the_broker(CHANGED, NEW_PASSWORD).await;
    // The lane works on until the broker asks.
    let (mut published, mut unknown, mut kept) = (1, 0, 0);
    let lost = loop {
        match send(&*session, &mut mint).await {
            AttemptResult::Published(_) => published += 1,
            AttemptResult::Unknown => unknown += 1,
            AttemptResult::NotPublished { disposition: Disposition::LaneUnavailable, .. } => kept += 1,
            other => panic!("the message is not at fault: {other:?}"),
        }
        if let Some(lost) = session.lost().now_or_never() {
            break lost;
        }
    };
    assert_eq!(lost.code, StableCode::CapabilityUnavailable, "{lost}");
    // The loss may be told as that of the connection; whoever opens the lane again hears why it has none.
    for _ in 0..3 {
        let refused = destination.open_lane(lane(&mint)).await.err().expect("the file has the old password");
        assert_eq!(refused.code, StableCode::CapabilityUnavailable, "{refused}");
        assert_refused(&refused.detail);
    }

    scene.change_in_the_file(CHANGED, NEW_PASSWORD);
    let session = destination.open_lane(lane(&mint)).await.expect("opens");
    for _ in 0..unknown + kept + 1 {
        publish(&*session, &mut mint).await;
        published += 1;
    }
    let there = scene.cluster.read(CHANGED).expect("readable").len();
    assert!((published..=published + unknown).contains(&there), "{there}, published {published}, unknown {unknown}");

    publish(&*beside, &mut beside_mint).await;
    assert_eq!(beside.lost().now_or_never(), None, "the neighbour's first session is its only one");
}

async fn open(spec: &SourceSpec) -> Result<Box<dyn SourceSession>, SourceError> {
    KafkaSources::new(environment(), "test").open(spec.clone()).await
}

async fn next(session: &dyn SourceSession) -> Result<SourceEvent, SourceError> {
    timeout(LIMIT, session.next()).await.expect("an event in time")
}

async fn start(session: &dyn SourceSession, offset: u64) -> SourcePartition {
    match next(session).await.expect("an event") {
        SourceEvent::Assigned { partition, .. } => {
            session.start(&partition, offset).expect("starts");
            partition
        }
        other => panic!("{other:?}"),
    }
}

async fn write_beside(session: &dyn SourceSession, spec: &SourceSpec) -> Result<(), SourceError> {
    let record = SideRecord { key: None, value: Some(Bytes::new()), headers: Vec::new(), timestamp_ms: None };
    session.write(&spec.refusals, vec![record]).await
}

/// The offset of the next record.
async fn read(session: &dyn SourceSession) -> u64 {
    match next(session).await.expect("an event") {
        SourceEvent::Records { records, .. } => records[0].offset,
        other => panic!("{other:?}"),
    }
}

/// The old password is refused by name, and the new one is taken: from offset 1 on, and beside.
async fn change_in_the_file_and_go_on(scene: &Scene, spec: &SourceSpec) {
    assert_refused(&open(spec).await.err().expect("the file has the old password").detail);
    scene.change_in_the_file(CHANGED, NEW_PASSWORD);
    scene.write("while the password was wrong");
    let session = open(spec).await.expect("joins");
    start(&*session, 1).await;
    assert_eq!(read(&*session).await, 1);
    timeout(LIMIT, write_beside(&*session, spec)).await.expect("in time").expect("written");
}

#[tokio::test]
async fn an_ingress_whose_password_is_changed_ends_its_session_and_goes_on_with_the_new_one() {
    let scene = Scene::that_asks_again().await;
    let spec = scene.source().await;
    let session = open(&spec).await.expect("joins");
    start(&*session, 0).await;
    scene.write("before");
    assert_eq!(read(&*session).await, 0);

    scene.change_at_the_broker(CHANGED, NEW_PASSWORD).await;
    assert_refused(&next(&*session).await.expect_err("the session is over").detail);
    drop(session);
    change_in_the_file_and_go_on(&scene, &spec).await;
}

/// Refusals are seldom: what the reader's connections outlive, those of the writer beside it do not. Its client would try the old
/// password for ever.
#[tokio::test]
async fn a_session_ends_when_only_its_writer_is_refused() {
    let scene = Scene::new().await;
    let mut spec = scene.source().await;
    spec.connection["connections.max.idle.ms"] = json!(IDLE_MAX.as_millis().to_string());
    let session = open(&spec).await.expect("joins");
    start(&*session, 0).await;
    scene.write("before");
    assert_eq!(read(&*session).await, 0);

    scene.change_at_the_broker(CHANGED, NEW_PASSWORD).await;
    let ended = async {
        loop {
            tokio::select! {
                event = session.next() => match event {
                    Ok(event) => panic!("{event:?}"),
                    Err(error) => break error,
                },
                () = write_beside_and_stand_idle(&*session, &spec) => {}
            }
        }
    };
    let ended = timeout(LIMIT, ended).await.expect("the session ends");
    assert!(ended.detail.contains("refusals and receipts"), "{ended}");
    assert_refused(&ended.detail);
    drop(session);
    change_in_the_file_and_go_on(&scene, &spec).await;
}

async fn write_beside_and_stand_idle(session: &dyn SourceSession, spec: &SourceSpec) {
    // Whether this one still goes through is not asked.
    let _ = write_beside(session, spec).await;
    sleep_until(Instant::now() + IDLE_MAX + Duration::from_secs(1)).await;
}
