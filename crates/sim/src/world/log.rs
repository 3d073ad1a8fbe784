//! Shard logs of a world: one server a partition, and a client in every process that uses it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use fastrand::Rng;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use ports::log::{AppendError, Barrier, ReadError, ReadLimit, ShardLog, SourceRecord};
use protocol::hash::sha256;
use protocol::id::ShardId;
use protocol::position::{EmbeddedPosition, SourcePosition};
use tokio::sync::watch;

use super::link::{Link, Paces};
use super::random::chance;
use super::shared::{Shared, wait};
use super::{Process, ProcessId, World};

/// How often appends fail, of a hundred.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogFaults {
    /// Nothing arrives, and the log says so.
    pub not_appended_percent: u8,
    /// Everything, a part or nothing arrives, and the log cannot say what.
    pub unknown_percent: u8,
    /// The log cannot say, and everything arrives after a while, behind what came meanwhile.
    pub late_percent: u8,
    /// Everything arrives twice.
    pub duplicated_percent: u8,
}

/// The longest that an append is late.
const LATE_MAX_MS: u64 = 4_000;

struct State {
    /// The incarnation's id.
    log: [u8; 16],
    records: Vec<SourceRecord>,
    /// The first offset that can be read.
    start: u64,
    append_time_ms_last: i64,
    paces: Paces,
    faults: LogFaults,
    keeps_everything: bool,
    is_unavailable: bool,
    /// The record at this offset is left out by every read.
    skipped: Option<u64>,
    /// The offset behind the last record that each process was given.
    given: BTreeMap<ProcessId, u64>,
    random: Rng,
}

/// One partition of a route's log.
#[derive(Clone)]
pub struct LogServer {
    shared: Arc<Shared>,
    shard: ShardId,
    name: Arc<str>,
    state: Arc<Mutex<State>>,
    /// The offset behind the last record, for those who wait.
    end: watch::Sender<u64>,
}

impl LogServer {
    /// An empty log of a shard.
    pub fn new(world: &World, shard: ShardId, log: [u8; 16]) -> LogServer {
        let shared = world.shared().clone();
        let name: Arc<str> = format!("log {}", shard.partition).into();
        let state = State {
            log,
            records: Vec::new(),
            start: 0,
            append_time_ms_last: 0,
            paces: Paces::fixed(1, 0),
            faults: LogFaults::default(),
            keeps_everything: true,
            is_unavailable: false,
            skipped: None,
            given: BTreeMap::new(),
            random: shared.stream(&name),
        };
        LogServer { shared, shard, name, state: Arc::new(Mutex::new(state)), end: watch::Sender::new(0) }
    }

    /// The log as a process uses it.
    pub fn client(&self, process: &Process) -> Arc<dyn ShardLog> {
        Arc::new(LogClient { link: Link::new(self.shared.clone(), process.id(), &self.name), server: self.clone() })
    }

    /// How long appends take from now on.
    pub fn set_paces(&self, paces: Paces) {
        self.lock().paces = paces;
    }

    /// How appends fail from now on.
    pub fn set_faults(&self, faults: LogFaults) {
        self.lock().faults = faults;
    }

    /// How appends fail.
    pub fn faults(&self) -> LogFaults {
        self.lock().faults
    }

    /// Whether the log refuses every request from now on.
    pub fn set_unavailable(&self, is_unavailable: bool) {
        self.lock().is_unavailable = is_unavailable;
        self.shared.event(format_args!("{} unavailable={is_unavailable}", self.name));
    }

    /// Whether what may go stays all the same.
    pub fn set_keeps_everything(&self, keeps_everything: bool) {
        self.lock().keeps_everything = keeps_everything;
    }

    /// Appends at once, as somebody outside of every process.
    pub fn append(&self, frames: &[Bytes]) -> Vec<SourcePosition> {
        self.take(ProcessId::WORLD, frames, frames.len())
    }

    /// Every record that was ever appended.
    pub fn archive(&self) -> Vec<SourceRecord> {
        self.lock().records.clone()
    }

    /// The first offset that can still be read.
    pub fn start(&self) -> u64 {
        self.lock().start
    }

