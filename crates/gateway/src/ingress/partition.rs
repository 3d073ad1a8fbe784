//! The life of one partition: from records to commands, run by run, and what is durable in between.
//!
//! A run is begun by one compare-and-set, which settles the run before it: offsets below it are settled for ever, and the ids of
//! its records derive from its time. Then its records are carried out, refusals and receipts are written, and only then may the
//! next run begin, or, when none waits, the run is settled by itself. The group's offset follows; it is for others to see, the
//! floor is what counts. A life may be dropped at any point: whoever begins it again finds the run under way, asks what became
//! of its records, and goes on from there.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::Duration;

use control::cas::{RecordError, Stored};
use control::ingress::{IngressProgress, progress_key};
use ports::source::{SideRecord, SourceError, SourcePartition, SourceRecord, SourceSession};
use protocol::code::StableCode;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::decide::{Item, Scope, Step, decide};
use super::inbox::Inbox;
use super::record;
use super::settings::Settings;
use super::side::{self, Outcome};
use super::status::Entry;
use crate::state::Gateway;

/// Pause after something went wrong, doubled up to the next.
pub(super) const PAUSE_MIN: Duration = Duration::from_millis(100);
/// The longest such pause.
pub(super) const PAUSE_MAX: Duration = Duration::from_secs(30);
/// How often an idle partition tries to commit an offset that could not be committed.
const COMMIT_INTERVAL: Duration = Duration::from_secs(30);
/// How long a partition that lost records lets the others work before the session is opened again, to see whether it did.
const LOST_PAUSE: Duration = Duration::from_secs(60);

/// What keeps a partition from going on. It tries again.
#[derive(Debug, thiserror::Error)]
enum Obstacle {
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error(transparent)]
    Source(#[from] SourceError),
    #[error("another reader has gone on with the partition")]
    Overtaken,
    #[error(
        "the topic's partition ends at offset {end}, and what is below {settled} was settled: it lost records, and would use \
         their offsets again for records that count as settled; delete the topic or continue with another one"
    )]
    LostRecords { end: u64, settled: u64 },
}

/// Growing pauses.
#[derive(Debug)]
pub(super) struct Pauses {
    next: Duration,
}

impl Pauses {
    pub(super) fn new() -> Pauses {
        Pauses { next: PAUSE_MIN }
    }

    pub(super) fn next(&mut self) -> Duration {
        let pause = self.next;
        self.next = (pause * 2).min(PAUSE_MAX);
        pause
    }

    pub(super) fn reset(&mut self) {
        self.next = PAUSE_MIN;
    }
}

/// Where a session says that a partition may be read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Start {
    pub(super) committed: Option<u64>,
    pub(super) first: u64,
    pub(super) end: u64,
}

/// What a partition's life is lived with.
#[derive(Clone, Copy)]
pub(super) struct Surroundings<'a> {
    pub(super) gateway: &'a Gateway,
    pub(super) entry: &'a Entry,
    pub(super) settings: &'a Settings,
    pub(super) session: &'a dyn SourceSession,
}

pub(super) struct Partition<'a> {
    around: Surroundings<'a>,
    partition: SourcePartition,
    inbox: &'a Inbox,
    key: String,
    /// As it is stored. `None` before the first run.
    progress: Option<Stored<IngressProgress>>,
    must_reload: bool,
    /// Everything below is carried out, or not this reader's business: it was told to start here.
    done_to: u64,
    /// Records that were taken out of the inbox and are not settled.
    hand: Vec<SourceRecord>,
    /// What the group should know and does not.
    uncommitted: Option<u64>,
    pauses: Pauses,
}

