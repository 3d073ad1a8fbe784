//! Commands on their way: into a shard's log, and back as verdicts.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use client::api::problem::{Problem, SurfaceCode};
use futures_util::future::join_all;
use ports::log::AppendError;
use protocol::command::ClientCommand;
use protocol::id::ShardId;
use protocol::position::SourcePosition;
use shard::machine::verdict::{PositionVerdict, Verdict};
use shard::query::PositionResult;
use tokio::time::Instant;

use crate::problem::{append_problem, shard_problem};
use crate::routes::ShardPlace;
use crate::state::Gateway;

/// How far a request is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitFor {
    /// Until it is durable in the log.
    Queued,
    /// Until its verdict is known.
    Applied,
    /// Until the message has ended.
    Published,
}

/// How far and how long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wait {
    pub(crate) until: WaitFor,
    pub(crate) deadline: Instant,
}

impl Wait {
    pub(crate) fn new(until: WaitFor, timeout: Duration) -> Wait {
        Wait { until, deadline: Instant::now() + timeout }
    }
}

/// What became of a command, as far as it was followed.
#[derive(Clone, Debug)]
pub(crate) enum Submitted {
    /// Durable in the log; its verdict is not known.
    Queued,
    /// Decided.
    Verdict(Verdict),
    /// Refused as a record: nothing was decided, and nothing is kept under the command's id.
    Refused(PositionVerdict),
    /// Not taken, or unknown.
    Problem(Box<Problem>),
}

impl From<Problem> for Submitted {
    fn from(problem: Problem) -> Self {
        Submitted::Problem(Box::new(problem))
    }
}

/// Sends commands to their shards and follows them; the answers are in the commands' order. Commands of one shard keep their
/// order in its log.
pub(crate) async fn submit(gateway: &Gateway, commands: &[&ClientCommand], wait: Wait) -> Vec<Submitted> {
    let mut by_shard: BTreeMap<ShardId, Vec<usize>> = BTreeMap::new();
    for (index, command) in commands.iter().enumerate() {
        by_shard.entry(command.shard()).or_default().push(index);
    }
    let parts = by_shard.into_iter().map(|(shard, indices)| async move {
        let answers = match gateway.routes.shard(shard) {
            Some(place) => submit_to(gateway, place, commands, &indices, wait).await,
            None => {
                let problem = Problem::new(SurfaceCode::Internal, format!("shard {shard} is not here"));
                vec![Submitted::from(problem); indices.len()]
            }
        };
        indices.into_iter().zip(answers)
    });
    let mut answers = vec![Submitted::Queued; commands.len()];
    for (index, answer) in join_all(parts).await.into_iter().flatten() {
        answers[index] = answer;
    }
    answers
}

async fn submit_to(
    gateway: &Gateway,
    place: ShardPlace<'_>,
    commands: &[&ClientCommand],
    indices: &[usize],
    wait: Wait,
) -> Vec<Submitted> {
    if let Err(problem) = place.may_append() {
        return vec![problem.into(); indices.len()];
    }
    let frames: Vec<_> = indices.iter().map(|index| commands[*index].encode_frame()).collect();
    let frame_bytes: usize = frames.iter().map(Bytes::len).sum();
    let mut appended = place.handle.append(frames.clone()).await;
    if let Err(AppendError::Unknown { reason }) = appended {
        // The same bytes again: apply answers a second copy as it answered the first. If even that fails, the first may be
        // there all the same.
        let unknown = |_| AppendError::Unknown { reason };
        appended = place.handle.append(frames).await.map_err(unknown);
    }
    let positions = match appended {
        Ok(positions) => positions,
        Err(error) => return vec![append_problem(error).into(); indices.len()],
    };
    gateway.metrics.command_log_bytes.fetch_add(frame_bytes as u64, Ordering::Relaxed);
    let Some(last) = positions.last() else { return Vec::new() };
    if wait.until == WaitFor::Queued {
        return vec![Submitted::Queued; indices.len()];
    }
    match tokio::time::timeout_at(wait.deadline, place.handle.applied(last)).await {
        Err(_) => vec![Submitted::Queued; indices.len()],
        // It is in the log and will be decided; only the answer is not here.
        Ok(Err(_)) => vec![Submitted::Queued; indices.len()],
        Ok(Ok(())) => {
            indices.iter().zip(&positions).map(|(index, position)| verdict(place, commands[*index], position)).collect()
        }
    }
}

fn verdict(place: ShardPlace<'_>, command: &ClientCommand, position: &SourcePosition) -> Submitted {
    match place.handle.result_at(position, command.command_id) {
        Ok(PositionResult::Command(verdict)) => Submitted::Verdict(verdict),
        Ok(PositionResult::Exception(verdict)) => Submitted::Refused(verdict),
        // The result was applied and is not kept any more: too long ago to be this request's doing.
        Ok(PositionResult::Unknown) => Submitted::Queued,
        Err(error) => shard_problem(error).into(),
    }
}
