//! The lane scheduler of one shard: what is due is claimed fairly, made ready ahead of its time, and proposed at it.
//!
//! A plain struct that takes events and the time and returns what to do; the worker's shell carries it out. It never sleeps
//! while due work and permits remain: [`Scheduler::turn`] goes on until one of them is used up, and [`Scheduler::wake`] says
//! when there can be more.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use clock::TrustedInterval;
use protocol::code::StableCode;
use protocol::command::ScheduleIntent;
use protocol::id::{MessageId, ShardId};
use protocol::mutation_v2::{Admission, Refusal};

use super::circuit::{Allowance, Circuit, CircuitConfig};
use super::claim::{Claim, Claims, Material, Progress};
use super::lane::{Lane, LinedUp, Load, Readiness};
use super::outgoing::OutgoingRecord;
use super::round_robin::{RoundRobin, RoundRobinConfig};
use super::window::{DueWindow, Waiting};
use crate::effect::Effect;
use crate::planted::{self, Mistake};
use crate::state::keys::meta;
use crate::state::keys::timeline::{self, DueKey};
use crate::state::{LaneNo, MessageUuid, Seq, envelope, message_uuid, row};
use crate::store::{Family, Read, StoreError};

/// A lane's low-water mark is worth raising after this many of its keys are gone.
const KEYS_GONE_BEFORE_MARK: usize = 4_096;

/// Sizes and paces of a scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SchedulerConfig {
    /// Keys of one lane in memory.
    pub window_entries_max: usize,
    /// Keys read from the timeline at once.
    pub page_length: usize,
    /// Pages read in one turn.
    pub pages_per_turn_max: usize,
    /// How far ahead of now keys are kept in memory.
    pub window_ahead_ms: i64,
    /// How long before its time a message is made ready.
    pub claim_lead_ms: i64,
    /// Messages claimed in one turn.
    pub claims_per_turn_max: usize,
    /// What one lane may have under way.
    pub lane_load_max: Load,
    /// What the shard may have under way.
    pub shard_load_max: Load,
    /// The fair shares of lanes.
    pub round_robin: RoundRobinConfig,
    /// How long circuits stay open.
    pub circuit: CircuitConfig,
}

/// When a scheduler has something to do again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wake {
    /// When trusted time is certainly at or behind this.
    pub earliest_ms: Option<i64>,
    /// At this monotonic time.
    pub monotonic: Option<Duration>,
}

/// What a turn found out beside its claims.
#[derive(Debug, Default)]
pub struct Turn {
    /// How many messages were claimed.
    pub claimed: usize,
    /// Messages that can never be sent, to be refused through the log.
    pub refusals: Vec<Refusal>,
    /// The turn ended at a bound, not for want of work: take another.
    pub has_more: bool,
}

/// The scheduler of one shard, owned by its owner.
#[derive(Debug)]
pub struct Scheduler {
    config: SchedulerConfig,
    shard: ShardId,
    /// How far the log's clock may be off (D): nothing is proposed that could be persisted too late.
    broker_time_divergence_ms: i64,
    lanes: BTreeMap<LaneNo, Lane>,
    paused_profiles: BTreeSet<Bytes>,
    /// Lanes by the time their first key can be claimed.
    by_time: BTreeSet<(i64, LaneNo)>,
    /// Lanes by the end of their circuit's pause.
    by_pause: BTreeSet<(Duration, LaneNo)>,
    /// The monotonic time of the last turn or failure: pauses that ended before it are over.
    monotonic: Duration,
    ring: RoundRobin<LaneNo>,
    claims: Claims,
    load: Load,
    /// Requests whose attempt is settled as unknown while the request itself is still out, with what they hold.
    held: BTreeMap<(LaneNo, MessageUuid), u64>,
    /// Refused messages whose refusal is not in the log yet: they wait in the timeline still, and are not taken up again.
    refused: BTreeMap<MessageUuid, (LaneNo, DueKey)>,
    claiming: bool,
}

/// A key that was taken out of a window and is not a claim yet.
struct Picked {
    lane_no: LaneNo,
    key: DueKey,
    waiting: Waiting,
    cost: u64,
}

