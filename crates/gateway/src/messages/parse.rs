//! From a request's JSON to a message, with every refusal naming its field and its limit.
//!
//! Numbers and times are read from the raw text of the request: what JSON libraries make of 9223372036854775808, 1e3 or 1.5 on
//! their way into a struct is nothing a delivery time should depend on. JSON values are delivered byte for byte as they were
//! written.

use std::borrow::Cow;

use bytes::Bytes;
use client::api::problem::{Problem, SurfaceCode};
use client::duration::parse_delay_ms;
use client::instant::parse_instant_ms;
use client::prepare::{Header, NewMessage};
use data_encoding::BASE64;
use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer};
use serde_json::value::RawValue;

/// A raw field: `None` when it is absent, the text `null` when it is null.
type Raw<'a> = Option<&'a RawValue>;

/// The body of `POST /v1/messages` and an item of a batch, as sent.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawSchedule<'a> {
    #[serde(borrow)]
    pub(crate) destination: Option<Cow<'a, str>>,
    #[serde(borrow, default, deserialize_with = "present")]
    pub(crate) id: Raw<'a>,
    #[serde(borrow, default, deserialize_with = "present")]
    deliver_at: Raw<'a>,
    #[serde(borrow, default, deserialize_with = "present")]
    deliver_at_ms: Raw<'a>,
    #[serde(borrow, default, deserialize_with = "present")]
    delay: Raw<'a>,
    #[serde(borrow, default, deserialize_with = "present")]
    key: Raw<'a>,
    #[serde(borrow, default, deserialize_with = "present")]
    value: Raw<'a>,
    #[serde(borrow, default)]
    headers: Vec<RawHeader<'a>>,
    #[serde(borrow, default, deserialize_with = "present")]
    expires_after: Raw<'a>,
    #[serde(borrow, default, deserialize_with = "present")]
    expires_at: Raw<'a>,
    #[serde(borrow, default, deserialize_with = "present")]
    expires_at_ms: Raw<'a>,
    #[serde(borrow, default, deserialize_with = "present")]
    event_time_ms: Raw<'a>,
    #[serde(borrow, default)]
    pub(crate) idempotency_key: Option<Cow<'a, str>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawHeader<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow, default, deserialize_with = "present")]
    value: Raw<'a>,
}

/// The body of `PATCH /v1/messages/{id}`, as sent.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawReschedule<'a> {
    #[serde(borrow, default, deserialize_with = "present")]
    deliver_at: Raw<'a>,
    #[serde(borrow, default, deserialize_with = "present")]
    deliver_at_ms: Raw<'a>,
    #[serde(borrow, default, deserialize_with = "present")]
    delay: Raw<'a>,
    #[serde(borrow, default, deserialize_with = "present")]
    expires_after: Raw<'a>,
    #[serde(borrow, default, deserialize_with = "present")]
    expires_at: Raw<'a>,
    #[serde(borrow, default, deserialize_with = "present")]
    expires_at_ms: Raw<'a>,
}

/// The body of `POST /v1/messages:batch`, as sent.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawBatch<'a> {
    #[serde(borrow)]
    pub(crate) messages: Vec<&'a RawValue>,
}

/// Tells a field that is null from one that is absent.
fn present<'de: 'a, 'a, D: Deserializer<'de>>(deserializer: D) -> Result<Raw<'a>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

/// A message's content as it was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Content {
    pub(crate) key: Option<Bytes>,
    pub(crate) value: Option<Bytes>,
    pub(crate) headers: Vec<Header>,
}

/// When a message should be delivered, as it was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    /// At this time.
    At(i64),
    /// This long from when the service takes the request.
    In(i64),
}

impl When {
    /// The delivery time: a delay counts from the later bound of trusted time, and never wraps into the past.
    pub(crate) fn deliver_at_ms(self, now_latest_ms: i64) -> i64 {
        match self {
            When::At(at_ms) => at_ms,
            When::In(delay_ms) => now_latest_ms.saturating_add(delay_ms),
        }
    }
}

/// When a message should expire, as it was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expiry {
    /// At this time.
    At(i64),
    /// This long after its delivery time.
    After(i64),
}

impl Expiry {
    pub(crate) fn expire_at_ms(self, deliver_at_ms: i64, now_latest_ms: i64) -> i64 {
        match self {
            Expiry::At(at_ms) => at_ms,
            Expiry::After(after_ms) => deliver_at_ms.max(now_latest_ms).saturating_add(after_ms),
        }
    }
}

/// Reads a JSON body.
pub(crate) fn body<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, Problem> {
    serde_json::from_slice(bytes).map_err(|error| body_problem(&error))
}

/// Reads a JSON body that keeps nothing of the request's bytes.
pub(crate) fn owned_body<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    body(bytes)
}

