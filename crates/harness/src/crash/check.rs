//! Holds the ledger against what consumers saw and what the service says in the end.
//!
//! Pure: histories go in, violations and an account come out, so that tests can show it every fault it exists for.

use std::collections::{BTreeMap, BTreeSet};

use client::api::message::{Counts, Message, Status};

use super::ledger::{Entry, Ledger, Rule, Taken, is_end};

/// A due message that is still not delivered after this long, with nothing in its way, is stuck.
const STUCK_AFTER_MS: i64 = 5_000;
/// A message is not admitted behind its expiry; what was admitted just before may be appended this much later, where nothing
/// but the server is killed.
pub(crate) const EXPIRY_GRACE_MS: i64 = 2_000;

/// Where a record is: topic, partition, offset.
pub(crate) type Place = (String, u32, u64);

/// A record as a consumer reads it in the end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SeenRecord {
    pub(crate) topic: String,
    pub(crate) partition: u32,
    pub(crate) offset: u64,
    pub(crate) timestamp_ms: i64,
    /// The message of this run whose content it has.
    pub(crate) number: Option<u64>,
    pub(crate) message_id: String,
    pub(crate) own_id: Option<String>,
    pub(crate) generation: u32,
    pub(crate) attempt: u32,
    pub(crate) deliver_at_ms: i64,
    /// What differs from the content that was sent.
    pub(crate) difference: Option<String>,
}

impl SeenRecord {
    pub(crate) fn place(&self) -> Place {
        (self.topic.clone(), self.partition, self.offset)
    }
}

/// A record as it reached a consumer that follows a topic, by the consumer's clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Arrival {
    pub(crate) at_ms: i64,
    pub(crate) message_id: String,
}

/// Everything there is to see when nothing moves any more.
#[derive(Clone, Debug, Default)]
pub(crate) struct Evidence {
    /// Every record of every topic, by topic, partition and offset.
    pub(crate) records: Vec<SeenRecord>,
    /// Every message the service lists.
    pub(crate) messages: Vec<Message>,
    pub(crate) arrivals: BTreeMap<Place, Arrival>,
    pub(crate) counts: Counts,
    /// Messages scheduled since the shards were made, as the shards count them.
    pub(crate) scheduled_total: u64,
    /// Names of the topics, by destination.
    pub(crate) topics: Vec<String>,
    /// Whether a consumer may be left to drop a second record by message id and generation, when its attempt is another.
    pub(crate) attempts_tell_apart: bool,
    /// How long behind its expiry a record may be appended that was admitted before.
    pub(crate) expiry_grace_ms: i64,
    pub(crate) asked_at_ms: i64,
}

/// What became of the messages of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Taken, and answered so.
    pub answered: u64,
    /// Taken although the answer was lost.
    pub found: u64,
    /// Messages that the service lists and no answer or record leads to: their answers were lost.
    pub found_in_list: u64,
    /// Refused.
    pub refused: u64,
    /// Neither answered nor found.
    pub vanished: u64,
    /// Published.
    pub published: u64,
    /// Canceled.
    pub canceled: u64,
    /// Expired.
    pub expired: u64,
    /// Given up.
    pub dead_lettered: u64,
    /// Still to come.
    pub pending: u64,
    /// Records in the topics.
    pub records: u64,
    /// Records beyond the first of a message, where the service says there may be some.
    pub explained_duplicates: u64,
    /// Records beyond the first of a message that only their attempts explain.
    pub told_apart: u64,
    /// Records whose arrival a following consumer saw.
    pub followed: u64,
    /// Messages that were moved at least once.
    pub moved: u64,
}

impl Account {
    /// Everything that was accepted.
    pub fn accepted(&self) -> u64 {
        self.answered + self.found + self.found_in_list
    }

    /// Everything that has become something or still will.
    pub fn accounted(&self) -> u64 {
        self.published + self.canceled + self.expired + self.dead_lettered + self.pending
    }
}

