//! Destinations of a world: topics that keep what was delivered with its true time, and misbehave as a test tells them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use fastrand::Rng;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream};
use futures_util::{FutureExt as _, StreamExt as _};
use ports::destination::{AttemptOutcome, AttemptRef, Destination, LaneError, LaneSession, LaneTarget};
use protocol::code::StableCode;
use protocol::hash::sha256;
use protocol::id::ShardId;
use protocol::mutation_v2::{AbsenceKind, Disposition, PublishedEvidence, TopicAck};
use protocol::resource::Resource;
use shard::query::OpenAttempt;
use shard::schedule::claim::AdmittedAttempt;
use shard::schedule::outgoing::OutgoingRecord;
use shard::state::MessageUuid;
use tokio::sync::watch;

use super::link::{Link, Paces, Turns};
use super::random::chance;
use super::shared::Shared;
use super::{Process, World};

/// A partition of a topic.
pub type Place = ([u8; 16], u32);

/// What a partition does with an attempt that reaches it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answering {
    /// Takes it.
    Takes,
    /// Certainly does not take it: its own trouble, or the message's.
    Refuses(Disposition),
    /// Never answers, and takes this many of a hundred.
    Hangs {
        /// How many.
        takes_percent: u8,
    },
    /// Says that it cannot say, and takes this many of a hundred.
    CannotSay {
        /// How many.
        takes_percent: u8,
    },
    /// Ends the stream without a word, and takes this many of a hundred.
    FallsSilent {
        /// How many.
        takes_percent: u8,
    },
}

/// Whether a session can be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opening {
    /// Yes.
    Opens,
    /// No, with this code.
    Fails(StableCode),
    /// Nobody ever answers.
    Hangs,
}

/// What a partition can say of attempts that nobody heard of any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// Everything: older epochs are fenced, and what is not there never will be.
    Exact,
    /// What it took; of the rest it knows nothing.
    OfPresence,
    /// Nothing.
    None,
    /// Not even that it can say nothing: the question fails.
    Unavailable,
    /// Never answers the question.
    Hangs,
}

/// How a partition behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Behavior {
    /// How long requests take.
    pub paces: Paces,
    /// What becomes of attempts.
    pub answering: Answering,
    /// Larger records are refused for good.
    pub record_bytes_max: usize,
    /// What becomes of attempts to open a session.
    pub opening: Opening,
    /// What is known of open attempts.
    pub evidence: Evidence,
    /// What operators should know of its sessions although they work.
    pub remark: Option<StableCode>,
}

impl Default for Behavior {
    fn default() -> Self {
        Behavior {
            paces: Paces::fixed(2, 1),
            answering: Answering::Takes,
            record_bytes_max: usize::MAX,
            opening: Opening::Opens,
            evidence: Evidence::Exact,
            remark: None,
        }
    }
}

/// An attempt that a partition took.
#[derive(Clone, Debug, PartialEq)]
pub struct Delivered {
    /// When, in true time.
    pub at_us: i64,
    /// Where.
    pub place: Place,
    /// At which offset.
    pub offset: u64,
    /// Whose attempt it was.
    pub shard: ShardId,
    /// Which.
    pub attempt: AttemptRef,
    /// The epoch that admitted it.
    pub owner_epoch: u64,
    /// When the message was to be delivered.
    pub deliver_at_ms: i64,
    /// Key, value and headers as they were delivered.
    pub record: OutgoingRecord,
}

/// An attempt that reached a partition, whatever became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// When, in true time.
    pub at_us: i64,
    /// Where.
    pub place: Place,
    /// Whose attempt it was.
    pub shard: ShardId,
    /// Which.
    pub attempt: AttemptRef,
    /// The epoch that admitted it.
    pub owner_epoch: u64,
}

type AttemptKey = (ShardId, AttemptRef);

