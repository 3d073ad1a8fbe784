//! From a source record to what it asks for, by its headers alone.
//!
//! Every header that begins with `nereus-` is one of ours or somebody's mistake: a misspelt delay must not become a message
//! that nobody scheduled. What delivery adds (`nereus.delay.…`) is taken off first, so that a record may go round as often as
//! it likes.

use bytes::Bytes;
use client::api::problem::{Code, Problem, SurfaceCode};
use client::duration::parse_delay_ms;
use client::instant::parse_instant_ms;
use client::prepare::{Header, NewMessage};
use ports::source::{SourceHeader, SourceRecord};
use protocol::code::StableCode;
use protocol::command::prepare::is_reserved_name;

use crate::decode::SourceRequest;
use crate::messages::parse::When;

pub(super) const DELIVER_AT: &str = "nereus-deliver-at";
pub(super) const DELAY: &str = "nereus-delay";
pub(super) const DESTINATION: &str = "nereus-destination";
pub(super) const ID: &str = "nereus-id";
pub(super) const EXPIRES_AT: &str = "nereus-expires-at";
pub(super) const CANCEL: &str = "nereus-cancel";
pub(super) const RESCHEDULE: &str = "nereus-reschedule";

/// Every header of ours, in the order that refusals list them.
const NAMES: [&str; 7] = [DELIVER_AT, DELAY, DESTINATION, ID, EXPIRES_AT, CANCEL, RESCHEDULE];
/// What begins so, in any case of letters, means one of ours.
const PREFIX: &[u8] = b"nereus-";
/// How much of a header is shown in a refusal.
const SHOWN_CHARS_MAX: usize = 80;

/// Why a record is not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    /// The code's name.
    pub(super) code: String,
    /// What is wrong, with names and numbers.
    pub(super) detail: String,
}

impl Refusal {
    pub(super) fn new(code: impl Into<Code>, detail: impl Into<String>) -> Refusal {
        Refusal { code: code.into().name().to_owned(), detail: detail.into() }
    }
}

impl From<Problem> for Refusal {
    fn from(problem: Problem) -> Self {
        Refusal { code: problem.code, detail: problem.detail }
    }
}

/// What a record asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Request {
    Schedule(NewSchedule),
    Change(Change),
}

/// A message to schedule, as the record says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NewSchedule {
    pub(super) destination: String,
    pub(super) id: Option<String>,
    pub(super) when: When,
    pub(super) expire_at_ms: Option<i64>,
    pub(super) key: Option<Bytes>,
    pub(super) value: Option<Bytes>,
    /// What is left of the record's headers, in order.
    pub(super) headers: Vec<Header>,
}

impl NewSchedule {
    /// The message, asked for by `record` at this time.
    pub(super) fn message(&self, record: &SourceRecord, asked_at_ms: i64) -> NewMessage {
        NewMessage {
            id: self.id.clone(),
            deliver_at_ms: self.when.deliver_at_ms(asked_at_ms),
            expire_at_ms: self.expire_at_ms,
            key: self.key.clone(),
            value: self.value.clone(),
            headers: self.headers.clone(),
            event_time_ms: timestamp_ms(record),
        }
    }
}

/// The record's own time.
pub(super) fn timestamp_ms(record: &SourceRecord) -> Option<i64> {
    record.timestamp_ms.filter(|timestamp_ms| *timestamp_ms >= 0)
}

/// A change of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Change {
    /// The message, by the caller's own id or the service's.
    pub(super) target: String,
    pub(super) kind: ChangeKind,
}

/// What is to become of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChangeKind {
    Cancel,
    Reschedule { when: When, expire_at_ms: Option<i64> },
}

/// What a record asks for, for those who have no ingress: see [`crate::decode`].
///
/// # Errors
/// The refusal's code and detail.
pub(crate) fn decode(
    record: &SourceRecord,
    default: Option<&str>,
    asked_at_ms: i64,
) -> Result<SourceRequest, (String, String)> {
    match read(record, default) {
        Ok(Request::Schedule(new)) => {
            let message = new.message(record, asked_at_ms);
            Ok(SourceRequest::Schedule { destination: new.destination, message })
        }
        Ok(Request::Change(Change { target, kind: ChangeKind::Cancel })) => Ok(SourceRequest::Cancel { target }),
        Ok(Request::Change(Change { target, kind: ChangeKind::Reschedule { when, expire_at_ms } })) => {
            let deliver_at_ms = when.deliver_at_ms(asked_at_ms);
            Ok(SourceRequest::Reschedule { target, deliver_at_ms, expire_at_ms })
        }
        Err(Refusal { code, detail }) => Err((code, detail)),
    }
}

