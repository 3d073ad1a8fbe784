//! Topics of one's own on the shared broker, and what it takes to send to them.

use std::sync::Arc;
use std::time::Duration;

use harness::kafka::Cluster;
use kafka::{KafkaDestination, KafkaOptions, KafkaTargets, ReadEnvironment};
use ports::destination::LaneTarget;
use ports::target::{Target, TargetError, TargetSystem as _};
use protocol::resource::Resource;
use serde_json::{Value, json};
use shard::state::LaneNo;
use testkit::log;
use testkit::port_suites::attempts::AttemptMint;

/// Has a topic take any timestamp.
pub(crate) const ANY_TIME: (&str, &str) = ("message.timestamp.after.max.ms", "9223372036854775807");

/// How long anything may take that a broker does.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);

pub(crate) fn cluster() -> Cluster {
    Cluster::shared().expect("a real Kafka")
}

/// A name that no other test has.
pub(crate) fn fresh_name(what: &str) -> String {
    format!("test.{what}.{:08x}", fastrand::u32(..))
}

/// Makes a topic of one partition that takes any timestamp: attempts that are minted here live in a time of their own.
pub(crate) async fn make_topic(cluster: &Cluster, what: &str, config: &[(&str, &str)]) -> String {
    let topic = fresh_name(what);
    cluster.create_topic(&topic, 1, &[config, &[ANY_TIME]].concat()).await.expect("made");
    topic
}

pub(crate) fn environment() -> ReadEnvironment {
    Arc::new(|name| (name == "TEST_PASSWORD").then(|| harness::kafka::PASSWORD.to_owned()))
}

pub(crate) fn connection(cluster: &Cluster, topic: &str) -> Value {
    json!({ "bootstrap.servers": cluster.bootstrap(), "topic": topic })
}

/// Over SASL, as a user with the rights that access control lists give.
pub(crate) fn connection_of(user: &str, topic: &str) -> Value {
    json!({
        "bootstrap.servers": harness::kafka::variable("NEREUS_TEST_KAFKA_SASL").expect("a real Kafka"),
        "topic": topic,
        "security.protocol": "sasl_plaintext",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": user,
        "sasl.password": "env:TEST_PASSWORD",
    })
}

/// What setting a destination up on this connection finds.
pub(crate) async fn resolve(connection: Value) -> Result<Target, TargetError> {
    KafkaTargets::new(environment(), 1_000_000).resolve(connection, [0; 16], false).await
}

pub(crate) fn destination(connection: Value) -> KafkaDestination {
    KafkaDestination::new(KafkaOptions {
        connections: Arc::new(move |_, _| {
            let connection = connection.clone();
            Box::pin(async move { Ok(connection) })
        }),
        environment: environment(),
        now_ms: Arc::new(|| 1_800_000_000_000),
        delivery_timeout: Duration::from_secs(10),
    })
}

/// Attempts for a topic.
pub(crate) fn mint(resource: Resource, record_bytes_max: u32) -> AttemptMint {
    AttemptMint::new(|policy| {
        let mut destination = log::Destination::new("orders", policy);
        destination.body.resource = resource;
        destination.body.record_bytes_max = record_bytes_max;
        destination
    })
}

/// The lane for partition 0.
pub(crate) fn lane(mint: &AttemptMint) -> LaneTarget {
    let destination = mint.destination();
    LaneTarget {
        shard: mint.shard(),
        lane_no: LaneNo(1),
        profile_id: destination.profile.id.clone(),
        profile_version: destination.profile.version,
        profile: destination.body.clone(),
        partition: 0,
        owner_epoch: mint.owner_epoch(),
    }
}
