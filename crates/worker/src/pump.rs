//! The decisions of an active owner: what a record, an outcome, a lane or the clock makes it do next.
//!
//! A plain struct: events go in, actions come out, and the shell around it ([`task`](crate::task)) carries them between ports.
//! The one thing it does itself is [`Shard::commit`], behind the store port. It writes nothing else: whatever a destination or a
//! timer says becomes a log record first (invariant 3).

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use clock::{Reading, TrustedInterval};
use ports::destination::{AttemptOutcome, AttemptRef, LaneError, LaneTarget};
use ports::log::AppendError;
use protocol::code::StableCode;
use protocol::mutation_v2::{AbsenceKind, AttemptResult, Disposition, Outcome};
use shard::commit::{Committed, RunError, Shard};
use shard::effect::Effect;
use shard::machine::SourceRecord;
use shard::planted::{self, Mistake};
use shard::query::{self, OpenAttempt};
use shard::schedule::claim::AdmittedAttempt;
use shard::schedule::lane::Load;
use shard::schedule::scheduler::{Scheduler, Wake as SchedulerWake};
use shard::state::LaneNo;
use shard::store::{Store, StoreError};

use crate::config::WorkerConfig;
use crate::fence::{FencePaces, FencePlan, FenceReason};
use crate::lanes::LaneBook;
use crate::outbox::{Answered, AppendId, Cargo, Outbox, OwnerRun};
use crate::report::LaneReport;
use crate::sessions::admitted_ref;
use crate::unsettled::{Unsettled, attempt_ref};

/// What the shell has to carry out, in this order; results come back as events.
#[derive(Debug)]
pub(crate) enum Action {
    /// Append a frame of ours to the shard log.
    Append { id: AppendId, frame: Bytes },
    /// Hand attempts to a lane's session.
    Send { lane_no: LaneNo, attempts: Vec<AdmittedAttempt> },
    /// Give up a lane's session, or the one in the making. What was handed over to it is still answered.
    CloseLane { lane_no: LaneNo },
    /// Open a lane's session and ask it about these attempts.
    OpenLane { target: Box<LaneTarget>, open: Vec<OpenAttempt> },
}

/// When there is something to do again without an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wake {
    pub(crate) earliest_ms: Option<i64>,
    pub(crate) monotonic: Option<Duration>,
}

/// What one [`Pump::advance`] came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Advance {
    /// Work and permits remain: advance again soon.
    pub(crate) has_more: bool,
}

pub(crate) struct Pump<S: Store> {
    config: WorkerConfig,
    run: OwnerRun,
    shard: Shard<S>,
    scheduler: Scheduler,
    outbox: Outbox,
    fence: FencePlan,
    lanes: LaneBook,
    unsettled: Unsettled,
    /// Answers that came after their attempt was given up as unknown, until that is in the log.
    late: BTreeMap<AttemptRef, Outcome>,
    actions: Vec<Action>,
    draining: bool,
}

impl<S: Store> Pump<S> {
    /// Takes over a shard whose log shows this run as its owner.
    ///
    /// # Errors
    /// When the store does not answer.
    pub(crate) fn new(
        config: WorkerConfig,
        run: OwnerRun,
        shard: Shard<S>,
        monotonic: Duration,
    ) -> Result<Pump<S>, StoreError> {
        let limits = shard
            .constitution()
            .map(|constitution| *constitution.limits())
            .ok_or_else(|| StoreError::Corrupt { detail: "a shard without genesis cannot be active".to_owned() })?;
        let scheduler =
            Scheduler::activate(config.scheduler, shard.store(), run.shard, |lane_no| shard.low_water_ms(lane_no))?;
        let entries_max =
            config.entries_per_record_max.min(usize::try_from(limits.entries_per_record_max).unwrap_or(usize::MAX));
        let paces = FencePaces {
            interval_max: config.fence_interval_max,
            interval_min: config.fence_interval_min,
            margin_ms: limits.fence_margin_ms,
        };
        let publishing = query::publishing_attempts(shard.store())?;
        let unsettled = Unsettled::load(shard.store(), scheduler.lanes().keys().copied(), &publishing)?;
        let mut recovering: BTreeMap<LaneNo, Vec<OpenAttempt>> = BTreeMap::new();
        for attempt in publishing {
            recovering.entry(attempt.lane_no).or_default().push(attempt);
        }
        let lanes = LaneBook::new(&config, scheduler.lanes().keys().copied(), recovering, monotonic);
        Ok(Pump {
            outbox: Outbox::new(run.clone(), config.records_in_flight_max, entries_max, config.append_retry_delay),
            fence: FencePlan::new(paces, monotonic),
            config,
            run,
            shard,
            scheduler,
            lanes,
            unsettled,
            late: BTreeMap::new(),
            actions: Vec::new(),
            draining: false,
        })
    }

