//! Text of the registry: valid UTF-8 in NFC without NUL (protocol registry §2.1).
//!
//! Only what people read or names they choose is text: header and property names, Pulsar property values, cluster ids and
//! topics of positions, display names. Keys, payloads, hashes and identities are bytes and are never normalised.

use std::fmt;
use std::ops::Deref;

use bytes::Bytes;
use unicode_normalization::is_nfc;

/// Why bytes are not text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TextError {
    /// Not UTF-8.
    #[error("is not valid UTF-8 from byte {at} on")]
    NotUtf8 {
        /// Length of the valid part.
        at: usize,
    },
    /// Holds a NUL character.
    #[error("holds a NUL at byte {at}")]
    Nul {
        /// Where it is.
        at: usize,
    },
    /// Not in Unicode normalization form C.
    #[error("is not in Unicode normalization form C")]
    NotNfc,
}

/// Checks bytes and gives them as text.
///
/// # Errors
/// [`TextError`] says which of the three rules is broken.
pub fn check(bytes: &[u8]) -> Result<&str, TextError> {
    let text = std::str::from_utf8(bytes).map_err(|error| TextError::NotUtf8 { at: error.valid_up_to() })?;
    if let Some(at) = bytes.iter().position(|byte| *byte == 0) {
        return Err(TextError::Nul { at });
    }
    if !text.is_ascii() && !is_nfc(text) {
        return Err(TextError::NotNfc);
    }
    Ok(text)
}

/// Checked text that is still a slice of the frame it came in.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Text(Bytes);

impl Text {
    /// Checks `bytes`.
    ///
    /// # Errors
    /// As [`check`].
    pub fn new(bytes: impl Into<Bytes>) -> Result<Self, TextError> {
        let bytes = bytes.into();
        check(&bytes)?;
        Ok(Self(bytes))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("checked when it was made")
    }

    /// Its bytes, shared.
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        self.0.clone()
    }

    /// Its bytes.
    #[must_use]
    pub fn into_bytes(self) -> Bytes {
        self.0
    }
}

impl Deref for Text {
    type Target = str;

    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl TryFrom<&str> for Text {
    type Error = TextError;

    fn try_from(text: &str) -> Result<Self, TextError> {
        Self::new(Bytes::copy_from_slice(text.as_bytes()))
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rule_is_refused_with_its_own_error() {
        assert_eq!(check(b"a\xc3("), Err(TextError::NotUtf8 { at: 1 }));
        assert_eq!(check(b"ab\0"), Err(TextError::Nul { at: 2 }));
        assert_eq!(check("e\u{301}".as_bytes()), Err(TextError::NotNfc));
        assert_eq!(check("é🚀".as_bytes()), Ok("é🚀"));
        assert_eq!(check(b""), Ok(""));
    }
}
