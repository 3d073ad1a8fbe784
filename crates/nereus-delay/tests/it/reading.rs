//! Asking: single messages, lists, counts, topics, and what operators and monitoring see.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::world::{DESTINATION, TOPIC, World, run};

#[test]
fn a_message_can_be_asked_for_by_both_ids_and_shows_its_payload_on_request() {
    run(async {
        let world = World::new().await;
        let http = &world.http;
        let message = json!({
            "destination": DESTINATION, "id": "order/42 ä", "delay": "1h", "key": "k",
            "value": {"type": "json", "data": {"b": 1, "a": [1.50, null]}},
            "headers": [
                {"name": "traceparent", "value": "00-x"},
                {"name": "empty", "value": ""},
                {"name": "null", "value": null},
                {"name": "binary", "value": {"type": "binary", "data": "/w=="}},
            ],
        });
        // JSON data is delivered byte for byte as it was written, so it is written by hand.
        let text = message.to_string().replace("{\"a\":[1.5,null],\"b\":1}", "{ \"b\":1, \"a\":[1.50,null] }");
        let scheduled = http.send(hyper::Method::POST, "/v1/messages", &[], text).await.expect(201);
        let location = scheduled.header("location").expect("a location").to_owned();
        for path in [location.as_str(), "/v1/messages/order%2F42%20%C3%A4"] {
            let found = http.get(path).await.expect(200);
            assert_eq!(found.text("message_id"), scheduled.text("message_id"));
            assert_eq!(found.text("id"), "order/42 ä");
            assert!(found.body.get("payload").is_none());
        }
        let whole = http.get(&format!("{location}?include=payload")).await.expect(200);
        let payload = &whole.body["payload"];
        assert_eq!(payload["key"], "k");
        assert_eq!(payload["value"], "{ \"b\":1, \"a\":[1.50,null] }");
        assert_eq!(payload["headers"], message["headers"]);
        for missing in ["/v1/messages/nothing", "/v1/messages/ndm1_nonsense"] {
            assert_eq!(http.get(missing).await.expect(404).code(), "NOT_FOUND", "{missing}");
        }
    });
}

#[test]
fn key_value_and_headers_reach_the_consumer_as_they_were_given() {
    run(async {
        let world = World::new().await;
        let http = &world.http;
        let headers = json!([
            {"name": "twice", "value": "1"},
            {"name": "twice", "value": "2"},
            {"name": "empty", "value": ""},
            {"name": "null", "value": null},
            {"name": "", "value": "no name"},
        ]);
        let contents = [
            (json!("text"), json!("value")),
            (json!(""), json!("")),
            (json!(null), json!(null)),
            (json!({"type": "binary", "data": "AP8="}), json!({"type": "binary", "data": "/wA="})),
        ];
        for (key, value) in &contents {
            let message =
                json!({"destination": DESTINATION, "delay": "0ms", "key": key, "value": value, "headers": headers});
            http.post("/v1/messages?wait=published", &message).await.expect(201);
        }
        let records = http.records(TOPIC).await;
        assert_eq!(records.len(), contents.len());
        for (key, value) in &contents {
            let record = records.iter().find(|record| record["key"] == *key && record["value"] == *value);
            let record = record.unwrap_or_else(|| panic!("no record with {key} and {value}: {records:?}"));
            let given = &record["headers"].as_array().expect("headers")[..5];
            assert_eq!(given, headers.as_array().expect("headers").as_slice());
        }
    });
}

