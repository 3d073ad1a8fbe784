//! Operators' records, owners' epochs, keys and signatures (v2 §§2, 4 and 7, T15).

use expect_test::expect;
use protocol::mutation_v2::Limits;
use protocol::resource::Resource;
use shard::effect::Effect;
use shard::query;
use testkit::log::{Destination, default_limits, default_policy};
use testkit::model::compare;

use crate::story::{Story, check, check_with};

#[test]
fn t15_an_operation_is_within_its_own_and_the_logs_window() {
    check(
        "at 1h control pause orders until=1h-1ms
         at 1h control pause orders until=1h
         at 1h control resume orders until=1d+1h
         at 1h control resume orders until=1d+1h+1ms",
        &expect![[r#"
            at 1h control pause orders until=1h-1ms                      → position SYSTEM_MUTATION_RETRY_WINDOW_EXPIRED
            at 1h control pause orders until=1h                          → control OK
            at 1h control resume orders until=1d+1h                      → control OK
            at 1h control resume orders until=1d+1h+1ms                  → position SYSTEM_MUTATION_RETRY_WINDOW_EXPIRED
        "#]],
    );
}

#[test]
fn t15_no_operation_passes_behind_the_fence_of_its_window() {
    check(
        "at 2h fence 1h
         at 30m control pause orders until=1h
         at 30m control pause orders until=1h+1ms",
        &expect![[r#"
            at 2h fence 1h                                               → 0 accepted, 0 failed
            at 30m control pause orders until=1h                         → position SYSTEM_MUTATION_RETRY_WINDOW_EXPIRED
            at 30m control pause orders until=1h+1ms                     → control OK
        "#]],
    );
}

#[test]
fn an_operation_is_applied_once() {
    check(
        "at 0 control pause orders operation=a
         at 1s again
         at 2s control resume orders operation=b
         at 3s control pause orders operation=a
         at 4s control pause orders operation=b
         at 5s schedule m
         at 6s admit m",
        &expect![[r#"
            at 0 control pause orders operation=a                        → control OK
            at 1s again                                                  → control OK
            at 2s control resume orders operation=b                      → control OK
            at 3s control pause orders operation=a                       → control OK
            at 4s control pause orders operation=b                       → position COMMAND_ID_CONFLICT
            at 5s schedule m                                             → APPLIED SCHEDULED g0 v1
            at 6s admit m                                                → 1 accepted, 0 failed
        "#]],
    );
}

#[test]
fn gates_have_versions() {
    check(
        "at 0 schedule m deliver=1h
         control resume-lane m
         control pause-lane m version=2
         control pause-lane m version=1
         control pause-lane m version=2
         control pause-lane m version=1
         control resume-lane m version=2
         control pause-lane nobody
         control pause orders version=1
         control pause orders version=0
         control pause orders version=1
         control resume orders version=1
         control resume orders
         control pause nobody",
        &expect![[r#"
            at 0 schedule m deliver=1h                                   → APPLIED SCHEDULED g0 v1
            control resume-lane m                                        → control ALREADY_OPEN
            control pause-lane m version=2                               → control VERSION_CONFLICT
            control pause-lane m version=1                               → control OK
            control pause-lane m version=2                               → control OK
            control pause-lane m version=1                               → control VERSION_CONFLICT
            control resume-lane m version=2                              → control OK
            control pause-lane nobody                                    → control NOT_FOUND
            control pause orders version=1                               → control VERSION_CONFLICT
            control pause orders version=0                               → control OK
            control pause orders version=1                               → control OK
            control resume orders version=1                              → control OK
            control resume orders                                        → control ALREADY_OPEN
            control pause nobody                                         → control NOT_FOUND
        "#]],
    );
}

/// A pause of a destination is for the lanes that exist and those that come.
#[test]
fn a_paused_destination_pauses_lanes_to_come() {
    check(
        "at 0 control pause orders
         at 1s schedule m expire=1h
         at 2s admit m
         at 3s control resume orders
         at 4s admit m",
        &expect![[r#"
            at 0 control pause orders                                    → control OK
            at 1s schedule m expire=1h                                   → APPLIED SCHEDULED g0 v1
            at 2s admit m                                                → 0 accepted, 1 failed
            at 3s control resume orders                                  → control OK
            at 4s admit m                                                → 1 accepted, 0 failed
        "#]],
    );
}

#[test]
fn bindings_are_opened_once_and_stay_closed() {
    check(
        "control activate orders
         control close orders
         control activate orders
         control close orders
         control close nobody-made
         destination other
         control close-policy default
         control activate-policy default
         control close-policy nobody-made
         policy default attempts=3 unknown=1",
        &expect![[r#"
            control activate orders                                      → control OK
            control close orders                                         → control OK
            control activate orders                                      → control VERSION_CONFLICT
            control close orders                                         → control OK
            control close nobody-made                                    → control NOT_FOUND
            destination other                                            → control OK
            control close-policy default                                 → control OK
            control activate-policy default                              → control VERSION_CONFLICT
            control close-policy nobody-made                             → control NOT_FOUND
            policy default attempts=3 unknown=1                          → control VERSION_CONFLICT
        "#]],
    );
}

/// A topic made anew: whatever is not admitted yet goes there, and whatever binds the version goes on binding it.
#[test]
fn a_rebound_destination_takes_its_messages_with_it() {
    check(
        "at 1s schedule early expire=1h
         at 1s schedule late deliver=10s
         at 2s admit early
         topic orders
         control rebind orders topic=1
         topic orders
         # What was sent before is settled as ever.
         at 3s published early
         show early
         # A Schedule that was prepared for the version as it was activated.
         at 4s schedule new deliver=10s
         at 4s schedule other wrong-profile-hash
         at 10s admit late new
         at 11s published late
         show late
         control close orders
         control rebind orders topic=2
         reopen
         topic orders
         control rebind orders topic=pinned
         topic orders",
        &expect![[r#"
            at 1s schedule early expire=1h                               → APPLIED SCHEDULED g0 v1
            at 1s schedule late deliver=10s                              → APPLIED SCHEDULED g0 v1
            at 2s admit early                                            → 1 accepted, 0 failed
            topic orders                                                 → pinned
            control rebind orders topic=1                                → control OK
            topic orders                                                 → topic 1
            at 3s published early                                        → 1 accepted, 0 failed
            show early                                                   → PUBLISHED g0 v1 r3 OK at 3s until 7d+1h with evidence attempts 0/1
            at 4s schedule new deliver=10s                               → APPLIED SCHEDULED g0 v1
            at 4s schedule other wrong-profile-hash                      → REJECTED PROFILE_VERSION_NOT_ACTIVE_AT_SOURCE_POSITION
            at 10s admit late new                                        → 2 accepted, 0 failed
            at 11s published late                                        → 1 accepted, 0 failed
            show late                                                    → PUBLISHED g0 v1 r3 OK at 11s until 7d+1h with evidence attempts 0/1
            control close orders                                         → control OK
            control rebind orders topic=2                                → control OK
            reopen                                                       → opened
            topic orders                                                 → topic 2
            control rebind orders topic=pinned                           → control OK
            topic orders                                                 → pinned
        "#]],
    );
}

#[test]
fn a_rebinding_is_of_something_that_can_go_there() {
    check(
        "control rebind nobody topic=1
         control rebind orders topic=kafka
         control rebind orders topic=1 version=1
         control rebind orders topic=1 version=0
         control rebind orders topic=1 version=0
         # The same topic again is no change, and raises nothing.
         control rebind orders topic=1 version=1
         control rebind orders topic=pinned version=1
         control pause orders version=2
         topic orders",
        &expect![[r#"
            control rebind nobody topic=1                                → control NOT_FOUND
            control rebind orders topic=kafka                            → control SERVER_INVALID_COMMAND (ResourceMismatch)
            control rebind orders topic=1 version=1                      → control VERSION_CONFLICT
            control rebind orders topic=1 version=0                      → control OK
            control rebind orders topic=1 version=0                      → control VERSION_CONFLICT
            control rebind orders topic=1 version=1                      → control OK
            control rebind orders topic=pinned version=1                 → control OK
            control pause orders version=2                               → control OK
            topic orders                                                 → pinned
        "#]],
    );
}

/// Versions share a name and, after it, a topic; lanes keep their identity.
#[test]
fn a_rebinding_is_for_every_version_that_exists_and_its_lanes_as_they_are() {
    let mut story = Story::new(default_limits());
    let pinned = Destination::new("orders", &default_policy());
    let mut second = pinned.clone();
    (second.profile.version, second.body.delay_ms_max) = (2, 1);
    let mut kafka = pinned.clone();
    let topic = Resource::Kafka { cluster_id: "cluster".into(), topic: [3; 16] };
    (kafka.profile.version, kafka.body.resource) = (3, topic.clone());
    story.line("at 1s schedule before");
    for destination in [&second, &kafka] {
        let record = story.log.control(destination.activate());
        assert_eq!(story.apply(record), "control OK");
    }
    let id = pinned.profile.id.clone();
    let hashes = |story: &Story| -> Vec<[u8; 32]> {
        let bindings = story.shard.bindings().expect("founded");
        bindings.versions(&id).map(|(_, profile)| profile.semantic_hash).collect()
    };
    let bound = hashes(&story);
    story.effects.clear();
    assert_eq!(story.line("control rebind orders topic=1"), "control OK");
    assert_eq!(hashes(&story), bound);
    assert_eq!(story.effects, [Effect::ProfileRebound { profile_id: "orders".into() }]);
    assert_eq!(story.line("control rebind orders topic=1"), "control OK");
    assert_eq!(story.effects.len(), 1, "nothing changed");
    let mut third = pinned.clone();
    third.profile.version = 4;
    let record = story.log.control(third.activate());
    assert_eq!(story.apply(record), "control OK");
    let bindings = story.shard.bindings().expect("founded");
    let found: Vec<_> = bindings.versions(&pinned.profile.id).map(|(_, profile)| profile.resource().clone()).collect();
    let anew = Resource::Embedded { topic: [1; 16] };
    assert_eq!(found, [anew.clone(), anew, topic, pinned.body.resource]);
    // The lane is found again, also by a message that comes later.
    story.line("at 2s schedule after");
    let lanes = query::lanes(story.shard.store()).expect("the store answers");
    assert_eq!(lanes.len(), 1);
    compare::assert_agree(story.shard.store(), &story.model);
}

#[test]
fn an_operator_does_not_sign_for_an_owner() {
    check(
        "at 0 control pause orders signed=1
         at 0 control pause orders signed=9
         at 0 owner 2 key=2
         at 0 owner 2 key=9",
        &expect![[r#"
            at 0 control pause orders signed=1                           → position UNAUTHORIZED_SYSTEM_MUTATION (Signature)
            at 0 control pause orders signed=9                           → position UNAUTHORIZED_SYSTEM_MUTATION (Signature)
            at 0 owner 2 key=2                                           → position UNAUTHORIZED_SYSTEM_MUTATION (Signature)
            at 0 owner 2 key=9                                           → position UNAUTHORIZED_SYSTEM_MUTATION (Signature)
        "#]],
    );
}

#[test]
fn a_second_genesis_changes_nothing() {
    check(
        "at 0 control genesis\nat 0 control genesis until=0",
        &expect![[r#"
            at 0 control genesis                                         → control UNAUTHORIZED_SYSTEM_MUTATION (GenesisRepeated)
            at 0 control genesis until=0                                 → control UNAUTHORIZED_SYSTEM_MUTATION (GenesisRepeated)
        "#]],
    );
}

#[test]
fn an_epoch_is_taken_once_and_upwards() {
    check(
        "at 1s owner 1
         at 1s owner 1 run=7
         at 1s owner 3
         at 1s owner 2
         at 1s owner 3
         at 1s owner 0",
        &expect![[r#"
            at 1s owner 1                                                → 0 accepted, 0 failed
            at 1s owner 1 run=7                                          → position STALE_SYSTEM_MUTATION (NotTheOwner)
            at 1s owner 3                                                → 1 accepted, 0 failed
            at 1s owner 2                                                → position STALE_SYSTEM_MUTATION (NotTheOwner)
            at 1s owner 3                                                → 0 accepted, 0 failed
            at 1s owner 0                                                → position STALE_SYSTEM_MUTATION (NotTheOwner)
        "#]],
    );
}

#[test]
fn behind_a_newer_epoch_every_record_of_another_owner_is_stale() {
    check(
        "at 1s schedule m expire=1h
         at 1s schedule n expire=1h
         at 2s admit m
         at 3s owner 2
         at 4s admit n by=1
         at 4s published m by=1
         at 4s resolve published m attempt=1 by=1
         at 4s refuse n by=1
         at 4s fence 1s by=1
         # Also of a run that nobody announced, and of an epoch yet to come.
         show m
         show n
         at 5s published m
         show m",
        &expect![[r#"
            at 1s schedule m expire=1h                                   → APPLIED SCHEDULED g0 v1
            at 1s schedule n expire=1h                                   → APPLIED SCHEDULED g0 v1
            at 2s admit m                                                → 1 accepted, 0 failed
            at 3s owner 2                                                → 1 accepted, 0 failed
            at 4s admit n by=1                                           → position STALE_SYSTEM_MUTATION (NotTheOwner)
            at 4s published m by=1                                       → position STALE_SYSTEM_MUTATION (NotTheOwner)
            at 4s resolve published m attempt=1 by=1                     → position STALE_SYSTEM_MUTATION (NotTheOwner)
            at 4s refuse n by=1                                          → position STALE_SYSTEM_MUTATION (NotTheOwner)
            at 4s fence 1s by=1                                          → position STALE_SYSTEM_MUTATION (NotTheOwner)
            show m                                                       → PUBLISHING g0 v1 r2 due never expires 1h attempts 0/1 1:publishing
            show n                                                       → SCHEDULED g0 v1 r1 due 1s expires 1h
            at 5s published m                                            → 1 accepted, 0 failed
            show m                                                       → PUBLISHED g0 v1 r3 OK at 5s until 7d+1h with evidence attempts 0/1
        "#]],
    );
}

#[test]
fn nobody_acts_before_the_epoch_is_in_the_log() {
    check(
        "at 1s schedule m expire=1h
         at 1s owner 5
         # Epoch 4 is below, and refused; its records are stale.
         at 1s owner 4
         at 2s admit m by=4
         at 2s admit m by=5",
        &expect![[r#"
            at 1s schedule m expire=1h                                   → APPLIED SCHEDULED g0 v1
            at 1s owner 5                                                → 1 accepted, 0 failed
            at 1s owner 4                                                → position STALE_SYSTEM_MUTATION (NotTheOwner)
            at 2s admit m by=4                                           → position STALE_SYSTEM_MUTATION (NotTheOwner)
            at 2s admit m by=5                                           → 1 accepted, 0 failed
        "#]],
    );
}

#[test]
fn a_retired_key_signs_until_another_signs_an_epoch() {
    check(
        "control add-key 3 owner control
         control retire-key 1
         control retire-key 2
         at 1s fence 0
         control pause orders signed=2
         # The retiring key may still sign an epoch, and goes on.
         at 2s owner 2 key=1
         at 2s fence 0
         at 3s owner 3 key=3
         at 3s owner 4 key=1
         control resume orders signed=2
         control resume orders signed=3",
        &expect![[r#"
            control add-key 3 owner control                              → control OK
            control retire-key 1                                         → control OK
            control retire-key 2                                         → control OK
            at 1s fence 0                                                → 0 accepted, 0 failed
            control pause orders signed=2                                → control OK
            at 2s owner 2 key=1                                          → 1 accepted, 0 failed
            at 2s fence 0                                                → 0 accepted, 0 failed
            at 3s owner 3 key=3                                          → 1 accepted, 0 failed
            at 3s owner 4 key=1                                          → position UNAUTHORIZED_SYSTEM_MUTATION (Signature)
            control resume orders signed=2                               → position UNAUTHORIZED_SYSTEM_MUTATION (Signature)
            control resume orders signed=3                               → control OK
        "#]],
    );
}

#[test]
fn the_last_key_of_a_role_stays() {
    check(
        "control retire-key 1
         control retire-key 2
         control retire-key 7
         control add-key 3 owner
         control retire-key 1
         control retire-key 3
         control retire-key 1
         control retire-key 2",
        &expect![[r#"
            control retire-key 1                                         → control SERVER_INVALID_COMMAND (LastKey)
            control retire-key 2                                         → control SERVER_INVALID_COMMAND (LastKey)
            control retire-key 7                                         → control NOT_FOUND
            control add-key 3 owner                                      → control OK
            control retire-key 1                                         → control OK
            control retire-key 3                                         → control SERVER_INVALID_COMMAND (LastKey)
            control retire-key 1                                         → control OK
            control retire-key 2                                         → control SERVER_INVALID_COMMAND (LastKey)
        "#]],
    );
}

#[test]
fn a_key_version_is_of_one_key() {
    check(
        "control add-key 3 owner
         control add-key 3 owner
         control add-key 3 owner control
         control add-key 1 control",
        &expect![[r#"
            control add-key 3 owner                                      → control OK
            control add-key 3 owner                                      → control OK
            control add-key 3 owner control                              → control VERSION_CONFLICT
            control add-key 1 control                                    → control VERSION_CONFLICT
        "#]],
    );
}

#[test]
fn a_record_has_a_bounded_number_of_entries() {
    let limits = Limits { entries_per_record_max: 2, ..default_limits() };
    check_with(
        limits,
        "at 1s schedule a expire=1h
         at 1s schedule b expire=1h
         at 1s schedule c expire=1h
         at 2s admit a b c
         at 2s admit a b
         counts",
        &expect![[r#"
            at 1s schedule a expire=1h                                   → APPLIED SCHEDULED g0 v1
            at 1s schedule b expire=1h                                   → APPLIED SCHEDULED g0 v1
            at 1s schedule c expire=1h                                   → APPLIED SCHEDULED g0 v1
            at 2s admit a b c                                            → position STALE_SYSTEM_MUTATION (TooManyEntries)
            at 2s admit a b                                              → 2 accepted, 0 failed
            counts                                                       → SCHEDULED 1, PUBLISHING 2
        "#]],
    );
}

#[test]
fn stopping_new_schedules_stops_nothing_else() {
    check(
        "at 1s schedule m deliver=1h
         control stop
         at 2s schedule n
         at 2s reschedule m deliver=2h
         at 2h admit m
         at 2h published m",
        &expect![[r#"
            at 1s schedule m deliver=1h                                  → APPLIED SCHEDULED g0 v1
            control stop                                                 → control OK
            at 2s schedule n                                             → REJECTED ROUTE_NOT_ACTIVE
            at 2s reschedule m deliver=2h                                → APPLIED SUPERSEDED g1 v2
            at 2h admit m                                                → 1 accepted, 0 failed
            at 2h published m                                            → 1 accepted, 0 failed
        "#]],
    );
}

#[test]
fn garbage_is_quarantined_where_it_stands() {
    check(
        "at 1s garbage\nat 2s schedule m\nat 3s garbage",
        &expect![[r#"
        at 1s garbage                                                → position QUARANTINED_SOURCE_RECORD
        at 2s schedule m                                             → APPLIED SCHEDULED g0 v1
        at 3s garbage                                                → position QUARANTINED_SOURCE_RECORD
    "#]],
    );
}
