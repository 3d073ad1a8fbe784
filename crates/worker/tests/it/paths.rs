//! What becomes of messages when destinations, operators and deadlines have their say, as users notice it.

use std::time::Duration;

use protocol::code::StableCode;
use protocol::mutation_v2::{ControlPayload, Disposition};
use protocol::policy::RetryPolicy;
use shard::schedule::circuit::CircuitState;
use shard::schedule::lane::Readiness;
use shard::state::generation::MessageState;
use sim::world::broker::{Answering, Behavior, Evidence, Opening};
use testkit::log::default_policy;

use sim::account::{self, Account};
use sim::cell::{Cell, CellOptions, Prepared, Worker, slow};
use sim::told::Told;

/// A story about one message on one destination: it is due five seconds from the start.
async fn one_message(cell: &Cell, behavior: Behavior) -> (Worker, Prepared, i64) {
    let worker = cell.start("worker", &cell.disks("a"));
    worker.active().await;
    let due_ms = cell.world.now_ms() + 5_000;
    let message = cell.schedule(0, 0, due_ms);
    assert_eq!(worker.submit(&message).await.code, StableCode::Scheduled);
    // Its lane has a session by now; what changes is what becomes of attempts.
    cell.world.wait(Duration::from_secs(1)).await;
    cell.broker.set(cell.place(0), behavior);
    (worker, message, due_ms)
}

fn refusing(disposition: Disposition) -> Behavior {
    Behavior { answering: Answering::Refuses(disposition), ..Behavior::default() }
}

fn policy(change: impl FnOnce(&mut RetryPolicy)) -> CellOptions {
    let mut options = CellOptions::new(60);
    options.policy = default_policy();
    change(&mut options.policy);
    options
}

/// From each attempt of a message to the next, in milliseconds.
fn pauses_ms(cell: &Cell, message: &Prepared) -> Vec<i64> {
    let received = cell.broker.received_of(message.message);
    received.windows(2).map(|pair| (pair[1].at_us - pair[0].at_us) / 1_000).collect()
}

#[test]
fn a_refused_message_is_tried_again_with_growing_jittered_pauses_until_it_is_taken() {
    let cell = Cell::new(CellOptions::new(60));
    cell.world.run(async {
        let (worker, message, _) = one_message(&cell, refusing(Disposition::MessageRetriable)).await;
        cell.world.wait(Duration::from_secs(900)).await;
        cell.broker.set(cell.place(0), Behavior::default());
        cell.world.wait(Duration::from_secs(310)).await;
        let view = worker.message(0, message.message);
        assert_eq!((view.state, view.row.possible_duplicate), (MessageState::Published, false));
        let pauses_ms = pauses_ms(&cell, &message);
        assert!(pauses_ms.len() >= 6, "{pauses_ms:?}");
        for (number, pause_ms) in pauses_ms.iter().enumerate() {
            let cap_ms = (1_000 << number.min(20)).min(300_000);
            assert!(*pause_ms <= cap_ms + 50, "pause {number} of {pauses_ms:?}");
        }
        assert!(pauses_ms.iter().max() > Some(&20_000), "pauses grow: {pauses_ms:?}");
    });
    assert_eq!(account::settle(&cell), Account { accepted: 1, published: 1, ..Account::default() });
}

#[test]
fn a_message_that_is_refused_too_often_is_dead_lettered() {
    let cell = Cell::new(policy(|policy| (policy.publish_admissions_max, policy.uncertain_retries_max) = (4, 2)));
    cell.world.run(async {
        let (worker, message, _) = one_message(&cell, refusing(Disposition::MessageRetriable)).await;
        cell.world.wait(Duration::from_secs(120)).await;
        let view = worker.message(0, message.message);
        assert_eq!((view.state, view.row.possible_duplicate), (MessageState::DeadLetter, false));
        assert_eq!(cell.broker.received_of(message.message).len(), 4);
    });
    assert_eq!(account::settle(&cell), Account { accepted: 1, dead_lettered: 1, ..Account::default() });
}

