//! What is wrong with one field of an otherwise canonical value.
//!
//! Canonical form says that bytes and values are the same thing; it does not say that a value is legal. The rules that a type
//! system of a wire format cannot express (exact lengths, closed enums, sorted sets, text) end in a [`FieldError`] that names
//! the field by its path.

use std::fmt;

use crate::canonical::DecodeError;
use crate::id::IdError;
use crate::text::TextError;

/// A field that breaks a rule of the registry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldError {
    /// Innermost name first: a path is put together while the error travels outwards.
    path: Vec<&'static str>,
    fault: Fault,
}

/// The rule that a field breaks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// A byte string of the wrong length.
    #[error("has {found} bytes, not {expected}")]
    Length {
        /// What the registry asks for.
        expected: usize,
        /// What is there.
        found: usize,
    },
    /// A value that may not be empty.
    #[error("is empty")]
    Empty,
    /// A number that is none of a closed set.
    #[error("is {found}, which is none of its known values")]
    UnknownValue {
        /// What is there.
        found: i64,
    },
    /// A number that must have one fixed value.
    #[error("is {found}, not {expected}")]
    Fixed {
        /// The only legal value.
        expected: u64,
        /// What is there.
        found: u64,
    },
    /// A zero where zero is no value.
    #[error("is zero")]
    Zero,
    /// A time before the Unix epoch, or a negative duration.
    #[error("is {found}, below zero")]
    Negative {
        /// What is there.
        found: i64,
    },
    /// A number outside its bounds.
    #[error("is {found}, not within {least} to {most}")]
    OutOfRange {
        /// What is there.
        found: u64,
        /// The least legal value.
        least: u64,
        /// The greatest legal value.
        most: u64,
    },
    /// A value that must equal another one of the same record and does not.
    #[error("differs from {other}")]
    Differs {
        /// The other field.
        other: &'static str,
    },
    /// A hash or an identity that does not follow from what it covers.
    #[error("is not the value that follows from the fields it covers")]
    Mismatch,
    /// A required value that is not there.
    #[error("is missing")]
    Missing,
    /// A value that may not be there beside the others.
    #[error("must not be present here")]
    Unexpected,
    /// A value that contradicts another field.
    #[error("does not go with {with}")]
    Conflict {
        /// The other field.
        with: &'static str,
    },
    /// A set that is not strictly ascending.
    #[error("is not above its predecessor at index {index}")]
    NotAscending {
        /// Index of the first entry that is not.
        index: usize,
    },
    /// A caller's name that begins with the prefix kept for us.
    #[error("begins with the reserved prefix nereus.delay.")]
    ReservedName,
    /// Text that is not text.
    #[error(transparent)]
    Text(#[from] TextError),
    /// An identity that is none.
    #[error("is no identity: {0}")]
    Id(#[from] IdError),
    /// A public key that no signature can be verified with.
    #[error("is no usable Ed25519 public key")]
    NoKey,
    /// A value in bytes that does not decode.
    #[error("does not decode: {0}")]
    Nested(Box<DecodeError>),
}

impl FieldError {
    /// `field` breaks the rule `fault`.
    #[must_use]
    pub fn new(field: &'static str, fault: impl Into<Fault>) -> Self {
        Self { path: vec![field], fault: fault.into() }
    }

    /// The same error seen from the message that holds this one in `field`.
    #[must_use]
    pub fn within(mut self, field: &'static str) -> Self {
        self.path.push(field);
        self
    }

    /// The broken rule.
    #[must_use]
    pub fn fault(&self) -> &Fault {
        &self.fault
    }

    /// The field's path, outermost name first, for example `intent.profile.version`.
    #[must_use]
    pub fn path(&self) -> String {
        self.path.iter().rev().copied().collect::<Vec<_>>().join(".")
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.path(), self.fault)
    }
}

impl std::error::Error for FieldError {}

/// Adds the outer field's name to an error on its way out.
pub(crate) trait Within<T> {
    fn within(self, field: &'static str) -> Result<T, FieldError>;
}

impl<T> Within<T> for Result<T, FieldError> {
    fn within(self, field: &'static str) -> Result<T, FieldError> {
        self.map_err(|error| error.within(field))
    }
}

/// A byte string of exactly `N` bytes.
pub(crate) fn array<const N: usize>(field: &'static str, value: &[u8]) -> Result<[u8; N], FieldError> {
    value.try_into().map_err(|_| FieldError::new(field, Fault::Length { expected: N, found: value.len() }))
}

/// A byte string of at least one byte.
pub(crate) fn not_empty(field: &'static str, value: &[u8]) -> Result<(), FieldError> {
    if value.is_empty() { Err(FieldError::new(field, Fault::Empty)) } else { Ok(()) }
}

/// A number that may not be zero.
pub(crate) fn not_zero(field: &'static str, value: impl Into<u64>) -> Result<(), FieldError> {
    if value.into() == 0 { Err(FieldError::new(field, Fault::Zero)) } else { Ok(()) }
}

/// A time in milliseconds since the Unix epoch, or a duration in milliseconds.
pub(crate) fn not_negative(field: &'static str, value: i64) -> Result<i64, FieldError> {
    if value < 0 { Err(FieldError::new(field, Fault::Negative { found: value })) } else { Ok(value) }
}

/// A number with one legal value.
pub(crate) fn fixed(field: &'static str, value: impl Into<u64>, expected: u64) -> Result<(), FieldError> {
    let found = value.into();
    if found == expected { Ok(()) } else { Err(FieldError::new(field, Fault::Fixed { expected, found })) }
}

/// A value of a closed set, from its wire number.
pub(crate) fn known<T: TryFrom<i32>>(field: &'static str, value: i32) -> Result<T, FieldError> {
    T::try_from(value).map_err(|_| FieldError::new(field, Fault::UnknownValue { found: value.into() }))
}

/// A value that must be there.
pub(crate) fn required<T>(field: &'static str, value: Option<T>) -> Result<T, FieldError> {
    value.ok_or_else(|| FieldError::new(field, Fault::Missing))
}

/// A value that must equal `other`, its copy elsewhere in the record.
pub(crate) fn same<T: PartialEq + ?Sized>(
    field: &'static str,
    value: &T,
    other: &'static str,
    copy: &T,
) -> Result<(), FieldError> {
    if value == copy { Ok(()) } else { Err(FieldError::new(field, Fault::Differs { other })) }
}

/// A hash or identity that must follow from what it covers.
pub(crate) fn derived(field: &'static str, value: &[u8], computed: &[u8]) -> Result<(), FieldError> {
    if value == computed { Ok(()) } else { Err(FieldError::new(field, Fault::Mismatch)) }
}

/// A set whose entries strictly ascend by `key`.
pub(crate) fn ascending<T, K: Ord>(field: &'static str, values: &[T], key: impl Fn(&T) -> K) -> Result<(), FieldError> {
    match values.windows(2).position(|pair| key(&pair[0]) >= key(&pair[1])) {
        Some(before) => Err(FieldError::new(field, Fault::NotAscending { index: before + 1 })),
        None => Ok(()),
    }
}
