//! The shape rules of body version 1 as a table: what each field must look like beyond its type.
//!
//! A table reads beside the registry's own (protocol registry §2.9 and §2.11). Rules between fields stand in functions named by
//! `and`.

use bytes::Bytes;

use crate::field::{self, Fault, FieldError, Within};

/// A message whose fields have rules.
pub(super) trait Shape {
    /// Checks this message and those within it.
    fn check(&self) -> Result<(), FieldError>;
}

/// Writes [`Shape`] for messages of [`crate::v1`]: each field with the name of a function of [`rule`].
macro_rules! shapes {
    ($(
        $message:ident $(and $function:ident)? {
            $($field:ident: $rule:ident $(<$known:ty>)? $(($argument:expr))?,)*
        }
    )*) => {$(
        impl $crate::mutation_v1::shape::Shape for $crate::v1::$message {
            fn check(&self) -> Result<(), $crate::field::FieldError> {
                $($crate::mutation_v1::shape::rule::$rule$(::<$known>)?(
                    stringify!($field),
                    &self.$field
                    $(, $argument)?
                )?;)*
                $($function(self)?;)?
                Ok(())
            }
        }
    )*};
}
pub(super) use shapes;

/// The rules. Each takes the field's name and the field.
pub(super) mod rule {
    use super::*;
    use crate::code::StableCode;
    use crate::id::MessageId;
    use crate::text;

    /// Exactly so many bytes.
    pub(in super::super) fn bytes(name: &'static str, value: &Bytes, length: usize) -> Result<(), FieldError> {
        if value.len() == length {
            return Ok(());
        }
        Err(FieldError::new(name, Fault::Length { expected: length, found: value.len() }))
    }

    /// Absent, or exactly so many bytes.
    pub(in super::super) fn maybe_bytes(
        name: &'static str,
        value: &Option<Bytes>,
        length: usize,
    ) -> Result<(), FieldError> {
        value.as_ref().map_or(Ok(()), |value| bytes(name, value, length))
    }

    /// At least one byte.
    pub(in super::super) fn not_empty(name: &'static str, value: &Bytes) -> Result<(), FieldError> {
        field::not_empty(name, value)
    }

    /// UTF-8, NFC, no NUL.
    pub(in super::super) fn text(name: &'static str, value: &Bytes) -> Result<(), FieldError> {
        text::check(value).map_err(|error| FieldError::new(name, error))?;
        Ok(())
    }

    /// The 41 bytes of a message id.
    pub(in super::super) fn message_id(name: &'static str, value: &Bytes) -> Result<(), FieldError> {
        MessageId::from_bytes(value).map_err(|error| FieldError::new(name, error))?;
        Ok(())
    }

    /// A time since the epoch.
    pub(in super::super) fn time(name: &'static str, value: &i64) -> Result<(), FieldError> {
        field::not_negative(name, *value)?;
        Ok(())
    }

    /// Absent, or a time since the epoch.
    pub(in super::super) fn maybe_time(name: &'static str, value: &Option<i64>) -> Result<(), FieldError> {
        value.as_ref().map_or(Ok(()), |value| time(name, value))
    }

    /// One of a closed set.
    pub(in super::super) fn one_of<T: TryFrom<i32>>(name: &'static str, value: &i32) -> Result<(), FieldError> {
        field::known::<T>(name, *value)?;
        Ok(())
    }

    /// A stable code.
    pub(in super::super) fn code(name: &'static str, value: &u32) -> Result<(), FieldError> {
        match StableCode::from_u32(*value) {
            Some(_) => Ok(()),
            None => Err(FieldError::new(name, Fault::UnknownValue { found: (*value).into() })),
        }
    }

    /// One fixed value.
    pub(in super::super) fn fixed(name: &'static str, value: &u32, expected: u64) -> Result<(), FieldError> {
        field::fixed(name, *value, expected)
    }

    /// From 1.
    pub(in super::super) fn not_zero<T: Copy + Into<u64>>(name: &'static str, value: &T) -> Result<(), FieldError> {
        field::not_zero(name, *value)
    }

    /// A message that has rules of its own.
    pub(in super::super) fn message(name: &'static str, value: &impl Shape) -> Result<(), FieldError> {
        value.check().within(name)
    }

    /// Absent, or a message that has rules of its own.
    pub(in super::super) fn maybe_message(name: &'static str, value: &Option<impl Shape>) -> Result<(), FieldError> {
        value.as_ref().map_or(Ok(()), |value| message(name, value))
    }

    /// Messages that have rules of their own.
    pub(in super::super) fn messages(name: &'static str, values: &[impl Shape]) -> Result<(), FieldError> {
        values.iter().try_for_each(|value| message(name, value))
    }
}
