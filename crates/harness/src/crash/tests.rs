//! The net must catch fish: each history here has one fault, and the checker must name it, and only it.

use client::api::message::{Counts, Delivery, Message, MessageReceipt, Status};
use client::instant::format_instant_ms;

use super::check::{Account, Arrival, EXPIRY_GRACE_MS, Evidence, SeenRecord, check};
use super::ledger::{Change, Due, Ledger, Rule};

const DUE_MS: i64 = 1_000_000;
const END_MS: i64 = DUE_MS + 60_000;
const TOPIC: &str = "t";

/// A run that went well, to be spoilt by a test.
#[derive(Default)]
struct History {
    ledger: Ledger,
    evidence: Evidence,
}

fn message_id(number: u64) -> String {
    format!("ndm1_{number}")
}

fn receipt(number: u64, deliver_at_ms: i64, version: u64) -> MessageReceipt {
    MessageReceipt {
        message_id: message_id(number),
        id: None,
        status: Status::Scheduled,
        deliver_at: format_instant_ms(deliver_at_ms),
        deliver_at_ms,
        expires_at: format_instant_ms(END_MS),
        expires_at_ms: END_MS,
        version: Some(version),
        server_time: format_instant_ms(0),
        server_time_ms: 0,
        delivery: None,
        lateness_ms: None,
    }
}

fn message(number: u64, status: Status, deliver_at_ms: i64, generation: u32) -> Message {
    Message {
        message_id: message_id(number),
        id: None,
        status,
        destination: "d".to_owned(),
        destination_version: 1,
        deliver_at: format_instant_ms(deliver_at_ms),
        deliver_at_ms,
        expires_at: format_instant_ms(END_MS),
        expires_at_ms: END_MS,
        scheduled_at: format_instant_ms(0),
        scheduled_at_ms: 0,
        version: u64::from(generation) + 1,
        generation,
        attempts: 1,
        next_attempt_at: None,
        next_attempt_at_ms: None,
        last_error: None,
        possible_duplicate: false,
        ended_at: None,
        ended_at_ms: None,
        delivery: None,
        lateness_ms: None,
        payload: None,
        waiting_for: None,
        applied_position: String::new(),
    }
}

impl History {
    fn new() -> History {
        let mut history = History::default();
        history.evidence.topics = vec![TOPIC.to_owned()];
        history.evidence.asked_at_ms = DUE_MS + 10_000;
        history.evidence.expiry_grace_ms = EXPIRY_GRACE_MS;
        history
    }

    /// Asks for a message due at `DUE_MS`, and loses the answer.
    fn asked(&mut self) -> u64 {
        self.ledger.plan(0, Due::At(DUE_MS), |_| None)
    }

    /// Asks for a message due at `DUE_MS`, and is answered.
    fn accepted(&mut self) -> u64 {
        let number = self.asked();
        self.ledger.scheduled(number, &receipt(number, DUE_MS, 1));
        number
    }

    fn accepted_and_moved(&mut self, to_ms: i64) -> u64 {
        let number = self.accepted();
        self.ledger.change_sent(number, Change::Move { due: Due::At(to_ms), if_match: Some(1) });
        self.ledger.moved(number, &receipt(number, to_ms, 2));
        number
    }

    fn record(&mut self, number: u64, at_ms: i64, deliver_at_ms: i64, generation: u32) {
        let record = SeenRecord {
            topic: TOPIC.to_owned(),
            offset: self.evidence.records.len() as u64,
            timestamp_ms: at_ms,
            number: Some(number),
            message_id: message_id(number),
            generation,
            attempt: 1,
            deliver_at_ms,
            ..SeenRecord::default()
        };
        let arrival = Arrival { at_ms, message_id: record.message_id.clone() };
        self.evidence.arrivals.insert(record.place(), arrival);
        self.evidence.records.push(record);
    }

    fn list(&mut self, message: Message) -> &mut Message {
        let counts = &mut self.evidence.counts;
        *match message.status {
            Status::Published => &mut counts.published,
            Status::Canceled => &mut counts.canceled,
            Status::Expired => &mut counts.expired,
            Status::DeadLetter => &mut counts.dead_letter,
            Status::Retrying => &mut counts.retrying,
            _ => &mut counts.scheduled,
        } += 1;
        self.evidence.scheduled_total += 1;
        self.evidence.messages.push(message);
        self.evidence.messages.last_mut().expect("just pushed")
    }

    /// A record of it a millisecond behind its time, and the service's word for it.
    fn published(&mut self, number: u64, deliver_at_ms: i64, generation: u32) {
        self.record(number, deliver_at_ms + 1, deliver_at_ms, generation);
        self.called_published(number, deliver_at_ms, generation);
    }

