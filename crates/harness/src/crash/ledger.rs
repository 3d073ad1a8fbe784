//! What was asked for and what was answered, message by message.
//!
//! A lost answer is a class of its own: the request may have been carried out or not, so the message may be in either state
//! until something tells which. A ledger therefore keeps, for each message, every state it may be in; answers and reads narrow
//! them down. What no possible state explains is a violation.
//!
//! One message is asked about by one worker at a time, so its requests have an order. Requests of a killed server have no
//! effect afterwards: what a read shows after the restart is what became of them.

use std::collections::BTreeMap;
use std::fmt;

use client::api::message::{Message, MessageReceipt, Status};

/// Violations that are kept; a run with more is as wrong.
const VIOLATIONS_MAX: usize = 500;

/// A broken promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// Delivered before its time.
    Early,
    /// Accepted, and not there any more; or published, and not in the topic.
    Lost,
    /// Canceled, and delivered.
    CanceledDelivered,
    /// Delivered at a time it had been moved away from.
    MovedDelivered,
    /// Delivered twice although the service says it was not.
    UnexplainedDuplicate,
    /// A repeated Idempotency-Key made a second message, or lost the first.
    KeyBroken,
    /// Refused, and delivered or kept all the same.
    RefusedKept,
    /// In a state that no request asked for.
    Unasked,
    /// What the service says of a message is not what its consumer saw.
    WrongVerdict,
    /// Ended in two ways.
    EndChanged,
    /// Due, and neither delivered nor ended.
    Stuck,
    /// Expired before its expiry, or delivered long behind it.
    WrongExpiry,
    /// Key, value, headers or delivery headers are not what they should be.
    WrongContent,
    /// A record of no message.
    Foreign,
    /// A record that a consumer saw is gone or another.
    RecordGone,
    /// Offsets with gaps, or append times that go back.
    BrokenOrder,
    /// The sums do not agree.
    WrongAccount,
    /// An answer that does not fit its request.
    WrongAnswer,
}

/// A broken promise, with what shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which.
    pub rule: Rule,
    /// The message, as the service calls it or as this run counts it.
    pub message: String,
    /// What was expected and what was seen.
    pub detail: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:?}: {}: {}", self.rule, self.message, self.detail)
    }
}

/// When a message is due, as far as is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// At this time: it was asked for or answered.
    At(i64),
    /// A delay was asked for, and the answer that tells the time was lost.
    NotBefore(i64),
}

impl Due {
    pub(crate) fn admits(self, deliver_at_ms: i64) -> bool {
        match self {
            Due::At(at_ms) => at_ms == deliver_at_ms,
            Due::NotBefore(at_ms) => at_ms <= deliver_at_ms,
        }
    }

    pub(crate) fn earliest_ms(self) -> i64 {
        match self {
            Due::At(at_ms) | Due::NotBefore(at_ms) => at_ms,
        }
    }
}

/// A state that a message may be in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Possible {
    pub(crate) generation: u32,
    pub(crate) due: Due,
    pub(crate) is_canceled: bool,
}

/// Whether the service has a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// The answer was lost, or has not come yet.
    Unknown,
    /// It was answered.
    Answered,
    /// The answer was lost, and the message was found.
    Found,
    /// It was refused, or was not found although it would have been.
    No(String),
}

/// A change that was asked for and is not answered.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Change {
    /// To another time, if it still has the version.
    Move { due: Due, if_match: Option<u64> },
    /// Cancel it.
    Cancel,
}

/// One message.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) destination: usize,
    pub(crate) own_id: Option<String>,
    pub(crate) message_id: Option<String>,
    pub(crate) taken: Taken,
    pub(crate) possible: Vec<Possible>,
    pub(crate) version: Option<u64>,
    first_deliver_at_ms: Option<i64>,
    change: Option<Change>,
    end: Option<Status>,
}

impl Entry {
    /// What the service calls it, as far as is known.
    pub(crate) fn id(&self) -> Option<&str> {
        self.message_id.as_deref().or(self.own_id.as_deref())
    }

    pub(crate) fn is_taken(&self) -> bool {
        matches!(self.taken, Taken::Answered | Taken::Found)
    }

    /// When it is due, at the earliest.
    pub(crate) fn due_ms(&self) -> i64 {
        self.possible.iter().map(|possible| possible.due.earliest_ms()).min().unwrap_or(0)
    }

    /// Whether nothing can change it any more.
    pub(crate) fn has_ended(&self) -> bool {
        self.end.is_some() || self.possible.iter().all(|possible| possible.is_canceled)
    }
}

/// Every message of a run.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    entries: Vec<Entry>,
    by_message_id: BTreeMap<String, u64>,
    violations: Vec<Violation>,
    /// Answers that were not a success, by code.
    pub(crate) refusals: BTreeMap<String, u64>,
    /// Answers that did not come.
    pub(crate) answers_lost: u64,
    /// Requests with a repeated Idempotency-Key that were answered.
    pub(crate) repeats_answered: u64,
}

impl Ledger {
    pub(crate) fn entries(&self) -> impl Iterator<Item = (u64, &Entry)> {
        (0..).zip(&self.entries)
    }

