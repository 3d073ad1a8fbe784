//! What requests carry besides their path: parameters, headers, bodies. Everything unknown is refused.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::body::{Body, HttpBody as _};
use axum::extract::{FromRequestParts, Path};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName};
use bytes::Bytes;
use client::api::problem::{Problem, SurfaceCode};
use client::duration::parse_delay_ms;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::header::{CONTENT_TYPE, IF_MATCH};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

use crate::messages::read::parameter;
use crate::messages::submit::{Wait, WaitFor};
use crate::problem::Failure;
use crate::state::Gateway;

/// How long a body may take to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// The variable segment of a path, as text.
pub(crate) struct Segment(pub(crate) String);

impl<S: Send + Sync> FromRequestParts<S> for Segment {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Segment, Failure> {
        match Path::<String>::from_request_parts(parts, state).await {
            Ok(Path(text)) => Ok(Segment(text)),
            Err(rejection) => {
                let detail = format!("the path cannot be read: {}", rejection.body_text());
                Err(Problem::new(SurfaceCode::InvalidParameter, detail).field("path").into())
            }
        }
    }
}

/// A request's body, with its share of the memory that bodies may take together.
pub(super) struct JsonBody {
    bytes: Bytes,
    _room: OwnedSemaphorePermit,
}

impl std::ops::Deref for JsonBody {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Reads a whole JSON body, up to a limit. Waits while the bodies of others take all the memory there is for them.
pub(super) async fn json_body(
    gateway: &Gateway,
    headers: &HeaderMap,
    body: Body,
    bytes_max: usize,
) -> Result<JsonBody, Problem> {
    let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = content_type.split(';').next().unwrap_or_default().trim();
    if !essence.eq_ignore_ascii_case("application/json") {
        let detail = format!("send the body as application/json; found {content_type:?}");
        return Err(Problem::new(SurfaceCode::UnsupportedMediaType, detail).field("Content-Type"));
    }
    let stated = body.size_hint().exact().and_then(|bytes| usize::try_from(bytes).ok());
    if let Some(stated) = stated.filter(|stated| *stated > bytes_max) {
        return Err(too_large(bytes_max, Some(stated)));
    }
    let room = gateway.body_room(stated.unwrap_or(bytes_max)).await?;
    let reading = Limited::new(body, bytes_max).collect();
    let Ok(read) = timeout(BODY_TIMEOUT, reading).await else {
        let detail = format!("the body did not come within {} s; nothing was taken", BODY_TIMEOUT.as_secs());
        return Err(Problem::new(SurfaceCode::MalformedBody, detail));
    };
    match read {
        Ok(collected) => Ok(JsonBody { bytes: collected.to_bytes(), _room: room }),
        Err(error) if error.is::<LengthLimitError>() => Err(too_large(bytes_max, None)),
        Err(error) => Err(Problem::new(SurfaceCode::MalformedBody, format!("the body broke off: {error}"))),
    }
}

fn too_large(bytes_max: usize, stated: Option<usize>) -> Problem {
    let stated_text = stated.map_or_else(String::new, |stated| format!(" ({stated})"));
    let detail = format!("the body{stated_text} is larger than {bytes_max} bytes; nothing was taken");
    let problem = Problem::new(SurfaceCode::RequestTooLarge, detail);
    Problem { limit_bytes: Some(bytes_max as u64), actual_bytes: stated.map(|stated| stated as u64), ..problem }
}

/// The query's parameters. Unknown and repeated ones are refused: a misspelt filter must not show everything.
pub(crate) fn parameters(
    query: Option<&str>,
    known: &[&'static str],
) -> Result<BTreeMap<&'static str, String>, Problem> {
    let mut parameters = BTreeMap::new();
    for pair in query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let Some(name) = known.iter().find(|known| **known == name) else {
            let detail = format!("there is no parameter {name:?} here; there are: {}", known.join(", "));
            return Err(Problem::new(SurfaceCode::InvalidParameter, detail).field(name));
        };
        let value = percent_decode(value).ok_or_else(|| parameter(name, &format!("{name} is not valid text")))?;
        if parameters.insert(*name, value).is_some() {
            return Err(parameter(name, &format!("{name} is given twice")));
        }
    }
    Ok(parameters)
}

/// Decodes a query value: percent escapes, and plus for space.
pub(super) fn percent_decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        match first {
            b'+' => bytes.push(b' '),
            b'%' => {
                let (digits, after) = rest.split_at_checked(2)?;
                bytes.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
                rest = after;
            }
            other => bytes.push(*other),
        }
    }
    String::from_utf8(bytes).ok()
}

/// How far the request is followed: `wait` and `timeout`.
pub(super) fn wait(gateway: &Gateway, parameters: &BTreeMap<&'static str, String>) -> Result<Wait, Problem> {
    let until = match parameters.get("wait").map(String::as_str) {
        None | Some("applied") => WaitFor::Applied,
        Some("queued") => WaitFor::Queued,
        Some("published") => WaitFor::Published,
        Some(other) => {
            return Err(parameter("wait", &format!("wait is queued, applied or published; found {other:?}")));
        }
    };
    let timeout = match parameters.get("timeout") {
        None => gateway.config.wait_default,
        Some(text) => {
            let timeout_ms =
                parse_delay_ms(text).map_err(|error| parameter("timeout", &format!("timeout: {error}")))?;
            Duration::from_millis(timeout_ms.unsigned_abs())
        }
    };
    let limit = gateway.config.wait_max;
    if timeout > limit {
        let detail = format!("timeout is {} ms; the limit is {} ms", timeout.as_millis(), limit.as_millis());
        return Err(parameter("timeout", &detail));
    }
    Ok(Wait::new(until, timeout))
}

/// The version that `If-Match` names, `None` for any.
pub(super) fn if_match(headers: &HeaderMap) -> Result<Option<u64>, Problem> {
    let Some(text) = header_text(headers, &IF_MATCH)? else { return Ok(None) };
    if text.trim() == "*" {
        return Ok(None);
    }
    let version = text.trim().strip_prefix('"').and_then(|text| text.strip_suffix('"'));
    match version.and_then(|version| version.parse().ok()) {
        Some(version) => Ok(Some(version)),
        None => {
            let detail = format!("If-Match is the ETag of an answer, such as \"3\" in quotes, or *; found {text:?}");
            Err(Problem::new(SurfaceCode::InvalidHeader, detail).field("If-Match"))
        }
    }
}

pub(super) fn header_text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, Problem> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(Problem::new(SurfaceCode::InvalidHeader, format!("{name} is given twice")).field(name.as_str()));
    }
    value.to_str().map(Some).map_err(|_| {
        Problem::new(SurfaceCode::InvalidHeader, format!("{name} is not visible ASCII text")).field(name.as_str())
    })
}
