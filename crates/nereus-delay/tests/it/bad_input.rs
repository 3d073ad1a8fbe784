//! What should not have been sent: refused whole, with the limit in the text, and nothing half stored.

use std::time::Duration;

use futures_util::future::join_all;
use hyper::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::world::{Answer, DESTINATION, LIMIT, World, run};

/// Sends a raw body to `POST /v1/messages`.
async fn post(world: &World, body: impl Into<bytes::Bytes>) -> Answer {
    world.http.send(Method::POST, "/v1/messages", &[], body).await
}

/// A message with one field written as it stands here.
fn with(field: &str, raw: &str) -> String {
    format!("{{\"destination\":\"{DESTINATION}\",\"value\":\"x\",\"{field}\":{raw}}}")
}

#[test]
fn the_overflow_ladder_is_refused_step_by_step_and_nothing_becomes_immediate() {
    run(async {
        let world = World::new().await;
        let (two_31, two_32, two_53) = (1_u64 << 31, 1_u64 << 32, 1_u64 << 53);
        let max = i64::MAX as u64;
        let mut refused = 0;
        let mut check = async |field: &str, raw: String, codes: &[&str]| {
            let answer = post(&world, with(field, &raw)).await;
            assert!(
                (400..=422).contains(&answer.status),
                "{field}: {raw} was answered {} {}",
                answer.status,
                answer.body
            );
            assert!(codes.contains(&answer.code()), "{field}: {raw}: {}", answer.body);
            let detail = answer.text("detail");
            // A window refusal names its limit, as text and as a number.
            if answer.code() == "INVALID_DELIVERY_WINDOW" {
                assert!(answer.body["limit_ms"].is_i64() && answer.body["actual_ms"].is_i64(), "{}", answer.body);
                assert!(detail.chars().any(|character| character.is_ascii_digit()), "{detail}");
            }
            assert!(answer.body["field"].is_string() || answer.code() == "MALFORMED_BODY", "{}", answer.body);
            refused += 1;
        };
        for step in [two_31 - 1, two_31, two_31 + 1, two_32 - 1, two_32, two_32 + 1] {
            // As milliseconds these are days in 1970, long past.
            check("deliver_at_ms", step.to_string(), &["INVALID_DELIVERY_WINDOW"]).await;
        }
        for step in [two_53 - 1, two_53, two_53 + 1, max - 1, max] {
            check("deliver_at_ms", step.to_string(), &["INVALID_DELIVERY_WINDOW"]).await;
            check("delay", format!("\"{step}ms\""), &["INVALID_DELIVERY_WINDOW"]).await;
        }
        for step in [two_31, two_32, two_53, max / 1_000, max] {
            check("delay", format!("\"{step}s\""), &["INVALID_DELIVERY_WINDOW", "INVALID_FIELD"]).await;
        }
        for raw in [
            "9223372036854775808",
            "18446744073709551616",
            "1e400",
            "1e18",
            "1.5",
            "-1",
            "-9223372036854775808",
            "1767225600000.5",
            "1e3",
            "\"1767225600000\"",
            "true",
            "[]",
            "{}",
            "null",
        ] {
            check("deliver_at_ms", raw.to_owned(), &["INVALID_FIELD", "INVALID_DELIVERY_WINDOW", "MALFORMED_BODY"])
                .await;
        }
        for raw in ["NaN", "Infinity", "-Infinity", "01", "+1", "0x10", "1_000", ""] {
            check("deliver_at_ms", raw.to_owned(), &["MALFORMED_BODY"]).await;
        }
        for raw in [
            "\"\"",
            "\"30\"",
            "\"-5s\"",
            "\"1.5h\"",
            "\"5 s\"",
            "\"1m1h\"",
            "\"1h1h\"",
            "\"1d2\"",
            "\"NaN\"",
            "\"∞\"",
            "30",
            "1.5",
            "null",
            "\"99999999999999999999y\"",
            "\"292471209y\"",
        ] {
            check("delay", raw.to_owned(), &["INVALID_FIELD", "INVALID_DELIVERY_WINDOW"]).await;
        }
        for raw in [
            "\"\"",
            "\"tomorrow\"",
            "\"2026-11-30\"",
            "\"2026-11-30T14:00:00\"",
            "\"2026-13-01T00:00:00Z\"",
            "\"2026-11-30T25:00:00Z\"",
            "\"9999-12-31T23:59:59Z\"",
            "\"1970-01-01T00:00:00Z\"",
            "\"-2026-11-30T14:00:00Z\"",
            "\"99999-01-01T00:00:00Z\"",
            "1767225600",
            "null",
        ] {
            check("deliver_at", raw.to_owned(), &["INVALID_FIELD", "INVALID_DELIVERY_WINDOW"]).await;
        }
        assert!(refused > 60);
        // The expiry climbs the same ladder.
        for raw in ["9223372036854775807", "9007199254740993", "-1", "1.5", "9223372036854775808"] {
            let body = format!(
                "{{\"destination\":\"{DESTINATION}\",\"value\":\"x\",\"delay\":\"1h\",\"expires_at_ms\":{raw}}}"
            );
            let answer = post(&world, body).await;
            assert!((400..=422).contains(&answer.status), "{raw}: {}", answer.body);
        }
        assert_eq!(world.http.get("/v1/counts").await.expect(200).body.to_string().matches(":0").count(), 8);
        // The last step that is good, is good.
        world.http.schedule(&json!({"destination": DESTINATION, "delay": "10y", "value": "x"})).await;
        post(&world, with("delay", "\"315360000001ms\"")).await.expect(422);
        assert_eq!(world.http.count("scheduled").await, 1);
    });
}

