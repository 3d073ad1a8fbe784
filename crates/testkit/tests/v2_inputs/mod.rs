//! Inputs of the positive cases.

use serde_json::{Value, json};

const ROUTE: &str = "a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1";
const UUID_1: &str = "01900000000070008000000000000001";
const UUID_2: &str = "0199c82cc07b7abc9123456789abcdef";
const UUID_MAX: &str = "ffffffffffff7fffbfffffffffffffff";
const MESSAGE_ID: &str = "01a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a10000000301900000000070008000000000000001dcd31336";
const MESSAGE_ID_MAX: &str = "01ffffffffffffffffffffffffffffffffffffffffffffffffffff7fffbfffffffffffffff12f5715b";
const TOPIC: &str = "ef8963e53395fd67615e9be0d18c96d2";
const U64_MAX: u64 = u64::MAX;
const I64_MAX: i64 = i64::MAX;

type Case = (&'static str, &'static str, Value);

/// Name, kind and input of every case.
pub(crate) fn cases() -> Vec<Case> {
    [mutations(), outcomes(), controls(), positions(), identities(), objects(), receipts()].concat()
}

fn hash(byte: &str) -> String {
    byte.repeat(32)
}

fn signing_key() -> Value {
    json!({
        "ed25519_seed_hex": "2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a",
        "ed25519_public_key_hex": "197f6b23e16c8532c6abc838facd5ea789be0c76b2920334039bfa8b3d368d61",
    })
}

fn mutation(mutation_type: &str, author: Value, retry_until_ms: i64, body: Value) -> Value {
    json!({
        "mutation_type": mutation_type,
        "route_incarnation_hex": ROUTE,
        "partition": 3,
        "author": author,
        "retry_until_epoch_ms": retry_until_ms,
        "signing_key_version": 1,
        "signing_key": signing_key(),
        "body": body,
    })
}

fn by_owner(mutation_type: &str, body: Value) -> Value {
    let author = json!({"kind": "OWNER", "epoch": 7, "worker_run_id_hex": "4e1046131ffda1e2d231cd49fbf59ad7"});
    mutation(mutation_type, author, 0, body)
}

fn stamp() -> Value {
    json!({
        "epoch": 7,
        "owner_sequence": 12,
        "earliest_epoch_ms": 1_760_000_000_000_i64,
        "latest_epoch_ms": 1_760_000_000_003_i64,
    })
}

fn stamp_max() -> Value {
    json!({
        "epoch": U64_MAX,
        "owner_sequence": U64_MAX,
        "earliest_epoch_ms": I64_MAX,
        "latest_epoch_ms": I64_MAX,
    })
}

/// A record in which every number is as large as it gets.
fn largest(mutation_type: &str, body: Value) -> Value {
    json!({
        "mutation_type": mutation_type,
        "route_incarnation_hex": "ffffffffffffffffffffffffffffffff",
        "partition": u32::MAX,
        "author": {"kind": "OWNER", "epoch": U64_MAX, "worker_run_id_hex": "ffffffffffffffffffffffffffffffff"},
        "retry_until_epoch_ms": 0,
        "signing_key_version": u32::MAX,
        "signing_key": signing_key(),
        "body": body,
    })
}

