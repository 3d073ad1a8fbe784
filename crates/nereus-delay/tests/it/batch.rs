//! A batch gives each message what a single request would give it.

use serde_json::{Value, json};

use crate::world::{DESTINATION, World, run};

/// What an answer says, apart from what differs between any two messages.
fn essence(answer: &Value) -> Value {
    let mut essence = json!({});
    for field in ["status", "code", "field", "limit_ms", "limit_bytes", "title", "retryable", "version"] {
        essence[field] = answer[field].clone();
    }
    essence
}

#[test]
fn batch_and_single_calls_give_the_same_verdicts() {
    run(async {
        let world = World::new().await;
        let http = &world.http;
        http.schedule(&json!({"destination": DESTINATION, "id": "taken", "delay": "1h", "value": "x"})).await;
        let large = "x".repeat(999_994);
        let messages = [
            json!({"destination": DESTINATION, "delay": "1h", "value": "plain"}),
            json!({"destination": DESTINATION, "delay": "1h", "value": null}),
            json!({"destination": DESTINATION, "deliver_at": "2027-01-01T00:00:00Z", "value": {"type": "json", "data": {"a": 1}}}),
            json!({"destination": DESTINATION, "id": "taken", "delay": "1h", "value": "x"}),
            json!({"destination": "nowhere", "delay": "1h", "value": "x"}),
            json!({"destination": DESTINATION, "delay": "30", "value": "x"}),
            json!({"destination": DESTINATION, "delay": 30, "value": "x"}),
            json!({"destination": DESTINATION, "delay": "11y", "value": "x"}),
            json!({"destination": DESTINATION, "value": "x"}),
            json!({"destination": DESTINATION, "delay": "1h", "deliver_at_ms": 1, "value": "x"}),
            json!({"destination": DESTINATION, "deliver_at_ms": 1, "value": "x"}),
            json!({"destination": DESTINATION, "delay": "1h"}),
            json!({"destination": DESTINATION, "delay": "1h", "value": "x", "unknown": 1}),
            json!({"destination": DESTINATION, "delay": "1h", "value": "x", "expires_after": "4s"}),
            json!({"destination": DESTINATION, "delay": "1h", "value": large}),
            json!({"destination": DESTINATION, "delay": "1h", "value": "x", "headers": [{"name": "nereus.delay.x", "value": "y"}]}),
            json!({"destination": DESTINATION, "delay": "1h", "value": {"type": "binary", "data": "no base64"}}),
            json!("not an object"),
        ];
        let batch = http.post("/v1/messages:batch", &json!({ "messages": messages })).await.expect(200);
        let results = batch.body["results"].as_array().expect("results");
        assert_eq!(results.len(), messages.len());
        let mut codes = Vec::new();
        for (message, result) in messages.iter().zip(results) {
            let single = http.post("/v1/messages", message).await;
            assert_eq!(essence(&single.body), essence(result), "{message}");
            codes.push(result["code"].as_str().unwrap_or("taken").to_owned());
        }
        let expected = [
            "taken",
            "taken",
            "taken",
            "DELAY_MESSAGE_ID_CONFLICT",
            "UNKNOWN_DESTINATION",
            "INVALID_FIELD",
            "INVALID_FIELD",
            "INVALID_DELIVERY_WINDOW",
            "INVALID_FIELD",
            "INVALID_FIELD",
            "INVALID_DELIVERY_WINDOW",
            "INVALID_FIELD",
            "INVALID_FIELD",
            "INVALID_DELIVERY_WINDOW",
            "PAYLOAD_TOO_LARGE",
            "INVALID_METADATA",
            "INVALID_FIELD",
            "INVALID_FIELD",
        ];
        assert_eq!(codes, expected);
        // What was refused left nothing: three were taken by the batch, three singly, one before.
        assert_eq!(http.count("scheduled").await, 7);
    });
}

#[test]
fn a_batch_that_is_too_long_or_no_batch_is_refused_whole() {
    run(async {
        let world = World::new().await;
        let http = &world.http;
        let message = json!({"destination": DESTINATION, "delay": "1h", "value": "x"});
        let long: Vec<&Value> = vec![&message; 1_001];
        let refused = http.post("/v1/messages:batch", &json!({ "messages": long })).await.expect(413);
        assert!(refused.text("detail").contains("1001") && refused.text("detail").contains("1000"), "{}", refused.body);
        for malformed in [json!([message]), json!({"messages": message}), json!({"messages": [], "more": 1}), json!({})]
        {
            http.post("/v1/messages:batch", &malformed).await.expect(400);
        }
        let empty = http.post("/v1/messages:batch", &json!({"messages": []})).await.expect(200);
        assert_eq!(empty.body, json!({"results": []}));
        assert_eq!(http.count("scheduled").await, 0);
    });
}