#[test]
fn a_record_is_too_large_by_one_byte_once_delivery_has_added_its_headers() {
    run(async {
        let world = World::new().await;
        let destination = world.http.get(&format!("/v1/destinations/{DESTINATION}")).await.expect(200);
        let limit = usize::try_from(destination.number("max_record_bytes")).expect("a size");
        let message = |bytes: usize, id: Option<&str>| {
            // Key, header name and header value count too.
            let value = "x".repeat(bytes - "key".len() - "name".len() - "value".len());
            let mut message = json!({
                "destination": DESTINATION, "delay": "0ms", "key": "key", "value": value,
                "headers": [{"name": "name", "value": "value"}],
            });
            if let Some(id) = id {
                message["id"] = json!(id);
            }
            message
        };
        // The longest id makes the longest delivery headers, and the largest record still arrives.
        let id = "i".repeat(256);
        let fits = world.http.post("/v1/messages?wait=published", &message(limit, Some(&id))).await.expect(201);
        assert_eq!(fits.text("status"), "published");
        let refused = world.http.post("/v1/messages", &message(limit + 1, None)).await.expect(413);
        assert_eq!(refused.code(), "PAYLOAD_TOO_LARGE");
        assert_eq!((&refused.body["limit_bytes"], &refused.body["actual_bytes"]), (&json!(limit), &json!(limit + 1)));
        assert!(refused.text("detail").contains(&limit.to_string()), "{}", refused.body);
        let long_id = json!({"destination": DESTINATION, "delay": "1h", "value": "x", "id": "i".repeat(257)});
        assert_eq!(world.http.post("/v1/messages", &long_id).await.expect(400).text("field"), "id");
        assert_eq!(world.http.count("scheduled").await, 0);
    });
}

#[test]
fn unknown_destinations_reserved_headers_and_unknown_fields_are_named() {
    run(async {
        let world = World::new().await;
        let unknown = json!({"destination": "order", "delay": "1h", "value": "x"});
        let refused = world.http.post("/v1/messages", &unknown).await.expect(404);
        assert_eq!((refused.code(), refused.text("field")), ("UNKNOWN_DESTINATION", "destination"));
        assert!(refused.text("detail").contains(DESTINATION), "it says which there are: {}", refused.body);
        for name in ["nereus.delay.message_id", "nereus.delay.", "nereus.delay.anything", "nereus.nulls"] {
            let message = json!({"destination": DESTINATION, "delay": "1h", "value": "x", "headers": [{"name": name, "value": "x"}]});
            let refused = world.http.post("/v1/messages", &message).await.expect(422);
            assert_eq!((refused.code(), refused.text("field")), ("INVALID_METADATA", "headers"));
            assert!(refused.text("detail").contains(name), "{}", refused.body);
        }
        for field in ["delays", "Delay", "deliverAt", "priority"] {
            let refused = post(
                &world,
                format!("{{\"destination\":\"{DESTINATION}\",\"value\":\"x\",\"delay\":\"1h\",\"{field}\":1}}"),
            )
            .await;
            let refused = refused.expect(400);
            assert_eq!(refused.code(), "INVALID_FIELD");
            assert!(refused.text("detail").contains(field), "{}", refused.body);
        }
        // A name given twice is no choice of ours.
        post(
            &world,
            format!("{{\"destination\":\"{DESTINATION}\",\"value\":\"x\",\"delay\":\"1h\",\"delay\":\"2h\"}}"),
        )
        .await
        .expect(400);
        for id in [json!(""), json!("ndm1_x"), json!(1), json!([]), json!({})] {
            let message = json!({"destination": DESTINATION, "delay": "1h", "value": "x", "id": id});
            let refused = world.http.post("/v1/messages", &message).await;
            assert_eq!(refused.status, 400, "{id}: {}", refused.body);
        }
        assert_eq!(world.http.count("scheduled").await, 0);
    });
}