struct State {
    behaviors: BTreeMap<Place, Behavior>,
    behavior_default: Behavior,
    delivered: Vec<Delivered>,
    offsets: BTreeMap<Place, u64>,
    evidence: BTreeMap<AttemptKey, TopicAck>,
    /// Attempts that were declared absent: they must not arrive any more.
    absent: BTreeSet<AttemptKey>,
    fences: BTreeMap<ShardId, u64>,
    /// The owner said that no attempt admitted before this is open any more.
    forgotten: BTreeMap<ShardId, Bytes>,
    received: Vec<Received>,
    /// No attempt is sent twice, by whomever.
    seen: BTreeSet<AttemptKey>,
    /// Shards whose log was harmed: what an owner knows from the rest of it may be anything.
    harmed: BTreeSet<ShardId>,
    random: Rng,
}

/// Every destination of a world.
#[derive(Clone)]
pub struct Broker {
    shared: Arc<Shared>,
    state: Arc<Mutex<State>>,
    losses: watch::Sender<Losses>,
}

/// What ends sessions.
#[derive(Default)]
struct Losses {
    /// Counts up for a partition when its sessions are lost.
    of_places: BTreeMap<Place, u64>,
    /// Topics that are gone for good.
    deleted: BTreeSet<[u8; 16]>,
}

impl Losses {
    fn of(&self, place: Place) -> u64 {
        self.of_places.get(&place).copied().unwrap_or(0)
    }

    fn is_deleted(&self, place: Place) -> bool {
        self.deleted.contains(&place.0)
    }
}

impl Broker {
    /// Partitions that all take what they are given.
    pub fn new(world: &World) -> Broker {
        let shared = world.shared().clone();
        let state = State {
            behaviors: BTreeMap::new(),
            behavior_default: Behavior::default(),
            delivered: Vec::new(),
            offsets: BTreeMap::new(),
            evidence: BTreeMap::new(),
            absent: BTreeSet::new(),
            fences: BTreeMap::new(),
            forgotten: BTreeMap::new(),
            received: Vec::new(),
            seen: BTreeSet::new(),
            harmed: BTreeSet::new(),
            random: shared.stream("broker"),
        };
        Broker { shared, state: Arc::new(Mutex::new(state)), losses: watch::Sender::new(Losses::default()) }
    }

    /// The destinations as a process reaches them.
    pub fn client(&self, process: &Process) -> Arc<dyn Destination> {
        Arc::new(BrokerClient { broker: self.clone(), link: Link::new(self.shared.clone(), process.id(), "broker") })
    }

    /// How every partition behaves that was not told otherwise.
    pub fn set_default(&self, behavior: Behavior) {
        self.lock().behavior_default = behavior;
    }

    /// How a partition behaves from now on.
    pub fn set(&self, place: Place, behavior: Behavior) {
        self.shared.event(format_args!("{} behaves as {:?}", name(place), behavior.answering));
        self.lock().behaviors.insert(place, behavior);
    }

    /// How a partition behaves.
    pub fn behavior(&self, place: Place) -> Behavior {
        let state = self.lock();
        state.behaviors.get(&place).copied().unwrap_or(state.behavior_default)
    }

    /// Ends every session on a partition.
    pub fn lose_sessions(&self, place: Place) {
        self.shared.event(format_args!("{} loses its sessions", name(place)));
        self.losses.send_modify(|losses| *losses.of_places.entry(place).or_default() += 1);
    }

    /// Deletes a topic and makes it again: the new one's id. Sessions on the old one are over, and what reaches it is refused.
    pub fn recreate_topic(&self, topic: [u8; 16]) -> [u8; 16] {
        self.shared.event(format_args!("{} is deleted and made again", name((topic, 0))));
        self.losses.send_modify(|losses| {
            losses.deleted.insert(topic);
        });
        let digest = sha256(&topic);
        digest.first_chunk().copied().unwrap_or_default()
    }

    fn is_deleted(&self, place: Place) -> bool {
        self.losses.borrow().is_deleted(place)
    }

    /// From here on nothing that a shard does is held against it: its log was harmed.
    pub fn tolerate(&self, shard: ShardId) {
        self.lock().harmed.insert(shard);
    }

    /// Everything that was delivered, in its order.
    pub fn delivered(&self) -> Vec<Delivered> {
        self.lock().delivered.clone()
    }

    /// How much was delivered.
    pub fn delivered_count(&self) -> usize {
        self.lock().delivered.len()
    }

