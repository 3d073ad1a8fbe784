//! Records of an ingress's topic, by their headers, and times as people write them.

use bytes::Bytes;
use client::duration::{DisplayDelay, parse_delay_ms};
use client::instant::{format_instant_ms, parse_instant_ms};
use gateway::decode::{self, SourceRequest};
use ports::source::{SourceHeader, SourceRecord};

use crate::body::{NOW_MS, check_message};
use crate::input::Input;

/// The headers that mean something to an ingress, and some that nearly do.
const NAMES: [&str; 12] = [
    "nereus-deliver-at",
    "nereus-delay",
    "nereus-destination",
    "nereus-id",
    "nereus-expires-at",
    "nereus-cancel",
    "nereus-reschedule",
    "Nereus-Delay",
    "nereus.delay.id",
    "nereus.nulls",
    "trace",
    "",
];
/// The last instant that is shown as it is, in milliseconds since the epoch.
const SHOWN_MS_MAX: i64 = 253_402_207_200_999;

/// A record: a byte that says which of key, value, timestamp and default destination there are, then headers, each a byte for its
/// name and a value behind its length. A name beyond the known ones stands behind its own length.
pub fn header(input: &[u8]) {
    if let Ok(text) = std::str::from_utf8(input) {
        delay(text);
        instant(text);
    }
    let mut input = Input::new(input);
    let flags = input.byte();
    let given = |bit: u8, value: &'static [u8]| (flags & bit != 0).then(|| Bytes::from_static(value));
    let mut record = SourceRecord {
        offset: 7,
        timestamp_ms: (flags & 4 != 0).then_some(if flags & 8 != 0 { -1 } else { NOW_MS }),
        key: given(1, b"key"),
        value: given(2, b"value"),
        headers: Vec::new(),
    };
    while !input.is_empty() && record.headers.len() < 64 {
        let name = usize::from(input.byte() & 0x1f);
        let name = NAMES.get(name).map_or_else(|| input.part(), |name| name.as_bytes());
        let value = Bytes::copy_from_slice(input.part());
        let value = (value != b"null"[..]).then_some(value);
        record.headers.push(SourceHeader { name: Bytes::copy_from_slice(name), value });
    }
    let default = (flags & 16 != 0).then_some("orders");
    match decode::source_record(&record, default, NOW_MS) {
        Ok(SourceRequest::Schedule { destination, message }) => {
            assert!(!destination.is_empty());
            let ours = |name: &str| name.to_ascii_lowercase().starts_with("nereus-");
            assert!(!message.headers.iter().any(|header| ours(&header.name)), "a header of ours is passed on");
            assert_eq!((&message.key, &message.value), (&record.key, &record.value));
            check_message(message);
        }
        Ok(SourceRequest::Cancel { target }) => assert!(!target.is_empty()),
        Ok(SourceRequest::Reschedule { target, deliver_at_ms, expire_at_ms }) => {
            assert!(!target.is_empty());
            assert!(deliver_at_ms >= 0 && expire_at_ms.is_none_or(|expire_at_ms| expire_at_ms >= 0));
        }
        Err((code, detail)) => {
            assert!(["INVALID_HEADER", "INVALID_METADATA"].contains(&code.as_str()), "{code}: {detail}");
            // It may quote a header's value; what leaves the server is cut.
            let bytes: usize = record.headers.iter().map(|header| header.value.as_ref().map_or(0, Bytes::len)).sum();
            assert!(detail.len() <= 1_024 + 8 * bytes, "a refusal of {} bytes", detail.len());
        }
    }
}

fn delay(text: &str) {
    match parse_delay_ms(text) {
        Ok(delay_ms) => {
            assert!(delay_ms >= 0);
            assert_eq!(parse_delay_ms(&DisplayDelay(delay_ms).to_string()), Ok(delay_ms));
        }
        Err(error) => assert!(error.to_string().len() <= 1_024 + 8 * text.len()),
    }
}

fn instant(text: &str) {
    match parse_instant_ms(text) {
        Ok(epoch_ms) => {
            assert!(epoch_ms >= 0);
            let shown = format_instant_ms(epoch_ms);
            assert!(epoch_ms > SHOWN_MS_MAX || parse_instant_ms(&shown) == Ok(epoch_ms), "{text} is shown as {shown}");
        }
        Err(error) => assert!(error.to_string().len() <= 1_024 + 8 * text.len()),
    }
}
