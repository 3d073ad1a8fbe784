//! What people read when they set a destination up.

use ports::target::TargetError;
use protocol::resource::Resource;
use serde_json::json;

use crate::support::{cluster, connection, connection_of, fresh_name, resolve};

fn failure(error: &TargetError) -> String {
    match error {
        TargetError::CheckFailed { checks } => {
            checks.iter().find(|check| !check.ok).map(|check| check.detail.clone()).unwrap_or_default()
        }
        other => format!("{other:?}"),
    }
}

#[tokio::test]
async fn a_topic_is_checked_and_pinned_by_its_id() {
    let (cluster, topic) = (cluster(), fresh_name("target"));
    cluster
        .create_topic(&topic, 3, &[("max.message.bytes", "65536"), ("cleanup.policy", "compact")])
        .await
        .expect("made");
    let target = resolve(connection(&cluster, &topic)).await.expect("well");
    assert_eq!((target.topic.as_str(), target.partition_count), (topic.as_str(), 3));
    assert!((64_000..65_536).contains(&target.record_bytes_max), "{}", target.record_bytes_max);
    let details: Vec<&str> = target.checks.iter().map(|check| check.detail.as_str()).collect();
    assert!(target.checks.iter().all(|check| check.ok), "{details:?}");
    for expected in ["partitions: 3", "may write", "65536 bytes", "compacted"] {
        assert!(details.iter().any(|detail| detail.contains(expected)), "{expected}: {details:?}");
    }

    // The same name is another topic once it was made anew.
    cluster.delete_topic(&topic).await.expect("gone");
    cluster.create_topic(&topic, 3, &[]).await.expect("made again");
    let again = resolve(connection(&cluster, &topic)).await.expect("well");
    let id = |resource: &Resource| match resource {
        Resource::Kafka { cluster_id, topic } => (cluster_id.clone(), *topic),
        other => panic!("{other:?}"),
    };
    assert_eq!(id(&target.resource).0, id(&again.resource).0);
    assert_ne!(id(&target.resource).1, id(&again.resource).1);
}

#[tokio::test]
async fn what_is_missing_is_named() {
    let (cluster, topic) = (cluster(), fresh_name("target"));
    let missing = resolve(connection(&cluster, &topic)).await.expect_err("there is no topic");
    assert!(failure(&missing).contains("UNKNOWN_TOPIC_OR_PARTITION"), "{missing:?}");

    let nobody = json!({ "bootstrap.servers": "127.0.0.1:1", "topic": topic });
    let unreachable = resolve(nobody).await.expect_err("nobody listens there");
    assert!(failure(&unreachable).contains("127.0.0.1:1 does not answer"), "{unreachable:?}");
}

#[tokio::test]
async fn rights_and_credentials_are_checked_before_anything_is_made() {
    let (cluster, topic) = (cluster(), fresh_name("target"));
    cluster.create_topic(&topic, 1, &[]).await.expect("made");
    let denied = resolve(connection_of("mallory", &topic)).await.expect_err("mallory may do nothing");
    assert!(failure(&denied).contains("TOPIC_AUTHORIZATION_FAILED"), "{denied:?}");

    let acl = ["--add", "--allow-principal", "User:alice", "--topic", &topic, "--operation", "Describe"];
    cluster.tool("org.apache.kafka.tools.AclCommand", &acl).await.expect("allowed to see");
    let unwritable = resolve(connection_of("alice", &topic)).await.expect_err("alice may not write");
    assert!(failure(&unwritable).contains("may not write"), "{unwritable:?}");

    let acl = ["--add", "--allow-principal", "User:alice", "--topic", &topic, "--operation", "Write"];
    cluster.tool("org.apache.kafka.tools.AclCommand", &acl).await.expect("allowed to write");
    let target = resolve(connection_of("alice", &topic)).await.expect("well");
    let limit = target.checks.iter().find(|check| check.name == "max.message.bytes").expect("it is told");
    assert!(limit.detail.contains("DESCRIBE_CONFIGS"), "{limit:?}");

    let mut wrong = connection_of("nobody", &topic);
    wrong["sasl.username"] = json!("nobody");
    let refused = resolve(wrong).await.expect_err("no such user");
    let detail = failure(&refused);
    assert!(detail.contains("credentials"), "{detail}");
    assert!(!detail.contains(harness::kafka::PASSWORD), "{detail}");
}

#[tokio::test]
async fn a_broker_behind_tls_is_believed_by_its_certificate_only() {
    let (cluster, topic) = (cluster(), fresh_name("target"));
    cluster.create_topic(&topic, 1, &[]).await.expect("made");
    let variable = |name| harness::kafka::variable(name).expect("a real Kafka");
    let tls = |authority: Option<String>| {
        let mut connection = json!({
            "bootstrap.servers": variable("NEREUS_TEST_KAFKA_TLS"), "topic": topic, "security.protocol": "ssl",
        });
        if let Some(authority) = authority {
            connection["ssl.ca.location"] = json!(authority);
        }
        connection
    };
    resolve(tls(Some(variable("NEREUS_TEST_KAFKA_CA")))).await.expect("well");
    let refused = resolve(tls(None)).await.expect_err("nobody vouches for the certificate");
    assert!(failure(&refused).contains("does not answer"), "{refused:?}");
}
