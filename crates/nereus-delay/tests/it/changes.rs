//! Cancelling and moving messages while time runs out for them: every verdict must match what the consumer saw.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::future::join;
use futures_util::stream::{self, StreamExt as _};
use hyper::Method;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};

use crate::world::{Answer, DESTINATION, TOPIC, World, assert_none_early, delivery_header, pause, run};

/// What a change that raced the due time was answered with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    Canceled,
    Moved(i64),
    TooLate,
    Published,
}

fn outcome(answer: &Answer) -> Outcome {
    match (answer.status, answer.code()) {
        (200, _) if answer.body["status"] == "canceled" => Outcome::Canceled,
        (200, _) => Outcome::Moved(answer.number("deliver_at_ms")),
        (409, "TOO_LATE") => Outcome::TooLate,
        (409, "ALREADY_PUBLISHED") => Outcome::Published,
        _ => panic!("{}", answer.body),
    }
}

#[test]
fn ten_thousand_cancels_and_reschedules_race_the_due_time_and_every_verdict_is_true() {
    const COUNT: usize = 10_000;
    const SPREAD: Duration = Duration::from_secs(8);
    const RACE_MS: i64 = 50;
    run(async {
        let world = World::new().await;
        let http = &world.http;
        let mut random = fastrand::Rng::with_seed(1);
        let start_ms = http.get("/v1/messages?limit=1").await.expect(200);
        drop(start_ms);
        let now_ms = http
            .schedule(&json!({"destination": DESTINATION, "delay": "1h", "value": "clock"}))
            .await
            .number("server_time_ms");
        let began = Instant::now();
        let first_due_ms = now_ms + 4_000;
        let due_ms: Vec<i64> = (0..COUNT)
            .map(|index| first_due_ms + i64::try_from(index * SPREAD.as_millis() as usize / COUNT).expect("small"))
            .collect();
        let messages: Vec<Value> = due_ms
            .iter()
            .enumerate()
            .map(|(index, due_ms)| {
                json!({"destination": DESTINATION, "id": format!("m{index}"), "deliver_at_ms": due_ms, "value": index.to_string()})
            })
            .collect();
        http.schedule_all(&messages).await;
        assert!(Instant::now() < began + Duration::from_secs(4), "scheduling took too long for the race to begin");

        let changes = (0..COUNT).map(|index| {
            let offset_ms = random.i64(-RACE_MS..=RACE_MS);
            let at = began + Duration::from_millis(u64::try_from(due_ms[index] + offset_ms - now_ms).expect("later"));
            async move {
                sleep_until(at).await;
                let path = format!("/v1/messages/m{index}");
                let answer = if index % 2 == 0 {
                    http.delete(&path).await
                } else {
                    http.patch(&path, &json!({"delay": "3s"})).await
                };
                (index, outcome(&answer))
            }
        });
        let outcomes: BTreeMap<usize, Outcome> = stream::iter(changes).buffer_unordered(256).collect().await;

        http.wait_for_count("scheduled", 1).await;
        http.wait_for_count("publishing", 0).await;
        let records = http.records(TOPIC).await;
        assert_none_early(&records);
        let mut seen: BTreeMap<usize, Vec<&Value>> = BTreeMap::new();
        for record in &records {
            seen.entry(record["value"].as_str().expect("text").parse().expect("a number")).or_default().push(record);
        }
        let mut tally: BTreeMap<&str, usize> = BTreeMap::new();
        for (index, outcome) in &outcomes {
            let copies = seen.get(index).map_or(&[][..], Vec::as_slice);
            let name = match outcome {
                Outcome::Canceled => {
                    assert!(copies.is_empty(), "m{index} was canceled and is in the topic: {copies:?}");
                    "canceled"
                }
                Outcome::Moved(due_ms) => {
                    assert_eq!(copies.len(), 1, "m{index} was moved: {copies:?}");
                    assert_eq!(delivery_header(copies[0], "deliver_at_ms"), due_ms.to_string(), "m{index}");
                    assert_eq!(delivery_header(copies[0], "generation"), "1", "m{index}");
                    "moved"
                }
                Outcome::TooLate | Outcome::Published => {
                    assert_eq!(copies.len(), 1, "m{index} was too late: {copies:?}");
                    assert_eq!(delivery_header(copies[0], "deliver_at_ms"), due_ms[*index].to_string(), "m{index}");
                    "too late"
                }
            };
            *tally.entry(name).or_default() += 1;
        }
        assert_eq!(outcomes.len(), COUNT);
        // A race that one side always wins has shown nothing.
        for name in ["canceled", "moved", "too late"] {
            assert!(tally.get(name).is_some_and(|count| *count > COUNT / 100), "{name} is too rare: {tally:?}");
        }
    });
}