    pub(crate) fn len(&self) -> u64 {
        self.entries.len() as u64
    }

    pub(crate) fn entry(&self, number: u64) -> Option<&Entry> {
        self.entries.get(usize::try_from(number).ok()?)
    }

    fn entry_mut(&mut self, number: u64) -> &mut Entry {
        let index = usize::try_from(number).expect("numbers are given by this ledger");
        &mut self.entries[index]
    }

    pub(crate) fn number_of(&self, message_id: &str) -> Option<u64> {
        self.by_message_id.get(message_id).copied()
    }

    pub(crate) fn violations(&self) -> &[Violation] {
        &self.violations
    }

    pub(crate) fn violate(&mut self, rule: Rule, number: Option<u64>, detail: impl Into<String>) {
        let entry = number.and_then(|number| self.entry(number));
        let message = match (entry.and_then(Entry::id), number) {
            (Some(id), Some(number)) => format!("message {number} ({id})"),
            (_, Some(number)) => format!("message {number}"),
            _ => "the run".to_owned(),
        };
        if self.violations.len() < VIOLATIONS_MAX {
            self.violations.push(Violation { rule, message, detail: detail.into() });
        }
    }

    /// Counts an answer that was not a success.
    pub(crate) fn refused(&mut self, code: &str) {
        *self.refusals.entry(code.to_owned()).or_default() += 1;
    }

    /// A message that is about to be asked for; its number.
    pub(crate) fn plan(&mut self, destination: usize, due: Due, own_id: impl FnOnce(u64) -> Option<String>) -> u64 {
        let number = self.len();
        self.entries.push(Entry {
            destination,
            own_id: own_id(number),
            message_id: None,
            taken: Taken::Unknown,
            possible: vec![Possible { generation: 0, due, is_canceled: false }],
            version: None,
            first_deliver_at_ms: None,
            change: None,
            end: None,
        });
        number
    }

    /// The message was taken, says an answer to its request, first or repeated.
    pub(crate) fn scheduled(&mut self, number: u64, receipt: &MessageReceipt) {
        let entry = self.entry_mut(number);
        let (known_id, known_ms) = (entry.message_id.clone(), entry.first_deliver_at_ms);
        if let Some(known) = known_id.filter(|known| *known != receipt.message_id) {
            let detail = format!("its request was answered with {known} and then with {}", receipt.message_id);
            return self.violate(Rule::KeyBroken, Some(number), detail);
        }
        if let Some(known_ms) = known_ms.filter(|known_ms| *known_ms != receipt.deliver_at_ms) {
            let detail = format!("its time was answered as {known_ms} and then as {}", receipt.deliver_at_ms);
            return self.violate(Rule::KeyBroken, Some(number), detail);
        }
        let is_first = !entry.is_taken();
        let asked = entry.possible.first().map(|possible| possible.due);
        entry.taken = Taken::Answered;
        entry.message_id = Some(receipt.message_id.clone());
        entry.first_deliver_at_ms = Some(receipt.deliver_at_ms);
        if is_first {
            entry.version = receipt.version;
            if let Some(possible) = entry.possible.iter_mut().find(|possible| possible.generation == 0) {
                possible.due = Due::At(receipt.deliver_at_ms);
            }
            if let Some(asked) = asked.filter(|asked| !asked.admits(receipt.deliver_at_ms)) {
                let detail = format!("asked for {asked:?}, answered with {} ms", receipt.deliver_at_ms);
                self.violate(Rule::WrongAnswer, Some(number), detail);
            }
        }
        if let Some(other) = self.by_message_id.insert(receipt.message_id.clone(), number)
            && other != number
        {
            let detail = format!("its id {} was given to message {other} too", receipt.message_id);
            self.violate(Rule::WrongAnswer, Some(number), detail);
        }
    }

    /// The message was not taken, says an answer, or a read that would have found it.
    pub(crate) fn not_taken(&mut self, number: u64, code: &str) {
        let entry = self.entry_mut(number);
        if entry.is_taken() {
            let rule = if code == "NOT_FOUND" { Rule::Lost } else { Rule::KeyBroken };
            self.violate(rule, Some(number), format!("it was taken, and then the answer was {code}"));
        } else {
            entry.taken = Taken::No(code.to_owned());
        }
    }

    /// A change is about to be asked for.
    pub(crate) fn change_sent(&mut self, number: u64, change: Change) {
        self.entry_mut(number).change = Some(change);
    }