    /// The offset behind the last record that a process was given.
    pub fn given(&self, process: ProcessId) -> u64 {
        self.lock().given.get(&process).copied().unwrap_or(0)
    }

    /// Loses the records at and behind an offset, as a log without a sync may.
    pub fn lose_from(&self, offset: u64) {
        let mut state = self.lock();
        state.records.truncate(usize::try_from(offset).unwrap_or(usize::MAX));
        let end = state.records.len() as u64;
        drop(state);
        self.end.send_replace(end);
        self.shared.event(format_args!("{} lost everything from offset {offset}", self.name));
    }

    /// Loses the records before an offset, whoever may need them.
    pub fn lose_before(&self, offset: u64) {
        self.lock().start = offset;
        self.shared.event(format_args!("{} lost everything before offset {offset}", self.name));
    }

    /// Loses everything and is another log from now on, as one that was deleted and made again.
    pub fn recreate(&self) {
        let mut state = self.lock();
        state.log = sha256(&state.log).first_chunk().copied().unwrap_or_default();
        state.records.clear();
        state.start = 0;
        drop(state);
        self.shared.event(format_args!("{} is another one", self.name));
        self.end.send_replace(0);
    }

    /// Reads leave out the record at this offset from now on, as no log may.
    pub fn skip(&self, offset: u64) {
        self.lock().skipped = Some(offset);
    }

    /// Takes in the first `count` of the frames.
    fn take(&self, by: ProcessId, frames: &[Bytes], count: usize) -> Vec<SourcePosition> {
        let mut state = self.lock();
        let append_time_ms = self.shared.time.now_ms().max(state.append_time_ms_last);
        state.append_time_ms_last = append_time_ms;
        let mut positions = Vec::with_capacity(count);
        for frame in &frames[..count] {
            let offset = state.records.len() as u64;
            let position = self.position(state.log, offset, append_time_ms);
            state.records.push(SourceRecord { position: position.clone(), frame: frame.clone() });
            positions.push(position);
        }
        let end = state.records.len() as u64;
        drop(state);
        let first = end - count as u64;
        self.shared.event(format_args!("{} append by={} offset={first} records={count}", self.name, by.0));
        self.end.send_replace(end);
        positions
    }

    fn append_of(&self, by: ProcessId, frames: &[Bytes]) -> Result<Vec<SourcePosition>, AppendError> {
        let reason = || "injected".to_owned();
        let mut state = self.lock();
        let faults = state.faults;
        let is_refused = chance(&mut state.random, faults.not_appended_percent) || state.is_unavailable;
        let is_unknown = chance(&mut state.random, faults.unknown_percent);
        let is_late = chance(&mut state.random, faults.late_percent);
        let is_duplicated = chance(&mut state.random, faults.duplicated_percent);
        let arrived = state.random.usize(..=frames.len());
        let late = Duration::from_millis(state.random.u64(0..=LATE_MAX_MS));
        drop(state);
        if is_refused {
            self.shared.event(format_args!("{} refuses by={} records={}", self.name, by.0, frames.len()));
            return Err(AppendError::NotAppended { reason: reason() });
        }
        if is_unknown {
            self.shared.event(format_args!("{} cannot say by={} records={}", self.name, by.0, frames.len()));
            self.take(by, frames, arrived);
            return Err(AppendError::Unknown { reason: reason() });
        }
        if is_late {
            self.shared.event(format_args!("{} is late by={} records={}", self.name, by.0, frames.len()));
            let (server, frames) = (self.clone(), frames.to_vec());
            let arrive = async move {
                wait(late).await;
                server.take(by, &frames, frames.len());
            };
            self.shared.spawn(ProcessId::WORLD, "late append", Box::pin(arrive));
            return Err(AppendError::Unknown { reason: reason() });
        }
        if is_duplicated {
            self.take(by, frames, frames.len());
        }
        Ok(self.take(by, frames, frames.len()))
    }

