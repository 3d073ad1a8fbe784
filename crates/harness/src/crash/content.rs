//! What is in a message: a function of the seed and the message's number, so that every byte that arrives can be held against
//! it without being kept.

use bytes::Bytes;
use client::api::message::{Content as ApiContent, ContentSpec, HeaderContent, HeaderSpec};
use client::api::topic::Record;

use super::chance::{percent, stream};
use crate::kafka::Outgoing;

const EXTRA_HEADER: &str = "extra";

/// Key, value and headers of one message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Content {
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    headers: Vec<(&'static str, Option<Vec<u8>>)>,
}

impl Content {
    /// The caller's header that tells which message a record is of, whatever became of its value.
    pub(crate) const NUMBER_HEADER: &str = "number";

    pub(crate) fn of(seed: u64, number: u64) -> Content {
        let chance = &mut stream(seed, "content", number);
        let key = match chance.u32(..10) {
            0 => None,
            1 => Some(Vec::new()),
            _ => Some(format!("key-{}", chance.u32(..50)).into_bytes()),
        };
        let value = match chance.u32(..20) {
            0 => None,
            1 => Some(Vec::new()),
            2..5 => Some((0..chance.usize(1..300)).map(|_| chance.u8(..)).collect()),
            // Above 1 KiB the store keeps payloads apart.
            5 => Some(text(chance, 6_000)),
            _ => Some(text(chance, 300)),
        };
        let mut headers = vec![(Content::NUMBER_HEADER, Some(number.to_string().into_bytes()))];
        if percent(chance, 20) {
            let extra = percent(chance, 70).then(|| text(chance, 20));
            headers.extend([(EXTRA_HEADER, extra.clone()), (EXTRA_HEADER, extra)]);
        }
        Content { key, value, headers }
    }

    pub(crate) fn key_spec(&self) -> Option<ContentSpec> {
        self.key.as_deref().map(ContentSpec::new)
    }

    pub(crate) fn value_spec(&self) -> Option<ContentSpec> {
        self.value.as_deref().map(ContentSpec::new)
    }

    pub(crate) fn header_specs(&self) -> Vec<HeaderSpec> {
        let spec = |(name, value): &(&str, Option<Vec<u8>>)| HeaderSpec {
            name: (*name).to_owned(),
            value: value.as_deref().map(ContentSpec::new),
        };
        self.headers.iter().map(spec).collect()
    }

    /// As a plain producer writes it.
    pub(crate) fn outgoing(&self) -> Outgoing {
        let bytes = |part: &Option<Vec<u8>>| part.as_deref().map(Bytes::copy_from_slice);
        let header = |(name, value): &(&str, Option<Vec<u8>>)| ((*name).to_owned(), bytes(value));
        Outgoing {
            key: bytes(&self.key),
            value: bytes(&self.value),
            headers: self.headers.iter().map(header).collect(),
            ..Outgoing::default()
        }
    }

    /// What differs in a record, `None` when every byte is as it was sent.
    pub(crate) fn difference(&self, record: &Record) -> Option<String> {
        let bytes = |content: &Option<ApiContent>| content.as_ref().map(ApiContent::bytes);
        let whole = |expected: &Option<Vec<u8>>| expected.clone().map(Some);
        if bytes(&record.key) != whole(&self.key) {
            return Some(format!("its key is {:?}, not {:?}", record.key, self.key));
        }
        if bytes(&record.value) != whole(&self.value) {
            return Some("its value is another".to_owned());
        }
        let own: Vec<&HeaderContent> = record.headers.iter().take(self.headers.len()).collect();
        let same = own.len() == self.headers.len()
            && own
                .iter()
                .zip(&self.headers)
                .all(|(found, (name, value))| found.name == *name && bytes(&found.value) == whole(value));
        (!same).then(|| format!("its headers start {own:?}"))
    }
}

/// The number in a record's headers.
pub(crate) fn number_of(record: &Record) -> Option<u64> {
    header(record, Content::NUMBER_HEADER)?.parse().ok()
}

/// The text of a record's header.
pub(crate) fn header<'a>(record: &'a Record, name: &str) -> Option<&'a str> {
    let found = record.headers.iter().find(|header| header.name == name)?;
    match &found.value {
        Some(ApiContent::Text(text)) => Some(text),
        _ => None,
    }
}

fn text(chance: &mut fastrand::Rng, length_max: usize) -> Vec<u8> {
    (0..chance.usize(1..length_max)).map(|_| u8::try_from(chance.alphanumeric()).unwrap_or(b'x')).collect()
}
