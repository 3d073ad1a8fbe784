//! The life of one shard on this worker: acquire, restore, catch up, run, drain; fenced or failed when it must be.
//!
//! An async shell. It selects in a fixed order, so that one seed decides a simulated run, and it holds no decision that
//! [`Pump`](crate::pump::Pump) could take.

use std::cmp::Ordering;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use control::cas::{RecordError, Records};
use control::shard_control::{self, OwnerLease};
use ed25519_dalek::SigningKey;
use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use ports::env::Env;
use ports::log::{AppendError, Barrier, ReadError, ReadLimit, ShardLog};
use ports::metadata::{ChangeError, Session, WatchEvent};
use protocol::mutation_v2::{MutationBody, OwnerEpoch, Stamp};
use protocol::position::SourcePosition;
use shard::commit::{Committed, OpenError, RunError, Shard, ShardIdentity};
use shard::effect::Effect;
use shard::machine::SourceRecord;
use shard::planted::{self, Mistake};
use shard::store::{CommitError, Store, StoreError};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::budget::{Share, SharedBudget};
use crate::config::WorkerConfig;
use crate::handle::{EndWatchers, ShardHandle, ShardRequest, ShardStatus, Shared};
use crate::lifecycle::ShardLifecycle;
use crate::metrics::{Metrics, until_certainly};
use crate::outbox::{AppendId, OwnerRun};
use crate::pump::{Action, Pump};
use crate::quota::{QuotaWarning, QuotaWatch};
use crate::sessions::{Destinations, LaneEvent, Sessions};
use crate::successor;
use crate::verdicts::VerdictRing;

/// Lane events and requests that may wait for the loop.
const EVENTS_WAITING_MAX: usize = 1_024;
/// The clock is looked at this often even when nothing else happens, or it could not tell idleness from a stopped process.
const LOOK_AT_CLOCK: Duration = Duration::from_millis(100);
/// The loop waits at least this long for a time that has passed already.
const PAUSE_MIN: Duration = Duration::from_millis(1);
/// The lease must be certain for this long, or nothing more is sent.
const LEASE_MARGIN: Duration = Duration::from_millis(500);

/// Opens the shard's local store. Called once per ownership.
pub type OpenStore<S> = Box<dyn Fn() -> Result<S, StoreError>>;

/// Everything a shard is made of.
pub struct ShardParts<S: Store> {
    /// Which shard, and its genesis hash.
    pub identity: ShardIdentity,
    /// The exact genesis frame, appended when the log is empty.
    pub genesis_frame: Bytes,
    /// Its log.
    pub log: Arc<dyn ShardLog>,
    /// The metadata store.
    pub records: Records,
    /// Where messages can go.
    pub destinations: Arc<Destinations>,
    /// Its local store.
    pub open_store: OpenStore<S>,
    /// 16 bytes that name the local store in OWNER_EPOCH records.
    pub store_incarnation: [u8; 16],
    /// The owner key and its version.
    pub key: (u32, SigningKey),
    /// Sizes and paces.
    pub config: WorkerConfig,
    /// The worker's budget.
    pub budget: Arc<SharedBudget>,
    /// The worker's counters.
    pub metrics: Arc<Metrics>,
}

/// Why an ownership ended.
enum End {
    /// Drained on request.
    Drained,
    /// Asked to stop before it was active.
    Stopped,
    /// Authority is lost or in doubt, or something did not answer: acquire again.
    Fenced(String),
    /// A proven gap or corruption.
    Failed(String),
}

/// Makes a shard: a handle for the process, and its life as a future to be run on one thread. The future ends after `stop`
/// turns true and the shard is drained or given up.
pub fn shard<S: Store + 'static>(
    parts: ShardParts<S>,
    env: Rc<dyn Env>,
    stop: watch::Receiver<bool>,
) -> (ShardHandle, impl Future<Output = ()>) {
    let shared = Arc::new(Shared {
        status: watch::Sender::new(ShardStatus::unassigned()),
        verdicts: VerdictRing::new(parts.config.verdicts_kept_max),
        reader: Mutex::new(None),
        end_watchers: EndWatchers::new(parts.config.end_watchers_max),
    });
    let (requests, received) = mpsc::channel(EVENTS_WAITING_MAX);
    let handle = ShardHandle { shard: parts.identity.shard, log: parts.log.clone(), shared: shared.clone(), requests };
    let task = ShardTask { parts, env, stop, shared, requests: received };
    (handle, task.run())
}

