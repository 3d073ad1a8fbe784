//! What records come to: looked up where they may have been taken before, prepared and sent where they were not.
//!
//! Ids are derived, so a record that was taken under one of its run's times is found again: its command by the result that the
//! shard keeps of it, its message by itself. Both are asked behind everything that was appended before, so that what is not
//! found was not taken; and what is still on its way under the same id is a second copy, which changes nothing.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use client::api::problem::{Problem, SurfaceCode};
use client::prepare::{self, Instants, PrepareError};
use control::ingress::IngressProgress;
use futures_util::future::join_all;
use ports::source::{SourcePartition, SourceRecord};
use protocol::code::StableCode;
use protocol::command::{ClientCommand, Precondition};
use protocol::id::{MessageId, Uuid7};
use protocol::mutation_v2::Limits;
use shard::machine::verdict::{PositionVerdict, Rule, Verdict};
use shard::query::{self, MessageView, PositionResult};
use shard::state::generation::MessageState;
use shard::store::{Read, StoreError};
use tokio::time::Instant;

use super::ids::Place;
use super::record::{Change, ChangeKind, ID, NewSchedule, Refusal, Request, timestamp_ms};
use super::side::{Outcome, Taken};
use crate::destinations;
use crate::messages::change::{self, NewTimes};
use crate::messages::locate::{self, locate};
use crate::messages::schedule;
use crate::messages::submit::{Submitted, Wait, WaitFor, submit};
use crate::problem::{prepare_problem, shard_problem};
use crate::routes::ShardPlace;
use crate::state::Gateway;

/// How long one try waits for shards. What was not decided by then is asked for again.
const TRY_MAX: Duration = Duration::from_secs(30);

/// Where records are from.
#[derive(Clone, Copy)]
pub(super) struct Scope<'a> {
    pub(super) gateway: &'a Gateway,
    pub(super) ingress: &'a str,
    pub(super) partition: &'a SourcePartition,
}

/// A record on its way to an outcome.
pub(super) struct Item<'a> {
    /// Its place among the records of its batch.
    pub(super) index: usize,
    pub(super) record: &'a SourceRecord,
    pub(super) request: Request,
    /// Whether a command of it may be in a log already.
    pub(super) may_exist: bool,
    /// Commands of it that were refused for the shard's state, under the ids of the run's present time.
    pub(super) refused_before: u32,
}

impl Item<'_> {
    /// What the record's message is called by its producer.
    pub(super) fn name(&self) -> Option<&str> {
        match &self.request {
            Request::Schedule(schedule) => schedule.id.as_deref(),
            Request::Change(change) => Some(&change.target),
        }
    }
}

/// How far a record has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// It came to this.
    Done(Outcome),
    /// Something before it comes first; ask again at once.
    Again,
    /// This keeps it from being decided; ask again in a while.
    Later(String),
    /// The ids of the run are too old to be used.
    Renew,
}

/// What is to be done for a record.
enum Plan {
    Send(Box<ClientCommand>),
    Step(Step),
}

impl From<Problem> for Plan {
    fn from(problem: Problem) -> Self {
        Plan::Step(step_of(problem))
    }
}

/// Decides records, in their order: from the first that cannot be decided now, none is sent.
pub(super) async fn decide(scope: Scope<'_>, run: &IngressProgress, items: &mut [Item<'_>]) -> Vec<Step> {
    let deadline = Instant::now() + TRY_MAX;
    let planning = items.iter_mut().map(|item| plan(scope, run, item, deadline));
    let plans = join_all(planning).await;
    // What is not reached asks again.
    let mut steps = vec![Step::Again; items.len()];
    let (mut commands, mut changed) = (Vec::new(), BTreeSet::new());
    for (index, plan) in plans.into_iter().enumerate() {
        match plan {
            // It was prepared on what the message was before the change before it.
            Plan::Send(command) if is_second_change(&items[index], &command, &mut changed) => break,
            Plan::Send(command) => commands.push((index, command)),
            Plan::Step(step) => {
                let is_done = matches!(step, Step::Done(_));
                steps[index] = step;
                if !is_done {
                    break;
                }
            }
        }
    }
    let prepared: Vec<&ClientCommand> = commands.iter().map(|(_, command)| &**command).collect();
    let submitted = submit(scope.gateway, &prepared, Wait { until: WaitFor::Applied, deadline }).await;
    for ((index, command), submitted) in commands.iter().zip(submitted) {
        steps[*index] = step_of_submitted(scope, run, &mut items[*index], command, submitted);
    }
    steps
}

