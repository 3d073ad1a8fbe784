//! A log that takes bytes and whose answer is lost: nobody calls such a message not taken, and the same request comes to the same
//! message, once.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use client::api::message::MessageReceipt;
use sim::world::log::LogFaults;

use super::world::{Cell, Server, Told};
use crate::messages::schedule;
use crate::messages::submit::{Wait, WaitFor};

const SEEDS: u64 = 40;
const REQUESTS: usize = 30;
/// How often a caller sends one request. The log is well again for the last time.
const TRIES: usize = 4;

/// A caller's request, and what makes it the same request when it is sent again.
struct Request {
    body: String,
    idempotency_key: Option<String>,
}

impl Request {
    /// Every second one has a key, the others an id of the caller's own.
    fn of(number: usize) -> Request {
        let (id, key) = match number % 2 {
            0 => (String::new(), Some(format!("key {number}"))),
            _ => (format!(r#""id": "order-{number}", "#), None),
        };
        let body = format!(r#"{{{id}"destination": "orders", "delay": "1h", "value": "{number}"}}"#);
        Request { body, idempotency_key: key }
    }

    /// Sends it: a receipt, or the code it was refused with.
    async fn send(&self, server: &Server) -> Result<MessageReceipt, String> {
        let wait = Wait::new(WaitFor::Applied, Duration::from_secs(5));
        let sent = schedule::one(&server.gateway, self.body.as_bytes(), self.idempotency_key.as_deref(), wait).await;
        sent.map(|scheduled| scheduled.receipt).map_err(|failure| failure.problem.code)
    }
}

#[test]
fn a_request_whose_answer_was_lost_comes_to_one_message_when_it_is_sent_again() {
    let mut codes: BTreeMap<String, usize> = BTreeMap::new();
    for seed in 0..SEEDS {
        let cell = Cell::new(seed, 1);
        cell.world.run(async {
            let server = cell.start("server");
            server.active().await;
            for number in 0..REQUESTS {
                let request = Request::of(number);
                let (mut named, mut last) = (BTreeSet::new(), None);
                for attempt in 1..=TRIES {
                    let percent = if attempt == TRIES { 0 } else { 40 };
                    for log in cell.logs() {
                        log.set_faults(LogFaults {
                            not_appended_percent: percent / 4,
                            unknown_percent: percent,
                            late_percent: percent,
                            duplicated_percent: percent,
                        });
                    }
                    let answer = request.send(&server).await;
                    match &answer {
                        Ok(receipt) => drop(named.insert(receipt.message_id.clone())),
                        Err(code) => *codes.entry(code.clone()).or_default() += 1,
                    }
                    last = Some(answer);
                }
                assert!(named.len() <= 1, "seed {seed}: request {number} was told of {named:?}");
                match last {
                    Some(Ok(_)) => {}
                    // Without a key, its id says that the message is there already.
                    Some(Err(code)) if code == "DELAY_MESSAGE_ID_CONFLICT" && request.idempotency_key.is_none() => {}
                    other => panic!("seed {seed}: request {number} ends with {other:?}"),
                }
            }
            // What is late has arrived.
            cell.world.wait(Duration::from_secs(10)).await;
        });
        let mut values: Vec<String> = cell.told().iter().map(Told::value).collect();
        values.sort_by_key(|value| value.parse::<usize>().ok());
        let asked: Vec<String> = (0..REQUESTS).map(|number| number.to_string()).collect();
        assert_eq!(values, asked, "seed {seed}");
    }
    let told: Vec<&str> = codes.keys().map(String::as_str).collect();
    assert_eq!(told, ["DELAY_MESSAGE_ID_CONFLICT", "ENQUEUE_RESULT_UNCERTAIN", "UNAVAILABLE"], "{codes:?}");
}