impl Scheduler {
    /// A scheduler over the lanes of a store, with every lane waiting for a session. `low_water_ms` says from where each
    /// lane's timeline may be read.
    ///
    /// # Errors
    /// When the store does not answer.
    pub fn activate(
        config: SchedulerConfig,
        store: &dyn Read,
        shard: ShardId,
        low_water_ms: impl Fn(LaneNo) -> i64,
    ) -> Result<Scheduler, StoreError> {
        let progress: row::Progress = match store.get(Family::Meta, meta::PROGRESS)? {
            Some(value) => envelope::decode(&value)?,
            None => row::Progress::default(),
        };
        let mut scheduler = Scheduler {
            config,
            shard,
            broker_time_divergence_ms: 0,
            lanes: BTreeMap::new(),
            paused_profiles: BTreeSet::new(),
            by_time: BTreeSet::new(),
            by_pause: BTreeSet::new(),
            monotonic: Duration::ZERO,
            ring: RoundRobin::new(config.round_robin),
            claims: Claims::default(),
            load: Load::default(),
            held: BTreeMap::new(),
            refused: BTreeMap::new(),
            claiming: true,
        };
        let Some(constitution) = crate::state::constitution::Constitution::load(store)? else { return Ok(scheduler) };
        scheduler.broker_time_divergence_ms = constitution.limits().broker_time_divergence_ms_max;
        for number in 1..=progress.lane_no_last {
            let lane_no = LaneNo(number);
            let from = DueKey { eligible_at_ms: low_water_ms(lane_no), seq: Seq(0) };
            scheduler.add_lane(lane_no, store, DueWindow::unread(from))?;
        }
        let bindings = crate::state::constitution::Bindings::load(store)?;
        for (profile_id, _, _) in bindings.profiles() {
            if bindings.is_paused(profile_id) {
                scheduler.paused_profiles.insert(Bytes::copy_from_slice(profile_id));
            }
        }
        Ok(scheduler)
    }

    fn add_lane(&mut self, lane_no: LaneNo, store: &dyn Read, window: DueWindow) -> Result<(), StoreError> {
        let row = lane_row(store, lane_no)?;
        let mut lane =
            Lane::new(row.profile_id.clone(), row.profile_version, row.partition, window, self.config.circuit);
        lane.gate_open = row.gate() == row::Gate::Open;
        self.lanes.insert(lane_no, lane);
        self.line_up(lane_no);
        Ok(())
    }

    /// The lanes.
    pub fn lanes(&self) -> &BTreeMap<LaneNo, Lane> {
        &self.lanes
    }

    /// Everything under way.
    pub fn load(&self) -> Load {
        self.load
    }

    /// The claims, for [`Committed::admit`](crate::commit::Committed::admit).
    pub fn claims_mut(&mut self) -> &mut Claims {
        &mut self.claims
    }

    /// Whether a profile's gate is closed.
    pub fn is_paused(&self, profile_id: &[u8]) -> bool {
        self.paused_profiles.contains(profile_id)
    }

    /// Takes in what a commit changed. Its admissions must have been taken before
    /// ([`Committed::admit`](crate::commit::Committed::admit)).
    ///
    /// # Errors
    /// When the store does not answer.
    pub fn observe(&mut self, effects: &[Effect], store: &dyn Read) -> Result<(), StoreError> {
        for effect in effects {
            match effect {
                Effect::WorkWaiting { lane_no, key, message, generation, log_rev, payload_bytes } => {
                    let waiting = Waiting { message: *message, generation: *generation, payload_bytes: *payload_bytes };
                    self.work_waiting(*lane_no, *key, waiting, *log_rev);
                }
                Effect::WorkGone { lane_no, key, message } => self.work_gone(*lane_no, *key, *message),
                Effect::AttemptSettled { message, attempt, .. } => {
                    let sent = Progress::Sent { attempt: *attempt };
                    if self.claims.get(*message).is_some_and(|claim| claim.progress == sent) {
                        self.release(*message);
                    }
                }
                Effect::LaneChanged { lane_no } => match self.lanes.get_mut(lane_no) {
                    None => self.add_lane(*lane_no, store, DueWindow::empty())?,
                    Some(lane) => {
                        lane.gate_open = lane_row(store, *lane_no)?.gate() == row::Gate::Open;
                        self.gate_changed(*lane_no);
                    }
                },
                Effect::ProfileGateChanged { profile_id, paused } => self.profile_gate_changed(profile_id, *paused),
                Effect::ProfileRebound { profile_id } => self.profile_rebound(profile_id),
                Effect::Admitted { .. }
                | Effect::Ended { .. }
                | Effect::DeadlineSet { .. }
                | Effect::SweepUnfinished
                | Effect::OwnerChanged { .. } => {}
            }
        }
        Ok(())
    }

