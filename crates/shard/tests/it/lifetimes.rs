//! Logical lifetimes (v2 §8): every row counts as absent from its end on, and its end is a function of the fence alone.
//!
//! The physical release between the lines must change nothing that anybody sees.

use expect_test::expect;
use protocol::mutation_v2::Limits;
use testkit::log::default_limits;

use crate::story::{check, check_with};

#[test]
fn a_command_result_ends_with_its_retry_window() {
    check(
        "at 0 schedule m deliver=10d expire=20d id=c
         at 2d fence 1d-1ms
         release
         result c
         at 1d again c
         at 2d fence 1d
         result c
         release
         result c
         at 1d again c
         result c",
        &expect![[r#"
            at 0 schedule m deliver=10d expire=20d id=c                  → APPLIED SCHEDULED g0 v1
            at 2d fence 1d-1ms                                           → 0 accepted, 0 failed
            release                                                      → released
            result c                                                     → APPLIED SCHEDULED g0 v1
            at 1d again c                                                → duplicate of APPLIED SCHEDULED g0 v1
            at 2d fence 1d                                               → 0 accepted, 0 failed
            result c                                                     → unknown
            release                                                      → released
            result c                                                     → unknown
            at 1d again c                                                → position COMMAND_RETRY_WINDOW_EXPIRED
            result c                                                     → unknown
        "#]],
    );
}

#[test]
fn an_operation_ends_with_its_retry_window() {
    check(
        "at 0 control pause orders operation=o until=1h
         at 1h control pause orders operation=o until=1h
         at 2h fence 1h-1ms
         release
         at 1h control pause orders operation=o until=1h
         at 2h fence 1h
         release
         at 1h control pause orders operation=o until=1h
         # Its id is free again for an operation with a later window.
         at 1h control resume orders operation=o until=3h",
        &expect![[r#"
            at 0 control pause orders operation=o until=1h               → control OK
            at 1h control pause orders operation=o until=1h              → control OK
            at 2h fence 1h-1ms                                           → 0 accepted, 0 failed
            release                                                      → released
            at 1h control pause orders operation=o until=1h              → control OK
            at 2h fence 1h                                               → 0 accepted, 0 failed
            release                                                      → released
            at 1h control pause orders operation=o until=1h              → position SYSTEM_MUTATION_RETRY_WINDOW_EXPIRED
            at 1h control resume orders operation=o until=3h             → control OK
        "#]],
    );
}

#[test]
fn a_position_exception_ends_with_the_receipt_query_window() {
    check(
        "at 0 schedule m deliver=10d expire=20d id=c
         at 1h cancel m id=c
         result c
         at 2d fence 1d+1h-1ms
         release
         result c
         at 2d fence 1d+1h
         result c
         release
         result c",
        &expect![[r#"
            at 0 schedule m deliver=10d expire=20d id=c                  → APPLIED SCHEDULED g0 v1
            at 1h cancel m id=c                                          → position COMMAND_ID_CONFLICT
            result c                                                     → position COMMAND_ID_CONFLICT
            at 2d fence 1d+1h-1ms                                        → 0 accepted, 0 failed
            release                                                      → released
            result c                                                     → position COMMAND_ID_CONFLICT
            at 2d fence 1d+1h                                            → 0 accepted, 0 failed
            result c                                                     → unknown
            release                                                      → released
            result c                                                     → unknown
        "#]],
    );
}

#[test]
fn a_terminal_message_ends_after_its_retention() {
    check(
        "at 0 schedule m deliver=1h key=k
         at 1h cancel m
         show m
         at 8d fence 7d+1h-1ms
         release
         show m
         key k
         counts
         at 8d fence 7d+1h
         show m
         key k
         counts
         release
         show m
         key k
         counts
         at 8d cancel m",
        &expect![[r#"
            at 0 schedule m deliver=1h key=k                             → APPLIED SCHEDULED g0 v1
            at 1h cancel m                                               → APPLIED CANCELED g0 v2
            show m                                                       → CANCELED g0 v2 r2 CANCELED at 1h until 7d+1h
            at 8d fence 7d+1h-1ms                                        → 0 accepted, 0 failed
            release                                                      → released
            show m                                                       → CANCELED g0 v2 r2 CANCELED at 1h until 7d+1h
            key k                                                        → m
            counts                                                       → CANCELED 1
            at 8d fence 7d+1h                                            → 0 accepted, 0 failed
            show m                                                       → gone
            key k                                                        → nobody
            counts                                                       → 
            release                                                      → released
            show m                                                       → gone
            key k                                                        → nobody
            counts                                                       → 
            at 8d cancel m                                               → APPLIED NOT_FOUND
        "#]],
    );
}

#[test]
fn a_dead_letter_has_its_own_longer_retention() {
    check(
        "at 0 schedule m deliver=1h key=k
         at 1h admit m
         at 1h permanent m
         at 31d fence 30d+1h-1ms
         release
         show m
         key k
         counts
         at 31d fence 30d+1h
         show m
         key k
         counts
         release
         counts",
        &expect![[r#"
            at 0 schedule m deliver=1h key=k                             → APPLIED SCHEDULED g0 v1
            at 1h admit m                                                → 1 accepted, 0 failed
            at 1h permanent m                                            → 1 accepted, 0 failed
            at 31d fence 30d+1h-1ms                                      → 0 accepted, 0 failed
            release                                                      → released
            show m                                                       → DEAD_LETTER g0 v1 r3 DESTINATION_DEFINITIVE_PERMANENT at 1h until 30d+1h attempts 0/1
            key k                                                        → m
            counts                                                       → DEAD_LETTER 1
            at 31d fence 30d+1h                                          → 0 accepted, 0 failed
            show m                                                       → gone
            key k                                                        → nobody
            counts                                                       → 
            release                                                      → released
            counts                                                       → 
        "#]],
    );
}

#[test]
fn retention_ends_on_the_hour() {
    check(
        "at 1ms schedule just-after deliver=1h
         at 1ms cancel just-after
         at 1h schedule on-the-hour deliver=2h
         at 1h cancel on-the-hour
         show just-after
         show on-the-hour
         counts
         at 8d fence 7d+1h
         counts",
        &expect![[r#"
            at 1ms schedule just-after deliver=1h                        → APPLIED SCHEDULED g0 v1
            at 1ms cancel just-after                                     → APPLIED CANCELED g0 v2
            at 1h schedule on-the-hour deliver=2h                        → APPLIED SCHEDULED g0 v1
            at 1h cancel on-the-hour                                     → APPLIED CANCELED g0 v2
            show just-after                                              → CANCELED g0 v2 r2 CANCELED at 1ms until 7d+1h
            show on-the-hour                                             → CANCELED g0 v2 r2 CANCELED at 1h until 7d+1h
            counts                                                       → CANCELED 2
            at 8d fence 7d+1h                                            → 0 accepted, 0 failed
            counts                                                       → 
        "#]],
    );
}

/// Until its end a terminal message's id is in conflict; from then on T14 has closed it for ever.
#[test]
fn an_id_is_in_conflict_and_then_expired_and_never_free() {
    let limits = Limits { terminal_retention_ms: 1_000, ..default_limits() };
    check_with(
        limits,
        "at 0 schedule m made=5m
         at 1s cancel m
         # The id could be used until a day after it was made; the row stays for that long, to the hour.
         show m
         at 1d+5m schedule m
         at 2d fence 1d+1h-1ms
         release
         at 1d+5m schedule m
         at 2d fence 1d+1h
         release
         at 1d+5m schedule m",
        &expect![[r#"
            at 0 schedule m made=5m                                      → APPLIED SCHEDULED g0 v1
            at 1s cancel m                                               → APPLIED CANCELED g0 v2
            show m                                                       → CANCELED g0 v2 r2 CANCELED at 1s until 1d+1h
            at 1d+5m schedule m                                          → REJECTED DELAY_MESSAGE_ID_CONFLICT
            at 2d fence 1d+1h-1ms                                        → 0 accepted, 0 failed
            release                                                      → released
            at 1d+5m schedule m                                          → REJECTED DELAY_MESSAGE_ID_CONFLICT
            at 2d fence 1d+1h                                            → 0 accepted, 0 failed
            release                                                      → released
            at 1d+5m schedule m                                          → REJECTED DELAY_MESSAGE_ID_EXPIRED
        "#]],
    );
}

#[test]
fn an_expiry_that_nobody_swept_ends_all_the_same() {
    check(
        "at 0 schedule m deliver=1h expire=2h key=k
         at 10d fence 7d+2h-1ms max=0
         show m
         key k
         at 10d fence 7d+2h max=0
         show m
         key k
         at 10d cancel m
         show m
         counts",
        &expect![[r#"
            at 0 schedule m deliver=1h expire=2h key=k                   → APPLIED SCHEDULED g0 v1
            at 10d fence 7d+2h-1ms max=0                                 → 0 accepted, 0 failed
            show m                                                       → EXPIRED g0 v1 r1 due 1h expires 2h
            key k                                                        → m
            at 10d fence 7d+2h max=0                                     → 0 accepted, 0 failed
            show m                                                       → gone
            key k                                                        → nobody
            at 10d cancel m                                              → APPLIED NOT_FOUND
            show m                                                       → gone
            counts                                                       → 
        "#]],
    );
}

#[test]
fn a_business_key_follows_its_newest_message() {
    check(
        "at 0 schedule old deliver=1h key=k
         at 1h cancel old
         at 2h schedule new deliver=3h key=k
         at 3h cancel new
         at 8d fence 7d+1h
         release
         show old
         key k
         at 8d fence 7d+3h
         key k",
        &expect![[r#"
            at 0 schedule old deliver=1h key=k                           → APPLIED SCHEDULED g0 v1
            at 1h cancel old                                             → APPLIED CANCELED g0 v2
            at 2h schedule new deliver=3h key=k                          → APPLIED SCHEDULED g0 v1
            at 3h cancel new                                             → APPLIED CANCELED g0 v2
            at 8d fence 7d+1h                                            → 0 accepted, 0 failed
            release                                                      → released
            show old                                                     → gone
            key k                                                        → new
            at 8d fence 7d+3h                                            → 0 accepted, 0 failed
            key k                                                        → nobody
        "#]],
    );
}

#[test]
fn an_uncertain_attempt_goes_with_its_message() {
    check(
        "policy careful terminal
         at 0 schedule m policy=careful
         at 1s admit m
         at 2s unknown m
         at 31d fence 30d+1h-1ms
         release
         show m
         at 31d fence 30d+1h
         at 31d resolve published m
         show m
         release
         at 31d resolve published m",
        &expect![[r#"
            policy careful terminal                                      → control OK
            at 0 schedule m policy=careful                               → APPLIED SCHEDULED g0 v1
            at 1s admit m                                                → 1 accepted, 0 failed
            at 2s unknown m                                              → 1 accepted, 0 failed
            at 31d fence 30d+1h-1ms                                      → 0 accepted, 0 failed
            release                                                      → released
            show m                                                       → DEAD_LETTER g0 v1 r3 DESTINATION_OUTCOME_UNKNOWN at 2s until 30d+1h attempts 0/1 1:unknown maybe-twice
            at 31d fence 30d+1h                                          → 0 accepted, 0 failed
            at 31d resolve published m                                   → 0 accepted, 1 failed
            show m                                                       → gone
            release                                                      → released
            at 31d resolve published m                                   → 0 accepted, 1 failed
        "#]],
    );
}

#[test]
fn an_obligation_keeps_no_message_longer() {
    check(
        "at 0 schedule m expire=1h
         at 1s admit m
         at 2s unknown m
         at 3s admit m
         at 4s resolve published m attempt=1
         at 8d fence 7d+1h
         release
         at 8d published m attempt=2
         show m",
        &expect![[r#"
            at 0 schedule m expire=1h                                    → APPLIED SCHEDULED g0 v1
            at 1s admit m                                                → 1 accepted, 0 failed
            at 2s unknown m                                              → 1 accepted, 0 failed
            at 3s admit m                                                → 1 accepted, 0 failed
            at 4s resolve published m attempt=1                          → 1 accepted, 0 failed
            at 8d fence 7d+1h                                            → 0 accepted, 0 failed
            release                                                      → released
            at 8d published m attempt=2                                  → 0 accepted, 1 failed
            show m                                                       → gone
        "#]],
    );
}

#[test]
fn a_lane_never_ends() {
    check(
        "at 0 schedule m deliver=1h
         at 1h cancel m
         at 40d fence 40d
         release
         control pause-lane m version=1",
        &expect![[r#"
            at 0 schedule m deliver=1h                                   → APPLIED SCHEDULED g0 v1
            at 1h cancel m                                               → APPLIED CANCELED g0 v2
            at 40d fence 40d                                             → 0 accepted, 0 failed
            release                                                      → released
            control pause-lane m version=1                               → control OK
        "#]],
    );
}

#[test]
fn a_store_that_is_opened_again_has_forgotten_nothing() {
    check(
        "policy two attempts=9 unknown=2
         at 0 schedule m deliver=1s policy=two key=k id=c
         at 1s admit m
         at 2s unknown m
         reopen
         show m
         at 3s again c
         at 3s admit m
         reopen
         at 4s resolve published m attempt=1
         reopen
         show m
         control pause-lane m
         reopen
         at 5s schedule n deliver=1s
         at 6s admit n
         at 7s fence 6s
         reopen
         at 7s fence 6s",
        &expect![[r#"
            policy two attempts=9 unknown=2                              → control OK
            at 0 schedule m deliver=1s policy=two key=k id=c             → APPLIED SCHEDULED g0 v1
            at 1s admit m                                                → 1 accepted, 0 failed
            at 2s unknown m                                              → 1 accepted, 0 failed
            reopen                                                       → opened
            show m                                                       → UNCERTAIN g0 v1 r3 due 2s expires 1h+1s attempts 1/1 1:unknown maybe-twice
            at 3s again c                                                → duplicate of APPLIED SCHEDULED g0 v1
            at 3s admit m                                                → 1 accepted, 0 failed
            reopen                                                       → opened
            at 4s resolve published m attempt=1                          → 1 accepted, 0 failed
            reopen                                                       → opened
            show m                                                       → PUBLISHED g0 v1 r5 OK at 4s until 7d+1h with evidence attempts 1/2 2:publishing maybe-twice
            control pause-lane m                                         → control OK
            reopen                                                       → opened
            at 5s schedule n deliver=1s                                  → APPLIED SCHEDULED g0 v1
            at 6s admit n                                                → 0 accepted, 1 failed
            at 7s fence 6s                                               → 0 accepted, 0 failed
            reopen                                                       → opened
            at 7s fence 6s                                               → 0 accepted, 0 failed
        "#]],
    );
}