    pub(crate) fn shard(&self) -> &Shard<S> {
        &self.shard
    }

    /// What is under way, for the worker's budget.
    pub(crate) fn load(&self) -> Load {
        self.scheduler.load()
    }

    /// The epoch of another run that the log shows behind this one's: whatever the metadata store says, this run is over.
    pub(crate) fn overtaken_by(&self) -> Option<u64> {
        let progress = self.shard.progress()?;
        let is_ours = progress.owner_epoch == self.run.epoch && progress.worker_run_id[..] == self.run.worker_run_id;
        (!is_ours).then_some(progress.owner_epoch)
    }

    pub(crate) fn take_actions(&mut self) -> Vec<Action> {
        std::mem::take(&mut self.actions)
    }

    /// Applies records that were read back from the log and acts on what they admitted and changed.
    ///
    /// # Errors
    /// [`RunError`]; the pump must not be used after one.
    pub(crate) fn records(&mut self, run: &[SourceRecord]) -> Result<Committed, RunError> {
        let committed = self.shard.commit(run)?;
        self.close_rebound(committed.effects());
        let admissions =
            committed.admit(self.scheduler.claims_mut(), self.run.shard, self.run.epoch, self.run.worker_run_id);
        self.send(admissions.attempts);
        for unclaimed in admissions.unclaimed {
            let attempt =
                AttemptRef { message: unclaimed.message, generation: unclaimed.generation, attempt: unclaimed.attempt };
            self.outbox.outcome(attempt, outcome_entry(attempt, never_sent(attempt)));
        }
        self.scheduler.observe(committed.effects(), self.shard.store()).map_err(shard::machine::ApplyError::from)?;
        for effect in committed.effects() {
            self.observe(effect);
        }
        for (lane_no, at_ms) in self.scheduler.take_low_water() {
            self.shard.raise_low_water(lane_no, at_ms);
        }
        Ok(committed)
    }

    /// Sessions on a topic that its profile has left are over before anything more is sent: what is admitted behind a rebinding
    /// goes to the new one.
    fn close_rebound(&mut self, effects: &[Effect]) {
        for effect in effects {
            let Effect::ProfileRebound { profile_id } = effect else { continue };
            for lane_no in self.scheduler.lanes_of(profile_id) {
                self.lanes.rebound(lane_no);
                self.actions.push(Action::CloseLane { lane_no });
            }
        }
    }

    /// Attempts of a lane without session are certainly not sent, which is nobody's failure.
    fn send(&mut self, attempts: Vec<AdmittedAttempt>) {
        let mut by_lane: BTreeMap<LaneNo, Vec<AdmittedAttempt>> = BTreeMap::new();
        for attempt in attempts {
            by_lane.entry(attempt.lane_no()).or_default().push(attempt);
        }
        for (lane_no, attempts) in by_lane {
            if self.lanes.is_open(lane_no) {
                self.actions.push(Action::Send { lane_no, attempts });
                continue;
            }
            for attempt in attempts.iter().map(admitted_ref) {
                self.outbox.outcome(attempt, outcome_entry(attempt, never_sent(attempt)));
            }
        }
    }