fn body_problem(error: &serde_json::Error) -> Problem {
    let text = error.to_string();
    if error.is_data() {
        let problem = Problem::new(SurfaceCode::InvalidField, format!("the body does not fit: {text}"));
        return match text.split('`').nth(1) {
            Some(field) => problem.field(field),
            None => problem,
        };
    }
    Problem::new(SurfaceCode::MalformedBody, format!("the body is not valid JSON: {text}"))
}

impl RawSchedule<'_> {
    /// The message, with what it says in relation to now counted from there.
    pub(crate) fn message(&self, now_latest_ms: i64) -> Result<NewMessage, Problem> {
        let id = self.id()?;
        let (when, expiry, event_time_ms) = self.times()?;
        let content = self.content()?;
        let deliver_at_ms = when.deliver_at_ms(now_latest_ms);
        Ok(NewMessage {
            id,
            deliver_at_ms,
            expire_at_ms: expiry.map(|expiry| expiry.expire_at_ms(deliver_at_ms, now_latest_ms)),
            key: content.key,
            value: content.value,
            headers: content.headers,
            event_time_ms,
        })
    }

    /// The caller's own id.
    pub(crate) fn id(&self) -> Result<Option<String>, Problem> {
        self.id.filter(|raw| !is_null(raw)).map(|raw| text("id", raw).map(Cow::into_owned)).transpose()
    }

    /// Delivery time, expiry and event time.
    pub(crate) fn times(&self) -> Result<(When, Option<Expiry>, Option<i64>), Problem> {
        let when = when(self.deliver_at, self.deliver_at_ms, self.delay)?;
        let expiry = expiry(self.expires_after, self.expires_at, self.expires_at_ms)?;
        let event_time_ms = self.event_time_ms.map(|raw| epoch_ms("event_time_ms", raw)).transpose()?;
        Ok((when, expiry, event_time_ms))
    }

    /// Key, value and headers.
    pub(crate) fn content(&self) -> Result<Content, Problem> {
        let value = self.value.ok_or_else(|| {
            invalid("value", "value is missing; write null for a tombstone or \"\" for an empty value".to_owned())
        })?;
        let key = self.key.map(|raw| content("key", raw)).transpose()?.flatten();
        let mut headers = Vec::with_capacity(self.headers.len());
        for header in &self.headers {
            let value = header.value.ok_or_else(|| {
                invalid("headers", format!("header {:?} has no value; write null if that is meant", header.name))
            })?;
            headers.push(Header { name: header.name.clone().into_owned(), value: content("headers", value)? });
        }
        Ok(Content { key, value: content("value", value)?, headers })
    }
}

impl RawReschedule<'_> {
    /// The new delivery time and, if one is given, the new expiry.
    pub(crate) fn times(&self) -> Result<(When, Option<Expiry>), Problem> {
        let when = when(self.deliver_at, self.deliver_at_ms, self.delay)?;
        Ok((when, expiry(self.expires_after, self.expires_at, self.expires_at_ms)?))
    }
}

fn when(deliver_at: Raw<'_>, deliver_at_ms: Raw<'_>, delay: Raw<'_>) -> Result<When, Problem> {
    match (deliver_at, deliver_at_ms, delay) {
        (Some(raw), None, None) => Ok(When::At(instant("deliver_at", raw)?)),
        (None, Some(raw), None) => Ok(When::At(epoch_ms("deliver_at_ms", raw)?)),
        (None, None, Some(raw)) => Ok(When::In(delay_ms("delay", raw)?)),
        (None, None, None) => {
            Err(invalid("delay", "say when: one of delay, deliver_at and deliver_at_ms is needed".to_owned()))
        }
        _ => Err(invalid("delay", "delay, deliver_at and deliver_at_ms exclude each other: give one".to_owned())),
    }
}

fn expiry(after: Raw<'_>, at: Raw<'_>, at_ms: Raw<'_>) -> Result<Option<Expiry>, Problem> {
    match (after, at, at_ms) {
        (None, None, None) => Ok(None),
        (Some(raw), None, None) => Ok(Some(Expiry::After(delay_ms("expires_after", raw)?))),
        (None, Some(raw), None) => Ok(Some(Expiry::At(instant("expires_at", raw)?))),
        (None, None, Some(raw)) => Ok(Some(Expiry::At(epoch_ms("expires_at_ms", raw)?))),
        _ => Err(invalid(
            "expires_after",
            "expires_after, expires_at and expires_at_ms exclude each other: give one".to_owned(),
        )),
    }
}