    fn called_published(&mut self, number: u64, deliver_at_ms: i64, generation: u32) -> &mut Message {
        let last = self.evidence.records.last().map(|record| (record.offset, record.timestamp_ms));
        let listed = self.list(message(number, Status::Published, deliver_at_ms, generation));
        listed.delivery = Some(Delivery {
            topic: TOPIC.to_owned(),
            partition: 0,
            offset: last.map(|last| last.0),
            timestamp: None,
            timestamp_ms: last.map(|last| last.1),
        });
        listed
    }

    fn check(mut self) -> (Account, Vec<Rule>) {
        let account = check(&mut self.ledger, &self.evidence);
        let mut rules: Vec<Rule> = self.ledger.violations().iter().map(|violation| violation.rule).collect();
        rules.sort();
        rules.dedup();
        (account, rules)
    }

    fn rules(self) -> Vec<Rule> {
        self.check().1
    }
}

#[test]
fn a_run_that_went_well_has_no_violation_and_a_sum() {
    let mut history = History::new();
    let delivered = history.accepted();
    history.published(delivered, DUE_MS, 0);
    let moved = history.accepted_and_moved(DUE_MS + 50);
    history.published(moved, DUE_MS + 50, 1);
    let canceled = history.accepted();
    history.ledger.canceled(canceled);
    history.list(message(canceled, Status::Canceled, DUE_MS, 0));
    let expired = history.accepted();
    history.list(message(expired, Status::Expired, DUE_MS, 0)).ended_at_ms = Some(END_MS);
    let far_ms = history.evidence.asked_at_ms + 3_600_000;
    let pending = history.accepted_and_moved(far_ms);
    history.list(message(pending, Status::Scheduled, far_ms, 1));
    let refused = history.asked();
    history.ledger.not_taken(refused, "INVALID_DELIVERY_WINDOW");
    let (account, rules) = history.check();
    assert_eq!(rules, []);
    let ends = (account.published, account.canceled, account.expired, account.pending, account.refused);
    assert_eq!((ends, account.accepted(), account.accounted()), ((2, 1, 1, 1, 1), 5, 5));
}

#[test]
fn an_early_delivery_is_caught() {
    let mut history = History::new();
    let number = history.accepted();
    history.record(number, DUE_MS - 1, DUE_MS, 0);
    history.called_published(number, DUE_MS, 0);
    assert_eq!(history.rules(), [Rule::Early]);
}

#[test]
fn an_early_delivery_is_caught_by_the_followers_clock_alone() {
    let mut history = History::new();
    let number = history.accepted();
    history.published(number, DUE_MS, 0);
    history.evidence.arrivals.values_mut().for_each(|arrival| arrival.at_ms = DUE_MS - 1);
    assert_eq!(history.rules(), [Rule::Early]);
}

#[test]
fn a_time_that_a_record_states_otherwise_is_caught() {
    let mut history = History::new();
    let number = history.accepted();
    history.published(number, DUE_MS - 500, 0);
    assert_eq!(history.rules(), [Rule::MovedDelivered, Rule::Unasked]);
}

#[test]
fn a_lost_message_is_caught() {
    let mut history = History::new();
    history.accepted();
    assert_eq!(history.rules(), [Rule::Lost]);
}

#[test]
fn a_message_that_vanished_before_a_read_or_a_change_is_caught() {
    let mut history = History::new();
    let read = history.accepted();
    history.ledger.not_taken(read, "NOT_FOUND");
    assert_eq!(history.ledger.violations().len(), 1);
    let changed = history.accepted();
    history.ledger.change_sent(changed, Change::Cancel);
    history.ledger.change_refused(changed, "NOT_FOUND", None);
    assert_eq!(history.ledger.violations().len(), 2);
    assert_eq!(history.rules(), [Rule::Lost]);
}

#[test]
fn a_publication_without_its_record_is_caught() {
    let mut history = History::new();
    let number = history.accepted();
    history.called_published(number, DUE_MS, 0);
    assert_eq!(history.rules(), [Rule::Lost]);
}

#[test]
fn a_canceled_message_that_is_delivered_is_caught() {
    let mut history = History::new();
    let number = history.accepted();
    history.ledger.canceled(number);
    history.record(number, DUE_MS + 1, DUE_MS, 0);
    history.list(message(number, Status::Canceled, DUE_MS, 0));
    assert_eq!(history.rules(), [Rule::CanceledDelivered]);
}

#[test]
fn a_canceled_message_that_is_called_published_is_caught() {
    let mut history = History::new();
    let number = history.accepted();
    history.ledger.canceled(number);
    history.published(number, DUE_MS, 0);
    assert_eq!(history.rules(), [Rule::CanceledDelivered, Rule::EndChanged]);
}

