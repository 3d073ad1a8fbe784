//! A topic of a world, with its consumer group: a member gets what the group gives it, loses it again, and is told late.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use fastrand::Rng;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use ports::source::{
    SideRecord, Source, SourceError, SourceEvent, SourceHeader, SourcePartition, SourceRecord, SourceSession,
    SourceSpec, SourceSystem,
};
use ports::target::{TargetCheck, TargetError};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// The longest time that anything takes each way.
const WAY_MS_MAX: u64 = 6;

/// How often things fail, of a hundred.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    pub(crate) open: u8,
    /// A session breaks instead of giving its next event.
    pub(crate) breaks: u8,
    pub(crate) commit: u8,
    /// Nothing, a part or all of it is written.
    pub(crate) write: u8,
}

/// A source topic. Clones share it.
#[derive(Clone)]
pub(crate) struct FakeSource {
    state: Arc<Mutex<State>>,
}

struct State {
    topic: [u8; 16],
    /// By partition, ascending by offset.
    partitions: Vec<Vec<SourceRecord>>,
    first: u64,
    committed: BTreeMap<u32, u64>,
    written: BTreeMap<String, Vec<SideRecord>>,
    members: BTreeMap<u64, Member>,
    member_last: u64,
    faults: Faults,
    batch_max: usize,
    check: Result<(), TargetError>,
    created: Vec<String>,
    random: Rng,
    changed: Arc<Notify>,
}

#[derive(Default)]
struct Member {
    events: VecDeque<SourceEvent>,
    reading: BTreeMap<u32, Reading>,
    is_expelled: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Reading {
    /// `None` before it was told where to start.
    next: Option<u64>,
    is_stopped: bool,
}

impl FakeSource {
    pub(crate) fn new(partition_count: usize, random: Rng) -> FakeSource {
        FakeSource {
            state: Arc::new(Mutex::new(State {
                topic: [0xaa; 16],
                partitions: vec![Vec::new(); partition_count],
                first: 0,
                committed: BTreeMap::new(),
                written: BTreeMap::new(),
                members: BTreeMap::new(),
                member_last: 0,
                faults: Faults::default(),
                batch_max: 50,
                check: Ok(()),
                created: Vec::new(),
                random,
                changed: Arc::new(Notify::new()),
            })),
        }
    }

    pub(crate) fn set_faults(&self, faults: Faults) {
        self.lock().faults = faults;
    }

    pub(crate) fn set_batch_max(&self, batch_max: usize) {
        self.lock().batch_max = batch_max;
    }

    pub(crate) fn set_check(&self, check: Result<(), TargetError>) {
        self.lock().check = check;
    }

    /// Topics that checks which were no dry run have created.
    pub(crate) fn created(&self) -> Vec<String> {
        self.lock().created.clone()
    }

    /// Writes a record, and says at which offset.
    pub(crate) fn produce(&self, partition: u32, record: SourceRecord) -> u64 {
        let mut state = self.lock();
        let end = state.end(partition);
        // Offsets have gaps.
        let gap = u64::from(state.random.u8(0..4) == 0);
        let offset = end + gap;
        state.records_mut(partition).push(SourceRecord { offset, ..record });
        state.changed.notify_waiters();
        offset
    }

    /// Where a partition ends.
    pub(crate) fn end(&self, partition: u32) -> u64 {
        self.lock().end(partition)
    }

    pub(crate) fn committed(&self, partition: u32) -> Option<u64> {
        self.lock().committed.get(&partition).copied()
    }

    /// Has the group begin at another place, as an operator's tool does.
    pub(crate) fn seek(&self, offset: Option<u64>) {
        let mut state = self.lock();
        let partitions = 0..u32::try_from(state.partitions.len()).expect("few partitions");
        state.committed = partitions.filter_map(|partition| Some((partition, offset?))).collect();
        state.rebalance();
    }

    /// Gives every partition to another member, or to the same one again.
    pub(crate) fn rebalance(&self) {
        self.lock().rebalance();
    }

    /// The group thinks that its members are gone; they do not know.
    pub(crate) fn expel_members(&self) {
        let mut state = self.lock();
        for member in state.members.values_mut() {
            member.is_expelled = true;
        }
        state.rebalance();
    }

    /// The topic is made anew under its name, empty.
    pub(crate) fn recreate(&self, topic: [u8; 16]) {
        let mut state = self.lock();
        state.revoke();
        state.topic = topic;
        state.committed.clear();
        state.partitions.iter_mut().for_each(Vec::clear);
        state.rebalance();
    }