#[test]
fn lists_filter_page_and_agree_with_the_counts() {
    run(async {
        let world = World::new().await;
        let http = &world.http;
        http.put("/v1/destinations/other", &json!({"embedded": {"topic": "other.due"}})).await.expect(201);
        let mut messages = Vec::new();
        for index in 0..120 {
            let destination = if index % 3 == 0 { "other" } else { DESTINATION };
            messages.push(json!({"destination": destination, "id": format!("a{index:03}"), "delay": format!("{}s", 600 + index), "value": "x"}));
        }
        http.schedule_all(&messages).await;
        for index in 0..20 {
            http.delete(&format!("/v1/messages/a{index:03}")).await.expect(200);
        }
        let list = async |query: &str| -> Vec<Value> {
            let mut items = Vec::new();
            let mut cursor = String::new();
            loop {
                let page = http.get(&format!("/v1/messages?limit=7&{query}{cursor}")).await.expect(200);
                let found = page.body["items"].as_array().expect("items");
                assert!(found.len() <= 7);
                items.extend(found.iter().cloned());
                match page.body["next_cursor"].as_str() {
                    Some(next) => cursor = format!("&cursor={next}"),
                    None => return items,
                }
            }
        };
        let ids = |items: &[Value]| -> Vec<String> {
            items.iter().map(|item| item["id"].as_str().expect("an id").to_owned()).collect()
        };
        let all = list("").await;
        assert_eq!(ids(&all).into_iter().collect::<BTreeSet<_>>().len(), 120);
        assert_eq!(all.len(), 120);
        let scheduled = list("status=scheduled").await;
        assert_eq!(scheduled.len(), 100);
        assert!(
            scheduled.is_sorted_by_key(|item| item["deliver_at_ms"].as_i64()),
            "waiting messages come in the order of their times"
        );
        let canceled = list("status=canceled&destination=other").await;
        assert_eq!(canceled.len(), 7);
        assert!(canceled.iter().all(|item| item["destination"] == "other" && item["status"] == "canceled"));
        let prefixed = list("id_prefix=a11").await;
        assert_eq!(ids(&prefixed), (110..120).map(|index| format!("a{index}")).collect::<Vec<_>>());
        let due = scheduled[40]["deliver_at_ms"].as_i64().expect("a time");
        let before = list(&format!("status=scheduled&due_before={due}")).await;
        let after = list(&format!("status=scheduled&due_after={due}")).await;
        assert_eq!(before.len() + after.len(), 100);
        assert!(before.iter().all(|item| item["deliver_at_ms"].as_i64() < Some(due)));

        let counts = http.get("/v1/counts").await.expect(200);
        assert_eq!((counts.number("scheduled"), counts.number("canceled")), (100, 20));
        let counts = http.get("/v1/counts?destination=other").await.expect(200);
        assert_eq!((counts.number("scheduled"), counts.number("canceled")), (33, 7));

        for (query, field) in [
            ("status=unknown", "status"),
            ("limit=0", "limit"),
            ("cursor=x", "cursor"),
            ("nothing=1", "nothing"),
            ("due_after=tomorrow", "due_after"),
        ] {
            let refused = http.get(&format!("/v1/messages?{query}")).await.expect(400);
            assert_eq!((refused.code(), refused.text("field")), ("INVALID_PARAMETER", field));
        }
        assert_eq!(http.get("/v1/counts?destination=none").await.expect(404).code(), "UNKNOWN_DESTINATION");
    });
}

