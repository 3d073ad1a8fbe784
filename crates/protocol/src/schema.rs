//! Which bytes are the canonical encoding of a message, checked in one pass over them.
//!
//! Canonical form is defined by encoding: bytes are canonical when decoding and encoding them again gives the same bytes.
//! Every record of the log is checked, so the definition is not computed: a message's schema says which fields may stand where,
//! and what their shortest encodings are. The tests hold the two against each other. A fault has its exact place, also within
//! nested messages.

use crate::canonical::{CanonicalError, CanonicalFault};

/// A message as the canonical form sees it: its fields, ascending by number.
pub struct Schema {
    pub(crate) name: &'static str,
    pub(crate) fields: &'static [Field],
}

pub(crate) struct Field {
    /// What is written before the value: number and wire type.
    pub(crate) key: u64,
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) presence: Presence,
}

pub(crate) enum Kind {
    Bool,
    /// Of 32 bits; a negative value is written as one of 64.
    Enum,
    Uint32,
    /// Signed or not: every 64-bit pattern is a value.
    Int64,
    Bytes,
    Text,
    Message(&'static Schema),
    PackedEnum,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Presence {
    /// Written always.
    Required,
    /// Written when it is there.
    Optional,
    /// Written when it is not zero or empty.
    Implicit,
    /// Written once for each value.
    Repeated,
    /// At most one of the fields with the same choice is written.
    Choice(u32),
}

/// A message whose canonical form is known.
pub trait Canonical: prost::Message + Default {
    /// Its fields.
    #[doc(hidden)]
    const SCHEMA: &'static Schema;
}

include!(concat!(env!("OUT_DIR"), "/schemas.rs"));

/// Checks that `bytes` are a canonical encoding of a message of this schema.
pub(crate) fn check(schema: &'static Schema, bytes: &[u8]) -> Result<(), CanonicalError> {
    Walk { whole: bytes }.message(schema, bytes)
}

/// A walk over the bytes of a message. Every slice handed around is a part of the whole, so its place is known.
struct Walk<'a> {
    whole: &'a [u8],
}

impl Walk<'_> {
    /// The fault is at the beginning of `at`.
    #[cold]
    fn refuse(&self, at: &[u8], fault: CanonicalFault) -> CanonicalError {
        let offset = at.as_ptr().addr() - self.whole.as_ptr().addr();
        CanonicalError { offset, length: self.whole.len(), fault }
    }

    fn message(&self, schema: &'static Schema, mut rest: &[u8]) -> Result<(), CanonicalError> {
        // The fields that may still come, and the choices already made.
        let (mut fields, mut chosen) = (schema.fields, 0_u32);
        while !rest.is_empty() {
            let at = rest;
            let key = self.varint(&mut rest)?;
            let field = loop {
                match fields {
                    [field, ..] if field.key == key => break field,
                    [field, later @ ..] if field.key >> 3 < key >> 3 && field.presence != Presence::Required => {
                        fields = later;
                    }
                    _ => return Err(self.refuse(at, unplaced(schema, fields, key))),
                }
            };
            match field.presence {
                Presence::Repeated => {}
                Presence::Choice(choice) => {
                    let bit = 1 << choice;
                    if chosen & bit != 0 {
                        return Err(self.refuse(at, unplaced(schema, fields, key)));
                    }
                    chosen |= bit;
                    fields = &fields[1..];
                }
                Presence::Required | Presence::Optional | Presence::Implicit => fields = &fields[1..],
            }
            self.value(schema, field, &mut rest)?;
        }
        match fields.iter().find(|field| field.presence == Presence::Required) {
            Some(field) => Err(self.refuse(rest, missing(schema, field))),
            None => Ok(()),
        }
    }