impl<'a> Partition<'a> {
    pub(super) fn new(around: Surroundings<'a>, partition: SourcePartition, inbox: &'a Inbox) -> Partition<'a> {
        let tenant = &around.gateway.config.tenant;
        let key = progress_key(tenant, &around.settings.name, &partition.topic, partition.partition);
        Partition {
            around,
            partition,
            inbox,
            key,
            progress: None,
            must_reload: true,
            done_to: 0,
            hand: Vec::new(),
            uncommitted: None,
            pauses: Pauses::new(),
        }
    }

    /// Lives until it is dropped, or only another session can help.
    pub(super) async fn live(mut self, start: Start) -> SourceError {
        while let Err(obstacle) = self.start(start).await {
            let reason = obstacle.to_string();
            self.pause(&reason).await;
            if let Obstacle::LostRecords { .. } = obstacle {
                sleep_until(Instant::now() + LOST_PAUSE).await;
                return SourceError { detail: format!("partition {}: {reason}", self.partition.partition) };
            }
        }
        loop {
            match self.step().await {
                Ok(()) => self.goes_well(),
                Err(obstacle) => {
                    // What is stored may be another's by now.
                    self.must_reload = true;
                    self.pause(&obstacle.to_string()).await;
                }
            }
        }
    }

    /// Reads what is settled, and has the session read from there.
    async fn start(&mut self, start: Start) -> Result<(), Obstacle> {
        self.reload().await?;
        let progress = self.progress.as_ref().map(|stored| &stored.record);
        if let Some(lost) = progress.filter(|progress| progress.to > start.end) {
            return Err(Obstacle::LostRecords { end: start.end, settled: lost.to });
        }
        // What a group committed beyond the end is of an earlier topic of the name.
        let committed = start.committed.filter(|committed| *committed <= start.end);
        let floor = progress.map(|progress| progress.from);
        let from = committed.max(floor).unwrap_or(start.first).max(start.first);
        if let Some(missed) = committed.max(floor).filter(|place| *place < start.first) {
            let (ingress, partition) = (&self.around.settings.name, self.partition.partition);
            tracing::warn!(
                ingress,
                partition,
                from = missed,
                first = start.first,
                "records were deleted before they were read"
            );
        }
        self.around.session.start(&self.partition, from)?;
        self.done_to = from;
        if let Some(floor) = floor.filter(|floor| committed < Some(*floor)) {
            // A crash came between the two.
            self.commit(floor).await;
        }
        self.goes_well();
        Ok(())
    }

    async fn step(&mut self) -> Result<(), Obstacle> {
        if std::mem::take(&mut self.must_reload) {
            self.reload().await?;
        }
        if self.hand.is_empty() {
            if !self.is_to_be_settled() {
                self.wait_for_records().await;
            }
            self.hand = self.inbox.take();
        }
        if let Some(offset) = self.inbox.resume_at() {
            self.around.session.start(&self.partition, offset)?;
            self.inbox.resumed();
        }
        self.pass_over_settled();
        self.go_on_with_run().await?;
        self.begin_run().await?;
        self.settle_if_idle().await
    }

    /// Waits for records; an offset that could not be committed is tried again meanwhile.
    async fn wait_for_records(&mut self) {
        while let Some(offset) = self.uncommitted {
            if timeout_at(Instant::now() + COMMIT_INTERVAL, self.inbox.ready()).await.is_ok() {
                return;
            }
            self.commit(offset).await;
        }
        self.inbox.ready().await;
    }

    fn pass_over_settled(&mut self) {
        let floor = self.progress.as_ref().map_or(0, |stored| stored.record.from).max(self.done_to);
        let settled = self.hand.partition_point(|record| record.offset < floor);
        self.hand.drain(..settled);
        self.around.entry.counters.skipped.fetch_add(settled as u64, Ordering::Relaxed);
    }

    /// The end of the run under way, if not all of it was carried out by this life.
    fn unfinished_to(&self) -> Option<u64> {
        let run = &self.progress.as_ref()?.record;
        (run.is_under_way() && self.done_to < run.to).then_some(run.to)
    }

    /// Carries out again what belongs to a run that was found under way.
    async fn go_on_with_run(&mut self) -> Result<(), Obstacle> {
        let Some(to) = self.unfinished_to() else { return Ok(()) };
        let count = self.hand.partition_point(|record| record.offset < to);
        if let Some(last) = count.checked_sub(1) {
            let done_to = self.hand[last].offset.saturating_add(1);
            self.carry_out(count, true).await?;
            self.done_to = done_to;
        }
        if !self.hand.is_empty() {
            // Whatever else the run had is not in the topic any more.
            self.done_to = to;
        }
        Ok(())
    }

    /// Makes what is at hand a run, and carries it out.
    async fn begin_run(&mut self) -> Result<(), Obstacle> {
        let Some(last) = self.hand.last() else { return Ok(()) };
        let to = last.offset.saturating_add(1);
        let uuid_ms = self.around.gateway.now_ms();
        let (run, settled) = match &self.progress {
            Some(stored) => {
                (stored.record.begin(to, uuid_ms), stored.record.is_under_way().then_some(stored.record.to))
            }
            None => (IngressProgress { from: self.done_to, to, uuid_ms, earlier_uuid_ms: Vec::new() }, None),
        };
        self.store(run).await?;
        if let Some(settled) = settled {
            self.commit(settled).await;
        }
        self.carry_out(self.hand.len(), false).await?;
        self.done_to = to;
        Ok(())
    }

    /// Whether a run is under way of which everything is carried out.
    fn is_to_be_settled(&self) -> bool {
        self.progress.as_ref().is_some_and(|stored| stored.record.is_under_way()) && self.unfinished_to().is_none()
    }

    async fn settle_if_idle(&mut self) -> Result<(), Obstacle> {
        let is_idle = self.hand.is_empty() && self.inbox.is_empty();
        let Some(stored) = self.progress.as_ref().filter(|_| is_idle && self.is_to_be_settled()) else { return Ok(()) };
        let settled = stored.record.settle();
        let to = settled.to;
        self.store(settled).await?;
        self.commit(to).await;
        Ok(())
    }

    /// Carries out the first records at hand and takes them out of it.
    async fn carry_out(&mut self, count: usize, found_under_way: bool) -> Result<(), Obstacle> {
        let mut records = std::mem::take(&mut self.hand);
        let rest = records.split_off(count);
        let carried = self.carry_out_all(&records, found_under_way).await;
        self.hand = rest;
        if carried.is_err() {
            // They are still to be settled.
            self.hand.splice(..0, records);
        }
        carried
    }

    async fn carry_out_all(&mut self, records: &[SourceRecord], found_under_way: bool) -> Result<(), Obstacle> {
        let default = self.around.settings.destination.as_deref();
        let mut outcomes: Vec<Option<Outcome>> = Vec::with_capacity(records.len());
        let mut items = Vec::with_capacity(records.len());
        for (index, record) in records.iter().enumerate() {
            match record::read(record, default) {
                Ok(request) => {
                    outcomes.push(None);
                    items.push(Item { index, record, request, may_exist: found_under_way, refused_before: 0 });
                }
                Err(refusal) => outcomes.push(Some(Outcome::Refused(refusal))),
            }
        }
        while !items.is_empty() {
            items = self.try_once(items, &mut outcomes).await?;
        }
        // Every record without an outcome was an item.
        let outcomes: Vec<Outcome> = outcomes.into_iter().flatten().collect();
        self.write_beside(records, &outcomes).await;
        self.count(&outcomes);
        Ok(())
    }

    /// Decides as many records as depend on no other; gives back those that are still to be decided.
    async fn try_once<'r>(
        &mut self,
        mut items: Vec<Item<'r>>,
        outcomes: &mut [Option<Outcome>],
    ) -> Result<Vec<Item<'r>>, Obstacle> {
        let Surroundings { gateway, settings, .. } = self.around;
        let run = self.progress.as_ref().map(|stored| stored.record.clone()).unwrap_or_default();
        let scope = Scope { gateway, ingress: &settings.name, partition: &self.partition };
        let rest = items.split_off(independent(&items));
        let steps = decide(scope, &run, &mut items).await;
        let (mut left, mut reason) = (Vec::new(), None);
        let mut must_renew = false;
        for (item, step) in items.into_iter().zip(steps) {
            match step {
                Step::Done(outcome) => outcomes[item.index] = Some(outcome),
                Step::Again => left.push(item),
                Step::Later(why) => {
                    reason.get_or_insert(why);
                    left.push(item);
                }
                Step::Renew => {
                    must_renew = true;
                    left.push(item);
                }
            }
        }
        left.extend(rest);
        if must_renew {
            for item in &mut left {
                item.refused_before = 0;
            }
            self.store(run.renew(gateway.now_ms().max(run.uuid_ms.saturating_add(1)))).await?;
            reason.get_or_insert_with(|| "the run's ids were too old and were made anew".to_owned());
        }
        match reason {
            Some(reason) => self.pause(&reason).await,
            None => self.goes_well(),
        }
        Ok(left)
    }

    /// Writes refused records and receipts until they are durable.
    async fn write_beside(&mut self, records: &[SourceRecord], outcomes: &[Outcome]) {
        let settings = self.around.settings;
        let (topic, partition) = (&settings.topic, self.partition.partition);
        let refused = records.iter().zip(outcomes).filter_map(|(record, outcome)| match outcome {
            Outcome::Refused(refusal) => Some(side::refused(topic, partition, record, refusal)),
            Outcome::Taken(_) => None,
        });
        self.write(&settings.refusals, refused.collect()).await;
        if let Some(receipts) = &settings.receipts {
            let receipt = |(record, outcome)| side::receipt(topic, partition, record, outcome);
            self.write(receipts, records.iter().zip(outcomes).map(receipt).collect()).await;
        }
    }

    async fn write(&mut self, topic: &str, records: Vec<SideRecord>) {
        if records.is_empty() {
            return;
        }
        while let Err(error) = self.around.session.write(topic, records.clone()).await {
            self.pause(&format!("topic {topic:?} cannot be written: {error}")).await;
        }
        self.goes_well();
    }

    fn count(&self, outcomes: &[Outcome]) {
        let counters = &self.around.entry.counters;
        for outcome in outcomes {
            let counter = match outcome {
                Outcome::Refused(_) => &counters.refused,
                Outcome::Taken(taken) if taken.code == StableCode::Canceled.name() => &counters.canceled,
                Outcome::Taken(taken) if taken.code == StableCode::Superseded.name() => &counters.rescheduled,
                Outcome::Taken(_) => &counters.scheduled,
            };
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    async fn reload(&mut self) -> Result<(), Obstacle> {
        self.progress = self.around.gateway.records.get(&self.key).await?;
        Ok(())
    }

    /// Makes progress durable. Only the one whose progress was the last may go on.
    async fn store(&mut self, next: IngressProgress) -> Result<(), Obstacle> {
        let stored = self.around.gateway.records.swap(&self.key, self.progress.as_ref(), next).await?;
        self.progress = Some(stored.ok_or(Obstacle::Overtaken)?);
        Ok(())
    }

    /// Tells the group. What is settled is settled without it, so nothing waits for an error to pass.
    async fn commit(&mut self, offset: u64) {
        match self.around.session.commit(&self.partition, offset).await {
            Ok(()) => self.uncommitted = None,
            Err(error) => {
                let (ingress, partition) = (&self.around.settings.name, self.partition.partition);
                tracing::warn!(ingress, partition, offset, %error, "an offset was not committed; it is tried again");
                self.around.entry.failed(&format!("partition {partition}: offset {offset} was not committed: {error}"));
                self.uncommitted = Some(offset);
            }
        }
    }

    fn goes_well(&mut self) {
        self.pauses.reset();
        let (floor, end) = (self.floor(), self.around.session.end(&self.partition));
        self.around.entry.change_partition(&self.partition, |status| {
            status.floor = Some(floor);
            status.end = end.or(status.end);
            status.reason = None;
        });
    }

    fn floor(&self) -> u64 {
        self.progress.as_ref().map_or(self.done_to, |stored| stored.record.from)
    }

    /// Says what is in the way, and waits.
    async fn pause(&mut self, reason: &str) {
        let pause = self.pauses.next();
        let (ingress, partition) = (&self.around.settings.name, self.partition.partition);
        tracing::warn!(ingress, partition, reason, pause_ms = pause.as_millis(), "records of an ingress wait");
        self.around.entry.failed(&format!("partition {partition}: {reason}"));
        self.around.entry.change_partition(&self.partition, |status| {
            status.reason = Some(format!("partition {partition}: {reason}"));
        });
        sleep_until(Instant::now() + pause).await;
    }
}

/// How many records, from the first, name no message that another one before them names: behind the other one's outcome, theirs
/// may be another.
fn independent(items: &[Item<'_>]) -> usize {
    let mut names = BTreeSet::new();
    let is_repeated = |item: &Item<'_>| item.name().is_some_and(|name| !names.insert(name.to_owned()));
    items.iter().position(is_repeated).unwrap_or(items.len())
}
