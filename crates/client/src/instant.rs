//! Points in time as people and JSON write them: RFC 3339 in, RFC 3339 UTC with milliseconds out.

use jiff::Timestamp;
use jiff::fmt::temporal::DateTimePrinter;

/// Why a text is no point in time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InstantError {
    /// Not RFC 3339, or without an offset: the host's zone has no influence here.
    #[error("{text:?} is no RFC 3339 time with an offset, such as \"2027-01-31T09:00:00Z\"")]
    Malformed {
        /// The text.
        text: String,
    },
    /// Before 1970.
    #[error("{text:?} is before 1970")]
    BeforeEpoch {
        /// The text.
        text: String,
    },
}

/// Reads an RFC 3339 time as milliseconds since the epoch. What is finer than a millisecond is rounded up, so that nothing
/// is early by it.
///
/// # Errors
/// [`InstantError`].
pub fn parse_instant_ms(text: &str) -> Result<i64, InstantError> {
    let malformed = || InstantError::Malformed { text: text.to_owned() };
    // Times without a "T" or with a zone name are ISO 8601, which is more than we promise to understand.
    if !text.is_ascii() || text.len() < 20 || !text.as_bytes()[10].eq_ignore_ascii_case(&b'T') || text.contains('[') {
        return Err(malformed());
    }
    let timestamp: Timestamp = text.parse().map_err(|_| malformed())?;
    let nanoseconds = timestamp.as_nanosecond();
    if nanoseconds < 0 {
        return Err(InstantError::BeforeEpoch { text: text.to_owned() });
    }
    i64::try_from(nanoseconds.div_euclid(1_000_000) + i128::from(nanoseconds.rem_euclid(1_000_000) != 0))
        .map_err(|_| malformed())
}

/// RFC 3339 UTC with milliseconds. Times beyond the year 9999 are shown as its last millisecond: their `_ms` twin is exact.
pub fn format_instant_ms(epoch_ms: i64) -> String {
    const PRINTER: DateTimePrinter = DateTimePrinter::new().precision(Some(3));
    // Whole milliseconds of the very last second are refused as such and taken as nanoseconds.
    let timestamp = Timestamp::from_nanosecond(i128::from(epoch_ms) * 1_000_000);
    PRINTER.timestamp_to_string(&timestamp.unwrap_or(Timestamp::MAX))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn offsets_are_understood_and_needed() {
        assert_eq!(parse_instant_ms("1970-01-01T00:00:00Z"), Ok(0));
        assert_eq!(parse_instant_ms("2026-11-30T15:00:00.250+01:00"), parse_instant_ms("2026-11-30T14:00:00.250Z"));
        assert_eq!(parse_instant_ms("2026-11-30T14:00:00.2501Z").expect("valid") % 1_000, 251);
        let refused = [
            "2026-11-30",
            "2026-11-30T14:00:00",
            "2026-11-30 14:00:00Z",
            "2026-13-30T14:00:00Z",
            "2026-11-30T14:00:00+01:00[Europe/Berlin]",
            "now",
            "1764511200000",
            "",
        ];
        for text in refused {
            assert_eq!(parse_instant_ms(text), Err(InstantError::Malformed { text: text.to_owned() }));
        }
        let before = "1969-12-31T23:59:59.999Z";
        assert_eq!(parse_instant_ms(before), Err(InstantError::BeforeEpoch { text: before.to_owned() }));
    }

    #[test]
    fn milliseconds_are_always_shown() {
        assert_eq!(format_instant_ms(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(format_instant_ms(1_764_511_200_007), "2025-11-30T14:00:00.007Z");
        assert_eq!(format_instant_ms(253_402_207_200_992), "9999-12-30T22:00:00.992Z");
        assert_eq!(format_instant_ms(i64::MAX), "9999-12-30T22:00:00.999Z");
    }

    proptest! {
        #[test]
        fn what_is_shown_reads_back(epoch_ms in 0..=253_000_000_000_000_i64) {
            prop_assert_eq!(parse_instant_ms(&format_instant_ms(epoch_ms)), Ok(epoch_ms));
        }
    }
}