fn mutations() -> Vec<Case> {
    let kind = "system_mutation_v2";
    let first_stamp = json!({"epoch": 1, "owner_sequence": 1, "earliest_epoch_ms": 0, "latest_epoch_ms": 0});
    let first_author = json!({"kind": "OWNER", "epoch": 1, "worker_run_id_hex": "00000000000000000000000000000000"});
    vec![
        (
            "v2/owner-epoch/first-of-a-shard",
            kind,
            mutation(
                "OWNER_EPOCH",
                first_author,
                0,
                json!({
                    "stamp": first_stamp,
                    "store_incarnation_hex": "00000000000000000000000000000000",
                    "previous_epoch": 0,
                }),
            ),
        ),
        (
            "v2/owner-epoch/takeover",
            kind,
            by_owner(
                "OWNER_EPOCH",
                json!({"stamp": stamp(), "store_incarnation_hex": "0102030405060708090a0b0c0d0e0f10", "previous_epoch": 6}),
            ),
        ),
        (
            "v2/owner-epoch/largest-numbers",
            kind,
            largest(
                "OWNER_EPOCH",
                json!({
                    "stamp": stamp_max(),
                    "store_incarnation_hex": "ffffffffffffffffffffffffffffffff",
                    "previous_epoch": U64_MAX,
                }),
            ),
        ),
        (
            "v2/publish-admission/one-first-generation",
            kind,
            by_owner(
                "PUBLISH_ADMISSION",
                json!({
                    "stamp": stamp(),
                    "entries": [{"message_uuid_hex": UUID_1, "generation": 0, "log_rev": 1, "sequence": null}],
                }),
            ),
        ),
        (
            "v2/publish-admission/several-with-and-without-sequence",
            kind,
            by_owner(
                "PUBLISH_ADMISSION",
                json!({
                    "stamp": stamp(),
                    "entries": [
                        {"message_uuid_hex": UUID_1, "generation": 0, "log_rev": 0, "sequence": 0},
                        {"message_uuid_hex": UUID_1, "generation": 1, "log_rev": 4, "sequence": null},
                        {"message_uuid_hex": UUID_2, "generation": 0, "log_rev": 128, "sequence": 9_000},
                    ],
                }),
            ),
        ),
        (
            "v2/publish-admission/largest-numbers",
            kind,
            largest(
                "PUBLISH_ADMISSION",
                json!({
                    "stamp": stamp_max(),
                    "entries": [{
                        "message_uuid_hex": UUID_MAX,
                        "generation": u32::MAX,
                        "log_rev": U64_MAX,
                        "sequence": U64_MAX,
                    }],
                }),
            ),
        ),
        (
            "v2/claim-result/two-refusals",
            kind,
            by_owner(
                "CLAIM_RESULT",
                json!({
                    "stamp": stamp(),
                    "entries": [
                        {"message_uuid_hex": UUID_1, "generation": 0, "log_rev": 2, "code": "SERVER_PAYLOAD_TOO_LARGE"},
                        {"message_uuid_hex": UUID_2, "generation": 3, "log_rev": 9, "code": "CLAIM_PERMANENT_FAILURE"},
                    ],
                }),
            ),
        ),
        (
            "v2/time-fence/sweeps",
            kind,
            by_owner(
                "TIME_FENCE",
                json!({"stamp": stamp(), "close_through_epoch_ms": 1_759_999_999_000_i64, "expire_max": 1_000}),
            ),
        ),
        (
            "v2/time-fence/closes-nothing-sweeps-nothing",
            kind,
            by_owner("TIME_FENCE", json!({"stamp": stamp(), "close_through_epoch_ms": 0, "expire_max": 0})),
        ),
        (
            "v2/time-fence/largest-numbers",
            kind,
            largest(
                "TIME_FENCE",
                json!({"stamp": stamp_max(), "close_through_epoch_ms": I64_MAX, "expire_max": u32::MAX}),
            ),
        ),
    ]
}

fn outcome(attempt: u32, side_effect: &str, code: &str, more: Value) -> Value {
    let mut entry = json!({
        "message_uuid_hex": UUID_1,
        "generation": 0,
        "attempt": attempt,
        "side_effect": side_effect,
        "disposition": "NONE",
        "code": code,
        "evidence": null,
    });
    for (key, value) in more.as_object().unwrap() {
        entry[key] = value.clone();
    }
    entry
}