#[test]
fn a_message_that_can_never_be_taken_is_dead_lettered_at_once() {
    let cell = Cell::new(CellOptions::new(61));
    cell.world.run(async {
        let (worker, message, due_ms) = one_message(&cell, refusing(Disposition::MessagePermanent)).await;
        cell.world.wait_until(due_ms + 100).await;
        assert_eq!(worker.message(0, message.message).state, MessageState::DeadLetter);
        cell.world.wait(Duration::from_secs(600)).await;
        assert_eq!(cell.broker.received_of(message.message).len(), 1);
    });
    assert_eq!(account::settle(&cell), Account { accepted: 1, dead_lettered: 1, ..Account::default() });
}

#[test]
fn a_lane_that_is_down_for_an_hour_costs_its_messages_nothing_and_the_log_little() {
    let mut options = CellOptions::new(62);
    options.world.time_max = Duration::from_secs(7_200);
    let cell = Cell::new(options);
    cell.world.run(async {
        let (worker, message, _) = one_message(&cell, refusing(Disposition::LaneUnavailable)).await;
        for number in 0..100 {
            cell.append(&cell.schedule(0, 0, cell.world.now_ms() + 10 * number));
        }
        cell.world.wait(Duration::from_secs(60)).await;
        let records_before = cell.archive(0).len();
        assert!(records_before < 300, "the circuit opens at once: {records_before} records in the first minute");
        cell.world.wait(Duration::from_secs(3_540)).await;
        let records = cell.archive(0).len() - records_before;
        assert!(records < 3 * 59 + 10, "a probe a minute, admission and outcome, and a fence every ten: {records}");
        let lanes = worker.handles[0].lanes().await.expect("the shard is active");
        assert!(!matches!(lanes[0].circuit, CircuitState::Closed), "{lanes:?}");
        assert_eq!(lanes[0].readiness, Readiness::Ready);
        assert_eq!(worker.message(0, message.message).row.attempts_charged, 0);
        cell.broker.set(cell.place(0), Behavior::default());
        cell.world.wait(Duration::from_secs(61)).await;
        assert_eq!(cell.broker.delivered_count(), 101, "the next probe opens the lane for everything");
    });
    assert_eq!(account::settle(&cell), Account { accepted: 101, published: 101, ..Account::default() });
}

#[test]
fn a_lane_without_session_waits_and_says_why() {
    let cell = Cell::new(CellOptions::new(63));
    let opening = Opening::Fails(StableCode::ResourceIncarnationMismatch);
    cell.broker.set(cell.place(0), Behavior { opening, ..Behavior::default() });
    cell.world.run(async {
        let worker = cell.start("worker", &cell.disks("a"));
        worker.active().await;
        let message = cell.schedule(0, 0, cell.world.now_ms());
        cell.append(&message);
        cell.world.wait(Duration::from_secs(300)).await;
        let lanes = worker.handles[0].lanes().await.expect("the shard is active");
        assert_eq!(lanes[0].readiness, Readiness::Blocked(StableCode::ResourceIncarnationMismatch));
        assert!(lanes[0].detail.contains("cannot be opened"), "{lanes:?}");
        assert_eq!(worker.message(0, message.message).state, MessageState::Scheduled);
        assert_eq!(cell.broker.received_of(message.message), []);
        cell.broker.set(cell.place(0), Behavior::default());
        cell.world.wait(Duration::from_secs(61)).await;
        assert_eq!(worker.message(0, message.message).state, MessageState::Published);
    });
    assert_eq!(account::settle(&cell), Account { accepted: 1, published: 1, ..Account::default() });
}

#[test]
fn a_lost_session_is_opened_again_and_nothing_is_sent_meanwhile() {
    let cell = Cell::new(CellOptions::new(64));
    cell.world.run(async {
        let (worker, message, due_ms) = one_message(&cell, Behavior::default()).await;
        cell.world.wait_until(due_ms - 500).await;
        cell.misbehave(0, |behavior| behavior.opening = Opening::Fails(StableCode::CapabilityUnavailable));
        cell.broker.lose_sessions(cell.place(0));
        cell.world.wait(Duration::from_secs(30)).await;
        assert_eq!(cell.broker.received_of(message.message), []);
        cell.misbehave(0, |behavior| behavior.opening = Opening::Opens);
        cell.world.wait(Duration::from_secs(61)).await;
        assert_eq!(worker.message(0, message.message).state, MessageState::Published);
    });
    assert_eq!(account::settle(&cell), Account { accepted: 1, published: 1, ..Account::default() });
}

