//! The load: workers that schedule, move, cancel and read until the server is gone, and repeat afterwards what was not answered.

use std::cell::{Cell, RefCell};

use client::api::message::ScheduleRequest;
use client::api::message::{
    BatchReceipt, BatchRequest, BatchResult, Message, MessageReceipt, RescheduleRequest, Status,
};
use client::api::problem::Problem;
use client::http::{ClientError, HttpClient};
use client::instant::format_instant_ms;
use hyper::Method;

use super::EXPIRY_MS_MIN;
use super::chance::{percent, stream};
use super::content::Content;
use super::ledger::{Change, Due, Ledger, Rule};
use super::topics::DESTINATIONS;
use crate::wall_clock::now_ms;

/// Messages one worker asks for in one round at most: a run's size is bounded by its rounds.
const MESSAGES_PER_ROUND_MAX: u64 = 300;
/// A change this close to the due time races the delivery.
const RACE_MS: i64 = 60;
/// Messages a worker goes on changing and reading.
const POOL_MAX: usize = 300;
/// Answered requests with a key that are repeated after the next restart all the same.
const ANSWERED_REPEATS_MAX: usize = 20;
/// Far enough away to be pending in the end.
const FAR_MS: i64 = 3_600_000;

/// What workers of one round share.
pub(crate) struct Round<'a> {
    pub(crate) seed: u64,
    pub(crate) number: u64,
    pub(crate) client: &'a HttpClient,
    pub(crate) ledger: &'a RefCell<Ledger>,
    /// Set when the server is about to be killed or to be stopped: nobody starts anything any more.
    pub(crate) is_over: &'a Cell<bool>,
    /// Whether the second destination is paused: messages that expire soon go there.
    pub(crate) is_paused: bool,
}

/// A request with a key, as it was sent.
#[derive(Clone, Debug)]
enum Keyed {
    Single { key: String, body: String, number: u64 },
    Batch { body: String, numbers: Vec<u64> },
    Change { key: String, method: Method, body: String, if_match: Option<u64>, number: u64, change: Change },
}

/// One worker, over all rounds.
pub(crate) struct Worker {
    index: u64,
    /// Messages it goes on with.
    pool: Vec<u64>,
    /// Requests to repeat after the next restart.
    repeats: Vec<Keyed>,
    answered_repeats: usize,
    /// Messages whose state a read must tell after the next restart.
    doubtful: Vec<u64>,
    key_count: u64,
}

/// What an answer came to.
enum Outcome<T> {
    Answered(T),
    Refused(Box<Problem>),
    /// Not known; whoever sent it stops.
    Lost,
    /// Nothing was sent.
    Unsent,
}

impl Worker {
    pub(crate) fn new(index: u64) -> Worker {
        Worker { index, pool: Vec::new(), repeats: Vec::new(), answered_repeats: 0, doubtful: Vec::new(), key_count: 0 }
    }

    /// Finds out what became of what was not answered before the restart, and repeats what had a key. Returns whether the
    /// server was there to the end of it.
    pub(crate) async fn settle(&mut self, round: &Round<'_>) -> bool {
        while let Some(number) = self.doubtful.last().copied() {
            if round.is_over.get() || !self.read(round, number).await {
                return false;
            }
            self.doubtful.pop();
        }
        while let Some(keyed) = self.repeats.last().cloned() {
            if round.is_over.get() || !self.repeat(round, &keyed).await {
                return false;
            }
            self.repeats.pop();
        }
        self.answered_repeats = 0;
        true
    }

    /// Works until the server is gone.
    pub(crate) async fn work(&mut self, round: &Round<'_>) {
        if !self.settle(round).await {
            return;
        }
        let chance = &mut stream(round.seed, "worker", round.number * 1_000 + self.index);
        let mut asked = 0;
        while !round.is_over.get() {
            let full = asked >= MESSAGES_PER_ROUND_MAX;
            let goes_on = match chance.u32(..100) {
                0..30 if !full => {
                    asked += 1;
                    self.schedule(round, chance).await
                }
                30..45 if !full => {
                    let length = u64::from(chance.u32(1..40));
                    asked += length;
                    self.schedule_batch(round, chance, length).await
                }
                45..65 => self.reschedule(round, chance).await,
                65..80 => self.cancel(round, chance).await,
                _ => match self.pick(round, chance) {
                    Some(number) => self.read(round, number).await,
                    None => true,
                },
            };
            if !goes_on {
                return;
            }
            // A worker with nothing to ask for must not keep the others from theirs.
            tokio::task::yield_now().await;
        }
    }