/// Checks everything. Violations go into the ledger.
pub(crate) fn check(ledger: &mut Ledger, evidence: &Evidence) -> Account {
    let by_number = records_by_number(ledger, evidence);
    let (messages, unknown_messages) = messages_by_number(ledger, evidence);
    let mut account = Account { records: evidence.records.len() as u64, ..Account::default() };
    for number in 0..ledger.len() {
        let records = by_number.get(&number).map_or(&[][..], Vec::as_slice);
        let message = messages.get(&number).copied();
        check_existence(ledger, number, message, records, &mut account);
        if let Some(message) = message {
            ledger.observed(number, message);
            check_verdict(ledger, number, message, records, evidence, &mut account);
        }
        for record in records {
            check_record(ledger, number, message, record, evidence);
        }
    }
    check_arrivals(ledger, evidence);
    check_order(ledger, evidence);
    for message in &unknown_messages {
        count(&mut account, message.status);
    }
    account.found_in_list = unknown_messages.len() as u64;
    account.vanished = account.vanished.saturating_sub(account.found_in_list);
    account.followed = evidence.arrivals.len() as u64;
    check_account(ledger, evidence, &unknown_messages, &account);
    account
}

fn records_by_number<'a>(ledger: &mut Ledger, evidence: &'a Evidence) -> BTreeMap<u64, Vec<&'a SeenRecord>> {
    let mut by_number: BTreeMap<u64, Vec<&SeenRecord>> = BTreeMap::new();
    for record in &evidence.records {
        let Some(number) = record.number.filter(|number| *number < ledger.len()) else {
            let detail = format!("{:?} is {} and of no message", record.place(), record.message_id);
            ledger.violate(Rule::Foreign, None, detail);
            continue;
        };
        ledger.found(number, &record.message_id);
        by_number.entry(number).or_default().push(record);
    }
    by_number
}

/// The listed messages by their number, and those that no answer and no record leads to.
fn messages_by_number<'a>(
    ledger: &mut Ledger,
    evidence: &'a Evidence,
) -> (BTreeMap<u64, &'a Message>, Vec<&'a Message>) {
    let by_own_id: BTreeMap<String, u64> =
        ledger.entries().filter_map(|(number, entry)| Some((entry.own_id.clone()?, number))).collect();
    let (mut by_number, mut unknown) = (BTreeMap::new(), Vec::new());
    for message in &evidence.messages {
        let own = message.id.as_ref().and_then(|id| by_own_id.get(id)).copied();
        let Some(number) = ledger.number_of(&message.message_id).or(own) else {
            unknown.push(message);
            continue;
        };
        ledger.found(number, &message.message_id);
        if by_number.insert(number, message).is_some() {
            ledger.violate(Rule::WrongAccount, Some(number), "it is listed twice");
        }
    }
    (by_number, unknown)
}

fn check_existence(
    ledger: &mut Ledger,
    number: u64,
    message: Option<&Message>,
    records: &[&SeenRecord],
    account: &mut Account,
) {
    let Some(entry) = ledger.entry(number) else { return };
    match (&entry.taken, message) {
        (Taken::Answered, Some(_)) => account.answered += 1,
        (Taken::Found, Some(_)) => account.found += 1,
        (Taken::Answered | Taken::Found, None) => {
            let detail = format!("it was accepted and is not listed; {} records have its content", records.len());
            ledger.violate(Rule::Lost, Some(number), detail);
        }
        // Records and listed messages of refused ones were noticed where they were found.
        (Taken::No(code), _) if code == "NOT_FOUND" => account.vanished += 1,
        (Taken::No(_), _) => account.refused += 1,
        // Both of these are found above, so what is left has neither a record nor a known id.
        (Taken::Unknown, _) => account.vanished += 1,
    }
}

fn count(account: &mut Account, status: Status) {
    match status {
        Status::Published => account.published += 1,
        Status::Canceled => account.canceled += 1,
        Status::Expired => account.expired += 1,
        Status::DeadLetter => account.dead_lettered += 1,
        _ => account.pending += 1,
    }
}