#[test]
fn a_thousand_cycles_of_one_id_show_readers_only_states_that_stood() {
    const CYCLES: usize = 1_000;
    /// What stood after each operation: the status and the message.
    struct History {
        states: Vec<(&'static str, String)>,
        started: usize,
        is_over: bool,
    }
    /// One read: how many operations were answered when it began, how many had begun when it ended, and what it saw.
    struct Seen {
        answered: usize,
        started: usize,
        status: String,
        message_id: String,
    }
    run(async {
        let world = World::new().await;
        let http = &world.http;
        let message = json!({"destination": DESTINATION, "id": "one", "delay": "1h", "value": "x"});
        let first = http.schedule(&message).await.text("message_id").to_owned();
        let history = RefCell::new(History { states: vec![("scheduled", first)], started: 1, is_over: false });

        let writer = async {
            for cycle in 1..=CYCLES {
                history.borrow_mut().started += 1;
                let canceled = http.delete("/v1/messages/one").await.expect(200);
                assert_eq!(canceled.body["status"], "canceled");
                history.borrow_mut().states.push(("canceled", canceled.text("message_id").to_owned()));
                if cycle < CYCLES {
                    history.borrow_mut().started += 1;
                    let again = http.schedule(&message).await.text("message_id").to_owned();
                    history.borrow_mut().states.push(("scheduled", again));
                }
            }
            history.borrow_mut().is_over = true;
        };
        let reader = async || {
            let mut seen = Vec::new();
            while !history.borrow().is_over {
                let answered = history.borrow().states.len();
                let answer = http.get("/v1/messages/one").await.expect(200);
                let (status, message_id) = (answer.text("status").to_owned(), answer.text("message_id").to_owned());
                seen.push(Seen { answered, started: history.borrow().started, status, message_id });
            }
            seen
        };
        let ((), (a, (b, c))) = join(writer, join(reader(), join(reader(), reader()))).await;

        let states = history.into_inner().states;
        assert_eq!(states.len(), 2 * CYCLES);
        let reads: Vec<Seen> = a.into_iter().chain(b).chain(c).collect();
        assert!(reads.len() > CYCLES, "only {} reads beside the writer", reads.len());
        for read in &reads {
            let window = &states[read.answered - 1..read.started.min(states.len())];
            let stood = window.iter().any(|(status, id)| *status == read.status && *id == read.message_id);
            assert!(stood, "read {} of {} in a window of {window:?}", read.status, read.message_id);
        }
        assert!(http.records(TOPIC).await.is_empty());
    });
}

#[test]
fn a_thousand_reschedules_are_one_delivery_at_the_last_time_also_across_restarts() {
    const MOVES: usize = 1_000;
    run(async {
        let mut world = World::new().await;
        let message = json!({"destination": DESTINATION, "id": "moved", "delay": "1h", "value": "x"});
        let mut version = world.http.schedule(&message).await.number("version");
        let mut last_due_ms = 0;
        for number in 1..=MOVES {
            match number {
                333 => world = world.restart().await,
                666 => world = world.crash().await,
                _ => {}
            }
            // Now earlier, now later, in the end soon.
            let delay = if number == MOVES { "2s".to_owned() } else { format!("{}s", 600 + (number * 7_919) % 3_000) };
            let moved = world.http.patch("/v1/messages/moved", &json!({ "delay": delay })).await.expect(200);
            assert_eq!(moved.text("status"), "scheduled");
            assert_eq!(moved.number("version"), version + 1);
            (version, last_due_ms) = (version + 1, moved.number("deliver_at_ms"));
        }
        world = world.restart().await;
        world.http.wait_for_count("published", 1).await;
        let records = world.http.records(TOPIC).await;
        assert_none_early(&records);
        assert_eq!(records.len(), 1, "{records:?}");
        assert_eq!(delivery_header(&records[0], "deliver_at_ms"), last_due_ms.to_string());
        assert_eq!(delivery_header(&records[0], "generation"), MOVES.to_string());
        let message = world.http.get("/v1/messages/moved").await.expect(200);
        assert_eq!((message.text("status"), message.number("version")), ("published", version));
    });
}

#[test]
fn a_change_by_version_is_refused_once_the_message_has_moved_on() {
    run(async {
        let world = World::new().await;
        let http = &world.http;
        let scheduled =
            http.schedule(&json!({"destination": DESTINATION, "id": "v", "delay": "1h", "value": "x"})).await;
        assert_eq!(scheduled.header("etag"), Some("\"1\""));
        let patch = json!({"delay": "2h"}).to_string();
        let moved =
            http.send(Method::PATCH, "/v1/messages/v", &[("if-match", "\"1\"")], patch.clone()).await.expect(200);
        assert_eq!(moved.header("etag"), Some("\"2\""));
        for (method, body) in [(Method::PATCH, patch), (Method::DELETE, String::new())] {
            let refused = http.send(method, "/v1/messages/v", &[("if-match", "\"1\"")], body).await.expect(412);
            assert_eq!(refused.code(), "PRECONDITION_FAILED");
            assert!(refused.text("detail").contains("version 2"), "{}", refused.body);
        }
        let canceled = http.send(Method::DELETE, "/v1/messages/v", &[("if-match", "\"2\"")], "").await.expect(200);
        assert_eq!(canceled.text("status"), "canceled");
        // Cancelling again is the same success; the id is free for another message.
        assert_eq!(http.delete("/v1/messages/v").await.expect(200).text("status"), "canceled");
        assert_eq!(http.patch("/v1/messages/v", &json!({"delay": "1h"})).await.expect(409).code(), "ALREADY_CANCELED");
        http.schedule(&json!({"destination": DESTINATION, "id": "v", "delay": "1h", "value": "y"})).await;
    });
}

#[test]
fn what_is_published_cannot_be_taken_back_and_says_where_it_is() {
    run(async {
        let world = World::new().await;
        let http = &world.http;
        let message = json!({"destination": DESTINATION, "id": "gone", "delay": "100ms", "value": "x"});
        let published = http.post("/v1/messages?wait=published", &message).await.expect(201);
        assert_eq!(published.text("status"), "published");
        assert!(published.number("lateness_ms") >= 0);
        for answer in
            [http.delete("/v1/messages/gone").await, http.patch("/v1/messages/gone", &json!({"delay": "1h"})).await]
        {
            let refused = answer.expect(409);
            assert_eq!(refused.code(), "ALREADY_PUBLISHED");
            assert_eq!(refused.body["message"]["delivery"]["topic"], TOPIC);
            assert!(refused.body["message"]["delivery"]["offset"].is_u64(), "{}", refused.body);
        }
        pause(Duration::ZERO).await;
    });
}