    /// The value of a field.
    fn value(&self, schema: &'static Schema, field: &'static Field, rest: &mut &[u8]) -> Result<(), CanonicalError> {
        let at = *rest;
        let value = self.varint(rest)?;
        let (message, name) = (schema.name, field.name);
        if value == 0 && field.presence == Presence::Implicit {
            return Err(self.refuse(at, CanonicalFault::DefaultWritten { message, field: name }));
        }
        let fits = match field.kind {
            Kind::Int64 => true,
            Kind::Uint32 => u32::try_from(value).is_ok(),
            Kind::Enum => is_enum(value),
            Kind::Bool => value <= 1,
            Kind::Bytes | Kind::Text | Kind::Message(_) | Kind::PackedEnum => {
                // Here the number is a length.
                let parts = usize::try_from(value).ok().and_then(|length| rest.split_at_checked(length));
                let Some((content, behind)) = parts else {
                    return Err(self.refuse(at, CanonicalFault::Truncated));
                };
                *rest = behind;
                return self.content(schema, field, content);
            }
        };
        if fits { Ok(()) } else { Err(self.refuse(at, CanonicalFault::OutOfRange { message, field: name })) }
    }

    /// What a length-delimited field holds.
    fn content(&self, schema: &'static Schema, field: &'static Field, content: &[u8]) -> Result<(), CanonicalError> {
        match field.kind {
            Kind::Message(inner) => self.message(inner, content),
            Kind::Text => match std::str::from_utf8(content) {
                Ok(_) => Ok(()),
                Err(error) => {
                    let fault = CanonicalFault::NotUtf8 { message: schema.name, field: field.name };
                    Err(self.refuse(&content[error.valid_up_to()..], fault))
                }
            },
            Kind::PackedEnum => {
                let mut rest = content;
                while !rest.is_empty() {
                    let at = rest;
                    if !is_enum(self.varint(&mut rest)?) {
                        let fault = CanonicalFault::OutOfRange { message: schema.name, field: field.name };
                        return Err(self.refuse(at, fault));
                    }
                }
                Ok(())
            }
            Kind::Bytes | Kind::Bool | Kind::Enum | Kind::Uint32 | Kind::Int64 => Ok(()),
        }
    }

    /// A number in its shortest form. Nearly all of them, and all keys up to field 15, are one byte.
    #[inline]
    fn varint(&self, rest: &mut &[u8]) -> Result<u64, CanonicalError> {
        match *rest {
            [byte @ ..0x80, behind @ ..] => {
                *rest = behind;
                Ok((*byte).into())
            }
            _ => self.long_varint(rest),
        }
    }

    /// A number of two bytes or more.
    fn long_varint(&self, rest: &mut &[u8]) -> Result<u64, CanonicalError> {
        let at = *rest;
        let mut value = 0_u64;
        for (index, byte) in at.iter().enumerate().take(10) {
            let last = byte & 0x80 == 0;
            // Nine bytes hold 63 bits; a tenth may add the last one. A last byte of zero adds nothing.
            if (index == 9 && *byte != 1) || (last && *byte == 0) {
                return Err(self.refuse(at, CanonicalFault::LongNumber));
            }
            value |= u64::from(byte & 0x7f) << (7 * index);
            if last {
                *rest = &at[index + 1..];
                return Ok(value);
            }
        }
        Err(self.refuse(at, CanonicalFault::Truncated))
    }
}

/// A 32-bit number, as an enum is written: a negative one is extended to 64 bits.
fn is_enum(value: u64) -> bool {
    i32::try_from(value.cast_signed()).is_ok()
}

fn missing(schema: &Schema, field: &Field) -> CanonicalFault {
    CanonicalFault::Missing { message: schema.name, field: field.name }
}

/// What is wrong with a field of this key where only `fields` may still come.
fn unplaced(schema: &Schema, fields: &[Field], key: u64) -> CanonicalFault {
    let message = schema.name;
    match (fields, schema.fields.iter().find(|field| field.key >> 3 == key >> 3)) {
        ([next, ..], _) if next.key >> 3 < key >> 3 => missing(schema, next),
        (_, Some(field)) if field.key != key => CanonicalFault::WireType { message, field: field.name },
        (_, Some(field)) => CanonicalFault::Misplaced { message, field: field.name },
        (_, None) => CanonicalFault::Unknown { message, number: key >> 3 },
    }
}
