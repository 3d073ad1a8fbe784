//! What clients do: operations that can be told again from their id, prepared by the real client, sent until they are answered or
//! given up.
//!
//! An operation has three ends: an answer, the certainty that it never reached the log, and neither. Neither says nothing.

use std::cell::{Cell as Slot, RefCell};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use client::prepare::{self, BoundDestination, Header, Instants, NewMessage, RouteSnapshot, Times};
use fastrand::Rng;
use ports::log::AppendError;
use protocol::command::{ClientCommand, Precondition};
use protocol::hash::{Preimage, sha256};
use protocol::id::{MessageId, Uuid7};
use protocol::position::SourcePosition;
use shard::query::PositionResult;
use tokio::time::timeout;

use crate::scene::Scene;
use crate::story::{Answer, Asked};
use crate::swarm::Weights;
use crate::world;

/// A message's name in the event log and in stories.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OperationId {
    /// The client.
    pub client: u32,
    /// Its how manieth operation.
    pub number: u32,
}

/// Something to be asked for.
#[derive(Clone, Debug)]
pub struct Operation {
    /// Whose.
    pub id: OperationId,
    /// The command, its bytes fixed.
    pub command: ClientCommand,
    /// Of which destination.
    pub destination: usize,
}

impl Operation {
    /// The shard's number.
    pub fn shard(&self) -> usize {
        self.command.message_id.shard.partition as usize
    }
}

/// Key, value and headers of an operation's message: whoever knows the id knows them.
pub fn content(seed: u64, id: OperationId) -> NewMessage {
    let mut random = world::stream(seed, &format!("content of {}/{}", id.client, id.number));
    let mut bytes = |length_max: usize| {
        let mut bytes = vec![0; random.usize(0..=length_max)];
        random.fill(&mut bytes);
        Bytes::from(bytes)
    };
    let key = bytes(12);
    let value = bytes(120);
    let header = Header { name: format!("operation-{}-{}", id.client, id.number), value: Some(bytes(8)) };
    let (has_key, has_value, has_id) = (random.u8(0..10) > 1, random.u8(0..10) > 0, random.u8(0..10) < 4);
    NewMessage {
        id: has_id.then(|| business_id(id)),
        key: has_key.then_some(key),
        value: has_value.then_some(value),
        headers: vec![header],
        ..NewMessage::default()
    }
}

fn business_id(id: OperationId) -> String {
    format!("order-{}-{}", id.client, id.number)
}

/// What is known of a run's clients when they are done.
#[derive(Default)]
pub struct Asks {
    asked: RefCell<Vec<Asked>>,
    operations: Slot<usize>,
}

impl Asks {
    /// Everything, in the order in which it was asked.
    pub fn take(&self) -> Vec<Asked> {
        self.asked.take()
    }

    /// How often anything was asked for, again or not.
    pub fn operations(&self) -> usize {
        self.operations.get()
    }

    fn ask(&self, operation: Operation) -> usize {
        let mut asked = self.asked.borrow_mut();
        asked.push(Asked { operation, answers: Vec::new(), answered_nothing: Vec::new() });
        asked.len() - 1
    }

    fn answered_nothing(&self, index: usize, host: usize, position: SourcePosition) {
        self.asked.borrow_mut()[index].answered_nothing.push((host, position));
    }

    fn answered(&self, index: usize, answer: Answer) {
        self.asked.borrow_mut()[index].answers.push(answer);
    }
}

/// One client.
pub struct Client<'a> {
    scene: &'a Scene<'a>,
    asks: &'a Asks,
    number: u32,
    route: RouteSnapshot,
    random: Rng,
    /// What it has asked for: its places in `asks`.
    mine: Vec<usize>,
    /// The messages it has scheduled.
    messages: Vec<(MessageId, usize, OperationId)>,
}

#[derive(Clone, Copy)]
enum Kind {
    Schedule,
    ScheduleAgain,
    Cancel,
    Reschedule,
    Ask,
}