fn outcomes() -> Vec<Case> {
    let kind = "system_mutation_v2";
    let record =
        |mutation_type, entries: Vec<Value>| by_owner(mutation_type, json!({"stamp": stamp(), "entries": entries}));
    let published =
        |evidence| record("PUBLISH_OUTCOME", vec![outcome(1, "PUBLISHED", "OK", json!({"evidence": evidence}))]);
    let absent = |disposition: &str, absence_kind: u32, code: &str| {
        let evidence = json!({"absence_kind": absence_kind, "digest_hex": hash("77")});
        let more = json!({"disposition": disposition, "evidence": evidence});
        record("PUBLISH_OUTCOME", vec![outcome(1, "NOT_PUBLISHED", code, more)])
    };
    let topic_ack = |name: &str| {
        json!({
            "kind": name,
            "topic_uuid_hex": TOPIC,
            "partition": 7,
            "offset": 128,
            "time_epoch_ms": 1_760_000_000_002_i64,
        })
    };
    let operator = json!({"kind": "OPERATOR", "principal": "ops@example", "statement_sha256_hex": hash("5a")});
    let pulsar = json!({
        "kind": "PULSAR_ACK",
        "partition": 0,
        "ledger_id": U64_MAX,
        "entry_id": 0,
        "batch_index": 2,
        "time_epoch_ms": 1_760_000_000_002_i64,
    });
    let receipt =
        json!({"kind": "KAFKA_RECEIPT", "topic_uuid_hex": TOPIC, "partition": 0, "offset": 4_294_967_296_u64});
    let unknown = outcome(2, "UNKNOWN", "RECOVERY_FIRST_SEND_UNCERTAIN", json!({}));
    let mixed = vec![
        outcome(1, "PUBLISHED", "OK", json!({"evidence": topic_ack("EMBEDDED_ACK")})),
        unknown.clone(),
        outcome(
            1,
            "NOT_PUBLISHED",
            "DESTINATION_DEFINITIVE_RETRIABLE",
            json!({
                "message_uuid_hex": UUID_2,
                "generation": 1,
                "disposition": "MESSAGE_RETRIABLE",
                "evidence": {"absence_kind": 2, "digest_hex": hash("01")},
            }),
        ),
    ];
    vec![
        ("v2/publish-outcome/published-embedded", kind, published(topic_ack("EMBEDDED_ACK"))),
        ("v2/publish-outcome/published-kafka", kind, published(topic_ack("KAFKA_ACK"))),
        ("v2/publish-outcome/published-pulsar", kind, published(pulsar)),
        ("v2/publish-outcome/published-kafka-receipt", kind, published(receipt.clone())),
        ("v2/publish-outcome/published-operator", kind, published(operator.clone())),
        (
            "v2/publish-outcome/retriable-refused-by-broker",
            kind,
            absent("MESSAGE_RETRIABLE", 2, "DESTINATION_DEFINITIVE_RETRIABLE"),
        ),
        (
            "v2/publish-outcome/permanent-receipt-absent",
            kind,
            absent("MESSAGE_PERMANENT", 3, "DESTINATION_DEFINITIVE_PERMANENT"),
        ),
        (
            "v2/publish-outcome/lane-unavailable-not-submitted",
            kind,
            absent("LANE_UNAVAILABLE", 1, "CAPABILITY_UNAVAILABLE"),
        ),
        (
            "v2/publish-outcome/retriable-deduplication-proof",
            kind,
            absent("MESSAGE_RETRIABLE", 4, "DESTINATION_DEFINITIVE_RETRIABLE"),
        ),
        ("v2/publish-outcome/unknown", kind, record("PUBLISH_OUTCOME", vec![unknown])),
        ("v2/publish-outcome/three-of-two-messages", kind, record("PUBLISH_OUTCOME", mixed)),
        (
            "v2/publish-outcome/largest-numbers",
            kind,
            largest(
                "PUBLISH_OUTCOME",
                json!({
                    "stamp": stamp_max(),
                    "entries": [{
                        "message_uuid_hex": UUID_MAX,
                        "generation": u32::MAX,
                        "attempt": u32::MAX,
                        "side_effect": "PUBLISHED",
                        "disposition": "NONE",
                        "code": "OK",
                        "evidence": {
                            "kind": "KAFKA_ACK",
                            "topic_uuid_hex": "ffffffffffffffffffffffffffffffff",
                            "partition": u32::MAX,
                            "offset": U64_MAX,
                            "time_epoch_ms": I64_MAX,
                        },
                    }],
                }),
            ),
        ),
        (
            "v2/evidence-resolution/published-later",
            kind,
            record("EVIDENCE_RESOLUTION", vec![outcome(1, "PUBLISHED", "OK", json!({"evidence": receipt}))]),
        ),
        (
            "v2/evidence-resolution/absent-and-operator",
            kind,
            record(
                "EVIDENCE_RESOLUTION",
                vec![
                    outcome(
                        1,
                        "NOT_PUBLISHED",
                        "DESTINATION_DEFINITIVE_RETRIABLE",
                        json!({
                            "disposition": "MESSAGE_RETRIABLE",
                            "evidence": {"absence_kind": 3, "digest_hex": hash("02")},
                        }),
                    ),
                    outcome(2, "PUBLISHED", "OK", json!({"evidence": operator})),
                ],
            ),
        ),
    ]
}