/// Reads a record. `default` is the destination of records that name none.
pub(super) fn read(record: &SourceRecord, default: Option<&str>) -> Result<Request, Refusal> {
    let mut ours = Ours::default();
    let mut others = Vec::new();
    for header in &record.headers {
        if is_added_by_delivery(&header.name) {
            continue;
        }
        if begins_as_ours(&header.name) {
            ours.take(header)?;
        } else {
            others.push(header);
        }
    }
    ours.request(record, &others, default)
}

/// Whether a header is one that delivery, or a refusal, adds to a record.
pub(super) fn is_added_by_delivery(name: &[u8]) -> bool {
    is_reserved_name(&String::from_utf8_lossy(name))
}

fn begins_as_ours(name: &[u8]) -> bool {
    name.get(..PREFIX.len()).is_some_and(|prefix| prefix.eq_ignore_ascii_case(PREFIX))
}

/// The values of our headers, in the order of [`NAMES`].
#[derive(Default)]
struct Ours<'a> {
    values: [Option<&'a str>; NAMES.len()],
}

impl<'a> Ours<'a> {
    fn take(&mut self, header: &'a SourceHeader) -> Result<(), Refusal> {
        let name = String::from_utf8_lossy(&header.name);
        let Some(index) = NAMES.iter().position(|known| **known == *name) else {
            let known = NAMES.join(", ");
            return Err(invalid(format!("{:?} is no header of ours; {known} are, in these letters", shown(&name))));
        };
        let value = header.value.as_deref().ok_or_else(|| invalid(format!("{name} is null")))?;
        let value = std::str::from_utf8(value).map_err(|_| invalid(format!("{name} is not UTF-8 text")))?;
        if value.is_empty() {
            return Err(invalid(format!("{name} is empty")));
        }
        if self.values[index].replace(value).is_some() {
            return Err(invalid(format!("{name} is given twice")));
        }
        Ok(())
    }

    fn request(
        &self,
        record: &SourceRecord,
        others: &[&SourceHeader],
        default: Option<&str>,
    ) -> Result<Request, Refusal> {
        let [deliver_at, delay, destination, id, expires_at, cancel, reschedule] = self.values;
        let expire_at_ms = || expires_at.map(|text| instant_ms(EXPIRES_AT, text)).transpose();
        if let Some(target) = cancel {
            self.forbid(CANCEL, &[DELIVER_AT, DELAY, DESTINATION, ID, EXPIRES_AT, RESCHEDULE])?;
            return Ok(Request::Change(Change { target: target.to_owned(), kind: ChangeKind::Cancel }));
        }
        if let Some(target) = reschedule {
            self.forbid(RESCHEDULE, &[DESTINATION, ID])?;
            let when = when(deliver_at, delay, "nereus-reschedule says which message, not to when")?;
            let kind = ChangeKind::Reschedule { when, expire_at_ms: expire_at_ms()? };
            return Ok(Request::Change(Change { target: target.to_owned(), kind }));
        }
        let none = if self.values.iter().all(Option::is_none) {
            "the record has none of our headers"
        } else {
            "the record does not say when"
        };
        let when = when(deliver_at, delay, none)?;
        let destination = destination.or(default).ok_or_else(|| {
            invalid("nereus-destination is missing, and the ingress has no destination of its own".to_owned())
        })?;
        Ok(Request::Schedule(NewSchedule {
            destination: destination.to_owned(),
            id: id.map(str::to_owned),
            when,
            expire_at_ms: expire_at_ms()?,
            key: record.key.clone(),
            value: record.value.clone(),
            headers: others.iter().map(|header| other(header)).collect::<Result<_, _>>()?,
        }))
    }

    /// Refuses headers that mean nothing beside another one.
    fn forbid(&self, beside: &str, forbidden: &[&str]) -> Result<(), Refusal> {
        let given =
            |name: &&&str| NAMES.iter().position(|known| known == *name).is_some_and(|at| self.values[at].is_some());
        match forbidden.iter().find(given) {
            Some(name) => Err(invalid(format!("{name} has no meaning beside {beside}"))),
            None => Ok(()),
        }
    }
}