struct ShardTask<S: Store> {
    parts: ShardParts<S>,
    env: Rc<dyn Env>,
    stop: watch::Receiver<bool>,
    shared: Arc<Shared>,
    requests: mpsc::Receiver<ShardRequest>,
}

impl<S: Store + 'static> ShardTask<S> {
    async fn run(mut self) {
        while !*self.stop.borrow() {
            self.become_(ShardLifecycle::Acquiring, "waiting for the lease");
            match self.own().await {
                End::Drained | End::Stopped => break,
                End::Fenced(_) => {
                    let pause = self.parts.config.reacquire_pause;
                    tokio::select! {
                        biased;
                        () = stopped(&mut self.stop) => break,
                        () = tokio::time::sleep_until(Instant::now() + pause) => {}
                    }
                }
                End::Failed(_) => {
                    stopped(&mut self.stop).await;
                    return;
                }
            }
        }
        self.shared.status.send_modify(|status| {
            status.lifecycle = ShardLifecycle::Unassigned;
            "stopped".clone_into(&mut status.reason);
        });
    }

    /// One ownership, from the lease to its end.
    async fn own(&mut self) -> End {
        match self.try_own().await {
            Ok(end) => end,
            Err(end) => {
                self.close(&end);
                end
            }
        }
    }

    /// Nothing is answered from here on, and everybody can see why.
    fn close(&self, end: &End) {
        self.set_reader(None);
        match end {
            End::Drained | End::Stopped => {}
            End::Fenced(reason) => {
                tracing::warn!(shard = %self.shard_name(), reason, "shard is fenced");
                self.become_(ShardLifecycle::Fenced, reason);
            }
            End::Failed(reason) => {
                tracing::error!(shard = %self.shard_name(), reason, "shard has failed and needs an operator");
                self.become_(ShardLifecycle::Failed, reason);
            }
        }
    }

    async fn try_own(&mut self) -> Result<End, End> {
        let worker_run_id = self.random_id();
        let (session, mut epoch) = self.acquire(&worker_run_id).await?;
        let mut session_lost = session.lost();

        self.become_(ShardLifecycle::Restoring, "opening the store");
        let store = (self.parts.open_store)().map_err(store_end)?;
        let mut shard = Shard::open(store, self.parts.identity).map_err(|error| match error {
            OpenError::Store(error) => store_end(error),
            error => End::Failed(error.to_string()),
        })?;
        self.set_reader(Some(shard.reader()));

        self.become_(ShardLifecycle::CatchingUp, "replaying the log");
        self.replay_to_end(&mut shard).await?;
        let stored_epoch = shard.progress().map_or(0, |progress| progress.owner_epoch);
        if stored_epoch >= epoch {
            epoch = self.take_epoch(&worker_run_id, stored_epoch).await?;
        }
        let (key_version, key) = self.parts.key.clone();
        let run = OwnerRun { shard: self.parts.identity.shard, epoch, worker_run_id, key_version, key };
        self.append_owner_epoch(&run, stored_epoch).await?;
        self.replay_to_end(&mut shard).await?;
        let progress = shard.progress().cloned().unwrap_or_default();
        if progress.owner_epoch != epoch || progress.worker_run_id[..] != worker_run_id {
            return Err(End::Fenced(format!(
                "epoch {epoch} was overtaken by epoch {} of another run",
                progress.owner_epoch
            )));
        }

        let pump = Pump::new(self.parts.config.clone(), run, shard, self.env.monotonic()).map_err(store_end)?;
        self.shared.status.send_modify(|status| status.owner_epoch = epoch);
        self.become_(ShardLifecycle::ActiveForCommands, "");
        let end = self.pump(pump, &*session, &mut session_lost).await.unwrap_or_else(|end| end);
        // Doubt closes first: the metadata store may take its time to answer.
        self.close(&end);
        let lease = shard_control::lease_key(self.parts.identity.shard);
        self.release(&lease, &worker_run_id).await;
        Ok(end)
    }

    /// Waits for the lease, takes the next epoch and the lease under a session of our own.
    async fn acquire(&mut self, worker_run_id: &[u8; 16]) -> Result<(Box<dyn Session>, u64), End> {
        let metadata = self.parts.records.metadata().clone();
        let lease_key = shard_control::lease_key(self.parts.identity.shard);
        loop {
            let session = metadata.open_session().await.map_err(|error| End::Fenced(error.to_string()))?;
            let mut watch = metadata.watch(&lease_key);
            let epoch = self.take_epoch(worker_run_id, 0).await?;
            let lease = OwnerLease {
                epoch,
                worker: self.parts.config.worker.clone(),
                worker_run: control::route::format_uuid(worker_run_id),
            };
            let value = control::cas::encode(&lease);
            match metadata.put_ephemeral(&lease_key, value, session.id()).await {
                Ok(_) => return Ok((session, epoch)),
                Err(ChangeError::Conflict { .. }) => {}
                Err(error) => return Err(End::Fenced(error.to_string())),
            }
            // Another owner lives: wait until its lease goes, or the watch wants us to look again.
            loop {
                tokio::select! {
                    biased;
                    () = stopped(&mut self.stop) => return Err(End::Stopped),
                    event = watch.next() => match event {
                        Some(WatchEvent::Deleted { .. }) | None => break,
                        Some(WatchEvent::Resync) => match metadata.get(&lease_key).await {
                            Ok(None) => break,
                            Ok(Some(_)) => {}
                            Err(error) => return Err(End::Fenced(error.to_string())),
                        },
                        Some(WatchEvent::Put { .. }) => {}
                    }
                }
            }
        }
    }

    async fn take_epoch(&self, worker_run_id: &[u8; 16], stored_epoch: u64) -> Result<u64, End> {
        let worker_run = control::route::format_uuid(worker_run_id);
        let shard = self.parts.identity.shard;
        shard_control::take_epoch(&self.parts.records, shard, &self.parts.config.worker, &worker_run, stored_epoch)
            .await
            .map_err(|error| match error {
                RecordError::Unreadable { .. } | RecordError::RuleBroken { .. } => End::Failed(error.to_string()),
                _ => End::Fenced(error.to_string()),
            })
    }

    /// Applies everything the log holds now. An empty log gets its genesis first.
    async fn replay_to_end(&self, shard: &mut Shard<S>) -> Result<(), End> {
        let mut barrier = self.parts.log.barrier().await.map_err(read_end)?;
        if barrier == Barrier::Empty {
            if shard.applied_position().is_some() {
                return Err(End::Failed("the log is empty, but the store has applied records of it".to_owned()));
            }
            self.append_until_answered(self.parts.genesis_frame.clone()).await?;
            barrier = self.parts.log.barrier().await.map_err(read_end)?;
        }
        let Barrier::Through(through) = barrier else {
            return Err(End::Fenced("the log does not show its genesis yet".to_owned()));
        };
        while !has_applied(shard, &through)? {
            if *self.stop.borrow() {
                return Err(End::Stopped);
            }
            let limit = self.read_limit();
            let after = shard.applied_position().cloned();
            let records = self.parts.log.read(after.as_ref(), limit).await.map_err(read_end)?;
            check_successors(after.as_ref(), &records)?;
            let committed = shard.commit(&records).map_err(run_end)?;
            self.committed(&committed, shard);
        }
        Ok(())
    }

    async fn append_owner_epoch(&self, run: &OwnerRun, previous_epoch: u64) -> Result<(), End> {
        let now = self.env.carried();
        let stamp =
            Stamp { epoch: run.epoch, owner_sequence: 1, earliest_ms: now.earliest_ms(), latest_ms: now.latest_ms() };
        let store_incarnation = self.parts.store_incarnation;
        let body = OwnerEpoch { stamp, store_incarnation, previous_epoch };
        self.append_until_answered(run.sign(MutationBody::OwnerEpoch(body))).await
    }

    /// Appends the same bytes until the log answers for sure. A second copy changes nothing.
    async fn append_until_answered(&self, frame: Bytes) -> Result<(), End> {
        const COPIES_MAX: usize = 5;
        let mut reason = String::new();
        for _ in 0..COPIES_MAX {
            match self.parts.log.append(vec![frame.clone()]).await {
                Ok(_) => return Ok(()),
                Err(error @ (AppendError::NotAppended { .. } | AppendError::Unknown { .. })) => {
                    reason = error.to_string();
                }
            }
        }
        Err(End::Fenced(reason))
    }

    fn read_limit(&self) -> ReadLimit {
        ReadLimit { records_max: self.parts.config.run_records_max, bytes_max: self.parts.config.run_bytes_max }
    }

    /// The active owner's loop.
    async fn pump(
        &mut self,
        pump: Pump<S>,
        session: &dyn Session,
        session_lost: &mut BoxFuture<'static, ()>,
    ) -> Result<End, End> {
        let (events, lane_events) = mpsc::channel(EVENTS_WAITING_MAX);
        let sessions = Sessions::new(self.env.clone(), self.parts.destinations.clone(), events, &self.parts.config);
        let share = self.parts.budget.join(self.parts.identity.shard);
        let read = self.parts.log.read(pump.shard().applied_position(), self.read_limit());
        let mut active = Active {
            pump,
            sessions,
            lane_events,
            share,
            appends: FuturesUnordered::new(),
            read,
            release_at: self.env.monotonic(),
            drain_until: None,
            quota: QuotaWatch::default(),
        };
        loop {
            if session.remaining() < LEASE_MARGIN {
                return Err(End::Fenced("the lease is not certain any more".to_owned()));
            }
            let wake = self.advance(&mut active)?;
            if let Some(drain_until) = active.drain_until
                && (active.pump.is_drained() || self.env.monotonic() >= drain_until)
            {
                self.finish_drain(&active.pump);
                return Ok(End::Drained);
            }
            tokio::select! {
                biased;
                () = &mut *session_lost => return Err(End::Fenced("the metadata session is over".to_owned())),
                () = stopped(&mut self.stop), if active.drain_until.is_none() => {
                    active.pump.drain();
                    active.drain_until = Some(self.env.monotonic() + self.parts.config.drain_deadline);
                    self.become_(ShardLifecycle::Draining, "stopping");
                }
                records = &mut active.read => {
                    let records = records.map_err(read_end)?;
                    if planted::is(Mistake::AckBeforeCommit) {
                        let last = records.last().map(|record| record.position.clone());
                        self.shared.status.send_modify(|status| status.applied = last.or(status.applied.take()));
                        tokio::time::sleep_until(Instant::now() + PAUSE_MIN).await;
                    }
                    self.records(&mut active, &records)?;
                }
                Some((id, result)) = active.appends.next() => {
                    active.pump.answered(id, result, self.env.monotonic());
                }
                Some(event) = active.lane_events.recv() => self.lane_event(&mut active, event),
                Some(request) = self.requests.recv() => answer(&active.pump, &active.sessions, request),
                () = active.share.room() => {}
                () = tokio::time::sleep_until(wake) => {}
            }
        }
    }

    /// Lets the pump do what it can, carries its actions to the ports, and says when to look again.
    fn advance(&self, active: &mut Active<S>) -> Result<Instant, End> {
        let monotonic = self.env.monotonic();
        let now = self.env.now();
        let budget = active.share.take();
        let advance = active.pump.advance(now, self.env.carried(), monotonic, budget).map_err(store_end)?;
        active.share.settle(active.pump.load());
        for action in active.pump.take_actions() {
            match action {
                Action::Append { id, frame } => {
                    self.parts.metrics.appended(frame.len());
                    let append = self.parts.log.append(vec![frame]);
                    active.appends.push(Box::pin(async move { (id, append.await.map(|_| ())) }));
                }
                Action::Send { lane_no, attempts } => active.sessions.send(lane_no, attempts),
                Action::CloseLane { lane_no } => active.sessions.close(lane_no),
                Action::OpenLane { target, open } => active.sessions.open(*target, open),
            }
        }
        if monotonic >= active.release_at {
            self.release_behind(active).map_err(store_end)?;
            self.warn_of_quotas(active);
            active.release_at = monotonic + self.parts.config.release_interval;
        }
        let pause = if advance.has_more { Duration::ZERO } else { self.pause(active, now, monotonic) };
        Ok(Instant::now() + pause)
    }

    fn pause(&self, active: &Active<S>, now: clock::Reading, monotonic: Duration) -> Duration {
        let wake = active.pump.wake(now);
        let mut pause = LOOK_AT_CLOCK;
        // What is due already and was not done waits for permits or for the next fence: those are events, or soon.
        if let (Some(at_ms), Some(now)) = (wake.earliest_ms, now.interval()) {
            pause = pause.min(until_certainly(at_ms, now).max(PAUSE_MIN));
        }
        if let Some(at) = wake.monotonic {
            pause = pause.min(at.saturating_sub(monotonic).max(PAUSE_MIN));
        }
        active.drain_until.map_or(pause, |at| pause.min(at.saturating_sub(monotonic)))
    }

    fn records(&self, active: &mut Active<S>, records: &[SourceRecord]) -> Result<(), End> {
        check_successors(active.pump.shard().applied_position(), records)?;
        let before = self.env.monotonic();
        let committed = active.pump.records(records).map_err(run_end)?;
        self.parts.metrics.committed(&committed, self.env.monotonic().saturating_sub(before));
        self.parts.metrics.delivered(&committed);
        active.share.settle(active.pump.load());
        self.committed(&committed, active.pump.shard());
        if let Some(epoch) = active.pump.overtaken_by() {
            return Err(End::Fenced(format!("the log shows epoch {epoch} of another run")));
        }
        active.read = self.parts.log.read(active.pump.shard().applied_position(), self.read_limit());
        Ok(())
    }

    /// Tells those who wait, after the commit is durable and never before.
    fn committed(&self, committed: &Committed, shard: &Shard<S>) {
        self.shared.verdicts.push(committed.results());
        for effect in committed.effects() {
            if let Effect::Ended { message, state, .. } = effect {
                self.shared.end_watchers.ended(*message, *state);
            }
        }
        self.shared.status.send_modify(|status| {
            status.applied = shard.applied_position().cloned();
            if let Some(progress) = shard.progress() {
                status.progress.clone_from(progress);
            }
        });
    }

    fn lane_event(&self, active: &mut Active<S>, event: LaneEvent) {
        let monotonic = self.env.monotonic();
        match event {
            LaneEvent::Opened { lane_no, session_no, session, resolved } => {
                if active.sessions.opened(lane_no, session_no, session) {
                    active.pump.lane_opened(lane_no, resolved, monotonic);
                }
            }
            LaneEvent::NotOpened { lane_no, session_no, error } => {
                if active.sessions.not_opened(lane_no, session_no) {
                    tracing::warn!(shard = %self.shard_name(), lane = lane_no.0, %error, "lane is blocked");
                    active.pump.lane_not_opened(lane_no, &error, monotonic);
                }
            }
            LaneEvent::Lost { lane_no, session_no, error } => {
                if active.sessions.lost(lane_no, session_no) {
                    tracing::warn!(shard = %self.shard_name(), lane = lane_no.0, %error, "lane session is lost");
                    active.pump.lane_lost(lane_no, &error, monotonic);
                }
            }
            LaneEvent::Outcomes { lane_no, answers } => active.pump.outcomes(lane_no, answers, monotonic),
            LaneEvent::Overdue { lane_no, attempts } => active.pump.overdue(lane_no, attempts, monotonic),
            LaneEvent::LateOutcomes { lane_no, answers } => active.pump.late_outcomes(lane_no, answers),
        }
        active.share.settle(active.pump.load());
    }

    /// Tells log, evidence and store what nobody needs any more.
    fn release_behind(&self, active: &mut Active<S>) -> Result<(), StoreError> {
        active.pump.release_ended();
        if let Some(settled_before) = active.pump.settled_before()? {
            active.sessions.forget_before(&settled_before);
        }
        if let Some(applied) = active.pump.shard().applied_position() {
            let trim = self.parts.log.trim(applied);
            let shard = self.shard_name();
            let task = async move {
                if let Err(error) = trim.await {
                    tracing::warn!(shard, %error, "the log was not trimmed");
                }
            };
            self.env.spawn("trim log", Box::pin(task)).detach();
        }
        Ok(())
    }

    fn warn_of_quotas(&self, active: &mut Active<S>) {
        let shard = active.pump.shard();
        let (Some(progress), Some(constitution)) = (shard.progress(), shard.constitution()) else { return };
        for QuotaWarning { limit_name, used, limit } in active.quota.look(progress, constitution.limits()) {
            let shard = self.shard_name();
            tracing::warn!(shard, limit_name, used, limit, "the shard fills up; at the limit new messages are refused");
        }
    }

    fn finish_drain(&self, pump: &Pump<S>) {
        let left = pump.load().messages;
        if left > 0 {
            tracing::warn!(shard = %self.shard_name(), left, "drain deadline passed; the rest is settled at the next start");
        }
    }

    /// Gives the lease back if it is still this run's. Its epoch may be an older one: the store can ask for more than the
    /// metadata store knew of.
    async fn release(&self, lease_key: &str, worker_run_id: &[u8; 16]) {
        let worker_run = control::route::format_uuid(worker_run_id);
        let released = async {
            if let Some(stored) = self.parts.records.get::<OwnerLease>(lease_key).await?
                && stored.record.worker_run == worker_run
            {
                let metadata = self.parts.records.metadata();
                metadata.delete(lease_key, stored.version).await.map_err(|error| RecordError::Unknown {
                    name: "owner lease",
                    key: lease_key.to_owned(),
                    reason: error.to_string(),
                })?;
            }
            Ok::<(), RecordError>(())
        };
        if let Err(error) = released.await {
            // The session's end takes it away.
            tracing::warn!(shard = %self.shard_name(), %error, "the lease was not given back");
        }
    }

    fn become_(&self, next: ShardLifecycle, reason: &str) {
        self.shared.status.send_modify(|status| {
            if status.lifecycle != next {
                tracing::info!(shard = %self.shard_name(), from = %status.lifecycle, to = %next, reason, "lifecycle");
            }
            debug_assert!(
                status.lifecycle == next || status.lifecycle.may_become(next),
                "{} may not become {next}",
                status.lifecycle
            );
            status.lifecycle = next;
            reason.clone_into(&mut status.reason);
        });
    }

    fn set_reader(&self, reader: Option<S::Reader>) {
        let reader = reader.map(|reader| Arc::new(reader) as Arc<dyn crate::handle::AnyReader>);
        *self.shared.reader.lock().unwrap_or_else(PoisonError::into_inner) = reader;
    }

    fn random_id(&self) -> [u8; 16] {
        let mut id = [0; 16];
        self.env.fill_random(&mut id);
        id
    }

    fn shard_name(&self) -> String {
        self.parts.identity.shard.to_string()
    }
}