fn limits() -> Value {
    json!({
        "delay_ms_max": 315_360_000_000_i64,
        "lifetime_ms_max": 317_952_000_000_i64,
        "delivery_window_ms_min": 5_000,
        "preparation_age_ms_max": 86_400_000,
        "uuid_future_skew_ms_max": 300_000,
        "command_retry_window_ms": 86_400_000,
        "control_retry_window_ms_max": 86_400_000,
        "broker_time_divergence_ms_max": 10,
        "fence_margin_ms": 1_000,
        "clock_interval_ms_max": 1_000,
        "terminal_retention_ms": 604_800_000,
        "dead_letter_retention_ms": 2_592_000_000_i64,
        "receipt_query_window_ms": 86_400_000,
        "active_messages_max": 20_000_000,
        "active_bytes_max": 53_687_091_200_u64,
        "lanes_max": 10_000,
        "entries_per_record_max": 1_000,
        "expire_per_fence_max": 1_000,
        "business_key_bytes_max": 256,
    })
}

fn key(version: u32, roles: Value) -> Value {
    json!({
        "version": version,
        "ed25519_public_key_hex": "197f6b23e16c8532c6abc838facd5ea789be0c76b2920334039bfa8b3d368d61",
        "roles": roles,
    })
}

fn embedded_resource() -> Value {
    json!({"adapter": "EMBEDDED", "topic_uuid_hex": TOPIC})
}

fn kafka_resource() -> Value {
    json!({"adapter": "KAFKA", "cluster_id": "cluster-a", "topic_uuid_hex": TOPIC})
}

fn pulsar_resource() -> Value {
    json!({
        "adapter": "PULSAR",
        "cluster_id": "pulsar-eu",
        "resource_incarnation_hex": hash("cd"),
        "physical_topic": "persistent://tenant/ns/dest",
        "topic_creation_timestamp": 1_700_000_000_000_u64,
    })
}

fn profile(resource: Value, capability: u32, policy: &str, modes: Value) -> Value {
    json!({
        "resource": resource,
        "partition_count": 12,
        "partition_policy": policy,
        "outcome_capability": capability,
        "ordering_modes": modes,
        "record_bytes_max": 1_000_000,
        "header_reserve_bytes": 512,
        "lane_bucket_count": 1,
        "expires_after_ms": 2_592_000_000_i64,
        "delay_ms_max": 315_360_000_000_i64,
        "retry_policy": {"policy_id_hex": "737464", "version": 1, "semantic_hash_hex": hash("22")},
        "display_name": "Bestellungen für später",
    })
}

fn policy() -> Value {
    json!({
        "policy_id_hex": "737464",
        "version": 1,
        "initial_backoff_ms": 1_000,
        "backoff_ms_max": 300_000,
        "publish_admissions_max": 500,
        "retry_duration_ms_max": 86_400_000,
        "uncertain_policy": "BOUNDED_RETRY_POSSIBLE_DUPLICATE",
        "uncertain_retries_max": 5,
        "dlq_export": null,
        "terminal_policy_digest_hex": hash("00"),
    })
}

