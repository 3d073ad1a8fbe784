//! Claims, permits and admissions one by one: what voids a claim, who shares permits, and who may send (invariant 2).

use protocol::code::StableCode;
use protocol::id::Uuid7;
use protocol::mutation_v2::{ControlPayload, DestinationRebind, Disposition};
use protocol::resource::Resource;
use shard::effect::Effect;
use shard::query;
use shard::schedule::circuit::Allowance;
use shard::schedule::lane::{Load, Readiness};
use shard::schedule::outgoing::Header;
use shard::schedule::round_robin::RoundRobinConfig;
use shard::schedule::scheduler::{SchedulerConfig, Wake};
use shard::state::LaneNo;
use shard::store::{Batch, Family, Store};
use testkit::log::{AttemptId, Owner};

use crate::desk::{CONFIG, Desk, UNLIMITED};

const ROOMY: SchedulerConfig =
    SchedulerConfig { lane_load_max: UNLIMITED, shard_load_max: UNLIMITED, claims_per_turn_max: 1_000, ..CONFIG };

const LANE: LaneNo = LaneNo(1);

fn desk(config: SchedulerConfig) -> Desk {
    Desk::new(config)
}

/// A desk with messages of destination `b`, which has one lane, due now; the lane is ready.
fn desk_with(config: SchedulerConfig, count: usize) -> (Desk, Vec<Uuid7>) {
    let mut desk = desk(config);
    let messages = (0..count).map(|_| desk.schedule("b", 0, 60_000, 100)).collect();
    desk.let_pass(10);
    desk.all_ready();
    (desk, messages)
}

#[test]
fn a_claim_is_made_ahead_of_its_time_and_proposed_at_it() {
    let mut desk = desk(CONFIG);
    let message = desk.schedule("b", 1_000, 60_000, 100);
    desk.all_ready();
    let due_ms = desk.log.now_ms() + 1_000;
    assert_eq!(desk.scheduler.wake(), Wake { earliest_ms: Some(due_ms - CONFIG.claim_lead_ms), monotonic: None });
    desk.let_pass(899);
    assert_eq!(desk.turn(UNLIMITED).claimed, 0);
    desk.let_pass(2);
    assert_eq!(desk.turn(UNLIMITED).claimed, 1, "ready ahead of its time");
    assert_eq!(desk.scheduler.wake().earliest_ms, Some(due_ms));
    assert!(desk.propose(10).is_empty());
    // The clock's lower bound decides.
    desk.let_pass(due_ms - desk.log.now_ms());
    assert!(desk.propose(10).is_empty(), "the true time may still be a millisecond before");
    desk.let_pass(1);
    assert_eq!(desk.propose(10).iter().map(|entry| entry.message).collect::<Vec<_>>(), [message]);
    assert!(desk.propose(10).is_empty(), "once");
}

#[test]
fn a_claim_is_void_when_its_message_moves() {
    let (mut desk, messages) = desk_with(ROOMY, 3);
    desk.claim_all();
    desk.cancel(messages[0]);
    desk.reschedule(messages[1], 5_000);
    let entries = desk.propose(10);
    assert_eq!(entries.iter().map(|entry| entry.message).collect::<Vec<_>>(), [messages[2]]);
    assert_eq!(desk.scheduler.load().messages, 1, "the others gave their permits back");
}

#[test]
fn a_proposal_that_the_log_overtakes_comes_to_nothing() {
    let (mut desk, messages) = desk_with(ROOMY, 2);
    desk.claim_all();
    let entries = desk.propose(10);
    desk.cancel(messages[0]);
    desk.admit(entries);
    assert_eq!(desk.sent.keys().copied().collect::<Vec<_>>(), [messages[1]]);
    assert!(desk.unclaimed.is_empty());
    assert_eq!(desk.scheduler.load().messages, 1);
}

