//! What preparation refuses beyond what a decoder does, and apply refuses too (protocol registry §2.9).
//!
//! The V1 decoders refuse names beginning with `nereus.delay.` in exactly these letters. A name in other letters would still
//! be taken for one of ours by many consumers, so whoever prepares a command refuses it in any case of letters, and so does
//! apply. The decoder stays as it is: a frame of another implementation must decode to the same answer everywhere.

use super::intent::ScheduleIntent;
use super::metadata::{AdapterMetadata, RESERVED_NAME_PREFIX};
use crate::nulls::{self, NullMarkerError};

/// A name that a caller may not use.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MetadataError {
    /// A name that looks like one of ours.
    #[error("the name {name:?} begins with {RESERVED_NAME_PREFIX} in some case of letters, which is reserved")]
    ReservedName {
        /// The name.
        name: String,
    },
    /// A null marker that is not well-formed.
    #[error(transparent)]
    NullMarker(#[from] NullMarkerError),
}

/// Checks the names that the caller chose, and the null marker if there is one.
///
/// # Errors
/// [`MetadataError`] for the first name or marker at fault.
pub fn check_metadata(intent: &ScheduleIntent) -> Result<(), MetadataError> {
    if let Some(name) = intent.metadata.names().find(|name| is_reserved_name(name)) {
        return Err(MetadataError::ReservedName { name: name.to_owned() });
    }
    if let AdapterMetadata::Kafka(metadata) = &intent.metadata {
        // A payload that is still to be uploaded is not null.
        nulls::split(&metadata.headers, intent.payload_length().unwrap_or(u64::MAX))?;
    }
    Ok(())
}

/// Whether a name begins with `nereus.delay.` in any case of letters.
#[must_use]
pub fn is_reserved_name(name: &str) -> bool {
    name.as_bytes()
        .get(..RESERVED_NAME_PREFIX.len())
        .is_some_and(|prefix| prefix.eq_ignore_ascii_case(RESERVED_NAME_PREFIX.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_names_are_reserved_in_any_case() {
        assert!(is_reserved_name("nereus.delay.id"));
        assert!(is_reserved_name("Nereus.DELAY."));
        assert!(!is_reserved_name("nereus.delay"));
        assert!(!is_reserved_name("nereus.nulls"));
        assert!(!is_reserved_name("x-nereus.delay.id"));
    }
}
