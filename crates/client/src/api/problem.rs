//! Errors: RFC 9457 problem details with a stable code, and the one table that gives every code its HTTP status.

use std::fmt;

use protocol::code::{Retryability, StableCode};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A code of an answer: one of the registry's stable codes, or one of the HTTP surface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Code {
    /// From the protocol registry.
    Stable(StableCode),
    /// Of the HTTP surface.
    Surface(SurfaceCode),
}

/// Codes that only the HTTP surface has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SurfaceCode {
    /// The body is no JSON, or cut off.
    MalformedBody,
    /// A field is missing, unknown or of the wrong form.
    InvalidField,
    /// A query parameter is unknown or of the wrong form.
    InvalidParameter,
    /// A header of the request is of the wrong form.
    InvalidHeader,
    /// The body is larger than any request may be.
    RequestTooLarge,
    /// The body is not `application/json`.
    UnsupportedMediaType,
    /// No such path.
    PathNotFound,
    /// The path does not take this method.
    MethodNotAllowed,
    /// No such destination.
    UnknownDestination,
    /// The destination exists with other settings that cannot be changed.
    DestinationConflict,
    /// The destination could not be set up; the checks say why.
    DestinationCheckFailed,
    /// No such ingress.
    UnknownIngress,
    /// The ingress exists with a topic or group that cannot be changed.
    IngressConflict,
    /// The ingress could not be set up; the checks say why.
    IngressCheckFailed,
    /// Whether a source record was taken is not known any more.
    RecordOutcomeForgotten,
    /// No such topic or partition.
    UnknownTopic,
    /// The offset is not in the topic.
    OffsetOutOfRange,
    /// The Idempotency-Key was used for another request.
    IdempotencyKeyReused,
    /// The first request with this Idempotency-Key is still being answered.
    IdempotencyKeyInUse,
    /// The message moved on since the version in If-Match.
    PreconditionFailed,
    /// The message is unknown because its retention is over.
    MessageForgotten,
    /// Too many requests at once.
    TooManyRequests,
    /// The server is stopping or its queue is full; nothing was taken.
    Unavailable,
    /// Sent, and whether it was taken is not known: repeat the same request.
    OutcomeUnknown,
    /// A fault of the server.
    Internal,
}

impl SurfaceCode {
    /// Every surface code.
    pub const ALL: [SurfaceCode; 25] = [
        SurfaceCode::MalformedBody,
        SurfaceCode::InvalidField,
        SurfaceCode::InvalidParameter,
        SurfaceCode::InvalidHeader,
        SurfaceCode::RequestTooLarge,
        SurfaceCode::UnsupportedMediaType,
        SurfaceCode::PathNotFound,
        SurfaceCode::MethodNotAllowed,
        SurfaceCode::UnknownDestination,
        SurfaceCode::DestinationConflict,
        SurfaceCode::DestinationCheckFailed,
        SurfaceCode::UnknownIngress,
        SurfaceCode::IngressConflict,
        SurfaceCode::IngressCheckFailed,
        SurfaceCode::RecordOutcomeForgotten,
        SurfaceCode::UnknownTopic,
        SurfaceCode::OffsetOutOfRange,
        SurfaceCode::IdempotencyKeyReused,
        SurfaceCode::IdempotencyKeyInUse,
        SurfaceCode::PreconditionFailed,
        SurfaceCode::MessageForgotten,
        SurfaceCode::TooManyRequests,
        SurfaceCode::Unavailable,
        SurfaceCode::OutcomeUnknown,
        SurfaceCode::Internal,
    ];