#[test]
fn bodies_that_are_cut_garbled_or_of_another_type_are_refused() {
    run(async {
        let world = World::new().await;
        let whole =
            json!({"destination": DESTINATION, "delay": "1h", "key": "k", "value": {"type": "json", "data": [1, 2]}})
                .to_string();
        for length in 0..whole.len() {
            let answer = post(&world, whole[..length].to_owned()).await;
            assert!(matches!(answer.status, 400 | 415), "{length}: {} {}", answer.status, answer.body);
        }
        let mut invalid = whole.clone().into_bytes();
        let position = whole.find("\"k\"").expect("the key") + 1;
        for byte in [0xff, 0xc0, 0x80, 0x00, 0x1f] {
            invalid[position] = byte;
            let refused = post(&world, invalid.clone()).await.expect(400);
            assert_eq!(refused.code(), "MALFORMED_BODY");
        }
        for lone in ["\"\\ud800\"", "\"\\udc00x\""] {
            let answer = post(&world, with("key", lone)).await;
            assert_eq!(answer.status, 400, "{lone}: {}", answer.body);
        }
        let form =
            world.http.send(Method::POST, "/v1/messages", &[("content-type", "text/plain")], whole.clone()).await;
        assert!(matches!(form.status, 400 | 415), "{}", form.body);
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        post(&world, with("value", &deep)).await.expect(400);
        for path in ["/v1/message", "/v1/messages/a/b", "/"] {
            assert_eq!(world.http.get(path).await.expect(404).code(), "PATH_NOT_FOUND", "{path}");
        }
        let refused = world.http.put("/v1/messages", &json!({})).await.expect(405);
        assert_eq!((refused.code(), refused.header("allow")), ("METHOD_NOT_ALLOWED", Some("GET, POST")));
        assert_eq!(world.http.get("/v1/messages/%ff").await.expect(400).code(), "INVALID_PARAMETER");
        assert_eq!(world.http.count("scheduled").await, 0);
    });
}

#[test]
fn a_body_that_breaks_off_stores_nothing_and_the_next_request_is_answered() {
    run(async {
        let world = World::new().await;
        let body =
            json!({"messages": vec![json!({"destination": DESTINATION, "delay": "1h", "value": "x"}); 50]}).to_string();
        let head = |length: usize| {
            format!(
                "POST /v1/messages:batch HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
            )
        };
        for sent in [0, 1, body.len() / 2, body.len() - 1] {
            let mut stream = TcpStream::connect(world.server.address()).await.expect("a connection");
            stream.write_all(head(body.len()).as_bytes()).await.expect("sent");
            stream.write_all(&body.as_bytes()[..sent]).await.expect("sent");
            drop(stream);
        }
        // More than is allowed is refused by its stated length, before it is sent.
        let mut stream = TcpStream::connect(world.server.address()).await.expect("a connection");
        stream.write_all(head(1 << 40).as_bytes()).await.expect("sent");
        let mut answer = vec![0; 1_024];
        let read = stream.read(&mut answer).await.expect("an answer");
        let answer = String::from_utf8_lossy(&answer[..read]).into_owned();
        assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
        assert_eq!(world.http.count("scheduled").await, 0);
    });
}

#[test]
fn ten_thousand_connections_are_held_and_answered() {
    const CONNECTIONS: usize = 10_000;
    run(async {
        let _limit = rlimit::increase_nofile_limit(u64::MAX).expect("the limit of open files");
        let world = World::new().await;
        let address = world.server.address();
        let mut connections = Vec::with_capacity(CONNECTIONS);
        for chunk in (0..CONNECTIONS).collect::<Vec<_>>().chunks(200) {
            let opening = chunk.iter().map(|_| async {
                let mut stream = TcpStream::connect(address).await.expect("a connection");
                stream.write_all(b"GET /v1/counts HTTP/1.1\r\nhost: x\r\n").await.expect("sent");
                stream
            });
            connections.extend(join_all(opening).await);
        }
        // Beside all of them, work goes on.
        let message = json!({"destination": DESTINATION, "delay": "0ms", "value": "x"});
        let published = tokio::time::timeout(LIMIT, world.http.post("/v1/messages?wait=published", &message)).await;
        assert_eq!(published.expect("in time").expect(201).text("status"), "published");
        let mut answered = 0;
        for stream in &mut connections {
            stream.write_all(b"connection: close\r\n\r\n").await.expect("sent");
        }
        for mut stream in connections {
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.expect("an answer");
            assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
            answered += 1;
        }
        assert_eq!(answered, CONNECTIONS);
    });
}