/// What an active owner holds beside its decisions.
struct Active<S: Store> {
    pump: Pump<S>,
    sessions: Sessions,
    lane_events: mpsc::Receiver<LaneEvent>,
    share: Share,
    appends: FuturesUnordered<BoxFuture<'static, (AppendId, Result<(), AppendError>)>>,
    read: BoxFuture<'static, Result<Vec<SourceRecord>, ReadError>>,
    release_at: Duration,
    drain_until: Option<Duration>,
    quota: QuotaWatch,
}

fn answer<S: Store>(pump: &Pump<S>, sessions: &Sessions, request: ShardRequest) {
    match request {
        // A caller that gave up does not mind.
        ShardRequest::Lanes(reply) => {
            let _ = reply.send(pump.lane_reports(|lane_no| sessions.remark(lane_no)));
        }
    }
}

fn has_applied<S: Store>(shard: &Shard<S>, through: &SourcePosition) -> Result<bool, End> {
    let Some(applied) = shard.applied_position() else { return Ok(false) };
    match applied.compare(through) {
        Some(Ordering::Less) => Ok(false),
        Some(Ordering::Equal) if applied == through => Ok(true),
        Some(Ordering::Equal | Ordering::Greater) => Err(End::Failed(format!(
            "the log ends at {through:?}, the store has applied {applied:?}: the log has gone backwards"
        ))),
        None => Err(End::Failed(format!("the log ends at {through:?}, the store is of another log at {applied:?}"))),
    }
}