    /// The message was moved, says an answer.
    pub(crate) fn moved(&mut self, number: u64, receipt: &MessageReceipt) {
        let entry = self.entry_mut(number);
        let Some(version) = receipt.version else { return self.change_lost(number) };
        let generation = u32::try_from(version.saturating_sub(1)).unwrap_or(u32::MAX);
        let change = entry.change.take();
        let is_repeat = change.is_none();
        let fits = |before: &Possible| {
            let is_this = before.generation == generation && before.due.admits(receipt.deliver_at_ms);
            !before.is_canceled && (before.generation + 1 == generation || is_repeat && is_this)
        };
        let is_next = entry.possible.iter().any(fits);
        let before = std::mem::replace(
            &mut entry.possible,
            vec![Possible { generation, due: Due::At(receipt.deliver_at_ms), is_canceled: false }],
        );
        entry.version = Some(version);
        if !is_next {
            let detail = format!("answered as moved to version {version}, although it was {before:?}");
            self.violate(Rule::Unasked, Some(number), detail);
        }
        if let Some(Change::Move { due, if_match }) = change {
            if !due.admits(receipt.deliver_at_ms) {
                let detail = format!("asked for {due:?}, answered with {} ms", receipt.deliver_at_ms);
                self.violate(Rule::WrongAnswer, Some(number), detail);
            }
            if if_match.is_some_and(|expected| expected + 1 != version) {
                let detail = format!("moved to version {version} although If-Match named {if_match:?}");
                self.violate(Rule::WrongAnswer, Some(number), detail);
            }
        }
    }

    /// The message was canceled, says an answer.
    pub(crate) fn canceled(&mut self, number: u64) {
        let entry = self.entry_mut(number);
        entry.change = None;
        if let Some(end) = entry.end.filter(|end| *end != Status::Canceled) {
            return self.violate(Rule::EndChanged, Some(number), format!("it was {end}, and then a cancel succeeded"));
        }
        entry.end = Some(Status::Canceled);
        for possible in &mut entry.possible {
            possible.is_canceled = true;
        }
    }

    /// The change was refused; a problem may show how the message stands.
    pub(crate) fn change_refused(&mut self, number: u64, code: &str, shown: Option<&Message>) {
        let entry = self.entry_mut(number);
        entry.change = None;
        if code == "NOT_FOUND" && entry.is_taken() {
            self.violate(Rule::Lost, Some(number), "it was taken, and a change of it is answered with NOT_FOUND");
        }
        if let Some(shown) = shown {
            self.observed(number, shown);
        }
    }

    /// Whether the change was carried out is not known: the message may be in either state.
    pub(crate) fn change_lost(&mut self, number: u64) {
        let entry = self.entry_mut(number);
        let Some(change) = entry.change.take() else { return };
        let before = entry.possible.clone();
        let changed = before.into_iter().filter(|before| !before.is_canceled).map(|before| match change {
            Change::Move { due, .. } => Possible { generation: before.generation + 1, due, is_canceled: false },
            Change::Cancel => Possible { is_canceled: true, ..before },
        });
        entry.possible.extend(changed);
        entry.version = None;
    }

    /// A read shows the message.
    pub(crate) fn observed(&mut self, number: u64, shown: &Message) {
        self.found(number, &shown.message_id);
        let entry = self.entry_mut(number);
        let is_canceled = shown.status == Status::Canceled;
        let fits = |possible: &Possible| {
            possible.generation == shown.generation
                && possible.due.admits(shown.deliver_at_ms)
                && possible.is_canceled == is_canceled
        };
        let earlier_end = entry.end;
        if is_end(shown.status) {
            entry.end = Some(shown.status);
        }
        if let Some(end) = earlier_end.filter(|end| *end != shown.status) {
            return self.violate(Rule::EndChanged, Some(number), format!("it was {end} and is {}", shown.status));
        }
        if !entry.possible.iter().any(fits) {
            let detail = format!(
                "it is {} in generation {} at {} ms; possible is {:?}",
                shown.status, shown.generation, shown.deliver_at_ms, entry.possible
            );
            return self.violate(Rule::Unasked, Some(number), detail);
        }
        let due = Due::At(shown.deliver_at_ms);
        entry.possible = vec![Possible { generation: shown.generation, due, is_canceled }];
        entry.version = Some(shown.version);
        let delivered_ms = shown.delivery.as_ref().and_then(|delivery| delivery.timestamp_ms);
        if let Some(at_ms) = delivered_ms.filter(|at_ms| *at_ms < shown.deliver_at_ms) {
            let detail = format!("delivered at {at_ms} ms, due at {} ms", shown.deliver_at_ms);
            self.violate(Rule::Early, Some(number), detail);
        }
    }

    /// The service has the message under this id.
    pub(crate) fn found(&mut self, number: u64, message_id: &str) {
        let entry = self.entry_mut(number);
        match &entry.message_id {
            Some(known) if known != message_id => {
                let detail = format!("it is {known}, and {message_id} has its content or its id");
                self.violate(Rule::UnexplainedDuplicate, Some(number), detail);
            }
            Some(_) => {}
            None => {
                entry.message_id = Some(message_id.to_owned());
                if let Taken::No(code) = &entry.taken {
                    let detail = format!("it was refused with {code}, and {message_id} is there");
                    self.violate(Rule::RefusedKept, Some(number), detail);
                } else {
                    entry.taken = Taken::Found;
                }
                self.by_message_id.insert(message_id.to_owned(), number);
            }
        }
    }
}

/// Whether a message in this status changes no more.
pub(crate) fn is_end(status: Status) -> bool {
    matches!(status, Status::Published | Status::Canceled | Status::Expired | Status::DeadLetter)
}
