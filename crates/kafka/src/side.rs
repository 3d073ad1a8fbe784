//! Records written beside a source: refused ones and receipts, each durable before it is called written.

use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use ports::source::{SideRecord, SourceError};
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{BaseRecord, DeliveryResult, Producer as _, ProducerContext, ThreadedProducer};
use rdkafka::statistics::Statistics;
use tokio::sync::mpsc;

use crate::client::{ClientErrors, log_line};
use crate::outcome::kafka_name;
use crate::settings::{Connection, ReadEnvironment};

/// A producer for records beside a source.
pub(crate) struct SideWriter {
    producer: ThreadedProducer<SideContext>,
    errors: Arc<ClientErrors>,
}

type Written = mpsc::Sender<Result<(), String>>;

struct SideContext {
    errors: Arc<ClientErrors>,
}

impl ClientContext for SideContext {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        log_line(level, facility, message);
    }

    fn stats(&self, _: Statistics) {}

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!(%error, reason, "kafka side producer");
        self.errors.note(error.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Fail), reason);
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
        let errors = Arc::<ClientErrors>::default();
        let producer = connection
            .client_config(environment)?
            .set("acks", "all")
            .set("enable.idempotence", "true")
            .set("message.timeout.ms", "30000")
            .set("message.max.bytes", "1000000000")
            .create_with_context(SideContext { errors: errors.clone() })
            .map_err(|error| format!("the client library refuses the connection: {error}"))?;
        Ok(SideWriter { producer, errors })
    }

    /// What its client complains of; when that is hopeless, another writer is needed, which reads the credentials anew.
    pub(crate) fn errors(&self) -> Arc<ClientErrors> {
        self.errors.clone()
    }

    /// Writes records; done when all are durable.
    pub(crate) fn write(&self, topic: &str, records: Vec<SideRecord>) -> BoxFuture<'_, Result<(), SourceError>> {
        let (written, mut answers) = mpsc::channel(records.len().max(1));
        let handed_over = records.iter().try_for_each(|record| self.hand_over(topic, record, &written));
        drop(written);
        let topic = topic.to_owned();
        async move {
            let mut written = handed_over;
            for _ in records {
                if written.is_ok() {
                    written = answers.recv().await.unwrap_or_else(|| Err("the producer has ended".to_owned()));
                }
            }
            written.map_err(|reason| {
                self.note_fatal();
                SourceError { detail: format!("topic {topic}: {reason}") }
            })
        }
        .boxed()
    }

    /// An idempotent producer that could not get its id is of no use ever after, and says so by an ordinary error.
    fn note_fatal(&self) {
        if let Some((_, reason)) = self.producer.client().fatal_error() {
            self.errors.note(RDKafkaErrorCode::Fatal, &reason);
        }
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
