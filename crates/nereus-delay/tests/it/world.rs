//! A server in a folder of its own, and plain HTTP to it: requests as text, answers as JSON.

use std::time::Duration;

use bytes::Bytes;
use harness::process::{ServerOptions, ServerProcess};
use http_body_util::{BodyExt as _, Full};
use hyper::{Method, Request};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use tempfile::TempDir;

/// The destination that most tests use.
pub(crate) const DESTINATION: &str = "orders";
/// Its topic.
pub(crate) const TOPIC: &str = "orders.due";

/// An answer, whatever it says.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: hyper::HeaderMap,
    pub(crate) body: Value,
}

impl Answer {
    pub(crate) fn code(&self) -> &str {
        self.body["code"].as_str().unwrap_or_default()
    }

    pub(crate) fn text(&self, field: &str) -> &str {
        self.body[field].as_str().unwrap_or_else(|| panic!("no {field} in {}", self.body))
    }

    pub(crate) fn number(&self, field: &str) -> i64 {
        self.body[field].as_i64().unwrap_or_else(|| panic!("no {field} in {}", self.body))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// The answer, if it has this status.
    #[track_caller]
    pub(crate) fn expect(self, status: u16) -> Answer {
        assert_eq!(self.status, status, "{}", self.body);
        self
    }
}

/// Plain HTTP to one server.
#[derive(Clone)]
pub(crate) struct Http {
    address: String,
    client: Client<HttpConnector, Full<Bytes>>,
}

impl Http {
    pub(crate) fn new(address: &str) -> Http {
        Http { address: address.to_owned(), client: Client::builder(TokioExecutor::new()).build_http() }
    }