#[test]
fn an_admission_that_came_too_early_is_claimed_and_proposed_again() {
    let (mut desk, messages) = desk_with(ROOMY, 1);
    desk.claim_all();
    let entries = desk.propose(10);
    // The record's own stamp is behind its time, as after a step of the clock.
    let early = (desk.log.now_ms() - 1_000, desk.log.now_ms() - 1_000);
    let record = desk.log.admission(&mut desk.owner, early, entries);
    desk.commit(&[record]);
    assert!(desk.sent.is_empty());
    desk.send();
    assert_eq!(desk.sent.keys().copied().collect::<Vec<_>>(), messages);
}

#[test]
fn an_admission_without_claim_is_reported_as_never_sent() {
    let (mut desk, messages) = desk_with(ROOMY, 1);
    desk.claim_all();
    let entries = desk.propose(10);
    desk.scheduler.withdraw(&entries);
    // The append was given up, and succeeded all the same: the claim stands, but is not waiting for an answer.
    desk.admit(entries);
    assert!(desk.sent.is_empty());
    let [unclaimed] = &desk.unclaimed[..] else { panic!("one attempt") };
    assert_eq!((unclaimed.message, unclaimed.attempt, unclaimed.lane_no), (messages[0], 1, LANE));
    assert_eq!(desk.scheduler.load(), Load::default(), "its permits are free");
}

/// A former owner may have sent what it admitted. Only an attempt of the running epoch is known never to have been.
#[test]
fn what_a_former_owner_admitted_is_nobodys_to_call_unsent() {
    let (mut desk, messages) = desk_with(ROOMY, 2);
    desk.claim_all();
    let entries = desk.propose(10);
    let mut former = desk.owner.clone();
    let at = (desk.log.now_ms(), desk.log.now_ms());
    let (first, second) = (vec![entries[0]], vec![entries[1]]);
    let of_former = desk.log.admission(&mut former, at, first);
    desk.owner = Owner::new(2);
    let epoch = desk.log.owner_epoch(&mut desk.owner);
    let of_new = desk.log.admission(&mut desk.owner, at, second);
    // All three come back in one read.
    desk.commit(&[of_former, epoch, of_new]);
    let of_former = entries[0].message;
    assert!(desk.unclaimed.iter().all(|unclaimed| unclaimed.message != of_former), "{:?}", desk.unclaimed);
    assert!(!desk.sent.contains_key(&of_former), "the new owner sends nothing of the former one");
    assert_eq!(query::publishing_attempts(desk.shard.store()).expect("the store answers").len(), messages.len());
}

/// Invariant 5: behind a newer epoch the former owner's own commit gives it nothing to send.
#[test]
fn a_former_owner_gets_nothing_to_send() {
    let (mut desk, _) = desk_with(ROOMY, 1);
    desk.claim_all();
    let entries = desk.propose(10);
    let at = (desk.log.now_ms(), desk.log.now_ms());
    let newer = desk.log.owner_epoch(&mut Owner::new(2));
    let late = desk.log.admission(&mut desk.owner, at, entries);
    desk.commit(&[newer, late]);
    assert!(desk.sent.is_empty() && desk.unclaimed.is_empty());

    // And with the newer epoch behind its admission in the same read, too.
    let (mut desk, _) = desk_with(ROOMY, 1);
    desk.claim_all();
    let entries = desk.propose(10);
    let own = desk.log.admission(&mut desk.owner, at, entries);
    let newer = desk.log.owner_epoch(&mut Owner::new(2));
    desk.commit(&[own, newer]);
    assert!(desk.sent.is_empty() && desk.unclaimed.is_empty());
}

#[test]
fn permits_bound_what_is_under_way() {
    let (mut desk, _) = desk_with(CONFIG, 20);
    desk.claim_all();
    let lane = &desk.scheduler.lanes()[&LANE];
    assert_eq!(lane.load.messages, CONFIG.lane_load_max.messages);
    assert_eq!(
        desk.scheduler.wake(),
        Wake { earliest_ms: Some(desk.log.now_ms() - 10), monotonic: None },
        "to propose"
    );
    desk.send();
    assert_eq!(desk.sent.len(), CONFIG.lane_load_max.messages);
    assert_eq!(desk.scheduler.wake(), Wake::default(), "nothing to do before an answer");
    desk.publish_all();
    desk.send();
    assert_eq!(desk.sent.len(), CONFIG.lane_load_max.messages, "answers give permits back");
}

