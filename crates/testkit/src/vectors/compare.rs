//! Holds what was computed against what a case expects.

use serde_json::Value;

use super::json::{Node, Problem};

/// One computed value.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Piece {
    /// Expected as hex, or by length and hash where it is large.
    Bytes(Vec<u8>),
    /// Expected as it is.
    Json(Value),
    /// Expected as null.
    Absent,
}

/// Computed values by the names that files use, without `_hex`.
#[derive(Debug, Clone, Default)]
pub(super) struct Computed {
    pieces: Vec<(String, Piece)>,
    /// What a reader should know about a case that passes.
    pub(super) notes: Vec<String>,
}

impl Computed {
    pub(super) fn bytes(&mut self, name: &str, value: impl AsRef<[u8]>) {
        self.pieces.push((name.to_owned(), Piece::Bytes(value.as_ref().to_vec())));
    }

    pub(super) fn json(&mut self, name: &str, value: impl Into<Value>) {
        self.pieces.push((name.to_owned(), Piece::Json(value.into())));
    }

    pub(super) fn absent(&mut self, name: &str) {
        self.pieces.push((name.to_owned(), Piece::Absent));
    }

    /// The bytes of `value` or null.
    pub(super) fn maybe_bytes(&mut self, name: &str, value: Option<impl AsRef<[u8]>>) {
        match value {
            Some(value) => self.bytes(name, value),
            None => self.absent(name),
        }
    }

    pub(super) fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    fn get(&self, name: &str) -> Option<&Piece> {
        self.pieces.iter().find(|(known, _)| known == name).map(|(_, piece)| piece)
    }

    /// As the `expected` object of a new case.
    pub(super) fn to_expected(&self) -> Value {
        let value = |piece: &Piece| match piece {
            Piece::Bytes(bytes) if bytes.len() > LARGE_BYTES => large(bytes),
            Piece::Bytes(bytes) => hex::encode(bytes).into(),
            Piece::Json(value) => value.clone(),
            Piece::Absent => Value::Null,
        };
        let key = |name: &str, piece: &Piece| match piece {
            Piece::Bytes(bytes) if bytes.len() > LARGE_BYTES => name.to_owned(),
            Piece::Json(_) => name.to_owned(),
            Piece::Bytes(_) | Piece::Absent => format!("{name}_hex"),
        };
        self.pieces.iter().map(|(name, piece)| (key(name, piece), value(piece))).collect()
    }

    /// Every difference from what a case expects, and what it expects that nobody computes.
    pub(super) fn differences(&self, expected: &Node<'_>) -> Result<(Vec<String>, Vec<String>), Problem> {
        let (mut failures, mut notes) = (Vec::new(), Vec::new());
        for (key, value) in expected.object()? {
            // What another implementation did with the case is told for information.
            if key.starts_with("reference_") {
                continue;
            }
            let name = key.strip_suffix("_hex").unwrap_or(key);
            let piece = self.get(name).or_else(|| self.get(key));
            match piece {
                None => notes.push(format!("expected.{key} is not known here and was not compared")),
                Some(piece) => {
                    if let Some(failure) = difference(key, piece, value) {
                        failures.push(failure);
                    }
                }
            }
        }
        Ok((failures, notes))
    }
}

/// Values above this are given by length and hash.
const LARGE_BYTES: usize = 2048;

fn large(bytes: &[u8]) -> Value {
    serde_json::json!({"length": bytes.len(), "sha256_hex": hex::encode(protocol::hash::sha256(bytes))})
}

fn difference(key: &str, piece: &Piece, expected: &Value) -> Option<String> {
    match (piece, expected) {
        (Piece::Absent, Value::Null) => None,
        (Piece::Bytes(bytes), Value::String(text)) => {
            let found = hex::encode(bytes);
            (found != *text).then(|| first_difference(key, text, &found))
        }
        (Piece::Bytes(bytes), Value::Object(object)) => {
            object.iter().find_map(|(part, value)| large_difference(key, part, bytes, value))
        }
        (Piece::Json(found), expected) if found == expected => None,
        (Piece::Json(Value::String(found)), Value::String(text)) => Some(first_difference(key, text, found)),
        (Piece::Json(found), expected) => Some(format!("{key}: expected {expected}, computed {found}")),
        (Piece::Bytes(bytes), expected) => Some(format!("{key}: expected {expected}, computed {}", hex::encode(bytes))),
        (Piece::Absent, expected) => Some(format!("{key}: expected {expected}, computed nothing")),
    }
}

/// A large value is given by some of its properties; each that is given must hold.
fn large_difference(key: &str, part: &str, bytes: &[u8], expected: &Value) -> Option<String> {
    let tail = bytes.len().saturating_sub(4);
    let found: Value = match part {
        "length" => bytes.len().into(),
        "sha256_hex" => hex::encode(protocol::hash::sha256(bytes)).into(),
        "header_hex" => hex::encode(&bytes[..bytes.len().min(12)]).into(),
        "crc32c_hex" => hex::encode(&bytes[tail..]).into(),
        "hex" => hex::encode(bytes).into(),
        _ => return Some(format!("{key}.{part} is not a property of large values that is known here")),
    };
    (found != *expected).then(|| format!("{key}.{part}: expected {expected}, computed {found}"))
}

fn first_difference(key: &str, expected: &str, found: &str) -> String {
    let at = expected.bytes().zip(found.bytes()).position(|(a, b)| a != b);
    let at = at.unwrap_or_else(|| expected.len().min(found.len()));
    let excerpt = |text: &str| text.chars().skip(at.saturating_sub(8)).take(40).collect::<String>();
    format!(
        "{key}: differs at character {at}: expected …{}… ({} characters), computed …{}… ({})",
        excerpt(expected),
        expected.len(),
        excerpt(found),
        found.len()
    )
}
