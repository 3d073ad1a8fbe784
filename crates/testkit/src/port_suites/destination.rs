//! What every [`Destination`] must do.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::StreamExt as _;
use ports::destination::{AttemptOutcome, AttemptRef, Destination, LaneSession, LaneTarget};
use protocol::code::StableCode;
use protocol::command::{AdapterMetadata, KafkaHeader, KafkaMetadata, Payload};
use protocol::mutation_v2::AttemptResult;
use protocol::policy::RetryPolicy;
use protocol::resource::Resource;
use shard::query::OpenAttempt;
use shard::schedule::claim::AdmittedAttempt;
use shard::schedule::outgoing::OutgoingRecord;
use shard::state::LaneNo;

use super::attempts::AttemptMint;
use crate::log;

/// A destination and the far side of it.
pub struct Subject {
    /// What is tested.
    pub destination: Arc<dyn Destination>,
    /// Its topic, with one partition and nothing in it.
    pub resource: Resource,
    /// What is in the topic, in its order.
    pub records: Box<dyn Fn() -> Vec<OutgoingRecord>>,
}

/// Runs every check; `make` gives a new topic each time.
pub async fn run(mut make: impl AsyncFnMut() -> Subject) {
    every_attempt_is_answered_and_delivered_as_it_is(&make().await).await;
    records_keep_the_order_they_were_handed_over_in(&make().await).await;
    an_attempt_is_vouched_for_only_by_what_is_there(&make().await).await;
    a_session_of_an_older_epoch_is_over(&make().await).await;
    forgetting_touches_nothing_that_is_open(&make().await).await;
}

fn mint(subject: &Subject) -> AttemptMint {
    let resource = subject.resource.clone();
    AttemptMint::new(|policy: &RetryPolicy| {
        let mut destination = log::Destination::new("subject", policy);
        destination.body.resource = resource;
        destination
    })
}

fn target(mint: &AttemptMint) -> LaneTarget {
    let destination = mint.destination();
    LaneTarget {
        shard: mint.shard(),
        lane_no: LaneNo(1),
        profile_id: destination.profile.id.clone(),
        profile_version: destination.profile.version,
        profile: destination.body.clone(),
        partition: 0,
        owner_epoch: mint.owner_epoch(),
    }
}

async fn open(subject: &Subject, mint: &AttemptMint) -> Box<dyn LaneSession> {
    subject.destination.open_lane(target(mint)).await.expect("the lane opens")
}

fn attempt_ref(attempt: &AdmittedAttempt) -> AttemptRef {
    AttemptRef { message: attempt.message_id().uuid, generation: attempt.generation(), attempt: attempt.attempt() }
}

fn ref_of(open: &OpenAttempt) -> AttemptRef {
    AttemptRef { message: open.message, generation: open.generation, attempt: open.attempt }
}

type Outcomes = BTreeMap<AttemptRef, AttemptOutcome>;

/// Sends attempts and takes in an answer for each, and not two.
async fn send(session: &dyn LaneSession, attempts: Vec<AdmittedAttempt>) -> Outcomes {
    let mut left = attempts.len();
    let mut outcomes = Outcomes::new();
    let mut stream = session.send(attempts);
    while left > 0 {
        let answers = stream.next().await.expect("every attempt is answered");
        left -= answers.len();
        outcomes.extend(answers);
    }
    outcomes
}

async fn recover(session: &dyn LaneSession, open: Vec<OpenAttempt>) -> Outcomes {
    let asked: Vec<AttemptRef> = open.iter().map(ref_of).collect();
    let answers = session.recover(open).await.expect("recovery answers");
    assert!(answers.iter().all(|(attempt, _)| asked.contains(attempt)), "it answers what it was asked");
    answers.into_iter().collect()
}

fn is_published(outcome: &AttemptOutcome) -> bool {
    matches!(outcome.result, AttemptResult::Published(_)) && outcome.code == StableCode::Ok
}

fn header(name: &str, value: &'static [u8]) -> KafkaHeader {
    KafkaHeader { name: name.try_into().expect("names of tests are text"), value: Bytes::from_static(value) }
}

