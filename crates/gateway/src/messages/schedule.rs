//! Taking messages: one at a time and in batches, with the same verdicts.

use client::api::message::{BatchResult, MessageReceipt, Status};
use client::api::problem::{Problem, SurfaceCode};
use client::prepare::{self, NewMessage};
use control::idempotency::Answer;
use protocol::code::StableCode;
use protocol::command::{ClientCommand, CommandBody};
use serde_json::value::RawValue;
use shard::machine::verdict::{Rule, Verdict};
use shard::query;
use shard::state::generation::MessageState;
use tokio::sync::oneshot;

use super::locate::Located;
use super::parse::{RawSchedule, body};
use super::submit::{Submitted, Wait, WaitFor, submit};
use super::view;
use crate::destinations;
use crate::idempotency::{self, Bound, HeldKey};
use crate::problem::{prepare_problem, shard_problem};
use crate::state::Gateway;

/// What a schedule came to, ready for HTTP.
pub(crate) struct Scheduled {
    pub(crate) status: u16,
    pub(crate) receipt: MessageReceipt,
    pub(crate) is_replay: bool,
}

/// Takes one message.
///
/// # Errors
/// What refused it; nothing is stored of it then, unless the code says that this is not known.
pub(crate) async fn one(
    gateway: &Gateway,
    request: &[u8],
    idempotency_key: Option<&str>,
    wait: Wait,
) -> Result<Scheduled, Problem> {
    let raw: RawSchedule<'_> = body(request)?;
    let key = idempotency_key.or(raw.idempotency_key.as_deref());
    let Some(key) = key else {
        let command = prepare(gateway, &raw)?;
        return run(gateway, command, wait).await;
    };
    match idempotency::bind(gateway, key, &[b"POST /v1/messages", request], || prepare(gateway, &raw)).await? {
        Bound::Replay(answer) => replay(answer),
        Bound::Run(command, held) => {
            let result = run(gateway, *command, wait).await;
            keep(gateway, held, &result).await;
            result
        }
    }
}

/// Takes messages on their own terms each; the results are in the request's order.
pub(crate) async fn batch(gateway: &Gateway, items: &[&RawValue], wait: Wait) -> Vec<BatchResult> {
    let mut results: Vec<Option<BatchResult>> = vec![None; items.len()];
    let mut plain = Vec::with_capacity(items.len());
    let mut with_key = Vec::new();
    for (index, item) in items.iter().enumerate() {
        let raw: Result<RawSchedule<'_>, Problem> = body(item.get().as_bytes());
        match raw {
            Ok(raw) if raw.idempotency_key.is_some() => with_key.push(index),
            Ok(raw) => match prepare(gateway, &raw) {
                Ok(command) => plain.push((index, command)),
                Err(problem) => results[index] = Some(BatchResult::Problem(problem)),
            },
            Err(problem) => results[index] = Some(BatchResult::Problem(problem)),
        }
    }
    let (indices, commands): (Vec<usize>, Vec<ClientCommand>) = plain.into_iter().unzip();
    for (index, result) in indices.into_iter().zip(run_all(gateway, commands, wait).await) {
        results[index] = Some(batch_result(result));
    }
    for index in with_key {
        results[index] = Some(batch_result(one(gateway, items[index].get().as_bytes(), None, wait).await));
    }
    // Every index was given a result above.
    results.into_iter().flatten().collect()
}

fn batch_result(result: Result<Scheduled, Problem>) -> BatchResult {
    match result {
        Ok(scheduled) => BatchResult::Receipt(scheduled.receipt),
        Err(problem) => BatchResult::Problem(problem),
    }
}