fn is_second_change(item: &Item<'_>, command: &ClientCommand, changed: &mut BTreeSet<MessageId>) -> bool {
    matches!(item.request, Request::Change(_)) && !changed.insert(command.message_id)
}

async fn plan(scope: Scope<'_>, run: &IngressProgress, item: &mut Item<'_>, deadline: Instant) -> Plan {
    if item.may_exist {
        match look(scope, run, item, deadline).await {
            Ok(None) => {}
            Ok(Some(step)) => return Plan::Step(step),
            Err(problem) => return problem.into(),
        }
    }
    match &item.request {
        Request::Schedule(new) => match prepare_schedule(scope, run, item, new) {
            Ok(command) => match room(scope.gateway, &command) {
                Ok(()) => Plan::Send(Box::new(command)),
                Err(step) => Plan::Step(step),
            },
            Err(problem) => problem.into(),
        },
        Request::Change(change) => prepare_change(scope, run, item, change, deadline).await.unwrap_or_else(Plan::from),
    }
}

/// A problem of the surroundings passes and the record waits for it; one of the record stays.
fn step_of(problem: Problem) -> Step {
    if matches!(problem.status, 429 | 500..) {
        Step::Later(problem.to_string())
    } else {
        Step::Done(Outcome::Refused(problem.into()))
    }
}

fn place<'a>(scope: Scope<'a>, item: &Item<'_>) -> Place<'a> {
    let SourcePartition { topic, partition } = *scope.partition;
    Place { ingress: scope.ingress, topic, partition, offset: item.record.offset }
}

/// Every time that ids of the run derive from, the present one first.
fn times(run: &IngressProgress) -> impl Iterator<Item = i64> {
    [run.uuid_ms].into_iter().chain(run.earlier_uuid_ms.iter().rev().copied())
}

/// What became of a record that may have been taken before; `None` when it certainly was not.
async fn look(
    scope: Scope<'_>,
    run: &IngressProgress,
    item: &mut Item<'_>,
    deadline: Instant,
) -> Result<Option<Step>, Problem> {
    let mut is_certain = true;
    for uuid_ms in times(run) {
        let found = match &item.request {
            Request::Schedule(new) => {
                let message = place(scope, item).message(uuid_ms);
                let shard =
                    scope.gateway.routes.of_key(new.id.as_ref().map_or(message.as_bytes(), |id| id.as_bytes()))?;
                shard.caught_up(deadline).await?;
                look_for_schedule(scope, run, item, new, shard, uuid_ms)?
            }
            Request::Change(change) => {
                // No shard can have been sent a command for such an id.
                let Ok(shard) = locate::place(scope.gateway, &change.target) else { return Ok(None) };
                shard.caught_up(deadline).await?;
                look_for_change(scope, item, change, shard, uuid_ms)?
            }
        };
        match found {
            Found::Step(step) => return Ok(Some(step)),
            Found::Nothing { refused_before } if uuid_ms == run.uuid_ms => item.refused_before = refused_before,
            Found::Nothing { .. } => {}
            Found::Forgotten => is_certain = false,
        }
    }
    if is_certain {
        return Ok(None);
    }
    let detail = "the ingress stopped while this record was being taken, and went on so late that nothing is kept that \
                  could tell whether it was";
    let refusal = Refusal::new(SurfaceCode::RecordOutcomeForgotten, detail);
    Ok(Some(Step::Done(Outcome::Refused(refusal))))
}

/// What is found under the ids of one time.
enum Found {
    Step(Step),
    /// Nothing was taken.
    Nothing {
        refused_before: u32,
    },
    /// Nothing is there, and what was taken need not be any more.
    Forgotten,
}

fn look_for_schedule(
    scope: Scope<'_>,
    run: &IngressProgress,
    item: &Item<'_>,
    new: &NewSchedule,
    shard: ShardPlace<'_>,
    uuid_ms: i64,
) -> Result<Found, Problem> {
    let place = place(scope, item);
    let message = place.message(uuid_ms);
    let message_id = MessageId { shard: shard.handle.shard(), uuid: message };
    let read = shard.handle.read(|read| {
        if let Some(view) = query::message(read, message)? {
            return Ok((Some(view), None, 0, 0));
        }
        let (mut refused_before, mut last) = (0, None);
        while let Some(verdict) = result_of(read, place.command(uuid_ms, refused_before))? {
            last = Some((verdict, meaning(scope, run, item, &verdict)));
            match last {
                Some((_, Meaning::Later)) => refused_before += 1,
                _ => break,
            }
        }
        Ok((None, last, refused_before, query::progress(read)?.closed_ms))
    });
    let (view, last, refused_before, closed_ms) = read.map_err(shard_problem)?;
    if let Some(view) = view {
        return Ok(Found::Step(Step::Done(taken(StableCode::Scheduled, message_id, &view))));
    }
    Ok(match last {
        None if is_kept(&shard.route.snapshot.limits, closed_ms, uuid_ms) => Found::Nothing { refused_before },
        None => Found::Forgotten,
        Some((_, Meaning::Later)) => Found::Nothing { refused_before },
        Some((_, Meaning::TooOld)) if uuid_ms == run.uuid_ms => Found::Step(Step::Renew),
        Some((_, Meaning::TooOld)) => Found::Nothing { refused_before },
        Some((_, Meaning::Taken)) => Found::Step(Step::Done(taken_before(run, item, new, message_id))),
        Some((verdict, Meaning::Refused)) => Found::Step(Step::Done(Outcome::Refused(as_decided(&verdict)))),
    })
}