/// A lane whose next message does not fit must wait for permits, not spin.
#[test]
fn bytes_bound_what_is_under_way() {
    let mut desk = desk(CONFIG);
    for _ in 0..4 {
        desk.schedule("b", 0, 60_000, 2_500);
    }
    desk.let_pass(10);
    desk.all_ready();
    desk.send();
    assert_eq!(desk.sent.len(), 2, "a third would be more than the lane's bytes");
    assert_eq!(desk.scheduler.wake(), Wake::default());
    desk.publish_all();
    desk.send();
    assert_eq!(desk.sent.len(), 2);
}

/// A profile may allow records larger than anything the scheduler was set up for.
#[test]
fn a_message_larger_than_every_limit_goes_alone() {
    let mut desk = desk(CONFIG);
    desk.schedule("b", 0, 60_000, 50_000);
    desk.schedule("b", 0, 60_000, 10);
    desk.let_pass(10);
    desk.all_ready();
    desk.send();
    assert_eq!(desk.sent.len(), 2, "its cost is capped");
}

#[test]
fn a_held_request_keeps_its_permits() {
    let config = SchedulerConfig { lane_load_max: Load { messages: 1, bytes: 1_000 }, ..CONFIG };
    let (mut desk, _) = desk_with(config, 2);
    desk.send();
    let out: Vec<Uuid7> = desk.sent.keys().copied().collect();
    desk.scheduler.hold(LANE, out[0]);
    let unknown = |attempt: AttemptId, _| attempt.unknown();
    // Its outcome is logged, the request itself is still out: for that moment it counts twice.
    let attempt = desk.sent.remove(&out[0]).expect("it is out");
    let entry = AttemptId { message: out[0], generation: 0, attempt: attempt.attempt() };
    let at = (desk.log.now_ms(), desk.log.now_ms());
    let record = desk.log.outcomes(&mut desk.owner, at, vec![unknown(entry, at.0)]);
    desk.commit(&[record]);
    assert_eq!(desk.scheduler.load().messages, 1);
    assert_eq!(desk.turn(UNLIMITED).claimed, 0);
    desk.scheduler.let_go(LANE, out[0]);
    assert_eq!(desk.turn(UNLIMITED).claimed, 1);
}

/// Deficit round robin by bytes: whatever the sizes, neither lane is ahead by more than a deficit and an item.
#[test]
fn lanes_share_by_bytes() {
    let config = SchedulerConfig {
        claims_per_turn_max: 1,
        round_robin: RoundRobinConfig { quantum: 400, deficit_max: 4_000, cost_min: 10 },
        ..ROOMY
    };
    let mut desk = desk(config);
    for _ in 0..400 {
        desk.schedule("b", 0, 60_000, 90);
    }
    // Destination a has two lanes; only messages of one of them stay.
    for _ in 0..120 {
        let message = desk.schedule("a", 0, 60_000, 1_700);
        if desk.view(message).row.lane_no != 2 {
            desk.cancel(message);
        }
    }
    desk.let_pass(10);
    desk.all_ready();
    let bytes = |desk: &Desk, lane_no| desk.scheduler.lanes()[&LaneNo(lane_no)].load.bytes;
    for _ in 0..300 {
        desk.turn(UNLIMITED);
        let (small, large) = (bytes(&desk, 1), bytes(&desk, 2));
        assert!(small.abs_diff(large) <= 4_000 + 1_700, "{small} and {large} bytes");
    }
    assert!(bytes(&desk, 1) > 20_000, "both went on");
}