/// Fixes the command: identities, times, bytes.
fn prepare(gateway: &Gateway, raw: &RawSchedule<'_>) -> Result<ClientCommand, Problem> {
    let name = raw.destination.as_deref().ok_or_else(|| {
        Problem::new(SurfaceCode::InvalidField, "destination is missing: which one is the message for?")
            .field("destination")
    })?;
    let destination = destinations::bound(gateway, name)?;
    let id = raw.id()?;
    let (when, expiry, event_time_ms) = raw.times()?;
    let content = raw.content()?;
    let now_latest_ms = gateway.now_latest_ms();
    let deliver_at_ms = when.deliver_at_ms(now_latest_ms);
    let new = NewMessage {
        id,
        deliver_at_ms,
        expire_at_ms: expiry.map(|expiry| expiry.expire_at_ms(deliver_at_ms, now_latest_ms)),
        key: content.key,
        value: content.value,
        headers: content.headers,
        event_time_ms,
    };
    let snapshot = &gateway.routes.home().snapshot;
    prepare::schedule(snapshot, &destination, new, gateway.fresh_uuid(), gateway.fresh_uuid(), now_latest_ms)
        .map_err(|error| prepare_problem(&error))
}

async fn run(gateway: &Gateway, command: ClientCommand, wait: Wait) -> Result<Scheduled, Problem> {
    let mut results = run_all(gateway, vec![command], wait).await;
    // One command has one result.
    results.pop().unwrap_or_else(|| Err(Problem::new(SurfaceCode::Internal, "a command got no result")))
}

async fn run_all(gateway: &Gateway, commands: Vec<ClientCommand>, wait: Wait) -> Vec<Result<Scheduled, Problem>> {
    let mut ends = Vec::with_capacity(commands.len());
    if wait.until == WaitFor::Published {
        // Before the append, so that no end is missed.
        for command in &commands {
            ends.push(watch_end(gateway, command));
        }
    }
    let submitted = submit(gateway, &commands, wait).await;
    let mut results = Vec::with_capacity(commands.len());
    let mut ends = ends.into_iter();
    for (command, submitted) in commands.iter().zip(submitted) {
        let result = scheduled(gateway, command, submitted).await;
        results.push(match (result, ends.next()) {
            (Ok(scheduled), Some(end)) => ended(gateway, command, scheduled, end, wait).await,
            (result, _) => result,
        });
    }
    results
}

async fn scheduled(gateway: &Gateway, command: &ClientCommand, submitted: Submitted) -> Result<Scheduled, Problem> {
    match submitted {
        Submitted::Queued => {
            Ok(Scheduled { status: 202, receipt: receipt(gateway, command, Status::Queued, None), is_replay: false })
        }
        Submitted::Verdict(Verdict { code: StableCode::Scheduled, state_version, .. }) => {
            let receipt = receipt(gateway, command, Status::Scheduled, state_version);
            Ok(Scheduled { status: 201, receipt, is_replay: false })
        }
        Submitted::Verdict(verdict) => Err(refusal(gateway, command, verdict)),
        Submitted::Problem(problem) => Err(*problem),
    }
}

fn receipt(gateway: &Gateway, command: &ClientCommand, status: Status, version: Option<u64>) -> MessageReceipt {
    let (id, times) = match &command.body {
        CommandBody::Schedule(body) => {
            let intent = body.intent();
            let id = intent.business_key.as_ref().map(|key| String::from_utf8_lossy(key).into_owned());
            (id, (intent.deliver_at_ms, intent.expire_at_ms))
        }
        _ => (None, (0, 0)),
    };
    view::receipt_of(gateway, command.message_id, id, status, times, version)
}

