//! What the surface makes of bytes that anybody may send, as plain functions with no server behind them.
//!
//! The handlers and the ingresses go through the same code. It can be called from here so that fuzzing holds it to any input.

use client::api::destination::DestinationSpec;
use client::api::ingress::IngressSpec;
use client::api::problem::Problem;
use client::prepare::NewMessage;
use control::destination::DestinationVersion;
use ports::source::SourceRecord;
use ports::target::Target;
use protocol::mutation_v2::Limits;

use crate::destinations::{self, DestinationDefaults, Terms};
use crate::ingress::record;
use crate::messages::parse::{self, RawBatch, RawReschedule, RawSchedule};

/// What a source record asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceRequest {
    /// A message to schedule.
    Schedule {
        /// Its destination.
        destination: String,
        /// The message.
        message: NewMessage,
    },
    /// A message to take back.
    Cancel {
        /// The caller's own id, or the service's.
        target: String,
    },
    /// A message to move.
    Reschedule {
        /// The caller's own id, or the service's.
        target: String,
        /// The new delivery time, in milliseconds since the epoch.
        deliver_at_ms: i64,
        /// The new expiry; as long after delivery as before when `None`.
        expire_at_ms: Option<i64>,
    },
}

/// The body of `POST /v1/messages`, asked for at `now_latest_ms`: the destination and the message.
///
/// # Errors
/// The answer that refuses it.
pub fn schedule(body: &[u8], now_latest_ms: i64) -> Result<(Option<String>, NewMessage), Problem> {
    let raw: RawSchedule<'_> = parse::body(body)?;
    Ok((raw.destination.as_deref().map(str::to_owned), raw.message(now_latest_ms)?))
}

/// The items of the body of `POST /v1/messages:batch`, each a body of its own.
///
/// # Errors
/// The answer that refuses the batch as a whole.
pub fn batch(body: &[u8]) -> Result<Vec<&[u8]>, Problem> {
    let raw: RawBatch<'_> = parse::body(body)?;
    Ok(raw.messages.into_iter().map(|item| item.get().as_bytes()).collect())
}

/// The body of `PATCH /v1/messages/{id}`, asked for at `now_latest_ms`: the new delivery time and expiry.
///
/// # Errors
/// The answer that refuses it.
pub fn reschedule(body: &[u8], now_latest_ms: i64) -> Result<(i64, Option<i64>), Problem> {
    let raw: RawReschedule<'_> = parse::body(body)?;
    let (when, expiry) = raw.times()?;
    let deliver_at_ms = when.deliver_at_ms(now_latest_ms);
    Ok((deliver_at_ms, expiry.map(|expiry| expiry.expire_at_ms(deliver_at_ms, now_latest_ms))))
}

/// The body of `PUT /v1/destinations/{name}`.
///
/// # Errors
/// The answer that refuses it.
pub fn destination(body: &[u8]) -> Result<DestinationSpec, Problem> {
    parse::owned_body(body)
}

/// The first version of a destination on a target that was found, made at `now_ms`.
///
/// # Errors
/// The answer that refuses it.
pub fn destination_version(
    name: &str,
    spec: &DestinationSpec,
    target: &Target,
    defaults: &DestinationDefaults,
    limits: &Limits,
    now_ms: i64,
) -> Result<DestinationVersion, Problem> {
    destinations::version_of(Terms { defaults, limits, now_ms }, name, spec, target, 1)
}

/// The body of `PUT /v1/ingresses/{name}`.
///
/// # Errors
/// The answer that refuses it.
pub fn ingress(body: &[u8]) -> Result<IngressSpec, Problem> {
    parse::owned_body(body)
}

/// What a source record asks for, written at `asked_at_ms`. `default` is the destination of records that name none.
///
/// # Errors
/// The code and the detail of the refusal.
pub fn source_record(
    record: &SourceRecord,
    default: Option<&str>,
    asked_at_ms: i64,
) -> Result<SourceRequest, (String, String)> {
    record::decode(record, default, asked_at_ms)
}

/// The query of a request as names and values, of which only `known` ones are taken.
///
/// # Errors
/// The answer that refuses it.
pub fn query(text: &str, known: &[&'static str]) -> Result<Vec<(&'static str, String)>, Problem> {
    crate::http::request_parameters(Some(text), known).map(|parameters| parameters.into_iter().collect())
}