    fn key(&mut self, round: &Round<'_>) -> String {
        self.key_count += 1;
        format!("{}-{}-{}", round.seed, self.index, self.key_count)
    }

    /// A message to go on with: one that is due about now, or later, or any.
    fn pick(&mut self, round: &Round<'_>, chance: &mut fastrand::Rng) -> Option<u64> {
        let ledger = round.ledger.borrow();
        self.pool.retain(|number| ledger.entry(*number).is_some_and(|entry| !entry.has_ended()));
        if self.pool.len() > POOL_MAX {
            self.pool.drain(..self.pool.len() - POOL_MAX);
        }
        let (now_ms, kind) = (now_ms(), chance.u32(..10));
        let due_in_ms = |number: &u64| ledger.entry(*number).map_or(0, |entry| entry.due_ms() - now_ms);
        let wanted = |number: &&u64| match kind {
            0..4 => (-RACE_MS..RACE_MS).contains(&due_in_ms(number)),
            4..9 => due_in_ms(number) > RACE_MS,
            _ => true,
        };
        let candidates: Vec<u64> = self.pool.iter().filter(wanted).copied().collect();
        if candidates.is_empty() { None } else { Some(candidates[chance.usize(..candidates.len())]) }
    }

    /// A message of chance: its number, and its request.
    fn new_message(&self, round: &Round<'_>, chance: &mut fastrand::Rng) -> (u64, ScheduleRequest) {
        let expires_soon = percent(chance, 25);
        let destination = if expires_soon && round.is_paused { 1 } else { chance.usize(..DESTINATIONS.len()) };
        let mut request =
            ScheduleRequest { destination: DESTINATIONS[destination].name.to_owned(), ..ScheduleRequest::default() };
        let (due, delay_ms) = new_due(chance);
        match due {
            Due::At(at_ms) if percent(chance, 20) => request.deliver_at = Some(format_instant_ms(at_ms)),
            Due::At(at_ms) => request.deliver_at_ms = Some(at_ms),
            Due::NotBefore(_) => request.delay = Some(format!("{delay_ms}ms")),
        }
        if expires_soon {
            request.expires_after = Some(format!("{}ms", EXPIRY_MS_MIN + chance.i64(0..1_500)));
        }
        let has_id = percent(chance, 50);
        let number = round.ledger.borrow_mut().plan(destination, due, |number| has_id.then(|| own_id(round, number)));
        request.id = has_id.then(|| own_id(round, number));
        let content = Content::of(round.seed, number);
        request.key = content.key_spec();
        request.value = content.value_spec();
        request.headers = content.header_specs();
        (number, request)
    }

    async fn schedule(&mut self, round: &Round<'_>, chance: &mut fastrand::Rng) -> bool {
        let (number, request) = self.new_message(round, chance);
        let key = percent(chance, 35).then(|| self.key(round));
        let wait = ["applied", "applied", "applied", "queued", "published"][chance.usize(..5)];
        let body = serde_json::to_string(&request).unwrap_or_default();
        let keyed = key.clone().map(|key| Keyed::Single { key, body: body.clone(), number });
        let answer = send_single(round, key, body, Some(wait)).await;
        let is_lost = matches!(answer, Outcome::Lost);
        let goes_on = self.scheduled(round, number, answer);
        self.remember(keyed, is_lost);
        if is_lost && self.needs_read(round, number) {
            self.doubtful.push(number);
        }
        goes_on
    }

    /// Without a key only the message's own id can tell what became of it; a key is repeated.
    fn needs_read(&self, round: &Round<'_>, number: u64) -> bool {
        let is_repeated = self.repeats.last().is_some_and(|keyed| match keyed {
            Keyed::Single { number: repeated, .. } => *repeated == number,
            Keyed::Batch { numbers, .. } => numbers.contains(&number),
            Keyed::Change { .. } => false,
        });
        !is_repeated && round.ledger.borrow().entry(number).is_some_and(|entry| entry.id().is_some())
    }