async fn every_attempt_is_answered_and_delivered_as_it_is(subject: &Subject) {
    let mut mint = mint(subject);
    let session = open(subject, &mint).await;
    let keys = [None, Some(Bytes::new()), Some(Bytes::from_static(b"\0key\xff"))];
    let attempts = mint.admit(3, |number, intent| {
        intent.payload = Some(Payload::Inline(Bytes::from(vec![7; number * 1_000])));
        intent.metadata = AdapterMetadata::Kafka(KafkaMetadata {
            key: keys[number].clone(),
            headers: vec![header("b", b"\0\xff"), header("a", b"1"), header("b", b"")],
        });
    });
    let expected: Vec<OutgoingRecord> = attempts.iter().map(AdmittedAttempt::delivered_record).collect();
    let refs: Vec<AttemptRef> = attempts.iter().map(attempt_ref).collect();
    let outcomes = send(&*session, attempts).await;
    assert_eq!(outcomes.len(), 3);
    for attempt in &refs {
        assert!(is_published(&outcomes[attempt]), "{:?}", outcomes[attempt]);
    }
    let found = (subject.records)();
    assert_eq!(found.len(), 3);
    for (found, expected) in found.iter().zip(&expected) {
        assert_eq!((&found.key, &found.value, &found.headers), (&expected.key, &expected.value, &expected.headers));
    }
}

async fn records_keep_the_order_they_were_handed_over_in(subject: &Subject) {
    let mut mint = mint(subject);
    let session = open(subject, &mint).await;
    let mut sent = Vec::new();
    let mut streams = Vec::new();
    // Batches are handed over one behind the other, whoever waits for their answers.
    for _ in 0..5 {
        let attempts = mint.admit(4, |_, _| {});
        sent.extend(attempts.iter().map(AdmittedAttempt::delivered_record));
        streams.push(session.send(attempts));
    }
    for stream in streams.into_iter().rev() {
        assert_eq!(stream.map(|answers| answers.len()).fold(0, async |sum, count| sum + count).await, 4);
    }
    let headers = |records: Vec<OutgoingRecord>| records.into_iter().map(|record| record.headers).collect::<Vec<_>>();
    assert_eq!(headers((subject.records)()), headers(sent));
}

async fn an_attempt_is_vouched_for_only_by_what_is_there(subject: &Subject) {
    let mut mint = mint(subject);
    let first = open(subject, &mint).await;
    let sent = send(&*first, mint.admit(3, |_, _| {})).await;
    let never_sent: Vec<AttemptRef> = mint.admit(2, |_, _| {}).iter().map(attempt_ref).collect();
    drop(first);
    mint.take_over();
    let second = open(subject, &mint).await;
    for _ in 0..2 {
        let found = recover(&*second, mint.open()).await;
        for (attempt, outcome) in &sent {
            assert!(found.get(attempt).is_none_or(|found| found == outcome), "the answer is the one it gave before");
        }
        for attempt in &never_sent {
            let is_absent = |found: &AttemptOutcome| matches!(found.result, AttemptResult::NotPublished { .. });
            assert!(found.get(attempt).is_none_or(is_absent), "nothing was sent");
        }
    }
}

async fn a_session_of_an_older_epoch_is_over(subject: &Subject) {
    let mut mint = mint(subject);
    let (old_target, old) = (target(&mint), open(subject, &mint).await);
    let held_back = mint.admit(2, |_, _| {});
    mint.take_over();
    let new = open(subject, &mint).await;
    let found = recover(&*new, mint.open()).await;
    let late = send(&*old, held_back).await;
    for (attempt, outcome) in &late {
        // Once an attempt is called absent, it must stay so.
        let absent = found.get(attempt).is_some_and(|found| matches!(found.result, AttemptResult::NotPublished { .. }));
        assert!(!absent || !is_published(outcome), "{attempt:?} was called absent and is there now: {outcome:?}");
    }
    let published = late.values().filter(|outcome| is_published(outcome)).count();
    assert_eq!((subject.records)().len(), published);
    if published == 0 {
        assert!(subject.destination.open_lane(old_target).await.is_err(), "an older epoch opens nothing any more");
    }
}

async fn forgetting_touches_nothing_that_is_open(subject: &Subject) {
    let mut mint = mint(subject);
    let session = open(subject, &mint).await;
    send(&*session, mint.admit(2, |_, _| {})).await;
    let kept = mint.admit(2, |_, _| {});
    let token = kept[0].admission_order_token().clone();
    let sent = send(&*session, kept).await;
    session.forget_before(token.clone());
    mint.take_over();
    let again = open(subject, &mint).await;
    let open: Vec<OpenAttempt> = mint.open().into_iter().filter(|open| open.admission_order_token >= token).collect();
    assert_eq!(open.len(), 2);
    for (attempt, found) in recover(&*again, open).await {
        assert_eq!(found, sent[&attempt]);
    }
}
