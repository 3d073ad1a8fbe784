//! Seeds that people would write: JSON bodies, queries, header values, times.

/// Bodies by their number in the target.
pub(super) fn bodies() -> Vec<(String, Vec<u8>)> {
    let bodies: [(u8, &str, &str); 31] = [
        (0, "least", r#"{"destination":"orders","delay":"30m","value":"hello"}"#),
        (
            0,
            "most",
            r#"{"destination":"orders","id":"order-1","deliver_at":"2027-01-31T09:00:00.250+01:00","key":"k","value":{"type":"json","data":{"a":[1,2.50,null]}},"headers":[{"name":"trace","value":"1"},{"name":"empty","value":null},{"name":"bytes","value":{"type":"binary","data":"AAEC"}}],"expires_after":"2h","event_time_ms":1800000000000,"idempotency_key":"x"}"#,
        ),
        (0, "epoch", r#"{"destination":"d","deliver_at_ms":1800000060000,"expires_at_ms":1800003660000,"value":null}"#),
        (0, "escapes", "{\"destination\":\"\\u00fc\\ud83d\\ude80\",\"delay\":\"\\u0031s\",\"value\":\"\\n\\u0000\"}"),
        (0, "expires-at", r#"{"destination":"d","delay":"1d","expires_at":"2027-02-28T23:59:59Z","value":""}"#),
        (0, "two-times", r#"{"destination":"d","delay":"1s","deliver_at_ms":5,"value":""}"#),
        (0, "too-large", r#"{"destination":"d","deliver_at_ms":9223372036854775808,"value":""}"#),
        (0, "largest", r#"{"destination":"d","deliver_at_ms":9223372036854775807,"value":"","expires_after":"10y"}"#),
        (0, "no-unit", r#"{"destination":"d","delay":30,"value":""}"#),
        (0, "unknown", r#"{"destination":"d","delay":"1s","value":"","dleay":"1s"}"#),
        (
            0,
            "reserved",
            r#"{"destination":"d","delay":"1s","value":"","headers":[{"name":"nereus.delay.id","value":"1"}]}"#,
        ),
        (0, "bad-base64", r#"{"destination":"d","delay":"1s","value":{"type":"binary","data":"AAE"}}"#),
        (0, "cut", r#"{"destination":"orders","delay":"30"#),
        (1, "delay", r#"{"delay":"1h30m","expires_after":"5m"}"#),
        (1, "epoch", r#"{"deliver_at_ms":1800000000000}"#),
        (1, "at", r#"{"deliver_at":"2027-01-31T09:00:00Z","expires_at":"2027-01-31T10:00:00Z"}"#),
        (2, "two", r#"{"messages":[{"destination":"d","delay":"1s","value":"a"},{"destination":"d","delay":"x"}]}"#),
        (2, "none", r#"{"messages":[]}"#),
        (
            3,
            "embedded",
            r#"{"embedded":{"topic":"orders","partitions":3},"partitioner":"registry_hash","timestamp":"delivery_time","retry":{"initial_backoff":"1s","max_backoff":"1m","max_attempts":5,"max_duration":"1h","uncertain":"dead_letter","max_uncertain_retries":2},"max_delay":"7d","expires_after":"1d"}"#,
        ),
        (3, "kafka", r#"{"kafka":{"bootstrap_servers":"localhost:9092","topic":"orders"},"partition":2}"#),
        (
            4,
            "kafka",
            r#"{"kafka":{"bootstrap_servers":"localhost:9092","topic":"in"},"destination":"orders","group":"g"}"#,
        ),
        (4, "sides", r#"{"kafka":{"bootstrap_servers":"a:1","topic":"in"},"refusals":"r","receipts":"s"}"#),
        (5, "query", "id=order-%31&limit=10&status=scheduled+now"),
        (5, "broken", "id=%f&id=%ff&=&limit"),
        (
            6,
            "route",
            r#"{"name":"main","route":"a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1","tenant":"default","state":"active","log":{"embedded":{"topic":"t","topic_id":"00"}},"genesis":[{"mutation_hash":"00","frame":"AA=="}]}"#,
        ),
        (
            7,
            "destination",
            r#"{"name":"orders","versions":[{"version":1,"state":"active","spec":{"embedded":{"topic":"orders"}},"profile":"CAM=","semantic_hash":"00","retry_policy":"CAE=","created_at_ms":1}],"paused":false}"#,
        ),
        (8, "control", r#"{"epoch":3,"worker":"w","worker_run":"00000000000000000000000000000000"}"#),
        (9, "lease", r#"{"epoch":3,"worker":"w","worker_run":"00000000000000000000000000000000"}"#),
        (10, "idempotency", r#"{"request_sha256":"00","created_at_ms":1,"answer":{"status":201,"body":{}}}"#),
        (
            11,
            "ingress",
            r#"{"name":"in","system":"kafka","topic":"in","group":"g","paused":false,"spec":{"a":1.5},"created_at_ms":1}"#,
        ),
        (12, "progress", r#"{"from":7,"to":9,"uuid_ms":1800000000000}"#),
    ];
    let seed =
        |(kind, name, text): (u8, &str, &str)| (format!("{kind:02}-{name}"), [&[kind], text.as_bytes()].concat());
    bodies.into_iter().map(seed).collect()
}

/// Records by their headers, and times alone.
pub(super) fn headers() -> Vec<(String, Vec<u8>)> {
    // Names by their number in the target; other ones stand behind their length.
    let header = |name: u8, value: &str| {
        let length = u16::try_from(value.len()).unwrap().to_be_bytes();
        [&[name], &length[..], value.as_bytes()].concat()
    };
    let named = |name: &[u8], value: &str| {
        let length = u16::try_from(name.len()).unwrap().to_be_bytes();
        let value_length = u16::try_from(value.len()).unwrap().to_be_bytes();
        [&[31], &length[..], name, &value_length, value.as_bytes()].concat()
    };
    let record = |flags: u8, headers: &[Vec<u8>]| [&[flags], &headers.concat()[..]].concat();
    let records = [
        ("delay", record(0x17, &[header(1, "90s")])),
        ("at", record(0x17, &[header(0, "2027-01-31T09:00:00Z"), header(2, "orders"), header(3, "order-1")])),
        ("at-ms", record(0x13, &[header(0, "1800000060000"), header(4, "1800003660000")])),
        ("passed-on", record(0x17, &[header(1, "1h30m"), header(10, "abc"), header(10, "null"), header(8, "x")])),
        ("cancel", record(0x10, &[header(5, "order-1")])),
        ("reschedule", record(0x10, &[header(6, "order-1"), header(1, "10m"), header(4, "2027-01-31T09:00:00Z")])),
        ("misspelt", record(0x10, &[header(7, "1s")])),
        ("both", record(0x10, &[header(0, "1800000060000"), header(1, "1s")])),
        ("no-destination", record(0x03, &[header(1, "1s")])),
        ("null", record(0x10, &[header(1, "null")])),
        ("named", record(0x1f, &[header(1, "1s"), named(b"nereus-x", "1"), named("ü".as_bytes(), "")])),
        ("no-text", record(0x10, &[header(1, "1s"), named(b"\xff\xfe", "1")])),
        ("nulls", record(0x10, &[header(1, "1s"), header(9, "\u{1}")])),
        ("nothing", record(0x10, &[])),
    ];
    let texts = [
        ("longest", "9223372036854775807ms"),
        ("units", "1y1w1d1h1m1s1ms"),
        ("order", "30m1h"),
        ("no-unit", "30"),
        ("instant", "2026-11-30T15:00:00.250123+01:00"),
        ("last", "9999-12-30T22:00:00.999999999Z"),
        ("before", "1969-12-31T23:59:59.999Z"),
        ("leap", "2028-02-29T23:59:60Z"),
        ("zone", "2026-11-30T14:00:00+01:00[Europe/Berlin]"),
    ];
    let mut seeds: Vec<(String, Vec<u8>)> =
        records.into_iter().map(|(name, record)| (format!("record-{name}"), record)).collect();
    seeds.extend(texts.map(|(name, text)| (format!("text-{name}"), text.as_bytes().to_vec())));
    seeds
}