impl<'a> Client<'a> {
    /// A client that has not done anything yet.
    pub fn new(scene: &'a Scene<'a>, asks: &'a Asks, number: u32) -> Client<'a> {
        let cell = scene.cell;
        let route = RouteSnapshot {
            route: cell.shards[0].identity.shard.route,
            partition_count: NonZeroU32::new(scene.swarm.shards).unwrap_or(NonZeroU32::MIN),
            tenant_scope: cell.tenant_scope(),
            limits: cell.limits,
            past_ms_max: 60_000,
        };
        let random = cell.world.random(&format!("client {number}"));
        Client { scene, asks, number, route, random, mine: Vec::new(), messages: Vec::new() }
    }

    /// Does everything it has to, one after the other.
    pub async fn run(mut self) {
        let pause_ms_max =
            2 * u64::try_from(self.scene.swarm.span.as_millis()).unwrap_or(0) / u64::from(self.scene.swarm.operations);
        for number in 0..self.scene.swarm.operations {
            self.scene.cell.world.wait(Duration::from_millis(self.random.u64(0..=pause_ms_max))).await;
            let id = OperationId { client: self.number, number };
            let index = match self.draw(id) {
                Some(operation) => self.asks.ask(operation),
                None if self.mine.is_empty() => continue,
                None => self.mine[self.random.usize(..self.mine.len())],
            };
            self.mine.push(index);
            self.asks.operations.set(self.asks.operations.get() + 1);
            let (shard, frame, command) = {
                let asked = self.asks.asked.borrow();
                let operation = &asked[index].operation;
                (operation.shard(), operation.command.encode_frame(), operation.command.command_id)
            };
            let patience = Duration::from_millis(self.random.u64(300..=4_000));
            let tries = self.random.u32(1..=3);
            for _ in 0..tries {
                let (host, worker) = self.scene.worker_for(shard, &mut self.random);
                let handle = worker.handles[shard].clone();
                let submit = async {
                    let positions = match handle.append(vec![frame.clone()]).await {
                        Ok(positions) => positions,
                        Err(AppendError::NotAppended { .. } | AppendError::Unknown { .. }) => return None,
                    };
                    let position = positions.into_iter().next()?;
                    handle.applied(&position).await.ok()?;
                    match handle.result_at(&position, command) {
                        Ok(PositionResult::Command(verdict)) => Some((position, verdict)),
                        Ok(PositionResult::Exception(_) | PositionResult::Unknown) => {
                            self.asks.answered_nothing(index, host, position);
                            None
                        }
                        Err(_) => None,
                    }
                };
                if let Ok(Some((position, verdict))) = timeout(patience, submit).await {
                    let at_us = self.scene.cell.world.time().now_us();
                    let process = worker.process.id();
                    self.asks.answered(index, Answer { at_us, process, host, position, verdict });
                    break;
                }
            }
        }
    }

    /// What comes next; `None` to ask again.
    fn draw(&mut self, id: OperationId) -> Option<Operation> {
        let kind = self.kind();
        let now_ms = self.scene.cell.world.now_ms();
        let instants = Instants::now(now_ms);
        let command = self.uuid(now_ms, id, "command");
        let target = (!self.messages.is_empty()).then(|| self.messages[self.random.usize(..self.messages.len())]);
        match (kind, target) {
            (Kind::Ask, _) => None,
            (Kind::Cancel, Some((message, destination, _))) => {
                let command = prepare::cancel(&self.route, message, Precondition::default(), command).ok()?;
                Some(Operation { id, command, destination })
            }
            (Kind::Reschedule, Some((message, destination, _))) => {
                let (bound, times) = (self.bound(destination), self.times(now_ms));
                let precondition = Precondition::default();
                let command =
                    prepare::reschedule(&self.route, &bound, message, precondition, times, command, instants).ok()?;
                Some(Operation { id, command, destination })
            }
            (Kind::ScheduleAgain, Some((_, destination, used))) => {
                let new = NewMessage { id: Some(business_id(used)), ..content(self.scene.cell.seed, id) };
                self.schedule(id, new, destination, command, now_ms)
            }
            _ => {
                let destination = self.random.usize(..self.scene.swarm.destinations);
                self.schedule(id, content(self.scene.cell.seed, id), destination, command, now_ms)
            }
        }
    }

    fn schedule(
        &mut self,
        id: OperationId,
        new: NewMessage,
        destination: usize,
        command: Uuid7,
        now_ms: i64,
    ) -> Option<Operation> {
        let Times { deliver_at_ms, expire_at_ms } = self.times(now_ms);
        let new = NewMessage { deliver_at_ms, expire_at_ms: Some(expire_at_ms), ..new };
        let message = self.uuid(now_ms, id, "message");
        let bound = self.bound(destination);
        let command = prepare::schedule(&self.route, &bound, new, message, command, Instants::now(now_ms)).ok()?;
        self.messages.push((command.message_id, destination, id));
        Some(Operation { id, command, destination })
    }

    fn kind(&mut self) -> Kind {
        let Weights { schedule, schedule_again, cancel, reschedule, ask } = self.scene.swarm.weights;
        let kinds = [
            (schedule, Kind::Schedule),
            (schedule_again, Kind::ScheduleAgain),
            (cancel, Kind::Cancel),
            (reschedule, Kind::Reschedule),
            (ask, Kind::Ask),
        ];
        let mut drawn = self.random.u32(0..kinds.iter().map(|(weight, _)| weight).sum());
        for (weight, kind) in kinds {
            if drawn < weight {
                return kind;
            }
            drawn -= weight;
        }
        Kind::Schedule
    }

    fn times(&mut self, now_ms: i64) -> Times {
        let grid_ms = self.scene.swarm.due_grid_ms;
        let deliver_at_ms = (now_ms + self.random.i64(-500..=self.scene.swarm.delay_ms_max)) / grid_ms * grid_ms;
        // The shortest window that is allowed, so that some expire; or one that nobody sees the end of.
        let window_ms = if self.random.u8(0..100) < 20 { self.random.i64(7_000..12_000) } else { 86_400_000 };
        Times { deliver_at_ms, expire_at_ms: deliver_at_ms.max(now_ms) + window_ms }
    }

    fn bound(&self, destination: usize) -> BoundDestination {
        let destination = &self.scene.cell.destinations[destination];
        BoundDestination { profile: destination.reference(), body: Arc::new(destination.body.clone()) }
    }

    fn uuid(&self, now_ms: i64, id: OperationId, purpose: &str) -> Uuid7 {
        let preimage = Preimage::new("nereus-delay-sim-id\0")
            .u64(self.scene.cell.seed)
            .u64(u64::from(id.client))
            .u64(u64::from(id.number))
            .bytes(purpose.as_bytes());
        let digest = sha256(&preimage.sha256());
        let random = digest.first_chunk().copied().unwrap_or_default();
        Uuid7::from_parts(now_ms.unsigned_abs(), random).expect("a time of this century")
    }
}
