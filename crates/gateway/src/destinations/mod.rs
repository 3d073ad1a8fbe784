//! Destinations: set up, versioned, paused, rebound; and the cache that binds new messages.
//!
//! A new version is recorded as activating, applied by every shard through its log, and only then active. Every step can be
//! repeated; what a crash left half done is finished at the next start.

mod change;
mod version;

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use bytes::Bytes;
use client::api::destination::{Check, Destination, DestinationSpec, DestinationVersion as VersionView};
use client::api::problem::{Problem, SurfaceCode};
use client::instant::format_instant_ms;
use client::prepare::BoundDestination;
use control::cas::{Change, RecordError};
use control::destination::{self, DestinationRecord, DestinationVersion, VersionState};
use futures_util::StreamExt as _;
use ports::metadata::WatchEvent;
use ports::target::Target;
use protocol::code::StableCode;
use protocol::mutation_v2::{ControlPayload, DestinationProfile, ProfileActivate, ProfileVersion};
use protocol::resource::Resource;

use crate::control_log;
use crate::problem::record_problem;
use crate::state::Gateway;

pub(crate) use change::{deprecate, keep_fresh, reactivate, rebind, reconcile, set_paused};
pub(crate) use version::{Terms, version_of};
use version::{check_name, checks, new_version, resolve, settled, system_of};

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
        system_of(&spec_of(self.record.version(version)?)).map(|(_, topic)| topic)
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
        if newest(&cached.record).state == VersionState::Deprecated {
            let detail = format!(
                "destination {name:?} is deprecated and takes no new messages; those it has are delivered \
                 (nereus-delay destination activate {name} opens it again)"
            );
            return Problem::new(StableCode::ProfileDeprecatedForNewUse, detail).field("destination");
        }
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
    if let Some(existing) = &existing {
        check_incarnation(name, newest(&existing.record), &spec, &planned)?;
    }
    let next_version = existing.as_ref().map_or(1, |cached| newest(&cached.record).version + 1);
    // What is shown and compared is the request with what it left open settled.
    let version_on = |target: &Target| new_version(gateway, name, &settled(spec.clone(), target), target, next_version);
    let version = version_on(&planned)?;
    if dry_run {
        let record = DestinationRecord { name: name.to_owned(), versions: vec![version], paused: false };
        return Ok((view(&record, checks(&planned)), true));
    }
    let target = resolve(gateway, &spec, false).await?;
    let (record, created) = record_version(gateway, name, version_on(&target)?).await?;
    let record = activate(gateway, record).await?;
    gateway.destinations.put(record.clone());
    Ok((view(&record, checks(&target)), created))
}

/// A topic that was made anew under its name is not taken over by chance: messages are pending for the one before.
fn check_incarnation(
    name: &str,
    newest: &DestinationVersion,
    spec: &DestinationSpec,
    found: &Target,
) -> Result<(), Problem> {
    let pinned = newest.profile().map(|profile| profile.resource);
    let is_other = match (&pinned, &found.resource) {
        (Some(Resource::Kafka { cluster_id: old_cluster, topic: old }), Resource::Kafka { cluster_id, topic }) => {
            old_cluster == cluster_id && old != topic
        }
        _ => false,
    };
    if !is_other || system_of(&spec_of(newest)) != system_of(spec) {
        return Ok(());
    }
    let detail = format!(
        "topic {:?} was deleted and made again since destination {name:?} was set up; rebind the destination to it \
         (nereus-delay destination rebind {name}), and what is pending follows",
        found.topic
    );
    Err(Problem::new(SurfaceCode::DestinationConflict, detail).field("kafka.topic"))
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
            if is_same(newest(current), &version) {
                return Ok(Change::Keep((current.clone(), false)));
            }
            let mut next = current.clone();
            next.versions.push(version.clone());
            Ok(Change::Write(next.clone(), (next, true)))
        })
        .await;
    changed.map_err(record_problem)
}

/// Whether a version would change nothing: what was asked for is the same, and so is what was found.
fn is_same(newest: &DestinationVersion, next: &DestinationVersion) -> bool {
    let found = |version: &DestinationVersion| {
        let profile = version.profile()?;
        Some((profile.resource, profile.partition_count, profile.record_bytes_max))
    };
    newest.state != VersionState::Deprecated && newest.spec == next.spec && found(newest) == found(next)
}

/// Has every shard apply the newest version, then makes it current.
pub(crate) async fn activate(gateway: &Gateway, record: DestinationRecord) -> Result<DestinationRecord, Problem> {
    let version = newest(&record).clone();
    if version.state != VersionState::Activating {
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

fn newest(record: &DestinationRecord) -> &DestinationVersion {
    // A record is written with a version and versions never disappear.
    record.versions.last().expect("a destination has a version")
}

/// A destination as callers see it.
pub(crate) fn view(record: &DestinationRecord, checks: Vec<Check>) -> Destination {
    let version = record.current().unwrap_or_else(|| newest(record));
    let spec = spec_of(version);
    let (system, topic) = system_of(&spec).unwrap_or_default();
    let profile = version.profile();
    let bound = |pick: fn(&DestinationProfile) -> i64| profile.as_ref().map_or(0, pick);
    Destination {
        name: record.name.clone(),
        version: version.version,
        state: state_name(version.state).to_owned(),
        paused: record.paused,
        system: system.to_owned(),
        topic,
        partitions: profile.as_ref().map_or(0, |profile| profile.partition_count),
        max_delay_ms: bound(|profile| profile.delay_ms_max),
        expires_after_ms: bound(|profile| profile.expires_after_ms),
        max_record_bytes: profile
            .as_ref()
            .map_or(0, |profile| profile.record_bytes_max.saturating_sub(profile.header_reserve_bytes)),
        spec,
        created_at: format_instant_ms(version.created_at_ms),
        created_at_ms: version.created_at_ms,
        versions: record.versions.iter().map(version_view).collect(),
        checks,
    }
}

fn version_view(version: &DestinationVersion) -> VersionView {
    VersionView {
        version: version.version,
        state: state_name(version.state).to_owned(),
        partitions: version.profile().map_or(0, |profile| profile.partition_count),
        created_at: format_instant_ms(version.created_at_ms),
        created_at_ms: version.created_at_ms,
    }
}

fn state_name(state: VersionState) -> &'static str {
    match state {
        VersionState::Activating => "activating",
        VersionState::Active => "active",
        VersionState::Deprecated => "deprecated",
    }
}

/// The request a version was made from.
fn spec_of(version: &DestinationVersion) -> DestinationSpec {
    serde_json::from_value(version.spec.clone()).unwrap_or_default()
}