fn check_verdict(
    ledger: &mut Ledger,
    number: u64,
    message: &Message,
    records: &[&SeenRecord],
    evidence: &Evidence,
    account: &mut Account,
) {
    count(account, message.status);
    account.moved += u64::from(message.generation > 0);
    check_repetition(ledger, number, message, records, evidence, account);
    let first = records.first();
    match message.status {
        Status::Published => check_delivery(ledger, number, message, records),
        Status::DeadLetter if !message.possible_duplicate => {
            let detail = format!("given up, and no attempt's outcome is unknown: {:?}", message.last_error);
            ledger.violate(Rule::Lost, Some(number), detail);
        }
        Status::Canceled if first.is_some() => {
            let detail = format!("canceled, and delivered at {:?}", first.map(|record| record.place()));
            ledger.violate(Rule::CanceledDelivered, Some(number), detail);
        }
        status if first.is_some() && (status == Status::Expired || !message.possible_duplicate) => {
            let detail = format!("{status}, and delivered at {:?}", first.map(|record| record.place()));
            ledger.violate(Rule::WrongVerdict, Some(number), detail);
        }
        _ => {}
    }
    if message.status == Status::Expired && message.ended_at_ms.is_none_or(|at_ms| at_ms < message.expires_at_ms) {
        let detail = format!("expired at {:?} ms, its expiry is {} ms", message.ended_at_ms, message.expires_at_ms);
        ledger.violate(Rule::WrongExpiry, Some(number), detail);
    }
    if !is_end(message.status) && message.deliver_at_ms < evidence.asked_at_ms - STUCK_AFTER_MS {
        let overdue_ms = evidence.asked_at_ms - message.deliver_at_ms;
        let detail = format!("{} and {overdue_ms} ms overdue", message.status);
        ledger.violate(Rule::Stuck, Some(number), detail);
    }
}

/// A message is there once, unless something says why it is not.
fn check_repetition(
    ledger: &mut Ledger,
    number: u64,
    message: &Message,
    records: &[&SeenRecord],
    evidence: &Evidence,
    account: &mut Account,
) {
    let beyond = (records.len() as u64).saturating_sub(1);
    if beyond == 0 {
        return;
    }
    if message.possible_duplicate {
        account.explained_duplicates += beyond;
    } else if evidence.attempts_tell_apart && are_attempts_of_one_generation(records) {
        account.told_apart += beyond;
    } else {
        let places: Vec<_> = records.iter().map(|record| (record.place(), record.generation, record.attempt)).collect();
        let detail = format!("delivered {} times, at {places:?}, and called no duplicate", places.len());
        ledger.violate(Rule::UnexplainedDuplicate, Some(number), detail);
    }
}

fn are_attempts_of_one_generation(records: &[&SeenRecord]) -> bool {
    let lives: BTreeSet<_> = records.iter().map(|record| (&record.message_id, record.generation)).collect();
    let attempts: BTreeSet<u32> = records.iter().map(|record| record.attempt).collect();
    lives.len() == 1 && attempts.len() == records.len()
}

/// A published message's evidence is a record of it.
fn check_delivery(ledger: &mut Ledger, number: u64, message: &Message, records: &[&SeenRecord]) {
    let Some(delivery) = &message.delivery else {
        return ledger.violate(Rule::WrongVerdict, Some(number), "published without evidence");
    };
    let named = records.iter().find(|record| {
        record.topic == delivery.topic
            && record.partition == delivery.partition
            && Some(record.offset) == delivery.offset
            && Some(record.timestamp_ms) == delivery.timestamp_ms
    });
    if named.is_none() {
        let places: Vec<_> = records.iter().map(|record| (record.place(), record.timestamp_ms)).collect();
        ledger.violate(Rule::Lost, Some(number), format!("published at {delivery:?}; its records are {places:?}"));
    }
}

fn check_record(ledger: &mut Ledger, number: u64, message: Option<&Message>, record: &SeenRecord, evidence: &Evidence) {
    let Some(entry) = ledger.entry(number).cloned() else { return };
    let place = record.place();
    if record.timestamp_ms < record.deliver_at_ms {
        let detail = format!("{place:?} was appended at {} ms, due at {}", record.timestamp_ms, record.deliver_at_ms);
        ledger.violate(Rule::Early, Some(number), detail);
    }
    check_time(ledger, number, &entry, message, record);
    if evidence.topics.get(entry.destination) != Some(&record.topic) {
        ledger.violate(Rule::WrongContent, Some(number), format!("{place:?} is another topic than its destination's"));
    }
    if entry.own_id != record.own_id || record.attempt == 0 {
        let detail = format!("{place:?} names id {:?} and attempt {}", record.own_id, record.attempt);
        ledger.violate(Rule::WrongContent, Some(number), detail);
    }
    if let Some(difference) = &record.difference {
        ledger.violate(Rule::WrongContent, Some(number), format!("{place:?}: {difference}"));
    }
    let behind_ms = message.map_or(0, |message| record.timestamp_ms - message.expires_at_ms);
    if behind_ms > evidence.expiry_grace_ms {
        ledger.violate(Rule::WrongExpiry, Some(number), format!("{place:?} came {behind_ms} ms behind its expiry"));
    }
}

