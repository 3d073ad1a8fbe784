//! Destinations: set up, versioned, paused; and the cache that binds new messages.
//!
//! A new version is recorded as activating, applied by every shard through its log, and only then active. Every step can be
//! repeated; what a crash left half done is finished at the next start.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use bytes::Bytes;
use client::api::destination::{Check, Destination, DestinationSpec, Partitioner, RetrySpec, UncertainSpec};
use client::api::problem::{Problem, SurfaceCode};
use client::duration::parse_delay_ms;
use client::instant::format_instant_ms;
use client::prepare::BoundDestination;
use control::cas::{Change, RecordError};
use control::destination::{self, DestinationRecord, DestinationVersion, VersionState, encode_base64};
use data_encoding::HEXLOWER;
use futures_util::StreamExt as _;
use ports::metadata::WatchEvent;
use ports::target::{Target, TargetError};
use protocol::mutation_v2::{
    AllowedOrdering, ControlPayload, DestinationProfile, OutcomeCapability, PartitionPolicy, ProfileActivate,
    ProfileVersion,
};
use protocol::policy::{DlqExport, RetryPolicy, UncertainPolicy};
use protocol::reference::RetryPolicyRef;
use protocol::text::Text;
use shard::query;
use shard::schedule::outgoing::delivery_header_bytes_max;
use tokio::time::Instant;

use crate::control_log;
use crate::messages::parse::invalid;
use crate::problem::{record_problem, shard_problem};
use crate::state::Gateway;

/// Lanes of unordered messages a partition.
const LANE_BUCKET_COUNT: u32 = 1;

/// What a destination has where its request says nothing (v2 §12).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DestinationDefaults {
    /// From delivery time to expiry.
    pub expires_after_ms: i64,
    /// The longest delay.
    pub delay_ms_max: i64,
    /// Longest wait after the first attempt.
    pub initial_backoff_ms: u64,
    /// Longest wait ever.
    pub backoff_ms_max: u64,
    /// Attempts in all.
    pub attempts_max: u32,
    /// From the first attempt to the last.
    pub retry_duration_ms_max: u64,
    /// Attempts of unknown outcome that are repeated.
    pub uncertain_retries_max: u32,
}

/// Destinations by name, as their records say; kept up to date by a watch.
#[derive(Default)]
pub(crate) struct DestinationCache {
    by_name: RwLock<BTreeMap<String, Arc<CachedDestination>>>,
}

/// A destination ready to be bound and shown.
pub(crate) struct CachedDestination {
    pub(crate) record: DestinationRecord,
    /// The current version, `None` while none is active.
    pub(crate) bound: Option<BoundDestination>,
}

impl CachedDestination {
    fn new(record: DestinationRecord) -> CachedDestination {
        let bound = record.current().and_then(|version| {
            let body = Arc::new(version.profile()?);
            let profile = body.reference(&Bytes::from(record.name.clone()), version.version);
            Some(BoundDestination { profile, body })
        });
        CachedDestination { record, bound }
    }

    /// The topic of a version, for people.
    pub(crate) fn topic(&self, version: u64) -> Option<String> {
        let spec: DestinationSpec = serde_json::from_value(self.record.version(version)?.spec.clone()).ok()?;
        spec.embedded.map(|embedded| embedded.topic)
    }
}

