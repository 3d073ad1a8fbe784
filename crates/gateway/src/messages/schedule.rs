//! Taking messages: one at a time and in batches, with the same verdicts.
//!
//! Every request goes through the same four steps, a batch's items side by side: fixed as a command and bound to its key, sent
//! to its shard, followed as far as it asked for, and its key settled.

use client::api::message::{BatchResult, MessageReceipt, Status};
use client::api::problem::{Problem, SurfaceCode};
use client::prepare::{self, Instants};
use futures_util::future::join_all;
use protocol::code::StableCode;
use protocol::command::{ClientCommand, CommandBody, ScheduleIntent};
use serde_json::value::RawValue;
use shard::machine::verdict::{Rule, Verdict};
use shard::query;
use shard::state::generation::MessageState;
use tokio::sync::oneshot;

use super::locate::Located;
use super::parse::{RawSchedule, body};
use super::refusal::{self, Asked};
use super::submit::{Submitted, Wait, WaitFor, submit};
use super::view;
use crate::destinations;
use crate::idempotency::{self, Bound, BoundKey, Settlement};
use crate::problem::{Failure, prepare_problem, shard_problem};
use crate::state::Gateway;

/// What a schedule came to, ready for HTTP.
pub(crate) struct Scheduled {
    pub(crate) status: u16,
    pub(crate) receipt: MessageReceipt,
    pub(crate) is_replay: bool,
}

/// A request as sent.
#[derive(Clone, Copy)]
struct Request<'a> {
    body: &'a [u8],
    idempotency_key: Option<&'a str>,
}

/// Takes one message.
///
/// # Errors
/// What refused it; nothing is stored of it then, unless the code says that this is not known.
pub(crate) async fn one(
    gateway: &Gateway,
    body: &[u8],
    idempotency_key: Option<&str>,
    wait: Wait,
) -> Result<Scheduled, Failure> {
    let mut results = carry_out(gateway, &[Request { body, idempotency_key }], wait).await;
    // One request has one result.
    results.pop().unwrap_or_else(|| Err(Problem::new(SurfaceCode::Internal, "a request got no result").into()))
}

/// Takes messages on their own terms each; the results are in the request's order.
pub(crate) async fn batch(gateway: &Gateway, items: &[&RawValue], wait: Wait) -> Vec<BatchResult> {
    let requests: Vec<Request<'_>> =
        items.iter().map(|item| Request { body: item.get().as_bytes(), idempotency_key: None }).collect();
    let results = carry_out(gateway, &requests, wait).await;
    results
        .into_iter()
        .map(|result| match result {
            Ok(scheduled) => BatchResult::Receipt(scheduled.receipt),
            Err(failure) => BatchResult::Problem(*failure.problem),
        })
        .collect()
}

/// A request whose command is fixed and, with a key, durable.
struct Fixed<'a> {
    index: usize,
    command: ClientCommand,
    key: Option<BoundKey<'a>>,
    end: Option<oneshot::Receiver<MessageState>>,
}