    fn work_waiting(&mut self, lane_no: LaneNo, key: DueKey, waiting: Waiting, log_rev: u64) {
        let claim = self.claims.get(waiting.message);
        if claim.is_some_and(|claim| claim.log_rev == log_rev && claim.generation == waiting.generation) {
            return;
        }
        // What was made ready, or refused, is of an older revision.
        self.release(waiting.message);
        self.refused.remove(&waiting.message);
        let entries_max = self.config.window_entries_max;
        if let Some(lane) = self.lanes.get_mut(&lane_no) {
            lane.window.insert(key, waiting, entries_max);
            self.line_up(lane_no);
        }
    }

    fn work_gone(&mut self, lane_no: LaneNo, key: DueKey, message: MessageUuid) {
        let claim = self.claims.get(message);
        if claim.is_some_and(|claim| claim.key == key && !matches!(claim.progress, Progress::Sent { .. })) {
            self.release(message);
        }
        self.refused.remove(&message);
        if let Some(lane) = self.lanes.get_mut(&lane_no) {
            lane.window.remove(key);
            lane.keys_gone += 1;
        }
    }

    fn profile_gate_changed(&mut self, profile_id: &Bytes, paused: bool) {
        if paused {
            self.paused_profiles.insert(profile_id.clone());
        } else {
            self.paused_profiles.remove(profile_id);
        }
        for lane_no in self.lanes_of(profile_id) {
            self.gate_changed(lane_no);
        }
    }

    /// The lanes of a profile wait for sessions on its other topic, of which no trouble is known.
    fn profile_rebound(&mut self, profile_id: &Bytes) {
        for lane_no in self.lanes_of(profile_id) {
            if let Some(lane) = self.lanes.get_mut(&lane_no) {
                lane.readiness = Readiness::RecoveringEvidence;
                lane.circuit = Circuit::new(self.config.circuit);
                lane.probe = None;
                self.gate_changed(lane_no);
            }
        }
    }

    /// The lanes of every version of a profile.
    pub fn lanes_of(&self, profile_id: &[u8]) -> Vec<LaneNo> {
        self.lanes.iter().filter(|(_, lane)| lane.profile_id == profile_id).map(|(lane_no, _)| *lane_no).collect()
    }

    /// A lane may be asked for work now, or not any more.
    fn gate_changed(&mut self, lane_no: LaneNo) {
        let Some(lane) = self.lanes.get(&lane_no) else { return };
        if lane.gate_open && !self.paused_profiles.contains(&lane.profile_id) && lane.readiness == Readiness::Ready {
            self.line_up(lane_no);
        } else {
            self.revoke(lane_no);
        }
    }

    /// A session is open and verified: the lane offers work.
    pub fn lane_ready(&mut self, lane_no: LaneNo) {
        if let Some(lane) = self.lanes.get_mut(&lane_no) {
            lane.readiness = Readiness::Ready;
            self.gate_changed(lane_no);
        }
    }

    /// The session is gone or in doubt: nothing more is claimed, and nothing that is only ready goes out.
    pub fn lane_blocked(&mut self, lane_no: LaneNo, code: StableCode) {
        if let Some(lane) = self.lanes.get_mut(&lane_no) {
            lane.readiness = Readiness::Blocked(code);
            self.gate_changed(lane_no);
        }
    }

    /// The lane's destination worked.
    pub fn lane_succeeded(&mut self, lane_no: LaneNo) {
        if let Some(lane) = self.lanes.get_mut(&lane_no) {
            lane.circuit.succeeded();
            self.line_up(lane_no);
        }
    }

    /// The lane's destination failed as a whole.
    pub fn lane_failed(&mut self, lane_no: LaneNo, now: Duration) {
        self.monotonic = self.monotonic.max(now);
        if let Some(lane) = self.lanes.get_mut(&lane_no) {
            lane.circuit.failed(now);
            self.revoke(lane_no);
            self.line_up(lane_no);
        }
    }