#[test]
fn destinations_with_bad_settings_are_refused_and_not_made() {
    run(async {
        let world = World::new().await;
        let put = async |name: &str, spec: Value| world.http.put(&format!("/v1/destinations/{name}"), &spec).await;
        let topic = |topic: &str| json!({"embedded": {"topic": topic}});
        let cases = [
            ("d", json!({}), "destination"),
            (
                "d",
                json!({"embedded": {"topic": "t"}, "kafka": {"bootstrap.servers": "k:1", "topic": "t"}}),
                "destination",
            ),
            ("d", json!({"kafka": {"bootstrap.servers": " ", "topic": "t"}}), "kafka"),
            ("d", json!({"kafka": {"bootstrap.servers": "k:1", "topic": "a/b"}}), "kafka.topic"),
            ("d", json!({"kafka": {"bootstrap.servers": "k:1", "topic": "t", "acks": "1"}}), "kafka"),
            ("d", json!({"kafka": {"bootstrap.servers": "k:1", "topic": "t", "sasl.password": "x"}}), "kafka"),
            ("d", json!({"embedded": {"topic": "t"}, "partition": 1}), "partition"),
            ("d", json!({"embedded": {"topic": "t"}, "partition": 0, "partitioner": "murmur2"}), "partitioner"),
            ("d", topic(""), "embedded.topic"),
            ("d", topic("_route.x"), "embedded.topic"),
            ("d", topic("a/b"), "embedded.topic"),
            ("d", json!({"embedded": {"topic": "t", "partitions": 0}}), "embedded.partitions"),
            ("d", json!({"embedded": {"topic": "t", "partitions": 1_000_000}}), "embedded.partitions"),
            ("_d", topic("t"), "name"),
            ("a b".replace(' ', "%20").as_str(), topic("t"), "name"),
            ("d", json!({"embedded": {"topic": "t"}, "max_delay": "11y"}), "max_delay"),
            ("d", json!({"embedded": {"topic": "t"}, "max_delay": "30"}), "max_delay"),
            ("d", json!({"embedded": {"topic": "t"}, "expires_after": "1s"}), "expires_after"),
            ("d", json!({"embedded": {"topic": "t"}, "retry": {"initial_backoff": "soon"}}), "retry.initial_backoff"),
        ]
        .map(|(name, spec, field)| (name.to_owned(), spec, field));
        for (name, spec, field) in cases {
            let refused = put(&name, spec.clone()).await;
            assert_eq!(
                (refused.status, refused.body["field"].as_str()),
                (400, Some(field)),
                "{spec}: {}",
                refused.body
            );
        }
        put("d", json!({"embedded": {"topic": "t", "unknown": 1}})).await.expect(400);
        // The topic of another destination with another number of partitions: a conflict with what exists.
        let conflict = put("d", json!({"embedded": {"topic": "orders.due", "partitions": 3}})).await.expect(409);
        assert_eq!(conflict.code(), "DESTINATION_CONFLICT");
        let listed = world.http.get("/v1/destinations").await.expect(200);
        assert_eq!(listed.body["items"].as_array().map(Vec::len), Some(1));
        let topics = world.http.get("/v1/topics").await.expect(200);
        assert_eq!(topics.body["items"].as_array().map(Vec::len), Some(1), "{}", topics.body);

        // A dry run checks and makes nothing; the same settings again are no change; others are a new version.
        world.http.put("/v1/destinations/e?dry_run=true", &topic("e.due")).await.expect(200);
        world.http.get("/v1/destinations/e").await.expect(404);
        assert_eq!(put("e", topic("e.due")).await.expect(201).number("version"), 1);
        assert_eq!(put("e", topic("e.due")).await.expect(200).number("version"), 1);
        let changed = put("e", json!({"embedded": {"topic": "e.due"}, "max_delay": "1d"})).await.expect(201);
        assert_eq!(changed.number("version"), 2);
        let late = json!({"destination": "e", "delay": "2d", "value": "x"});
        assert_eq!(world.http.post("/v1/messages", &late).await.expect(422).number("limit_ms"), 86_400_000);
        tokio::time::timeout(Duration::from_secs(1), async {}).await.expect("nothing waits");
    });
}
