//! Moving and cancelling messages.

use client::api::message::{MessageReceipt, Status};
use client::api::problem::{Problem, SurfaceCode};
use client::prepare::{self, Times};
use protocol::code::StableCode;
use protocol::command::{ClientCommand, Precondition};
use shard::machine::verdict::{Rule, Verdict};
use shard::query;
use shard::state::generation::MessageState;

use super::locate::{Located, locate};
use super::parse::{RawReschedule, body};
use super::submit::{Submitted, Wait, submit};
use super::view;
use crate::problem::{prepare_problem, shard_problem};
use crate::state::Gateway;

/// What a change came to.
pub(crate) struct Changed {
    pub(crate) status: u16,
    pub(crate) receipt: MessageReceipt,
}

/// Which version the caller expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IfMatch {
    /// Any.
    Any,
    /// Exactly this one.
    Version(u64),
}

impl IfMatch {
    fn precondition(self) -> Precondition {
        let state_version = match self {
            IfMatch::Any => None,
            IfMatch::Version(version) => Some(version),
        };
        Precondition { generation: None, state_version }
    }

    fn check(self, located: &Located<'_>) -> Result<(), Problem> {
        match self {
            IfMatch::Version(version) if version != located.view.row.state_version => Err(moved_on(located, version)),
            _ => Ok(()),
        }
    }
}

/// Cancels a message; cancelling it again is the same success.
///
/// # Errors
/// What stands in the way, with the message where it says more.
pub(crate) async fn cancel(gateway: &Gateway, id: &str, if_match: IfMatch, wait: Wait) -> Result<Changed, Problem> {
    let located = locate(gateway, id, false).await?;
    if located.view.state == MessageState::Canceled {
        return Ok(Changed { status: 200, receipt: receipt(gateway, &located) });
    }
    if_match.check(&located)?;
    if located.view.state.is_terminal() {
        return Err(ended(gateway, &located));
    }
    let snapshot = &located.place.route.snapshot;
    let command = prepare::cancel(snapshot, located.message_id, if_match.precondition(), gateway.fresh_uuid())
        .map_err(|error| prepare_problem(&error))?;
    run(gateway, located, command, if_match, wait).await
}

/// Gives a message new times.
///
/// # Errors
/// What stands in the way, with the message where it says more.
pub(crate) async fn reschedule(
    gateway: &Gateway,
    id: &str,
    request: &[u8],
    if_match: IfMatch,
    wait: Wait,
) -> Result<Changed, Problem> {
    let raw: RawReschedule<'_> = body(request)?;
    let (when, expiry) = raw.times()?;
    let located = locate(gateway, id, false).await?;
    if_match.check(&located)?;
    if located.view.state.is_terminal() {
        return Err(ended(gateway, &located));
    }
    let now_latest_ms = gateway.now_latest_ms();
    let deliver_at_ms = when.deliver_at_ms(now_latest_ms);
    let row = &located.view.row;
    let expire_at_ms = match expiry {
        Some(expiry) => expiry.expire_at_ms(deliver_at_ms, now_latest_ms),
        // The same length as before, from the new time on.
        None => {
            let length_ms = row.expire_at_ms.saturating_sub(row.deliver_at_ms);
            deliver_at_ms.max(now_latest_ms).saturating_add(length_ms)
        }
    };
    let times = Times { deliver_at_ms, expire_at_ms };
    let destination = bound_version(gateway, &located)?;
    let command = prepare::reschedule(
        &located.place.route.snapshot,
        &destination,
        located.message_id,
        if_match.precondition(),
        times,
        gateway.fresh_uuid(),
        now_latest_ms,
    )
    .map_err(|error| prepare_problem(&error))?;
    run(gateway, located, command, if_match, wait).await
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

async fn run(
    gateway: &Gateway,
    located: Located<'_>,
    command: ClientCommand,
    if_match: IfMatch,
    wait: Wait,
) -> Result<Changed, Problem> {
    let mut submitted = submit(gateway, &[command], wait).await;
    match submitted.pop() {
        None | Some(Submitted::Queued) => {
            let receipt = MessageReceipt { status: Status::Queued, version: None, ..receipt(gateway, &located) };
            Ok(Changed { status: 202, receipt })
        }
        Some(Submitted::Problem(problem)) => Err(*problem),
        Some(Submitted::Verdict(verdict)) => {
            let located = refreshed(located)?;
            decided(gateway, &located, verdict, if_match)
        }
    }
}

fn decided(gateway: &Gateway, located: &Located<'_>, verdict: Verdict, if_match: IfMatch) -> Result<Changed, Problem> {
    match verdict.code {
        StableCode::Canceled | StableCode::AlreadyCanceled => {
            let receipt = MessageReceipt {
                status: Status::Canceled,
                version: verdict.state_version,
                ..receipt(gateway, located)
            };
            Ok(Changed { status: 200, receipt })
        }
        StableCode::Superseded => {
            let receipt = MessageReceipt { version: verdict.state_version, ..receipt(gateway, located) };
            Ok(Changed { status: 200, receipt })
        }
        StableCode::VersionConflict | StableCode::GenerationSuperseded => Err(match if_match {
            IfMatch::Version(version) => moved_on(located, version),
            IfMatch::Any => Problem::new(verdict.code, "the message was changed at the same time"),
        }),
        StableCode::InvalidDeliveryWindow => Err(window(gateway, verdict.rule)),
        code => Err(in_the_way(gateway, located, code)),
    }
}

fn window(gateway: &Gateway, rule: Rule) -> Problem {
    let limits = &gateway.routes.home().snapshot.limits;
    let (detail, limit_ms) = match rule {
        Rule::WindowTooShort => ("too little time between delivery and expiry", limits.delivery_window_ms_min),
        Rule::DelayTooLong => ("delivery is too far ahead", limits.delay_ms_max),
        Rule::LifetimeTooLong => ("expiry is too far ahead", limits.lifetime_ms_max),
        _ => ("the expiry is over already", 0),
    };
    let problem = Problem::new(StableCode::InvalidDeliveryWindow, format!("{detail}; the limit is {limit_ms} ms"));
    Problem { limit_ms: Some(limit_ms), ..problem }
}

/// Reads the message again: a verdict is answered with what stands now.
fn refreshed(located: Located<'_>) -> Result<Located<'_>, Problem> {
    let message = located.message_id.uuid;
    let found = located
        .place
        .handle
        .read(|read| Ok((query::message(read, message)?, query::progress(read)?)))
        .map_err(shard_problem)?;
    Ok(match found {
        (Some(view), progress) => Located { view, progress, ..located },
        (None, _) => located,
    })
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
    in_the_way(gateway, located, code)
}

fn in_the_way(gateway: &Gateway, located: &Located<'_>, code: StableCode) -> Problem {
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
        _ => format!("the shard refused the change of message {}", located.message_id),
    };
    let message = (code != StableCode::NotFound).then(|| Box::new(view::message(gateway, located)));
    Problem { message, ..Problem::new(code, detail) }
}

fn moved_on(located: &Located<'_>, expected: u64) -> Problem {
    let found = located.view.row.state_version;
    let detail = format!("If-Match names version {expected}; the message is at version {found}");
    Problem::new(SurfaceCode::PreconditionFailed, detail).field("If-Match")
}