    /// Puts what is only ready back in line. What is proposed or sent goes its way through the log.
    fn revoke(&mut self, lane_no: LaneNo) {
        let entries_max = self.config.window_entries_max;
        for message in self.claims.of_lane(lane_no) {
            if self.claims.get(message).is_none_or(|claim| claim.progress != Progress::Ready) {
                continue;
            }
            let Some(claim) = self.release(message) else { continue };
            let payload_bytes = u32::try_from(claim.cost).unwrap_or(u32::MAX);
            let waiting = Waiting { message, generation: claim.generation, payload_bytes };
            if let Some(lane) = self.lanes.get_mut(&lane_no) {
                lane.window.insert(claim.key, waiting, entries_max);
            }
        }
        self.ring.remove(lane_no);
    }

    /// A request is out beyond its deadline: it holds permits until [`Scheduler::let_go`], whatever becomes of its attempt.
    pub fn hold(&mut self, lane_no: LaneNo, message: MessageUuid) {
        let Some(cost) = self.claims.get(message).map(|claim| claim.cost) else { return };
        if self.held.insert((lane_no, message), cost).is_none() {
            self.load.add(cost);
            if let Some(lane) = self.lanes.get_mut(&lane_no) {
                lane.load.add(cost);
            }
        }
    }

    /// A request that was held is over.
    pub fn let_go(&mut self, lane_no: LaneNo, message: MessageUuid) {
        let Some(cost) = self.held.remove(&(lane_no, message)) else { return };
        self.load.sub(cost);
        if let Some(lane) = self.lanes.get_mut(&lane_no) {
            lane.load.sub(cost);
        }
        self.line_up(lane_no);
    }

    /// Whether this attempt was handed over and has no outcome in the log yet.
    pub fn is_sent(&self, message: MessageUuid, attempt: u32) -> bool {
        self.claims.get(message).is_some_and(|claim| claim.progress == Progress::Sent { attempt })
    }

    /// Claims nothing more and gives up what is only ready. What is proposed or sent goes its way.
    pub fn stop_claiming(&mut self) {
        self.claiming = false;
        let lanes: Vec<LaneNo> = self.lanes.keys().copied().collect();
        for lane_no in lanes {
            self.revoke(lane_no);
        }
    }

    /// Gives up a claim and its permits.
    fn release(&mut self, message: MessageUuid) -> Option<Claim> {
        let claim = self.claims.remove(message)?;
        self.load.sub(claim.cost);
        if let Some(lane) = self.lanes.get_mut(&claim.lane_no) {
            lane.give_back(message, claim.cost);
        }
        self.line_up(claim.lane_no);
        Some(claim)
    }

    /// Puts a lane where the next turn finds it: by the time of its first key, or by the end of its circuit's pause. A lane
    /// that may not be asked, or has no permits left, is found again when that changes.
    fn line_up(&mut self, lane_no: LaneNo) {
        let Some(lane) = self.lanes.get_mut(&lane_no) else { return };
        match lane.lined_up.take() {
            Some(LinedUp::ByTime(at_ms)) => {
                self.by_time.remove(&(at_ms, lane_no));
            }
            Some(LinedUp::ByPause(until)) => {
                self.by_pause.remove(&(until, lane_no));
            }
            None => {}
        }
        let paused = self.paused_profiles.contains(&lane.profile_id);
        let Some(earliest_ms) = lane.window.earliest_ms() else { return };
        // The lane would not be offered what does not fit: it waits for permits, not for time.
        let cost = lane.window.first().map_or(0, |(_, waiting)| self.ring.cost(u64::from(waiting.payload_bytes)));
        if self.ring.contains(lane_no) || !lane.load.has_room(cost, self.config.lane_load_max) {
            return;
        }
        match lane.allowance(paused, self.monotonic) {
            Some(Allowance::All | Allowance::Probe) => {
                lane.lined_up = Some(LinedUp::ByTime(earliest_ms));
                self.by_time.insert((earliest_ms, lane_no));
            }
            Some(Allowance::NothingUntil(until)) => {
                lane.lined_up = Some(LinedUp::ByPause(until));
                self.by_pause.insert((until, lane_no));
            }
            Some(Allowance::NothingUntilProbed) | None => {}
        }
    }