    /// What was delivered of one message.
    pub fn delivered_of(&self, message: MessageUuid) -> Vec<Delivered> {
        self.lock().delivered.iter().filter(|delivered| delivered.attempt.message == message).cloned().collect()
    }

    /// Every attempt that reached a partition, in their order.
    pub fn received(&self) -> Vec<Received> {
        self.lock().received.clone()
    }

    /// When attempts of one message reached a partition.
    pub fn received_of(&self, message: MessageUuid) -> Vec<Received> {
        self.lock().received.iter().filter(|received| received.attempt.message == message).copied().collect()
    }

    /// What becomes of attempts that reached a partition, in their order.
    fn receive(&self, place: Place, attempts: &[AdmittedAttempt]) -> Reply {
        let behavior = self.behavior(place);
        let mut answers = Vec::new();
        for attempt in attempts {
            let key = (attempt.message_id().shard, attempt_ref(attempt));
            if let Some(outcome) = self.receive_one(place, &behavior, attempt, key) {
                self.shared.event(format_args!("{} answers {} {:?}", name(place), Named(key.1), outcome.code));
                answers.push((key.1, outcome));
            }
        }
        match behavior.answering {
            Answering::Hangs { .. } if answers.is_empty() => Reply::Never,
            Answering::Hangs { .. } => Reply::Some(answers),
            _ => Reply::All(answers),
        }
    }

    fn receive_one(
        &self,
        place: Place,
        behavior: &Behavior,
        attempt: &AdmittedAttempt,
        key: AttemptKey,
    ) -> Option<AttemptOutcome> {
        let refused =
            |disposition, code| AttemptOutcome::not_published(key.1, disposition, AbsenceKind::RefusedByBroker, code);
        let mut state = self.lock();
        let is_new = state.seen.insert(key) || state.harmed.contains(&key.0);
        assert!(is_new, "attempt {} was sent twice", Named(key.1));
        let (at_us, owner_epoch) = (self.shared.time.now_us(), attempt.owner_epoch());
        state.received.push(Received { at_us, place, shard: key.0, attempt: key.1, owner_epoch });
        if self.is_deleted(place) {
            return Some(refused(Disposition::LaneUnavailable, StableCode::ResourceIncarnationMismatch));
        }
        let is_fenced = state.fences.get(&key.0).is_some_and(|fence| attempt.owner_epoch() < *fence);
        if is_fenced || state.absent.contains(&key) {
            return Some(refused(Disposition::LaneUnavailable, StableCode::CapabilityUnavailable));
        }
        if attempt.material().record.size() > behavior.record_bytes_max {
            return Some(refused(Disposition::MessagePermanent, StableCode::DestinationDefinitivePermanent));
        }
        let (takes_percent, answers) = match behavior.answering {
            Answering::Takes => (100, true),
            Answering::Refuses(disposition) => return Some(refused(disposition, code_of(disposition))),
            Answering::Hangs { takes_percent } | Answering::FallsSilent { takes_percent } => (takes_percent, false),
            Answering::CannotSay { takes_percent } => {
                if chance(&mut state.random, takes_percent) {
                    self.deliver(&mut state, place, attempt, key);
                }
                return Some(AttemptOutcome::unknown(StableCode::DestinationOutcomeUnknown));
            }
        };
        let ack = chance(&mut state.random, takes_percent).then(|| self.deliver(&mut state, place, attempt, key));
        ack.filter(|_| answers).map(|ack| AttemptOutcome::published(PublishedEvidence::Embedded(ack)))
    }

    fn deliver(&self, state: &mut State, place: Place, attempt: &AdmittedAttempt, key: AttemptKey) -> TopicAck {
        let next = state.offsets.entry(place).or_default();
        let offset = *next;
        *next += 1;
        let ack = TopicAck { topic: place.0, partition: place.1, offset, time_ms: self.shared.time.now_ms() };
        state.evidence.insert(key, ack);
        let (owner_epoch, deliver_at_ms) = (attempt.owner_epoch(), attempt.material().deliver_at_ms);
        self.shared.event(format_args!("{} takes {} offset={offset} epoch={owner_epoch}", name(place), Named(key.1)));
        state.delivered.push(Delivered {
            at_us: self.shared.time.now_us(),
            place,
            offset,
            shard: key.0,
            attempt: key.1,
            owner_epoch,
            deliver_at_ms,
            record: attempt.delivered_record(),
        });
        ack
    }

