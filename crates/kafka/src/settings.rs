//! A connection as people write it down, checked, and as the client library gets it.
//!
//! Settings keep the client library's own names. Only those that describe a connection are taken: what decides safety
//! (acknowledgements, idempotence, timeouts) is ours, and a setting that loads code is nobody's. What is secret is never
//! written down but referred to, and is read when a client is made.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use ports::target::TargetError;
use rdkafka::ClientConfig;
use serde::Deserialize;

/// Reads a variable of the process's environment.
pub type ReadEnvironment = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// A secret file longer than this is none.
const SECRET_BYTES_MAX: u64 = 1 << 20;
/// Kafka's own limit.
const TOPIC_NAME_LENGTH_MAX: usize = 249;

/// Settings that describe a connection and how it is used; each by its full name or, ending with a dot, by its prefix.
const ALLOWED: &[&str] = &[
    "broker.address.family",
    "client.dns.lookup",
    "client.id",
    "client.rack",
    "compression.codec",
    "compression.level",
    "compression.type",
    "connections.max.idle.ms",
    "enable.ssl.certificate.verification",
    "fetch.max.bytes",
    "fetch.min.bytes",
    "fetch.wait.max.ms",
    "linger.ms",
    "max.in.flight.requests.per.connection",
    "metadata.max.age.ms",
    "queue.buffering.max.ms",
    "sasl.mechanism",
    "sasl.mechanisms",
    "sasl.password",
    "sasl.username",
    "security.protocol",
    "session.timeout.ms",
    "socket.",
    "ssl.ca.",
    "ssl.certificate.",
    "ssl.cipher.suites",
    "ssl.crl.location",
    "ssl.curves.list",
    "ssl.endpoint.identification.algorithm",
    "ssl.key.",
    "ssl.keystore.",
    "ssl.sigalgs.list",
];

/// Settings whose value must be a reference.
const SECRET: &[&str] = &["sasl.password", "ssl.key.password", "ssl.key.pem", "ssl.keystore.password"];

/// A connection that is well-formed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Connection {
    pub(crate) bootstrap_servers: String,
    pub(crate) topic: String,
    /// Settings by name, secrets as references.
    pub(crate) settings: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct Document {
    #[serde(rename = "bootstrap.servers")]
    bootstrap_servers: String,
    topic: String,
    #[serde(flatten)]
    settings: BTreeMap<String, String>,
}

impl Connection {
    /// Takes the JSON form: `bootstrap.servers`, `topic`, and settings beside them.
    ///
    /// # Errors
    /// [`TargetError::Malformed`] for what is missing, not allowed, or a secret that is written out.
    pub(crate) fn from_json(value: serde_json::Value) -> Result<Connection, TargetError> {
        let malformed = |reason: String| TargetError::Malformed { reason, field: "kafka" };
        let document: Document = serde_json::from_value(value).map_err(|error| malformed(error.to_string()))?;
        let Document { bootstrap_servers, topic, settings } = document;
        if bootstrap_servers.trim().is_empty() {
            return Err(malformed("bootstrap.servers is empty; it needs HOST:PORT, or several with commas".to_owned()));
        }
        check_topic(&topic)?;
        for (name, value) in &settings {
            check_setting(name, value).map_err(malformed)?;
        }
        Ok(Connection { bootstrap_servers, topic, settings })
    }

    /// The client library's configuration, with every reference read.
    ///
    /// # Errors
    /// Which reference cannot be read. Its value is never part of a message.
    pub(crate) fn client_config(&self, environment: &ReadEnvironment) -> Result<ClientConfig, String> {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", &self.bootstrap_servers);
        config.set("client.id", "nereus-delay");
        // A broker that comes back is found again within a second or so.
        config.set("reconnect.backoff.max.ms", "1000");
        config.set("allow.auto.create.topics", "false");
        for (name, value) in &self.settings {
            config.set(name, resolve(name, value, environment)?);
        }
        Ok(config)
    }
}

/// Refuses what cannot be a topic's name.
pub(crate) fn check_topic(topic: &str) -> Result<(), TargetError> {
    let allowed = |character: char| character.is_ascii_alphanumeric() || matches!(character, '.' | '_' | '-');
    let length_ok = (1..=TOPIC_NAME_LENGTH_MAX).contains(&topic.len());
    if length_ok && topic.chars().all(allowed) && topic != "." && topic != ".." {
        return Ok(());
    }
    let reason = format!(
        "{topic:?} is no Kafka topic name: 1 to {TOPIC_NAME_LENGTH_MAX} of a-z, A-Z, 0-9, dot, underscore and hyphen"
    );
    Err(TargetError::Malformed { reason, field: "kafka.topic" })
}

