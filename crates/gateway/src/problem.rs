//! Every failure as a problem, in one place.

use axum::response::{IntoResponse, Response};
use client::api::problem::{Problem, SurfaceCode};
use client::prepare::PrepareError;
use control::cas::{Record as _, RecordError};
use control::destination::DestinationRecord;
use control::ingress::IngressRecord;
use hyper::StatusCode;
use hyper::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER};
use ports::log::AppendError;
use protocol::code::StableCode;
use shard::store::StoreError;
use worker::handle::ShardError;

/// Says that an answer was first given earlier.
pub(crate) const IDEMPOTENT_REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");
/// Names a request in the log.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// A problem on its way out.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) problem: Box<Problem>,
    /// Whether it is the first answer again.
    pub(crate) is_replay: bool,
}

impl Failure {
    /// A problem that was answered before, under the same Idempotency-Key.
    pub(crate) fn replayed(problem: Problem) -> Failure {
        Failure { problem: Box::new(problem), is_replay: true }
    }
}

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Self {
        Failure { problem: Box::new(problem), is_replay: false }
    }
}

impl IntoResponse for Failure {
    /// The body is written by [`finish`], which knows the request's id.
    fn into_response(self) -> Response {
        let mut response = ().into_response();
        response.extensions_mut().insert(self);
        response
    }
}

/// Gives a response its request's id, and a failure its body.
pub(crate) fn finish(mut response: Response, request_id: String) -> Response {
    if let Some(Failure { mut problem, is_replay }) = response.extensions_mut().remove::<Failure>() {
        problem.request_id.clone_from(&request_id);
        *response.status_mut() = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let headers = response.headers_mut();
        // It was of the body that stood here before.
        headers.remove(CONTENT_LENGTH);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if matches!(problem.status, 429 | 503) || problem.retryable {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        if is_replay {
            headers.insert(IDEMPOTENT_REPLAYED, HeaderValue::from_static("true"));
        }
        // A plain struct of strings and numbers serialises.
        *response.body_mut() = serde_json::to_vec(&problem).unwrap_or_default().into();
    }
    if let Ok(value) = HeaderValue::from_str(&request_id) {
        response.headers_mut().insert(REQUEST_ID, value);
    }
    response
}

pub(crate) fn append_problem(error: AppendError) -> Problem {
    match error {
        AppendError::NotAppended { reason } => {
            Problem::new(SurfaceCode::Unavailable, format!("nothing was taken: {reason}"))
        }
        AppendError::Unknown { reason } => Problem::new(
            StableCode::EnqueueResultUncertain,
            format!(
                "whether the command was taken is not known ({reason}); repeat the same request with its Idempotency-Key"
            ),
        ),
    }
}

pub(crate) fn shard_problem(error: ShardError) -> Problem {
    let code = match &error {
        ShardError::NotActive { lifecycle: worker::lifecycle::ShardLifecycle::Failed, .. } => {
            StableCode::ShardUnavailable
        }
        // A store that was closed is opened again, usually within a second.
        ShardError::NotActive { .. }
        | ShardError::Stopped { .. }
        | ShardError::Log(_)
        | ShardError::Store(StoreError::Closed { .. }) => StableCode::ShardTransitioning,
        ShardError::TooManyWaiting { .. } => return Problem::new(SurfaceCode::TooManyRequests, error.to_string()),
        ShardError::Store(_) => StableCode::ShardUnavailable,
    };
    Problem::new(code, error.to_string())
}

pub(crate) fn record_problem(error: RecordError) -> Problem {
    let code = match &error {
        RecordError::Unavailable(_) | RecordError::Contended { .. } | RecordError::SessionOver { .. } => {
            SurfaceCode::Unavailable
        }
        RecordError::Unknown { .. } => SurfaceCode::OutcomeUnknown,
        RecordError::Unreadable { .. } => SurfaceCode::Internal,
        RecordError::RuleBroken { name: DestinationRecord::NAME, .. } => SurfaceCode::DestinationConflict,
        RecordError::RuleBroken { name: IngressRecord::NAME, .. } => SurfaceCode::IngressConflict,
        RecordError::RuleBroken { .. } => SurfaceCode::Internal,
    };
    Problem::new(code, error.to_string())
}

pub(crate) fn prepare_problem(error: &PrepareError) -> Problem {
    let detail = error.to_string();
    let window = |field: &'static str, limit_ms, actual_ms| {
        Problem::new(StableCode::InvalidDeliveryWindow, detail.clone()).field(field).limit_ms(limit_ms, actual_ms)
    };
    match error {
        PrepareError::TooLongAgo { past_ms, limit_ms, .. } => window("deliver_at", *limit_ms, *past_ms),
        PrepareError::TooFarAhead { delay_ms, limit_ms } => window("deliver_at", *limit_ms, *delay_ms),
        PrepareError::WindowTooShort { window_ms, limit_ms } => window("expires_at", *limit_ms, *window_ms),
        PrepareError::LifetimeTooLong { lifetime_ms, limit_ms } => window("expires_at", *limit_ms, *lifetime_ms),
        PrepareError::RecordTooLarge { bytes, limit_bytes } => Problem::new(StableCode::PayloadTooLarge, detail)
            .field("value")
            .limit_bytes(u64::from(*limit_bytes), *bytes),
        PrepareError::ReservedHeader { .. } | PrepareError::TooManyHeaders { .. } => {
            Problem::new(StableCode::InvalidMetadata, detail).field("headers")
        }
        PrepareError::Text { .. } => Problem::new(StableCode::InvalidMetadata, detail).field("headers"),
        PrepareError::Id { .. } => Problem::new(SurfaceCode::InvalidField, detail).field("id"),
        PrepareError::Field(_) => Problem::new(StableCode::InvalidCommand, detail),
    }
}
