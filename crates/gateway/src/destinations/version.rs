//! From what a person asks of a destination to one immutable version of it.

use bytes::Bytes;
use client::api::destination::{Check, DestinationSpec, Partitioner, RetrySpec, TimestampSpec, UncertainSpec};
use client::api::problem::{Problem, SurfaceCode};
use client::duration::parse_delay_ms;
use control::destination::{DestinationVersion, VersionState, encode_base64};
use data_encoding::HEXLOWER;
use ports::target::{Target, TargetError};
use protocol::mutation_v2::{
    AllowedOrdering, DestinationProfile, Limits, OutcomeCapability, PartitionPolicy, TimestampPolicy,
};
use protocol::policy::{DlqExport, RetryPolicy, UncertainPolicy};
use protocol::reference::RetryPolicyRef;
use protocol::text::Text;
use shard::schedule::outgoing::delivery_header_bytes_max;

use super::DestinationDefaults;
use crate::messages::parse::invalid;
use crate::state::Gateway;

/// Lanes of unordered messages a partition.
const LANE_BUCKET_COUNT: u32 = 1;

/// The system and the topic that a request names.
pub(super) fn system_of(spec: &DestinationSpec) -> Option<(&'static str, String)> {
    match (&spec.embedded, &spec.kafka) {
        (Some(embedded), None) => Some(("embedded", embedded.topic.clone())),
        (None, Some(kafka)) => Some(("kafka", kafka.topic.clone())),
        (Some(_), Some(_)) | (None, None) => None,
    }
}

/// Finds and checks what is asked for, and creates what may be missing unless it is a dry run.
pub(super) async fn resolve(gateway: &Gateway, spec: &DestinationSpec, dry_run: bool) -> Result<Target, Problem> {
    // Plain structs of strings and numbers serialise.
    let (name, part) = match (&spec.embedded, &spec.kafka) {
        (Some(embedded), None) => ("embedded", serde_json::to_value(embedded).unwrap_or_default()),
        (None, Some(kafka)) => ("kafka", serde_json::to_value(kafka).unwrap_or_default()),
        (named, _) => {
            let known: Vec<&str> = gateway.systems.keys().copied().collect();
            let what = if named.is_some() { "name one system, not several" } else { "name the system it is on" };
            return Err(invalid("destination", format!("{what}: {}", known.join(" or "))));
        }
    };
    let system =
        gateway.systems.get(name).ok_or_else(|| invalid(name, format!("this server cannot deliver to {name}")))?;
    system.resolve(part, gateway.random_id(), dry_run).await.map_err(target_problem)
}

fn target_problem(error: TargetError) -> Problem {
    match error {
        TargetError::Malformed { reason, field } => Problem::new(SurfaceCode::InvalidField, reason).field(field),
        TargetError::Refused { reason, field } => Problem::new(SurfaceCode::DestinationConflict, reason).field(field),
        TargetError::CheckFailed { ref checks } => {
            let checks = checks.iter().map(check).collect();
            Problem { checks, ..Problem::new(SurfaceCode::DestinationCheckFailed, error.to_string()) }
        }
        TargetError::Unavailable { .. } => Problem::new(SurfaceCode::Unavailable, error.to_string()),
    }
}

pub(super) fn checks(target: &Target) -> Vec<Check> {
    target.checks.iter().map(check).collect()
}

fn check(check: &ports::target::TargetCheck) -> Check {
    Check { name: check.name.to_owned(), ok: check.ok, detail: check.detail.clone() }
}

pub(super) fn settled(mut spec: DestinationSpec, target: &Target) -> DestinationSpec {
    if let Some(embedded) = &mut spec.embedded {
        embedded.partitions = Some(target.partition_count);
    }
    spec
}

pub(super) fn new_version(
    gateway: &Gateway,
    name: &str,
    spec: &DestinationSpec,
    target: &Target,
    version: u64,
) -> Result<DestinationVersion, Problem> {
    let terms = Terms {
        defaults: &gateway.config.destination_defaults,
        limits: &gateway.routes.home().snapshot.limits,
        now_ms: gateway.clock.carried().midpoint_ms(),
    };
    version_of(terms, name, spec, target, version)
}

/// What a version is made from beside the request.
#[derive(Clone, Copy)]
pub(crate) struct Terms<'a> {
    pub(crate) defaults: &'a DestinationDefaults,
    pub(crate) limits: &'a Limits,
    pub(crate) now_ms: i64,
}