    fn open(&self, place: Place, shard: ShardId, epoch: u64) -> Opening {
        if self.is_deleted(place) {
            return Opening::Fails(StableCode::ResourceIncarnationMismatch);
        }
        let behavior = self.behavior(place);
        if behavior.opening != Opening::Opens || behavior.evidence != Evidence::Exact {
            return behavior.opening;
        }
        let mut state = self.lock();
        let fence = state.fences.entry(shard).or_default();
        *fence = epoch.max(*fence);
        if *fence > epoch { Opening::Fails(StableCode::CapabilityUnavailable) } else { Opening::Opens }
    }

    fn recall(&self, place: Place, shard: ShardId, open: &[OpenAttempt]) -> Recall {
        let evidence = self.behavior(place).evidence;
        match evidence {
            _ if self.is_deleted(place) => return Recall::Fails,
            Evidence::Unavailable => return Recall::Fails,
            Evidence::Hangs => return Recall::Hangs,
            Evidence::Exact | Evidence::OfPresence | Evidence::None => {}
        }
        let mut answers = Vec::new();
        let mut state = self.lock();
        for open in open {
            let OpenAttempt { message, generation, attempt, .. } = *open;
            let attempt = AttemptRef { message, generation, attempt };
            // Evidence that was let go is gone: to this partition it is as if it had never taken the attempt.
            let is_forgotten = state.forgotten.get(&shard).is_some_and(|before| open.admission_order_token < *before);
            let evidence_kept = state.evidence.get(&(shard, attempt)).filter(|_| !is_forgotten);
            let outcome = match (evidence_kept, evidence) {
                (_, Evidence::None) | (None, Evidence::OfPresence) => continue,
                // Another incarnation's: here it is as if nobody knew, and certainly not absent.
                (Some(ack), _) if ack.topic != place.0 => continue,
                (Some(ack), _) => AttemptOutcome::published(PublishedEvidence::Embedded(*ack)),
                (None, _) => {
                    state.absent.insert((shard, attempt));
                    let (disposition, kind) = (Disposition::LaneUnavailable, AbsenceKind::ReceiptAbsent);
                    let code = StableCode::DestinationDefinitiveRetriable;
                    AttemptOutcome::not_published(attempt, disposition, kind, code)
                }
            };
            self.shared.event(format_args!("{} recalls {} {:?}", name(place), Named(attempt), outcome.code));
            answers.push((attempt, outcome));
        }
        Recall::Answers(answers)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

enum Reply {
    /// That is all that will come.
    All(Answers),
    /// The rest never comes.
    Some(Answers),
    Never,
}

enum Recall {
    Answers(Answers),
    Fails,
    Hangs,
}

type Answers = Vec<(AttemptRef, AttemptOutcome)>;

/// An attempt as the event log shows it.
struct Named(AttemptRef);

impl std::fmt::Display for Named {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}/{}/{}", self.0.message, self.0.generation, self.0.attempt)
    }
}

fn name(place: Place) -> String {
    format!("topic {:02x}{:02x}-{}", place.0[0], place.0[1], place.1)
}

fn attempt_ref(attempt: &AdmittedAttempt) -> AttemptRef {
    AttemptRef { message: attempt.message_id().uuid, generation: attempt.generation(), attempt: attempt.attempt() }
}

fn code_of(disposition: Disposition) -> StableCode {
    match disposition {
        Disposition::MessageRetriable => StableCode::DestinationDefinitiveRetriable,
        Disposition::MessagePermanent => StableCode::DestinationDefinitivePermanent,
        Disposition::LaneUnavailable => StableCode::CapabilityUnavailable,
    }
}

struct BrokerClient {
    broker: Broker,
    link: Link,
}