    fn observe(&mut self, effect: &Effect) {
        match effect {
            Effect::Admitted { admission, .. } => self.unsettled.admitted(admission),
            Effect::AttemptSettled { message, generation, attempt, admission, uncertain, .. } => {
                let attempt = AttemptRef { message: *message, generation: *generation, attempt: *attempt };
                self.unsettled.settled(admission, attempt, *uncertain);
                if let Some(outcome) = self.late.remove(&attempt)
                    && *uncertain
                {
                    self.outbox.resolution(attempt, outcome);
                }
            }
            Effect::DeadlineSet { expire_at_ms } => self.fence.deadline_set(*expire_at_ms),
            Effect::SweepUnfinished => self.fence.sweep_unfinished(),
            Effect::LaneChanged { lane_no } => self.lanes.found(*lane_no),
            Effect::WorkWaiting { .. }
            | Effect::WorkGone { .. }
            | Effect::Ended { .. }
            | Effect::ProfileGateChanged { .. }
            | Effect::ProfileRebound { .. }
            | Effect::OwnerChanged { .. } => {}
        }
    }

    /// Does what time, permits and open lanes allow now.
    ///
    /// # Errors
    /// When the store does not answer.
    pub(crate) fn advance(
        &mut self,
        now: Reading,
        carried: TrustedInterval,
        monotonic: Duration,
        budget: Load,
    ) -> Result<Advance, StoreError> {
        let mut advance = Advance::default();
        self.open_lanes(monotonic)?;
        for (id, frame) in self.outbox.retry(monotonic) {
            self.actions.push(Action::Append { id, frame });
        }
        if let Some(now) = now.interval() {
            // Claims that no record has room for would only stand in the way of those that are due later and of another lane: a
            // backlog goes out a record at a time, and each has every lane in it.
            if !self.draining && self.outbox.admission_room().is_some() {
                let turn = self.scheduler.turn(self.shard.store(), now, monotonic, budget)?;
                advance.has_more = turn.has_more;
                self.outbox.refuse(turn.refusals);
                self.propose(now);
            }
            self.close_deadlines(now, monotonic)?;
        }
        for (id, frame) in self.outbox.flush(carried) {
            self.actions.push(Action::Append { id, frame });
        }
        Ok(advance)
    }

    fn propose(&mut self, now: TrustedInterval) {
        while let Some(entries_max) = self.outbox.admission_room() {
            let entries = self.scheduler.propose(now, entries_max);
            if entries.is_empty() {
                return;
            }
            let (id, frame) = self.outbox.admit(entries, now);
            self.actions.push(Action::Append { id, frame });
        }
    }

    fn close_deadlines(&mut self, now: TrustedInterval, monotonic: Duration) -> Result<(), StoreError> {
        if !self.outbox.has_fence_room() {
            return Ok(());
        }
        let Some(reason) = self.fence.due(now, monotonic) else { return Ok(()) };
        let close_through_ms = self.fence.close_through_ms(now);
        if reason == FenceReason::Deadline {
            // The bound may be of a message that has ended since: only a deadline that stands is worth a record.
            let earliest = query::earliest_deadline_ms(self.shard.store(), self.shard.expiry_floor_ms())?;
            self.fence.deadline_found(earliest);
            if earliest.is_none_or(|earliest_ms| earliest_ms > close_through_ms) {
                return Ok(());
            }
        }
        let (id, frame) = self.outbox.fence(close_through_ms, self.config.expire_per_fence_max, now);
        self.actions.push(Action::Append { id, frame });
        self.fence.appended(monotonic);
        Ok(())
    }

    fn open_lanes(&mut self, monotonic: Duration) -> Result<(), StoreError> {
        if self.draining {
            return Ok(());
        }
        for lane_no in self.lanes.due_to_open(monotonic) {
            let Some(lane) = self.scheduler.lanes().get(&lane_no) else { continue };
            let profile = self
                .shard
                .bindings()
                .and_then(|bindings| bindings.profile(&lane.profile_id, lane.profile_version))
                .ok_or_else(|| StoreError::Corrupt { detail: format!("lane {} has no profile", lane_no.0) })?;
            let target = Box::new(LaneTarget {
                shard: self.run.shard,
                lane_no,
                profile_id: lane.profile_id.clone(),
                profile_version: lane.profile_version,
                profile: profile.in_force(),
                partition: lane.partition,
                owner_epoch: self.run.epoch,
            });
            let mut open = query::uncertain_attempts(self.shard.store(), lane_no)?;
            open.extend(self.lanes.recovering(lane_no));
            self.actions.push(Action::OpenLane { target, open });
        }
        for attempt in self.lanes.overdue_recoveries(monotonic) {
            self.unknown(attempt, StableCode::RecoveryFirstSendUncertain);
        }
        Ok(())
    }