    /// When the next turn can do something that this one could not.
    pub fn wake(&self) -> Wake {
        let claimable = self.by_time.first().map(|(at_ms, _)| at_ms.saturating_sub(self.config.claim_lead_ms));
        let ready = self.claims.ready().next().map(|(_, claim)| claim.key.eligible_at_ms);
        // A shard without permits is woken by what gives them back.
        let claimable = claimable.filter(|_| self.load.has_room(0, self.config.shard_load_max));
        Wake {
            earliest_ms: claimable.into_iter().chain(ready).min(),
            monotonic: self.by_pause.first().map(|(until, _)| *until),
        }
    }

    /// Claims what is due within the lead, fairly across lanes, until it, the permits or `budget` are used up.
    ///
    /// # Errors
    /// When the store does not answer; claims taken before stand.
    pub fn turn(
        &mut self,
        store: &dyn Read,
        now: TrustedInterval,
        monotonic: Duration,
        budget: Load,
    ) -> Result<Turn, StoreError> {
        let mut turn = Turn::default();
        if !self.claiming {
            return Ok(turn);
        }
        let mut picked = Vec::new();
        let mut pages_left = self.config.pages_per_turn_max;
        let mut spent = Load::default();
        self.join_due_lanes(now, monotonic);
        while let Some((lane_no, deficit)) = self.ring.turn(|_| 1) {
            if picked.len() >= self.config.claims_per_turn_max || pages_left == 0 {
                turn.has_more = true;
                break;
            }
            match self.pick(lane_no, deficit, store, now, monotonic, &mut pages_left)? {
                Pick::Item(item)
                    if spent.has_room(item.cost, budget)
                        && self.load.has_room(item.cost, self.config.shard_load_max) =>
                {
                    spent.add(item.cost);
                    self.take(&item);
                    picked.push(item);
                }
                // No permits: the lane keeps its place, and what it wanted.
                Pick::Item(_) => break,
                Pick::NotThisRound => self.ring.pass(),
                Pick::Nothing => {
                    self.ring.leave();
                    self.line_up(lane_no);
                }
            }
        }
        turn.claimed = picked.len();
        self.materialise(picked, store, now, &mut turn)?;
        Ok(turn)
    }

    fn join_due_lanes(&mut self, now: TrustedInterval, monotonic: Duration) {
        let through_ms = now.earliest_ms().saturating_add(self.config.claim_lead_ms);
        self.monotonic = self.monotonic.max(monotonic);
        // A lane whose pause is over waits for the time of its first key as any other.
        while let Some((_, lane_no)) = self.by_pause.first().copied().filter(|(until, _)| *until <= monotonic) {
            self.line_up(lane_no);
        }
        while let Some((at_ms, lane_no)) = self.by_time.first().copied().filter(|(at_ms, _)| *at_ms <= through_ms) {
            self.by_time.remove(&(at_ms, lane_no));
            self.join(lane_no);
        }
    }

    fn join(&mut self, lane_no: LaneNo) {
        if let Some(lane) = self.lanes.get_mut(&lane_no) {
            lane.lined_up = None;
            self.ring.join(lane_no);
        }
    }

    /// What the lane whose turn it is offers next. Nothing is taken.
    fn pick(
        &mut self,
        lane_no: LaneNo,
        deficit: u64,
        store: &dyn Read,
        now: TrustedInterval,
        monotonic: Duration,
        pages_left: &mut usize,
    ) -> Result<Pick, StoreError> {
        let Some(lane) = self.lanes.get_mut(&lane_no) else { return Ok(Pick::Nothing) };
        let paused = self.paused_profiles.contains(&lane.profile_id);
        if !matches!(lane.allowance(paused, monotonic), Some(Allowance::All | Allowance::Probe)) {
            return Ok(Pick::Nothing);
        }
        if planted::is(Mistake::StarveLane) && lane_no.0 == 1 {
            return Ok(Pick::Nothing);
        }
        let through_ms = now.earliest_ms().saturating_add(self.config.claim_lead_ms);
        let (key, waiting) = loop {
            while needs_page(&lane.window, through_ms) {
                if *pages_left == 0 {
                    return Ok(Pick::NotThisRound);
                }
                *pages_left -= 1;
                let horizon_ms = now.latest_ms().saturating_add(self.config.window_ahead_ms);
                read_page(store, lane_no, &mut lane.window, horizon_ms, &self.config)?;
            }
            let Some((key, waiting)) = lane.window.first().filter(|(key, _)| key.eligible_at_ms <= through_ms) else {
                return Ok(Pick::Nothing);
            };
            // A page shows everything that waits, also what was taken up before the window shrank.
            let is_claimed = self.claims.get(waiting.message).is_some_and(|claim| claim.key == key);
            if !is_claimed && !self.refused.contains_key(&waiting.message) {
                break (key, waiting);
            }
            lane.window.pop_first();
        };
        let cost = self.ring.cost(u64::from(waiting.payload_bytes));
        if !lane.load.has_room(cost, self.config.lane_load_max) {
            return Ok(Pick::Nothing);
        }
        Ok(if cost > deficit { Pick::NotThisRound } else { Pick::Item(Picked { lane_no, key, waiting, cost }) })
    }