#[test]
fn a_paused_lane_gives_up_what_is_only_ready() {
    let (mut desk, messages) = desk_with(ROOMY, 3);
    let lane = query::lane(desk.shard.store(), LANE).expect("the lane");
    let id = protocol::lane::LaneId(lane.lane_id[..].try_into().expect("32 bytes"));
    desk.claim_all();
    let entries = desk.propose(1);
    desk.control(ControlPayload::LanePause(id));
    assert_eq!(desk.scheduler.load().messages, 1, "what is proposed goes its way through the log");
    assert!(desk.propose(10).is_empty());
    assert_eq!(desk.turn(UNLIMITED).claimed, 0);
    desk.admit(entries);
    assert!(desk.sent.is_empty(), "the log's gate holds it");
    desk.control(ControlPayload::LaneResume(id));
    desk.send();
    assert_eq!(desk.sent.len(), messages.len());
}

#[test]
fn a_paused_destination_pauses_its_lanes_and_those_to_come() {
    let (mut desk, _) = desk_with(ROOMY, 1);
    desk.control(ControlPayload::DestinationPause { profile_id: "a".into() });
    desk.schedule("a", 0, 60_000, 10);
    desk.all_ready();
    desk.let_pass(10);
    desk.send();
    assert_eq!(desk.sent.len(), 1, "b goes on");
    // Also for an owner that only sees the state.
    desk.take_over();
    desk.all_ready();
    desk.send();
    assert!(desk.sent.is_empty());
    desk.control(ControlPayload::DestinationResume { profile_id: "a".into() });
    desk.send();
    assert_eq!(desk.sent.len(), 1);
}

#[test]
fn a_lane_without_session_offers_nothing() {
    let mut desk = desk(ROOMY);
    desk.schedule("b", 0, 60_000, 10);
    desk.let_pass(10);
    desk.send();
    assert!(desk.sent.is_empty(), "nobody has asked its destination yet");
    desk.all_ready();
    desk.claim_all();
    desk.scheduler.lane_blocked(LANE, StableCode::CapabilityUnavailable);
    assert!(desk.propose(10).is_empty());
    assert_eq!(desk.scheduler.wake(), Wake::default());
    desk.scheduler.lane_ready(LANE);
    desk.send();
    assert_eq!(desk.sent.len(), 1);
}

/// What is only ready waits for the session on the new topic, and pays nothing for the old one's trouble.
#[test]
fn a_rebound_lane_waits_for_its_session_and_no_longer() {
    let (mut desk, messages) = desk_with(ROOMY, 3);
    let rebind = |profile_id: &'static str, number| {
        let resource = Resource::Embedded { topic: [number; 16] };
        ControlPayload::DestinationRebind(Box::new(DestinationRebind { profile_id: profile_id.into(), resource }))
    };
    desk.claim_all();
    desk.control(rebind("b", 1));
    assert!(desk.propose(10).is_empty());
    assert_eq!(desk.scheduler.wake(), Wake::default());
    desk.scheduler.lane_ready(LANE);
    desk.scheduler.lane_failed(LANE, desk.monotonic);
    desk.control(rebind("b", 2));
    assert_eq!(desk.scheduler.lanes()[&LANE].readiness, Readiness::RecoveringEvidence);
    desk.scheduler.lane_ready(LANE);
    desk.send();
    assert_eq!(desk.sent.len(), messages.len());
    // Another destination's lanes do not care, nor does anybody when nothing changes.
    desk.control(rebind("a", 3));
    desk.control(rebind("b", 2));
    assert_eq!(desk.scheduler.lanes()[&LANE].readiness, Readiness::Ready);
}

#[test]
fn a_lane_whose_pause_is_over_waits_for_the_time_of_its_first_message() {
    let mut desk = Desk::new(CONFIG);
    desk.schedule("b", 60_000, 120_000, 10);
    desk.all_ready();
    desk.scheduler.lane_failed(LANE, desk.monotonic);
    assert_eq!(desk.scheduler.wake().monotonic, Some(CONFIG.circuit.open_min));
    desk.let_pass(2_000);
    desk.claim_all();
    let due_ms = desk.log.now_ms() + 58_000;
    let wake = desk.scheduler.wake();
    assert_eq!((wake.earliest_ms, wake.monotonic), (Some(due_ms - CONFIG.claim_lead_ms), None), "no busy waiting");
}

