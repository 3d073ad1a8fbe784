//! Topics as destinations: admitted attempts in, exact evidence out.
//!
//! Records and the row that names their attempts are one write, so after a crash an attempt is in the topic exactly when its row
//! says so. Asked about an open attempt, the session first fences every older epoch of the shard through the writer's queue:
//! what is not there then never will be.

use std::collections::BTreeMap;

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::{BoxStream, FuturesUnordered, StreamExt as _};
use ports::destination::{AttemptOutcome, AttemptRef, Destination, LaneError, LaneSession, LaneTarget};
use protocol::code::StableCode;
use protocol::id::ShardId;
use protocol::mutation_v2::{AbsenceKind, Disposition, PublishedEvidence, TopicAck};
use protocol::resource::Resource;
use shard::query::OpenAttempt;
use shard::schedule::claim::AdmittedAttempt;
use shard::schedule::outgoing::OutgoingRecord;

use crate::append::{AppendError, Appended, AttemptEntry, AttemptsRow};
use crate::engine::Embedded;
use crate::partition::Partition;
use crate::record::{Header, TopicRecord};

/// Topics of the embedded log as destinations.
#[derive(Clone, Debug)]
pub struct EmbeddedDestination {
    embedded: Embedded,
}

impl EmbeddedDestination {
    /// Over an engine.
    pub fn new(embedded: Embedded) -> EmbeddedDestination {
        EmbeddedDestination { embedded }
    }

    fn partition(&self, target: &LaneTarget) -> Result<Partition, LaneError> {
        let mismatch = |detail: String| LaneError { code: StableCode::ResourceIncarnationMismatch, detail };
        let Resource::Embedded { topic: topic_id } = &target.profile.resource else {
            return Err(mismatch("the profile's topic is not of the embedded log".to_owned()));
        };
        let topic = self
            .embedded
            .topic_by_id(*topic_id)
            .ok_or_else(|| mismatch("the topic that the profile pins is not in the embedded log".to_owned()))?;
        topic.partition(target.partition).ok_or_else(|| {
            mismatch(format!(
                "topic {} has {} partitions, the lane is for partition {}",
                topic.name(),
                topic.partition_count(),
                target.partition
            ))
        })
    }
}

impl Destination for EmbeddedDestination {
    fn open_lane(&self, target: LaneTarget) -> BoxFuture<'static, Result<Box<dyn LaneSession>, LaneError>> {
        let partition = self.partition(&target);
        let (scope, epoch) = (scope_of(target.shard), target.owner_epoch);
        let fenced = self.embedded.fence(scope.clone(), epoch);
        let embedded = self.embedded.clone();
        async move {
            let partition = partition?;
            let unavailable = |detail: String| LaneError { code: StableCode::CapabilityUnavailable, detail };
            let current = fenced.await.map_err(|error| unavailable(error.to_string()))?;
            if current > epoch {
                return Err(unavailable(format!("epoch {epoch} is fenced by epoch {current}")));
            }
            Ok(Box::new(EmbeddedLane { embedded, partition, scope, epoch }) as Box<dyn LaneSession>)
        }
        .boxed()
    }
}

/// Whose attempts these are: one shard's, of any epoch.
fn scope_of(shard: ShardId) -> Bytes {
    let mut scope = Vec::with_capacity(20);
    scope.extend_from_slice(&shard.route.0);
    scope.extend_from_slice(&shard.partition.to_be_bytes());
    scope.into()
}

/// A session on one partition.
#[derive(Clone, Debug)]
struct EmbeddedLane {
    embedded: Embedded,
    partition: Partition,
    scope: Bytes,
    epoch: u64,
}

type Answers = Vec<(AttemptRef, AttemptOutcome)>;

impl EmbeddedLane {
    /// Appends the attempts of one admission record.
    fn append(&self, order: u64, attempts: &[AdmittedAttempt]) -> BoxFuture<'static, Answers> {
        let mut answers = Answers::new();
        let (mut records, mut entries, mut refs) = (Vec::new(), Vec::new(), Vec::new());
        for attempt in attempts {
            let reference = reference_of(attempt);
            match encode(attempt) {
                Ok(record) => {
                    records.push(record);
                    entries.push(entry_of(reference));
                    refs.push(reference);
                }
                Err(()) => answers.push((reference, refused(reference))),
            }
        }
        if records.is_empty() {
            return std::future::ready(answers).boxed();
        }
        let row = AttemptsRow { scope: self.scope.clone(), epoch: self.epoch, order, entries };
        let appended = self.partition.append_attempts(records, row);
        let (topic, partition) = (self.partition.topic_id(), self.partition.index());
        async move {
            match appended.await {
                Ok(Appended { first_offset, append_time_ms }) => {
                    answers.extend(refs.into_iter().zip(first_offset..).map(|(reference, offset)| {
                        let ack = TopicAck { topic, partition, offset, time_ms: append_time_ms };
                        (reference, AttemptOutcome::published(PublishedEvidence::Embedded(ack)))
                    }));
                }
                Err(error) => {
                    answers.extend(refs.into_iter().map(|reference| (reference, failed(reference, &error))));
                }
            }
            answers
        }
        .boxed()
    }
}

