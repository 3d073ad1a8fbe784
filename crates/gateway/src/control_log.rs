//! Operators' operations: signed records in every shard's log, effective once applied.

use client::api::problem::{Problem, SurfaceCode};
use futures_util::future::try_join_all;
use protocol::code::StableCode;
use protocol::hash::Hash;
use protocol::mutation_v2::{Author, ControlPayload, MutationBody, MutationV2, ShardControl};
use shard::machine::verdict::RecordResult;

use crate::problem::{append_problem, shard_problem};
use crate::routes::ShardPlace;
use crate::state::Gateway;

/// Has every shard of every route apply the operations, in order.
pub(crate) async fn apply_everywhere(
    gateway: &Gateway,
    operations: Vec<(Hash, ControlPayload)>,
) -> Result<(), Problem> {
    let shards: Vec<ShardPlace<'_>> = gateway.routes.shards().collect();
    try_join_all(shards.into_iter().map(|place| apply(gateway, place, operations.clone()))).await?;
    Ok(())
}

/// Has one shard apply the operations, in order.
pub(crate) async fn apply(
    gateway: &Gateway,
    place: ShardPlace<'_>,
    operations: Vec<(Hash, ControlPayload)>,
) -> Result<(), Problem> {
    let window_ms = place.route.snapshot.limits.control_retry_window_ms_max;
    // Half of what the log allows, so that a slow append still falls into it.
    let retry_until_ms = gateway.clock.carried().latest_ms().saturating_add(window_ms / 2);
    let mut frames = Vec::with_capacity(operations.len());
    for (operation_id, payload) in operations {
        let author = Author::Control { principal: gateway.config.principal.clone(), role: "admin".to_owned() };
        let body = MutationBody::ShardControl(ShardControl { operation_id, expected_version: None, payload });
        let (key_version, key) = &gateway.control_key;
        let record = MutationV2::sign(place.handle.shard(), author, retry_until_ms, body, *key_version, key)
            .map_err(|error| Problem::new(SurfaceCode::Internal, error.to_string()))?;
        frames.push(record.encode_frame());
    }
    let positions = place.handle.append(frames).await.map_err(append_problem)?;
    for position in positions {
        place.handle.applied(&position).await.map_err(shard_problem)?;
        match place.handle.recent_result(&position) {
            Some(RecordResult::Control { code: StableCode::Ok | StableCode::AlreadyOpen, .. }) => {}
            Some(RecordResult::Control { code, .. }) => {
                return Err(Problem::new(code, "a shard refused the operation"));
            }
            Some(RecordResult::Position(verdict)) => return Err(Problem::new(verdict.code, verdict.detail)),
            _ => {
                return Err(Problem::new(SurfaceCode::OutcomeUnknown, "the operation's result is not known; repeat it"));
            }
        }
    }
    Ok(())
}