fn controls() -> Vec<Case> {
    let kind = "system_mutation_v2";
    let control = |name: &str, expected_version: Value, payload: Value| {
        mutation(
            "APPLY_SHARD_CONTROL",
            json!({"kind": "CONTROL", "principal": "ops@example", "role": "operator"}),
            1_760_086_400_000,
            json!({
                "operation_id_hex": hash("0b"),
                "control": name,
                "expected_version": expected_version,
                "payload": payload,
            }),
        )
    };
    let version = json!({"profile_id_hex": "6f7264657273", "version": 3});
    let id = json!({"profile_id_hex": "6f7264657273"});
    let lane = json!({"lane_id_hex": "9ab8f6eaf14154adb301ef83741ff236ae14a948c17ce4aefbdd72200a16a5fd"});
    let activate = json!({
        "profile_id_hex": "6f7264657273",
        "version": 3,
        "profile": profile(embedded_resource(), 1, "MURMUR2_KEY", json!(["BEST_EFFORT", "DELIVERY_TIME_FIFO"])),
    });
    let mut one_partition = profile(embedded_resource(), 1, "EXPLICIT", json!(["BEST_EFFORT"]));
    one_partition["explicit_partition"] = json!(11);
    one_partition["timestamp_policy"] = json!("DELIVERY_TIME");
    let explicit = json!({"profile_id_hex": "6f7264657273", "version": 4, "profile": one_partition});
    let genesis = json!({
        "route_incarnation_hex": ROUTE,
        "partition": 3,
        "partition_count": 4,
        "tenant_routing_scope_hex": hash("c4"),
        "limits": limits(),
        "keys": [key(1, json!(["OWNER", "CONTROL"]))],
    });
    let two_keys = json!({
        "route_incarnation_hex": ROUTE,
        "partition": 3,
        "partition_count": u32::MAX,
        "tenant_routing_scope_hex": hash("ff"),
        "limits": limits(),
        "keys": [key(1, json!(["OWNER"])), key(9, json!(["CONTROL"]))],
    });
    let rebind = |resource: Value| json!({"profile_id_hex": "6f7264657273", "resource": resource});
    let (kafka, pulsar) = (kafka_resource(), pulsar_resource());
    vec![
        ("v2/control/02-profile-activate", kind, control("PROFILE_BINDING_ACTIVATE", Value::Null, activate)),
        ("v2/control/02-profile-activate-explicit", kind, control("PROFILE_BINDING_ACTIVATE", Value::Null, explicit)),
        ("v2/control/03-profile-close", kind, control("PROFILE_NEW_BINDING_CLOSE", json!(0), version)),
        ("v2/control/04-stop-new-schedules", kind, control("STOP_NEW_SCHEDULES", Value::Null, json!({}))),
        ("v2/control/08-lane-pause", kind, control("PAUSE_DESTINATION_LANE", json!(U64_MAX), lane.clone())),
        ("v2/control/09-lane-resume", kind, control("RESUME_DESTINATION_LANE", json!(1), lane)),
        ("v2/control/14-genesis", kind, control("INITIAL_ROUTE_CONTROL_ACTIVATE", Value::Null, genesis)),
        ("v2/control/14-genesis-two-keys", kind, control("INITIAL_ROUTE_CONTROL_ACTIVATE", Value::Null, two_keys)),
        ("v2/control/15-key-add", kind, control("KEY_ADD", Value::Null, json!({"key": key(2, json!(["OWNER"]))}))),
        ("v2/control/16-key-retire", kind, control("KEY_RETIRE", Value::Null, json!({"version": 1}))),
        ("v2/control/17-destination-pause", kind, control("PAUSE_DESTINATION", json!(4), id.clone())),
        ("v2/control/18-destination-resume", kind, control("RESUME_DESTINATION", Value::Null, id)),
        (
            "v2/control/19-retry-policy-activate",
            kind,
            control("RETRY_POLICY_ACTIVATE", Value::Null, json!({"policy": policy()})),
        ),
        (
            "v2/control/20-retry-policy-close",
            kind,
            control("RETRY_POLICY_CLOSE", Value::Null, json!({"policy_id_hex": "737464", "version": 1})),
        ),
        (
            "v2/control/21-destination-rebind",
            kind,
            control("DESTINATION_REBIND", json!(4), rebind(embedded_resource())),
        ),
        ("v2/control/21-destination-rebind-kafka", kind, control("DESTINATION_REBIND", Value::Null, rebind(kafka))),
        ("v2/control/21-destination-rebind-pulsar", kind, control("DESTINATION_REBIND", Value::Null, rebind(pulsar))),
    ]
}

