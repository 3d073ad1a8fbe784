//! What becomes of attempts: v2 §4 row by row, and v2 §5.

use expect_test::expect;
use protocol::mutation_v2::Limits;
use testkit::log::default_limits;

use crate::story::{check, check_with};

#[test]
fn t5_nothing_is_admitted_before_it_is_certainly_due() {
    check(
        "at 1s schedule m deliver=10s expire=1h
         at 10s admit m earliest=10s-1ms latest=11s-1ms
         show m
         at 10s admit m earliest=10s latest=11s
         show m",
        &expect![[r#"
            at 1s schedule m deliver=10s expire=1h                       → APPLIED SCHEDULED g0 v1
            at 10s admit m earliest=10s-1ms latest=11s-1ms               → 0 accepted, 1 failed
            show m                                                       → SCHEDULED g0 v1 r2 due 10s expires 1h
            at 10s admit m earliest=10s latest=11s                       → 1 accepted, 0 failed
            show m                                                       → PUBLISHING g0 v1 r3 due never expires 1h attempts 0/1 1:publishing
        "#]],
    );
}

#[test]
fn t6_nothing_is_admitted_that_may_have_expired() {
    check(
        "at 1s schedule m deliver=1s expire=10s
         at 2s admit m earliest=9s+500ms latest=10s
         at 2s admit m earliest=9s+500ms latest=10s-1ms
         show m",
        &expect![[r#"
            at 1s schedule m deliver=1s expire=10s                       → APPLIED SCHEDULED g0 v1
            at 2s admit m earliest=9s+500ms latest=10s                   → 0 accepted, 1 failed
            at 2s admit m earliest=9s+500ms latest=10s-1ms               → 1 accepted, 0 failed
            show m                                                       → PUBLISHING g0 v1 r3 due never expires 10s attempts 0/1 1:publishing
        "#]],
    );
}

#[test]
fn t9c_an_admission_is_persisted_before_the_deadline_whatever_the_logs_clock() {
    check(
        "at 1s schedule m deliver=1s expire=10s
         at 10s-10ms admit m earliest=9s
         show m
         at 10s-11ms admit m earliest=9s
         show m",
        &expect![[r#"
            at 1s schedule m deliver=1s expire=10s                       → APPLIED SCHEDULED g0 v1
            at 10s-10ms admit m earliest=9s                              → 0 accepted, 1 failed
            show m                                                       → SCHEDULED g0 v1 r2 due 1s expires 10s
            at 10s-11ms admit m earliest=9s                              → 1 accepted, 0 failed
            show m                                                       → PUBLISHING g0 v1 r3 due never expires 10s attempts 0/1 1:publishing
        "#]],
    );
}

#[test]
fn t11_a_wide_interval_is_no_evidence() {
    check(
        "at 1s schedule m deliver=1s expire=1h
         at 2s admit m earliest=2s latest=3s+1ms
         show m
         at 2s admit m earliest=2s latest=3s
         show m
         # An outcome is never refused for its stamp.
         at 3s published m earliest=3s latest=1h
         show m",
        &expect![[r#"
            at 1s schedule m deliver=1s expire=1h                        → APPLIED SCHEDULED g0 v1
            at 2s admit m earliest=2s latest=3s+1ms                      → position STALE_SYSTEM_MUTATION (IntervalTooWide)
            show m                                                       → SCHEDULED g0 v1 r1 due 1s expires 1h
            at 2s admit m earliest=2s latest=3s                          → 1 accepted, 0 failed
            show m                                                       → PUBLISHING g0 v1 r2 due never expires 1h attempts 0/1 1:publishing
            at 3s published m earliest=3s latest=1h                      → 1 accepted, 0 failed
            show m                                                       → PUBLISHED g0 v1 r3 OK at 3s until 7d+1h with evidence attempts 0/1
        "#]],
    );
}

#[test]
fn nothing_is_admitted_behind_its_closed_deadline() {
    let limits = Limits { broker_time_divergence_ms_max: 60_000, fence_margin_ms: 0, ..default_limits() };
    check_with(
        limits,
        "at 1s schedule open deliver=1s expire=2m
         at 1s schedule closed deliver=1s expire=30s
         at 2s fence 30s max=0
         at 2s admit open closed
         show open
         show closed",
        &expect![[r#"
            at 1s schedule open deliver=1s expire=2m                     → APPLIED SCHEDULED g0 v1
            at 1s schedule closed deliver=1s expire=30s                  → APPLIED SCHEDULED g0 v1
            at 2s fence 30s max=0                                        → 0 accepted, 0 failed
            at 2s admit open closed                                      → 1 accepted, 1 failed
            show open                                                    → PUBLISHING g0 v1 r2 due never expires 2m attempts 0/1 1:publishing
            show closed                                                  → EXPIRED g0 v1 r2 ALREADY_EXPIRED at 30s until 7d+1h
        "#]],
    );
}

#[test]
fn gates_hold_admissions_and_nothing_else() {
    check(
        "at 1s schedule m expire=1h
         control pause-lane m
         at 2s admit m
         show m
         at 2s schedule other expire=1h
         control resume-lane m
         control pause orders
         at 3s admit m
         control resume orders
         at 4s admit m
         # What is out goes its way.
         control pause orders
         at 5s published m
         show m",
        &expect![[r#"
            at 1s schedule m expire=1h                                   → APPLIED SCHEDULED g0 v1
            control pause-lane m                                         → control OK
            at 2s admit m                                                → 0 accepted, 1 failed
            show m                                                       → SCHEDULED g0 v1 r2 due 1s expires 1h
            at 2s schedule other expire=1h                               → APPLIED SCHEDULED g0 v1
            control resume-lane m                                        → control OK
            control pause orders                                         → control OK
            at 3s admit m                                                → 0 accepted, 1 failed
            control resume orders                                        → control OK
            at 4s admit m                                                → 1 accepted, 0 failed
            control pause orders                                         → control OK
            at 5s published m                                            → 1 accepted, 0 failed
            show m                                                       → PUBLISHED g0 v1 r5 OK at 5s until 7d+1h with evidence attempts 0/1
        "#]],
    );
}

#[test]
fn an_entry_names_generation_and_revision() {
    check(
        "at 1s schedule m expire=1h
         at 2s admit m generation=1
         at 2s admit m rev=2
         at 2s admit m rev=0
         at 2s admit nobody-knows rev=1
         at 2s admit m
         at 2s admit m
         show m",
        &expect![[r#"
            at 1s schedule m expire=1h                                   → APPLIED SCHEDULED g0 v1
            at 2s admit m generation=1                                   → 0 accepted, 1 failed
            at 2s admit m rev=2                                          → 0 accepted, 1 failed
            at 2s admit m rev=0                                          → 0 accepted, 1 failed
            at 2s admit nobody-knows rev=1                               → 0 accepted, 1 failed
            at 2s admit m                                                → 1 accepted, 0 failed
            at 2s admit m                                                → 0 accepted, 1 failed
            show m                                                       → PUBLISHING g0 v1 r2 due never expires 1h attempts 0/1 1:publishing
        "#]],
    );
}

/// The owner's append was answered late: the same record stands in the log twice.
#[test]
fn a_late_second_copy_never_revives() {
    check(
        "at 1s schedule m deliver=10s expire=1h
         # The first copy is too early; the second would be in time.
         at 2s admit m earliest=2s
         at 20s again
         show m
         at 20s admit m
         at 21s lane m
         at 22s again
         at 23s admit m
         at 24s again
         show m",
        &expect![[r#"
            at 1s schedule m deliver=10s expire=1h                       → APPLIED SCHEDULED g0 v1
            at 2s admit m earliest=2s                                    → 0 accepted, 1 failed
            at 20s again                                                 → 0 accepted, 1 failed
            show m                                                       → SCHEDULED g0 v1 r2 due 10s expires 1h
            at 20s admit m                                               → 1 accepted, 0 failed
            at 21s lane m                                                → 1 accepted, 0 failed
            at 22s again                                                 → 0 accepted, 1 failed
            at 23s admit m                                               → 1 accepted, 0 failed
            at 24s again                                                 → 0 accepted, 1 failed
            show m                                                       → PUBLISHING g0 v1 r5 due never expires 1h attempts 0/2 2:publishing
        "#]],
    );
}

#[test]
fn failed_entries_do_not_spoil_their_record() {
    check(
        "at 1s schedule a expire=1h
         at 1s schedule b deliver=30m expire=1h
         at 1s schedule c expire=1h
         at 1s schedule d expire=1h
         at 2s cancel d
         at 3s admit a b c d
         counts",
        &expect![[r#"
            at 1s schedule a expire=1h                                   → APPLIED SCHEDULED g0 v1
            at 1s schedule b deliver=30m expire=1h                       → APPLIED SCHEDULED g0 v1
            at 1s schedule c expire=1h                                   → APPLIED SCHEDULED g0 v1
            at 1s schedule d expire=1h                                   → APPLIED SCHEDULED g0 v1
            at 2s cancel d                                               → APPLIED CANCELED g0 v2
            at 3s admit a b c d                                          → 2 accepted, 2 failed
            counts                                                       → SCHEDULED 1, PUBLISHING 2, CANCELED 1
        "#]],
    );
}

#[test]
fn a_policy_bounds_admissions() {
    check(
        "policy two attempts=2 unknown=1
         at 1s schedule m policy=two expire=1h
         at 2s admit m
         at 3s retriable m
         at 4s admit m
         at 5s retriable m
         show m
         at 6s admit m",
        &expect![[r#"
            policy two attempts=2 unknown=1                              → control OK
            at 1s schedule m policy=two expire=1h                        → APPLIED SCHEDULED g0 v1
            at 2s admit m                                                → 1 accepted, 0 failed
            at 3s retriable m                                            → 1 accepted, 0 failed
            at 4s admit m                                                → 1 accepted, 0 failed
            at 5s retriable m                                            → 1 accepted, 0 failed
            show m                                                       → DEAD_LETTER g0 v1 r5 DESTINATION_DEFINITIVE_RETRIABLE at 5s until 30d+1h attempts 2/2
            at 6s admit m                                                → 0 accepted, 1 failed
        "#]],
    );
}

#[test]
fn published_ends_with_evidence() {
    check(
        "at 1s schedule m key=k expire=1h
         at 2s admit m
         show m
         at 3s published m
         show m
         quota
         counts
         at 4s published m
         at 4s retriable m",
        &expect![[r#"
            at 1s schedule m key=k expire=1h                             → APPLIED SCHEDULED g0 v1
            at 2s admit m                                                → 1 accepted, 0 failed
            show m                                                       → PUBLISHING g0 v1 r2 due never expires 1h attempts 0/1 1:publishing
            at 3s published m                                            → 1 accepted, 0 failed
            show m                                                       → PUBLISHED g0 v1 r3 OK at 3s until 7d+1h with evidence attempts 0/1
            quota                                                        → 0 live, 0 bytes
            counts                                                       → PUBLISHED 1
            at 4s published m                                            → 0 accepted, 1 failed
            at 4s retriable m                                            → 0 accepted, 1 failed
        "#]],
    );
}

#[test]
fn permanent_is_a_dead_letter_at_once() {
    check(
        "at 1s schedule m expire=1h
         at 2s admit m
         at 3s permanent m
         show m
         counts",
        &expect![[r#"
            at 1s schedule m expire=1h                                   → APPLIED SCHEDULED g0 v1
            at 2s admit m                                                → 1 accepted, 0 failed
            at 3s permanent m                                            → 1 accepted, 0 failed
            show m                                                       → DEAD_LETTER g0 v1 r3 DESTINATION_DEFINITIVE_PERMANENT at 3s until 30d+1h attempts 0/1
            counts                                                       → DEAD_LETTER 1
        "#]],
    );
}

#[test]
fn t19_a_retry_comes_after_the_jitter_and_not_before_the_delivery_time() {
    check(
        "policy slow backoff=10s attempts=4 unknown=1
         at 1s schedule m policy=slow expire=1h
         at 2s admit m
         at 3s retriable m latest=4s
         show m
         at 10s admit m
         at 20s admit m
         at 21s retriable m
         show m",
        &expect![[r#"
            policy slow backoff=10s attempts=4 unknown=1                 → control OK
            at 1s schedule m policy=slow expire=1h                       → APPLIED SCHEDULED g0 v1
            at 2s admit m                                                → 1 accepted, 0 failed
            at 3s retriable m latest=4s                                  → 1 accepted, 0 failed
            show m                                                       → RETRY_WAIT g0 v1 r3 due 4s+965ms expires 1h attempts 1/1
            at 10s admit m                                               → 1 accepted, 0 failed
            at 20s admit m                                               → 0 accepted, 1 failed
            at 21s retriable m                                           → 1 accepted, 0 failed
            show m                                                       → RETRY_WAIT g0 v1 r5 due 25s+217ms expires 1h attempts 2/2
        "#]],
    );
}

#[test]
fn t19a_the_retry_duration_counts_from_the_first_charged_attempt() {
    check(
        "policy short duration=10s attempts=9 unknown=1
         at 1s schedule at-the-end policy=short expire=1h
         at 1s schedule beyond policy=short expire=1h
         at 2s admit at-the-end beyond earliest=2s latest=2s+500ms
         at 5s retriable at-the-end
         at 5s retriable beyond
         at 6s admit at-the-end beyond
         at 12s retriable at-the-end latest=12s+500ms
         at 12s retriable beyond latest=12s+501ms
         show at-the-end
         show beyond",
        &expect![[r#"
            policy short duration=10s attempts=9 unknown=1               → control OK
            at 1s schedule at-the-end policy=short expire=1h             → APPLIED SCHEDULED g0 v1
            at 1s schedule beyond policy=short expire=1h                 → APPLIED SCHEDULED g0 v1
            at 2s admit at-the-end beyond earliest=2s latest=2s+500ms    → 2 accepted, 0 failed
            at 5s retriable at-the-end                                   → 1 accepted, 0 failed
            at 5s retriable beyond                                       → 1 accepted, 0 failed
            at 6s admit at-the-end beyond                                → 2 accepted, 0 failed
            at 12s retriable at-the-end latest=12s+500ms                 → 1 accepted, 0 failed
            at 12s retriable beyond latest=12s+501ms                     → 1 accepted, 0 failed
            show at-the-end                                              → RETRY_WAIT g0 v1 r5 due 12s+500ms expires 1h attempts 2/2
            show beyond                                                  → DEAD_LETTER g0 v1 r5 DESTINATION_DEFINITIVE_RETRIABLE at 12s until 30d+1h attempts 2/2
        "#]],
    );
}

#[test]
fn lane_trouble_costs_a_message_nothing() {
    check(
        "policy short duration=10s attempts=2 unknown=1
         at 1s schedule m policy=short expire=10h
         at 2s admit m
         at 3s lane m
         show m
         # An hour of it later, the clock of retries has not started.
         at 1h admit m
         at 1h lane m
         at 2h admit m
         at 2h+1s retriable m
         show m
         # From here on it has, and lane trouble does not stop it.
         at 2h+2s admit m
         at 2h+3s lane m
         show m
         at 2h+9s admit m
         at 2h+11s retriable m
         show m",
        &expect![[r#"
            policy short duration=10s attempts=2 unknown=1               → control OK
            at 1s schedule m policy=short expire=10h                     → APPLIED SCHEDULED g0 v1
            at 2s admit m                                                → 1 accepted, 0 failed
            at 3s lane m                                                 → 1 accepted, 0 failed
            show m                                                       → SCHEDULED g0 v1 r3 due 1s expires 10h attempts 0/1
            at 1h admit m                                                → 1 accepted, 0 failed
            at 1h lane m                                                 → 1 accepted, 0 failed
            at 2h admit m                                                → 1 accepted, 0 failed
            at 2h+1s retriable m                                         → 1 accepted, 0 failed
            show m                                                       → RETRY_WAIT g0 v1 r7 due 2h+1s expires 10h attempts 1/3
            at 2h+2s admit m                                             → 1 accepted, 0 failed
            at 2h+3s lane m                                              → 1 accepted, 0 failed
            show m                                                       → RETRY_WAIT g0 v1 r9 due 2h+1s expires 10h attempts 1/4
            at 2h+9s admit m                                             → 1 accepted, 0 failed
            at 2h+11s retriable m                                        → 1 accepted, 0 failed
            show m                                                       → DEAD_LETTER g0 v1 r11 DESTINATION_DEFINITIVE_RETRIABLE at 2h+11s until 30d+3h attempts 2/5
        "#]],
    );
}

#[test]
fn a_retry_that_would_come_too_late_waits_for_the_fence() {
    check(
        "policy slow backoff=10h attempts=9 unknown=1 duration=10d
         at 1s schedule m policy=slow expire=10s
         at 2s admit m
         at 3s retriable m latest=3s
         show m
         at 20s fence 10s
         show m
         counts",
        &expect![[r#"
            policy slow backoff=10h attempts=9 unknown=1 duration=10d    → control OK
            at 1s schedule m policy=slow expire=10s                      → APPLIED SCHEDULED g0 v1
            at 2s admit m                                                → 1 accepted, 0 failed
            at 3s retriable m latest=3s                                  → 1 accepted, 0 failed
            show m                                                       → RETRY_WAIT g0 v1 r3 due never expires 10s attempts 1/1
            at 20s fence 10s                                             → 1 accepted, 0 failed
            show m                                                       → EXPIRED g0 v1 r4 ALREADY_EXPIRED at 10s until 7d+1h attempts 1/1
            counts                                                       → EXPIRED 1
        "#]],
    );
}

#[test]
fn unknown_retries_beside_the_attempt_while_the_budget_lasts() {
    check(
        "policy two attempts=9 unknown=2
         at 1s schedule m policy=two expire=1h
         at 2s admit m
         at 3s unknown m
         show m
         at 4s admit m
         show m
         at 5s retriable m
         show m
         at 6s admit m
         at 7s unknown m
         show m
         at 8s admit m
         at 9s unknown m
         show m
         counts",
        &expect![[r#"
            policy two attempts=9 unknown=2                              → control OK
            at 1s schedule m policy=two expire=1h                        → APPLIED SCHEDULED g0 v1
            at 2s admit m                                                → 1 accepted, 0 failed
            at 3s unknown m                                              → 1 accepted, 0 failed
            show m                                                       → UNCERTAIN g0 v1 r3 due 3s expires 1h attempts 1/1 1:unknown maybe-twice
            at 4s admit m                                                → 1 accepted, 0 failed
            show m                                                       → UNCERTAIN g0 v1 r4 due never expires 1h attempts 1/2 1:unknown 2:publishing maybe-twice
            at 5s retriable m                                            → 1 accepted, 0 failed
            show m                                                       → UNCERTAIN g0 v1 r5 due 5s expires 1h attempts 2/2 1:unknown maybe-twice
            at 6s admit m                                                → 1 accepted, 0 failed
            at 7s unknown m                                              → 1 accepted, 0 failed
            show m                                                       → UNCERTAIN g0 v1 r7 due 7s expires 1h attempts 3/3 1:unknown 3:unknown maybe-twice
            at 8s admit m                                                → 1 accepted, 0 failed
            at 9s unknown m                                              → 1 accepted, 0 failed
            show m                                                       → DEAD_LETTER g0 v1 r9 DESTINATION_OUTCOME_UNKNOWN at 9s until 30d+1h attempts 3/4 1:unknown 3:unknown 4:unknown maybe-twice
            counts                                                       → DEAD_LETTER 1
        "#]],
    );
}

#[test]
fn a_policy_may_give_up_at_the_first_doubt() {
    check(
        "policy careful terminal
         at 1s schedule m policy=careful expire=1h
         at 2s admit m
         at 3s unknown m
         show m
         at 4s resolve published m
         show m",
        &expect![[r#"
            policy careful terminal                                      → control OK
            at 1s schedule m policy=careful expire=1h                    → APPLIED SCHEDULED g0 v1
            at 2s admit m                                                → 1 accepted, 0 failed
            at 3s unknown m                                              → 1 accepted, 0 failed
            show m                                                       → DEAD_LETTER g0 v1 r3 DESTINATION_OUTCOME_UNKNOWN at 3s until 30d+1h attempts 0/1 1:unknown maybe-twice
            at 4s resolve published m                                    → 1 accepted, 0 failed
            show m                                                       → DEAD_LETTER g0 v1 r4 DESTINATION_OUTCOME_UNKNOWN at 3s until 30d+1h attempts 0/1 maybe-twice
        "#]],
    );
}

#[test]
fn a_policy_that_holds_is_refused() {
    check(
        "policy held hold\nat 1s schedule m policy=held",
        &expect![[r#"
            policy held hold                                             → control SERVER_INVALID_COMMAND (HoldPolicy)
            at 1s schedule m policy=held                                 → REJECTED RETRY_POLICY_NOT_ACTIVE_AT_SOURCE_POSITION
        "#]],
    );
}

#[test]
fn published_by_an_old_attempt_ends_a_generation_while_a_newer_one_publishes() {
    check(
        "at 1s schedule m expire=1h
         at 2s admit m
         at 3s unknown m
         at 4s admit m
         at 5s resolve published m attempt=1
         show m
         quota
         # The newer attempt stays an obligation; what it says changes no decision.
         at 6s retriable m attempt=2
         show m",
        &expect![[r#"
            at 1s schedule m expire=1h                                   → APPLIED SCHEDULED g0 v1
            at 2s admit m                                                → 1 accepted, 0 failed
            at 3s unknown m                                              → 1 accepted, 0 failed
            at 4s admit m                                                → 1 accepted, 0 failed
            at 5s resolve published m attempt=1                          → 1 accepted, 0 failed
            show m                                                       → PUBLISHED g0 v1 r5 OK at 5s until 7d+1h with evidence attempts 1/2 2:publishing maybe-twice
            quota                                                        → 0 live, 0 bytes
            at 6s retriable m attempt=2                                  → 1 accepted, 0 failed
            show m                                                       → PUBLISHED g0 v1 r6 OK at 5s until 7d+1h with evidence attempts 1/2 maybe-twice
        "#]],
    );
}

#[test]
fn an_obligation_of_an_ended_row_settles_itself() {
    check(
        "at 1s schedule a expire=1h
         at 1s schedule b expire=1h
         at 2s admit a b
         at 3s unknown a
         at 3s unknown b
         at 4s admit a b
         at 5s resolve published a attempt=1
         at 5s resolve published b attempt=1
         at 6s published a attempt=2
         show a
         at 6s unknown b attempt=2
         show b
         at 7s resolve absent b attempt=2
         show b
         at 8s resolve absent b attempt=2",
        &expect![[r#"
            at 1s schedule a expire=1h                                   → APPLIED SCHEDULED g0 v1
            at 1s schedule b expire=1h                                   → APPLIED SCHEDULED g0 v1
            at 2s admit a b                                              → 2 accepted, 0 failed
            at 3s unknown a                                              → 1 accepted, 0 failed
            at 3s unknown b                                              → 1 accepted, 0 failed
            at 4s admit a b                                              → 2 accepted, 0 failed
            at 5s resolve published a attempt=1                          → 1 accepted, 0 failed
            at 5s resolve published b attempt=1                          → 1 accepted, 0 failed
            at 6s published a attempt=2                                  → 1 accepted, 0 failed
            show a                                                       → PUBLISHED g0 v1 r6 OK at 5s until 7d+1h with evidence attempts 1/2 maybe-twice
            at 6s unknown b attempt=2                                    → 1 accepted, 0 failed
            show b                                                       → PUBLISHED g0 v1 r6 OK at 5s until 7d+1h with evidence attempts 1/2 2:unknown maybe-twice
            at 7s resolve absent b attempt=2                             → 1 accepted, 0 failed
            show b                                                       → PUBLISHED g0 v1 r7 OK at 5s until 7d+1h with evidence attempts 1/2 maybe-twice
            at 8s resolve absent b attempt=2                             → 0 accepted, 1 failed
        "#]],
    );
}

#[test]
fn published_by_the_only_uncertain_attempt_is_no_duplicate() {
    check(
        "at 1s schedule m expire=1h
         at 2s admit m
         at 3s unknown m
         show m
         at 4s resolve published m
         show m",
        &expect![[r#"
            at 1s schedule m expire=1h                                   → APPLIED SCHEDULED g0 v1
            at 2s admit m                                                → 1 accepted, 0 failed
            at 3s unknown m                                              → 1 accepted, 0 failed
            show m                                                       → UNCERTAIN g0 v1 r3 due 3s expires 1h attempts 1/1 1:unknown maybe-twice
            at 4s resolve published m                                    → 1 accepted, 0 failed
            show m                                                       → PUBLISHED g0 v1 r4 OK at 4s until 7d+1h with evidence attempts 1/1
        "#]],
    );
}

#[test]
fn proof_of_absence_leaves_waiting_work_where_it_is() {
    check(
        "policy slow backoff=10m attempts=9 unknown=3
         at 1s schedule m policy=slow expire=1h
         at 2s admit m
         at 3s unknown m
         show m
         at 4s resolve absent m
         show m
         at 5s cancel m",
        &expect![[r#"
            policy slow backoff=10m attempts=9 unknown=3                 → control OK
            at 1s schedule m policy=slow expire=1h                       → APPLIED SCHEDULED g0 v1
            at 2s admit m                                                → 1 accepted, 0 failed
            at 3s unknown m                                              → 1 accepted, 0 failed
            show m                                                       → UNCERTAIN g0 v1 r3 due 1m+936ms expires 1h attempts 1/1 1:unknown maybe-twice
            at 4s resolve absent m                                       → 1 accepted, 0 failed
            show m                                                       → RETRY_WAIT g0 v1 r4 due 1m+936ms expires 1h attempts 1/1
            at 5s cancel m                                               → APPLIED CANCELED g0 v2
        "#]],
    );
}

#[test]
fn proof_of_absence_beside_a_publishing_attempt_clears_the_doubt() {
    check(
        "at 1s schedule m expire=1h
         at 2s admit m
         at 3s unknown m
         at 4s admit m
         at 5s resolve absent m attempt=1
         show m
         at 6s retriable m attempt=2
         show m",
        &expect![[r#"
            at 1s schedule m expire=1h                                   → APPLIED SCHEDULED g0 v1
            at 2s admit m                                                → 1 accepted, 0 failed
            at 3s unknown m                                              → 1 accepted, 0 failed
            at 4s admit m                                                → 1 accepted, 0 failed
            at 5s resolve absent m attempt=1                             → 1 accepted, 0 failed
            show m                                                       → PUBLISHING g0 v1 r5 due never expires 1h attempts 1/2 2:publishing
            at 6s retriable m attempt=2                                  → 1 accepted, 0 failed
            show m                                                       → RETRY_WAIT g0 v1 r6 due 6s expires 1h attempts 2/2
        "#]],
    );
}

#[test]
fn evidence_is_about_uncertain_attempts_and_outcomes_about_publishing_ones() {
    check(
        "at 1s schedule m expire=1h
         at 2s admit m
         at 3s resolve published m attempt=1
         at 3s unknown m
         at 4s published m attempt=1
         at 4s resolve unknown m attempt=1
         at 4s retriable m attempt=2
         at 4s published m attempt=1 generation=1
         show m",
        &expect![[r#"
            at 1s schedule m expire=1h                                   → APPLIED SCHEDULED g0 v1
            at 2s admit m                                                → 1 accepted, 0 failed
            at 3s resolve published m attempt=1                          → 0 accepted, 1 failed
            at 3s unknown m                                              → 1 accepted, 0 failed
            at 4s published m attempt=1                                  → 0 accepted, 1 failed
            at 4s resolve unknown m attempt=1                            → 0 accepted, 1 failed
            at 4s retriable m attempt=2                                  → 0 accepted, 1 failed
            at 4s published m attempt=1 generation=1                     → 0 accepted, 1 failed
            show m                                                       → UNCERTAIN g0 v1 r3 due 3s expires 1h attempts 1/1 1:unknown maybe-twice
        "#]],
    );
}

#[test]
fn a_refusal_ends_what_waits() {
    check(
        "at 1s schedule a expire=1h
         at 1s schedule b expire=1h
         at 2s refuse a rev=2
         at 2s refuse a generation=1
         at 2s refuse a
         show a
         at 2s refuse a
         at 3s admit b
         at 4s refuse b
         show b",
        &expect![[r#"
            at 1s schedule a expire=1h                                   → APPLIED SCHEDULED g0 v1
            at 1s schedule b expire=1h                                   → APPLIED SCHEDULED g0 v1
            at 2s refuse a rev=2                                         → 0 accepted, 1 failed
            at 2s refuse a generation=1                                  → 0 accepted, 1 failed
            at 2s refuse a                                               → 1 accepted, 0 failed
            show a                                                       → DEAD_LETTER g0 v1 r2 CLAIM_PERMANENT_FAILURE at 2s until 30d+1h
            at 2s refuse a                                               → 0 accepted, 1 failed
            at 3s admit b                                                → 1 accepted, 0 failed
            at 4s refuse b                                               → 0 accepted, 1 failed
            show b                                                       → PUBLISHING g0 v1 r2 due never expires 1h attempts 0/1 1:publishing
        "#]],
    );
}

#[test]
fn a_deadline_that_closes_on_a_publishing_attempt_waits_for_its_outcome() {
    check(
        "policy one attempts=1 unknown=0 terminal
         at 1s schedule published expire=10s
         at 1s schedule lane expire=10s
         at 1s schedule retriable expire=10s
         at 1s schedule used-up expire=10s policy=one
         at 1s schedule unknown expire=10s
         at 1s schedule untouched expire=10s
         at 2s admit published lane retriable used-up unknown
         at 20s fence 10s
         counts
         at 21s published published
         at 21s lane lane
         at 21s retriable retriable
         at 21s retriable used-up
         at 21s unknown unknown
         show published
         show lane
         show retriable
         show used-up
         show unknown
         show untouched",
        &expect![[r#"
            policy one attempts=1 unknown=0 terminal                     → control OK
            at 1s schedule published expire=10s                          → APPLIED SCHEDULED g0 v1
            at 1s schedule lane expire=10s                               → APPLIED SCHEDULED g0 v1
            at 1s schedule retriable expire=10s                          → APPLIED SCHEDULED g0 v1
            at 1s schedule used-up expire=10s policy=one                 → APPLIED SCHEDULED g0 v1
            at 1s schedule unknown expire=10s                            → APPLIED SCHEDULED g0 v1
            at 1s schedule untouched expire=10s                          → APPLIED SCHEDULED g0 v1
            at 2s admit published lane retriable used-up unknown         → 5 accepted, 0 failed
            at 20s fence 10s                                             → 6 accepted, 0 failed
            counts                                                       → PUBLISHING 5, EXPIRED 1
            at 21s published published                                   → 1 accepted, 0 failed
            at 21s lane lane                                             → 1 accepted, 0 failed
            at 21s retriable retriable                                   → 1 accepted, 0 failed
            at 21s retriable used-up                                     → 1 accepted, 0 failed
            at 21s unknown unknown                                       → 1 accepted, 0 failed
            show published                                               → PUBLISHED g0 v1 r3 OK at 21s until 7d+1h with evidence attempts 0/1
            show lane                                                    → EXPIRED g0 v1 r3 ALREADY_EXPIRED at 10s until 7d+1h attempts 0/1
            show retriable                                               → EXPIRED g0 v1 r3 ALREADY_EXPIRED at 10s until 7d+1h attempts 1/1
            show used-up                                                 → DEAD_LETTER g0 v1 r3 DESTINATION_DEFINITIVE_RETRIABLE at 21s until 30d+1h attempts 1/1
            show unknown                                                 → DEAD_LETTER g0 v1 r3 DESTINATION_OUTCOME_UNKNOWN at 10s until 30d+1h attempts 1/1 1:unknown maybe-twice
            show untouched                                               → EXPIRED g0 v1 r2 ALREADY_EXPIRED at 10s until 7d+1h
        "#]],
    );
}

#[test]
fn what_was_possibly_delivered_is_never_called_expired() {
    check(
        "at 1s schedule a expire=10s
         at 2s admit a
         at 3s unknown a
         at 20s fence 10s
         show a
         at 21s resolve published a
         show a",
        &expect![[r#"
            at 1s schedule a expire=10s                                  → APPLIED SCHEDULED g0 v1
            at 2s admit a                                                → 1 accepted, 0 failed
            at 3s unknown a                                              → 1 accepted, 0 failed
            at 20s fence 10s                                             → 1 accepted, 0 failed
            show a                                                       → DEAD_LETTER g0 v1 r4 DESTINATION_OUTCOME_UNKNOWN at 10s until 30d+1h attempts 1/1 1:unknown maybe-twice
            at 21s resolve published a                                   → 1 accepted, 0 failed
            show a                                                       → DEAD_LETTER g0 v1 r5 DESTINATION_OUTCOME_UNKNOWN at 10s until 30d+1h attempts 1/1 maybe-twice
        "#]],
    );
}

#[test]
fn an_admission_that_was_persisted_in_time_is_honoured() {
    check(
        "at 1s schedule m expire=10s
         at 9s admit m
         at 20s fence 10s
         show m
         at 21s published m
         show m",
        &expect![[r#"
            at 1s schedule m expire=10s                                  → APPLIED SCHEDULED g0 v1
            at 9s admit m                                                → 1 accepted, 0 failed
            at 20s fence 10s                                             → 1 accepted, 0 failed
            show m                                                       → PUBLISHING g0 v1 r2 due never expires 10s attempts 0/1 1:publishing
            at 21s published m                                           → 1 accepted, 0 failed
            show m                                                       → PUBLISHED g0 v1 r3 OK at 21s until 7d+1h with evidence attempts 0/1
        "#]],
    );
}
