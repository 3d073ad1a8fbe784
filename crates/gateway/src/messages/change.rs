//! Moving and cancelling messages.

use client::api::message::{MessageReceipt, Status};
use client::api::problem::{Problem, SurfaceCode};
use client::instant::format_instant_ms;
use client::prepare::{self, Instants, Times};
use protocol::code::StableCode;
use protocol::command::{ClientCommand, CommandBody, Precondition};
use protocol::id::Uuid7;
use shard::machine::verdict::{Rule, Verdict};
use shard::query;
use shard::state::generation::MessageState;

use super::locate::{Located, locate};
use super::parse::{RawReschedule, body};
use super::refusal::{self, Asked};
use super::submit::{Submitted, Wait, submit};
use super::view;
use crate::idempotency::{self, Bound, Settlement};
use crate::problem::{Failure, prepare_problem, shard_problem};
use crate::state::Gateway;

/// What a change came to.
pub(crate) struct Changed {
    pub(crate) status: u16,
    pub(crate) receipt: MessageReceipt,
    pub(crate) is_replay: bool,
}

/// A change as it was asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChangeRequest<'a> {
    /// The message, by any of its ids.
    pub(crate) id: &'a str,
    /// The version the caller expects.
    pub(crate) if_match: Option<u64>,
    /// Its Idempotency-Key.
    pub(crate) idempotency_key: Option<&'a str>,
    /// How far it is followed.
    pub(crate) wait: Wait,
}

impl ChangeRequest<'_> {
    fn precondition(&self) -> Precondition {
        Precondition { generation: None, state_version: self.if_match }
    }

    fn check(&self, located: &Located<'_>) -> Result<(), Problem> {
        match self.if_match {
            Some(version) if version != located.view.row.state_version => Err(moved_on(located, version)),
            _ => Ok(()),
        }
    }
}

/// Cancels a message; cancelling it again is the same success.
///
/// # Errors
/// What stands in the way, with the message where it says more.
pub(crate) async fn cancel(gateway: &Gateway, request: ChangeRequest<'_>) -> Result<Changed, Failure> {
    let located = locate(gateway, request.id, false, request.wait.deadline).await?;
    if located.view.state == MessageState::Canceled {
        return Ok(Changed { status: 200, receipt: receipt(gateway, &located), is_replay: false });
    }
    let prepare = async {
        request.check(&located)?;
        cancel_command(gateway, &located, request.precondition(), gateway.fresh_uuid())
    };
    carry_out(gateway, request, "DELETE", &[], prepare).await
}

/// Gives a message new times.
///
/// # Errors
/// What stands in the way, with the message where it says more.
pub(crate) async fn reschedule(gateway: &Gateway, request: ChangeRequest<'_>, sent: &[u8]) -> Result<Changed, Failure> {
    let raw: RawReschedule<'_> = body(sent)?;
    let (when, expiry) = raw.times()?;
    let prepare = async {
        let located = locate(gateway, request.id, false, request.wait.deadline).await?;
        request.check(&located)?;
        let now_latest_ms = gateway.now_latest_ms();
        let deliver_at_ms = when.deliver_at_ms(now_latest_ms);
        let times = NewTimes {
            deliver_at_ms,
            expire_at_ms: expiry.map(|expiry| expiry.expire_at_ms(deliver_at_ms, now_latest_ms)),
            instants: Instants::now(now_latest_ms),
        };
        reschedule_command(gateway, &located, request.precondition(), times, gateway.fresh_uuid())
    };
    carry_out(gateway, request, "PATCH", sent, prepare).await
}

/// Prepares the cancellation of a message.
///
/// # Errors
/// That it has ended.
pub(crate) fn cancel_command(
    gateway: &Gateway,
    located: &Located<'_>,
    precondition: Precondition,
    command: Uuid7,
) -> Result<ClientCommand, Problem> {
    if located.view.state.is_terminal() {
        return Err(ended(gateway, located));
    }
    prepare::cancel(&located.place.route.snapshot, located.message_id, precondition, command)
        .map_err(|error| prepare_problem(&error))
}

/// A message's new times, as they were asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewTimes {
    pub(crate) deliver_at_ms: i64,
    /// As long after the delivery time as before when `None`.
    pub(crate) expire_at_ms: Option<i64>,
    pub(crate) instants: Instants,
}

