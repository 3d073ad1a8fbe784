//! What happens to a destination after it was set up: paused, deprecated, rebound, and kept in step with its topic.

use std::sync::Arc;

use bytes::Bytes;
use client::api::destination::Destination;
use client::api::problem::Problem;
use control::cas::{Change, RecordError};
use control::destination::{self, DestinationRecord, VersionState};
use futures_util::StreamExt as _;
use futures_util::stream;
use protocol::mutation_v2::{ControlPayload, DestinationRebind, ProfileVersion};
use shard::query;
use tokio::time::Instant;

use super::version::{checks, new_version, resolve};
use super::{CachedDestination, activate, is_same, newest, put, record_version, spec_of, unknown, view};
use crate::control_log;
use crate::problem::{record_problem, shard_problem};
use crate::state::Gateway;

/// Destinations that are looked at side by side: one whose cluster does not answer keeps few others waiting.
const LOOKED_AT_ONCE: usize = 16;

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

/// Takes no new messages any more; those that are bound go on as before.
pub(crate) async fn deprecate(gateway: &Gateway, name: &str) -> Result<Destination, Problem> {
    let cached = gateway.destinations.get(name).ok_or_else(|| unknown(gateway, name))?;
    let id = Bytes::from(cached.record.name.clone());
    let open = cached.record.versions.iter().filter(|version| version.state == VersionState::Active);
    let closed: Vec<u64> = open.map(|version| version.version).collect();
    let operations: Vec<ControlPayload> = closed
        .iter()
        .map(|version| ControlPayload::ProfileClose(ProfileVersion { id: id.clone(), version: *version }))
        .collect();
    control_log::apply_everywhere(gateway, &operations).await?;
    let key = destination::key(&gateway.config.tenant, name);
    let changed: Result<Option<DestinationRecord>, RecordError> = gateway
        .records
        .change(&key, |current: Option<&DestinationRecord>| {
            let Some(current) = current else { return Ok(Change::Keep(None)) };
            let mut next = current.clone();
            for version in next.versions.iter_mut().filter(|version| closed.contains(&version.version)) {
                version.state = VersionState::Deprecated;
            }
            let unchanged = next == *current;
            Ok(if unchanged { Change::Keep(Some(next)) } else { Change::Write(next.clone(), Some(next)) })
        })
        .await;
    let record = changed.map_err(record_problem)?.ok_or_else(|| unknown(gateway, name))?;
    gateway.destinations.put(record.clone());
    Ok(view(&record, Vec::new()))
}

/// Takes new messages again, under a new version of what was last asked for.
pub(crate) async fn reactivate(gateway: &Gateway, name: &str) -> Result<Destination, Problem> {
    let cached = gateway.destinations.get(name).ok_or_else(|| unknown(gateway, name))?;
    let spec = spec_of(newest(&cached.record));
    put(gateway, name, spec, false).await.map(|(destination, _)| destination)
}

/// Points the destination at the topic that has its name now. What is pending and not admitted follows.
pub(crate) async fn rebind(gateway: &Gateway, name: &str) -> Result<Destination, Problem> {
    let cached = gateway.destinations.get(name).ok_or_else(|| unknown(gateway, name))?;
    let spec = spec_of(newest(&cached.record));
    let target = resolve(gateway, &spec, false).await?;
    let profile_id = Bytes::from(cached.record.name.clone());
    let payload = ControlPayload::DestinationRebind(Box::new(DestinationRebind {
        profile_id,
        resource: target.resource.clone(),
    }));
    control_log::apply_everywhere(gateway, &[payload]).await?;
    // New messages bind a version of their own, with the new topic's partitions and limits.
    let version = new_version(gateway, name, &spec, &target, newest(&cached.record).version + 1)?;
    let (record, _) = record_version(gateway, name, version).await?;
    let record = activate(gateway, record).await?;
    gateway.destinations.put(record.clone());
    Ok(view(&record, checks(&target)))
}

/// Follows the topics for as long as it is polled: one that has grown, or takes records of another size, gives its destination
/// a new version, which new messages bind.
pub(crate) async fn keep_fresh(gateway: &Gateway) {
    loop {
        tokio::time::sleep_until(Instant::now() + gateway.config.destination_refresh_interval).await;
        stream::iter(gateway.destinations.all())
            .for_each_concurrent(LOOKED_AT_ONCE, |cached| async move { refresh(gateway, &cached).await })
            .await;
    }
}

async fn refresh(gateway: &Gateway, cached: &Arc<CachedDestination>) {
    let current = newest(&cached.record);
    let spec = spec_of(current);
    if current.state != VersionState::Active || spec.kafka.is_none() {
        return;
    }
    let name = &cached.record.name;
    let refreshed = async {
        let target = resolve(gateway, &spec, true).await?;
        if current.profile().map(|profile| profile.resource) != Some(target.resource.clone()) {
            // Another topic under the same name: the lanes say so, and an operator decides.
            return Ok(());
        }
        let next = new_version(gateway, name, &spec, &target, current.version + 1)?;
        if is_same(current, &next) {
            return Ok(());
        }
        let (record, _) = record_version(gateway, name, next).await?;
        let record = activate(gateway, record).await?;
        tracing::info!(
            destination = name,
            version = newest(&record).version,
            partitions = target.partition_count,
            record_bytes_max = target.record_bytes_max,
            "the topic has changed: new messages bind a new version"
        );
        gateway.destinations.put(record);
        Ok::<(), Problem>(())
    };
    if let Err(problem) = refreshed.await {
        tracing::debug!(destination = name, %problem, "a destination could not be compared with its topic");
    }
}