/// A record is of a time that the message has, by what was answered and asked for.
fn check_time(ledger: &mut Ledger, number: u64, entry: &Entry, message: Option<&Message>, record: &SeenRecord) {
    let place = record.place();
    let fits = |possible: &&super::ledger::Possible| {
        possible.generation == record.generation && possible.due.admits(record.deliver_at_ms)
    };
    match entry.possible.iter().find(fits) {
        Some(possible) if possible.is_canceled && entry.possible.iter().all(|possible| possible.is_canceled) => {
            // Said by the service's own verdict already, unless that is another.
            if message.is_none_or(|message| message.status != Status::Canceled) {
                let detail = format!("canceled, and delivered at {place:?}");
                ledger.violate(Rule::CanceledDelivered, Some(number), detail);
            }
        }
        Some(possible) if record.timestamp_ms < possible.due.earliest_ms() => {
            let detail = format!("{place:?} was appended at {} ms, due {:?}", record.timestamp_ms, possible.due);
            ledger.violate(Rule::Early, Some(number), detail);
        }
        Some(_) => {}
        None if message.is_some_and(|message| message.possible_duplicate) => {}
        None => {
            let detail = format!(
                "{place:?} is of generation {} at {} ms; possible is {:?}",
                record.generation, record.deliver_at_ms, entry.possible
            );
            ledger.violate(Rule::MovedDelivered, Some(number), detail);
        }
    }
}

/// What a consumer saw was due by the consumer's own clock, and is still there.
fn check_arrivals(ledger: &mut Ledger, evidence: &Evidence) {
    let by_place: BTreeMap<Place, &SeenRecord> =
        evidence.records.iter().map(|record| (record.place(), record)).collect();
    for (place, arrival) in &evidence.arrivals {
        let number = ledger.number_of(&arrival.message_id);
        match by_place.get(place) {
            Some(record) if record.message_id == arrival.message_id => {
                if arrival.at_ms < record.deliver_at_ms {
                    let detail = format!("{place:?} was seen at {} ms, due {}", arrival.at_ms, record.deliver_at_ms);
                    ledger.violate(Rule::Early, number, detail);
                }
            }
            found => {
                let now = found.map(|record| record.message_id.as_str());
                let detail = format!("{place:?} was {}, and is now {now:?}", arrival.message_id);
                ledger.violate(Rule::RecordGone, number, detail);
            }
        }
    }
}

fn check_order(ledger: &mut Ledger, evidence: &Evidence) {
    let mut before: BTreeMap<(&str, u32), (u64, i64)> = BTreeMap::new();
    for record in &evidence.records {
        let next = (record.offset + 1, record.timestamp_ms);
        let (expected, earliest_ms) = before.insert((&record.topic, record.partition), next).unwrap_or((0, i64::MIN));
        if record.offset != expected || record.timestamp_ms < earliest_ms {
            let detail = format!(
                "{:?} at {} ms follows offset {expected} and {earliest_ms} ms",
                record.place(),
                record.timestamp_ms
            );
            ledger.violate(Rule::BrokenOrder, None, detail);
        }
    }
}

fn check_account(ledger: &mut Ledger, evidence: &Evidence, unknown_messages: &[&Message], account: &Account) {
    let unanswered = ledger.entries().filter(|(_, entry)| entry.taken == Taken::Unknown && entry.own_id.is_none());
    let unanswered = unanswered.count();
    if unknown_messages.len() > unanswered {
        let detail = format!("{} messages are listed that nobody asked for", unknown_messages.len() - unanswered);
        ledger.violate(Rule::WrongAccount, None, detail);
    }
    let Counts { scheduled, retrying, publishing, uncertain, published, canceled, expired, dead_letter } =
        evidence.counts;
    let counted = Account {
        published,
        canceled,
        expired,
        dead_lettered: dead_letter,
        pending: scheduled + retrying + publishing + uncertain,
        ..*account
    };
    if counted != *account {
        let detail = format!("listed are {account:?}, counted are {counted:?}");
        ledger.violate(Rule::WrongAccount, None, detail);
    }
    for (name, total) in [("accounted for", account.accounted()), ("scheduled by the shards", evidence.scheduled_total)]
    {
        if account.accepted() != total {
            let detail = format!("{} accepted, {total} {name}", account.accepted());
            ledger.violate(Rule::WrongAccount, None, detail);
        }
    }
}