    /// A lane's session is open, and says what it knows of the attempts it was asked about. What of them is still publishing
    /// and unknown to it, nobody can vouch for.
    pub(crate) fn lane_opened(
        &mut self,
        lane_no: LaneNo,
        resolved: Vec<(AttemptRef, AttemptOutcome)>,
        monotonic: Duration,
    ) {
        let mut publishing = self.lanes.opened(lane_no, monotonic);
        for (attempt, outcome) in resolved {
            let was_publishing = publishing.iter().position(|open| attempt_ref(open) == attempt);
            match was_publishing {
                Some(index) => {
                    publishing.swap_remove(index);
                    self.outbox.outcome(attempt, outcome_entry(attempt, outcome));
                }
                None if outcome.result == AttemptResult::Unknown => {}
                None => self.outbox.resolution(attempt, outcome_entry(attempt, outcome)),
            }
        }
        for open in publishing {
            self.unknown(attempt_ref(&open), StableCode::RecoveryFirstSendUncertain);
        }
        self.scheduler.lane_ready(lane_no);
    }

    /// A lane's session could not be opened.
    pub(crate) fn lane_not_opened(&mut self, lane_no: LaneNo, error: &LaneError, monotonic: Duration) {
        self.lanes.failed(lane_no, error, monotonic);
        self.scheduler.lane_blocked(lane_no, error.code);
    }

    /// A lane's session is over or in doubt.
    pub(crate) fn lane_lost(&mut self, lane_no: LaneNo, error: &LaneError, monotonic: Duration) {
        self.lanes.lost(lane_no, error, monotonic);
        self.scheduler.lane_blocked(lane_no, error.code);
    }

    /// A destination's answers.
    pub(crate) fn outcomes(
        &mut self,
        lane_no: LaneNo,
        answers: Vec<(AttemptRef, AttemptOutcome)>,
        monotonic: Duration,
    ) {
        for (attempt, outcome) in answers {
            match &outcome.result {
                AttemptResult::NotPublished { disposition: Disposition::LaneUnavailable, .. }
                | AttemptResult::Unknown => self.scheduler.lane_failed(lane_no, monotonic),
                AttemptResult::Published(_) | AttemptResult::NotPublished { .. } => {
                    self.scheduler.lane_succeeded(lane_no);
                }
            }
            self.outbox.outcome(attempt, outcome_entry(attempt, outcome));
        }
    }

    /// Attempts whose answers did not come in time: unknown, whatever may still come. The request itself is still out, so it
    /// goes on holding permits.
    pub(crate) fn overdue(&mut self, lane_no: LaneNo, attempts: Vec<AttemptRef>, monotonic: Duration) {
        self.scheduler.lane_failed(lane_no, monotonic);
        for attempt in attempts {
            if planted::is(Mistake::LostAckIsFailure) {
                self.outbox.outcome(attempt, outcome_entry(attempt, never_sent(attempt)));
                continue;
            }
            self.scheduler.hold(lane_no, attempt.message);
            self.unknown(attempt, StableCode::DestinationOutcomeUnknown);
        }
    }

    /// Answers to attempts that were given up as unknown.
    pub(crate) fn late_outcomes(&mut self, lane_no: LaneNo, answers: Vec<(AttemptRef, AttemptOutcome)>) {
        for (attempt, outcome) in answers {
            self.scheduler.let_go(lane_no, attempt.message);
            if outcome.result == AttemptResult::Unknown {
                continue;
            }
            let entry = outcome_entry(attempt, outcome);
            if self.outbox.correct_outcome(attempt, &entry) {
                continue;
            }
            if self.scheduler.is_sent(attempt.message, attempt.attempt) {
                self.late.insert(attempt, entry);
            } else {
                self.outbox.resolution(attempt, entry);
            }
        }
    }