#[test]
fn a_follower_gets_records_as_they_come_and_offsets_are_checked() {
    run(async {
        let world = World::new().await;
        let http = &world.http;
        http.put("/v1/destinations/lines", &json!({"embedded": {"topic": "lines"}})).await.expect(201);
        let client = world.server.client();
        let follow = client
            .call(hyper::Method::GET, &["v1", "topics", "lines", "records"])
            .query("follow", Some("true"))
            .stream()
            .await;
        let mut follow = follow.expect("an answer");
        for round in 0..3 {
            let message = json!({"destination": "lines", "delay": "50ms", "value": format!("r{round}")});
            http.schedule(&message).await;
            let line = follow.next_line().await.expect("a line").expect("not the end");
            let record: Value = serde_json::from_str(&line).expect("JSON");
            assert_eq!(
                (record["offset"].as_u64(), record["value"].as_str()),
                (Some(round), Some(format!("r{round}").as_str()))
            );
        }
        let page = http.get("/v1/topics/lines/records?offset=1&limit=1").await.expect(200);
        assert_eq!((page.number("next_offset"), page.number("end_offset"), page.number("start_offset")), (2, 3, 0));
        assert_eq!(page.body["records"][0]["value"], "r1");
        assert!(
            http.get("/v1/topics/lines/records?offset=end").await.expect(200).body["records"]
                .as_array()
                .expect("records")
                .is_empty()
        );
        assert_eq!(http.get("/v1/topics/lines/records?offset=4").await.expect(416).code(), "OFFSET_OUT_OF_RANGE");
        assert_eq!(http.get("/v1/topics/lines/records?partition=1").await.expect(404).code(), "UNKNOWN_TOPIC");
        assert_eq!(http.get("/v1/topics/none/records").await.expect(404).code(), "UNKNOWN_TOPIC");
        // The shards' own log is not a topic for consumers.
        let topics = http.get("/v1/topics").await.expect(200).body.to_string();
        assert!(!topics.contains("_route"), "{topics}");
    });
}

#[test]
fn operators_and_monitoring_see_shards_lanes_lateness_and_the_clock() {
    run(async {
        let world = World::new().await;
        let http = &world.http;
        let message = json!({"destination": DESTINATION, "delay": "20ms", "value": "x"});
        http.post("/v1/messages?wait=published", &message).await.expect(201);
        let shards = http.get("/v1/admin/shards").await.expect(200);
        let shards = shards.body["items"].as_array().expect("shards");
        assert_eq!(shards.len(), 2);
        assert!(shards.iter().all(|shard| shard["lifecycle"] == "ACTIVE_FOR_COMMANDS"));
        let published: i64 = shards.iter().filter_map(|shard| shard["totals"]["published"].as_i64()).sum();
        assert_eq!(published, 1);
        let lanes = http.get("/v1/admin/lanes").await.expect(200);
        assert_eq!(lanes.body["items"][0]["destination"], DESTINATION);
        assert_eq!(http.get("/v1/admin/lanes?destination=none").await.expect(404).code(), "UNKNOWN_DESTINATION");
        assert_eq!(http.get("/v1/admin/routes").await.expect(200).body["items"][0]["name"], "default");
        assert_eq!(http.get("/healthz").await.expect(200).body, "ok\n");
        assert_eq!(http.get("/readyz").await.expect(200).body["ready"], true);
        let metrics = http.get("/metrics").await.expect(200);
        let metrics = metrics.body.as_str().expect("text");
        let kinds = metrics.lines().filter_map(|line| line.strip_prefix("# TYPE ")).map(|line| {
            let (name, kind) = line.split_once(' ').expect("a name and a kind");
            (if kind == "counter" { format!("{name}_total") } else { name.to_owned() }, kind.to_owned())
        });
        let documented = include_str!("../../../../docs/metrics.md").lines().filter_map(|line| {
            let mut cells = line.strip_prefix("| `nereus_delay_")?.split('|').map(str::trim);
            let name = cells.next()?.trim_end_matches('`');
            Some((format!("nereus_delay_{name}"), cells.next()?.to_owned()))
        });
        let (served, documented): (BTreeSet<_>, BTreeSet<_>) = (kinds.collect(), documented.collect());
        assert_eq!(served, documented, "docs/metrics.md lists what is served");
        assert!(metrics.trim_end().ends_with("# EOF"));
        let openapi = http.get("/openapi.json").await.expect(200);
        assert!(openapi.body["paths"]["/v1/messages"]["post"].is_object());
        let page = http.get("/errors/TOO_LATE").await.expect(200);
        assert!(page.body.as_str().is_some_and(|page| page.starts_with("# TOO_LATE")));
        assert_eq!(http.get("/errors/NONE").await.expect(404).code(), "PATH_NOT_FOUND");
    });
}
