//! What a client's command comes to: every check of protocol registry §4 on both sides of its edge, and their order.

use expect_test::expect;
use protocol::mutation_v2::Limits;
use testkit::log::default_limits;

use crate::story::{check, check_with};

#[test]
fn t1_a_delivery_window_is_at_least_the_minimum() {
    check(
        "at 10s schedule long-enough deliver=1m expire=1m+5s
         at 10s schedule too-short deliver=1m expire=1m+5s-1ms
         # What is due already has its window from the log's time on.
         at 10s schedule late deliver=0 expire=15s
         at 10s schedule too-late deliver=0 expire=15s-1ms
         at 10s reschedule long-enough deliver=2m expire=2m+5s-1ms
         at 10s reschedule long-enough deliver=2m expire=2m+5s",
        &expect![[r#"
            at 10s schedule long-enough deliver=1m expire=1m+5s          → APPLIED SCHEDULED g0 v1
            at 10s schedule too-short deliver=1m expire=1m+5s-1ms        → REJECTED INVALID_DELIVERY_WINDOW (WindowTooShort)
            at 10s schedule late deliver=0 expire=15s                    → APPLIED SCHEDULED g0 v1
            at 10s schedule too-late deliver=0 expire=15s-1ms            → REJECTED INVALID_DELIVERY_WINDOW (WindowTooShort)
            at 10s reschedule long-enough deliver=2m expire=2m+5s-1ms    → REJECTED INVALID_DELIVERY_WINDOW g0 v1 (WindowTooShort)
            at 10s reschedule long-enough deliver=2m expire=2m+5s        → APPLIED SUPERSEDED g1 v2
        "#]],
    );
}

#[test]
fn t2_a_delay_has_a_limit() {
    check(
        "at 1h schedule at-the-limit deliver=3653d+65m expire=3653d+2h
         at 1h schedule beyond deliver=3653d+65m+1ms expire=3653d+2h
         destination near delay=1d
         at 1h schedule near deliver=1d+65m expire=2d to=near
         at 1h schedule too-far deliver=1d+65m+1ms expire=2d to=near
         at 2h reschedule near deliver=1d+125m expire=2d
         at 2h reschedule near deliver=1d+125m+1ms expire=2d",
        &expect![[r#"
            at 1h schedule at-the-limit deliver=3653d+65m expire=3653d+2h → APPLIED SCHEDULED g0 v1
            at 1h schedule beyond deliver=3653d+65m+1ms expire=3653d+2h  → REJECTED INVALID_DELIVERY_WINDOW (DelayTooLong)
            destination near delay=1d                                    → control OK
            at 1h schedule near deliver=1d+65m expire=2d to=near         → APPLIED SCHEDULED g0 v1
            at 1h schedule too-far deliver=1d+65m+1ms expire=2d to=near  → REJECTED INVALID_DELIVERY_WINDOW (DelayTooLong)
            at 2h reschedule near deliver=1d+125m expire=2d              → APPLIED SUPERSEDED g1 v2
            at 2h reschedule near deliver=1d+125m+1ms expire=2d          → REJECTED INVALID_DELIVERY_WINDOW g1 v2 (DelayTooLong)
        "#]],
    );
}

#[test]
fn t3_a_lifetime_has_a_limit() {
    check(
        "at 1h schedule at-the-limit deliver=1d expire=3683d+65m
         at 1h schedule beyond deliver=1d expire=3683d+65m+1ms",
        &expect![[r#"
            at 1h schedule at-the-limit deliver=1d expire=3683d+65m      → APPLIED SCHEDULED g0 v1
            at 1h schedule beyond deliver=1d expire=3683d+65m+1ms        → REJECTED INVALID_DELIVERY_WINDOW (LifetimeTooLong)
        "#]],
    );
}

#[test]
fn a_closed_deadline_is_no_deadline() {
    let limits = Limits { broker_time_divergence_ms_max: 60_000, ..default_limits() };
    check_with(
        limits,
        "at 10s fence 1m
         at 10s schedule closed deliver=10s expire=1m
         at 10s schedule open deliver=10s expire=1m+1ms
         at 10s reschedule open deliver=11s expire=1m",
        &expect![[r#"
            at 10s fence 1m                                              → 0 accepted, 0 failed
            at 10s schedule closed deliver=10s expire=1m                 → REJECTED INVALID_DELIVERY_WINDOW (DeadlineClosed)
            at 10s schedule open deliver=10s expire=1m+1ms               → APPLIED SCHEDULED g0 v1
            at 10s reschedule open deliver=11s expire=1m                 → REJECTED INVALID_DELIVERY_WINDOW g0 v1 (DeadlineClosed)
        "#]],
    );
}

#[test]
fn t12_a_command_id_is_not_older_than_a_preparation_may_be() {
    // With a retry window that outlasts it, or T13b would answer first.
    let limits = Limits { command_retry_window_ms: 2 * 86_400_000, ..default_limits() };
    check_with(
        limits,
        "at 1d schedule oldest command-made=0
         at 1d+1ms schedule too-old command-made=0
         at 1d schedule newest command-made=1d+5m
         at 1d schedule from-the-future command-made=1d+5m+1ms",
        &expect![[r#"
            at 1d schedule oldest command-made=0                         → APPLIED SCHEDULED g0 v1
            at 1d+1ms schedule too-old command-made=0                    → position SERVER_INVALID_COMMAND (CommandTooOld)
            at 1d schedule newest command-made=1d+5m                     → APPLIED SCHEDULED g0 v1
            at 1d schedule from-the-future command-made=1d+5m+1ms        → position SERVER_INVALID_COMMAND (CommandInFuture)
        "#]],
    );
}

#[test]
fn t12_a_message_id_is_not_older_than_a_preparation_may_be() {
    check(
        "at 1d schedule oldest made=0
         at 1d+1ms schedule too-old made=0
         at 1d schedule newest made=1d+5m
         at 1d schedule from-the-future made=1d+5m+1ms
         # Only a command that makes a message cares.
         at 3d cancel oldest",
        &expect![[r#"
            at 1d schedule oldest made=0                                 → APPLIED SCHEDULED g0 v1
            at 1d+1ms schedule too-old made=0                            → position SERVER_INVALID_COMMAND (MessageTooOld)
            at 1d schedule newest made=1d+5m                             → APPLIED SCHEDULED g0 v1
            at 1d schedule from-the-future made=1d+5m+1ms                → position SERVER_INVALID_COMMAND (MessageInFuture)
            at 3d cancel oldest                                          → APPLIED CANCELED g0 v2
        "#]],
    );
}

#[test]
fn refused_ids_leave_nothing_and_may_come_again() {
    check(
        "at 1d schedule m command-made=1d+5m+1ms id=early
         result early
         at 1d+1ms again early
         at 1d+2ms again early",
        &expect![[r#"
            at 1d schedule m command-made=1d+5m+1ms id=early             → position SERVER_INVALID_COMMAND (CommandInFuture)
            result early                                                 → position SERVER_INVALID_COMMAND (CommandInFuture)
            at 1d+1ms again early                                        → APPLIED SCHEDULED g0 v1
            at 1d+2ms again early                                        → duplicate of APPLIED SCHEDULED g0 v1
        "#]],
    );
}

#[test]
fn t13a_the_retry_deadline_follows_from_the_id() {
    check(
        "at 1h schedule a retry-until=1d+1h
         at 1h schedule b retry-until=1d+1h+1ms
         at 1h schedule c retry-until=1d+1h-1ms",
        &expect![[r#"
            at 1h schedule a retry-until=1d+1h                           → APPLIED SCHEDULED g0 v1
            at 1h schedule b retry-until=1d+1h+1ms                       → position SERVER_INVALID_COMMAND (RetryUntilMismatch)
            at 1h schedule c retry-until=1d+1h-1ms                       → position SERVER_INVALID_COMMAND (RetryUntilMismatch)
        "#]],
    );
}

#[test]
fn t13b_every_copy_is_within_its_retry_window() {
    check(
        "at 0 schedule a deliver=10d expire=20d id=a
         at 1d again a
         at 1d+1ms again a
         # The log's clock may run backwards.
         at 1d again a",
        &expect![[r#"
            at 0 schedule a deliver=10d expire=20d id=a                  → APPLIED SCHEDULED g0 v1
            at 1d again a                                                → duplicate of APPLIED SCHEDULED g0 v1
            at 1d+1ms again a                                            → position COMMAND_RETRY_WINDOW_EXPIRED
            at 1d again a                                                → duplicate of APPLIED SCHEDULED g0 v1
        "#]],
    );
}

#[test]
fn t13b_no_copy_passes_behind_the_fence_of_its_window() {
    check(
        "at 0 schedule a deliver=10d expire=20d id=a
         at 1d fence 1d-1ms
         at 1d again a
         at 1d fence 1d
         at 1d-1s again a
         result a",
        &expect![[r#"
            at 0 schedule a deliver=10d expire=20d id=a                  → APPLIED SCHEDULED g0 v1
            at 1d fence 1d-1ms                                           → 0 accepted, 0 failed
            at 1d again a                                                → duplicate of APPLIED SCHEDULED g0 v1
            at 1d fence 1d                                               → 0 accepted, 0 failed
            at 1d-1s again a                                             → position COMMAND_RETRY_WINDOW_EXPIRED
            result a                                                     → unknown
        "#]],
    );
}

#[test]
fn t14_an_id_is_free_until_its_freshness_is_closed() {
    check(
        "at 1d fence 1d-1ms
         at 1d schedule open made=0
         at 1d fence 1d
         at 1d schedule closed made=0
         at 1d schedule closed made=1ms",
        &expect![[r#"
            at 1d fence 1d-1ms                                           → 0 accepted, 0 failed
            at 1d schedule open made=0                                   → APPLIED SCHEDULED g0 v1
            at 1d fence 1d                                               → 0 accepted, 0 failed
            at 1d schedule closed made=0                                 → REJECTED DELAY_MESSAGE_ID_EXPIRED
            at 1d schedule closed made=1ms                               → APPLIED SCHEDULED g0 v1
        "#]],
    );
}

#[test]
fn a_second_copy_has_the_first_copys_answer() {
    check(
        "at 1s schedule m deliver=1h id=first
         at 2s cancel m id=second
         at 3s again first
         at 3s again second
         at 4s schedule m id=third
         at 5s again third
         result first
         result third",
        &expect![[r#"
            at 1s schedule m deliver=1h id=first                         → APPLIED SCHEDULED g0 v1
            at 2s cancel m id=second                                     → APPLIED CANCELED g0 v2
            at 3s again first                                            → duplicate of APPLIED SCHEDULED g0 v1
            at 3s again second                                           → duplicate of APPLIED CANCELED g0 v2
            at 4s schedule m id=third                                    → REJECTED DELAY_MESSAGE_ID_CONFLICT
            at 5s again third                                            → duplicate of REJECTED DELAY_MESSAGE_ID_CONFLICT
            result first                                                 → APPLIED SCHEDULED g0 v1
            result third                                                 → REJECTED DELAY_MESSAGE_ID_CONFLICT
        "#]],
    );
}

#[test]
fn an_id_is_of_one_command() {
    check(
        "at 1s schedule m deliver=1h id=one
         at 2s cancel m id=one
         at 3s show m
         at 3s schedule m deliver=2h id=one",
        &expect![[r#"
            at 1s schedule m deliver=1h id=one                           → APPLIED SCHEDULED g0 v1
            at 2s cancel m id=one                                        → position COMMAND_ID_CONFLICT
            at 3s show m                                                 → SCHEDULED g0 v1 r1 due 1h expires 2h
            at 3s schedule m deliver=2h id=one                           → position COMMAND_ID_CONFLICT
        "#]],
    );
}

#[test]
fn a_command_nobody_can_read_is_answered_as_itself() {
    check(
        "at 1s unreadable m
         at 2s again
         at 2s prepare large id=large
         at 3s again large",
        &expect![[r#"
            at 1s unreadable m                                           → REJECTED SERVER_INVALID_COMMAND (InvalidBody)
            at 2s again                                                  → duplicate of REJECTED SERVER_INVALID_COMMAND (InvalidBody)
            at 2s prepare large id=large                                 → position UNACTIVATED_PROTOCOL_VERSION (NotBuilt)
            at 3s again large                                            → position UNACTIVATED_PROTOCOL_VERSION (NotBuilt)
        "#]],
    );
}

/// Protocol registry §4.1: each line breaks the rule of its comment and the one of the next; the earlier answers.
#[test]
fn checks_of_every_command_come_in_order() {
    check(
        "at 1s schedule m deliver=1h id=known
         # The wrong shard, and a window that is over.
         at 1s schedule x partition=1 retry-until=0
         # A window that is over, and an id that is used.
         at 1d+2s cancel m id=known
         # An id that is used, and a retry deadline that does not follow from it.
         at 2s cancel m id=known retry-until=1d
         # A retry deadline that does not follow, and an id from the future.
         at 2s schedule x command-made=10m retry-until=2d
         # An id from the future, and a body nobody can apply.
         at 2s prepare x command-made=10m",
        &expect![[r#"
            at 1s schedule m deliver=1h id=known                         → APPLIED SCHEDULED g0 v1
            at 1s schedule x partition=1 retry-until=0                   → position INGRESS_ROUTE_MISMATCH (WrongShard)
            at 1d+2s cancel m id=known                                   → position COMMAND_RETRY_WINDOW_EXPIRED
            at 2s cancel m id=known retry-until=1d                       → position COMMAND_ID_CONFLICT
            at 2s schedule x command-made=10m retry-until=2d             → position SERVER_INVALID_COMMAND (RetryUntilMismatch)
            at 2s prepare x command-made=10m                             → position SERVER_INVALID_COMMAND (CommandInFuture)
        "#]],
    );
}

/// Protocol registry §4.2: each Schedule breaks the rule of its line and every later one; the earliest answers.
#[test]
fn checks_of_a_schedule_come_in_order() {
    let limits = Limits { lanes_max: 1, active_messages_max: 1, ..default_limits() };
    check_with(
        limits,
        "policy old
         policy bounded attempts=3 unknown=1
         destination small bytes=10
         destination old
         control close old
         at 1s schedule holder deliver=1d expire=2d key=k id=known
         # Quota.
         at 2d schedule x made=2d bytes=10 deliver=2d
         # A lane too many.
         at 2d schedule x made=2d bytes=10 deliver=2d to=small
         # The window.
         at 2d schedule x made=2d bytes=10 deliver=2d expire=2d to=small
         # The size.
         at 2d schedule x made=2d bytes=11 deliver=2d expire=2d to=small
         # The order.
         at 2d schedule x made=2d bytes=11 deliver=2d expire=2d to=small ordered
         # The metadata.
         at 2d schedule x made=2d bytes=11 deliver=2d expire=2d to=small ordered header=Nereus.delay.x
         # The policy.
         at 2d schedule x made=2d bytes=11 deliver=2d expire=2d to=small ordered header=Nereus.delay.x wrong-policy-hash
         # The profile.
         at 2d schedule x made=2d deliver=2d expire=2d to=old ordered header=Nereus.delay.x wrong-policy-hash
         at 2d schedule x made=2d deliver=2d expire=2d to=old ordered wrong-profile-hash wrong-policy-hash
         # T12 and T14 of the message id.
         at 2d schedule x made=0 deliver=2d expire=2d to=old wrong-profile-hash
         at 2d fence 1d-1ms
         at 2d schedule x made=0 deliver=2d expire=2d to=old wrong-profile-hash
         at 2d fence 1d
         at 2d schedule x made=0 deliver=2d expire=2d to=old wrong-profile-hash
         # Identities in use: the caller's own, and the message's. The holder expires behind the fence.
         at 2d schedule holder-2 made=2d deliver=3d expire=4d key=k
         at 2d fence 2d
         at 2d schedule holder-2 made=2d deliver=3d expire=4d key=k
         at 2d schedule x made=0 deliver=2d expire=2d key=k wrong-profile-hash
         at 2d schedule holder-2 deliver=2d expire=2d key=k wrong-profile-hash
         # No new schedules at all.
         control stop
         at 2d schedule holder-2 deliver=2d expire=2d key=k wrong-profile-hash",
        &expect![[r#"
            policy old                                                   → control OK
            policy bounded attempts=3 unknown=1                          → control OK
            destination small bytes=10                                   → control OK
            destination old                                              → control OK
            control close old                                            → control OK
            at 1s schedule holder deliver=1d expire=2d key=k id=known    → APPLIED SCHEDULED g0 v1
            at 2d schedule x made=2d bytes=10 deliver=2d                 → REJECTED HARD_QUOTA_EXCEEDED (ActiveMessages)
            at 2d schedule x made=2d bytes=10 deliver=2d to=small        → REJECTED DESTINATION_LANE_LIMIT_EXCEEDED
            at 2d schedule x made=2d bytes=10 deliver=2d expire=2d to=small → REJECTED INVALID_DELIVERY_WINDOW (WindowTooShort)
            at 2d schedule x made=2d bytes=11 deliver=2d expire=2d to=small → REJECTED SERVER_PAYLOAD_TOO_LARGE
            at 2d schedule x made=2d bytes=11 deliver=2d expire=2d to=small ordered → REJECTED ORDERING_CAPABILITY_UNAVAILABLE
            at 2d schedule x made=2d bytes=11 deliver=2d expire=2d to=small ordered header=Nereus.delay.x → REJECTED SERVER_INVALID_METADATA (ReservedHeader)
            at 2d schedule x made=2d bytes=11 deliver=2d expire=2d to=small ordered header=Nereus.delay.x wrong-policy-hash → REJECTED RETRY_POLICY_NOT_ACTIVE_AT_SOURCE_POSITION
            at 2d schedule x made=2d deliver=2d expire=2d to=old ordered header=Nereus.delay.x wrong-policy-hash → REJECTED PROFILE_DEPRECATED_FOR_NEW_USE
            at 2d schedule x made=2d deliver=2d expire=2d to=old ordered wrong-profile-hash wrong-policy-hash → REJECTED PROFILE_VERSION_NOT_ACTIVE_AT_SOURCE_POSITION
            at 2d schedule x made=0 deliver=2d expire=2d to=old wrong-profile-hash → position SERVER_INVALID_COMMAND (MessageTooOld)
            at 2d fence 1d-1ms                                           → 0 accepted, 0 failed
            at 2d schedule x made=0 deliver=2d expire=2d to=old wrong-profile-hash → position SERVER_INVALID_COMMAND (MessageTooOld)
            at 2d fence 1d                                               → 0 accepted, 0 failed
            at 2d schedule x made=0 deliver=2d expire=2d to=old wrong-profile-hash → REJECTED DELAY_MESSAGE_ID_EXPIRED
            at 2d schedule holder-2 made=2d deliver=3d expire=4d key=k   → REJECTED DELAY_MESSAGE_ID_CONFLICT (BusinessKeyInUse)
            at 2d fence 2d                                               → 1 accepted, 0 failed
            at 2d schedule holder-2 made=2d deliver=3d expire=4d key=k   → APPLIED SCHEDULED g0 v1
            at 2d schedule x made=0 deliver=2d expire=2d key=k wrong-profile-hash → REJECTED DELAY_MESSAGE_ID_CONFLICT (BusinessKeyInUse)
            at 2d schedule holder-2 deliver=2d expire=2d key=k wrong-profile-hash → REJECTED DELAY_MESSAGE_ID_CONFLICT
            control stop                                                 → control OK
            at 2d schedule holder-2 deliver=2d expire=2d key=k wrong-profile-hash → REJECTED ROUTE_NOT_ACTIVE
        "#]],
    );
}

#[test]
fn metadata_is_the_destinations_own() {
    check(
        "at 1s schedule a pulsar
         at 1s schedule b header=nereus.nulls
         at 1s schedule c header=NEREUS.DELAY.ID
         at 1s schedule d header=x-nereus.delay.id
         at 1s schedule e ordered
         at 1s schedule f bytes=999000
         at 1s schedule g bytes=999001",
        &expect![[r#"
            at 1s schedule a pulsar                                      → REJECTED SERVER_INVALID_METADATA (AdapterMismatch)
            at 1s schedule b header=nereus.nulls                         → REJECTED SERVER_INVALID_METADATA (NullMarker)
            at 1s schedule c header=NEREUS.DELAY.ID                      → REJECTED SERVER_INVALID_METADATA (ReservedHeader)
            at 1s schedule d header=x-nereus.delay.id                    → APPLIED SCHEDULED g0 v1
            at 1s schedule e ordered                                     → REJECTED ORDERING_CAPABILITY_UNAVAILABLE
            at 1s schedule f bytes=999000                                → APPLIED SCHEDULED g0 v1
            at 1s schedule g bytes=999001                                → REJECTED SERVER_PAYLOAD_TOO_LARGE
        "#]],
    );
}

#[test]
fn closed_bindings_take_nothing_new_and_keep_what_they_have() {
    check(
        "at 1s schedule kept deliver=1h
         control close orders
         at 2s schedule refused
         control close-policy default
         destination other
         at 2s schedule refused to=other
         at 2s reschedule kept deliver=2h
         at 2h admit kept
         at 2h retriable kept
         show kept
         at 2h admit kept
         at 2h published kept
         show kept",
        &expect![[r#"
            at 1s schedule kept deliver=1h                               → APPLIED SCHEDULED g0 v1
            control close orders                                         → control OK
            at 2s schedule refused                                       → REJECTED PROFILE_DEPRECATED_FOR_NEW_USE
            control close-policy default                                 → control OK
            destination other                                            → control OK
            at 2s schedule refused to=other                              → REJECTED RETRY_POLICY_NOT_ACTIVE_AT_SOURCE_POSITION
            at 2s reschedule kept deliver=2h                             → APPLIED SUPERSEDED g1 v2
            at 2h admit kept                                             → 1 accepted, 0 failed
            at 2h retriable kept                                         → 1 accepted, 0 failed
            show kept                                                    → RETRY_WAIT g1 v2 r4 due 2h expires 3h attempts 1/1
            at 2h admit kept                                             → 1 accepted, 0 failed
            at 2h published kept                                         → 1 accepted, 0 failed
            show kept                                                    → PUBLISHED g1 v2 r6 OK at 2h until 7d+2h with evidence attempts 1/2
        "#]],
    );
}

#[test]
fn quotas_count_what_lives() {
    let limits = Limits { active_messages_max: 2, active_bytes_max: 100, ..default_limits() };
    check_with(
        limits,
        "at 1s schedule a bytes=60 deliver=1h
         at 1s schedule too-large bytes=41 deliver=1h
         at 1s schedule b bytes=40 deliver=1h
         at 1s schedule one-too-many bytes=0 deliver=1h
         quota
         at 2s cancel a
         quota
         at 3s schedule c bytes=60 deliver=1h expire=2h
         # What the fence closes gives its place back when it is swept.
         at 3h fence 3h max=1
         at 3h schedule d deliver=4h
         quota
         counts",
        &expect![[r#"
            at 1s schedule a bytes=60 deliver=1h                         → APPLIED SCHEDULED g0 v1
            at 1s schedule too-large bytes=41 deliver=1h                 → REJECTED HARD_QUOTA_EXCEEDED (ActiveBytes)
            at 1s schedule b bytes=40 deliver=1h                         → APPLIED SCHEDULED g0 v1
            at 1s schedule one-too-many bytes=0 deliver=1h               → REJECTED HARD_QUOTA_EXCEEDED (ActiveMessages)
            quota                                                        → 2 live, 100 bytes
            at 2s cancel a                                               → APPLIED CANCELED g0 v2
            quota                                                        → 1 live, 40 bytes
            at 3s schedule c bytes=60 deliver=1h expire=2h               → APPLIED SCHEDULED g0 v1
            at 3h fence 3h max=1                                         → 1 accepted, 0 failed
            at 3h schedule d deliver=4h                                  → APPLIED SCHEDULED g0 v1
            quota                                                        → 2 live, 60 bytes
            counts                                                       → SCHEDULED 2, CANCELED 1, EXPIRED 1
        "#]],
    );
}

#[test]
fn a_business_key_has_one_live_message() {
    check(
        "at 1s schedule first deliver=1h key=order-7
         at 2s schedule second deliver=1h key=order-7
         at 3s cancel first
         key order-7
         at 4s schedule second deliver=1h key=order-7
         key order-7
         at 5s reschedule second deliver=2h
         at 5s schedule third deliver=1h key=order-7
         # An ordered message carries its key and is not found by it.
         at 6s schedule fourth ordered key=order-8
         at 2h admit second
         at 2h published second
         at 2h+1s schedule third deliver=3h key=order-7
         key order-7",
        &expect![[r#"
            at 1s schedule first deliver=1h key=order-7                  → APPLIED SCHEDULED g0 v1
            at 2s schedule second deliver=1h key=order-7                 → REJECTED DELAY_MESSAGE_ID_CONFLICT (BusinessKeyInUse)
            at 3s cancel first                                           → APPLIED CANCELED g0 v2
            key order-7                                                  → first
            at 4s schedule second deliver=1h key=order-7                 → APPLIED SCHEDULED g0 v1
            key order-7                                                  → second
            at 5s reschedule second deliver=2h                           → APPLIED SUPERSEDED g1 v2
            at 5s schedule third deliver=1h key=order-7                  → REJECTED DELAY_MESSAGE_ID_CONFLICT (BusinessKeyInUse)
            at 6s schedule fourth ordered key=order-8                    → REJECTED ORDERING_CAPABILITY_UNAVAILABLE
            at 2h admit second                                           → 1 accepted, 0 failed
            at 2h published second                                       → 1 accepted, 0 failed
            at 2h+1s schedule third deliver=3h key=order-7               → APPLIED SCHEDULED g0 v1
            key order-7                                                  → third
        "#]],
    );
}

#[test]
fn a_business_key_has_a_limit() {
    let limits = Limits { business_key_bytes_max: 4, ..default_limits() };
    check_with(
        limits,
        "at 1s schedule a key=four\nat 1s schedule b key=fives",
        &expect![[r#"
        at 1s schedule a key=four                                    → APPLIED SCHEDULED g0 v1
        at 1s schedule b key=fives                                   → REJECTED SERVER_INVALID_METADATA (BusinessKeyTooLong)
    "#]],
    );
}

/// Protocol registry §4.5 and §4.6.
#[test]
fn preconditions_come_before_state() {
    check(
        "at 1s schedule m deliver=1h
         at 1s reschedule m deliver=2h
         at 1s cancel m generation=0
         at 1s cancel m generation=2
         at 1s cancel m generation=1 version=1
         at 1s cancel m version=3
         at 1s reschedule m deliver=3h generation=0
         at 1s cancel m generation=1 version=2
         # Also of what has ended.
         at 1s cancel m generation=0
         at 1s cancel m generation=1 version=2
         at 1s cancel m generation=1 version=3
         at 1s cancel nobody generation=7",
        &expect![[r#"
            at 1s schedule m deliver=1h                                  → APPLIED SCHEDULED g0 v1
            at 1s reschedule m deliver=2h                                → APPLIED SUPERSEDED g1 v2
            at 1s cancel m generation=0                                  → APPLIED GENERATION_SUPERSEDED g1 v2
            at 1s cancel m generation=2                                  → APPLIED VERSION_CONFLICT g1 v2
            at 1s cancel m generation=1 version=1                        → APPLIED VERSION_CONFLICT g1 v2
            at 1s cancel m version=3                                     → APPLIED VERSION_CONFLICT g1 v2
            at 1s reschedule m deliver=3h generation=0                   → APPLIED GENERATION_SUPERSEDED g1 v2
            at 1s cancel m generation=1 version=2                        → APPLIED CANCELED g1 v3
            at 1s cancel m generation=0                                  → APPLIED GENERATION_SUPERSEDED g1 v3
            at 1s cancel m generation=1 version=2                        → APPLIED VERSION_CONFLICT g1 v3
            at 1s cancel m generation=1 version=3                        → APPLIED ALREADY_CANCELED g1 v3
            at 1s cancel nobody generation=7                             → APPLIED NOT_FOUND
        "#]],
    );
}

#[test]
fn what_can_be_taken_back_and_what_not() {
    check(
        "policy two attempts=3 unknown=2
         at 1s schedule waiting deliver=1h
         at 1s schedule publishing
         at 1s schedule retrying
         at 1s schedule uncertain policy=two
         at 1s schedule published
         at 1s schedule dead
         at 1s schedule expired expire=10s
         at 1s schedule canceled
         at 2s admit publishing retrying uncertain published dead
         at 3s retriable retrying
         at 3s unknown uncertain
         at 3s published published
         at 3s permanent dead
         at 3s cancel canceled
         at 20s fence 10s
         counts
         at 20s cancel publishing
         at 20s cancel uncertain
         at 20s cancel published
         at 20s cancel dead
         at 20s cancel expired
         at 20s cancel canceled
         at 20s cancel nobody
         at 20s reschedule publishing
         at 20s reschedule uncertain
         at 20s reschedule published
         at 20s reschedule dead
         at 20s reschedule expired
         at 20s reschedule canceled
         at 20s reschedule nobody
         at 20s reschedule waiting deliver=2h
         at 20s reschedule retrying deliver=2h
         at 21s cancel waiting
         at 21s cancel retrying
         counts
         quota",
        &expect![[r#"
            policy two attempts=3 unknown=2                              → control OK
            at 1s schedule waiting deliver=1h                            → APPLIED SCHEDULED g0 v1
            at 1s schedule publishing                                    → APPLIED SCHEDULED g0 v1
            at 1s schedule retrying                                      → APPLIED SCHEDULED g0 v1
            at 1s schedule uncertain policy=two                          → APPLIED SCHEDULED g0 v1
            at 1s schedule published                                     → APPLIED SCHEDULED g0 v1
            at 1s schedule dead                                          → APPLIED SCHEDULED g0 v1
            at 1s schedule expired expire=10s                            → APPLIED SCHEDULED g0 v1
            at 1s schedule canceled                                      → APPLIED SCHEDULED g0 v1
            at 2s admit publishing retrying uncertain published dead     → 5 accepted, 0 failed
            at 3s retriable retrying                                     → 1 accepted, 0 failed
            at 3s unknown uncertain                                      → 1 accepted, 0 failed
            at 3s published published                                    → 1 accepted, 0 failed
            at 3s permanent dead                                         → 1 accepted, 0 failed
            at 3s cancel canceled                                        → APPLIED CANCELED g0 v2
            at 20s fence 10s                                             → 1 accepted, 0 failed
            counts                                                       → SCHEDULED 1, PUBLISHING 1, RETRY_WAIT 1, UNCERTAIN 1, PUBLISHED 1, CANCELED 1, EXPIRED 1, DEAD_LETTER 1
            at 20s cancel publishing                                     → APPLIED TOO_LATE g0 v1
            at 20s cancel uncertain                                      → APPLIED TOO_LATE g0 v1
            at 20s cancel published                                      → APPLIED ALREADY_PUBLISHED g0 v1
            at 20s cancel dead                                           → APPLIED ALREADY_DEAD_LETTERED g0 v1
            at 20s cancel expired                                        → APPLIED ALREADY_EXPIRED g0 v1
            at 20s cancel canceled                                       → APPLIED ALREADY_CANCELED g0 v2
            at 20s cancel nobody                                         → APPLIED NOT_FOUND
            at 20s reschedule publishing                                 → APPLIED TOO_LATE g0 v1
            at 20s reschedule uncertain                                  → APPLIED TOO_LATE g0 v1
            at 20s reschedule published                                  → APPLIED ALREADY_PUBLISHED g0 v1
            at 20s reschedule dead                                       → APPLIED ALREADY_DEAD_LETTERED g0 v1
            at 20s reschedule expired                                    → APPLIED ALREADY_EXPIRED g0 v1
            at 20s reschedule canceled                                   → APPLIED ALREADY_CANCELED g0 v2
            at 20s reschedule nobody                                     → APPLIED NOT_FOUND
            at 20s reschedule waiting deliver=2h                         → APPLIED SUPERSEDED g1 v2
            at 20s reschedule retrying deliver=2h                        → APPLIED SUPERSEDED g1 v2
            at 21s cancel waiting                                        → APPLIED CANCELED g1 v3
            at 21s cancel retrying                                       → APPLIED CANCELED g1 v3
            counts                                                       → PUBLISHING 1, UNCERTAIN 1, PUBLISHED 1, CANCELED 3, EXPIRED 1, DEAD_LETTER 1
            quota                                                        → 2 live, 0 bytes
        "#]],
    );
}

#[test]
fn a_new_generation_starts_afresh() {
    check(
        "policy two attempts=2 unknown=1
         at 1s schedule m policy=two expire=1h
         at 2s admit m
         at 3s retriable m
         show m
         at 4s reschedule m deliver=10s expire=2h
         show m
         # Entries of the old generation mean nothing now.
         at 10s admit m generation=0
         at 10s admit m
         at 11s retriable m
         at 12s admit m
         at 13s retriable m
         show m",
        &expect![[r#"
            policy two attempts=2 unknown=1                              → control OK
            at 1s schedule m policy=two expire=1h                        → APPLIED SCHEDULED g0 v1
            at 2s admit m                                                → 1 accepted, 0 failed
            at 3s retriable m                                            → 1 accepted, 0 failed
            show m                                                       → RETRY_WAIT g0 v1 r3 due 3s expires 1h attempts 1/1
            at 4s reschedule m deliver=10s expire=2h                     → APPLIED SUPERSEDED g1 v2
            show m                                                       → SCHEDULED g1 v2 r4 due 10s expires 2h
            at 10s admit m generation=0                                  → 0 accepted, 1 failed
            at 10s admit m                                               → 1 accepted, 0 failed
            at 11s retriable m                                           → 1 accepted, 0 failed
            at 12s admit m                                               → 1 accepted, 0 failed
            at 13s retriable m                                           → 1 accepted, 0 failed
            show m                                                       → DEAD_LETTER g1 v2 r8 DESTINATION_DEFINITIVE_RETRIABLE at 13s until 30d+1h attempts 2/2
        "#]],
    );
}