/// The version of a request, with nothing asked of anyone.
pub(crate) fn version_of(
    terms: Terms<'_>,
    name: &str,
    spec: &DestinationSpec,
    target: &Target,
    version: u64,
) -> Result<DestinationVersion, Problem> {
    let Terms { defaults, limits, now_ms } = terms;
    let policy = retry_policy(name, version, spec.retry.as_ref(), defaults)?;
    let delay_ms_max = duration("max_delay", spec.max_delay.as_deref(), defaults.delay_ms_max)?;
    let expires_after_ms = duration("expires_after", spec.expires_after.as_deref(), defaults.expires_after_ms)?;
    if delay_ms_max > limits.delay_ms_max {
        let detail = format!("max_delay is {delay_ms_max} ms; the service's limit is {} ms", limits.delay_ms_max);
        return Err(invalid("max_delay", detail).limit_ms(limits.delay_ms_max, delay_ms_max));
    }
    if expires_after_ms < limits.delivery_window_ms_min {
        let limit_ms = limits.delivery_window_ms_min;
        let detail = format!("expires_after is {expires_after_ms} ms; it must be at least {limit_ms} ms");
        return Err(invalid("expires_after", detail).limit_ms(limit_ms, expires_after_ms));
    }
    let key_bytes_max = usize::try_from(limits.business_key_bytes_max).unwrap_or(usize::MAX);
    let profile = DestinationProfile {
        resource: target.resource.clone(),
        partition_count: target.partition_count,
        partition_policy: partition_policy(spec, target)?,
        timestamp_policy: match spec.timestamp {
            None | Some(TimestampSpec::EventTime) => TimestampPolicy::EventTime,
            Some(TimestampSpec::DeliveryTime) => TimestampPolicy::DeliveryTime,
        },
        outcome_capability: OutcomeCapability::AtLeastOnce,
        ordering: AllowedOrdering { best_effort: true, delivery_time_fifo: false },
        record_bytes_max: target.record_bytes_max,
        header_reserve_bytes: u32::try_from(delivery_header_bytes_max(key_bytes_max)).unwrap_or(u32::MAX),
        lane_bucket_count: LANE_BUCKET_COUNT,
        expires_after_ms,
        delay_ms_max,
        retry_policy: RetryPolicyRef {
            id: policy.id.clone(),
            version: policy.version,
            semantic_hash: policy.semantic_hash(),
        },
        display_name: Text::new(name.to_owned()).map_err(|error| invalid("name", error.to_string()))?,
    };
    profile.check().map_err(|error| invalid("destination", error.to_string()))?;
    let policy_bytes = policy.encode().map_err(|error| invalid("retry", error.to_string()))?;
    Ok(DestinationVersion {
        version,
        state: VersionState::Activating,
        spec: serde_json::to_value(spec).unwrap_or_default(),
        profile: encode_base64(&profile.encode()),
        semantic_hash: HEXLOWER.encode(&profile.semantic_hash(name.as_bytes(), version)),
        retry_policy: encode_base64(&policy_bytes),
        created_at_ms: now_ms,
    })
}

fn partition_policy(spec: &DestinationSpec, target: &Target) -> Result<PartitionPolicy, Problem> {
    match (spec.partition, spec.partitioner) {
        (None, None | Some(Partitioner::Murmur2)) => Ok(PartitionPolicy::Murmur2Key),
        (None, Some(Partitioner::RegistryHash)) => Ok(PartitionPolicy::RegistryHash),
        (Some(_), Some(_)) => {
            let detail = "partition names the partition of every message; with it, partitioner has nothing to decide";
            Err(invalid("partitioner", detail.to_owned()))
        }
        (Some(partition), None) if partition < target.partition_count => Ok(PartitionPolicy::Explicit { partition }),
        (Some(partition), None) => {
            let detail = format!(
                "topic {:?} has {} partitions, counted from 0; there is no partition {partition}",
                target.topic, target.partition_count
            );
            Err(invalid("partition", detail))
        }
    }
}

fn retry_policy(
    name: &str,
    version: u64,
    spec: Option<&RetrySpec>,
    defaults: &DestinationDefaults,
) -> Result<RetryPolicy, Problem> {
    let spec = spec.cloned().unwrap_or_default();
    let backoff = |field, text: Option<String>, default: u64| match text {
        None => Ok(default),
        Some(text) => {
            let parsed = parse_delay_ms(&text).map_err(|error| invalid(field, format!("{field}: {error}")))?;
            Ok(parsed.unsigned_abs())
        }
    };
    let (uncertain, uncertain_retries_max) = match spec.uncertain {
        None | Some(UncertainSpec::Retry) => (
            UncertainPolicy::BoundedRetryPossibleDuplicate,
            spec.max_uncertain_retries.unwrap_or(defaults.uncertain_retries_max),
        ),
        Some(UncertainSpec::DeadLetter) => (UncertainPolicy::BoundedTerminalPossibleDelivery, 0),
    };
    Ok(RetryPolicy {
        id: Bytes::from(format!("destination/{name}")),
        version,
        initial_backoff_ms: backoff("retry.initial_backoff", spec.initial_backoff, defaults.initial_backoff_ms)?,
        backoff_ms_max: backoff("retry.max_backoff", spec.max_backoff, defaults.backoff_ms_max)?,
        publish_admissions_max: spec.max_attempts.unwrap_or(defaults.attempts_max),
        retry_duration_ms_max: backoff("retry.max_duration", spec.max_duration, defaults.retry_duration_ms_max)?,
        uncertain,
        uncertain_retries_max,
        dlq: DlqExport::NotConfigured,
        terminal_policy_digest: [0; 32],
    })
}

fn duration(field: &'static str, text: Option<&str>, default_ms: i64) -> Result<i64, Problem> {
    match text {
        None => Ok(default_ms),
        Some(text) => parse_delay_ms(text).map_err(|error| invalid(field, format!("{field}: {error}"))),
    }
}

pub(super) fn check_name(name: &str) -> Result<(), Problem> {
    const LENGTH_MAX: usize = 200;
    let allowed = |character: char| character.is_ascii_alphanumeric() || matches!(character, '.' | '_' | '-');
    if name.is_empty() || name.len() > LENGTH_MAX || !name.chars().all(allowed) || name.starts_with('_') {
        let detail = format!(
            "{name:?} is no destination name: 1 to {LENGTH_MAX} of a-z, A-Z, 0-9, dot, underscore and hyphen, not \
             starting with an underscore"
        );
        return Err(invalid("name", detail));
    }
    Ok(())
}
