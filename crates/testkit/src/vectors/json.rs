//! JSON values that know where they stand in their file, so that a complaint names the place.

use bytes::Bytes;
use serde_json::{Map, Value};

/// Something about a case that stops its check.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Problem {
    /// The file lacks a value, so what depends on it cannot be computed.
    #[error("{path} is not there")]
    Missing { path: String },
    /// The file has another kind of value.
    #[error("{path} is no {expected}: {found}")]
    Wrong { path: String, expected: &'static str, found: String },
    /// The implementation does not take what the file says, or does not give back what it was given.
    #[error("{0}")]
    Refused(String),
}

impl Problem {
    /// A refusal of the implementation, with what it refused.
    pub(super) fn refused(what: &str, error: impl std::fmt::Display) -> Self {
        Self::Refused(format!("{what}: {error}"))
    }
}

/// One value of a file.
#[derive(Clone)]
pub(super) struct Node<'a> {
    value: &'a Value,
    path: String,
}

impl<'a> Node<'a> {
    pub(super) fn new(value: &'a Value, path: impl Into<String>) -> Self {
        Self { value, path: path.into() }
    }

    fn missing(&self, key: &str) -> Problem {
        Problem::Missing { path: format!("{}.{key}", self.path) }
    }

    fn wrong(&self, expected: &'static str) -> Problem {
        let mut found = self.value.to_string();
        if found.len() > 60 {
            found = found.chars().take(60).collect::<String>() + "…";
        }
        Problem::Wrong { path: self.path.clone(), expected, found }
    }

    /// The member `key`, which must be there and not null.
    pub(super) fn get(&self, key: &str) -> Result<Self, Problem> {
        self.maybe(key).ok_or_else(|| self.missing(key))
    }

    /// The member `key`, or `None` where it is absent or null: both mean an absent field. A large value is not hex, so its name
    /// may lack the `_hex`.
    pub(super) fn maybe(&self, key: &str) -> Option<Self> {
        let large = || {
            let key = key.strip_suffix("_hex")?;
            Some((key, self.value.get(key).filter(|value| value.is_object())?))
        };
        match self.value.get(key).map(|value| (key, value)).or_else(large) {
            None | Some((_, Value::Null)) => None,
            Some((key, value)) => Some(Self::new(value, format!("{}.{key}", self.path))),
        }
    }

    /// Whether the member is there at all, null or not.
    pub(super) fn has(&self, key: &str) -> bool {
        self.value.get(key).is_some()
    }

    pub(super) fn object(&self) -> Result<&'a Map<String, Value>, Problem> {
        self.value.as_object().ok_or_else(|| self.wrong("object"))
    }

    pub(super) fn items(&self) -> Result<Vec<Self>, Problem> {
        let items = self.value.as_array().ok_or_else(|| self.wrong("array"))?;
        Ok(items.iter().enumerate().map(|(i, value)| Self::new(value, format!("{}[{i}]", self.path))).collect())
    }

    pub(super) fn text(&self) -> Result<&'a str, Problem> {
        self.value.as_str().ok_or_else(|| self.wrong("text"))
    }

    pub(super) fn boolean(&self) -> Result<bool, Problem> {
        self.value.as_bool().ok_or_else(|| self.wrong("boolean"))
    }

    /// Lower-case hex, or `N*xx` for N bytes of one value as the registry prints them.
    pub(super) fn bytes(&self) -> Result<Bytes, Problem> {
        if self.value.is_object() {
            return self.repeated();
        }
        let text = self.text()?;
        let bytes = match text.split_once('*') {
            Some((count, unit)) => match (count.parse::<usize>(), hex::decode(unit)) {
                (Ok(count), Ok(unit)) if count <= 1 << 30 => Some(unit.repeat(count)),
                _ => None,
            },
            None if text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) => hex::decode(text).ok(),
            None => None,
        };
        bytes.map(Bytes::from).ok_or_else(|| self.wrong("lower-case hex"))
    }

    /// `{hex}` or `{repeat_hex, count}`.
    fn repeated(&self) -> Result<Bytes, Problem> {
        if let Some(hex) = self.maybe("hex") {
            return hex.bytes();
        }
        let (unit, count) = (self.get("repeat_hex")?.bytes()?, self.get("count")?.number::<usize>()?);
        match unit.len().checked_mul(count) {
            Some(length) if length <= 1 << 30 => Ok(unit.repeat(count).into()),
            _ => Err(self.wrong("value below 1 GiB")),
        }
    }

    pub(super) fn array<const N: usize>(&self) -> Result<[u8; N], Problem> {
        self.bytes()?.as_ref().try_into().map_err(|_| self.wrong("value of the right length"))
    }

    /// An exact integer of the type asked for; never through floating point.
    pub(super) fn number<T: TryFrom<i128>>(&self) -> Result<T, Problem> {
        let number = self.value.as_u64().map(i128::from).or_else(|| self.value.as_i64().map(i128::from));
        number.and_then(|number| T::try_from(number).ok()).ok_or_else(|| self.wrong("integer of this field's type"))
    }

    /// The number of a closed value given as `key_wire`, or by its name in `key`.
    pub(super) fn wire<T: TryFrom<i128>>(&self, key: &str, names: &[(&str, i128)]) -> Result<T, Problem> {
        if let Some(wire) = self.maybe(&format!("{key}_wire")) {
            return wire.number();
        }
        let node = self.get(key)?;
        if node.value.is_number() {
            return node.number();
        }
        let name = node.text()?;
        let number = names.iter().find(|(known, _)| *known == name).map(|(_, number)| *number);
        number.and_then(|number| T::try_from(number).ok()).ok_or_else(|| node.wrong("known name"))
    }
}
