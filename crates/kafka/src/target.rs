//! Setting up a topic as a destination: what was asked for is checked on the broker, and every finding is told.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use ports::target::{Target, TargetCheck, TargetError, TargetSystem};
use protocol::resource::Resource;
use rdkafka::error::RDKafkaErrorCode;
use rdkafka::producer::{Producer as _, ThreadedProducer};

use crate::client::{AskingContext, ClientErrors, on_thread};
use crate::native::CallError;
use crate::outcome::kafka_name;
use crate::settings::{Connection, ReadEnvironment};
use crate::topic::{self, MESSAGE_BYTES_MAX_DEFAULT, TopicFacts, display_id};

/// How long the cluster may take for one answer.
const TIMEOUT: Duration = Duration::from_secs(8);

/// Topics of Kafka clusters, for whoever sets destinations up.
#[derive(Clone)]
pub struct KafkaTargets {
    environment: ReadEnvironment,
    record_bytes_max: u32,
}

impl KafkaTargets {
    /// No record may have more than `record_bytes_max` of key, value and headers, whatever its topic takes.
    pub fn new(environment: ReadEnvironment, record_bytes_max: u32) -> KafkaTargets {
        KafkaTargets { environment, record_bytes_max }
    }

    fn check(&self, connection: &Connection) -> Result<Target, TargetError> {
        let topic = &connection.topic;
        let mut checks = Vec::new();
        let (client, errors) = asking_client(connection, &self.environment)
            .map_err(|detail| failed(checks.clone(), "connection", detail))?;
        let facts = match topic::look_up(client.client(), topic, TIMEOUT, &errors) {
            Ok(facts) => facts,
            Err(error) => return Err(not_seen(connection, &error)),
        };
        checks.push(passed(
            "connection",
            format!("cluster {} answers at {}", facts.cluster_id, connection.bootstrap_servers),
        ));
        checks.push(passed(
            "topic",
            format!("topic {topic} exists, id {}, partitions: {}", display_id(facts.topic_id), facts.partition_count),
        ));
        match facts.may_write {
            Some(false) => {
                let detail =
                    format!("this client may not write to topic {topic}: allow it WRITE (and DESCRIBE) on the topic");
                return Err(failed(checks, "write", detail));
            }
            Some(true) => checks.push(passed("write", format!("this client may write to topic {topic}"))),
            None => checks.push(passed(
                "write",
                "the broker does not say what this client may do; the first delivery will show".to_owned(),
            )),
        }
        checks.push(passed("max.message.bytes", describe_limit(&facts)));
        if facts.cleanup_policy.as_deref().is_some_and(|policy| policy.contains("compact")) {
            checks.push(passed(
                "cleanup.policy",
                format!("topic {topic} is compacted: it refuses records without a key"),
            ));
        }
        Ok(Target {
            resource: Resource::Kafka { cluster_id: facts.cluster_id.as_str().into(), topic: facts.topic_id },
            topic: topic.clone(),
            partition_count: facts.partition_count,
            record_bytes_max: facts.record_bytes_max().min(self.record_bytes_max),
            checks,
        })
    }
}

impl TargetSystem for KafkaTargets {
    /// Kafka topics are never created here: `dry_run` changes nothing.
    fn resolve(
        &self,
        spec: serde_json::Value,
        _: [u8; 16],
        _: bool,
    ) -> BoxFuture<'static, Result<Target, TargetError>> {
        let targets = self.clone();
        async move {
            let connection = Connection::from_json(spec)?;
            let unavailable = || TargetError::Unavailable { reason: "no thread for a call to Kafka".to_owned() };
            on_thread("kafka-check", move || targets.check(&connection)).await.ok_or_else(unavailable)?
        }
        .boxed()
    }
}

/// A client for questions, and what it complains of.
pub(crate) fn asking_client(
    connection: &Connection,
    environment: &ReadEnvironment,
) -> Result<(ThreadedProducer<AskingContext>, Arc<ClientErrors>), String> {
    let context = AskingContext::default();
    let errors = context.errors.clone();
    let client = connection
        .client_config(environment)?
        .create_with_context(context)
        .map_err(|error| format!("the client library refuses the connection: {error}"))?;
    Ok((client, errors))
}

fn describe_limit(facts: &TopicFacts) -> String {
    match facts.message_bytes_max {
        Some(bytes) => format!("the topic takes batches of up to {bytes} bytes"),
        None => format!(
            "this client may not read the topic's configuration (DESCRIBE_CONFIGS); Kafka's default of \
             {MESSAGE_BYTES_MAX_DEFAULT} bytes is assumed"
        ),
    }
}

pub(crate) fn not_seen(connection: &Connection, error: &CallError) -> TargetError {
    use RDKafkaErrorCode as Code;
    let Connection { topic, bootstrap_servers, .. } = connection;
    let name = kafka_name(error.code);
    let (check, detail) = match error.code {
        Code::UnknownTopicOrPartition | Code::UnknownTopic => (
            "topic",
            format!(
                "there is no topic {topic} at {bootstrap_servers}, or this client may not see it; create it first ({name})"
            ),
        ),
        Code::TopicAuthorizationFailed => {
            ("topic", format!("this client may not see topic {topic}: allow it DESCRIBE on the topic ({name})"))
        }
        Code::Authentication | Code::SaslAuthenticationFailed => {
            ("connection", format!("{bootstrap_servers} does not accept the credentials: {} ({name})", error.detail))
        }
        _ => ("connection", format!("{bootstrap_servers} does not answer: {} ({name})", error.detail)),
    };
    failed(Vec::new(), check, detail)
}

pub(crate) fn passed(name: &'static str, detail: String) -> TargetCheck {
    TargetCheck { name, ok: true, detail }
}

pub(crate) fn failed(mut checks: Vec<TargetCheck>, name: &'static str, detail: String) -> TargetError {
    checks.push(TargetCheck { name, ok: false, detail });
    TargetError::CheckFailed { checks }
}
