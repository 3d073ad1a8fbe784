//! The keys of every table: one file a family, one type a table.
//!
//! All integers are big endian, so that the order of key bytes is the order of the tuple. The first byte of a key in a family
//! with several tables is the table's tag; tags are persisted and never reused. Times are milliseconds and not negative, so
//! they order as unsigned numbers.

pub mod dedupe;
pub mod meta;
pub mod open;
pub mod timeline;

use crate::store::StoreError;

/// Takes a fixed number of bytes off the front of a key.
fn take<const N: usize>(key: &mut &[u8], table: &'static str) -> Result<[u8; N], StoreError> {
    let Some((head, rest)) = key.split_first_chunk::<N>() else {
        return Err(malformed(table, key));
    };
    *key = rest;
    Ok(*head)
}

fn finish(key: &[u8], table: &'static str) -> Result<(), StoreError> {
    if key.is_empty() { Ok(()) } else { Err(malformed(table, key)) }
}

fn malformed(table: &'static str, key: &[u8]) -> StoreError {
    StoreError::Corrupt { detail: format!("key of table {table} is malformed, {} bytes remain", key.len()) }
}

/// Epoch milliseconds as they stand in keys.
///
/// # Panics
/// When the time is negative: no record with such a time is ever applied.
fn time_bytes(time_ms: i64) -> [u8; 8] {
    assert!(time_ms >= 0, "a time in a key is not negative");
    time_ms.to_be_bytes()
}