#[test]
fn a_paused_destination_holds_its_messages_and_lets_them_go_when_it_is_resumed() {
    let cell = Cell::new(CellOptions::new(65));
    let profile_id = cell.destinations[0].profile.id.clone();
    cell.world.run(async {
        let (worker, held, due_ms) = one_message(&cell, Behavior::default()).await;
        let canceled = cell.schedule(0, 0, due_ms);
        let beside = cell.schedule(0, 1, due_ms);
        cell.append(&canceled);
        cell.append(&beside);
        worker.append(0, cell.control(0, ControlPayload::DestinationPause { profile_id: profile_id.clone() })).await;
        cell.world.wait_until(due_ms + 60_000).await;
        assert_eq!(worker.message(0, held.message).state, MessageState::Scheduled);
        assert_eq!(worker.message(0, beside.message).state, MessageState::Published);
        assert_eq!(worker.submit(&cell.cancel(0, canceled.message)).await.code, StableCode::Canceled);
        let resumed_ms = cell.world.now_ms();
        worker.append(0, cell.control(0, ControlPayload::DestinationResume { profile_id })).await;
        cell.world.wait(Duration::from_secs(1)).await;
        let delivered = cell.broker.delivered_of(held.message);
        assert_eq!(delivered.len(), 1);
        let took_us = delivered[0].at_us - resumed_ms * 1_000;
        assert!((0..20_000).contains(&took_us), "{took_us}");
    });
    assert_eq!(account::settle(&cell), Account { accepted: 3, published: 2, canceled: 1, ..Account::default() });
}

#[test]
fn a_message_whose_deadline_passes_unsent_expires_and_is_never_sent() {
    let cell = Cell::new(CellOptions::new(66));
    cell.misbehave(0, |behavior| behavior.opening = Opening::Fails(StableCode::CapabilityUnavailable));
    cell.world.run(async {
        let worker = cell.start("worker", &cell.disks("a"));
        worker.active().await;
        let due_ms = cell.world.now_ms() + 1_000;
        let message = cell.schedule_until(0, 0, due_ms, due_ms + 20_000);
        let ended = worker.handles[0].watch_end(message.message).expect("few wait");
        worker.submit(&message).await;
        assert_eq!(ended.await.expect("the shard lives"), MessageState::Expired);
        let late_ms = cell.world.now_ms() - (due_ms + 20_000);
        assert!((1_000..1_200).contains(&late_ms), "the fence keeps its margin and is appended at once: {late_ms} ms");
        cell.misbehave(0, |behavior| behavior.opening = Opening::Opens);
        let verdict = worker.submit(&cell.cancel(0, message.message)).await;
        assert_eq!(verdict.code, StableCode::AlreadyExpired);
        cell.world.wait(Duration::from_secs(120)).await;
        assert_eq!(cell.broker.received_of(message.message), []);
    });
    assert_eq!(account::settle(&cell), Account { accepted: 1, expired: 1, ..Account::default() });
}

#[test]
fn a_lane_that_works_may_say_that_it_is_throttled() {
    let cell = Cell::new(CellOptions::new(66));
    cell.world.run(async {
        let (worker, message, due_ms) = one_message(&cell, Behavior::default()).await;
        let report = async || worker.handles[0].lanes().await.expect("the shard is active").remove(0);
        assert_eq!(report().await.remark, None);
        cell.misbehave(0, |behavior| behavior.remark = Some(StableCode::AdmissionCapacityGated));
        cell.world.wait_until(due_ms + 1_000).await;
        let throttled = report().await;
        assert_eq!((throttled.readiness, &throttled.detail[..]), (Readiness::Ready, ""));
        let remark = throttled.remark.expect("a remark");
        assert_eq!(remark.code, StableCode::AdmissionCapacityGated);
        assert!(remark.detail.contains("is throttled"), "{remark}");
        assert_eq!(worker.message(0, message.message).state, MessageState::Published);
        // Without a session nothing speaks.
        cell.misbehave(0, |behavior| behavior.opening = Opening::Fails(StableCode::CapabilityUnavailable));
        cell.broker.lose_sessions(cell.place(0));
        cell.world.wait(Duration::from_millis(100)).await;
        let blocked = report().await;
        assert_eq!((blocked.readiness, blocked.remark), (Readiness::Blocked(StableCode::CapabilityUnavailable), None));
    });
}

