//! The largest and smallest numbers that records can carry: none may stop the shard, for it would stop there for ever.

use std::num::NonZeroU32;

use proptest::prelude::*;
use protocol::command::{ClientCommand, Precondition};
use protocol::mutation_v2::{Admission, ControlPayload, Disposition, Limits, Refusal};
use protocol::policy::RetryPolicy;
use shard::commit::{Shard, ShardIdentity};
use shard::memory::MemoryStore;
use shard::query;
use testkit::log::{
    AttemptId, Destination, LogWriter, Owner, START_MS, cancel, default_limits, default_policy, reschedule, schedule,
};
use testkit::model::audit;

fn time() -> impl Strategy<Value = i64> {
    let near = START_MS;
    prop::sample::select(vec![0, 1, near - 1, near, near + 1, 1 << 48, i64::MAX - 1, i64::MAX])
}

fn limits() -> impl Strategy<Value = Limits> {
    let duration = || prop::sample::select(vec![0, 1, 60_000, i64::MAX]);
    let count = || prop::sample::select(vec![0, 1, 1_000, u32::MAX]);
    (prop::array::uniform13(duration()), prop::array::uniform4(count()), any::<(bool, bool)>()).prop_map(
        |(durations, counts, (few_messages, few_bytes))| {
            let [a, b, c, d, e, f, g, h, i, j, k, l, m] = durations;
            Limits {
                delay_ms_max: a,
                lifetime_ms_max: b,
                delivery_window_ms_min: c,
                preparation_age_ms_max: d,
                uuid_future_skew_ms_max: e,
                command_retry_window_ms: f,
                control_retry_window_ms_max: g,
                broker_time_divergence_ms_max: h,
                fence_margin_ms: i,
                clock_interval_ms_max: j,
                terminal_retention_ms: k,
                dead_letter_retention_ms: l,
                receipt_query_window_ms: m,
                active_messages_max: if few_messages { 0 } else { u64::MAX },
                active_bytes_max: if few_bytes { 0 } else { u64::MAX },
                lanes_max: counts[0],
                entries_per_record_max: counts[1],
                expire_per_fence_max: counts[2],
                business_key_bytes_max: counts[3],
            }
        },
    )
}

/// Half of the cases have the usual limits, so that messages get as far as attempts.
fn usual_or_not() -> impl Strategy<Value = Limits> {
    let generous = Limits {
        delay_ms_max: i64::MAX,
        lifetime_ms_max: i64::MAX,
        preparation_age_ms_max: i64::MAX,
        uuid_future_skew_ms_max: i64::MAX,
        delivery_window_ms_min: 0,
        clock_interval_ms_max: i64::MAX,
        broker_time_divergence_ms_max: 0,
        fence_margin_ms: 0,
        ..default_limits()
    };
    prop_oneof![Just(generous), limits()]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_number_stops_the_shard(
        limits in usual_or_not(),
        times in prop::collection::vec(time(), 24),
        (attempts, duration) in (prop::sample::select(vec![2, u32::MAX]), prop::sample::select(vec![1, u64::MAX])),
        backoff in prop::sample::select(vec![0, u64::MAX]),
    ) {
        let mut times = times.into_iter();
        let mut time = || times.next().expect("enough of them");
        let mut log = LogWriter::new(0, NonZeroU32::MIN);
        let genesis = log.genesis_mutation(limits);
        let identity = ShardIdentity { shard: log.shard(), genesis_hash: genesis.hash };
        let mut shard = Shard::open(MemoryStore::new(), identity).expect("an empty store opens");
        let policy = RetryPolicy {
            initial_backoff_ms: backoff,
            backoff_ms_max: backoff,
            publish_admissions_max: attempts,
            retry_duration_ms_max: duration,
            uncertain_retries_max: attempts - 1,
            ..default_policy()
        };
        let destination = Destination::new("orders", &policy);
        let mut owner = Owner::new(u64::MAX);
        let mut records = vec![log.genesis(limits)];
        for payload in [ControlPayload::RetryPolicyActivate(Box::new(policy.clone())), destination.activate()] {
            // The window of a control record may be of any length, too.
            let mut operation = log.operation();
            operation.retry_until_ms = log.now_ms().saturating_add(limits.control_retry_window_ms_max.min(1));
            records.push(log.control_as(&operation, payload));
        }
        records.push(log.owner_epoch(&mut owner));
        shard.commit(&records).expect("the shard goes on");

        let message = log.message_id();
        let mut intent = destination.intent(&policy, time().min(START_MS), time(), "payload");
        intent.business_key = Some("key".into());
        let bodies = [
            schedule(intent),
            reschedule(Precondition { generation: Some(u32::MAX), state_version: Some(u64::MAX) }, time(), time()),
        ];
        for body in bodies {
            let command = log.prepare(&limits, message, body);
            let record = log.command(&command);
            shard.commit(&[record]).expect("the shard goes on");
        }
        // Whatever the log's clock and the owner's say from here on.
        for _ in 0..3 {
            log.set_now(time());
            let row = query::message(shard.store(), message.uuid).expect("the store answers").map(|view| view.row);
            let (generation, log_rev, attempt) =
                row.map_or((u32::MAX, u64::MAX, u32::MAX), |row| (row.generation, row.log_rev, row.attempts_used + 1));
            let entry = Admission { message: message.uuid, generation, log_rev, sequence: Some(u64::MAX) };
            let at = time();
            let admission = log.admission(&mut owner, (at, at), vec![entry]);
            let attempt = AttemptId { message: message.uuid, generation, attempt };
            let latest_ms = time();
            let outcome = log.outcomes(&mut owner, (0, latest_ms), vec![attempt.unknown()]);
            let resolution = attempt.not_published(Disposition::MessageRetriable);
            let resolution = log.resolutions(&mut owner, (latest_ms, latest_ms), vec![resolution]);
            let close_through_ms = time();
            let fence = log.fence(&mut owner, (time(), i64::MAX), close_through_ms, u32::MAX);
            shard.commit(&[admission, outcome, resolution, fence]).expect("the shard goes on");
        }
        let code = protocol::code::StableCode::ClaimPermanentFailure;
        let refusal = Refusal { message: message.uuid, generation: u32::MAX, log_rev: u64::MAX, code };
        let refusal = log.refusals(&mut owner, (0, 0), vec![refusal]);
        let command = log.prepare(&limits, message, cancel(Precondition::default()));
        let late = ClientCommand::new(command.command_id, message, i64::MAX, command.body).expect("legal");
        let late = log.command(&late);
        let mut operation = log.operation();
        operation.retry_until_ms = i64::MAX;
        let control = log.control_as(&operation, ControlPayload::KeyRetire { version: u32::MAX });
        shard.commit(&[refusal, late, control]).expect("the shard goes on");
        audit::assert_consistent(shard.store());
    }
}