/// Prepares new times for a message.
///
/// # Errors
/// That it has ended, or which limit the times break.
pub(crate) fn reschedule_command(
    gateway: &Gateway,
    located: &Located<'_>,
    precondition: Precondition,
    times: NewTimes,
    command: Uuid7,
) -> Result<ClientCommand, Problem> {
    if located.view.state.is_terminal() {
        return Err(ended(gateway, located));
    }
    let NewTimes { deliver_at_ms, expire_at_ms, instants } = times;
    let expire_at_ms = expire_at_ms.unwrap_or_else(|| {
        let row = &located.view.row;
        let length_ms = row.expire_at_ms.saturating_sub(row.deliver_at_ms);
        deliver_at_ms.max(instants.now_latest_ms).saturating_add(length_ms)
    });
    prepare::reschedule(
        &located.place.route.snapshot,
        &bound_version(gateway, located)?,
        located.message_id,
        precondition,
        Times { deliver_at_ms, expire_at_ms },
        command,
        instants,
    )
    .map_err(|error| prepare_problem(&error))
}

/// Prepares the change, or takes what its key has, and follows it.
async fn carry_out(
    gateway: &Gateway,
    request: ChangeRequest<'_>,
    method: &str,
    sent: &[u8],
    prepare: impl Future<Output = Result<ClientCommand, Problem>>,
) -> Result<Changed, Failure> {
    let Some(key) = request.idempotency_key else {
        return Ok(run(gateway, request, &prepare.await?).await?);
    };
    let line = format!("{method} /v1/messages/{} If-Match {:?}", request.id, request.if_match);
    match idempotency::bind(gateway, key, &[line.as_bytes(), sent], prepare).await? {
        Bound::Replay(answer) => replay(answer),
        Bound::Run(command, key) => {
            let result = run(gateway, request, &command).await;
            let settlement = match &result {
                Ok(changed) => Settlement::of_receipt(changed.status, &changed.receipt),
                Err(problem) => Settlement::of_problem(problem),
            };
            idempotency::settle(gateway, key, settlement).await;
            Ok(result?)
        }
    }
}

fn replay(answer: control::idempotency::Answer) -> Result<Changed, Failure> {
    let damaged = |_| Problem::new(SurfaceCode::Internal, "the kept answer is damaged");
    if answer.status >= 400 {
        return Err(Failure::replayed(serde_json::from_value(answer.body).map_err(damaged)?));
    }
    let receipt = serde_json::from_value(answer.body).map_err(damaged)?;
    Ok(Changed { status: answer.status, receipt, is_replay: true })
}

/// The destination version that a message is bound to: its limits hold, whatever the newest version says.
fn bound_version(gateway: &Gateway, located: &Located<'_>) -> Result<prepare::BoundDestination, Problem> {
    let name = String::from_utf8_lossy(&located.view.lane.profile_id).into_owned();
    let damaged = || Problem::new(SurfaceCode::Internal, format!("destination {name:?} has no such version"));
    let cached = gateway.destinations.get(&name).ok_or_else(damaged)?;
    let version = cached.record.version(located.view.lane.profile_version).ok_or_else(damaged)?;
    let body = std::sync::Arc::new(version.profile().ok_or_else(damaged)?);
    let profile = body.reference(&located.view.lane.profile_id, version.version);
    Ok(prepare::BoundDestination { profile, body })
}

async fn run(gateway: &Gateway, request: ChangeRequest<'_>, command: &ClientCommand) -> Result<Changed, Problem> {
    let mut submitted = submit(gateway, &[command], request.wait).await;
    let located = stored(gateway, command)?;
    match submitted.pop() {
        None | Some(Submitted::Queued) => {
            let receipt = MessageReceipt { status: Status::Queued, version: None, ..receipt(gateway, &located) };
            Ok(Changed { status: 202, receipt, is_replay: false })
        }
        Some(Submitted::Problem(problem)) => Err(*problem),
        Some(Submitted::Refused(verdict)) => Err(Problem::new(verdict.code, verdict.detail)),
        Some(Submitted::Verdict(verdict)) => {
            let receipt = decided(gateway, &located, command, &verdict, request.if_match)?;
            Ok(Changed { status: 200, receipt, is_replay: false })
        }
    }
}