impl Destination for BrokerClient {
    fn open_lane(&self, target: LaneTarget) -> BoxFuture<'static, Result<Box<dyn LaneSession>, LaneError>> {
        let Resource::Embedded { topic } = target.profile.resource else {
            let detail = "the profile's topic is of another system".to_owned();
            let error = LaneError { code: StableCode::ResourceIncarnationMismatch, detail };
            return std::future::ready(Err(error)).boxed();
        };
        let (place, shard, epoch) = ((topic, target.partition), target.shard, target.owner_epoch);
        let (broker, link) = (self.broker.clone(), self.link.clone());
        let loss = broker.losses.borrow().of(place);
        let paces = broker.behavior(place).paces;
        let opened = self.link.call(paces, move || broker.open(place, shard, epoch));
        let broker = self.broker.clone();
        async move {
            match opened.await {
                Ok(Opening::Opens) => {
                    let turns = Turns::new();
                    Ok(Box::new(BrokerLane { broker, link, place, shard, loss, turns }) as Box<_>)
                }
                Ok(Opening::Fails(code)) => {
                    Err(LaneError { code, detail: format!("{} cannot be opened", name(place)) })
                }
                Ok(Opening::Hangs) | Err(_) => std::future::pending().await,
            }
        }
        .boxed()
    }
}

struct BrokerLane {
    broker: Broker,
    link: Link,
    place: Place,
    shard: ShardId,
    /// How often the partition had lost its sessions when this one was opened.
    loss: u64,
    turns: Turns,
}

impl LaneSession for BrokerLane {
    fn send(&self, attempts: Vec<AdmittedAttempt>) -> BoxStream<'static, Answers> {
        let (broker, place) = (self.broker.clone(), self.place);
        let paces = broker.behavior(place).paces;
        let answer = self.link.call_in_turn(paces, &self.turns, move || broker.receive(place, &attempts));
        stream::once(answer)
            .flat_map(|reply| match reply {
                Ok(Reply::All(answers)) => stream::iter(Some(answers)).boxed(),
                Ok(Reply::Some(answers)) => stream::iter(Some(answers)).chain(stream::pending()).boxed(),
                Ok(Reply::Never) | Err(_) => stream::pending().boxed(),
            })
            .boxed()
    }

    fn recover(&self, open: Vec<OpenAttempt>) -> BoxFuture<'static, Result<Answers, LaneError>> {
        let (broker, place, shard) = (self.broker.clone(), self.place, self.shard);
        let paces = broker.behavior(place).paces;
        let answer = self.link.call(paces, move || broker.recall(place, shard, &open));
        async move {
            match answer.await {
                Ok(Recall::Answers(answers)) => Ok(answers),
                Ok(Recall::Fails) => {
                    let detail = format!("{} cannot say what it has", name(place));
                    Err(LaneError { code: StableCode::CapabilityUnavailable, detail })
                }
                Ok(Recall::Hangs) | Err(_) => std::future::pending().await,
            }
        }
        .boxed()
    }

    fn remark(&self) -> Option<LaneError> {
        let code = self.broker.behavior(self.place).remark?;
        Some(LaneError { code, detail: format!("{} is throttled", name(self.place)) })
    }

    fn forget_before(&self, admission_order_token: Bytes) {
        let mut state = self.broker.lock();
        let before = state.forgotten.entry(self.shard).or_default();
        *before = admission_order_token.max(before.clone());
    }

    fn lost(&self) -> BoxFuture<'static, LaneError> {
        let mut losses = self.broker.losses.subscribe();
        let (place, loss) = (self.place, self.loss);
        async move {
            let is_lost = |losses: &Losses| losses.of(place) > loss || losses.is_deleted(place);
            let Ok(is_deleted) = losses.wait_for(is_lost).await.map(|losses| losses.is_deleted(place)) else {
                return std::future::pending().await;
            };
            let (code, what) = match is_deleted {
                true => (StableCode::ResourceIncarnationMismatch, "was deleted"),
                false => (StableCode::CapabilityUnavailable, "lost its sessions"),
            };
            LaneError { code, detail: format!("{} {what}", name(place)) }
        }
        .boxed()
    }
}
