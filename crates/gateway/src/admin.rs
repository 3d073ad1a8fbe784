//! What operators see: shards, lanes, routes, readiness.

use std::collections::BTreeMap;

use client::api::admin::{Lane, LaneList, Readiness, Route, RouteList, Shard, ShardList, Totals};
use client::api::problem::Problem;
use client::instant::format_instant_ms;
use control::route::RouteState;
use data_encoding::HEXLOWER;
use shard::query;
use shard::schedule::circuit::CircuitState;
use shard::schedule::lane::Readiness as LaneReadiness;
use shard::state::{LaneNo, row};
use worker::handle::{ShardError, ShardStatus};
use worker::report::LaneReport;

use crate::destinations;
use crate::routes::ShardPlace;
use crate::state::Gateway;

/// Every shard, active or not.
pub(crate) fn shards(gateway: &Gateway) -> ShardList {
    ShardList { items: gateway.routes.shards().map(|place| shard(place, &place.handle.status())).collect() }
}

fn shard(place: ShardPlace<'_>, status: &ShardStatus) -> Shard {
    let limits = &place.route.snapshot.limits;
    let progress = &status.progress;
    Shard {
        route: place.route.record.name.clone(),
        partition: place.handle.shard().partition,
        lifecycle: status.lifecycle.name().to_owned(),
        reason: status.reason.clone(),
        owner_epoch: status.owner_epoch,
        applied_position: status.applied.as_ref().map(|position| HEXLOWER.encode(position.order_token().as_bytes())),
        closed_through: format_instant_ms(progress.closed_ms),
        closed_through_ms: progress.closed_ms,
        active_messages: progress.active_messages,
        active_messages_max: limits.active_messages_max,
        active_bytes: progress.active_bytes,
        active_bytes_max: limits.active_bytes_max,
        lanes: progress.lane_no_last,
        lanes_max: limits.lanes_max,
        totals: totals(progress.totals.unwrap_or_default()),
    }
}

pub(crate) fn totals(row: row::Totals) -> Totals {
    Totals {
        scheduled: row.scheduled,
        rescheduled: row.rescheduled,
        canceled: row.canceled,
        published: row.published,
        expired: row.expired,
        dead_lettered: row.dead_lettered,
        admitted: row.admitted,
        retried: row.retried,
        commands_rejected: row.commands_rejected,
        commands_duplicate: row.commands_duplicate,
        records_quarantined: row.records_quarantined,
        mutations_stale: row.mutations_stale,
        entries_failed: row.entries_failed,
    }
}

/// The lanes of all shards that are active, or of one destination. The others are named.
///
/// # Errors
/// UNKNOWN_DESTINATION.
pub(crate) async fn lanes(gateway: &Gateway, destination: Option<&str>) -> Result<LaneList, Problem> {
    if let Some(name) = destination.filter(|name| gateway.destinations.get(name).is_none()) {
        return Err(destinations::unknown(gateway, name));
    }
    let (mut items, mut unavailable) = (Vec::new(), Vec::new());
    for place in gateway.routes.shards() {
        match lanes_of(gateway, place).await {
            Ok(lanes) => items.extend(lanes),
            Err(error) => unavailable.push(error.to_string()),
        }
    }
    items.retain(|lane| destination.is_none_or(|destination| lane.destination == destination));
    Ok(LaneList { items, unavailable })
}

async fn lanes_of(gateway: &Gateway, place: ShardPlace<'_>) -> Result<Vec<Lane>, ShardError> {
    let reports: BTreeMap<LaneNo, LaneReport> =
        place.handle.lanes().await?.into_iter().map(|report| (report.lane_no, report)).collect();
    let rows = place.handle.read(query::lanes)?;
    let paired = rows.iter().filter_map(|(lane_no, row)| Some((row, reports.get(lane_no)?)));
    Ok(paired.map(|(row, report)| lane(gateway, place, row, report)).collect())
}

fn lane(gateway: &Gateway, place: ShardPlace<'_>, row: &row::Lane, report: &LaneReport) -> Lane {
    let live = row.live.unwrap_or_default();
    let (readiness, code) = match report.readiness {
        LaneReadiness::RecoveringEvidence => ("recovering", None),
        LaneReadiness::Ready => ("ready", None),
        LaneReadiness::Blocked(code) => ("blocked", Some(code.name().to_owned())),
    };
    // A lane that is ready may have something to say all the same.
    let remark = report.remark.as_ref().filter(|_| report.readiness == LaneReadiness::Ready);
    let due_age_ms = report.earliest_ms.map_or(0, |earliest_ms| gateway.now_ms().saturating_sub(earliest_ms).max(0));
    Lane {
        route: place.route.record.name.clone(),
        shard: place.handle.shard().partition,
        lane: report.lane_no.0,
        lane_id: HEXLOWER.encode(&row.lane_id),
        destination: String::from_utf8_lossy(&row.profile_id).into_owned(),
        destination_version: row.profile_version,
        partition: row.partition,
        gate: if report.gate_open { "open" } else { "paused" }.to_owned(),
        readiness: readiness.to_owned(),
        code: code.or_else(|| remark.map(|remark| remark.code.name().to_owned())),
        detail: remark.map_or(&report.detail, |remark| &remark.detail).clone(),
        circuit: match report.circuit {
            CircuitState::Closed => "closed",
            CircuitState::Open { .. } => "open",
            CircuitState::HalfOpen => "half_open",
        }
        .to_owned(),
        failures: report.failures,
        scheduled: live.scheduled,
        retrying: live.retrying,
        publishing: live.publishing,
        uncertain: live.uncertain,
        in_flight: report.load.messages as u64,
        due_age_ms,
    }
}

/// Every route.
pub(crate) fn routes(gateway: &Gateway) -> RouteList {
    let route = |entry: &crate::routes::RouteEntry| Route {
        name: entry.record.name.clone(),
        route: entry.record.route.clone(),
        tenant: entry.record.tenant.clone(),
        state: match entry.record.state {
            RouteState::Creating => "creating",
            RouteState::Active => "active",
        }
        .to_owned(),
        shards: entry.record.partition_count(),
    };
    RouteList { items: gateway.routes.routes().iter().map(route).collect() }
}

/// Whether the server can do its work, and what is in the way.
pub(crate) fn readiness(gateway: &Gateway) -> Readiness {
    let mut reasons = Vec::new();
    for place in gateway.routes.shards() {
        let status = place.handle.status();
        if !status.is_active() {
            let partition = place.handle.shard().partition;
            reasons.push(format!("shard {partition} is {}: {}", status.lifecycle, status.reason));
        }
    }
    let clock = gateway.clock.status();
    if let clock::Reading::Unqualified(reason) = clock.reading {
        reasons.push(format!("the clock is not trusted: {reason}"));
    }
    Readiness {
        ready: reasons.is_empty(),
        reasons,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        clock_bound_us: clock.bound_us,
        clock_synchronised: clock.synchronised,
    }
}
