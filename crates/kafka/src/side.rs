//! Records written beside a source: refused ones and receipts, each durable before it is called written.

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use ports::source::{SideRecord, SourceError};
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::KafkaError;
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{BaseRecord, DeliveryResult, ProducerContext, ThreadedProducer};
use rdkafka::statistics::Statistics;
use tokio::sync::mpsc;

use crate::client::log_line;
use crate::outcome::kafka_name;
use crate::settings::{Connection, ReadEnvironment};

/// A producer for records beside a source.
pub(crate) struct SideWriter {
    producer: ThreadedProducer<SideContext>,
}

type Written = mpsc::Sender<Result<(), String>>;

struct SideContext;

impl ClientContext for SideContext {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        log_line(level, facility, message);
    }

    fn stats(&self, _: Statistics) {}

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!(%error, reason, "kafka side producer");
    }
}

impl ProducerContext for SideContext {
    type DeliveryOpaque = Box<Written>;

    fn delivery(&self, result: &DeliveryResult<'_>, written: Box<Written>) {
        let result = result.as_ref().map(drop).map_err(|(error, _)| explain(error));
        // There is room for every record; a writer that is gone does not ask.
        let _ = written.try_send(result);
    }
}

impl SideWriter {
    /// Connects when it is used.
    pub(crate) fn open(connection: &Connection, environment: &ReadEnvironment) -> Result<SideWriter, String> {
        let producer = connection
            .client_config(environment)?
            .set("acks", "all")
            .set("enable.idempotence", "true")
            .set("message.timeout.ms", "30000")
            .set("message.max.bytes", "1000000000")
            .create_with_context(SideContext)
            .map_err(|error| format!("the client library refuses the connection: {error}"))?;
        Ok(SideWriter { producer })
    }

    /// Writes records; done when all are durable.
    pub(crate) fn write(&self, topic: &str, records: Vec<SideRecord>) -> BoxFuture<'_, Result<(), SourceError>> {
        let (written, mut answers) = mpsc::channel(records.len().max(1));
        let handed_over = records.iter().try_for_each(|record| self.hand_over(topic, record, &written));
        drop(written);
        let topic = topic.to_owned();
        async move {
            let failed = |reason: String| SourceError { detail: format!("topic {topic}: {reason}") };
            handed_over.map_err(failed)?;
            for _ in records {
                let answer = answers.recv().await.unwrap_or_else(|| Err("the producer has ended".to_owned()));
                answer.map_err(failed)?;
            }
            Ok(())
        }
        .boxed()
    }

    fn hand_over(&self, topic: &str, record: &SideRecord, written: &Written) -> Result<(), String> {
        let mut headers = OwnedHeaders::new_with_capacity(record.headers.len());
        for header in &record.headers {
            // The client library writes names that are text; of others, what can be read.
            let key = &String::from_utf8_lossy(&header.name);
            headers = headers.insert(Header { key, value: header.value.as_deref() });
        }
        let mut outgoing =
            BaseRecord::<[u8], [u8], _>::with_opaque_to(topic, Box::new(written.clone())).headers(headers);
        outgoing.key = record.key.as_deref();
        outgoing.payload = record.value.as_deref();
        outgoing.timestamp = record.timestamp_ms;
        self.producer.send(outgoing).map_err(|(error, _)| explain(&error))
    }
}

fn explain(error: &KafkaError) -> String {
    match error.rdkafka_error_code() {
        Some(code) => format!("{error} ({})", kafka_name(code)),
        None => error.to_string(),
    }
}
