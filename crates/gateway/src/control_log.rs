//! Operators' operations: signed records in every shard's log, effective once applied.
//!
//! Each call writes operations of its own; that repeating one changes nothing is the log's doing, where a version that is open
//! and a gate that is closed already stay so.

use client::api::problem::{Problem, SurfaceCode};
use futures_util::future::try_join_all;
use protocol::code::StableCode;
use protocol::mutation_v2::{Author, ControlPayload, MutationBody, MutationV2, ShardControl};
use shard::machine::verdict::RecordResult;
use tokio::time::{Instant, timeout_at};

use crate::problem::{append_problem, shard_problem};
use crate::routes::ShardPlace;
use crate::state::Gateway;

/// Has every shard of every route apply the operations, in order.
///
/// # Errors
/// What refused one, or that a shard has not applied it in time; then it may still come into force.
pub(crate) async fn apply_everywhere(gateway: &Gateway, operations: &[ControlPayload]) -> Result<(), Problem> {
    let deadline = Instant::now() + gateway.config.wait_default;
    try_join_all(gateway.routes.shards().map(|place| apply(gateway, place, operations, deadline))).await?;
    Ok(())
}

/// Has one shard apply the operations, in order.
///
/// # Errors
/// As for [`apply_everywhere`].
pub(crate) async fn apply(
    gateway: &Gateway,
    place: ShardPlace<'_>,
    operations: &[ControlPayload],
    deadline: Instant,
) -> Result<(), Problem> {
    let window_ms = place.route.snapshot.limits.control_retry_window_ms_max;
    // Half of what the log allows, so that a slow append still falls into it.
    let retry_until_ms = gateway.clock.carried().latest_ms().saturating_add(window_ms / 2);
    let mut frames = Vec::with_capacity(operations.len());
    for payload in operations {
        let mut operation_id = [0; 32];
        gateway.fill_random(&mut operation_id);
        let author = Author::Control { principal: gateway.config.principal.clone(), role: "admin".to_owned() };
        let payload = payload.clone();
        let body = MutationBody::ShardControl(ShardControl { operation_id, expected_version: None, payload });
        let (key_version, key) = &gateway.control_key;
        let record = MutationV2::sign(place.handle.shard(), author, retry_until_ms, body, *key_version, key)
            .map_err(|error| Problem::new(SurfaceCode::Internal, error.to_string()))?;
        frames.push(record.encode_frame());
    }
    let positions = place.handle.append(frames).await.map_err(append_problem)?;
    let partition = place.handle.shard().partition;
    for position in positions {
        timeout_at(deadline, place.handle.applied(&position))
            .await
            .map_err(|_| {
                let detail = format!("shard {partition} has the operation and has not applied it in time; repeat it");
                Problem::new(SurfaceCode::OutcomeUnknown, detail)
            })?
            .map_err(shard_problem)?;
        match place.handle.recent_result(&position) {
            Some(RecordResult::Control { code: StableCode::Ok | StableCode::AlreadyOpen, .. }) => {}
            Some(RecordResult::Control { code, rule, .. }) => {
                return Err(Problem::new(code, format!("shard {partition} refused the operation: {rule}")));
            }
            Some(RecordResult::Position(verdict)) => return Err(Problem::new(verdict.code, verdict.detail)),
            _ => {
                return Err(Problem::new(
                    SurfaceCode::OutcomeUnknown,
                    "the operation's result is not known; repeat it",
                ));
            }
        }
    }
    Ok(())
}