fn embedded_position(offset: u64, time_ms: i64) -> Value {
    json!({
        "adapter": "EMBEDDED",
        "route_incarnation_hex": ROUTE,
        "log_uuid_hex": "0102030405060708090a0b0c0d0e0f10",
        "partition": 3,
        "offset": offset,
        "append_time_epoch_ms": time_ms,
    })
}

fn positions() -> Vec<Case> {
    let largest = json!({
        "adapter": "EMBEDDED",
        "route_incarnation_hex": "ffffffffffffffffffffffffffffffff",
        "log_uuid_hex": "ffffffffffffffffffffffffffffffff",
        "partition": u32::MAX,
        "offset": U64_MAX,
        "append_time_epoch_ms": I64_MAX,
    });
    let order: Vec<Value> =
        [(0, 0), (128, 1_760_000_000_500), (1 << 63, 0), (U64_MAX, 1)].map(|(o, t)| embedded_position(o, t)).into();
    let mut foreign = embedded_position(5, 5);
    foreign["log_uuid_hex"] = json!("00000000000000000000000000000000");
    vec![
        (
            "position/embedded/zero",
            "source_position",
            json!({"position": embedded_position(0, 0), "lane_id_hex": hash("00")}),
        ),
        (
            "position/embedded/some",
            "source_position",
            json!({"position": embedded_position(4_294_967_296, 1_760_000_000_500), "lane_id_hex": hash("5c")}),
        ),
        (
            "position/embedded/largest-numbers",
            "source_position",
            json!({"position": largest, "lane_id_hex": hash("ff")}),
        ),
        ("position-order/embedded", "source_position_order", json!({"positions": order})),
        (
            "position-order/of-two-logs-there-is-none",
            "source_position_order",
            json!({"positions": [embedded_position(4, 4), foreign]}),
        ),
    ]
}