fn check_setting(name: &str, value: &str) -> Result<(), String> {
    let is_allowed = |allowed: &&str| {
        if allowed.ends_with('.') { name.starts_with(*allowed) } else { name == *allowed }
    };
    if !ALLOWED.iter().any(is_allowed) {
        return Err(format!("{name} cannot be set; what can: {}", ALLOWED.join(", ").replace("., ", ".*, ")));
    }
    if SECRET.contains(&name) && reference(value).is_none() {
        return Err(format!(
            "{name} is secret and must be a reference, env:NAME or file:PATH, which the server reads when it connects; a \
             value written here would be stored"
        ));
    }
    Ok(())
}

enum Reference<'a> {
    Environment(&'a str),
    File(&'a str),
}

fn reference(value: &str) -> Option<Reference<'_>> {
    let environment = value.strip_prefix("env:").map(Reference::Environment);
    environment.or_else(|| value.strip_prefix("file:").map(Reference::File))
}

fn resolve(name: &str, value: &str, environment: &ReadEnvironment) -> Result<String, String> {
    match reference(value) {
        None => Ok(value.to_owned()),
        Some(Reference::Environment(variable)) => environment(variable)
            .ok_or_else(|| format!("{name}: the server's environment has no variable {variable:?}, or it is not text")),
        Some(Reference::File(path)) => {
            let failed = |error: std::io::Error| format!("{name}: {path:?} cannot be read: {error}");
            let length = std::fs::metadata(Path::new(path)).map_err(failed)?.len();
            if length > SECRET_BYTES_MAX {
                return Err(format!("{name}: {path:?} has {length} bytes; the limit is {SECRET_BYTES_MAX}"));
            }
            // The line end that editors add is not part of a password.
            std::fs::read_to_string(path).map(|text| text.trim_end_matches(['\r', '\n']).to_owned()).map_err(failed)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use serde_json::json;

    use super::*;

    fn refusal(value: serde_json::Value) -> String {
        Connection::from_json(value).expect_err("refused").to_string()
    }

    fn environment() -> ReadEnvironment {
        Arc::new(|name| (name == "KAFKA_PASSWORD").then(|| "from the environment".to_owned()))
    }

    #[test]
    fn a_secret_is_a_reference_and_is_read_late() {
        let written = json!({"bootstrap.servers": "broker:9092", "topic": "orders", "sasl.password": "hunter2"});
        let reason = refusal(written);
        assert!(reason.contains("sasl.password") && reason.contains("env:NAME"), "{reason}");
        assert!(!reason.contains("hunter2"), "{reason}");

        let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
        file.write_all(b"from a file\r\n").expect("it is written");
        let connection = Connection::from_json(json!({
            "bootstrap.servers": "broker:9092", "topic": "orders", "sasl.password": "env:KAFKA_PASSWORD",
            "ssl.key.password": format!("file:{}", file.path().display()), "sasl.username": "alice",
        }))
        .expect("well-formed");
        assert!(!format!("{connection:?}").contains("from the environment"));
        let config = connection.client_config(&environment()).expect("everything can be read");
        assert_eq!(config.get("sasl.password"), Some("from the environment"));
        assert_eq!(config.get("ssl.key.password"), Some("from a file"));
        assert_eq!(config.get("sasl.username"), Some("alice"));
    }

    #[test]
    fn a_reference_that_leads_nowhere_says_which() {
        let with = |reference: &str| {
            let value = json!({"bootstrap.servers": "broker:9092", "topic": "orders", "sasl.password": reference});
            Connection::from_json(value).expect("well-formed").client_config(&environment()).expect_err("unreadable")
        };
        assert!(with("env:NO_SUCH").contains("NO_SUCH"));
        assert!(with("file:/no/such/file").contains("/no/such/file"));
    }

    #[test]
    fn what_is_ours_to_decide_is_refused() {
        for name in ["acks", "enable.idempotence", "transactional.id", "plugin.library.paths", "group.id", "debug"] {
            let reason = refusal(json!({"bootstrap.servers": "broker:9092", "topic": "orders", name: "1"}));
            assert!(reason.starts_with(&format!("{name} cannot be set")), "{reason}");
        }
    }

    #[test]
    fn what_is_missing_or_no_name_is_refused() {
        assert!(refusal(json!({"topic": "orders"})).contains("bootstrap.servers"));
        assert!(refusal(json!({"bootstrap.servers": "broker:9092"})).contains("topic"));
        assert!(refusal(json!({"bootstrap.servers": " ", "topic": "orders"})).contains("HOST:PORT"));
        for topic in ["", ".", "..", "a b", "ä", "x".repeat(250).as_str()] {
            assert!(
                refusal(json!({"bootstrap.servers": "broker:9092", "topic": topic})).contains("topic name"),
                "{topic}"
            );
        }
    }
}