/// A verdict that took no message, with the numbers behind it.
fn refusal(gateway: &Gateway, command: &ClientCommand, verdict: Verdict) -> Problem {
    let limits = &gateway.routes.home().snapshot.limits;
    match (verdict.code, verdict.rule) {
        (StableCode::DelayMessageIdConflict, Rule::BusinessKeyInUse) => id_in_use(gateway, command, verdict),
        (code, Rule::ActiveMessages) => {
            let limit = limits.active_messages_max;
            Problem::new(code, format!("the shard holds its limit of {limit} live messages; nothing was taken"))
        }
        (code, Rule::ActiveBytes) => {
            let limit = limits.active_bytes_max;
            Problem::new(
                code,
                format!("the shard holds its limit of {limit} bytes of live messages; nothing was taken"),
            )
            .limit_bytes(limit, limit)
        }
        (code @ StableCode::InvalidDeliveryWindow, rule) => {
            let (detail, limit_ms) = match rule {
                Rule::WindowTooShort => ("too little time between delivery and expiry", limits.delivery_window_ms_min),
                Rule::DelayTooLong => ("delivery is too far ahead", limits.delay_ms_max),
                Rule::LifetimeTooLong => ("expiry is too far ahead", limits.lifetime_ms_max),
                _ => ("the expiry is over already", 0),
            };
            Problem { limit_ms: Some(limit_ms), ..Problem::new(code, format!("{detail}; the limit is {limit_ms} ms")) }
        }
        (code, rule) => Problem::new(code, format!("the shard refused the message ({rule:?})")),
    }
}

fn id_in_use(gateway: &Gateway, command: &ClientCommand, verdict: Verdict) -> Problem {
    let problem =
        Problem::new(verdict.code, "the id is in use by a live message; it is free again once that has ended")
            .field("id");
    let (Some(place), Some(message)) = (gateway.routes.shard(command.shard()), verdict.other_message) else {
        return problem;
    };
    let found = place.handle.read(|read| Ok((query::message(read, message)?, query::progress(read)?)));
    let Ok((Some(view), progress)) = found else { return problem };
    let message_id = protocol::id::MessageId { shard: command.shard(), uuid: message };
    let located = Located { place, message_id, view, progress, intent: None };
    Problem { message: Some(Box::new(view::message(gateway, &located))), ..problem }
}

fn watch_end(gateway: &Gateway, command: &ClientCommand) -> Result<oneshot::Receiver<MessageState>, Problem> {
    let place = gateway.routes.of_message(command.message_id)?;
    place.handle.watch_end(command.message_id.uuid).map_err(shard_problem)
}

/// Follows a message to its end, as long as the request waits.
async fn ended(
    gateway: &Gateway,
    command: &ClientCommand,
    scheduled: Scheduled,
    end: Result<oneshot::Receiver<MessageState>, Problem>,
    wait: Wait,
) -> Result<Scheduled, Problem> {
    if scheduled.status != 201 {
        return Ok(scheduled);
    }
    // Whether it ended, or the time is up: what is stored says.
    let _ = tokio::time::timeout_at(wait.deadline, end?).await;
    let place = gateway.routes.of_message(command.message_id)?;
    let found = place.handle.read(|read| query::message(read, command.message_id.uuid)).map_err(shard_problem)?;
    let receipt = match found {
        Some(view) => view::receipt(gateway, command.message_id, &view),
        None => scheduled.receipt,
    };
    Ok(Scheduled { receipt, ..scheduled })
}

/// Keeps a final answer under the request's key.
async fn keep(gateway: &Gateway, held: HeldKey<'_>, result: &Result<Scheduled, Problem>) {
    let answer = match result {
        Ok(scheduled) if scheduled.status == 201 => Answer {
            status: scheduled.status,
            // Plain structs of strings and numbers serialise.
            body: serde_json::to_value(&scheduled.receipt).unwrap_or_default(),
            location: None,
            etag: None,
        },
        Err(problem) if problem.status < 500 && !problem.retryable => Answer {
            status: problem.status,
            body: serde_json::to_value(problem).unwrap_or_default(),
            location: None,
            etag: None,
        },
        _ => return,
    };
    idempotency::answered(gateway, held, answer).await;
}

fn replay(answer: Answer) -> Result<Scheduled, Problem> {
    let damaged = |_| Problem::new(SurfaceCode::Internal, "the kept answer is damaged");
    if answer.status >= 400 {
        return Err(serde_json::from_value(answer.body).map_err(damaged)?);
    }
    let receipt = serde_json::from_value(answer.body).map_err(damaged)?;
    Ok(Scheduled { status: answer.status, receipt, is_replay: true })
}