    fn unknown(&mut self, attempt: AttemptRef, code: StableCode) {
        self.outbox.outcome(attempt, outcome_entry(attempt, AttemptOutcome::unknown(code)));
    }

    /// The log's answer to an append of ours.
    pub(crate) fn answered(&mut self, id: AppendId, result: Result<(), AppendError>, monotonic: Duration) {
        match self.outbox.answered(id, result, monotonic) {
            Answered::Appended => {}
            Answered::NotAppended(Cargo::Admissions(entries)) => self.scheduler.withdraw(&entries),
            Answered::NotAppended(Cargo::Fence) => self.fence.deadline_set(0),
            Answered::NotAppended(Cargo::Outcomes(_) | Cargo::Resolutions(_) | Cargo::Refusals(_)) => {}
        }
    }

    /// Admits nothing more; what is under way is finished.
    pub(crate) fn drain(&mut self) {
        self.draining = true;
        self.scheduler.stop_claiming();
    }

    /// Whether nothing is under way any more.
    pub(crate) fn is_drained(&self) -> bool {
        self.draining && self.scheduler.load().messages == 0 && self.outbox.is_empty()
    }

    /// Every attempt admitted before this order token has its final word. `None` before the first record.
    ///
    /// # Errors
    /// When the store does not answer.
    pub(crate) fn settled_before(&mut self) -> Result<Option<Bytes>, StoreError> {
        let applied = self.shard.applied_position().map(|position| position.order_token());
        let first = self.unsettled.first(self.shard.store())?.filter(|_| !planted::is(Mistake::ForgetEvidence));
        Ok(first.or_else(|| applied.map(|order_token| Bytes::copy_from_slice(order_token.as_bytes()))))
    }

    /// When to advance next if nothing happens before. Only what [`Pump::advance`] would do then counts: waking up for the rest
    /// would be waking up for nothing, over and over.
    pub(crate) fn wake(&self, now: Reading) -> Wake {
        let lanes = self.lanes.wake().filter(|_| !self.draining);
        let retry_at = self.outbox.retry_at();
        if now.interval().is_none() {
            return Wake { earliest_ms: None, monotonic: lanes.into_iter().chain(retry_at).min() };
        }
        let scheduler = if self.draining { SchedulerWake::default() } else { self.scheduler.wake() };
        let (deadline_ms, fence_at) = self.fence.wake();
        let due = scheduler.earliest_ms.filter(|_| self.outbox.admission_room().is_some());
        let deadline_ms = deadline_ms.filter(|_| self.outbox.has_fence_room());
        let fence_at = Some(fence_at).filter(|_| self.outbox.has_fence_room());
        let monotonic = [lanes, retry_at, scheduler.monotonic, fence_at];
        Wake { earliest_ms: due.into_iter().chain(deadline_ms).min(), monotonic: monotonic.into_iter().flatten().min() }
    }

    /// What operators see of the lanes, with what their sessions remark.
    pub(crate) fn lane_reports(&self, remark: impl Fn(LaneNo) -> Option<LaneError>) -> Vec<LaneReport> {
        let report = |(lane_no, lane): (&LaneNo, &shard::schedule::lane::Lane)| {
            let paused = self.scheduler.is_paused(&lane.profile_id);
            LaneReport::new(*lane_no, lane, paused, self.lanes.detail(*lane_no), remark(*lane_no))
        };
        self.scheduler.lanes().iter().map(report).collect()
    }

    /// Lets the store drop what has logically ended.
    pub(crate) fn release_ended(&mut self) {
        self.shard.release_ended();
    }
}

/// The answer to an attempt that certainly never left this process.
pub(crate) fn never_sent(attempt: AttemptRef) -> AttemptOutcome {
    let kind = AbsenceKind::NotSubmitted;
    AttemptOutcome::not_published(attempt, Disposition::LaneUnavailable, kind, StableCode::CapabilityUnavailable)
}

/// An answer as the log carries it.
fn outcome_entry(attempt: AttemptRef, outcome: AttemptOutcome) -> Outcome {
    let AttemptRef { message, generation, attempt } = attempt;
    Outcome { message, generation, attempt, result: outcome.result, code: outcome.code }
}