    /// Drops records from the end, as no topic should.
    pub(crate) fn lose_from(&self, partition: u32, offset: u64) {
        let mut state = self.lock();
        state.records_mut(partition).retain(|record| record.offset < offset);
        state.rebalance();
    }

    /// How far a partition was read by any member.
    pub(crate) fn read_to(&self, partition: u32) -> u64 {
        let state = self.lock();
        let next = state.members.values().filter_map(|member| member.reading.get(&partition)?.next);
        next.max().unwrap_or(0)
    }

    pub(crate) fn topic(&self) -> [u8; 16] {
        self.lock().topic
    }

    /// What was written to a topic beside the source.
    pub(crate) fn written(&self, topic: &str) -> Vec<SideRecord> {
        self.lock().written.get(topic).cloned().unwrap_or_default()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn records(&self, partition: u32) -> &[SourceRecord] {
        &self.partitions[usize::try_from(partition).expect("few partitions")]
    }

    fn records_mut(&mut self, partition: u32) -> &mut Vec<SourceRecord> {
        &mut self.partitions[usize::try_from(partition).expect("few partitions")]
    }

    fn end(&self, partition: u32) -> u64 {
        self.records(partition).last().map_or(self.first, |record| record.offset + 1)
    }

    fn place(&self, partition: u32) -> SourcePartition {
        SourcePartition { topic: self.topic, partition }
    }

    fn revoke(&mut self) {
        for member in self.members.values_mut() {
            for (partition, _) in std::mem::take(&mut member.reading) {
                let partition = SourcePartition { topic: self.topic, partition };
                member.events.push_back(SourceEvent::Revoked { partition });
            }
        }
    }

    fn rebalance(&mut self) {
        self.revoke();
        let members: Vec<u64> =
            self.members.iter().filter(|(_, member)| !member.is_expelled).map(|(id, _)| *id).collect();
        self.changed.notify_waiters();
        if members.is_empty() {
            return;
        }
        for partition in 0..u32::try_from(self.partitions.len()).expect("few partitions") {
            let (place, committed) = (self.place(partition), self.committed.get(&partition).copied());
            let (first, end) = (self.first, self.end(partition));
            let chosen = members[self.random.usize(..members.len())];
            if let Some(member) = self.members.get_mut(&chosen) {
                member.reading.insert(partition, Reading::default());
                member.events.push_back(SourceEvent::Assigned { partition: place, committed, first, end });
            }
        }
    }

    /// The next event of a member, if there is one.
    fn next(&mut self, member: u64) -> Option<SourceEvent> {
        if let Some(event) = self.members.get_mut(&member)?.events.pop_front() {
            return Some(event);
        }
        let reading = self.members.get(&member)?.reading.clone();
        let ready: Vec<(u32, u64)> = reading
            .iter()
            .filter(|(_, reading)| !reading.is_stopped)
            .filter_map(|(partition, reading)| Some((*partition, reading.next?)))
            .filter(|(partition, next)| *next < self.end(*partition))
            .collect();
        let chosen = (!ready.is_empty()).then(|| self.random.usize(..ready.len()))?;
        let (partition, next) = ready[chosen];
        let count = self.random.usize(1..=self.batch_max);
        let from = self.records(partition).partition_point(|record| record.offset < next);
        let records: Vec<SourceRecord> = self.records(partition)[from..].iter().take(count).cloned().collect();
        let next = records.last()?.offset + 1;
        self.members.get_mut(&member)?.reading.get_mut(&partition)?.next = Some(next);
        Some(SourceEvent::Records { partition: self.place(partition), records })
    }

    fn fails(&mut self, pick: impl FnOnce(&Faults) -> u8) -> bool {
        let percent = pick(&self.faults);
        self.random.u8(0..100) < percent
    }
}

fn error(detail: &str) -> SourceError {
    SourceError { detail: detail.to_owned() }
}

impl SourceSystem for FakeSource {
    fn check(&self, spec: SourceSpec, dry_run: bool) -> BoxFuture<'static, Result<Source, TargetError>> {
        let source = self.clone();
        async move {
            let mut state = source.lock();
            state.check.clone()?;
            if !dry_run {
                state.created.push(spec.refusals);
                state.created.extend(spec.receipts);
            }
            let topic = spec.connection["topic"].as_str().unwrap_or_default().to_owned();
            let check = TargetCheck { name: "topic", ok: true, detail: format!("{topic} is there") };
            Ok(Source { topic, partition_count: 1, checks: vec![check] })
        }
        .boxed()
    }

