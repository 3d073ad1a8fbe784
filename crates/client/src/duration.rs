//! Delays as people write them: "90s", "1h30m", "7d", "10y".
//!
//! A number without a unit is refused: whoever writes 30 has minutes in mind as often as milliseconds, and a delay that is
//! silently a thousand times too short or too long is found in production.

use std::fmt;

const SECOND_MS: u64 = 1_000;
const MINUTE_MS: u64 = 60 * SECOND_MS;
const HOUR_MS: u64 = 60 * MINUTE_MS;
const DAY_MS: u64 = 24 * HOUR_MS;
const WEEK_MS: u64 = 7 * DAY_MS;
/// A year here is 365 days: a calendar has no say in a delay.
const YEAR_MS: u64 = 365 * DAY_MS;

/// Units from the largest; each may appear once, in this order.
const UNITS: [(&str, u64); 7] =
    [("y", YEAR_MS), ("w", WEEK_MS), ("d", DAY_MS), ("h", HOUR_MS), ("m", MINUTE_MS), ("s", SECOND_MS), ("ms", 1)];

/// The longest delay there is a number for.
pub const DELAY_MS_MAX: i64 = i64::MAX;

/// Why a text is no delay.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DelayError {
    /// Nothing there.
    #[error("a delay is a number and a unit, such as \"90s\" or \"1h30m\"")]
    Empty,
    /// A number alone.
    #[error("{text:?} has no unit: write {text}s, {text}m or {text}ms, for example")]
    NoUnit {
        /// The text.
        text: String,
    },
    /// A unit that does not exist.
    #[error("{unit:?} is no unit: ms, s, m, h, d, w and y are")]
    UnknownUnit {
        /// The unit.
        unit: String,
    },
    /// Units that do not come from the largest to the smallest, each once.
    #[error("{unit:?} does not follow {previous:?}: units come from the largest to the smallest, each once")]
    UnitOrder {
        /// The unit.
        unit: String,
        /// The one before.
        previous: String,
    },
    /// A character that is part of no number and no unit.
    #[error("{text:?} is no delay: unexpected {found:?}; whole numbers with units are, such as \"1h30m\"")]
    Unexpected {
        /// The text.
        text: String,
        /// The character.
        found: char,
    },
    /// More milliseconds than there is a number for.
    #[error("{text:?} is longer than {DELAY_MS_MAX} ms")]
    TooLong {
        /// The text.
        text: String,
    },
}

/// Reads a delay in milliseconds.
///
/// # Errors
/// [`DelayError`] says what is wrong and how it should be written.
pub fn parse_delay_ms(text: &str) -> Result<i64, DelayError> {
    let too_long = || DelayError::TooLong { text: text.to_owned() };
    if text.is_empty() {
        return Err(DelayError::Empty);
    }
    let mut total_ms = 0_u64;
    let mut previous: Option<usize> = None;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.len() - rest.trim_start_matches(|character: char| character.is_ascii_digit()).len();
        if digits == 0 {
            let found = rest.chars().next().unwrap_or_default();
            return Err(DelayError::Unexpected { text: text.to_owned(), found });
        }
        let (number, after) = rest.split_at(digits);
        let letters = after.len() - after.trim_start_matches(|character: char| character.is_ascii_alphabetic()).len();
        let (unit, after) = after.split_at(letters);
        if unit.is_empty() {
            return Err(match after.chars().next() {
                None => DelayError::NoUnit { text: text.to_owned() },
                Some(found) => DelayError::Unexpected { text: text.to_owned(), found },
            });
        }
        let index = UNITS
            .iter()
            .position(|(name, _)| *name == unit)
            .ok_or_else(|| DelayError::UnknownUnit { unit: unit.to_owned() })?;
        if let Some(previous) = previous.filter(|previous| *previous >= index) {
            return Err(DelayError::UnitOrder { unit: unit.to_owned(), previous: UNITS[previous].0.to_owned() });
        }
        previous = Some(index);
        let number: u64 = number.parse().map_err(|_| too_long())?;
        let part_ms = number.checked_mul(UNITS[index].1).ok_or_else(too_long)?;
        total_ms = total_ms.checked_add(part_ms).ok_or_else(too_long)?;
        rest = after;
    }
    i64::try_from(total_ms).map_err(|_| too_long())
}

/// Milliseconds as a person would write them, exactly: the inverse of [`parse_delay_ms`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DisplayDelay(pub i64);

impl fmt::Display for DisplayDelay {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 < 0 {
            formatter.write_str("-")?;
        }
        let mut rest_ms = self.0.unsigned_abs();
        if rest_ms == 0 {
            return formatter.write_str("0s");
        }
        for (unit, unit_ms) in UNITS {
            // Weeks read worse than days.
            if unit != "w" && rest_ms >= unit_ms {
                write!(formatter, "{}{unit}", rest_ms / unit_ms)?;
                rest_ms %= unit_ms;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn people_write_delays_like_this() {
        let cases = [
            ("90s", 90_000),
            ("1h30m", 5_400_000),
            ("7d", 604_800_000),
            ("500ms", 500),
            ("1m500ms", 60_500),
            ("10y", 315_360_000_000),
            ("2w", 1_209_600_000),
            ("0s", 0),
            ("9223372036854775807ms", i64::MAX),
        ];
        for (text, expected_ms) in cases {
            assert_eq!(parse_delay_ms(text), Ok(expected_ms), "{text}");
        }
    }

    #[test]
    fn what_is_no_delay_says_why() {
        let cases = [
            ("", "a delay is a number and a unit"),
            ("30", "has no unit: write 30s, 30m or 30ms"),
            ("1.5h", "unexpected '.'"),
            ("-5s", "unexpected '-'"),
            ("1h 30m", "unexpected ' '"),
            ("5 s", "unexpected ' '"),
            ("5minutes", "\"minutes\" is no unit"),
            ("5S", "\"S\" is no unit"),
            ("30m1h", "\"h\" does not follow \"m\""),
            ("1h1h", "\"h\" does not follow \"h\""),
            ("1h30", "has no unit"),
            ("NaN", "unexpected 'N'"),
            ("9223372036854775808ms", "longer than 9223372036854775807 ms"),
            ("99999999999999999999s", "longer than"),
            ("1000000000y", "longer than"),
            ("١h", "unexpected"),
        ];
        for (text, expected) in cases {
            let error = parse_delay_ms(text).expect_err(text).to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn what_is_shown_reads_back(delay_ms in 0..=i64::MAX) {
            prop_assert_eq!(parse_delay_ms(&DisplayDelay(delay_ms).to_string()), Ok(delay_ms));
        }

        #[test]
        fn no_text_panics(text: String) {
            let _ = parse_delay_ms(&text);
        }
    }
}