fn delay_ms(field: &'static str, raw: &RawValue) -> Result<i64, Problem> {
    if !raw.get().starts_with('"') {
        return Err(invalid(
            field,
            format!(
                "{field} is a text with units, such as \"90s\" or \"1h30m\"; {} has none, and guessing would be wrong \
                 for someone",
                shown(raw)
            ),
        ));
    }
    let text = text(field, raw)?;
    parse_delay_ms(&text).map_err(|error| invalid(field, format!("{field}: {error}")))
}

fn instant(field: &'static str, raw: &RawValue) -> Result<i64, Problem> {
    if !raw.get().starts_with('"') {
        return Err(invalid(
            field,
            format!("{field} is an RFC 3339 text; for epoch milliseconds write {field}_ms; found {}", shown(raw)),
        ));
    }
    let text = text(field, raw)?;
    parse_instant_ms(&text).map_err(|error| invalid(field, format!("{field}: {error}")))
}

/// Whole epoch milliseconds, digits only: 1.5, 1e3, "5" and NaN are somebody's mistake.
fn epoch_ms(field: &'static str, raw: &RawValue) -> Result<i64, Problem> {
    let text = raw.get();
    if let Ok(epoch_ms) = text.parse::<i64>()
        && text.bytes().all(|byte| byte.is_ascii_digit())
    {
        return Ok(epoch_ms);
    }
    let reason = if text.starts_with('"') {
        "is a number, not a text".to_owned()
    } else if text.starts_with('-') {
        "may not be negative".to_owned()
    } else if text.bytes().all(|byte| byte.is_ascii_digit()) {
        format!("is larger than {} milliseconds", i64::MAX)
    } else {
        "is a whole number of epoch milliseconds, without fraction or exponent".to_owned()
    };
    Err(invalid(field, format!("{field} {reason}; found {}", shown(raw))))
}

/// Bytes: a JSON text is UTF-8 text, an object says what else, null is null.
fn content(field: &'static str, raw: &RawValue) -> Result<Option<Bytes>, Problem> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Typed<'a> {
        #[serde(borrow)]
        r#type: Cow<'a, str>,
        #[serde(borrow)]
        data: &'a RawValue,
    }

    let json = raw.get();
    match json.as_bytes().first() {
        Some(b'n') => Ok(None),
        Some(b'"') => Ok(Some(text(field, raw)?.into_owned().into())),
        Some(b'{') => {
            let typed: Typed<'_> = serde_json::from_str(json)
                .map_err(|error| invalid(field, format!("{field} is no {{\"type\":…,\"data\":…}}: {error}")))?;
            match &*typed.r#type {
                "json" => Ok(Some(Bytes::copy_from_slice(typed.data.get().as_bytes()))),
                "binary" => {
                    let encoded = text(field, typed.data)?;
                    let decoded = BASE64.decode(encoded.as_bytes());
                    decoded.map(|bytes| Some(bytes.into())).map_err(|error| {
                        invalid(field, format!("{field}: data is no standard base64 with padding: {error}"))
                    })
                }
                other => Err(invalid(field, format!("{field}: type {other:?} is unknown; binary and json are known"))),
            }
        }
        _ => Err(invalid(
            field,
            format!(
                "{field} is a text, null, or {{\"type\":\"json\",\"data\":…}} or {{\"type\":\"binary\",\"data\":base64}}; \
                 found {}",
                shown(raw)
            ),
        )),
    }
}

fn text<'a>(field: &'static str, raw: &'a RawValue) -> Result<Cow<'a, str>, Problem> {
    #[derive(Deserialize)]
    struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

    serde_json::from_str::<Text<'a>>(raw.get())
        .map(|text| text.0)
        .map_err(|error| invalid(field, format!("{field} is a text; found {}: {error}", shown(raw))))
}

fn is_null(raw: &RawValue) -> bool {
    raw.get() == "null"
}

