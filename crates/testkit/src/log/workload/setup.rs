//! What random logs are about: limits, policies, destinations, and how often which record comes.

use bytes::Bytes;
use protocol::mutation_v2::{AllowedOrdering, Limits, PartitionPolicy};
use protocol::policy::{RetryPolicy, UncertainPolicy};
use protocol::resource::Resource;

use super::Choices;
use crate::log::{Destination, default_policy};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Advance,
    Schedule,
    Cancel,
    Reschedule,
    Repeat,
    Conflict,
    OddCommand,
    OwnerEpoch,
    Admission,
    Outcome,
    Resolution,
    Refusal,
    Fence,
    Control,
    Garbage,
}

/// A bit of everything.
pub(super) const EVERYTHING: &[(u32, Kind)] = &[
    (16, Kind::Advance),
    (40, Kind::Schedule),
    (10, Kind::Cancel),
    (14, Kind::Reschedule),
    (8, Kind::Repeat),
    (3, Kind::Conflict),
    (6, Kind::OddCommand),
    (4, Kind::OwnerEpoch),
    (44, Kind::Admission),
    (40, Kind::Outcome),
    (14, Kind::Resolution),
    (5, Kind::Refusal),
    (24, Kind::Fence),
    (14, Kind::Control),
    (4, Kind::Garbage),
];

/// Long lives of few messages.
pub(super) const ATTEMPTS: &[(u32, Kind)] = &[
    (10, Kind::Advance),
    (12, Kind::Schedule),
    (2, Kind::Reschedule),
    (2, Kind::Repeat),
    (1, Kind::OwnerEpoch),
    (40, Kind::Admission),
    (40, Kind::Outcome),
    (20, Kind::Resolution),
    (8, Kind::Fence),
    (1, Kind::Cancel),
];

/// Much that ends, and ends for good.
pub(super) const ENDINGS: &[(u32, Kind)] = &[
    (24, Kind::Advance),
    (30, Kind::Schedule),
    (12, Kind::Cancel),
    (12, Kind::Reschedule),
    (6, Kind::Repeat),
    (12, Kind::Admission),
    (10, Kind::Outcome),
    (30, Kind::Fence),
];

/// Limits on the scale of seconds, so that a short log crosses all of them; some small enough to be hit.
pub(super) fn limits(choices: &mut Choices<'_>) -> Limits {
    Limits {
        delay_ms_max: 20_000,
        lifetime_ms_max: 40_000,
        delivery_window_ms_min: choices.of([50, 1]),
        preparation_age_ms_max: choices.of([30_000, 10_000]),
        uuid_future_skew_ms_max: 1_000,
        command_retry_window_ms: choices.of([20_000, 40_000]),
        control_retry_window_ms_max: 60_000,
        broker_time_divergence_ms_max: choices.of([10, 100, 0]),
        fence_margin_ms: choices.of([50, 0]),
        clock_interval_ms_max: 100,
        terminal_retention_ms: choices.of([3_600_000, 1_000]),
        dead_letter_retention_ms: 7_200_000,
        receipt_query_window_ms: 10_000,
        active_messages_max: choices.of([1_000, 1_000, 1_000, 4]),
        active_bytes_max: choices.of([1_000_000, 1_000_000, 1_000_000, 100]),
        lanes_max: choices.of([100, 100, 100, 2]),
        entries_per_record_max: choices.of([1_000, 1_000, 1_000, 2]),
        expire_per_fence_max: choices.of([100, 100, 1]),
        business_key_bytes_max: 8,
    }
}

/// Policies whose ends are near. The first three are active from the start, the fourth later, the last never.
pub(super) fn policies() -> Vec<RetryPolicy> {
    let policy = |id: &'static str| RetryPolicy { id: Bytes::from_static(id.as_bytes()), ..default_policy() };
    vec![
        RetryPolicy {
            initial_backoff_ms: 20,
            backoff_ms_max: 100,
            publish_admissions_max: 4,
            retry_duration_ms_max: 2_000,
            uncertain_retries_max: 2,
            ..policy("short")
        },
        RetryPolicy {
            initial_backoff_ms: 0,
            backoff_ms_max: 0,
            publish_admissions_max: 6,
            uncertain_retries_max: 3,
            ..policy("at once")
        },
        RetryPolicy {
            initial_backoff_ms: 1,
            backoff_ms_max: 10_000,
            publish_admissions_max: 3,
            uncertain: UncertainPolicy::BoundedTerminalPossibleDelivery,
            uncertain_retries_max: 0,
            ..policy("no doubt")
        },
        policy("later"),
        RetryPolicy { uncertain: UncertainPolicy::HoldForEvidence, uncertain_retries_max: 0, ..policy("hold") },
    ]
}

/// Destinations of several shapes. The first four are active from the start, the fifth later; the last is version 2 of the
/// first.
pub(super) fn destinations(policies: &[RetryPolicy]) -> Vec<Destination> {
    let new = |id| Destination::new(id, &policies[0]);
    let mut alpha = new("alpha");
    (alpha.body.record_bytes_max, alpha.body.header_reserve_bytes) = (200, 50);
    let mut beta = new("beta");
    beta.body.resource = Resource::Kafka { cluster_id: "cluster".into(), topic: [0xbe; 16] };
    (beta.body.partition_count, beta.body.lane_bucket_count, beta.body.delay_ms_max) = (3, 2, 10_000);
    let mut ordered = new("ordered");
    ordered.body.ordering = AllowedOrdering { best_effort: false, delivery_time_fifo: true };
    let mut pulsar = new("pulsar");
    let (incarnation, topic) = ([1; 32], "persistent://public/default/topic".into());
    pulsar.body.resource = Resource::Pulsar { cluster_id: "cluster".into(), incarnation, topic, creation_time_ms: 1 };
    let mut later = new("later");
    (later.body.partition_policy, later.body.partition_count) = (PartitionPolicy::RegistryHash, 2);
    let mut alpha_2 = alpha.clone();
    (alpha_2.profile.version, alpha_2.body.record_bytes_max) = (2, 300);
    vec![alpha, beta, ordered, pulsar, later, alpha_2]
}
