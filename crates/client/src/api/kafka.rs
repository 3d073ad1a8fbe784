//! How a topic of Kafka is reached, for destinations and ingresses alike.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A topic of a Kafka cluster, and the client settings it takes to reach it.
///
/// Settings have the names that Kafka's own client library gives them, such as `security.protocol`. Secrets are never written
/// here: `env:NAME` and `file:PATH` name where the server finds one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KafkaConnection {
    /// Brokers to begin with, HOST:PORT, separated by commas.
    #[serde(rename = "bootstrap.servers")]
    pub bootstrap_servers: String,
    /// The topic's name.
    pub topic: String,
    /// Further client settings. Numbers, true and false are taken as their text.
    #[serde(flatten, deserialize_with = "settings")]
    pub settings: BTreeMap<String, String>,
}

/// Reads settings, so that `"socket.timeout.ms": 5000` needs no quotes. What is no single value has no text and is refused.
fn settings<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Setting {
        Text(String),
        Number(serde_json::Number),
        Switch(bool),
    }

    let read = BTreeMap::<String, serde_json::Value>::deserialize(deserializer)?;
    let setting = |(name, value)| match serde_json::from_value(value) {
        Ok(Setting::Text(text)) => Ok((name, text)),
        Ok(Setting::Number(number)) => Ok((name, number.to_string())),
        Ok(Setting::Switch(switch)) => Ok((name, switch.to_string())),
        Err(_) => Err(serde::de::Error::custom(format_args!("`{name}` is a text, a number, true or false"))),
    };
    read.into_iter().map(setting).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_settings_stand_beside_the_topic_under_their_own_names() {
        let json = r#"{"bootstrap.servers":"k:9092","topic":"in","security.protocol":"SASL_SSL","socket.timeout.ms":5000,
            "enable.idempotence":true}"#;
        let read: KafkaConnection = serde_json::from_str(json).expect("a connection");
        assert_eq!((read.bootstrap_servers.as_str(), read.topic.as_str()), ("k:9092", "in"));
        let expected =
            [("enable.idempotence", "true"), ("security.protocol", "SASL_SSL"), ("socket.timeout.ms", "5000")];
        assert!(read.settings.iter().map(|(name, value)| (name.as_str(), value.as_str())).eq(expected));
        let written = serde_json::to_value(&read).expect("serialises");
        assert_eq!(written["socket.timeout.ms"], "5000");
        assert_eq!(serde_json::from_value::<KafkaConnection>(written).expect("reads back"), read);
    }

    #[test]
    fn what_is_missing_or_no_single_value_is_named() {
        let refused = [
            (r#"{"topic":"in"}"#, "bootstrap.servers"),
            (r#"{"bootstrap.servers":"k:9092"}"#, "topic"),
            (r#"{"bootstrap.servers":"k:9092","topic":"in","sasl.password":null}"#, "`sasl.password`"),
            (r#"{"bootstrap.servers":"k:9092","topic":"in","debug":["all"]}"#, "`debug`"),
        ];
        for (json, expected) in refused {
            let error = serde_json::from_str::<KafkaConnection>(json).expect_err(json).to_string();
            assert!(error.contains(expected), "{json}: {error}");
        }
    }
}