    /// Takes an item out of its window; it holds permits from here on.
    fn take(&mut self, item: &Picked) {
        self.ring.spend(item.lane_no, item.cost);
        self.load.add(item.cost);
        if let Some(lane) = self.lanes.get_mut(&item.lane_no) {
            lane.window.pop_first();
            lane.load.add(item.cost);
            if lane.circuit.claimed() {
                lane.probe = Some(item.waiting.message);
            }
        }
    }

    /// Fetches what the picked messages need to be sent and makes claims of them.
    fn materialise(
        &mut self,
        mut picked: Vec<Picked>,
        store: &dyn Read,
        now: TrustedInterval,
        turn: &mut Turn,
    ) -> Result<(), StoreError> {
        picked.sort_unstable_by_key(|item| item.waiting.message);
        let keys: Vec<&[u8]> = picked.iter().map(|item| &item.waiting.message.as_bytes()[..]).collect();
        let rows = store.get_many(Family::Messages, &keys)?;
        let payloads = store.get_many(Family::Payloads, &keys)?;
        for ((item, row), payload) in picked.into_iter().zip(rows).zip(payloads) {
            let row = row.map(|value| envelope::decode::<row::Message>(&value)).transpose()?;
            let Some(row) = row.filter(|row| row.due_key() == Some(item.key)) else {
                return Err(StoreError::Corrupt {
                    detail: format!("message {:?} is not what its due key says", item.waiting.message),
                });
            };
            let payload = payload.map(|value| envelope::body(&value)).transpose()?;
            match self.claim(&item, &row, payload) {
                Ok(claim) if may_still_be_admitted(&claim, now, self.broker_time_divergence_ms) => {
                    self.claims.insert(item.waiting.message, claim);
                }
                // Its deadline is too near: the fence ends it.
                Ok(_) => self.put_down(&item),
                Err(code) => {
                    self.put_down(&item);
                    self.refused.insert(item.waiting.message, (item.lane_no, item.key));
                    turn.refusals.push(Refusal {
                        message: item.waiting.message,
                        generation: row.generation,
                        log_rev: row.log_rev,
                        code,
                    });
                }
            }
        }
        Ok(())
    }

    fn claim(&self, item: &Picked, row: &row::Message, payload: Option<Bytes>) -> Result<Claim, StableCode> {
        let lane = self.lanes.get(&item.lane_no).ok_or(StableCode::ClaimPermanentFailure)?;
        let intent = payload.and_then(|payload| ScheduleIntent::decode(&payload).ok());
        let record =
            intent.and_then(|intent| OutgoingRecord::from_intent(&intent)).ok_or(StableCode::ClaimPermanentFailure)?;
        Ok(Claim {
            lane_no: item.lane_no,
            key: item.key,
            generation: row.generation,
            log_rev: row.log_rev,
            expire_at_ms: row.expire_at_ms,
            cost: item.cost,
            material: Some(Material {
                message_id: MessageId { shard: self.shard, uuid: item.waiting.message },
                business_key: row.business_key.clone(),
                deliver_at_ms: row.deliver_at_ms,
                profile_id: lane.profile_id.clone(),
                profile_version: lane.profile_version,
                partition: lane.partition,
                record,
            }),
            progress: Progress::Ready,
        })
    }

    /// A picked item that became no claim gives its permits back. It does not return to the window.
    fn put_down(&mut self, item: &Picked) {
        self.load.sub(item.cost);
        if let Some(lane) = self.lanes.get_mut(&item.lane_no) {
            lane.give_back(item.waiting.message, item.cost);
        }
        self.line_up(item.lane_no);
    }