fn identities() -> Vec<Case> {
    let lane = |ordering: Value, bucket: Value| {
        json!({
            "tenant_routing_scope_hex": hash("c4"),
            "target_resource": embedded_resource(),
            "physical_partition": 5,
            "destination_profile":
                {"profile_id_hex": "6f7264657273", "version": 3, "semantic_hash_hex": hash("11"), "kind_wire": 1},
            "capability_profile":
                {"profile_id_hex": "626173656c696e65", "version": 1, "semantic_hash_hex": hash("44"), "kind_wire": 2},
            "ordering_domain_hash_hex": ordering,
            "unordered_bucket": bucket,
        })
    };
    let kafka_position = json!({
        "adapter": "KAFKA",
        "route_incarnation_hex": ROUTE,
        "cluster_id": "cluster-a",
        "topic_uuid_hex": TOPIC,
        "partition": 3,
        "offset": 128,
        "leader_epoch": 0,
        "log_append_time_epoch_ms": 1_760_000_000_500_i64,
    });
    let attempt = |message: &str, generation: u32, attempt: u32, at: Value| {
        json!({
            "delay_message_id_hex": message,
            "generation": generation,
            "attempt": attempt,
            "admission_position": at,
        })
    };
    let marker = |value_is_null: bool, null_headers: &[u16], header_count: u32| json!({"value_is_null": value_is_null, "null_headers": null_headers, "header_count": header_count});
    vec![
        ("lane/embedded-unordered", "lane_id", lane(Value::Null, json!(0))),
        ("lane/embedded-ordered", "lane_id", lane(json!(hash("d0")), Value::Null)),
        ("attempt-id/embedded", "attempt_id", attempt(MESSAGE_ID, 0, 1, embedded_position(9, 1_760_000_000_500))),
        ("attempt-id/kafka", "attempt_id", attempt(MESSAGE_ID, 2, 500, kafka_position)),
        (
            "attempt-id/largest-numbers",
            "attempt_id",
            attempt(MESSAGE_ID_MAX, u32::MAX, u32::MAX, embedded_position(U64_MAX, I64_MAX)),
        ),
        ("tenant/default", "tenant_scope", json!({"tenant": "default"})),
        ("tenant/unicode", "tenant_scope", json!({"tenant": "Käufer"})),
        ("nulls/none", "null_marker", marker(false, &[], 2)),
        ("nulls/value", "null_marker", marker(true, &[], 0)),
        ("nulls/headers", "null_marker", marker(false, &[0, 2, 256], 257)),
        ("nulls/value-and-header", "null_marker", marker(true, &[1], 2)),
        ("kafka-partition/empty-key", "kafka_partition", json!({"key_hex": "", "partition_count": 12})),
        ("kafka-partition/abc", "kafka_partition", json!({"key_hex": "616263", "partition_count": 12})),
        ("kafka-partition/foobar", "kafka_partition", json!({"key_hex": "666f6f626172", "partition_count": 1_000})),
        ("kafka-partition/five-bytes", "kafka_partition", json!({"key_hex": "00ff80fe7f", "partition_count": 3})),
    ]
}

fn objects() -> Vec<Case> {
    let named = |profile: Value| json!({"profile_id_hex": "6f7264657273", "version": 3, "profile": profile});
    let (kafka, pulsar) = (kafka_resource(), pulsar_resource());
    let mut exporting = policy();
    exporting["uncertain_policy"] = json!("HOLD_FOR_EVIDENCE");
    exporting["uncertain_retries_max"] = json!(0);
    exporting["terminal_policy_digest_hex"] = json!(hash("fe"));
    exporting["dlq_export"] = json!({
        "initial_backoff_ms": 0,
        "backoff_ms_max": U64_MAX,
        "attempts_max": u32::MAX,
        "retry_duration_ms_max": 1,
        "allow_possible_duplicate": true,
    });
    vec![
        (
            "profile/embedded",
            "profile_semantic_hash",
            named(profile(embedded_resource(), 1, "MURMUR2_KEY", json!(["BEST_EFFORT", "DELIVERY_TIME_FIFO"]))),
        ),
        (
            "profile/kafka-with-receipts",
            "profile_semantic_hash",
            named(profile(kafka, 2, "MURMUR2_KEY", json!(["DELIVERY_TIME_FIFO"]))),
        ),
        (
            "profile/pulsar-with-deduplication",
            "profile_semantic_hash",
            named(profile(pulsar, 3, "REGISTRY_HASH", json!(["BEST_EFFORT"]))),
        ),
        ("policy/default", "retry_policy", policy()),
        ("policy/holds-and-exports", "retry_policy", exporting),
    ]
}