impl LaneSession for EmbeddedLane {
    fn send(&self, attempts: Vec<AdmittedAttempt>) -> BoxStream<'static, Answers> {
        let mut by_admission: BTreeMap<u64, Vec<AdmittedAttempt>> = BTreeMap::new();
        for attempt in attempts {
            by_admission.entry(order_of(attempt.admission_order_token())).or_default().push(attempt);
        }
        // Each append takes its place in the queue here, in the order of the admissions.
        let appends: FuturesUnordered<_> =
            by_admission.iter().map(|(order, attempts)| self.append(*order, attempts)).collect();
        appends.boxed()
    }

    fn recover(&self, open: Vec<OpenAttempt>) -> BoxFuture<'static, Result<Answers, LaneError>> {
        let fenced = self.embedded.fence(self.scope.clone(), self.epoch);
        let lane = self.clone();
        async move {
            let unavailable = |detail: String| LaneError { code: StableCode::CapabilityUnavailable, detail };
            // Everything older epochs have handed over is in the topic behind this, or never will be.
            fenced.await.map_err(|error| unavailable(error.to_string()))?;
            lane.look_up(open).map_err(|error| unavailable(error.to_string()))
        }
        .boxed()
    }

    fn forget_before(&self, admission_order_token: Bytes) {
        self.embedded.forget_attempts(self.scope.clone(), order_of(&admission_order_token));
    }

    fn lost(&self) -> BoxFuture<'static, LaneError> {
        let closed = self.embedded.closed();
        async move { LaneError { code: StableCode::CapabilityUnavailable, detail: closed.await } }.boxed()
    }
}

impl EmbeddedLane {
    /// What the stored rows say about attempts. What they do not name was never appended.
    fn look_up(&self, open: Vec<OpenAttempt>) -> Result<Answers, crate::read::ReadError> {
        let orders = open.iter().map(|attempt| order_of(&attempt.admission_order_token));
        let (Some(first), Some(last)) = (orders.clone().min(), orders.max()) else { return Ok(Answers::new()) };
        let mut stored = BTreeMap::new();
        for row in self.embedded.attempts(&self.scope, first..last.saturating_add(1))? {
            for (entry, offset) in row.offsets() {
                let time_ms = row.append_time_ms;
                let ack = TopicAck { topic: row.topic_id, partition: row.partition, offset, time_ms };
                stored.insert(entry, PublishedEvidence::Embedded(ack));
            }
        }
        let answer = |attempt: OpenAttempt| {
            let OpenAttempt { message, generation, attempt, .. } = attempt;
            let reference = AttemptRef { message, generation, attempt };
            let outcome = match stored.get(&entry_of(reference)) {
                Some(evidence) => AttemptOutcome::published(evidence.clone()),
                None => AttemptOutcome::not_published(
                    reference,
                    Disposition::LaneUnavailable,
                    AbsenceKind::ReceiptAbsent,
                    StableCode::DestinationDefinitiveRetriable,
                ),
            };
            (reference, outcome)
        };
        Ok(open.into_iter().map(answer).collect())
    }
}

/// The offset in an embedded order token (v2 §6): the last eight bytes.
fn order_of(order_token: &[u8]) -> u64 {
    order_token.last_chunk::<8>().map_or(0, |offset| u64::from_be_bytes(*offset))
}

fn reference_of(attempt: &AdmittedAttempt) -> AttemptRef {
    AttemptRef { message: attempt.message_id().uuid, generation: attempt.generation(), attempt: attempt.attempt() }
}

fn entry_of(reference: AttemptRef) -> AttemptEntry {
    let AttemptRef { message, generation, attempt } = reference;
    AttemptEntry { message: message.to_bytes(), generation, attempt }
}

/// A record as topics hold it. What does not fit the format was not accepted by apply either.
fn encode(attempt: &AdmittedAttempt) -> Result<Bytes, ()> {
    let OutgoingRecord { key, value, headers, event_time_ms } = attempt.delivered_record();
    let mut encoded = Vec::with_capacity(headers.len());
    for header in headers {
        let name = String::from_utf8(header.name.to_vec()).map_err(drop)?;
        encoded.push(Header { name, value: header.value });
    }
    let timestamp_ms = event_time_ms.unwrap_or(attempt.material().deliver_at_ms);
    let record = TopicRecord { key, value, headers: encoded, timestamp_ms };
    record.encode().map_err(drop)
}

/// A record that cannot be appended, now or ever.
fn refused(reference: AttemptRef) -> AttemptOutcome {
    AttemptOutcome::not_published(
        reference,
        Disposition::MessagePermanent,
        AbsenceKind::NotSubmitted,
        StableCode::DestinationDefinitivePermanent,
    )
}

fn failed(reference: AttemptRef, error: &AppendError) -> AttemptOutcome {
    let (disposition, kind, code) = match error {
        AppendError::Unknown { .. } => return AttemptOutcome::unknown(StableCode::DestinationOutcomeUnknown),
        AppendError::Closed { .. } => {
            (Disposition::LaneUnavailable, AbsenceKind::NotSubmitted, StableCode::CapabilityUnavailable)
        }
        AppendError::Fenced { .. } => {
            (Disposition::LaneUnavailable, AbsenceKind::RefusedByBroker, StableCode::CapabilityUnavailable)
        }
        AppendError::RecordTooLarge { .. } | AppendError::RecordCount { .. } | AppendError::Attempts { .. } => {
            (Disposition::MessagePermanent, AbsenceKind::RefusedByBroker, StableCode::DestinationDefinitivePermanent)
        }
    };
    AttemptOutcome::not_published(reference, disposition, kind, code)
}