#[test]
fn a_session_that_is_lost_costs_a_healthy_destination_no_pause() {
    let cell = Cell::new(CellOptions::new(64));
    cell.world.run(async {
        let (_worker, message, due_ms) = one_message(&cell, Behavior::default()).await;
        cell.world.wait_until(due_ms - 1).await;
        cell.broker.lose_sessions(cell.place(0));
        cell.world.wait(Duration::from_millis(50)).await;
        let delivered = cell.broker.delivered_of(message.message);
        assert_eq!(delivered.len(), 1);
    });
    assert_eq!(account::settle(&cell), Account { accepted: 1, published: 1, ..Account::default() });
}

#[test]
fn a_session_that_is_lost_at_once_over_and_over_is_not_opened_over_and_over() {
    let cell = Cell::new(CellOptions::new(65));
    cell.world.run(async {
        let (worker, _, _) = one_message(&cell, Behavior::default()).await;
        let mut losses = 0;
        for _ in 0..6_000 {
            cell.world.wait(Duration::from_millis(10)).await;
            let lanes = worker.handles[0].lanes().await.expect("the shard is active");
            if lanes[0].readiness == Readiness::Ready {
                cell.broker.lose_sessions(cell.place(0));
                losses += 1;
            }
        }
        assert!((5..10).contains(&losses), "pauses of 1, 2, 4, 8, 16, 32 s in a minute: {losses}");
    });
}

#[test]
fn a_canceled_message_is_never_sent_and_a_rescheduled_one_at_its_new_time_only() {
    let cell = Cell::new(CellOptions::new(67));
    cell.world.run(async {
        let (worker, canceled, due_ms) = one_message(&cell, Behavior::default()).await;
        let moved = cell.schedule(0, 0, due_ms);
        worker.submit(&moved).await;
        // A moment before its time, when it is in memory already and all but its admission is done.
        cell.world.wait_until(due_ms - 20).await;
        assert_eq!(worker.submit(&cell.cancel(0, canceled.message)).await.code, StableCode::Canceled);
        worker.submit(&cell.reschedule(0, moved.message, due_ms + 30_000)).await;
        cell.world.wait_until(due_ms + 29_999).await;
        assert_eq!(cell.broker.received(), []);
        cell.world.wait(Duration::from_secs(1)).await;
        let delivered = cell.broker.delivered_of(moved.message);
        assert_eq!((delivered.len(), delivered[0].attempt.generation), (1, 1));
        let verdict = worker.submit(&cell.cancel(0, moved.message)).await;
        assert_eq!(verdict.code, StableCode::AlreadyPublished);
    });
    assert_eq!(account::settle(&cell), Account { accepted: 2, published: 1, canceled: 1, ..Account::default() });
}

#[test]
fn a_message_nobody_can_vouch_for_is_tried_again_and_says_that_it_may_be_a_duplicate() {
    for takes_percent in [0, 100] {
        let cell = Cell::new(CellOptions::new(68));
        let behavior = Behavior { answering: Answering::CannotSay { takes_percent }, ..Behavior::default() };
        cell.world.run(async {
            let (worker, message, due_ms) = one_message(&cell, behavior).await;
            cell.world.wait_until(due_ms + 5).await;
            cell.broker.set(cell.place(0), Behavior::default());
            cell.world.wait(Duration::from_secs(30)).await;
            let view = worker.message(0, message.message);
            assert_eq!((view.state, view.row.possible_duplicate), (MessageState::Published, true));
            let copies = 1 + usize::from(takes_percent == 100);
            assert_eq!(cell.broker.delivered_of(message.message).len(), copies);
        });
    }
}