    fn open(&self, _: SourceSpec) -> BoxFuture<'static, Result<Box<dyn SourceSession>, SourceError>> {
        let source = self.clone();
        async move {
            source.way().await;
            let mut state = source.lock();
            if state.fails(|faults| faults.open) {
                return Err(error("cannot join"));
            }
            state.member_last += 1;
            let member = state.member_last;
            state.members.insert(member, Member::default());
            state.rebalance();
            drop(state);
            Ok(Box::new(FakeSession { source, member }) as Box<dyn SourceSession>)
        }
        .boxed()
    }
}

impl FakeSource {
    async fn way(&self) {
        let way_ms = self.lock().random.u64(0..=WAY_MS_MAX);
        sleep_until(Instant::now() + Duration::from_millis(way_ms)).await;
    }
}

struct FakeSession {
    source: FakeSource,
    member: u64,
}

impl FakeSession {
    fn is_member(&self, state: &State, partition: &SourcePartition) -> bool {
        partition.topic == state.topic
            && state
                .members
                .get(&self.member)
                .is_some_and(|member| !member.is_expelled && member.reading.contains_key(&partition.partition))
    }

    fn read(&self, partition: &SourcePartition, change: impl FnOnce(&mut Reading)) {
        let mut state = self.source.lock();
        let member = state.members.get_mut(&self.member);
        if let Some(reading) = member.and_then(|member| member.reading.get_mut(&partition.partition)) {
            change(reading);
        }
        state.changed.notify_waiters();
    }
}

impl SourceSession for FakeSession {
    fn next(&self) -> BoxFuture<'_, Result<SourceEvent, SourceError>> {
        async move {
            loop {
                let changed = self.source.lock().changed.clone();
                let changed = changed.notified();
                {
                    let mut state = self.source.lock();
                    if state.members.get(&self.member).is_none_or(|member| member.is_expelled) {
                        return Err(error("expelled"));
                    }
                    if let Some(event) = state.next(self.member) {
                        if state.fails(|faults| faults.breaks) {
                            return Err(error("the session broke"));
                        }
                        return Ok(event);
                    }
                }
                changed.await;
            }
        }
        .boxed()
    }

    fn start(&self, partition: &SourcePartition, offset: u64) -> Result<(), SourceError> {
        self.read(partition, |reading| *reading = Reading { next: Some(offset), is_stopped: false });
        Ok(())
    }

    fn stop(&self, partition: &SourcePartition) -> Result<(), SourceError> {
        self.read(partition, |reading| reading.is_stopped = true);
        Ok(())
    }

    fn end(&self, partition: &SourcePartition) -> Option<u64> {
        let state = self.source.lock();
        (partition.topic == state.topic).then(|| state.end(partition.partition))
    }

    fn commit(&self, partition: &SourcePartition, offset: u64) -> BoxFuture<'_, Result<(), SourceError>> {
        let partition = partition.clone();
        async move {
            self.source.way().await;
            {
                let mut state = self.source.lock();
                if state.fails(|faults| faults.commit) {
                    return Err(error("cannot commit"));
                }
                if !self.is_member(&state, &partition) {
                    return Err(error("not a member"));
                }
                state.committed.insert(partition.partition, offset);
            }
            self.source.way().await;
            Ok(())
        }
        .boxed()
    }

    fn write(&self, topic: &str, records: Vec<SideRecord>) -> BoxFuture<'_, Result<(), SourceError>> {
        let topic = topic.to_owned();
        async move {
            self.source.way().await;
            {
                let mut state = self.source.lock();
                let fails = state.fails(|faults| faults.write);
                let count = if fails { state.random.usize(0..=records.len()) } else { records.len() };
                state.written.entry(topic).or_default().extend(records.into_iter().take(count));
                if fails {
                    return Err(error("cannot write"));
                }
            }
            self.source.way().await;
            Ok(())
        }
        .boxed()
    }
}

impl Drop for FakeSession {
    fn drop(&mut self) {
        let mut state = self.source.lock();
        state.members.remove(&self.member);
        state.rebalance();
    }
}

/// A record with headers, and a value that tells it from others.
pub(crate) fn record(value: &str, timestamp_ms: i64, headers: &[(&str, &str)]) -> SourceRecord {
    let header = |(name, value): &(&str, &str)| SourceHeader {
        name: Bytes::copy_from_slice(name.as_bytes()),
        value: Some(Bytes::copy_from_slice(value.as_bytes())),
    };
    SourceRecord {
        offset: 0,
        timestamp_ms: Some(timestamp_ms),
        key: Some(Bytes::copy_from_slice(format!("key of {value}").as_bytes())),
        value: Some(Bytes::copy_from_slice(value.as_bytes())),
        headers: headers.iter().map(header).collect(),
    }
}
