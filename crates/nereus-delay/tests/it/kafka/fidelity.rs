//! Every kind of record comes out as it went in, by our own reading and by that of Kafka's Java client.

use std::collections::BTreeMap;

use data_encoding::{BASE64, HEXLOWER};
use serde_json::{Value, json};

use super::{Server, cluster, delivered, destination, fresh_name, read_back};
use crate::world::run;

const MIB: usize = 1 << 20;

/// Key or value.
fn kinds() -> Vec<(&'static str, Option<Vec<u8>>)> {
    vec![
        ("null", None),
        ("empty", Some(Vec::new())),
        ("text", Some("schlüssel ✓".as_bytes().to_vec())),
        ("binary", Some((0..=255).collect())),
        ("1 MiB", Some((0..MIB).map(|index| u8::try_from(index % 251).expect("below 256")).collect())),
    ]
}

type Headers = Vec<(String, Option<Vec<u8>>)>;

fn header_sets() -> Vec<(&'static str, Headers)> {
    let named = |name: &str, value: Option<&[u8]>| (name.to_owned(), value.map(<[u8]>::to_vec));
    vec![
        ("none", Vec::new()),
        ("values", vec![named("null", None), named("empty", Some(b"")), named("binary", Some(b"\0\xfe\xff"))]),
        ("duplicates", vec![named("a", Some(b"1")), named("b", None), named("a", Some(b"2")), named("a", None)]),
        ("a hundred", (0..100).map(|number| named(&format!("h{number}"), Some(&[number]))).collect()),
        ("unicode", vec![named("größe-寸法-📐", Some("å".as_bytes())), named("with space", Some(b"x"))]),
    ]
}

fn binary(bytes: &Option<Vec<u8>>) -> Value {
    match bytes {
        None => Value::Null,
        Some(bytes) => json!({ "type": "binary", "data": BASE64.encode(bytes) }),
    }
}

struct Case {
    id: String,
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    headers: Headers,
}

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (key_kind, key) in kinds() {
        for (value_kind, value) in kinds() {
            let id = format!("key {key_kind}, value {value_kind}");
            cases.push(Case { id, key: key.clone(), value, headers: Vec::new() });
        }
    }
    for (kind, headers) in header_sets() {
        cases.push(Case { id: format!("headers {kind}"), key: None, value: Some(b"v".to_vec()), headers });
    }
    cases
}

#[test]
fn every_kind_of_record_comes_out_as_it_went_in() {
    run(async {
        let (cluster, topic) = (cluster(), fresh_name("fidelity"));
        cluster.create_topic(&topic, 3, &[("max.message.bytes", "8388608")]).await.expect("made");
        let server = Server::new("[http]\nbody_bytes_max = \"8MiB\"\n").await;
        server.http.put("/v1/destinations/matrix", &destination(&cluster, &topic)).await.expect(201);
        let cases = cases();
        for case in &cases {
            let headers: Vec<Value> =
                case.headers.iter().map(|(name, value)| json!({ "name": name, "value": binary(value) })).collect();
            let message = json!({
                "destination": "matrix", "delay": "1ms", "id": case.id, "key": binary(&case.key),
                "value": binary(&case.value), "headers": headers,
            });
            server.http.schedule(&message).await;
        }
        let found = delivered(&cluster, &topic, cases.len()).await;
        assert_eq!(found.len(), cases.len());
        let by_id: BTreeMap<&str, _> =
            found.iter().map(|record| (record.header("nereus.delay.id").expect("the caller's id"), record)).collect();
        let by_other_client: BTreeMap<String, Value> =
            read_back(&cluster, &topic).await.into_iter().map(|record| (other_id(&record), record)).collect();
        for case in &cases {
            let record = by_id[case.id.as_str()];
            assert_eq!(record.key.as_deref(), case.key.as_deref(), "{}", case.id);
            assert_eq!(record.value.as_deref(), case.value.as_deref(), "{}", case.id);
            let (own, added) = record.headers.split_at(case.headers.len());
            let own: Headers =
                own.iter().map(|(name, value)| (name.clone(), value.as_ref().map(|v| v.to_vec()))).collect();
            assert_eq!(own, case.headers, "{}", case.id);
            assert!(added.iter().all(|(name, _)| name.starts_with("nereus.delay.")), "{added:?}");

            let other = &by_other_client[&case.id];
            assert_eq!(other["key"], told(&case.key), "{}", case.id);
            assert_eq!(other["value"], told(&case.value), "{}", case.id);
            let other_headers = other["headers"].as_array().expect("headers");
            for (expected, found) in case.headers.iter().zip(other_headers) {
                assert_eq!(found[0], HEXLOWER.encode(expected.0.as_bytes()), "{}", case.id);
                assert_eq!(found[1], told(&expected.1), "{}", case.id);
            }
            assert_eq!(other["partition"], record.partition, "{}", case.id);
        }
    });
}

fn other_id(record: &Value) -> String {
    let wanted = HEXLOWER.encode(b"nereus.delay.id");
    let headers = record["headers"].as_array().expect("headers");
    let header = headers.iter().find(|header| header[0] == wanted).expect("the caller's id");
    let bytes = HEXLOWER.decode(header[1].as_str().expect("a value").as_bytes()).expect("hexadecimal");
    String::from_utf8(bytes).expect("text")
}

/// Bytes as the other client tells them.
fn told(bytes: &Option<Vec<u8>>) -> Value {
    match bytes {
        None => Value::Null,
        Some(bytes) if bytes.len() <= 4_096 => Value::String(HEXLOWER.encode(bytes)),
        Some(bytes) => Value::String(format!("sha256:{}", HEXLOWER.encode(&protocol::hash::sha256(bytes)))),
    }
}

#[test]
fn a_key_goes_where_kafkas_own_partitioner_puts_it() {
    run(async {
        let (cluster, topic) = (cluster(), fresh_name("partitions"));
        let by_java = fresh_name("partitions-java");
        for name in [&topic, &by_java] {
            cluster.create_topic(name, 7, &[]).await.expect("made");
        }
        let server = Server::new("").await;
        server.http.put("/v1/destinations/keys", &destination(&cluster, &topic)).await.expect(201);
        let keys: Vec<String> = (0..40).map(|number| format!("key-{number}-ä")).collect();
        let messages: Vec<Value> =
            keys.iter().map(|key| json!({ "destination": "keys", "delay": "1ms", "key": key, "value": "v" })).collect();
        server.http.schedule_all(&messages).await;
        super::produce_by_java(&cluster, &by_java, &keys).await;
        let places = |records: Vec<harness::kafka::Record>| -> BTreeMap<Vec<u8>, i32> {
            records.into_iter().map(|record| (record.key.expect("a key").to_vec(), record.partition)).collect()
        };
        let ours = places(delivered(&cluster, &topic, keys.len()).await);
        let javas = places(delivered(&cluster, &by_java, keys.len()).await);
        assert_eq!(ours, javas);
    });
}