#[test]
fn a_delivery_at_the_old_time_is_caught() {
    let mut history = History::new();
    let number = history.accepted_and_moved(DUE_MS + 500);
    history.record(number, DUE_MS + 1, DUE_MS, 0);
    history.called_published(number, DUE_MS + 500, 1);
    assert_eq!(history.rules(), [Rule::Early, Rule::MovedDelivered]);
}

#[test]
fn an_unexplained_duplicate_is_caught_and_an_explained_one_is_counted() {
    for explained in [false, true] {
        let mut history = History::new();
        let number = history.accepted();
        history.record(number, DUE_MS + 1, DUE_MS, 0);
        history.record(number, DUE_MS + 2, DUE_MS, 0);
        history.called_published(number, DUE_MS, 0).possible_duplicate = explained;
        let (account, rules) = history.check();
        let expected = if explained { vec![] } else { vec![Rule::UnexplainedDuplicate] };
        assert_eq!((rules, account.explained_duplicates), (expected, u64::from(explained)));
    }
}

#[test]
fn a_second_record_is_explained_by_another_attempt_of_the_same_generation_and_by_nothing_less() {
    for (attempts_tell_apart, attempts, generations, expected) in [
        (true, [1, 2], [0, 0], vec![]),
        (true, [1, 1], [0, 0], vec![Rule::UnexplainedDuplicate]),
        (true, [1, 2], [0, 1], vec![Rule::MovedDelivered, Rule::UnexplainedDuplicate]),
        (false, [1, 2], [0, 0], vec![Rule::UnexplainedDuplicate]),
    ] {
        let mut history = History::new();
        history.evidence.attempts_tell_apart = attempts_tell_apart;
        let number = history.accepted();
        for (at_ms, (attempt, generation)) in (DUE_MS + 1..).zip(attempts.into_iter().zip(generations)) {
            history.record(number, at_ms, DUE_MS, generation);
            history.evidence.records.last_mut().expect("just pushed").attempt = attempt;
        }
        history.called_published(number, DUE_MS, 0);
        let (account, rules) = history.check();
        assert_eq!((rules, account.told_apart), (expected.clone(), u64::from(expected.is_empty())), "{attempts:?}");
    }
}

#[test]
fn a_second_message_of_one_key_is_caught() {
    let mut history = History::new();
    let number = history.accepted();
    let second = MessageReceipt { message_id: "ndm1_second".to_owned(), ..receipt(number, DUE_MS, 1) };
    history.ledger.scheduled(number, &second);
    history.published(number, DUE_MS, 0);
    assert_eq!(history.rules(), [Rule::KeyBroken]);
}

#[test]
fn a_second_message_of_a_lost_request_is_caught() {
    let mut history = History::new();
    let number = history.accepted();
    history.published(number, DUE_MS, 0);
    history.record(number, DUE_MS + 2, DUE_MS, 0);
    let copy = history.evidence.records.last_mut().expect("just pushed");
    copy.message_id = "ndm1_second".to_owned();
    let place = copy.place();
    history.evidence.arrivals.get_mut(&place).expect("just seen").message_id = "ndm1_second".to_owned();
    assert_eq!(history.rules(), [Rule::UnexplainedDuplicate]);
}

#[test]
fn a_refused_message_that_is_delivered_is_caught() {
    let mut history = History::new();
    let number = history.asked();
    history.ledger.not_taken(number, "INVALID_DELIVERY_WINDOW");
    history.record(number, DUE_MS + 1, DUE_MS, 0);
    assert_eq!(history.rules(), [Rule::RefusedKept]);
}

#[test]
fn a_stuck_message_and_an_early_expiry_are_caught() {
    let mut history = History::new();
    let stuck = history.accepted();
    history.list(message(stuck, Status::Scheduled, DUE_MS, 0));
    let expired = history.accepted();
    history.list(message(expired, Status::Expired, DUE_MS, 0)).ended_at_ms = Some(END_MS - 1);
    assert_eq!(history.rules(), [Rule::Stuck, Rule::WrongExpiry]);
}

#[test]
fn a_message_that_is_given_up_without_doubt_about_an_attempt_is_caught() {
    for (possible_duplicate, expected) in [(false, vec![Rule::Lost]), (true, vec![])] {
        let mut history = History::new();
        let number = history.accepted();
        history.list(message(number, Status::DeadLetter, DUE_MS, 0)).possible_duplicate = possible_duplicate;
        assert_eq!(history.rules(), expected);
    }
}