    /// Names the ready claims that are certainly due in entries for an admission record, at most `entries_max`, ascending by
    /// message. Each is proposed from then on.
    pub fn propose(&mut self, now: TrustedInterval, entries_max: usize) -> Vec<Admission> {
        let mut due = Vec::new();
        let mut too_late = Vec::new();
        for (message, claim) in self.claims.ready() {
            let is_due = match planted::is(Mistake::DueByLatest) {
                true => now.latest_ms() >= claim.key.eligible_at_ms,
                false => now.is_due(claim.key.eligible_at_ms),
            };
            if due.len() >= entries_max || !is_due {
                break;
            }
            if may_still_be_admitted(claim, now, self.broker_time_divergence_ms) {
                due.push((message, claim.generation, claim.log_rev));
            } else {
                too_late.push(message);
            }
        }
        for message in too_late {
            self.release(message);
        }
        due.sort_unstable();
        for (message, _, _) in &due {
            self.claims.propose(*message);
        }
        let entry = |(message, generation, log_rev)| Admission { message, generation, log_rev, sequence: None };
        due.into_iter().map(entry).collect()
    }

    /// The record with these entries certainly did not reach the log: their claims are ready again.
    pub fn withdraw(&mut self, entries: &[Admission]) {
        for entry in entries {
            self.claims.withdraw(entry.message);
        }
    }

    /// Lanes whose low-water mark is worth raising, and to what time.
    pub fn take_low_water(&mut self) -> Vec<(LaneNo, i64)> {
        let mut marks = Vec::new();
        for (lane_no, lane) in &mut self.lanes {
            if lane.keys_gone < KEYS_GONE_BEFORE_MARK {
                continue;
            }
            lane.keys_gone = 0;
            let claimed = self.claims.of_lane(*lane_no).into_iter().filter_map(|message| self.claims.get(message));
            let claimed = claimed.map(|claim| claim.key.eligible_at_ms);
            let refused = self.refused.values().filter(|(refused, _)| refused == lane_no);
            let refused = refused.map(|(_, key)| key.eligible_at_ms);
            if let Some(at_ms) = lane.window.earliest_ms().into_iter().chain(claimed).chain(refused).min() {
                marks.push((*lane_no, at_ms));
            }
        }
        marks
    }
}

/// What a lane offers in its turn.
enum Pick {
    Item(Picked),
    /// It has due work that it cannot afford, or that is not read yet.
    NotThisRound,
    /// It has nothing due, or may not offer it.
    Nothing,
}

/// Whether something due may stand in the timeline before what is in memory.
fn needs_page(window: &DueWindow, through_ms: i64) -> bool {
    window
        .next_beyond()
        .is_some_and(|next| next.eligible_at_ms <= through_ms && window.first().is_none_or(|(first, _)| first >= next))
}

fn read_page(
    store: &dyn Read,
    lane_no: LaneNo,
    window: &mut DueWindow,
    horizon_ms: i64,
    config: &SchedulerConfig,
) -> Result<(), StoreError> {
    let Some(from) = window.next_beyond() else { return Ok(()) };
    let (from, until) = timeline::due_from(lane_no, from);
    let pairs = store.scan(Family::Timeline, &from, &until, config.page_length)?;
    let is_last = pairs.len() < config.page_length;
    let mut page = Vec::with_capacity(pairs.len());
    for (key, value) in &pairs {
        let (_, key) = DueKey::decode(key)?;
        let entry: row::TimelineEntry = envelope::decode(value)?;
        let message = message_uuid(&entry.message)
            .ok_or_else(|| StoreError::Corrupt { detail: "a due key names no message".to_owned() })?;
        page.push((key, Waiting { message, generation: entry.generation, payload_bytes: entry.payload_bytes }));
    }
    window.fill(page, horizon_ms, is_last, config.window_entries_max);
    Ok(())
}

/// Whether an admission decided now can still be persisted before the deadline.
fn may_still_be_admitted(claim: &Claim, now: TrustedInterval, divergence_ms: i64) -> bool {
    now.may_admit(claim.expire_at_ms.saturating_sub(divergence_ms))
}

fn lane_row(store: &dyn Read, lane_no: LaneNo) -> Result<row::Lane, StoreError> {
    let value = store
        .get(Family::Meta, &meta::lane(lane_no))?
        .ok_or_else(|| StoreError::Corrupt { detail: format!("lane {} has no row", lane_no.0) })?;
    envelope::decode(&value)
}