    fn remember(&mut self, keyed: Option<Keyed>, is_lost: bool) {
        let Some(keyed) = keyed else { return };
        if is_lost {
            self.repeats.push(keyed);
        } else if self.answered_repeats < ANSWERED_REPEATS_MAX {
            self.answered_repeats += 1;
            self.repeats.insert(0, keyed);
        }
    }

    /// Enters what a request for one message came to. Returns whether the worker goes on.
    fn scheduled(&mut self, round: &Round<'_>, number: u64, answer: Outcome<MessageReceipt>) -> bool {
        let ledger = &mut *round.ledger.borrow_mut();
        match answer {
            Outcome::Answered(receipt) => {
                ledger.scheduled(number, &receipt);
                self.pool.push(number);
                return true;
            }
            Outcome::Refused(problem) => {
                ledger.not_taken(number, &problem.code);
                return true;
            }
            Outcome::Lost => ledger.answers_lost += 1,
            Outcome::Unsent => ledger.not_taken(number, "UNSENT"),
        }
        false
    }

    async fn schedule_batch(&mut self, round: &Round<'_>, chance: &mut fastrand::Rng, length: u64) -> bool {
        let is_keyed = percent(chance, 35);
        let (mut numbers, mut messages) = (Vec::new(), Vec::new());
        for _ in 0..length {
            let (number, mut request) = self.new_message(round, chance);
            request.idempotency_key = is_keyed.then(|| self.key(round));
            numbers.push(number);
            messages.push(request);
        }
        let body = serde_json::to_string(&BatchRequest { messages }).unwrap_or_default();
        let keyed = is_keyed.then(|| Keyed::Batch { body: body.clone(), numbers: numbers.clone() });
        let answer = send_batch(round, body).await;
        let is_lost = matches!(answer, Outcome::Lost);
        let goes_on = self.batch_scheduled(round, &numbers, answer, false);
        self.remember(keyed, is_lost);
        if is_lost {
            let doubtful = numbers.into_iter().filter(|number| self.needs_read(round, *number)).collect::<Vec<_>>();
            self.doubtful.extend(doubtful);
        }
        goes_on
    }

    fn batch_scheduled(
        &mut self,
        round: &Round<'_>,
        numbers: &[u64],
        answer: Outcome<BatchReceipt>,
        is_repeat: bool,
    ) -> bool {
        let ledger = &mut *round.ledger.borrow_mut();
        match answer {
            Outcome::Answered(receipt) => {
                if receipt.results.len() != numbers.len() {
                    let detail = format!("{} results for {} messages", receipt.results.len(), numbers.len());
                    ledger.violate(Rule::WrongAnswer, numbers.first().copied(), detail);
                }
                for (number, result) in numbers.iter().zip(receipt.results) {
                    match result {
                        BatchResult::Receipt(receipt) => {
                            ledger.scheduled(*number, &receipt);
                            self.pool.push(*number);
                        }
                        BatchResult::Problem(problem) if is_unknown(&problem) => ledger.answers_lost += 1,
                        BatchResult::Problem(problem) => {
                            ledger.refused(&problem.code);
                            ledger.not_taken(*number, &problem.code);
                        }
                    }
                }
                return true;
            }
            Outcome::Refused(problem) => {
                numbers.iter().for_each(|number| ledger.not_taken(*number, &problem.code));
                return true;
            }
            Outcome::Lost => ledger.answers_lost += 1,
            // A repetition that was not sent says nothing of the first request.
            Outcome::Unsent if is_repeat => {}
            Outcome::Unsent => numbers.iter().for_each(|number| ledger.not_taken(*number, "UNSENT")),
        }
        false
    }

    async fn reschedule(&mut self, round: &Round<'_>, chance: &mut fastrand::Rng) -> bool {
        let Some(number) = self.pick(round, chance) else { return true };
        let version = round.ledger.borrow().entry(number).and_then(|entry| entry.version);
        let if_match = match (version, chance.u32(..10)) {
            (Some(version), 0..5) => Some(version),
            // One that has moved on: to be refused.
            (Some(version), 5) if version > 1 => Some(version - 1),
            _ => None,
        };
        let (due, delay_ms) = new_due(chance);
        let mut request = RescheduleRequest::default();
        match due {
            Due::At(at_ms) => request.deliver_at_ms = Some(at_ms),
            Due::NotBefore(_) => request.delay = Some(format!("{delay_ms}ms")),
        }
        let body = serde_json::to_string(&request).unwrap_or_default();
        let change = Change::Move { due, if_match };
        self.change(
            round,
            chance,
            Keyed::Change { key: String::new(), method: Method::PATCH, body, if_match, number, change },
        )
        .await
    }

