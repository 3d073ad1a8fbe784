//! Whether the tables of a store say the same: every index row has its message and every message its index rows.
//!
//! Apply derives all of them from one row; a row that is forgotten, or written twice, does no harm to the record that did it
//! and stops a message hours later. So every table is derived again here, from the messages alone.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use shard::query;
use shard::state::generation::MessageState;
use shard::state::keys::{dedupe, meta, open, timeline};
use shard::state::{LaneNo, MessageUuid, envelope, row};
use shard::store::{Family, Read};

/// Checks every table of a founded store against its messages.
///
/// # Panics
/// At the first row that is missing, left over or wrong.
pub fn assert_consistent(read: &dyn Read) {
    let closed_ms = query::progress(read).expect("the store answers").closed_ms;
    let messages: BTreeMap<MessageUuid, row::Message> = rows(read, Family::Messages, closed_ms)
        .into_iter()
        .map(|(key, value)| {
            let uuid = MessageUuid::from_bytes(key[..].try_into().expect("16 bytes")).expect("a message's key");
            (uuid, envelope::decode(&value).expect("a message"))
        })
        .collect();
    assert_timeline(read, &messages, closed_ms);
    assert_open(read, &messages, closed_ms);
    assert_dedupe(read, &messages);
    assert_low_water(read);
    for (message, row) in &messages {
        let payload = read.get(Family::Payloads, message.as_bytes()).expect("the store answers");
        let is_kept = row.is_live() || row.state() == MessageState::DeadLetter;
        assert_eq!(payload.is_some(), is_kept, "payload of {message}");
    }
}

fn rows(read: &dyn Read, family: Family, closed_ms: i64) -> Vec<(Bytes, Bytes)> {
    let all = read.scan(family, &[], &[0xff; 64], usize::MAX).expect("the store answers");
    all.into_iter().filter(|(_, value)| !envelope::has_ended(value, closed_ms)).collect()
}

fn assert_timeline(read: &dyn Read, messages: &BTreeMap<MessageUuid, row::Message>, closed_ms: i64) {
    let mut expected: BTreeMap<Bytes, (MessageUuid, u32)> = BTreeMap::new();
    let mut optional = BTreeSet::new();
    for (message, row) in messages {
        let about = (*message, row.generation);
        if let Some(key) = row.due_key() {
            expected.insert(key.encode(row.lane_no()), about);
        }
        if row.is_live() {
            let key = timeline::expiry(row.expire_at_ms, row.seq());
            if row.expire_at_ms <= closed_ms && !row.is_reversible() {
                optional.insert(key.clone());
            }
            expected.insert(key, about);
        }
        if row.state() == MessageState::DeadLetter
            && let Some(terminal) = &row.terminal
        {
            expected.insert(timeline::dead_letter(row.lane_no(), terminal.at_ms, row.seq()), about);
        }
        if row.has_uncertain_attempt() {
            expected.insert(timeline::uncertain(row.lane_no(), *message), about);
        }
    }
    let found: BTreeMap<Bytes, Bytes> = rows(read, Family::Timeline, closed_ms).into_iter().collect();
    for (key, (message, generation)) in &expected {
        let Some(value) = found.get(key) else {
            assert!(optional.contains(key), "{message} has no key {key:02x?}");
            continue;
        };
        if timeline::decode_uncertain(key).is_err() {
            let entry: row::TimelineEntry = envelope::decode(value).expect("an entry");
            assert_eq!((&entry.message[..], entry.generation), (&message.as_bytes()[..], *generation), "{key:02x?}");
        }
    }
    for key in found.keys() {
        assert!(expected.contains_key(key), "key {key:02x?} is left over");
    }
}