#[test]
fn a_verdict_that_the_consumer_contradicts_is_caught() {
    let mut history = History::new();
    let expired = history.accepted();
    history.list(message(expired, Status::Expired, DUE_MS, 0)).ended_at_ms = Some(END_MS);
    history.record(expired, DUE_MS + 1, DUE_MS, 0);
    assert_eq!(history.rules(), [Rule::WrongVerdict]);
}

#[test]
fn records_that_change_vanish_or_belong_to_nobody_are_caught() {
    let mut history = History::new();
    let number = history.accepted();
    history.published(number, DUE_MS, 0);
    history.evidence.records[0].difference = Some("its value is another".to_owned());
    assert_eq!(history.rules(), [Rule::WrongContent]);

    let mut history = History::new();
    let arrival = Arrival { at_ms: DUE_MS, message_id: message_id(7) };
    history.evidence.arrivals.insert((TOPIC.to_owned(), 0, 0), arrival);
    assert_eq!(history.rules(), [Rule::RecordGone]);

    let mut history = History::new();
    history.record(3, DUE_MS, DUE_MS, 0);
    assert_eq!(history.rules(), [Rule::Foreign]);

    let mut history = History::new();
    let number = history.accepted();
    history.record(number, DUE_MS + 1, DUE_MS, 0);
    history.evidence.records[0].offset = 1;
    history.evidence.arrivals.clear();
    history.called_published(number, DUE_MS, 0);
    assert_eq!(history.rules(), [Rule::BrokenOrder]);
}

#[test]
fn sums_that_differ_are_caught() {
    let mut history = History::new();
    let number = history.accepted();
    history.published(number, DUE_MS, 0);
    history.evidence.counts = Counts { published: 2, ..Counts::default() };
    assert_eq!(history.rules(), [Rule::WrongAccount]);

    let mut history = History::new();
    let number = history.accepted();
    history.published(number, DUE_MS, 0);
    history.evidence.scheduled_total += 1;
    assert_eq!(history.rules(), [Rule::WrongAccount]);
}

#[test]
fn a_lost_answer_may_be_zero_or_one_message() {
    let mut history = History::new();
    history.asked();
    let taken = history.asked();
    history.published(taken, DUE_MS, 0);
    let (account, rules) = history.check();
    assert_eq!((rules, account.vanished, account.found, account.accepted()), (vec![], 1, 1, 1));
}

#[test]
fn a_lost_answer_to_a_cancel_leaves_both_open_and_a_read_decides() {
    for (status, expected) in [(Status::Canceled, 1), (Status::Published, 0)] {
        let mut history = History::new();
        let number = history.accepted();
        history.ledger.change_sent(number, Change::Cancel);
        history.ledger.change_lost(number);
        match status {
            Status::Published => history.published(number, DUE_MS, 0),
            _ => drop(history.list(message(number, status, DUE_MS, 0)).ended_at.take()),
        }
        let (account, rules) = history.check();
        assert_eq!((rules, account.canceled), (vec![], expected));
    }
}

#[test]
fn a_lost_answer_to_a_move_leaves_both_times_open_and_no_third() {
    let moved_ms = DUE_MS + 700;
    for (deliver_at_ms, generation, expected) in
        [(DUE_MS, 0, vec![]), (moved_ms, 1, vec![]), (DUE_MS + 300, 1, vec![Rule::MovedDelivered, Rule::Unasked])]
    {
        let mut history = History::new();
        let number = history.accepted();
        history.ledger.change_sent(number, Change::Move { due: Due::At(moved_ms), if_match: None });
        history.ledger.change_lost(number);
        history.published(number, deliver_at_ms, generation);
        assert_eq!(history.rules(), expected);
    }
}

#[test]
fn a_move_repeated_with_its_key_is_one_move() {
    let moved_ms = DUE_MS + 700;
    for is_seen_before in [false, true] {
        let mut history = History::new();
        let number = history.accepted();
        history.ledger.change_sent(number, Change::Move { due: Due::At(moved_ms), if_match: None });
        history.ledger.change_lost(number);
        if is_seen_before {
            history.ledger.observed(number, &message(number, Status::Scheduled, moved_ms, 1));
        }
        history.ledger.moved(number, &receipt(number, moved_ms, 2));
        history.published(number, moved_ms, 1);
        assert_eq!(history.rules(), []);
    }
}

#[test]
fn an_answer_that_ignores_if_match_is_caught() {
    let mut history = History::new();
    let number = history.accepted_and_moved(DUE_MS + 500);
    history.ledger.change_sent(number, Change::Move { due: Due::At(DUE_MS + 900), if_match: Some(1) });
    history.ledger.moved(number, &receipt(number, DUE_MS + 900, 3));
    history.published(number, DUE_MS + 900, 2);
    assert_eq!(history.rules(), [Rule::WrongAnswer]);
}