/// A field's text for a refusal, cut to a readable length.
fn shown(raw: &RawValue) -> String {
    const LENGTH_MAX: usize = 40;
    let text = raw.get();
    match text.char_indices().nth(LENGTH_MAX) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

pub(crate) fn invalid(field: &'static str, detail: String) -> Problem {
    Problem::new(SurfaceCode::InvalidField, detail).field(field)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule(json: &str) -> Result<(When, Option<Expiry>, Content), Problem> {
        let raw: RawSchedule<'_> = body(json.as_bytes())?;
        let (when, expiry, _) = raw.times()?;
        Ok((when, expiry, raw.content()?))
    }

    fn refusal(json: &str) -> Problem {
        schedule(json).expect_err(json)
    }

    #[test]
    fn the_overflow_ladder_is_never_now() {
        for accepted in ["0", "2147483647", "2147483648", "4294967296", "9007199254740993", "9223372036854775807"] {
            let (when, ..) = schedule(&format!(r#"{{"destination":"d","deliver_at_ms":{accepted},"value":""}}"#))
                .unwrap_or_else(|problem| panic!("{accepted}: {problem}"));
            assert_eq!(when, When::At(accepted.parse().expect("an i64")));
        }
        let refused = [
            ("9223372036854775808", "larger than 9223372036854775807"),
            ("99999999999999999999999", "larger than 9223372036854775807"),
            ("-1", "may not be negative"),
            ("-0", "may not be negative"),
            ("1.0", "without fraction"),
            ("1e3", "without fraction or exponent"),
            ("\"1764511200000\"", "is a number, not a text"),
            ("null", "whole number"),
            ("true", "whole number"),
            ("[1]", "whole number"),
        ];
        for (value, expected) in refused {
            let problem = refusal(&format!(r#"{{"destination":"d","deliver_at_ms":{value},"value":""}}"#));
            assert!(problem.detail.contains(expected), "{value}: {problem}");
            assert_eq!((problem.status, problem.field.as_deref()), (400, Some("deliver_at_ms")), "{value}");
        }
        let not_json = refusal(r#"{"destination":"d","deliver_at_ms":NaN,"value":""}"#);
        assert_eq!(not_json.code, "MALFORMED_BODY");
    }

    #[test]
    fn a_delay_needs_units() {
        let problem = refusal(r#"{"destination":"d","delay":30,"value":""}"#);
        assert!(problem.detail.contains("\"90s\"") && problem.detail.contains("30 has none"), "{problem}");
        let (when, ..) = schedule(r#"{"destination":"d","delay":"30m","value":""}"#).expect("valid");
        assert_eq!(when, When::In(1_800_000));
        assert_eq!(when.deliver_at_ms(i64::MAX - 5), i64::MAX);
    }

    #[test]
    fn exactly_one_time_is_given() {
        assert!(refusal(r#"{"destination":"d","value":""}"#).detail.contains("say when"));
        let both = refusal(r#"{"destination":"d","delay":"1s","deliver_at":"2027-01-31T09:00:00Z","value":""}"#);
        assert!(both.detail.contains("exclude each other"));
    }

    #[test]
    fn null_absent_and_empty_are_three_things() {
        let content =
            |json: &str| schedule(&format!(r#"{{"destination":"d","delay":"1s",{json}}}"#)).map(|parts| parts.2);
        let absent = content(r#""value":"""#).expect("valid");
        assert_eq!((absent.key, absent.value), (None, Some(Bytes::new())));
        let null = content(r#""key":null,"value":null"#).expect("valid");
        assert_eq!((null.key, null.value), (None, None));
        let empty = content(r#""key":"","value":"x""#).expect("valid");
        assert_eq!(empty.key, Some(Bytes::new()));
        let missing = schedule(r#"{"destination":"d","delay":"1s"}"#).expect_err("no value");
        assert!(missing.detail.contains("write null for a tombstone"));
    }

    #[test]
    fn json_is_delivered_as_it_was_written() {
        let (_, _, content) = schedule(
            r#"{"destination":"d","delay":"1s","value":{"type":"json","data": {"b":1.10,  "a":123456789012345678901234567890}}}"#,
        )
        .expect("valid");
        let expected = r#"{"b":1.10,  "a":123456789012345678901234567890}"#;
        assert_eq!(content.value.expect("not null"), Bytes::from_static(expected.as_bytes()));
    }

    #[test]
    fn unknown_fields_and_types_are_refused() {
        let misspelt = refusal(r#"{"destination":"d","dealy":"1s","value":""}"#);
        assert_eq!((misspelt.code.as_str(), misspelt.field.as_deref()), ("INVALID_FIELD", Some("dealy")));
        let twice = refusal(r#"{"destination":"d","delay":"1s","delay":"2s","value":""}"#);
        assert_eq!(twice.code, "INVALID_FIELD");
        let kind = refusal(r#"{"destination":"d","delay":"1s","value":{"type":"xml","data":""}}"#);
        assert!(kind.detail.contains("\"xml\" is unknown"));
        let number = refusal(r#"{"destination":"d","delay":"1s","value":5}"#);
        assert!(number.detail.contains("found 5"));
        let base64 = refusal(r#"{"destination":"d","delay":"1s","value":{"type":"binary","data":"a"}}"#);
        assert!(base64.detail.contains("base64"));
    }

    #[test]
    fn cut_off_bodies_are_malformed() {
        let whole = r#"{"destination":"d","delay":"1s","value":"x"}"#;
        for length in 0..whole.len() {
            assert_eq!(refusal(&whole[..length]).code, "MALFORMED_BODY", "{length}");
        }
        let invalid_utf8 = b"{\"destination\":\"d\",\"delay\":\"1s\",\"value\":\"\xff\"}";
        assert_eq!(body::<RawSchedule<'_>>(invalid_utf8).expect_err("no text").code, "MALFORMED_BODY");
    }
}
