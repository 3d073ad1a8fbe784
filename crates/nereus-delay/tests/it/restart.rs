//! Stops, crashes and starts, as operators and consumers see them.

use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::process::Command;

use crate::world::{DESTINATION, TOPIC, World, assert_none_early, pause, run};

#[test]
fn a_quiet_shard_delivers_its_one_message_after_a_restart_without_traffic() {
    run(async {
        for crash in [false, true] {
            let mut world = World::new().await;
            let message = json!({"destination": DESTINATION, "id": "only", "delay": "4s", "value": "x"});
            let deliver_at_ms = world.http.schedule(&message).await.number("deliver_at_ms");
            world = if crash { world.crash().await } else { world.restart().await };
            // Nothing else is asked of the server until the message is there.
            let follow = format!("/v1/topics/{TOPIC}");
            pause(Duration::from_secs(5)).await;
            world.http.get(&follow).await.expect(200);
            world.http.wait_for_count("published", 1).await;
            let message = world.http.get("/v1/messages/only").await.expect(200);
            let lateness_ms = message.number("lateness_ms");
            assert_eq!(message.body["delivery"]["timestamp_ms"].as_i64(), Some(deliver_at_ms + lateness_ms));
            // It did not wait for the questions that came after its time.
            assert!((0..1_000).contains(&lateness_ms), "{lateness_ms} ms late");
        }
    });
}

#[test]
fn sigterm_finishes_what_is_under_way_and_leaves_nothing_in_doubt() {
    const COUNT: usize = 20_000;
    run(async {
        let world = World::new().await;
        let messages: Vec<Value> = (0..COUNT)
            .map(|index| json!({"destination": DESTINATION, "delay": "700ms", "value": index.to_string()}))
            .collect();
        world.http.schedule_all(&messages).await;
        // In the middle of delivering them.
        let deadline = tokio::time::Instant::now() + crate::world::LIMIT;
        while world.http.count("published").await < 100 {
            assert!(tokio::time::Instant::now() < deadline, "nothing is published");
        }
        let world = world.restart().await;
        world.http.wait_for_count("published", i64::try_from(COUNT).expect("small")).await;
        let records = world.http.records(TOPIC).await;
        assert_none_early(&records);
        let mut values: Vec<usize> =
            records.iter().map(|record| record["value"].as_str().expect("text").parse().expect("a number")).collect();
        values.sort_unstable();
        assert!(values.iter().copied().eq(0..COUNT), "{} records, some twice or missing", values.len());
    });
}

#[test]
fn an_answered_cancel_holds_across_a_crash() {
    run(async {
        let mut world = World::new().await;
        for round in 0..5 {
            let id = format!("c{round}");
            let message = json!({"destination": DESTINATION, "id": id, "delay": "1500ms", "value": id});
            world.http.schedule(&message).await;
            world.http.delete(&format!("/v1/messages/{id}")).await.expect(200);
            world = world.crash().await;
            assert_eq!(world.http.get(&format!("/v1/messages/{id}")).await.expect(200).text("status"), "canceled");
        }
        let last = json!({"destination": DESTINATION, "delay": "1600ms", "value": "last"});
        world.http.post("/v1/messages?wait=published", &last).await.expect(201);
        let records = world.http.records(TOPIC).await;
        assert_eq!(records.len(), 1, "{records:?}");
        assert_eq!(records[0]["value"], "last");
    });
}

#[test]
fn a_second_server_on_the_same_folder_is_refused_and_the_first_goes_on() {
    run(async {
        let world = World::new().await;
        let second = Command::new(&world.options.binary)
            .args(["serve", "--listen", "127.0.0.1:0", "--data"])
            .arg(world.options.data())
            .stdin(Stdio::null())
            .output();
        let second = second.await.expect("it runs");
        assert_eq!(second.status.code(), Some(1));
        assert!(second.stdout.is_empty(), "it does not announce an address");
        let text = String::from_utf8_lossy(&second.stderr);
        assert!(text.contains("is used by another server"), "{text}");
        assert!(text.contains(&world.options.data().display().to_string()), "{text}");
        world.http.schedule(&json!({"destination": DESTINATION, "delay": "1h", "value": "x"})).await;
    });
}

#[test]
fn a_paused_destination_stays_paused_across_a_crash_and_delivers_after_resume() {
    run(async {
        let mut world = World::new().await;
        let path = format!("/v1/destinations/{DESTINATION}");
        let paused = world.http.send(hyper::Method::POST, &format!("{path}:pause"), &[], "").await.expect(200);
        assert_eq!(paused.body["paused"], true);
        let message = json!({"destination": DESTINATION, "id": "p", "delay": "0ms", "value": "x"});
        world.http.schedule(&message).await;
        world = world.crash().await;
        // Again is no change.
        world.http.send(hyper::Method::POST, &format!("{path}:pause"), &[], "").await.expect(200);
        let lanes = world.http.get(&format!("/v1/admin/lanes?destination={DESTINATION}")).await.expect(200);
        assert!(
            lanes.body["items"].as_array().expect("lanes").iter().all(|lane| lane["gate"] == "paused"),
            "{}",
            lanes.body
        );
        assert_eq!(world.http.get("/v1/messages/p").await.expect(200).text("status"), "scheduled");
        assert!(world.http.records(TOPIC).await.is_empty());
        let resumed = world.http.send(hyper::Method::POST, &format!("{path}:resume"), &[], "").await.expect(200);
        assert_eq!(resumed.body["paused"], false);
        world.http.wait_for_count("published", 1).await;
    });
}