    /// The name in answers and of the code's page.
    pub const fn name(self) -> &'static str {
        match self {
            SurfaceCode::MalformedBody => "MALFORMED_BODY",
            SurfaceCode::InvalidField => "INVALID_FIELD",
            SurfaceCode::InvalidParameter => "INVALID_PARAMETER",
            SurfaceCode::InvalidHeader => "INVALID_HEADER",
            SurfaceCode::RequestTooLarge => "REQUEST_TOO_LARGE",
            SurfaceCode::UnsupportedMediaType => "UNSUPPORTED_MEDIA_TYPE",
            SurfaceCode::PathNotFound => "PATH_NOT_FOUND",
            SurfaceCode::MethodNotAllowed => "METHOD_NOT_ALLOWED",
            SurfaceCode::UnknownDestination => "UNKNOWN_DESTINATION",
            SurfaceCode::DestinationConflict => "DESTINATION_CONFLICT",
            SurfaceCode::DestinationCheckFailed => "DESTINATION_CHECK_FAILED",
            SurfaceCode::UnknownIngress => "UNKNOWN_INGRESS",
            SurfaceCode::IngressConflict => "INGRESS_CONFLICT",
            SurfaceCode::IngressCheckFailed => "INGRESS_CHECK_FAILED",
            SurfaceCode::RecordOutcomeForgotten => "RECORD_OUTCOME_FORGOTTEN",
            SurfaceCode::UnknownTopic => "UNKNOWN_TOPIC",
            SurfaceCode::OffsetOutOfRange => "OFFSET_OUT_OF_RANGE",
            SurfaceCode::IdempotencyKeyReused => "IDEMPOTENCY_KEY_REUSED",
            SurfaceCode::IdempotencyKeyInUse => "IDEMPOTENCY_KEY_IN_USE",
            SurfaceCode::PreconditionFailed => "PRECONDITION_FAILED",
            SurfaceCode::MessageForgotten => "MESSAGE_FORGOTTEN",
            SurfaceCode::TooManyRequests => "TOO_MANY_REQUESTS",
            SurfaceCode::Unavailable => "UNAVAILABLE",
            SurfaceCode::OutcomeUnknown => "OUTCOME_UNKNOWN",
            SurfaceCode::Internal => "INTERNAL",
        }
    }

    const fn status(self) -> u16 {
        match self {
            SurfaceCode::MalformedBody
            | SurfaceCode::InvalidField
            | SurfaceCode::InvalidParameter
            | SurfaceCode::InvalidHeader => 400,
            SurfaceCode::PathNotFound
            | SurfaceCode::UnknownDestination
            | SurfaceCode::UnknownIngress
            | SurfaceCode::UnknownTopic => 404,
            SurfaceCode::MethodNotAllowed => 405,
            SurfaceCode::DestinationConflict | SurfaceCode::IngressConflict | SurfaceCode::IdempotencyKeyInUse => 409,
            SurfaceCode::MessageForgotten | SurfaceCode::RecordOutcomeForgotten => 410,
            SurfaceCode::PreconditionFailed => 412,
            SurfaceCode::RequestTooLarge => 413,
            SurfaceCode::UnsupportedMediaType => 415,
            SurfaceCode::OffsetOutOfRange => 416,
            SurfaceCode::DestinationCheckFailed
            | SurfaceCode::IngressCheckFailed
            | SurfaceCode::IdempotencyKeyReused => 422,
            SurfaceCode::TooManyRequests => 429,
            SurfaceCode::Internal => 500,
            SurfaceCode::Unavailable => 503,
            SurfaceCode::OutcomeUnknown => 504,
        }
    }

    const fn is_retryable(self) -> bool {
        matches!(
            self,
            SurfaceCode::IdempotencyKeyInUse
                | SurfaceCode::TooManyRequests
                | SurfaceCode::Unavailable
                | SurfaceCode::OutcomeUnknown
        )
    }

    const fn title(self) -> &'static str {
        match self {
            SurfaceCode::MalformedBody => "The request body is not valid JSON",
            SurfaceCode::InvalidField => "A field of the request is not valid",
            SurfaceCode::InvalidParameter => "A query parameter is not valid",
            SurfaceCode::InvalidHeader => "A header of the request is not valid",
            SurfaceCode::RequestTooLarge => "The request is too large",
            SurfaceCode::UnsupportedMediaType => "The request body must be application/json",
            SurfaceCode::PathNotFound => "There is nothing at this path",
            SurfaceCode::MethodNotAllowed => "The path does not take this method",
            SurfaceCode::UnknownDestination => "There is no such destination",
            SurfaceCode::DestinationConflict => "The destination exists with settings that cannot be changed",
            SurfaceCode::DestinationCheckFailed => "The destination could not be set up",
            SurfaceCode::UnknownIngress => "There is no such ingress",
            SurfaceCode::IngressConflict => "The ingress exists with a topic or group that cannot be changed",
            SurfaceCode::IngressCheckFailed => "The ingress could not be set up",
            SurfaceCode::RecordOutcomeForgotten => "Whether the record was taken is not known any more",
            SurfaceCode::UnknownTopic => "There is no such topic or partition",
            SurfaceCode::OffsetOutOfRange => "The offset is not in the topic",
            SurfaceCode::IdempotencyKeyReused => "The Idempotency-Key was used for another request",
            SurfaceCode::IdempotencyKeyInUse => "The first request with this Idempotency-Key is not answered yet",
            SurfaceCode::PreconditionFailed => "The message has moved on since that version",
            SurfaceCode::MessageForgotten => "The message's retention is over",
            SurfaceCode::TooManyRequests => "Too many requests at once",
            SurfaceCode::Unavailable => "The service cannot answer now",
            SurfaceCode::OutcomeUnknown => "Whether the request was taken is not known",
            SurfaceCode::Internal => "The server has a fault",
        }
    }
}

impl Code {
    /// Every code: the registry's, then the surface's.
    pub fn all() -> impl Iterator<Item = Code> {
        StableCode::ALL.iter().copied().map(Code::Stable).chain(SurfaceCode::ALL.into_iter().map(Code::Surface))
    }

    /// The code of a name, in any case of letters.
    pub fn from_name(name: &str) -> Option<Code> {
        Code::all().find(|code| code.name().eq_ignore_ascii_case(name))
    }