impl DestinationCache {
    pub(crate) fn get(&self, name: &str) -> Option<Arc<CachedDestination>> {
        self.by_name.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    pub(crate) fn all(&self) -> Vec<Arc<CachedDestination>> {
        self.by_name.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    fn put(&self, record: DestinationRecord) {
        let name = record.name.clone();
        let cached = Arc::new(CachedDestination::new(record));
        self.by_name.write().unwrap_or_else(PoisonError::into_inner).insert(name, cached);
    }
}

/// A destination that messages can be bound to now.
pub(crate) fn bound(gateway: &Gateway, name: &str) -> Result<BoundDestination, Problem> {
    let cached = gateway.destinations.get(name).ok_or_else(|| unknown(gateway, name))?;
    cached.bound.clone().ok_or_else(|| {
        let detail = format!("destination {name:?} is still being activated; try again");
        Problem::new(SurfaceCode::Unavailable, detail).field("destination")
    })
}

pub(crate) fn unknown(gateway: &Gateway, name: &str) -> Problem {
    let known: Vec<String> = gateway.destinations.all().iter().map(|cached| cached.record.name.clone()).collect();
    let hint = if known.is_empty() {
        "there is none yet; create one with PUT /v1/destinations/{name} or nereus-delay destination create".to_owned()
    } else {
        format!("there are: {}", known.join(", "))
    };
    Problem::new(SurfaceCode::UnknownDestination, format!("there is no destination {name:?}; {hint}"))
        .field("destination")
}

/// Reads all destinations, then follows their changes until the gateway is dropped. The first reading is complete when this
/// returns.
///
/// # Errors
/// [`RecordError`] when the metadata store does not answer.
pub(crate) async fn load(gateway: &Arc<Gateway>) -> Result<impl Future<Output = ()> + use<>, RecordError> {
    let prefix = destination::prefix(&gateway.config.tenant);
    let mut changes = gateway.records.metadata().watch(&prefix);
    read_all(gateway, &prefix).await?;
    let weak = Arc::downgrade(gateway);
    Ok(async move {
        while let Some(event) = changes.next().await {
            let Some(gateway) = weak.upgrade() else { return };
            let followed = match event {
                WatchEvent::Put { key, record } => control::cas::decode(&key, &record.value).map(|record| {
                    gateway.destinations.put(record);
                }),
                WatchEvent::Resync => read_all(&gateway, &prefix).await,
                // Destinations are never deleted.
                WatchEvent::Deleted { .. } => Ok(()),
            };
            if let Err(error) = followed {
                tracing::warn!(%error, "destinations may be out of date");
            }
        }
    })
}

async fn read_all(gateway: &Gateway, prefix: &str) -> Result<(), RecordError> {
    for (_, stored) in gateway.records.list::<DestinationRecord>(prefix).await? {
        gateway.destinations.put(stored.record);
    }
    Ok(())
}

/// Creates a destination or gives it a new version. The same request again changes nothing.
pub(crate) async fn put(
    gateway: &Gateway,
    name: &str,
    spec: DestinationSpec,
    dry_run: bool,
) -> Result<(Destination, bool), Problem> {
    check_name(name)?;
    // Everything is checked before anything is made.
    let planned = resolve(gateway, &spec, true).await?;
    let existing = gateway.destinations.get(name);
    let next_version = existing.as_ref().map_or(1, |cached| newest(&cached.record).version + 1);
    // What is shown and compared is the request with what it left open settled.
    let version_of = |target: &Target| new_version(gateway, name, &settled(spec.clone(), target), target, next_version);
    let version = version_of(&planned)?;
    if dry_run {
        let record = DestinationRecord { name: name.to_owned(), versions: vec![version], paused: false };
        return Ok((view(&record, checks(&planned)), true));
    }
    let target = resolve(gateway, &spec, false).await?;
    let (record, created) = record_version(gateway, name, version_of(&target)?).await?;
    let record = activate(gateway, record).await?;
    gateway.destinations.put(record.clone());
    Ok((view(&record, checks(&target)), created))
}

/// Writes the version into the record, unless the newest one is the same already.
async fn record_version(
    gateway: &Gateway,
    name: &str,
    version: DestinationVersion,
) -> Result<(DestinationRecord, bool), Problem> {
    let key = destination::key(&gateway.config.tenant, name);
    let changed: Result<_, RecordError> = gateway
        .records
        .change(&key, |current: Option<&DestinationRecord>| {
            let Some(current) = current else {
                let record =
                    DestinationRecord { name: name.to_owned(), versions: vec![version.clone()], paused: false };
                return Ok(Change::Write(record.clone(), (record, true)));
            };
            if newest(current).spec == version.spec {
                return Ok(Change::Keep((current.clone(), false)));
            }
            let mut next = current.clone();
            next.versions.push(version.clone());
            Ok(Change::Write(next.clone(), (next, true)))
        })
        .await;
    changed.map_err(record_problem)
}

/// Has every shard apply the newest version, then makes it current.
pub(crate) async fn activate(gateway: &Gateway, record: DestinationRecord) -> Result<DestinationRecord, Problem> {
    let version = newest(&record).clone();
    if version.state == VersionState::Active {
        return Ok(record);
    }
    let damaged = || Problem::new(SurfaceCode::Internal, "the destination's record is damaged");
    let profile = version.profile().ok_or_else(damaged)?;
    let policy = version.retry_policy().ok_or_else(damaged)?;
    let id = Bytes::from(record.name.clone());
    let profile = ProfileActivate { profile: ProfileVersion { id, version: version.version }, body: Box::new(profile) };
    let operations = [ControlPayload::RetryPolicyActivate(Box::new(policy)), ControlPayload::ProfileActivate(profile)];
    control_log::apply_everywhere(gateway, &operations).await?;
    let key = destination::key(&gateway.config.tenant, &record.name);
    let changed: Result<DestinationRecord, RecordError> = gateway
        .records
        .change(&key, |current: Option<&DestinationRecord>| {
            let mut next = current.cloned().unwrap_or_else(|| record.clone());
            for candidate in &mut next.versions {
                if candidate.version == version.version {
                    candidate.state = VersionState::Active;
                }
            }
            let unchanged = current == Some(&next);
            Ok(if unchanged { Change::Keep(next) } else { Change::Write(next.clone(), next) })
        })
        .await;
    changed.map_err(record_problem)
}

/// Closes or opens a destination's gate on every shard.
pub(crate) async fn set_paused(gateway: &Gateway, name: &str, paused: bool) -> Result<Destination, Problem> {
    if gateway.destinations.get(name).is_none() {
        return Err(unknown(gateway, name));
    }
    let key = destination::key(&gateway.config.tenant, name);
    let changed: Result<Option<DestinationRecord>, RecordError> = gateway
        .records
        .change(&key, |current: Option<&DestinationRecord>| {
            Ok(match current {
                Some(current) if current.paused != paused => {
                    let next = DestinationRecord { paused, ..current.clone() };
                    Change::Write(next.clone(), Some(next))
                }
                unchanged => Change::Keep(unchanged.cloned()),
            })
        })
        .await;
    let record = changed.map_err(record_problem)?.ok_or_else(|| unknown(gateway, name))?;
    control_log::apply_everywhere(gateway, &[gate_operation(&record)]).await?;
    gateway.destinations.put(record.clone());
    Ok(view(&record, Vec::new()))
}

fn gate_operation(record: &DestinationRecord) -> ControlPayload {
    let profile_id = Bytes::from(record.name.clone());
    if record.paused {
        ControlPayload::DestinationPause { profile_id }
    } else {
        ControlPayload::DestinationResume { profile_id }
    }
}

/// Finishes what a crash left half done: versions that not every shard has applied, gates that are not as their record says.
/// Until then the version before serves.
pub(crate) async fn reconcile(gateway: &Gateway) {
    for place in gateway.routes.shards() {
        if let Err(error) = place.handle.active().await {
            tracing::warn!(%error, "destinations are not reconciled");
            return;
        }
    }
    for cached in gateway.destinations.all() {
        let record = &cached.record;
        let activated = activate(gateway, record.clone()).await;
        let set = set_gates(gateway, record).await;
        for problem in [activated.err(), set.err()].into_iter().flatten() {
            tracing::warn!(destination = record.name, %problem, "a destination is not as its record says yet");
        }
    }
}

async fn set_gates(gateway: &Gateway, record: &DestinationRecord) -> Result<(), Problem> {
    for place in gateway.routes.shards() {
        let paused = place.handle.read(|read| query::profile_is_paused(read, record.name.as_bytes()));
        if paused.map_err(shard_problem)? != record.paused {
            let deadline = Instant::now() + gateway.config.wait_default;
            control_log::apply(gateway, place, &[gate_operation(record)], deadline).await?;
        }
    }
    Ok(())
}

async fn resolve(gateway: &Gateway, spec: &DestinationSpec, dry_run: bool) -> Result<Target, Problem> {
    let Some(embedded) = &spec.embedded else {
        let known: Vec<&str> = gateway.systems.keys().copied().collect();
        return Err(invalid("embedded", format!("name the system the destination is on: {}", known.join(", "))));
    };
    let system = gateway
        .systems
        .get("embedded")
        .ok_or_else(|| invalid("embedded", "this server has no embedded log".to_owned()))?;
    // A plain struct of strings and numbers serialises.
    let part = serde_json::to_value(embedded).unwrap_or_default();
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

fn checks(target: &Target) -> Vec<Check> {
    target.checks.iter().map(check).collect()
}

fn check(check: &ports::target::TargetCheck) -> Check {
    Check { name: check.name.to_owned(), ok: check.ok, detail: check.detail.clone() }
}

fn settled(mut spec: DestinationSpec, target: &Target) -> DestinationSpec {
    if let Some(embedded) = &mut spec.embedded {
        embedded.partitions = Some(target.partition_count);
    }
    spec
}

fn new_version(
    gateway: &Gateway,
    name: &str,
    spec: &DestinationSpec,
    target: &Target,
    version: u64,
) -> Result<DestinationVersion, Problem> {
    let defaults = &gateway.config.destination_defaults;
    let limits = &gateway.routes.home().snapshot.limits;
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
        partition_policy: match spec.partitioner {
            None | Some(Partitioner::Murmur2) => PartitionPolicy::Murmur2Key,
            Some(Partitioner::RegistryHash) => PartitionPolicy::RegistryHash,
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
        created_at_ms: gateway.clock.carried().midpoint_ms(),
    })
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

fn check_name(name: &str) -> Result<(), Problem> {
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

fn newest(record: &DestinationRecord) -> &DestinationVersion {
    // A record is written with a version and versions never disappear.
    record.versions.last().expect("a destination has a version")
}

/// A destination as callers see it.
pub(crate) fn view(record: &DestinationRecord, checks: Vec<Check>) -> Destination {
    let version = record.current().unwrap_or_else(|| newest(record));
    let spec: DestinationSpec = serde_json::from_value(version.spec.clone()).unwrap_or_default();
    let profile = version.profile();
    let bound = |pick: fn(&DestinationProfile) -> i64| profile.as_ref().map_or(0, pick);
    Destination {
        name: record.name.clone(),
        version: version.version,
        state: match version.state {
            VersionState::Activating => "activating",
            VersionState::Active => "active",
        }
        .to_owned(),
        paused: record.paused,
        system: "embedded".to_owned(),
        topic: spec.embedded.as_ref().map(|embedded| embedded.topic.clone()).unwrap_or_default(),
        partitions: profile.as_ref().map_or(0, |profile| profile.partition_count),
        max_delay_ms: bound(|profile| profile.delay_ms_max),
        expires_after_ms: bound(|profile| profile.expires_after_ms),
        max_record_bytes: profile
            .as_ref()
            .map_or(0, |profile| profile.record_bytes_max.saturating_sub(profile.header_reserve_bytes)),
        spec,
        created_at: format_instant_ms(version.created_at_ms),
        created_at_ms: version.created_at_ms,
        checks,
    }
}