#[test]
fn a_failing_lane_is_probed_with_one_message() {
    let (mut desk, messages) = desk_with(ROOMY, 5);
    desk.scheduler.lane_failed(LANE, desk.monotonic);
    desk.send();
    assert!(desk.sent.is_empty());
    assert_eq!(
        desk.scheduler.wake(),
        Wake { earliest_ms: None, monotonic: Some(desk.monotonic + CONFIG.circuit.open_min) }
    );
    desk.let_pass(1_000);
    desk.send();
    assert_eq!(desk.sent.len(), 1, "one probe");
    // It fails: the pause doubles, and the message pays nothing.
    let out: Vec<Uuid7> = desk.sent.keys().copied().collect();
    desk.scheduler.lane_failed(LANE, desk.monotonic);
    desk.outcomes(|attempt, _| attempt.not_published(Disposition::LaneUnavailable), &out);
    assert_eq!(desk.view(out[0]).row.attempts_charged, 0);
    desk.let_pass(1_999);
    desk.send();
    assert!(desk.sent.is_empty());
    desk.let_pass(1);
    desk.send();
    assert_eq!(desk.sent.len(), 1);
    // It works: everything goes.
    desk.scheduler.lane_succeeded(LANE);
    desk.send();
    assert_eq!(desk.sent.len(), messages.len());
}

/// A probe that is cancelled tells nothing about the lane; the lane must not wait for it.
#[test]
fn a_probe_that_is_cancelled_makes_room_for_another() {
    let (mut desk, _) = desk_with(ROOMY, 3);
    desk.scheduler.lane_failed(LANE, desk.monotonic);
    desk.let_pass(1_000);
    assert_eq!(desk.turn(UNLIMITED).claimed, 1);
    let monotonic = desk.monotonic;
    assert_eq!(desk.scheduler.lanes()[&LANE].circuit.allowance(monotonic), Allowance::NothingUntilProbed);
    let probe = desk.propose(1)[0].message;
    desk.cancel(probe);
    assert_eq!(desk.scheduler.lanes()[&LANE].circuit.allowance(monotonic), Allowance::Probe);
    desk.send();
    assert_eq!(desk.sent.len(), 1, "another message probes");
}

/// Windows forget what they have no room for; what is claimed must not be found and claimed again.
#[test]
fn what_is_claimed_is_not_found_again() {
    let mut desk = desk(ROOMY);
    desk.schedule("b", 500, 60_000, 10);
    desk.let_pass(450);
    desk.all_ready();
    desk.claim_all();
    assert_eq!(desk.scheduler.load().messages, 1);
    // Many earlier ones push the window's edge before the claimed key.
    for _ in 0..3 * CONFIG.window_entries_max {
        desk.schedule("b", -100, 60_000, 10);
    }
    desk.claim_all();
    assert_eq!(desk.scheduler.load().messages, 1 + 3 * CONFIG.window_entries_max);
    desk.let_pass(100);
    desk.send();
    assert_eq!(desk.sent.len(), 1 + 3 * CONFIG.window_entries_max);
    desk.publish_all();
    assert_eq!(desk.scheduler.load(), Load::default());
}

#[test]
fn what_can_never_be_sent_is_refused_once() {
    let mut desk = desk(ROOMY);
    let message = desk.schedule("b", 0, 60_000, 10);
    // A payload that this build cannot turn into a record.
    let mut store = desk.shard.into_store();
    let mut batch = Batch::default();
    batch.put(Family::Payloads, message.as_bytes().to_vec(), shard::state::envelope::encode_bytes(b"?", None));
    store.commit(batch).expect("the store answers");
    let identity = shard::commit::ShardIdentity {
        shard: desk.log.shard(),
        genesis_hash: desk.log.genesis_mutation(desk.limits).hash,
    };
    desk.shard = shard::commit::Shard::open(store, identity).expect("it was open before");
    desk.let_pass(10);
    desk.all_ready();
    let refusals = desk.turn(UNLIMITED).refusals;
    assert_eq!((refusals.len(), refusals[0].message), (1, message));
    assert_eq!(desk.scheduler.load(), Load::default());
    // It waits in the timeline until the refusal is in the log, and is not taken up again.
    for _ in 0..2 * CONFIG.window_entries_max {
        desk.schedule("b", -1_000, 60_000, 10);
    }
    assert!(desk.turn(UNLIMITED).refusals.is_empty());
    let at = (desk.log.now_ms(), desk.log.now_ms());
    let record = desk.log.refusals(&mut desk.owner, at, refusals);
    desk.commit(&[record]);
    assert_eq!(desk.view(message).state, shard::state::generation::MessageState::DeadLetter);
}

