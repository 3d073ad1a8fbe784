//! The release binary and a real Kafka.

mod fidelity;
mod ingress;
mod profiles;
mod trouble;

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use harness::kafka::{Cluster, Record};
use harness::process::{ServerOptions, ServerProcess};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::Instant;

use crate::world::{Http, LIMIT, pause};

/// A server of a test's own.
pub(crate) struct Server {
    pub(crate) http: Http,
    pub(crate) process: ServerProcess,
    pub(crate) options: ServerOptions,
    pub(crate) folder: TempDir,
}

impl Server {
    pub(crate) async fn new(config: &str) -> Server {
        let folder = tempfile::tempdir().expect("a folder");
        let mut options = ServerOptions::new(env!("CARGO_BIN_EXE_nereus-delay"), folder.path());
        config.clone_into(&mut options.config);
        let process = ServerProcess::start_ready(&options).await.expect("a server");
        Server { http: Http::new(process.address()), process, options, folder }
    }
}

/// The broker that dev/services runs.
pub(crate) fn cluster() -> Cluster {
    Cluster::shared().expect("a real Kafka")
}

/// A name that no other test has.
pub(crate) fn fresh_name(what: &str) -> String {
    format!("it.{what}.{:08x}", fastrand::u32(..))
}

/// What sets a destination up on a topic.
pub(crate) fn destination(cluster: &Cluster, topic: &str) -> Value {
    json!({ "kafka": { "bootstrap.servers": cluster.bootstrap(), "topic": topic } })
}

/// The records of a topic once there are `count` of them.
pub(crate) async fn delivered(cluster: &Cluster, topic: &str, count: usize) -> Vec<Record> {
    let deadline = Instant::now() + LIMIT;
    loop {
        let records = cluster.read(topic).expect("readable");
        if records.len() >= count {
            return records;
        }
        assert!(Instant::now() < deadline, "{topic} has {} records, not {count}", records.len());
        pause(Duration::from_millis(100)).await;
    }
}

/// A message as it is told about, once it has this status.
pub(crate) async fn message_with(http: &Http, id: &str, status: &str) -> Value {
    let deadline = Instant::now() + LIMIT;
    loop {
        // An ingress may have yet to read the record that schedules it.
        let found = http.get(&format!("/v1/messages/{id}")).await.body;
        if found["status"] == status {
            return found;
        }
        assert!(Instant::now() < deadline, "{id} does not come to {status}: {found}");
        pause(Duration::from_millis(50)).await;
    }
}

/// What Kafka's own Java client reads from a topic.
pub(crate) async fn read_back(cluster: &Cluster, topic: &str) -> Vec<Value> {
    let libraries = harness::kafka::variable(harness::kafka::LIBRARIES_VARIABLE).expect("a real Kafka");
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dev/lib/kafka/ReadBack.java");
    let output = tokio::process::Command::new("java")
        .args(["-cp", &format!("{libraries}/*")])
        .arg(program)
        .args([cluster.bootstrap(), topic])
        .stdin(Stdio::null())
        .output()
        .await
        .expect("java runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("text");
    text.lines().filter(|line| line.starts_with('{')).map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// Has Kafka's own console producer write a record for each key.
pub(crate) async fn produce_by_java(cluster: &Cluster, topic: &str, keys: &[String]) {
    use tokio::io::AsyncWriteExt as _;

    let libraries = harness::kafka::variable(harness::kafka::LIBRARIES_VARIABLE).expect("a real Kafka");
    let mut producer = tokio::process::Command::new("java")
        .args(["-cp", &format!("{libraries}/*"), "org.apache.kafka.tools.ConsoleProducer"])
        .args(["--bootstrap-server", cluster.bootstrap(), "--topic", topic])
        .args(["--reader-property", "parse.key=true", "--reader-property", "key.separator=|"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("java runs");
    let lines: String = keys.iter().map(|key| format!("{key}|v\n")).collect();
    let mut input = producer.stdin.take().expect("an input");
    input.write_all(lines.as_bytes()).await.expect("written");
    drop(input);
    assert!(producer.wait().await.expect("it ends").success());
}