/// The message as it stands now: a verdict is answered with it.
pub(crate) fn stored<'a>(gateway: &'a Gateway, command: &ClientCommand) -> Result<Located<'a>, Problem> {
    let message_id = command.message_id;
    let place = gateway.routes.of_message(message_id)?;
    let read = place.handle.read(|read| Ok((query::message(read, message_id.uuid)?, query::progress(read)?)));
    let (view, progress) = read.map_err(shard_problem)?;
    let view = view.ok_or_else(|| Problem::new(StableCode::NotFound, format!("there is no message {message_id}")))?;
    Ok(Located { place, message_id, view, progress, intent: None })
}

/// What a verdict says of the message.
///
/// # Errors
/// What stood in the way.
pub(crate) fn decided(
    gateway: &Gateway,
    located: &Located<'_>,
    command: &ClientCommand,
    verdict: &Verdict,
    if_match: Option<u64>,
) -> Result<MessageReceipt, Problem> {
    let as_decided = |status| MessageReceipt { status, version: verdict.state_version, ..receipt(gateway, located) };
    match (verdict.code, &command.body) {
        (StableCode::Canceled, _) | (StableCode::AlreadyCanceled, CommandBody::Cancel(_)) => {
            Ok(as_decided(Status::Canceled))
        }
        // It may have been moved, cancelled or sent since; what was decided is the answer.
        (StableCode::Superseded, CommandBody::Reschedule(times)) => Ok(MessageReceipt {
            deliver_at: format_instant_ms(times.deliver_at_ms),
            deliver_at_ms: times.deliver_at_ms,
            expires_at: format_instant_ms(times.expire_at_ms),
            expires_at_ms: times.expire_at_ms,
            delivery: None,
            lateness_ms: None,
            ..as_decided(Status::Scheduled)
        }),
        (StableCode::VersionConflict | StableCode::GenerationSuperseded, _) => Err(match if_match {
            Some(version) => moved_on(located, version),
            None => Problem::new(verdict.code, "the message was changed at the same time; read it and try again"),
        }),
        (StableCode::InvalidDeliveryWindow, CommandBody::Reschedule(times)) => {
            let limits = &located.place.route.snapshot.limits;
            let asked = Asked {
                limits,
                delay_ms_max: bound_version(gateway, located)?.body.delay_ms_max,
                deliver_at_ms: times.deliver_at_ms,
                expire_at_ms: times.expire_at_ms,
                now_ms: gateway.now_ms(),
            };
            Err(refusal::problem(verdict, &asked))
        }
        (code, _) => Err(in_the_way(gateway, located, code, verdict.rule)),
    }
}

fn receipt(gateway: &Gateway, located: &Located<'_>) -> MessageReceipt {
    view::receipt(gateway, located.message_id, &located.view)
}

fn ended(gateway: &Gateway, located: &Located<'_>) -> Problem {
    let code = match located.view.state {
        MessageState::Published => StableCode::AlreadyPublished,
        MessageState::Canceled => StableCode::AlreadyCanceled,
        MessageState::Expired => StableCode::AlreadyExpired,
        _ => StableCode::AlreadyDeadLettered,
    };
    in_the_way(gateway, located, code, Rule::None)
}

fn in_the_way(gateway: &Gateway, located: &Located<'_>, code: StableCode, rule: Rule) -> Problem {
    let detail = match code {
        StableCode::TooLate if located.view.state == MessageState::Uncertain => {
            "an attempt may have been delivered, so the message cannot be taken back".to_owned()
        }
        StableCode::TooLate => "an attempt is under way, so the message cannot be taken back".to_owned(),
        StableCode::AlreadyPublished => "the message was published; where, its delivery says".to_owned(),
        StableCode::AlreadyCanceled => "the message was canceled".to_owned(),
        StableCode::AlreadyExpired => "the message's expiry came first; it was not delivered".to_owned(),
        StableCode::AlreadyDeadLettered => "the message was given up".to_owned(),
        StableCode::NotFound => format!("there is no message {}", located.message_id),
        _ => format!("the shard refused the change of message {}: {rule}", located.message_id),
    };
    let message = (code != StableCode::NotFound).then(|| Box::new(view::message(gateway, located)));
    Problem { message, ..Problem::new(code, detail) }
}

fn moved_on(located: &Located<'_>, expected: u64) -> Problem {
    let found = located.view.row.state_version;
    let detail = format!("If-Match names version {expected}; the message is at version {found}");
    Problem::new(SurfaceCode::PreconditionFailed, detail).field("If-Match")
}