fn when(deliver_at: Option<&str>, delay: Option<&str>, none: &str) -> Result<When, Refusal> {
    match (deliver_at, delay) {
        (Some(text), None) => Ok(When::At(instant_ms(DELIVER_AT, text)?)),
        (None, Some(text)) => parse_delay_ms(text).map(When::In).map_err(|error| invalid(format!("{DELAY}: {error}"))),
        (None, None) => Err(invalid(format!("{none}: give {DELIVER_AT} or {DELAY}"))),
        (Some(_), Some(_)) => Err(invalid(format!("{DELIVER_AT} and {DELAY} exclude each other: give one"))),
    }
}

/// A point in time: RFC 3339, or epoch milliseconds in digits.
fn instant_ms(name: &str, text: &str) -> Result<i64, Refusal> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        let too_large = |_| invalid(format!("{name}: {} is larger than {} milliseconds", shown(text), i64::MAX));
        return text.parse().map_err(too_large);
    }
    parse_instant_ms(text).map_err(|error| {
        let error = error.to_string();
        invalid(format!("{name}: {}; epoch milliseconds, digits only, are taken too", shown(&error)))
    })
}

/// A header that is passed on.
fn other(header: &SourceHeader) -> Result<Header, Refusal> {
    let name = String::from_utf8(header.name.to_vec()).map_err(|error| {
        let name = error.into_bytes();
        let detail = format!("the name of header {:?} is not UTF-8 text", shown(&String::from_utf8_lossy(&name)));
        Refusal::new(StableCode::InvalidMetadata, detail)
    })?;
    Ok(Header { name, value: header.value.clone() })
}

fn invalid(detail: String) -> Refusal {
    Refusal::new(SurfaceCode::InvalidHeader, detail)
}

