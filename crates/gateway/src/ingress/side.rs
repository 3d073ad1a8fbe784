//! What is written beside a source topic: refused records, whole, and receipts.

use bytes::Bytes;
use client::api::ingress::IngressReceipt;
use ports::source::{SideRecord, SourceHeader, SourceRecord};

use super::record::Refusal;

/// Names of the headers a refused record gets, in the order they are added. A record that is written to its topic again keeps
/// none of them.
const REFUSAL_HEADERS: [&str; 5] = [
    "nereus.delay.refusal_code",
    "nereus.delay.refusal_detail",
    "nereus.delay.source_topic",
    "nereus.delay.source_partition",
    "nereus.delay.source_offset",
];
/// The longest detail a refused record carries.
const DETAIL_BYTES_MAX: usize = 1_024;

/// What a taken record came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Taken {
    /// The code's name.
    pub(super) code: &'static str,
    pub(super) message_id: Option<String>,
    pub(super) id: Option<String>,
    pub(super) destination: Option<String>,
    pub(super) deliver_at_ms: Option<i64>,
    pub(super) expires_at_ms: Option<i64>,
}

/// What a record came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Taken(Taken),
    Refused(Refusal),
}

/// A refused record: what it was, and why it was not taken.
pub(super) fn refused(topic: &str, partition: u32, record: &SourceRecord, refusal: &Refusal) -> SideRecord {
    let is_of_an_earlier_refusal =
        |header: &&SourceHeader| REFUSAL_HEADERS.iter().any(|name| header.name == name.as_bytes());
    let mut headers: Vec<SourceHeader> =
        record.headers.iter().filter(|header| !is_of_an_earlier_refusal(header)).cloned().collect();
    let values = [
        refusal.code.clone(),
        cut(&refusal.detail).to_owned(),
        topic.to_owned(),
        partition.to_string(),
        record.offset.to_string(),
    ];
    headers.extend(
        REFUSAL_HEADERS
            .into_iter()
            .zip(values)
            .map(|(name, value)| SourceHeader { name: Bytes::from_static(name.as_bytes()), value: Some(value.into()) }),
    );
    SideRecord { key: record.key.clone(), value: record.value.clone(), headers, timestamp_ms: record.timestamp_ms }
}

/// A record's receipt.
pub(super) fn receipt(topic: &str, partition: u32, record: &SourceRecord, outcome: &Outcome) -> SideRecord {
    let taken = match outcome {
        Outcome::Taken(taken) => Some(taken),
        Outcome::Refused(_) => None,
    };
    let receipt = IngressReceipt {
        code: match outcome {
            Outcome::Taken(taken) => taken.code.to_owned(),
            Outcome::Refused(refusal) => refusal.code.clone(),
        },
        message_id: taken.and_then(|taken| taken.message_id.clone()),
        id: taken.and_then(|taken| taken.id.clone()),
        destination: taken.and_then(|taken| taken.destination.clone()),
        deliver_at_ms: taken.and_then(|taken| taken.deliver_at_ms),
        expires_at_ms: taken.and_then(|taken| taken.expires_at_ms),
        source_topic: topic.to_owned(),
        source_partition: partition,
        source_offset: record.offset,
    };
    // A plain struct of strings and numbers serialises.
    let value = serde_json::to_vec(&receipt).unwrap_or_default();
    SideRecord { key: record.key.clone(), value: Some(value.into()), headers: Vec::new(), timestamp_ms: None }
}

fn cut(text: &str) -> &str {
    let end = (0..=DETAIL_BYTES_MAX.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or(0)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> SourceRecord {
        let header = |name: &'static str, value: Option<&'static str>| SourceHeader {
            name: name.into(),
            value: value.map(Into::into),
        };
        SourceRecord {
            offset: 42,
            timestamp_ms: Some(5),
            key: None,
            value: Some("".into()),
            headers: vec![header("a", None), header("nereus-dealy", Some("1s")), header("nereus.delay.id", Some("x"))],
        }
    }

    #[test]
    fn a_refused_record_is_whole_and_says_why_once() {
        let refusal = Refusal { code: "INVALID_HEADER".to_owned(), detail: "ä".repeat(1_000) };
        let first = refused("orders", 3, &record(), &refusal);
        assert_eq!((first.key.clone(), first.value.clone(), first.timestamp_ms), (None, Some("".into()), Some(5)));
        assert_eq!(first.headers[..3], record().headers);
        let added: Vec<(&[u8], &[u8])> = first.headers[3..]
            .iter()
            .map(|header| (&header.name[..], header.value.as_deref().expect("not null")))
            .collect();
        assert_eq!(added.len(), 5);
        assert_eq!(added[0], (&b"nereus.delay.refusal_code"[..], &b"INVALID_HEADER"[..]));
        assert_eq!(added[1].1, "ä".repeat(512).as_bytes());
        assert_eq!(added[2].1, b"orders");
        assert_eq!((added[3].1, added[4].1), (&b"3"[..], &b"42"[..]));
        // Written to its topic again as it is, and refused again: no header is there twice.
        let again = SourceRecord { headers: first.headers.clone(), ..record() };
        assert_eq!(refused("orders", 3, &again, &refusal), first);
    }

    #[test]
    fn a_receipt_says_what_became_of_which_record() {
        let outcome = Outcome::Refused(Refusal { code: "INVALID_HEADER".to_owned(), detail: "x".to_owned() });
        let value = receipt("orders", 3, &record(), &outcome).value.expect("a value");
        let text = std::str::from_utf8(&value).expect("text");
        let expected = r#"{"code":"INVALID_HEADER","message_id":null,"id":null,"destination":null,"deliver_at_ms":null,"expires_at_ms":null,"source_topic":"orders","source_partition":3,"source_offset":42}"#;
        assert_eq!(text, expected);
    }
}