    fn position(&self, log: [u8; 16], offset: u64, append_time_ms: i64) -> SourcePosition {
        let ShardId { route, partition } = self.shard;
        SourcePosition::Embedded(EmbeddedPosition { route, log, partition, offset, append_time_ms })
    }

    /// The offset behind a position of this log.
    fn next_of(&self, after: Option<&SourcePosition>) -> Result<u64, ReadError> {
        match after {
            None => Ok(0),
            Some(SourcePosition::Embedded(at))
                if (at.route, at.partition, at.log) == (self.shard.route, self.shard.partition, self.lock().log) =>
            {
                Ok(at.offset.saturating_add(1))
            }
            Some(other) => Err(ReadError::Gap { detail: format!("position {other:?} is not of {}", self.name) }),
        }
    }

    /// Records from an offset on, `None` when there are none yet.
    fn read_from(&self, by: ProcessId, next: u64, limit: ReadLimit) -> Result<Option<Vec<SourceRecord>>, ReadError> {
        let mut state = self.lock();
        if state.is_unavailable {
            return Err(ReadError::Unavailable { reason: "injected".to_owned() });
        }
        let end = state.records.len() as u64;
        if next < state.start || next > end {
            let detail = format!("offset {next} is not in {}, which holds {} up to {end}", self.name, state.start);
            return Err(ReadError::Gap { detail });
        }
        let (mut records, mut bytes, mut given) = (Vec::new(), 0, next);
        for (record, offset) in state.records[usize::try_from(next).unwrap_or(usize::MAX)..].iter().zip(next..) {
            if state.skipped == Some(offset) {
                continue;
            }
            bytes += record.frame.len();
            records.push(record.clone());
            given = offset + 1;
            if records.len() >= limit.records_max || bytes >= limit.bytes_max {
                break;
            }
        }
        if records.is_empty() {
            return Ok(None);
        }
        state.given.insert(by, given);
        Ok(Some(records))
    }

    fn barrier(&self) -> Result<Barrier, ReadError> {
        let state = self.lock();
        if state.is_unavailable {
            return Err(ReadError::Unavailable { reason: "injected".to_owned() });
        }
        Ok(state.records.last().map_or(Barrier::Empty, |last| Barrier::Through(last.position.clone())))
    }

    fn trim(&self, before: u64) -> Result<(), ReadError> {
        let mut state = self.lock();
        let end = state.records.len() as u64;
        if before > end {
            let detail = format!("offset {before} was never in {}, which ends at {end}", self.name);
            return Err(ReadError::Gap { detail });
        }
        if !state.keeps_everything {
            state.start = state.start.max(before);
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct LogClient {
    server: LogServer,
    link: Link,
}

impl ShardLog for LogClient {
    fn append(&self, frames: Vec<Bytes>) -> BoxFuture<'static, Result<Vec<SourcePosition>, AppendError>> {
        let (server, client) = (self.server.clone(), self.link.client);
        let paces = server.lock().paces;
        let answer = self.link.call(paces, move || server.append_of(client, &frames));
        let lost = |_| AppendError::Unknown { reason: "the request was lost".to_owned() };
        answer.map(move |answer| answer.map_err(lost)?).boxed()
    }

    fn read(
        &self,
        after: Option<&SourcePosition>,
        limit: ReadLimit,
    ) -> BoxFuture<'static, Result<Vec<SourceRecord>, ReadError>> {
        let (server, client, next) = (self.server.clone(), self.link.client, self.server.next_of(after));
        let mut end = self.server.end.subscribe();
        async move {
            let next = next?;
            loop {
                if let Some(records) = server.read_from(client, next, limit)? {
                    return Ok(records);
                }
                // The server lives as long as this future.
                let _ = end.changed().await;
            }
        }
        .boxed()
    }

    fn barrier(&self) -> BoxFuture<'static, Result<Barrier, ReadError>> {
        std::future::ready(self.server.barrier()).boxed()
    }

    fn trim(&self, position: &SourcePosition) -> BoxFuture<'static, Result<(), ReadError>> {
        let next = self.server.next_of(Some(position));
        let server = self.server.clone();
        async move { server.trim(next?.saturating_sub(1)) }.boxed()
    }
}