    async fn cancel(&mut self, round: &Round<'_>, chance: &mut fastrand::Rng) -> bool {
        let Some(number) = self.pick(round, chance) else { return true };
        let (method, body) = (Method::DELETE, String::new());
        let keyed = Keyed::Change { key: String::new(), method, body, if_match: None, number, change: Change::Cancel };
        self.change(round, chance, keyed).await
    }

    async fn change(&mut self, round: &Round<'_>, chance: &mut fastrand::Rng, mut keyed: Keyed) -> bool {
        let Keyed::Change { key, method, body, if_match, number, change } = &mut keyed else { return true };
        let (number, change) = (*number, *change);
        if percent(chance, 25) {
            *key = self.key(round);
        }
        round.ledger.borrow_mut().change_sent(number, change);
        let answer = send_change(round, number, method, body, *if_match, key).await;
        let (is_lost, is_keyed) = (matches!(answer, Outcome::Lost), !key.is_empty());
        let goes_on = changed(round, number, change, answer, false);
        if is_lost && is_keyed {
            self.repeats.push(keyed);
        } else if is_lost {
            self.doubtful.push(number);
        }
        goes_on
    }

    /// Reads a message and enters what it shows. Returns whether there was an answer.
    async fn read(&self, round: &Round<'_>, number: u64) -> bool {
        read(round, number).await
    }

    async fn repeat(&mut self, round: &Round<'_>, keyed: &Keyed) -> bool {
        let goes_on = match keyed {
            Keyed::Single { key, body, number } => {
                match send_single(round, Some(key.clone()), body.clone(), None).await {
                    // It says nothing of the first request.
                    Outcome::Unsent => false,
                    answer => self.scheduled(round, *number, answer),
                }
            }
            Keyed::Batch { body, numbers } => {
                let answer = send_batch(round, body.clone()).await;
                self.batch_scheduled(round, numbers, answer, true)
            }
            Keyed::Change { key, method, body, if_match, number, change } => {
                let answer = send_change(round, *number, method, body, *if_match, key).await;
                changed(round, *number, *change, answer, true)
            }
        };
        round.ledger.borrow_mut().repeats_answered += u64::from(goes_on);
        goes_on
    }
}

/// The caller's own id of a message.
pub(crate) fn own_id(round: &Round<'_>, number: u64) -> String {
    format!("run-{}/{number}", round.seed)
}

/// A time of chance: some have passed, most come within a few seconds, a few stay pending.
pub(crate) fn new_due(chance: &mut fastrand::Rng) -> (Due, i64) {
    let delay_ms = match chance.u32(..100) {
        0..10 => -100,
        10..20 => chance.i64(0..50),
        20..80 => chance.i64(50..1_500),
        80..95 => chance.i64(1_500..4_000),
        _ => FAR_MS,
    };
    let at_ms = now_ms() + delay_ms;
    let is_absolute = delay_ms < 0 || percent(chance, 60);
    (if is_absolute { Due::At(at_ms) } else { Due::NotBefore(at_ms) }, delay_ms)
}

/// Whether a problem leaves open what became of the request.
fn is_unknown(problem: &Problem) -> bool {
    // A refusal for lack of room or while stopping says that nothing was taken.
    problem.status >= 500 && problem.code != "UNAVAILABLE"
}

fn outcome<T>(round: &Round<'_>, answer: Result<T, ClientError>) -> Outcome<T> {
    match answer {
        Ok(answer) => Outcome::Answered(answer),
        Err(ClientError::Problem(problem)) => {
            round.ledger.borrow_mut().refused(&problem.code);
            if is_unknown(&problem) { Outcome::Lost } else { Outcome::Refused(problem) }
        }
        Err(ClientError::Unreachable { .. }) => Outcome::Unsent,
        Err(ClientError::OutcomeUnknown { .. }) => Outcome::Lost,
        Err(error @ (ClientError::NotUnderstood { .. } | ClientError::Address { .. })) => {
            round.ledger.borrow_mut().violate(Rule::WrongAnswer, None, error.to_string());
            Outcome::Lost
        }
    }
}