    /// Sends a request; `None` when the answer did not come.
    pub(crate) async fn try_send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Option<Answer> {
        let mut request = Request::builder().method(method).uri(format!("http://{}{path}", self.address));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let body: Bytes = body.into();
        if !body.is_empty() {
            request = request.header("content-type", "application/json");
        }
        let request = request.body(Full::new(body)).expect("a valid request");
        let response = self.client.request(request).await.ok()?;
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.ok()?.to_bytes();
        let body = match serde_json::from_slice(&bytes) {
            Ok(body) => body,
            Err(_) => Value::String(String::from_utf8_lossy(&bytes).into_owned()),
        };
        Some(Answer { status: parts.status.as_u16(), headers: parts.headers, body })
    }

    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Answer {
        let line = format!("{method} {path}");
        let answer = self.try_send(method, path, headers, body).await;
        answer.unwrap_or_else(|| panic!("{line} was not answered"))
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send(Method::GET, path, &[], Bytes::new()).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Answer {
        self.send(Method::POST, path, &[], body.to_string()).await
    }

    pub(crate) async fn patch(&self, path: &str, body: &Value) -> Answer {
        self.send(Method::PATCH, path, &[], body.to_string()).await
    }

    pub(crate) async fn put(&self, path: &str, body: &Value) -> Answer {
        self.send(Method::PUT, path, &[], body.to_string()).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Answer {
        self.send(Method::DELETE, path, &[], Bytes::new()).await
    }

    /// Schedules a message that must be taken.
    pub(crate) async fn schedule(&self, message: &Value) -> Answer {
        self.post("/v1/messages", message).await.expect(201)
    }

    /// Schedules messages in batches that must be taken; their receipts in order.
    pub(crate) async fn schedule_all(&self, messages: &[Value]) -> Vec<Value> {
        let mut receipts = Vec::with_capacity(messages.len());
        for batch in messages.chunks(500) {
            let answer = self.post("/v1/messages:batch", &json!({ "messages": batch })).await.expect(200);
            let results = answer.body["results"].as_array().expect("results").clone();
            for result in &results {
                assert_eq!(result["status"], "scheduled", "{result}");
            }
            receipts.extend(results);
        }
        receipts
    }

    /// Every record of a topic, over its partitions.
    pub(crate) async fn records(&self, topic: &str) -> Vec<Value> {
        let described = self.get(&format!("/v1/topics/{topic}")).await.expect(200);
        let mut records = Vec::new();
        for partition in described.body["partitions"].as_array().expect("partitions") {
            let (number, mut offset) =
                (&partition["partition"], partition["start_offset"].as_u64().expect("an offset"));
            loop {
                let path = format!("/v1/topics/{topic}/records?partition={number}&offset={offset}");
                let page = self.get(&path).await.expect(200);
                let found = page.body["records"].as_array().expect("records");
                if found.is_empty() {
                    break;
                }
                records.extend(found.iter().cloned());
                offset = page.body["next_offset"].as_u64().expect("an offset");
            }
        }
        records
    }

    /// Counts by status.
    pub(crate) async fn count(&self, status: &str) -> i64 {
        self.get("/v1/counts").await.expect(200).number(status)
    }

    /// Waits until as many messages have this status. The wait is on the server's own state, so it has only a far limit.
    pub(crate) async fn wait_for_count(&self, status: &str, count: i64) {
        let deadline = tokio::time::Instant::now() + LIMIT;
        while self.count(status).await != count {
            assert!(tokio::time::Instant::now() < deadline, "{status} did not come to {count}");
            pause(Duration::from_millis(20)).await;
        }
    }
}

/// How long anything may take at most: far beyond what it takes.
pub(crate) const LIMIT: Duration = Duration::from_secs(120);

/// Lets time pass between two questions.
pub(crate) async fn pause(length: Duration) {
    tokio::time::sleep_until(tokio::time::Instant::now() + length).await;
}

/// A running server with one destination.
pub(crate) struct World {
    pub(crate) options: ServerOptions,
    pub(crate) server: ServerProcess,
    pub(crate) http: Http,
    _folder: TempDir,
}

impl World {
    /// A server of defaults.
    pub(crate) async fn new() -> World {
        World::with_config("").await
    }

    /// A server with a configuration file.
    pub(crate) async fn with_config(config: &str) -> World {
        let folder = tempfile::tempdir().expect("a folder");
        let mut options = ServerOptions::new(env!("CARGO_BIN_EXE_nereus-delay"), folder.path());
        config.clone_into(&mut options.config);
        let server = ServerProcess::start_ready(&options).await.expect("a server");
        let http = Http::new(server.address());
        let spec = json!({"embedded": {"topic": TOPIC, "partitions": 2}});
        http.put(&format!("/v1/destinations/{DESTINATION}"), &spec).await.expect(201);
        World { options, server, http, _folder: folder }
    }

    /// Stops the server as an operator would, and starts it again.
    pub(crate) async fn restart(self) -> World {
        let World { options, server, _folder, .. } = self;
        let status = server.stop().await.expect("it stops");
        assert!(status.success(), "{status}");
        World::again(options, _folder).await
    }

    /// Kills the server and starts it again.
    pub(crate) async fn crash(self) -> World {
        let World { options, server, _folder, .. } = self;
        server.kill().await.expect("it dies");
        World::again(options, _folder).await
    }

    async fn again(options: ServerOptions, folder: TempDir) -> World {
        let server = ServerProcess::start_ready(&options).await.expect("a server");
        let http = Http::new(server.address());
        World { options, server, http, _folder: folder }
    }
}

/// Runs a test on one thread.
pub(crate) fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async { tokio::time::timeout(2 * LIMIT, test).await.expect("the test ends") });
}

/// A delivered record's delivery header.
pub(crate) fn delivery_header<'a>(record: &'a Value, name: &str) -> &'a str {
    let name = format!("nereus.delay.{name}");
    let headers = record["headers"].as_array().expect("headers");
    let header = headers.iter().find(|header| header["name"] == name.as_str());
    header.and_then(|header| header["value"].as_str()).unwrap_or_else(|| panic!("no {name} in {record}"))
}

/// Checks that no record was there before its time.
pub(crate) fn assert_none_early(records: &[Value]) {
    for record in records {
        let deliver_at_ms: i64 = delivery_header(record, "deliver_at_ms").parse().expect("a number");
        let timestamp_ms = record["timestamp_ms"].as_i64().expect("a number");
        assert!(timestamp_ms >= deliver_at_ms, "early by {} ms: {record}", deliver_at_ms - timestamp_ms);
    }
}