    /// The name in answers and of the code's page.
    pub fn name(self) -> &'static str {
        match self {
            Code::Stable(code) => code.name(),
            Code::Surface(code) => code.name(),
        }
    }

    /// The HTTP status: the one table.
    pub fn status(self) -> u16 {
        let code = match self {
            Code::Surface(code) => return code.status(),
            Code::Stable(code) => code,
        };
        match code {
            StableCode::Ok | StableCode::Scheduled | StableCode::Canceled | StableCode::Superseded => 200,
            StableCode::NotFound | StableCode::NotFoundOrNotAuthorized => 404,
            StableCode::TooLate
            | StableCode::AlreadyPublished
            | StableCode::AlreadyCanceled
            | StableCode::AlreadyExpired
            | StableCode::AlreadyDeadLettered
            | StableCode::AlreadyAbandoned
            | StableCode::AlreadyCommitted
            | StableCode::AlreadyOpen
            | StableCode::CommandIdConflict
            | StableCode::DelayMessageIdConflict
            | StableCode::PayloadObjectConflict
            | StableCode::PayloadCommitConflict
            | StableCode::ObjectIdentityConflict => 409,
            StableCode::ResultExpired | StableCode::ResultEvidenceExpired => 410,
            StableCode::VersionConflict | StableCode::GenerationSuperseded => 412,
            StableCode::PayloadTooLarge | StableCode::ServerPayloadTooLarge => 413,
            StableCode::Unauthorized | StableCode::UnauthorizedSystemMutation => 403,
            StableCode::HardQuotaExceeded | StableCode::DestinationLaneLimitExceeded => 429,
            StableCode::IntegrityError => 500,
            StableCode::ShardTransitioning
            | StableCode::ShardUnavailable
            | StableCode::SdkBackpressureNotSubmitted
            | StableCode::BrokerDefinitiveNotPersisted
            | StableCode::RouteSnapshotUnavailable
            | StableCode::FenceStalledCapacity
            | StableCode::CapabilityUnavailable
            | StableCode::ObjectStoreUnavailableRetryable
            | StableCode::ObjectNotReadyRetryable => 503,
            StableCode::EnqueueResultUncertain | StableCode::NativeEnqueueResultUncertain => 504,
            _ => 422,
        }
    }

    /// Whether sending the same request again can help.
    pub fn is_retryable(self) -> bool {
        match self {
            Code::Surface(code) => code.is_retryable(),
            Code::Stable(code) => {
                matches!(code.retryability(), Retryability::RetryExactBytes | Retryability::RetryExactBytesAfterRetryAt)
            }
        }
    }

    /// One line for people.
    pub fn title(self) -> String {
        match self {
            Code::Surface(code) => code.title().to_owned(),
            Code::Stable(code) => {
                let mut title = code.name().replace('_', " ").to_ascii_lowercase();
                if let Some(first) = title.get_mut(..1) {
                    first.make_ascii_uppercase();
                }
                title
            }
        }
    }
}

impl From<StableCode> for Code {
    fn from(code: StableCode) -> Self {
        Code::Stable(code)
    }
}

impl From<SurfaceCode> for Code {
    fn from(code: SurfaceCode) -> Self {
        Code::Surface(code)
    }
}

impl fmt::Display for Code {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// Where the page of a code is, relative to the server.
pub const TYPE_PREFIX: &str = "/errors/";

/// Problem details (RFC 9457).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// The page of the code, relative to the server.
    pub r#type: String,
    /// One line.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// The stable code.
    pub code: String,
    /// What happened and what to do, with numbers.
    pub detail: String,
    /// Which field, parameter or header.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// The limit that was broken, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_ms: Option<i64>,
    /// What the request had instead, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actual_ms: Option<i64>,
    /// The limit that was broken, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_bytes: Option<u64>,
    /// What the request had instead, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actual_bytes: Option<u64>,
    /// Whether sending the same request again can help.
    pub retryable: bool,
    /// Names this answer in the server's log.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub request_id: String,
    /// The message in question, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<Box<super::message::Message>>,
    /// What was checked, for a destination or an ingress.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<super::destination::Check>,
}

impl Problem {
    /// A problem of a code.
    pub fn new(code: impl Into<Code>, detail: impl Into<String>) -> Problem {
        let code = code.into();
        Problem {
            r#type: format!("{TYPE_PREFIX}{}", code.name()),
            title: code.title(),
            status: code.status(),
            code: code.name().to_owned(),
            detail: detail.into(),
            field: None,
            limit_ms: None,
            actual_ms: None,
            limit_bytes: None,
            actual_bytes: None,
            retryable: code.is_retryable(),
            request_id: String::new(),
            message: None,
            checks: Vec::new(),
        }
    }

    /// Names the field, parameter or header at fault.
    #[must_use]
    pub fn field(mut self, field: impl Into<String>) -> Problem {
        self.field = Some(field.into());
        self
    }

    /// States a limit in milliseconds and what the request had.
    #[must_use]
    pub fn limit_ms(mut self, limit_ms: i64, actual_ms: i64) -> Problem {
        (self.limit_ms, self.actual_ms) = (Some(limit_ms), Some(actual_ms));
        self
    }

    /// States a limit in bytes and what the request had.
    #[must_use]
    pub fn limit_bytes(mut self, limit_bytes: u64, actual_bytes: u64) -> Problem {
        (self.limit_bytes, self.actual_bytes) = (Some(limit_bytes), Some(actual_bytes));
        self
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.code, self.detail)
    }
}

impl std::error::Error for Problem {}
