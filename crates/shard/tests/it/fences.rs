//! Fences: what closes, who may say so, and the bounded sweep behind (v2 §4, T16).

use expect_test::expect;
use protocol::mutation_v2::Limits;
use testkit::log::default_limits;

use crate::story::{check, check_with};

#[test]
fn t16_a_fence_is_proven_by_its_own_time_and_its_margin() {
    check(
        "at 20s fence 10s earliest=11s-1ms
         at 20s fence 10s earliest=11s
         at 20s fence 10s+1ms earliest=11s",
        &expect![[r#"
            at 20s fence 10s earliest=11s-1ms                            → position UNAUTHORIZED_SYSTEM_MUTATION (FenceNotProven)
            at 20s fence 10s earliest=11s                                → 0 accepted, 0 failed
            at 20s fence 10s+1ms earliest=11s                            → position UNAUTHORIZED_SYSTEM_MUTATION (FenceNotProven)
        "#]],
    );
}

#[test]
fn a_fence_is_not_ahead_of_the_logs_clock() {
    check(
        "at 10s fence 10s+11ms
         at 10s fence 10s+10ms
         at 10s schedule m deliver=10s expire=15s
         at 20s fence 15s-1ms
         show m
         at 20s fence 15s
         show m",
        &expect![[r#"
            at 10s fence 10s+11ms                                        → position UNAUTHORIZED_SYSTEM_MUTATION (FenceNotProven)
            at 10s fence 10s+10ms                                        → 0 accepted, 0 failed
            at 10s schedule m deliver=10s expire=15s                     → APPLIED SCHEDULED g0 v1
            at 20s fence 15s-1ms                                         → 0 accepted, 0 failed
            show m                                                       → SCHEDULED g0 v1 r1 due 10s expires 15s
            at 20s fence 15s                                             → 1 accepted, 0 failed
            show m                                                       → EXPIRED g0 v1 r2 ALREADY_EXPIRED at 15s until 7d+1h
        "#]],
    );
}

#[test]
fn t11_a_fence_with_a_wide_interval_closes_nothing() {
    check(
        "at 20s schedule m deliver=20s expire=25s
         at 1m fence 30s earliest=40s latest=41s+1ms
         show m
         at 1m fence 30s earliest=40s latest=41s
         show m",
        &expect![[r#"
            at 20s schedule m deliver=20s expire=25s                     → APPLIED SCHEDULED g0 v1
            at 1m fence 30s earliest=40s latest=41s+1ms                  → position STALE_SYSTEM_MUTATION (IntervalTooWide)
            show m                                                       → SCHEDULED g0 v1 r1 due 20s expires 25s
            at 1m fence 30s earliest=40s latest=41s                      → 1 accepted, 0 failed
            show m                                                       → EXPIRED g0 v1 r2 ALREADY_EXPIRED at 25s until 7d+1h
        "#]],
    );
}

#[test]
fn closed_never_falls() {
    check(
        "at 1m fence 30s
         at 1m schedule m deliver=1m expire=65s
         at 2m fence 65s max=0
         at 2m fence 10s
         at 2m cancel m",
        &expect![[r#"
            at 1m fence 30s                                              → 0 accepted, 0 failed
            at 1m schedule m deliver=1m expire=65s                       → APPLIED SCHEDULED g0 v1
            at 2m fence 65s max=0                                        → 0 accepted, 0 failed
            at 2m fence 10s                                              → 1 accepted, 0 failed
            at 2m cancel m                                               → APPLIED ALREADY_EXPIRED g0 v1
        "#]],
    );
}

/// T7: certainly expired, for a fence, means its deadline is at or before the closed time.
#[test]
fn t7_what_is_closed_is_expired_for_everyone_at_once() {
    check(
        "at 1s schedule at-the-fence expire=10s key=a
         at 1s schedule behind-it expire=10s+1ms
         at 1m fence 10s max=0
         show at-the-fence
         show behind-it
         # Nothing is swept yet, and nobody can tell but by the counts.
         counts
         quota
         at 1m cancel at-the-fence
         counts
         quota",
        &expect![[r#"
            at 1s schedule at-the-fence expire=10s key=a                 → APPLIED SCHEDULED g0 v1
            at 1s schedule behind-it expire=10s+1ms                      → APPLIED SCHEDULED g0 v1
            at 1m fence 10s max=0                                        → 0 accepted, 0 failed
            show at-the-fence                                            → EXPIRED g0 v1 r1 due 1s expires 10s
            show behind-it                                               → SCHEDULED g0 v1 r1 due 1s expires 10s+1ms
            counts                                                       → SCHEDULED 2
            quota                                                        → 2 live, 0 bytes
            at 1m cancel at-the-fence                                    → APPLIED ALREADY_EXPIRED g0 v1
            counts                                                       → SCHEDULED 1, EXPIRED 1
            quota                                                        → 1 live, 0 bytes
        "#]],
    );
}

#[test]
fn a_sweep_visits_a_bounded_number_earliest_deadline_first() {
    check(
        "at 1s schedule third expire=12s
         at 1s schedule first expire=10s
         at 1s schedule second expire=11s
         at 1s schedule publishing expire=9s
         at 2s admit publishing
         at 1m fence 20s max=2
         counts
         at 1m fence 20s max=1
         counts
         at 1m fence 20s max=5
         counts
         at 1m fence 20s
         quota",
        &expect![[r#"
            at 1s schedule third expire=12s                              → APPLIED SCHEDULED g0 v1
            at 1s schedule first expire=10s                              → APPLIED SCHEDULED g0 v1
            at 1s schedule second expire=11s                             → APPLIED SCHEDULED g0 v1
            at 1s schedule publishing expire=9s                          → APPLIED SCHEDULED g0 v1
            at 2s admit publishing                                       → 1 accepted, 0 failed
            at 1m fence 20s max=2                                        → 2 accepted, 0 failed
            counts                                                       → SCHEDULED 2, PUBLISHING 1, EXPIRED 1
            at 1m fence 20s max=1                                        → 1 accepted, 0 failed
            counts                                                       → SCHEDULED 1, PUBLISHING 1, EXPIRED 2
            at 1m fence 20s max=5                                        → 1 accepted, 0 failed
            counts                                                       → PUBLISHING 1, EXPIRED 3
            at 1m fence 20s                                              → 0 accepted, 0 failed
            quota                                                        → 1 live, 0 bytes
        "#]],
    );
}

#[test]
fn genesis_bounds_every_sweep() {
    let limits = Limits { expire_per_fence_max: 1, ..default_limits() };
    check_with(
        limits,
        "at 1s schedule a expire=10s
         at 1s schedule b expire=10s
         at 1m fence 20s max=100
         counts",
        &expect![[r#"
            at 1s schedule a expire=10s                                  → APPLIED SCHEDULED g0 v1
            at 1s schedule b expire=10s                                  → APPLIED SCHEDULED g0 v1
            at 1m fence 20s max=100                                      → 1 accepted, 0 failed
            counts                                                       → SCHEDULED 1, EXPIRED 1
        "#]],
    );
}

/// The deadline's key is gone after one visit, also of a message that could not be ended then.
#[test]
fn a_message_is_visited_once() {
    check(
        "at 1s schedule m expire=10s
         at 2s admit m
         at 1m fence 20s
         at 1m fence 21s
         at 1m lane m
         show m
         at 1m fence 22s
         quota",
        &expect![[r#"
            at 1s schedule m expire=10s                                  → APPLIED SCHEDULED g0 v1
            at 2s admit m                                                → 1 accepted, 0 failed
            at 1m fence 20s                                              → 1 accepted, 0 failed
            at 1m fence 21s                                              → 0 accepted, 0 failed
            at 1m lane m                                                 → 1 accepted, 0 failed
            show m                                                       → EXPIRED g0 v1 r3 ALREADY_EXPIRED at 10s until 7d+1h attempts 0/1
            at 1m fence 22s                                              → 0 accepted, 0 failed
            quota                                                        → 0 live, 0 bytes
        "#]],
    );
}

#[test]
fn touching_and_sweeping_come_to_the_same() {
    check(
        "at 1s schedule swept expire=10s
         at 1s schedule touched expire=10s
         at 1m fence 20s max=1
         at 2m cancel touched
         show swept
         show touched",
        &expect![[r#"
            at 1s schedule swept expire=10s                              → APPLIED SCHEDULED g0 v1
            at 1s schedule touched expire=10s                            → APPLIED SCHEDULED g0 v1
            at 1m fence 20s max=1                                        → 1 accepted, 0 failed
            at 2m cancel touched                                         → APPLIED ALREADY_EXPIRED g0 v1
            show swept                                                   → EXPIRED g0 v1 r2 ALREADY_EXPIRED at 10s until 7d+1h
            show touched                                                 → EXPIRED g0 v1 r2 ALREADY_EXPIRED at 10s until 7d+1h
        "#]],
    );
}

#[test]
fn a_moved_deadline_is_the_only_one() {
    check(
        "at 1s schedule m expire=10s
         at 2s reschedule m deliver=20s expire=40s
         at 1m fence 39s
         show m
         at 1m fence 40s
         show m",
        &expect![[r#"
            at 1s schedule m expire=10s                                  → APPLIED SCHEDULED g0 v1
            at 2s reschedule m deliver=20s expire=40s                    → APPLIED SUPERSEDED g1 v2
            at 1m fence 39s                                              → 0 accepted, 0 failed
            show m                                                       → SCHEDULED g1 v2 r2 due 20s expires 40s
            at 1m fence 40s                                              → 1 accepted, 0 failed
            show m                                                       → EXPIRED g1 v2 r3 ALREADY_EXPIRED at 40s until 7d+1h
        "#]],
    );
}
