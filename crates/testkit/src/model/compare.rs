//! Whether a shard is where the [model](super) says it is.

use std::collections::BTreeMap;

use shard::machine::verdict::{RecordResult, Status, Verdict as ShardVerdict};
use shard::query;
use shard::state::generation::MessageState;
use shard::state::row;
use shard::store::{Family, Read};

use super::{Answer, LaneKey, Model, State, Verdict};

/// What a shard's result says, in the model's words.
pub fn answer(result: &RecordResult) -> Answer {
    match result {
        RecordResult::Command { verdict, .. } => Answer::Command(as_verdict(verdict)),
        RecordResult::Duplicate { verdict, .. } => Answer::Duplicate(as_verdict(verdict)),
        RecordResult::Position(position) => Answer::Position(position.code),
        RecordResult::Owner { accepted, failed } => Answer::Owner { accepted: *accepted, failed: *failed },
        RecordResult::Control { code, .. } => Answer::Control(*code),
    }
}

fn as_verdict(verdict: &ShardVerdict) -> Verdict {
    Verdict {
        applied: verdict.status == Status::Applied,
        code: verdict.code,
        message: verdict.generation.zip(verdict.state_version),
        other_message: verdict.other_message,
    }
}

/// A shard's state in the model's words.
pub fn state(state: MessageState) -> State {
    match state {
        MessageState::Scheduled => State::Scheduled,
        MessageState::Publishing => State::Publishing,
        MessageState::RetryWait => State::RetryWait,
        MessageState::Uncertain => State::Uncertain,
        MessageState::Published => State::Published,
        MessageState::Canceled => State::Canceled,
        MessageState::Expired => State::Expired,
        MessageState::DeadLetter => State::DeadLetter,
    }
}

/// Compares everything that a user or an operator can see.
///
/// # Panics
/// At the first difference, which it names.
pub fn assert_agree(read: &dyn Read, model: &Model) {
    let progress = query::progress(read).expect("the store answers");
    assert_eq!(progress.closed_ms, model.closed_ms(), "closed");
    let owner = (progress.owner_epoch, progress.worker_run_id.to_vec());
    assert_eq!(owner, model.owner().map_or((0, Vec::new()), |(epoch, run)| (epoch, run.to_vec())), "owner");
    assert_eq!((progress.active_messages, progress.active_bytes), model.quota(), "quota");
    for ((profile_id, version), resource) in model.resources() {
        let found = query::profile_resource(read, &profile_id, version).expect("the store answers");
        assert_eq!(found, Some(resource), "where version {version} of {profile_id:?} delivers");
    }
    assert_messages(read, model);
    assert_lanes(read, model);
}

fn assert_messages(read: &dyn Read, model: &Model) {
    let messages = model.messages();
    for (message, _) in model.all() {
        let view = query::message(read, *message).expect("the store answers");
        let Some((expected_state, expected)) = messages.get(message) else {
            assert!(view.is_none(), "{message} is gone, and shown as {:?}", view.map(|view| view.state));
            continue;
        };
        let view = view.unwrap_or_else(|| panic!("{message} is missing: {expected:?}"));
        assert_eq!(state(view.state), *expected_state, "state of {message}: {:?} {expected:?}", view.row);
        assert_row(&view.row, expected);
        let ended = view.row.terminal.is_some();
        let keeps_payload = !ended && !expected_state_ends(*expected_state) || *expected_state == State::DeadLetter;
        let intent = query::intent(read, *message).expect("the store answers");
        assert_eq!(intent.is_some(), keeps_payload, "payload of {message} in {expected_state:?}");
        if !expected.business_key.is_empty() && view.row.business_key_indexed {
            let key = &expected.business_key;
            let newest = query::by_business_key(read, key).expect("the store answers");
            let expected_newest = model.newest_of(key).filter(|newest| messages.contains_key(newest));
            assert_eq!(newest, expected_newest, "newest of {key:?}");
        }
    }
}

fn expected_state_ends(state: State) -> bool {
    matches!(state, State::Published | State::Canceled | State::Expired | State::DeadLetter)
}

fn assert_row(row: &row::Message, expected: &super::Message) {
    assert_eq!(row.generation, expected.generation, "generation");
    assert_eq!(row.state_version, expected.state_version, "state version");
    assert_eq!(row.log_rev, expected.log_rev, "revision");
    assert_eq!((row.deliver_at_ms, row.expire_at_ms), (expected.deliver_at_ms, expected.expire_at_ms), "times");
    assert_eq!(row.attempts_used, expected.attempts_used, "attempts");
    assert_eq!(row.attempts_charged, expected.attempts_charged, "charged attempts");
    let open: BTreeMap<u32, bool> = row.open.iter().map(|open| (open.attempt, open.uncertain)).collect();
    assert_eq!(open, expected.open, "open attempts");
    assert_eq!(row.possible_duplicate, expected.possible_duplicate, "duplicate risk: {row:?}");
    assert_eq!(row.business_key, expected.business_key, "business key");
    if expected.is_waiting() {
        assert_eq!(row.eligible_at_ms, expected.eligible_at_ms, "eligible");
    }
    let terminal = row.terminal.as_ref();
    assert_eq!(terminal.is_some(), expected.ended.is_some(), "ended");
    if let (Some(terminal), Some(ended)) = (terminal, &expected.ended) {
        assert_eq!(terminal.code, ended.code.as_u32(), "terminal code");
        assert_eq!(terminal.at_ms, ended.at_ms, "terminal time");
        assert_eq!(terminal.ends_at_ms, ended.until_ms, "logical end");
        assert_eq!(terminal.evidence, ended.evidence.as_ref().map(|evidence| evidence.to_proto()), "evidence");
    }
}

fn assert_lanes(read: &dyn Read, model: &Model) {
    let mut counts: BTreeMap<(LaneKey, State), u64> = BTreeMap::new();
    let mut lanes = BTreeMap::new();
    for (lane_no, lane) in query::lanes(read).expect("the store answers") {
        let key = (lane.profile_id.clone(), lane.profile_version, lane.partition, lane.bucket);
        let mut live = lane.live.unwrap_or_default();
        for message_state in MessageState::ALL {
            let count = match live.counter(message_state) {
                Some(counter) => *counter,
                None => query::terminal_count(read, lane_no, message_state).expect("the store answers"),
            };
            if count > 0 {
                counts.insert((key.clone(), state(message_state)), count);
            }
        }
        lanes.insert(key, (lane.lane_id.to_vec(), lane.gate() == row::Gate::AdminPaused, lane.control_version));
    }
    assert_eq!(counts, model.counts(), "counts by lane and state");
    let expected =
        model.lanes().into_iter().map(|(key, (id, paused, version))| (key, (id.0.to_vec(), paused, version)));
    assert_eq!(lanes, expected.collect(), "lanes");
    let rows = read.scan(Family::Messages, &[], &[0xff; 17], usize::MAX).expect("the store answers");
    assert!(rows.len() <= model.all().count(), "rows that no record made");
}