fn assert_open(read: &dyn Read, messages: &BTreeMap<MessageUuid, row::Message>, closed_ms: i64) {
    let mut publishing: BTreeMap<Bytes, BTreeSet<(Bytes, u32, u32)>> = BTreeMap::new();
    for (message, row) in messages {
        for attempt in row.open.iter().filter(|attempt| !attempt.uncertain) {
            let entry = (Bytes::copy_from_slice(message.as_bytes()), row.generation, attempt.attempt);
            publishing.entry(attempt.admission.clone()).or_default().insert(entry);
        }
    }
    let all: BTreeMap<Bytes, Bytes> = rows(read, Family::Open, closed_ms).into_iter().collect();
    for (token, attempts) in &publishing {
        let admitted: row::Admitted =
            envelope::decode(all.get(&open::admitted(token)).expect("an open attempt's admission")).expect("a row");
        let listed: BTreeSet<_> =
            admitted.entries.iter().map(|entry| (entry.message.clone(), entry.generation, entry.attempt)).collect();
        assert!(attempts.is_subset(&listed), "admission {token:02x?} does not list its attempts");
        let remaining: row::Remaining =
            envelope::decode(all.get(&open::remaining(token)).expect("an admission's counter")).expect("a row");
        // A message that is gone took its open attempts with it.
        let is_gone = |entry: &&row::AdmittedEntry| {
            let uuid = MessageUuid::from_bytes(entry.message[..].try_into().expect("16 bytes")).expect("a message");
            !messages.contains_key(&uuid)
        };
        let gone = admitted.entries.iter().filter(is_gone).count();
        let found = usize::try_from(remaining.publishing).expect("few");
        assert!((attempts.len()..=attempts.len() + gone).contains(&found), "admission {token:02x?} counts {found}");
    }
    for (key, value) in &all {
        if let Ok(admitted) = envelope::decode::<row::Admitted>(value)
            && key.first() == open::admitted(&[]).first()
        {
            let is_open = publishing.contains_key(&key[1..]);
            let any_gone = admitted
                .entries
                .iter()
                .any(|entry| !messages.keys().any(|message| message.as_bytes()[..] == entry.message[..]));
            assert!(is_open || any_gone, "admission {key:02x?} is left over");
        }
        let pair = if key.first() == open::admitted(&[]).first() {
            open::remaining(&key[1..])
        } else {
            open::admitted(&key[1..])
        };
        assert!(all.contains_key(&pair), "half of an admission is left over: {key:02x?}");
    }
}

/// A business key leads to its live message, of which there is one at most. It follows the newest, so what has ended may have
/// lost it.
fn assert_dedupe(read: &dyn Read, messages: &BTreeMap<MessageUuid, row::Message>) {
    let mut live_of_key: BTreeMap<Bytes, MessageUuid> = BTreeMap::new();
    for (message, row) in messages.iter().filter(|(_, row)| row.business_key_indexed && row.is_live()) {
        let key = dedupe::business_key(&row.business_key);
        let entry = read.get(Family::Dedupe, &key).expect("the store answers");
        let entry: row::BusinessKey = envelope::decode(&entry.expect("a live message's key")).expect("a row");
        assert_eq!(entry.message[..], message.as_bytes()[..], "{:?} leads to another message", row.business_key);
        let other = live_of_key.insert(row.business_key.clone(), *message);
        assert_eq!(other, None, "two live messages have the key {:?}", row.business_key);
    }
}

/// Marks say from where scans may start: no key stands below.
fn assert_low_water(read: &dyn Read) {
    let mark = |lane_no| {
        let value = read.get(Family::Meta, &meta::low_water(lane_no)).expect("the store answers");
        value.map_or(0, |value| envelope::decode::<row::LowWater>(&value).expect("a mark").at_ms)
    };
    for (lane_no, _) in query::lanes(read).expect("the store answers") {
        let (from, until) = timeline::due_from(lane_no, timeline::DueKey::MIN);
        if let Some((key, _)) = read.scan(Family::Timeline, &from, &until, 1).expect("the store answers").first() {
            let (_, key) = timeline::DueKey::decode(key).expect("a due key");
            assert!(mark(lane_no) <= key.eligible_at_ms, "lane {lane_no:?}: a key stands below the mark");
        }
    }
    let earliest_ms = query::earliest_deadline_ms(read, 0).expect("the store answers");
    assert!(earliest_ms.is_none_or(|earliest_ms| mark(LaneNo(0)) <= earliest_ms), "a deadline stands below the mark");
}