/// A refusal that was decided before.
fn as_decided(verdict: &Verdict) -> Refusal {
    let detail = match verdict.rule {
        Rule::None => format!("the shard refused it: {}", verdict.code),
        rule => format!("the shard refused it: {rule}"),
    };
    Refusal::new(verdict.code, detail)
}

fn look_for_change(
    scope: Scope<'_>,
    item: &Item<'_>,
    change: &Change,
    shard: ShardPlace<'_>,
    uuid_ms: i64,
) -> Result<Found, Problem> {
    let command = place(scope, item).command(uuid_ms, 0);
    let read = shard.handle.read(|read| Ok((result_of(read, command)?, query::progress(read)?.closed_ms)));
    let (verdict, closed_ms) = read.map_err(shard_problem)?;
    let Some(verdict) = verdict else {
        let limits = &shard.route.snapshot.limits;
        let is_kept = closed_ms < uuid_ms.saturating_add(limits.command_retry_window_ms);
        return Ok(if is_kept { Found::Nothing { refused_before: 0 } } else { Found::Forgotten });
    };
    Ok(Found::Step(Step::Done(match (verdict.code, change.kind) {
        (StableCode::Canceled | StableCode::AlreadyCanceled, ChangeKind::Cancel) => {
            changed_before(StableCode::Canceled, change)
        }
        (StableCode::Superseded, ChangeKind::Reschedule { .. }) => changed_before(StableCode::Superseded, change),
        _ => Outcome::Refused(as_decided(&verdict)),
    })))
}

/// The result that a shard keeps of a command.
fn result_of(read: &dyn Read, command: Uuid7) -> Result<Option<Verdict>, StoreError> {
    // No position has an empty token: only the command itself can answer.
    Ok(match query::result_at(read, &[], command.to_bytes())? {
        PositionResult::Command(verdict) => Some(verdict),
        PositionResult::Exception(_) | PositionResult::Unknown => None,
    })
}

/// Whether a message that was taken under ids of this time would still be there: its command's result, or the message itself,
/// which ends no earlier than it was made.
fn is_kept(limits: &Limits, closed_ms: i64, uuid_ms: i64) -> bool {
    let retention_ms = limits.terminal_retention_ms.min(limits.dead_letter_retention_ms);
    let message_ms = retention_ms.saturating_sub(limits.uuid_future_skew_ms_max);
    closed_ms < uuid_ms.saturating_add(message_ms.max(limits.command_retry_window_ms))
}

/// What a verdict on a Schedule means for its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meaning {
    Taken,
    /// The record is refused.
    Refused,
    /// Not the record's fault: it waits, and is sent again under another command id.
    Later,
    /// The ids are too old.
    TooOld,
}

fn meaning(scope: Scope<'_>, run: &IngressProgress, item: &Item<'_>, verdict: &Verdict) -> Meaning {
    let is_own = |message: Uuid7| times(run).any(|uuid_ms| place(scope, item).message(uuid_ms) == message);
    match (verdict.code, verdict.rule) {
        (StableCode::Scheduled, _) => Meaning::Taken,
        (StableCode::DelayMessageIdConflict, Rule::BusinessKeyInUse) => match verdict.other_message {
            Some(message) if is_own(message) => Meaning::Taken,
            _ => Meaning::Refused,
        },
        // The ids derive from this record and nothing else has them.
        (StableCode::DelayMessageIdConflict, _) => Meaning::Taken,
        (
            StableCode::HardQuotaExceeded
            | StableCode::RouteNotActive
            | StableCode::ProfileVersionNotActiveAtSourcePosition
            | StableCode::RetryPolicyNotActiveAtSourcePosition,
            _,
        ) => Meaning::Later,
        (StableCode::DelayMessageIdExpired, _) => Meaning::TooOld,
        _ => Meaning::Refused,
    }
}

