//! Every failure as a problem, in one place.

use axum::response::{IntoResponse, Response};
use client::api::problem::{Problem, SurfaceCode};
use client::prepare::PrepareError;
use control::cas::RecordError;
use hyper::StatusCode;
use hyper::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use ports::log::AppendError;
use protocol::code::StableCode;
use worker::handle::ShardError;

/// A problem on its way out.
#[derive(Debug)]
pub(crate) struct Failure(pub(crate) Box<Problem>);

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Self {
        Failure(Box::new(problem))
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let problem = self.0;
        let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        // A plain struct of strings and numbers serialises.
        let body = serde_json::to_vec(&problem).unwrap_or_default();
        let mut response = (status, body).into_response();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if problem.retryable {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
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
        ShardError::NotActive { .. } | ShardError::Stopped { .. } | ShardError::Log(_) => {
            StableCode::ShardTransitioning
        }
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
        RecordError::RuleBroken { .. } => SurfaceCode::DestinationConflict,
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