async fn send_single(
    round: &Round<'_>,
    key: Option<String>,
    body: String,
    wait: Option<&str>,
) -> Outcome<MessageReceipt> {
    let call = round.client.call(Method::POST, &["v1", "messages"]).query("wait", wait);
    // Long enough to see some published, short enough to go on.
    let call = call.query("timeout", wait.filter(|wait| *wait == "published").map(|_| "500ms"));
    let answer = call.header("idempotency-key", key).json_text(body).send::<MessageReceipt>().await;
    outcome(round, answer.map(|answer| answer.body))
}

async fn send_batch(round: &Round<'_>, body: String) -> Outcome<BatchReceipt> {
    let call = round.client.call(Method::POST, &["v1", "messages"]).verb(":batch");
    outcome(round, call.json_text(body).send::<BatchReceipt>().await.map(|answer| answer.body))
}

async fn send_change(
    round: &Round<'_>,
    number: u64,
    method: &Method,
    body: &str,
    if_match: Option<u64>,
    key: &str,
) -> Outcome<MessageReceipt> {
    let id = round.ledger.borrow().entry(number).and_then(|entry| entry.id().map(str::to_owned));
    let Some(id) = id else { return Outcome::Unsent };
    let mut call = round.client.call(method.clone(), &["v1", "messages", &id]);
    call = call.header("if-match", if_match.map(|version| format!("\"{version}\"")));
    call = call.header("idempotency-key", (!key.is_empty()).then_some(key));
    if method == Method::PATCH {
        call = call.json_text(body.to_owned());
    }
    outcome(round, call.send::<MessageReceipt>().await.map(|answer| answer.body))
}

/// Enters what a change came to. Returns whether the worker goes on.
fn changed(round: &Round<'_>, number: u64, change: Change, answer: Outcome<MessageReceipt>, is_repeat: bool) -> bool {
    let ledger = &mut *round.ledger.borrow_mut();
    match answer {
        // Durable in the log, and not decided in time: a read tells, once it is.
        Outcome::Answered(receipt) if receipt.status == Status::Queued => ledger.change_lost(number),
        Outcome::Answered(receipt) => match change {
            Change::Move { .. } => ledger.moved(number, &receipt),
            Change::Cancel => {
                if receipt.status != Status::Canceled {
                    let detail = format!("a cancel is answered with {}", receipt.status);
                    ledger.violate(Rule::WrongAnswer, Some(number), detail);
                }
                ledger.canceled(number);
            }
        },
        Outcome::Refused(problem) => {
            // A repeated request may get its first answer, which shows the message as it was then.
            let shown = problem.message.as_deref().filter(|_| !is_repeat);
            ledger.change_refused(number, &problem.code, shown);
        }
        Outcome::Lost => {
            ledger.answers_lost += 1;
            ledger.change_lost(number);
            return false;
        }
        Outcome::Unsent if is_repeat => return false,
        Outcome::Unsent => {
            ledger.change_refused(number, "UNSENT", None);
            return false;
        }
    }
    true
}

/// Reads a message and enters what it shows. Returns whether there was an answer.
pub(crate) async fn read(round: &Round<'_>, number: u64) -> bool {
    let id = round.ledger.borrow().entry(number).and_then(|entry| entry.id().map(str::to_owned));
    let Some(id) = id else { return true };
    let answer = round.client.call(Method::GET, &["v1", "messages", &id]).send::<Message>().await;
    match outcome(round, answer.map(|answer| answer.body)) {
        Outcome::Answered(message) => {
            round.ledger.borrow_mut().observed(number, &message);
            true
        }
        Outcome::Refused(problem) => {
            let ledger = &mut *round.ledger.borrow_mut();
            if problem.code == "NOT_FOUND" {
                ledger.not_taken(number, &problem.code);
            }
            true
        }
        Outcome::Lost | Outcome::Unsent => false,
    }
}