fn check_successors(after: Option<&SourcePosition>, records: &[SourceRecord]) -> Result<(), End> {
    successor::gap(after, records).map_or(Ok(()), |detail| Err(read_end(ReadError::Gap { detail })))
}

async fn stopped(stop: &mut watch::Receiver<bool>) {
    // A sender that is gone asks for the same thing.
    let _ = stop.wait_for(|stop| *stop).await;
}

fn store_end(error: StoreError) -> End {
    match error {
        StoreError::Corrupt { .. } => End::Failed(error.to_string()),
        StoreError::Closed { .. } | StoreError::Io { .. } => End::Fenced(error.to_string()),
    }
}

fn read_end(error: ReadError) -> End {
    match error {
        ReadError::Gap { .. } => End::Failed(error.to_string()),
        ReadError::Unavailable { .. } => End::Fenced(error.to_string()),
    }
}

fn run_end(error: RunError) -> End {
    match error {
        RunError::Commit(CommitError::NotWritten(_) | CommitError::OutcomeUncertain(_)) => {
            End::Fenced(error.to_string())
        }
        RunError::Apply(shard::machine::ApplyError::Store(error)) => store_end(error),
        RunError::Apply(error @ shard::machine::ApplyError::Integrity { .. }) => End::Failed(error.to_string()),
        RunError::Genesis(error) => End::Failed(error.to_string()),
    }
}