async fn carry_out(gateway: &Gateway, requests: &[Request<'_>], wait: Wait) -> Vec<Result<Scheduled, Failure>> {
    let fixing = requests.iter().enumerate().map(|(index, request)| fix(gateway, index, *request, wait));
    let mut results: Vec<Option<Result<Scheduled, Failure>>> = Vec::with_capacity(requests.len());
    let mut fixed = Vec::with_capacity(requests.len());
    for outcome in join_all(fixing).await {
        match outcome {
            Ok(Step::Run(request)) => {
                fixed.push(request);
                results.push(None);
            }
            Ok(Step::Replay(scheduled)) => results.push(Some(Ok(*scheduled))),
            Err(failure) => results.push(Some(Err(failure))),
        }
    }
    let commands: Vec<&ClientCommand> = fixed.iter().map(|request| &request.command).collect();
    let submitted = submit(gateway, &commands, wait).await;
    let finishing =
        fixed.into_iter().zip(submitted).map(|(request, submitted)| finish(gateway, request, submitted, wait));
    for (index, result) in join_all(finishing).await {
        results[index] = Some(result.map_err(Failure::from));
    }
    // Every index has its result: what was not fixed was answered at once.
    results.into_iter().flatten().collect()
}

/// What fixing a request leads to.
enum Step<'a> {
    Run(Box<Fixed<'a>>),
    Replay(Box<Scheduled>),
}

async fn fix<'a>(gateway: &'a Gateway, index: usize, request: Request<'_>, wait: Wait) -> Result<Step<'a>, Failure> {
    let raw: RawSchedule<'_> = body(request.body)?;
    let (command, key) = match request.idempotency_key.or(raw.idempotency_key.as_deref()) {
        None => (prepare(gateway, &raw)?, None),
        Some(key) => {
            let sent: [&[u8]; 2] = [b"POST /v1/messages", request.body];
            match idempotency::bind(gateway, key, &sent, async { prepare(gateway, &raw) }).await? {
                Bound::Replay(answer) => return Ok(Step::Replay(Box::new(replay(answer)?))),
                Bound::Run(command, key) => (*command, Some(key)),
            }
        }
    };
    // Before the append, so that no end is missed, and that nothing is taken when it cannot be followed.
    let end = match wait.until {
        WaitFor::Published => Some(watch_end(gateway, &command)?),
        WaitFor::Queued | WaitFor::Applied => None,
    };
    Ok(Step::Run(Box::new(Fixed { index, command, key, end })))
}

fn replay(answer: control::idempotency::Answer) -> Result<Scheduled, Failure> {
    let damaged = |_| Problem::new(SurfaceCode::Internal, "the kept answer is damaged");
    if answer.status >= 400 {
        return Err(Failure::replayed(serde_json::from_value(answer.body).map_err(damaged)?));
    }
    let receipt = serde_json::from_value(answer.body).map_err(damaged)?;
    Ok(Scheduled { status: answer.status, receipt, is_replay: true })
}

async fn finish(
    gateway: &Gateway,
    request: Box<Fixed<'_>>,
    submitted: Submitted,
    wait: Wait,
) -> (usize, Result<Scheduled, Problem>) {
    let Fixed { index, command, key, end } = *request;
    let mut result = scheduled(gateway, &command, submitted);
    if let (Ok(scheduled), Some(end)) = (&mut result, end) {
        follow(gateway, &command, scheduled, end, wait).await;
    }
    if let Some(key) = key {
        let settlement = match &result {
            Ok(scheduled) => Settlement::of_receipt(scheduled.status, &scheduled.receipt),
            Err(problem) => Settlement::of_problem(problem),
        };
        idempotency::settle(gateway, key, settlement).await;
    }
    (index, result)
}

/// Fixes the command: identities, times, bytes.
fn prepare(gateway: &Gateway, raw: &RawSchedule<'_>) -> Result<ClientCommand, Problem> {
    let name = raw.destination.as_deref().ok_or_else(|| {
        Problem::new(SurfaceCode::InvalidField, "destination is missing: which one is the message for?")
            .field("destination")
    })?;
    let destination = destinations::bound(gateway, name)?;
    let now_latest_ms = gateway.now_latest_ms();
    let new = raw.message(now_latest_ms)?;
    let snapshot = &gateway.routes.home().snapshot;
    prepare::schedule(
        snapshot,
        &destination,
        new,
        gateway.fresh_uuid(),
        gateway.fresh_uuid(),
        Instants::now(now_latest_ms),
    )
    .map_err(|error| prepare_problem(&error))
}

fn scheduled(gateway: &Gateway, command: &ClientCommand, submitted: Submitted) -> Result<Scheduled, Problem> {
    match submitted {
        Submitted::Queued => {
            Ok(Scheduled { status: 202, receipt: receipt(gateway, command, Status::Queued, None), is_replay: false })
        }
        Submitted::Verdict(Verdict { code: StableCode::Scheduled, state_version, .. }) => {
            let receipt = receipt(gateway, command, Status::Scheduled, state_version);
            Ok(Scheduled { status: 201, receipt, is_replay: false })
        }
        Submitted::Verdict(verdict) => Err(refusal(gateway, command, verdict)),
        Submitted::Refused(verdict) => Err(Problem::new(verdict.code, verdict.detail)),
        Submitted::Problem(problem) => Err(*problem),
    }
}

pub(crate) fn intent(command: &ClientCommand) -> Option<&ScheduleIntent> {
    match &command.body {
        CommandBody::Schedule(body) => Some(body.intent()),
        _ => None,
    }
}

fn receipt(gateway: &Gateway, command: &ClientCommand, status: Status, version: Option<u64>) -> MessageReceipt {
    let intent = intent(command);
    let id =
        intent.and_then(|intent| intent.business_key.as_ref()).map(|key| String::from_utf8_lossy(key).into_owned());
    let times = intent.map_or((0, 0), |intent| (intent.deliver_at_ms, intent.expire_at_ms));
    view::receipt_of(gateway, command.message_id, id, status, times, version)
}

/// A verdict that took no message, with the numbers behind it.
pub(crate) fn refusal(gateway: &Gateway, command: &ClientCommand, verdict: Verdict) -> Problem {
    if verdict.rule == Rule::BusinessKeyInUse {
        return id_in_use(gateway, command, verdict);
    }
    let limits = &gateway.routes.home().snapshot.limits;
    let Some(intent) = intent(command) else { return Problem::new(verdict.code, verdict.rule.to_string()) };
    let destination = gateway.destinations.get(&String::from_utf8_lossy(&intent.profile.id));
    let bound = destination.as_ref().and_then(|cached| cached.bound.as_ref());
    let asked = Asked {
        limits,
        delay_ms_max: bound.map_or(limits.delay_ms_max, |bound| bound.body.delay_ms_max),
        deliver_at_ms: intent.deliver_at_ms,
        expire_at_ms: intent.expire_at_ms,
        now_ms: gateway.now_ms(),
    };
    refusal::problem(&verdict, &asked)
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

/// Follows a message to its end, as long as the request waits. Whatever goes wrong here, the message is scheduled.
async fn follow(
    gateway: &Gateway,
    command: &ClientCommand,
    scheduled: &mut Scheduled,
    end: oneshot::Receiver<MessageState>,
    wait: Wait,
) {
    if scheduled.status != 201 {
        return;
    }
    // Whether it ended, or the time is up: what is stored says.
    let _ = tokio::time::timeout_at(wait.deadline, end).await;
    let Ok(place) = gateway.routes.of_message(command.message_id) else { return };
    match place.handle.read(|read| query::message(read, command.message_id.uuid)) {
        Ok(Some(view)) => scheduled.receipt = view::receipt(gateway, command.message_id, &view),
        Ok(None) => {}
        Err(error) => tracing::debug!(%error, "a message could not be read behind its end"),
    }
}
