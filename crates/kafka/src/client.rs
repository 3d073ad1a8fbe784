//! What every client of ours does alike: its log lines go to ours, its errors and figures to whoever made it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::{DeliveryResult, ProducerContext};
use rdkafka::statistics::Statistics;

use crate::native::CallError;

/// What a client last complained of. Its own calls only say that they timed out; why, it says here.
#[derive(Debug, Default)]
pub(crate) struct ClientErrors {
    last: Mutex<Option<CallError>>,
}

impl ClientErrors {
    pub(crate) fn note(&self, code: RDKafkaErrorCode, reason: &str) {
        let mut last = self.lock();
        // That all brokers are down says less than what was said of one of them.
        if code == RDKafkaErrorCode::AllBrokersDown && last.is_some() {
            return;
        }
        *last = Some(CallError { code, detail: reason.to_owned() });
    }

    /// The client works: what was before is over.
    pub(crate) fn clear(&self) {
        *self.lock() = None;
    }

    /// An error that waiting does not mend.
    pub(crate) fn hopeless(&self) -> Option<CallError> {
        use RDKafkaErrorCode as Code;
        let is_hopeless = |error: &&CallError| {
            matches!(error.code, Code::Authentication | Code::SaslAuthenticationFailed | Code::SSL | Code::Fatal)
        };
        self.lock().as_ref().filter(is_hopeless).cloned()
    }

    /// An error of a call, with what the client complained of meanwhile.
    pub(crate) fn explain(&self, error: CallError) -> CallError {
        let is_about_time = matches!(
            error.code,
            RDKafkaErrorCode::OperationTimedOut
                | RDKafkaErrorCode::RequestTimedOut
                | RDKafkaErrorCode::BrokerTransportFailure
        );
        match self.lock().as_ref().filter(|_| is_about_time) {
            Some(last) => CallError { code: last.code, detail: format!("{}: {}", error.detail, last.detail) },
            None => error,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<CallError>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A context for clients that live for one question.
#[derive(Clone, Debug, Default)]
pub(crate) struct AskingContext {
    pub(crate) errors: Arc<ClientErrors>,
}

impl ProducerContext for AskingContext {
    type DeliveryOpaque = ();

    fn delivery(&self, _: &DeliveryResult<'_>, (): ()) {}
}

impl ClientContext for AskingContext {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        log_line(level, facility, message);
    }

    fn stats(&self, _: Statistics) {}

    fn error(&self, error: KafkaError, reason: &str) {
        self.errors.note(error.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Fail), reason);
    }
}

/// The client library's own lines, one level lower than it finds them: what matters to operators is on the lane.
pub(crate) fn log_line(level: RDKafkaLogLevel, facility: &str, message: &str) {
    match level {
        RDKafkaLogLevel::Emerg | RDKafkaLogLevel::Alert | RDKafkaLogLevel::Critical => {
            tracing::warn!(facility, "kafka client: {message}");
        }
        RDKafkaLogLevel::Error | RDKafkaLogLevel::Warning => tracing::info!(facility, "kafka client: {message}"),
        RDKafkaLogLevel::Notice | RDKafkaLogLevel::Info | RDKafkaLogLevel::Debug => {
            tracing::debug!(facility, "kafka client: {message}");
        }
    }
}

/// Runs a call that blocks on a thread of its own. `None` when no thread could be had, or the call panicked.
pub(crate) async fn on_thread<T: Send + 'static>(
    name: &'static str,
    call: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let (answer, answered) = tokio::sync::oneshot::channel();
    let run = move || {
        // Whoever asked may not wait any more.
        let _ = answer.send(call());
    };
    if let Err(error) = std::thread::Builder::new().name(name.to_owned()).spawn(run) {
        tracing::error!(%error, "no thread for a call to Kafka");
        return None;
    }
    answered.await.ok()
}