/// A text for a refusal, cut to a readable length.
fn shown(text: &str) -> String {
    match text.char_indices().nth(SHOWN_CHARS_MAX) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: &str = "2027-01-31T09:00:00Z";
    const AT_MS: i64 = 1_801_386_000_000;

    fn record(headers: &[(&str, &str)]) -> SourceRecord {
        let header = |(name, value): &(&str, &str)| header(name.as_bytes(), Some(value.as_bytes()));
        SourceRecord {
            offset: 7,
            timestamp_ms: Some(1_800_000_000_000),
            key: Some("k".into()),
            value: Some("v".into()),
            headers: headers.iter().map(header).collect(),
        }
    }

    fn header(name: &[u8], value: Option<&[u8]>) -> SourceHeader {
        SourceHeader { name: Bytes::copy_from_slice(name), value: value.map(Bytes::copy_from_slice) }
    }

    fn schedule(headers: &[(&str, &str)]) -> NewSchedule {
        match read(&record(headers), Some("orders")) {
            Ok(Request::Schedule(schedule)) => schedule,
            other => panic!("{headers:?}: {other:?}"),
        }
    }

    fn refusal(headers: &[(&str, &str)]) -> Refusal {
        read(&record(headers), Some("orders")).expect_err(&format!("{headers:?}"))
    }

    #[test]
    fn a_record_says_when_where_and_under_which_id() {
        let bare = schedule(&[(DELAY, "30m")]);
        let expected = NewSchedule {
            destination: "orders".to_owned(),
            id: None,
            when: When::In(1_800_000),
            expire_at_ms: None,
            key: Some("k".into()),
            value: Some("v".into()),
            headers: Vec::new(),
        };
        assert_eq!(bare, expected);
        let full = schedule(&[(DELIVER_AT, AT), (DESTINATION, "bills"), (ID, "a b"), (EXPIRES_AT, "1801386060000")]);
        let expected = NewSchedule {
            destination: "bills".to_owned(),
            id: Some("a b".to_owned()),
            when: When::At(AT_MS),
            expire_at_ms: Some(AT_MS + 60_000),
            ..expected
        };
        assert_eq!(full, expected);
        assert_eq!(schedule(&[(DELIVER_AT, "1801386000000")]).when, When::At(AT_MS));
        assert_eq!(schedule(&[(DELIVER_AT, AT), (EXPIRES_AT, AT)]).expire_at_ms, Some(AT_MS));
    }

    #[test]
    fn key_value_and_other_headers_are_passed_on_as_they_are() {
        let headers = vec![
            header(b"a", Some(b"1")),
            header(b"nereus-delay", Some(b"1s")),
            header(b"a", None),
            header(b"", Some(b"")),
            header(b"x-nereus-delay", Some(b"\xff")),
            header(b"nereus", Some(b"2")),
            header(b"nereus_delay", Some(b"3")),
        ];
        let record = SourceRecord { key: None, value: None, headers, ..record(&[]) };
        let Ok(Request::Schedule(schedule)) = read(&record, Some("orders")) else { panic!("is taken") };
        let kept: Vec<(&str, Option<&[u8]>)> =
            schedule.headers.iter().map(|header| (header.name.as_str(), header.value.as_deref())).collect();
        let expected: [(&str, Option<&[u8]>); 6] = [
            ("a", Some(b"1")),
            ("a", None),
            ("", Some(b"")),
            ("x-nereus-delay", Some(b"\xff")),
            ("nereus", Some(b"2")),
            ("nereus_delay", Some(b"3")),
        ];
        assert_eq!(kept, expected);
        assert_eq!((schedule.key, schedule.value), (None, None));
    }

    #[test]
    fn what_delivery_added_is_taken_off_in_any_case_of_letters() {
        let headers = [
            ("nereus.delay.message_id", "ndm1_x"),
            ("a", "1"),
            ("Nereus.Delay.Attempt", "1"),
            ("nereus.delay.refusal_code", "INVALID_HEADER"),
            (DELAY, "1s"),
            ("nereus.delay.", ""),
        ];
        let kept: Vec<String> = schedule(&headers).headers.into_iter().map(|header| header.name).collect();
        assert_eq!(kept, ["a"]);
        // Alone they ask for nothing.
        assert_eq!(refusal(&headers[..1]).code, "INVALID_HEADER");
    }

    #[test]
    fn the_marker_of_nulls_is_left_for_preparation_to_refuse() {
        assert_eq!(schedule(&[(DELAY, "1s"), ("nereus.nulls", "x")]).headers[0].name, "nereus.nulls");
    }

    #[test]
    fn a_message_is_canceled_or_moved_by_its_id() {
        let change = |headers: &[(&str, &str)]| match read(&record(headers), None) {
            Ok(Request::Change(change)) => change,
            other => panic!("{headers:?}: {other:?}"),
        };
        let canceled = change(&[(CANCEL, "order-42"), ("a", "1")]);
        assert_eq!(canceled, Change { target: "order-42".to_owned(), kind: ChangeKind::Cancel });
        let moved = change(&[(RESCHEDULE, "order-42"), (DELAY, "1h")]);
        let kind = ChangeKind::Reschedule { when: When::In(3_600_000), expire_at_ms: None };
        assert_eq!(moved, Change { target: "order-42".to_owned(), kind });
        let moved = change(&[(RESCHEDULE, "ndm1_x"), (DELIVER_AT, AT), (EXPIRES_AT, "1801386060000")]);
        let kind = ChangeKind::Reschedule { when: When::At(AT_MS), expire_at_ms: Some(AT_MS + 60_000) };
        assert_eq!(moved, Change { target: "ndm1_x".to_owned(), kind });
    }

    /// Every combination of our headers: which of them is a record that asks for one thing, and which is somebody's mistake.
    #[test]
    fn every_combination_of_headers_has_one_meaning_or_none() {
        let values = [AT, "30m", "bills", "id", AT, "order-42", "order-42"];
        for chosen in 0..1_u32 << NAMES.len() {
            let is = |index: usize| chosen & (1 << index) != 0;
            let headers: Vec<(&str, &str)> =
                (0..NAMES.len()).filter(|index| is(*index)).map(|index| (NAMES[index], values[index])).collect();
            let [deliver_at, delay, destination, id, expires_at, cancel, reschedule] = std::array::from_fn(is);
            let expected = if cancel {
                (chosen.count_ones() == 1).then_some("cancel")
            } else if reschedule {
                (deliver_at != delay && !destination && !id).then_some("reschedule")
            } else {
                (deliver_at != delay).then_some("schedule")
            };
            let _ = expires_at;
            let found = match read(&record(&headers), Some("orders")) {
                Ok(Request::Schedule(_)) => Some("schedule"),
                Ok(Request::Change(Change { kind: ChangeKind::Cancel, .. })) => Some("cancel"),
                Ok(Request::Change(_)) => Some("reschedule"),
                Err(refusal) => {
                    assert_eq!(refusal.code, "INVALID_HEADER", "{headers:?}");
                    None
                }
            };
            assert_eq!(found, expected, "{headers:?}");
        }
    }

    #[test]
    fn every_refusal_says_what_is_wrong() {
        let cases: [(&[(&str, &str)], &str); 24] = [
            (&[], "has none of our headers: give nereus-deliver-at or nereus-delay"),
            (&[("a", "1")], "has none of our headers"),
            (&[(ID, "a")], "does not say when: give nereus-deliver-at or nereus-delay"),
            (&[(DELAY, "1s"), (DELIVER_AT, AT)], "exclude each other"),
            (&[("nereus-dealy", "1s")], "\"nereus-dealy\" is no header of ours; nereus-deliver-at, nereus-delay"),
            (&[("Nereus-Delay", "1s")], "\"Nereus-Delay\" is no header of ours"),
            (&[(DELAY, "1s"), ("NEREUS-x", "1s")], "\"NEREUS-x\" is no header of ours"),
            (&[(DELAY, "1s"), ("nereus-", "1s")], "\"nereus-\" is no header of ours"),
            (&[(DELAY, "1s"), ("nereus-delay ", "1s")], "\"nereus-delay \" is no header of ours"),
            (&[(DELAY, "1s"), (DELAY, "1s")], "nereus-delay is given twice"),
            (&[(DELAY, "")], "nereus-delay is empty"),
            (&[(DELAY, "30")], "nereus-delay: \"30\" has no unit"),
            (&[(DELAY, "-1s")], "nereus-delay: \"-1s\" is no delay"),
            (&[(DELAY, " 1s")], "nereus-delay: \" 1s\" is no delay"),
            (&[(DELIVER_AT, "tomorrow")], "nereus-deliver-at: \"tomorrow\" is no RFC 3339 time"),
            (&[(DELIVER_AT, "-1")], "nereus-deliver-at: \"-1\" is no RFC 3339 time"),
            (&[(DELIVER_AT, "1e3")], "epoch milliseconds, digits only"),
            (&[(DELIVER_AT, "9223372036854775808")], "is larger than 9223372036854775807"),
            (&[(DELAY, "1s"), (EXPIRES_AT, "1h")], "nereus-expires-at: \"1h\" is no RFC 3339 time"),
            (&[(CANCEL, "a"), (DELAY, "1s")], "nereus-delay has no meaning beside nereus-cancel"),
            (&[(CANCEL, "a"), (RESCHEDULE, "a")], "nereus-reschedule has no meaning beside nereus-cancel"),
            (&[(RESCHEDULE, "a")], "which message, not to when"),
            (&[(RESCHEDULE, "a"), (DELAY, "1s"), (ID, "a")], "nereus-id has no meaning beside nereus-reschedule"),
            (&[(CANCEL, "")], "nereus-cancel is empty"),
        ];
        for (headers, expected) in cases {
            let refusal = refusal(headers);
            assert_eq!(refusal.code, "INVALID_HEADER", "{headers:?}");
            assert!(refusal.detail.contains(expected), "{headers:?}: {}", refusal.detail);
        }
        let no_default = read(&record(&[(DELAY, "1s")]), None).expect_err("names no destination");
        assert!(no_default.detail.contains("nereus-destination is missing"), "{no_default:?}");
    }

    #[test]
    fn what_is_no_text_is_refused() {
        let with = |header: SourceHeader| {
            let mut record = record(&[(DELAY, "1s")]);
            record.headers.push(header);
            read(&record, Some("orders")).expect_err("no text")
        };
        let null = with(header(ID.as_bytes(), None));
        assert_eq!((null.code.as_str(), null.detail.as_str()), ("INVALID_HEADER", "nereus-id is null"));
        let value = with(header(ID.as_bytes(), Some(b"\xff")));
        assert_eq!((value.code.as_str(), value.detail.as_str()), ("INVALID_HEADER", "nereus-id is not UTF-8 text"));
        let ours = with(header(b"nereus-\xff", Some(b"1")));
        assert_eq!(ours.code, "INVALID_HEADER");
        let other = with(header(b"\xff", Some(b"1")));
        assert_eq!(other.code, "INVALID_METADATA");
        let long = with(header("nereus-".repeat(1_000).as_bytes(), Some(b"1")));
        assert!(long.detail.len() < 400, "{}", long.detail.len());
    }
}