fn receipts() -> Vec<Case> {
    let cancel = json!({
        "command_type": "CANCEL",
        "command_type_wire": 4,
        "route_incarnation_hex": ROUTE,
        "partition": 3,
        "message_uuid_hex": UUID_1,
        "command_uuid_hex": UUID_2,
        "retry_until_epoch_ms": 1_760_086_400_000_i64,
        "body": {"precondition": {"expected_generation": null, "expected_state_version": 4}},
    });
    let embedded_ack = json!({
        "adapter": "EMBEDDED",
        "log_uuid_hex": "0102030405060708090a0b0c0d0e0f10",
        "partition": 3,
        "offset": 9,
        "append_time_epoch_ms": 1_760_000_000_500_i64,
    });
    let interval = json!({
        "earliest_epoch_ms": 1_760_000_000_000_i64,
        "latest_epoch_ms": 1_760_000_000_003_i64,
        "source_wire": 3,
        "source_id_hex": "636c6f636b",
        "source_config_generation": 1,
        "sample_sequence": 2,
        "monotonic_anchor_ns": 3,
        "source_evidence_sha256_hex": hash("d8"),
        "source_key_version": 0,
        "source_signature_hex": null,
    });
    let pulsar_ack = json!({
        "adapter": "PULSAR",
        "cluster_id": "pulsar-eu",
        "resource_incarnation_hex": hash("cd"),
        "physical_topic": "persistent://tenant/ns/dest",
        "topic_creation_timestamp": 1_700_000_000_000_u64,
        "partition": 0,
        "ledger_id": 127,
        "entry_id": 3,
        "batch_index": 0,
        "batch_size": 1,
        "entry_timestamp_epoch_ms": 1_760_000_000_500_i64,
        "send_receipt_sha256_hex": hash("04"),
    });
    vec![
        (
            "receipt/queued/embedded",
            "command_queued_receipt",
            json!({
                "command": cancel,
                "source_position": embedded_position(9, 1_760_000_000_500),
                "broker_ack": embedded_ack,
                "receipt_query_until_epoch_ms": 1_760_086_400_500_i64,
                "physical_enqueue_attempt_id_hex": "4e1046131ffda1e2d231cd49fbf59ad7",
            }),
        ),
        (
            "receipt/applied/embedded",
            "command_applied_receipt",
            json!({
                "queued_receipt_payload_digest_hex": hash("fe"),
                "apply_status": "APPLIED",
                "stable_code": "CANCELED",
                "applied_source_position": embedded_position(9, 1_760_000_000_500),
                "generation": 0,
                "state_version": 5,
                "binding": {
                    "destination_profile":
                        {"profile_id_hex": "6f7264657273", "version": 3, "semantic_hash_hex": hash("11"), "kind_wire": 1},
                    "capability_profile":
                        {"profile_id_hex": "626173", "version": 1, "semantic_hash_hex": hash("44"), "kind_wire": 2},
                    "adapter_kind": "EMBEDDED",
                    "destination_alias_utf8_hex": "4f7264657273",
                    "physical_partition": 5,
                    "ordering_mode": "BEST_EFFORT",
                },
                "full_result_retain_until_epoch_ms": 1_760_604_800_500_i64,
            }),
        ),
        (
            "receipt/control-operation",
            "control_operation_receipt",
            json!({
                "operation_id_hex": hash("0b"),
                "request_hash_hex": hash("0c"),
                "scope_hash_hex": hash("0d"),
                "target_snapshot_hash_hex": hash("0e"),
                "operation_revision": U64_MAX,
                "registered_at": interval,
                "query_until_epoch_ms": 1_760_086_400_003_i64,
            }),
        ),
        (
            "receipt/native-delivery",
            "native_delivery_receipt",
            json!({
                "native": {
                    "native_delivery_id_hex": hash("01"),
                    "submission_hash_hex": hash("02"),
                    "destination_profile":
                        {"profile_id_hex": "6f7264657273", "version": 3, "semantic_hash_hex": hash("11"), "kind_wire": 1},
                    "target": {
                        "adapter": "PULSAR",
                        "cluster_id": "pulsar-eu",
                        "resource_incarnation_hex": hash("cd"),
                        "physical_topic": "persistent://tenant/ns/dest",
                        "topic_creation_timestamp": 1_700_000_000_000_u64,
                    },
                    "physical_partition": 0,
                    "capability_snapshot_digest_hex": hash("03"),
                    "capability_expiry_epoch_ms": 1_760_000_060_000_i64,
                    "prepared_sha256_hex": hash("04"),
                },
                "broker_ack": pulsar_ack,
                "physical_enqueue_attempt_id_hex": "01010101010101010101010101010101",
            }),
        ),
    ]
}