#[test]
fn a_message_too_close_to_its_deadline_is_left_to_the_fence() {
    let mut desk = desk(ROOMY);
    desk.schedule("b", 0, 5_000, 10);
    desk.all_ready();
    // L + D must stay below the deadline.
    desk.let_pass(5_000 - desk.limits.broker_time_divergence_ms_max - 1);
    desk.send();
    assert!(desk.sent.is_empty());
    assert_eq!(desk.scheduler.load(), Load::default());
    let mut desk = Desk::new(ROOMY);
    desk.schedule("b", 0, 5_000, 10);
    desk.all_ready();
    desk.let_pass(5_000 - desk.limits.broker_time_divergence_ms_max - 2);
    desk.send();
    assert_eq!(desk.sent.len(), 1);
}

#[test]
fn a_scheduler_that_stops_claiming_finishes_what_it_proposed() {
    let (mut desk, _) = desk_with(ROOMY, 3);
    desk.claim_all();
    let entries = desk.propose(1);
    desk.scheduler.stop_claiming();
    assert_eq!(desk.scheduler.load().messages, 1);
    assert_eq!(desk.turn(UNLIMITED).claimed, 0);
    desk.admit(entries);
    desk.publish_all();
    assert_eq!(desk.scheduler.load(), Load::default());
}

/// v2 §11: the caller's record byte for byte, and behind it who, which, and when it was to be.
#[test]
fn a_delivered_record_says_what_it_is() {
    let (mut desk, messages) = desk_with(ROOMY, 1);
    desk.send();
    let attempt = &desk.sent[&messages[0]];
    let record = attempt.delivered_record();
    assert_eq!((record.key.clone(), record.value.as_ref().map(|value| value.len())), (None, Some(100)));
    let name = |header: &Header| String::from_utf8(header.name.to_vec()).expect("text");
    let value = |header: &Header| String::from_utf8(header.value.clone().unwrap_or_default().to_vec()).expect("text");
    let headers: Vec<_> = record.headers.iter().map(|header| (name(header), value(header))).collect();
    let deliver_at_ms = attempt.material().deliver_at_ms.to_string();
    let expected = [
        ("nereus.delay.message_id", attempt.message_id().to_string()),
        ("nereus.delay.generation", "0".to_owned()),
        ("nereus.delay.attempt", "1".to_owned()),
        ("nereus.delay.deliver_at_ms", deliver_at_ms),
        ("nereus.delay.owner_epoch", "1".to_owned()),
    ];
    assert_eq!(headers, expected.map(|(name, value)| (name.to_owned(), value)));
    let added: usize = headers.iter().map(|(name, value)| name.len() + value.len()).sum();
    assert!(added <= shard::schedule::outgoing::delivery_header_bytes_max(0));
}

/// Effects are what followers drop and owners act on: the same commit names each once.
#[test]
fn an_admission_and_its_outcome_are_named_once() {
    let (mut desk, messages) = desk_with(ROOMY, 1);
    desk.effects.clear();
    desk.send();
    desk.publish_all();
    let named: Vec<&str> = desk
        .effects
        .iter()
        .map(|effect| match effect {
            Effect::WorkGone { message, .. } if *message == messages[0] => "gone",
            Effect::Admitted { attempt: 1, .. } => "admitted",
            Effect::AttemptSettled { attempt: 1, uncertain: false, .. } => "settled",
            Effect::Ended { published_at_ms: Some(_), .. } => "ended",
            effect => panic!("{effect:?}"),
        })
        .collect();
    assert_eq!(named, ["gone", "admitted", "ended", "settled"]);
}
