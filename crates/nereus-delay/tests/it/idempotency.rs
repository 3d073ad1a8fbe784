//! Idempotency-Key: the same request again gets the first answer, whatever happened in between.

use hyper::Method;
use serde_json::json;

use crate::world::{Answer, DESTINATION, Http, World, run};

async fn post(http: &Http, key: &str, body: &str) -> Answer {
    http.send(Method::POST, "/v1/messages", &[("idempotency-key", key)], body.to_owned()).await
}

#[test]
fn a_repeated_request_gets_the_first_answer_and_makes_no_second_message() {
    run(async {
        let mut world = World::new().await;
        let body = json!({"destination": DESTINATION, "delay": "1h", "value": "x"}).to_string();
        let first = post(&world.http, "k1", &body).await.expect(201);
        assert_eq!(first.header("idempotent-replayed"), None);
        let again = post(&world.http, "k1", &body).await.expect(201);
        assert_eq!(again.header("idempotent-replayed"), Some("true"));
        // Also the delay's time is the first one's.
        assert_eq!(again.body, first.body);
        world = world.crash().await;
        let after = post(&world.http, "k1", &body).await.expect(201);
        assert_eq!(after.body, first.body);
        assert_eq!(world.http.count("scheduled").await, 1);

        let other = json!({"destination": DESTINATION, "delay": "2h", "value": "x"}).to_string();
        let reused = post(&world.http, "k1", &other).await.expect(422);
        assert_eq!(reused.code(), "IDEMPOTENCY_KEY_REUSED");
        post(&world.http, "k2", &other).await.expect(201);
        assert_eq!(world.http.count("scheduled").await, 2);
    });
}

#[test]
fn a_refusal_is_replayed_too_and_bad_keys_are_refused() {
    run(async {
        let world = World::new().await;
        let http = &world.http;
        let taken = json!({"destination": DESTINATION, "id": "taken", "delay": "1h", "value": "x"}).to_string();
        post(http, "first", &taken).await.expect(201);
        let refused = post(http, "second", &taken).await.expect(409);
        assert_eq!(refused.code(), "DELAY_MESSAGE_ID_CONFLICT");
        http.delete("/v1/messages/taken").await.expect(200);
        let again = post(http, "second", &taken).await.expect(409);
        assert_eq!(again.header("idempotent-replayed"), Some("true"));
        assert_eq!(again.code(), "DELAY_MESSAGE_ID_CONFLICT");
        post(http, "third", &taken).await.expect(201);

        for key in ["", &"k".repeat(256)] {
            assert_eq!(post(http, key, &taken).await.expect(400).code(), "INVALID_HEADER");
        }
    });
}

#[test]
fn keys_work_in_batches_and_for_changes() {
    run(async {
        let world = World::new().await;
        let http = &world.http;
        let item = |key: &str, value: &str| json!({"destination": DESTINATION, "delay": "1h", "value": value, "idempotency_key": key});
        let batch = json!({"messages": [item("b1", "x"), item("b2", "y"), item("b1", "x"), item("b1", "z")]});
        let first = http.post("/v1/messages:batch", &batch).await.expect(200);
        assert_eq!(first.body["results"][2]["code"], "IDEMPOTENCY_KEY_IN_USE");
        assert_eq!(http.count("scheduled").await, 2);
        let again = http.post("/v1/messages:batch", &batch).await.expect(200);
        assert_eq!(again.body["results"][0], first.body["results"][0]);
        assert_eq!(again.body["results"][1], first.body["results"][1]);
        assert_eq!(again.body["results"][3]["code"], "IDEMPOTENCY_KEY_REUSED");
        assert_eq!(http.count("scheduled").await, 2);

        let id = first.body["results"][0]["message_id"].as_str().expect("an id");
        let path = format!("/v1/messages/{id}");
        let change = async |method: Method, key: &'static str, body: &'static str| {
            http.send(method, &path, &[("idempotency-key", key)], body).await
        };
        let moved = change(Method::PATCH, "p1", "{\"delay\":\"2h\"}").await.expect(200);
        let replayed = change(Method::PATCH, "p1", "{\"delay\":\"2h\"}").await.expect(200);
        assert_eq!(replayed.header("idempotent-replayed"), Some("true"));
        assert_eq!(replayed.body, moved.body);
        assert_eq!(
            change(Method::PATCH, "p1", "{\"delay\":\"3h\"}").await.expect(422).code(),
            "IDEMPOTENCY_KEY_REUSED"
        );
        assert_eq!(change(Method::DELETE, "p1", "").await.expect(422).code(), "IDEMPOTENCY_KEY_REUSED");
        change(Method::DELETE, "d1", "").await.expect(200);
        assert_eq!(change(Method::DELETE, "d1", "").await.expect(200).text("status"), "canceled");
    });
}