#[test]
fn uncertain_attempts_have_a_budget() {
    let cell = Cell::new(policy(|policy| policy.uncertain_retries_max = 2));
    let answering = Answering::CannotSay { takes_percent: 0 };
    cell.world.run(async {
        let (worker, message, _) = one_message(&cell, Behavior { answering, ..Behavior::default() }).await;
        cell.world.wait(Duration::from_secs(300)).await;
        let view = worker.message(0, message.message);
        assert_eq!((view.state, view.row.possible_duplicate), (MessageState::DeadLetter, true));
        assert_eq!(cell.broker.received_of(message.message).len(), 3);
    });
}

#[test]
fn an_answer_that_comes_after_its_deadline_still_counts() {
    // The attempt is given up as uncertain after 30 s, retried, and proven by its own answer ten seconds later.
    let cell = Cell::new(CellOptions::new(69));
    cell.world.run(async {
        let (worker, message, due_ms) = one_message(&cell, slow(1, 40_000)).await;
        cell.world.wait_until(due_ms + 20_000).await;
        cell.broker.set(cell.place(0), refusing(Disposition::MessageRetriable));
        cell.world.wait_until(due_ms + 32_000).await;
        let view = worker.message(0, message.message);
        assert!(view.row.has_uncertain_attempt() && view.row.possible_duplicate, "{view:?}");
        cell.world.wait_until(due_ms + 42_000).await;
        let view = worker.message(0, message.message);
        assert_eq!((view.state, view.row.possible_duplicate), (MessageState::Published, false));
    });
    assert_eq!(account::settle(&cell), Account { accepted: 1, published: 1, ..Account::default() });
}

#[test]
fn what_a_destination_took_without_a_word_is_asked_for_and_published_once() {
    let cell = Cell::new(CellOptions::new(70));
    let answering = Answering::FallsSilent { takes_percent: 100 };
    cell.world.run(async {
        let (worker, message, due_ms) = one_message(&cell, Behavior { answering, ..Behavior::default() }).await;
        cell.world.wait_until(due_ms + 10).await;
        // Long enough for evidence to be let go, were the attempt not held to be open.
        let held = Behavior { answering: Answering::Refuses(Disposition::MessageRetriable), ..Behavior::default() };
        cell.broker.set(cell.place(0), held);
        cell.world.wait(Duration::from_secs(60)).await;
        assert!(worker.message(0, message.message).row.has_uncertain_attempt());
        cell.broker.set(cell.place(0), Behavior { evidence: Evidence::Exact, ..held });
        cell.broker.lose_sessions(cell.place(0));
        cell.world.wait(Duration::from_secs(5)).await;
        let view = worker.message(0, message.message);
        assert_eq!((view.state, view.row.possible_duplicate), (MessageState::Published, false));
    });
    assert_eq!(account::settle(&cell), Account { accepted: 1, published: 1, ..Account::default() });
}

#[test]
fn answers_are_given_behind_the_commit_and_survive_a_restart() {
    let cell = Cell::new(CellOptions::new(71));
    let disks = cell.disks("a");
    cell.world.run(async {
        let worker = cell.start("worker", &disks);
        worker.active().await;
        let message = cell.schedule(0, 0, cell.world.now_ms() + 60_000);
        assert_eq!(worker.submit(&message).await.code, StableCode::Scheduled);
        worker.process.kill();
        let told = Told::new(&cell, 0);
        assert_eq!(disks[0].digest(), told.digest(), "what was answered is on the disk");
        let worker = cell.start("second", &disks);
        worker.active().await;
        // The same command again: the same answer, and no second message.
        assert_eq!(worker.submit(&message).await.code, StableCode::Scheduled);
        cell.world.wait(Duration::from_secs(90)).await;
    });
    assert_eq!(account::settle(&cell), Account { accepted: 1, published: 1, ..Account::default() });
}