fn prepare_schedule(
    scope: Scope<'_>,
    run: &IngressProgress,
    item: &Item<'_>,
    new: &NewSchedule,
) -> Result<ClientCommand, Problem> {
    let destination = destinations::bound(scope.gateway, &new.destination)?;
    let place = place(scope, item);
    let asked_at_ms = asked_at_ms(run, item.record);
    let message = new.message(item.record, asked_at_ms);
    let (message_uuid, command_uuid) = (place.message(run.uuid_ms), place.command(run.uuid_ms, item.refused_before));
    let snapshot = &scope.gateway.routes.home().snapshot;
    prepare::schedule(snapshot, &destination, message, message_uuid, command_uuid, instants(run, item.record)).map_err(
        |error| match error {
            PrepareError::Id { reason } => Problem::new(SurfaceCode::InvalidHeader, format!("{ID} {reason}")),
            error => prepare_problem(&error),
        },
    )
}

/// When the record was written: what it says in relation to "now" was meant then, however long it waited in its topic.
fn asked_at_ms(run: &IngressProgress, record: &SourceRecord) -> i64 {
    timestamp_ms(record).unwrap_or(run.uuid_ms)
}

/// What is ahead counts from the run's time, so that another try has the same bytes. A producer whose clock is ahead is not
/// refused for it.
fn instants(run: &IngressProgress, record: &SourceRecord) -> Instants {
    Instants { now_latest_ms: run.uuid_ms, asked_at_ms: asked_at_ms(run, record).min(run.uuid_ms) }
}

/// Keeps records from a shard that could only refuse them for its own state: the topic has room for what the shard has not.
fn room(gateway: &Gateway, command: &ClientCommand) -> Result<(), Step> {
    let shard = command.shard();
    let Some(place) = gateway.routes.shard(shard) else {
        return Err(Step::Later(format!("shard {shard} is not here")));
    };
    place.may_append().map_err(|problem| Step::Later(problem.to_string()))?;
    let (limits, progress) = (&place.route.snapshot.limits, place.handle.status().progress);
    let is_full =
        progress.active_messages >= limits.active_messages_max || progress.active_bytes >= limits.active_bytes_max;
    if is_full {
        let detail = format!("shard {} holds as many live messages or bytes as it may", shard.partition);
        return Err(Step::Later(Problem::new(StableCode::HardQuotaExceeded, detail).to_string()));
    }
    Ok(())
}

async fn prepare_change(
    scope: Scope<'_>,
    run: &IngressProgress,
    item: &Item<'_>,
    change: &Change,
    deadline: Instant,
) -> Result<Plan, Problem> {
    let located = locate(scope.gateway, &change.target, false, deadline).await?;
    located.place.may_append()?;
    let command = place(scope, item).command(run.uuid_ms, 0);
    let prepared = match change.kind {
        ChangeKind::Cancel if located.view.state == MessageState::Canceled => {
            return Ok(Plan::Step(Step::Done(taken(StableCode::Canceled, located.message_id, &located.view))));
        }
        ChangeKind::Cancel => change::cancel_command(scope.gateway, &located, Precondition::default(), command)?,
        ChangeKind::Reschedule { when, expire_at_ms } => {
            let times = NewTimes {
                deliver_at_ms: when.deliver_at_ms(asked_at_ms(run, item.record)),
                expire_at_ms,
                instants: instants(run, item.record),
            };
            change::reschedule_command(scope.gateway, &located, Precondition::default(), times, command)?
        }
    };
    Ok(Plan::Send(Box::new(prepared)))
}

fn step_of_submitted(
    scope: Scope<'_>,
    run: &IngressProgress,
    item: &mut Item<'_>,
    command: &ClientCommand,
    submitted: Submitted,
) -> Step {
    match submitted {
        Submitted::Queued => {
            item.may_exist = true;
            Step::Later("the shard has the record and has not decided it in time".to_owned())
        }
        Submitted::Problem(problem) => {
            // Nothing was appended where the log says so; anything else may have been.
            item.may_exist |= problem.code != SurfaceCode::Unavailable.name();
            step_of(*problem)
        }
        Submitted::Refused(verdict) => step_of_refused(item, &verdict),
        Submitted::Verdict(verdict) => match &item.request {
            Request::Schedule(_) => step_of_schedule(scope, run, item, command, verdict),
            Request::Change(_) => step_of_change(scope, item, command, &verdict),
        },
    }
}

