//! Setting up topics as destinations.

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use ports::target::{Target, TargetCheck, TargetError, TargetSystem};
use protocol::resource::Resource;
use serde::Deserialize;

use crate::engine::Embedded;
use crate::topic::{CreateTopicError, Namespace, NewTopic, Topic};

/// Partitions of a new topic when the request does not say.
const PARTITIONS_DEFAULT: u32 = 1;

/// Topics of the embedded log, for whoever sets destinations up.
#[derive(Clone, Debug)]
pub struct EmbeddedTargets {
    embedded: Embedded,
    record_bytes_max: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Spec {
    topic: String,
    partitions: Option<u32>,
}

impl EmbeddedTargets {
    /// Over an engine; no record may have more than `record_bytes_max` of key, value and headers.
    pub fn new(embedded: Embedded, record_bytes_max: u32) -> EmbeddedTargets {
        EmbeddedTargets { embedded, record_bytes_max }
    }

    fn target(&self, topic: &Topic, check: TargetCheck) -> Target {
        Target {
            resource: Resource::Embedded { topic: topic.id() },
            topic: topic.name().to_owned(),
            partition_count: topic.partition_count(),
            record_bytes_max: self.record_bytes_max,
            checks: vec![check],
        }
    }
}

impl TargetSystem for EmbeddedTargets {
    fn resolve(
        &self,
        spec: serde_json::Value,
        fresh_id: [u8; 16],
        dry_run: bool,
    ) -> BoxFuture<'static, Result<Target, TargetError>> {
        let targets = self.clone();
        async move {
            let Spec { topic: name, partitions } = serde_json::from_value(spec)
                .map_err(|error| TargetError::Malformed { reason: error.to_string(), field: "embedded" })?;
            if let Some(topic) = targets.embedded.topic(&name).filter(|_| !name.starts_with('_')) {
                return targets.existing(&topic, partitions);
            }
            let partitions = partitions.unwrap_or(PARTITIONS_DEFAULT);
            if dry_run {
                return targets.planned(&name, partitions, fresh_id);
            }
            let topic = targets.embedded.create_topic(&name, partitions, fresh_id).await.map_err(create_error)?;
            let detail = format!("topic {name:?} was created, partitions: {partitions}");
            Ok(targets.target(&topic, TargetCheck { name: "topic", ok: true, detail }))
        }
        .boxed()
    }
}

impl EmbeddedTargets {
    fn existing(&self, topic: &Topic, partitions: Option<u32>) -> Result<Target, TargetError> {
        let found = topic.partition_count();
        if let Some(wanted) = partitions.filter(|wanted| *wanted != found) {
            let reason =
                format!("topic {:?} has {found} partitions, not {wanted}; that cannot be changed", topic.name());
            return Err(TargetError::Refused { reason, field: "embedded.partitions" });
        }
        let detail = format!("topic {:?} exists, partitions: {found}", topic.name());
        Ok(self.target(topic, TargetCheck { name: "topic", ok: true, detail }))
    }

    fn planned(&self, name: &str, partitions: u32, id: [u8; 16]) -> Result<Target, TargetError> {
        NewTopic::check(name, Namespace::Public, partitions, id).map_err(create_error)?;
        let detail = format!("topic {name:?} would be created, partitions: {partitions}");
        Ok(Target {
            resource: Resource::Embedded { topic: id },
            topic: name.to_owned(),
            partition_count: partitions,
            record_bytes_max: self.record_bytes_max,
            checks: vec![TargetCheck { name: "topic", ok: true, detail }],
        })
    }
}

fn create_error(error: CreateTopicError) -> TargetError {
    match error {
        CreateTopicError::Closed { reason } | CreateTopicError::Unknown { reason } => {
            TargetError::Unavailable { reason }
        }
        CreateTopicError::Name { .. } => TargetError::Malformed { reason: error.to_string(), field: "embedded.topic" },
        CreateTopicError::PartitionCount { .. } => {
            TargetError::Malformed { reason: error.to_string(), field: "embedded.partitions" }
        }
        CreateTopicError::OtherPartitionCount { .. } | CreateTopicError::IdInUse { .. } => {
            TargetError::Refused { reason: error.to_string(), field: "embedded" }
        }
    }
}