fn step_of_refused(item: &mut Item<'_>, verdict: &PositionVerdict) -> Step {
    match (verdict.code, verdict.rule) {
        (_, Rule::CommandTooOld | Rule::MessageTooOld) | (StableCode::CommandRetryWindowExpired, _) => Step::Renew,
        (_, Rule::CommandInFuture | Rule::MessageInFuture) => Step::Later(verdict.detail.clone()),
        // An earlier copy with other bytes was decided, and stands.
        (StableCode::CommandIdConflict, _) => {
            item.may_exist = true;
            Step::Later(verdict.detail.clone())
        }
        (code, _) => Step::Done(Outcome::Refused(Refusal::new(code, verdict.detail.clone()))),
    }
}

fn step_of_schedule(
    scope: Scope<'_>,
    run: &IngressProgress,
    item: &mut Item<'_>,
    command: &ClientCommand,
    verdict: Verdict,
) -> Step {
    match meaning(scope, run, item, &verdict) {
        Meaning::Taken => Step::Done(Outcome::Taken(taken_by(command))),
        Meaning::Refused => Step::Done(Outcome::Refused(schedule::refusal(scope.gateway, command, verdict).into())),
        Meaning::Later => {
            item.refused_before += 1;
            Step::Later(schedule::refusal(scope.gateway, command, verdict).to_string())
        }
        Meaning::TooOld => Step::Renew,
    }
}

fn step_of_change(scope: Scope<'_>, item: &mut Item<'_>, command: &ClientCommand, verdict: &Verdict) -> Step {
    let decided = change::stored(scope.gateway, command).and_then(|located| {
        let receipt = change::decided(scope.gateway, &located, command, verdict, None)?;
        Ok((receipt, destination_of(&located.view)))
    });
    match decided {
        Ok((receipt, destination)) => Step::Done(Outcome::Taken(Taken {
            code: match &item.request {
                Request::Change(Change { kind: ChangeKind::Cancel, .. }) => StableCode::Canceled.name(),
                _ => StableCode::Superseded.name(),
            },
            message_id: Some(receipt.message_id),
            id: receipt.id,
            destination: Some(destination),
            deliver_at_ms: Some(receipt.deliver_at_ms),
            expires_at_ms: Some(receipt.expires_at_ms),
        })),
        Err(problem) => {
            // It was decided; only reading it back may have failed.
            item.may_exist = true;
            step_of(problem)
        }
    }
}

/// What a command that was just taken says.
fn taken_by(command: &ClientCommand) -> Taken {
    let intent = schedule::intent(command);
    let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
    Taken {
        code: StableCode::Scheduled.name(),
        message_id: Some(command.message_id.to_string()),
        id: intent.and_then(|intent| intent.business_key.as_ref()).map(text),
        destination: intent.map(|intent| text(&intent.profile.id)),
        deliver_at_ms: intent.map(|intent| intent.deliver_at_ms),
        expires_at_ms: intent.map(|intent| intent.expire_at_ms),
    }
}

/// A message as it stands.
fn taken(code: StableCode, message_id: MessageId, view: &MessageView) -> Outcome {
    let row = &view.row;
    let id = (!row.business_key.is_empty()).then(|| String::from_utf8_lossy(&row.business_key).into_owned());
    Outcome::Taken(Taken {
        code: code.name(),
        message_id: Some(message_id.to_string()),
        id,
        destination: Some(destination_of(view)),
        deliver_at_ms: Some(row.deliver_at_ms),
        expires_at_ms: Some(row.expire_at_ms),
    })
}

fn destination_of(view: &MessageView) -> String {
    String::from_utf8_lossy(&view.lane.profile_id).into_owned()
}

/// A message that was taken and is not kept any more, as the record has it.
fn taken_before(run: &IngressProgress, item: &Item<'_>, new: &NewSchedule, message_id: MessageId) -> Outcome {
    Outcome::Taken(Taken {
        code: StableCode::Scheduled.name(),
        message_id: Some(message_id.to_string()),
        id: new.id.clone(),
        destination: Some(new.destination.clone()),
        deliver_at_ms: Some(new.when.deliver_at_ms(asked_at_ms(run, item.record))),
        expires_at_ms: new.expire_at_ms,
    })
}

/// A change that was carried out before: what the message is by now says nothing of it.
fn changed_before(code: StableCode, change: &Change) -> Outcome {
    let is_message_id = change.target.starts_with(MessageId::PREFIX);
    Outcome::Taken(Taken {
        code: code.name(),
        message_id: is_message_id.then(|| change.target.clone()),
        id: (!is_message_id).then(|| change.target.clone()),
        destination: None,
        deliver_at_ms: None,
        expires_at_ms: None,
    })
}
