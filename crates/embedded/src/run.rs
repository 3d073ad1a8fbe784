//! A run of records: what one group commit appended to one partition, stored as one row.
//!
//! One row a run instead of one a record is why appending costs a fraction of a key write per record.
//!
//! ```text
//! 0x01 | append time i64be | bytes before u64be | records, back to back | end of each u32be… | count u32be
//! ```
//!
//! `bytes before` counts the record bytes of the partition before this run, so that the size of any stretch is the difference of
//! two rows. Ends are counted from the first record's start.

use bytes::{BufMut, Bytes};

use crate::rows::RowError;

const VERSION: u8 = 1;
const HEADER_BYTES: usize = 17;
const COUNT_BYTES: usize = 4;

/// A run is closed once it holds this many record bytes; one record may be larger. It bounds what a single record keeps in
/// memory while somebody holds it.
pub(crate) const RUN_BYTES_MAX: usize = 256 << 10;

/// An encoded run, with the offset of its first record.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    first_offset: u64,
    count: u32,
    row: Bytes,
}

impl Run {
    /// Takes a row as stored.
    pub(crate) fn decode(first_offset: u64, row: Bytes) -> Result<Run, RowError> {
        let corrupt = |detail: String| RowError { what: "run", detail: format!("at offset {first_offset}: {detail}") };
        let length = row.len();
        if length < HEADER_BYTES + COUNT_BYTES || row[0] != VERSION {
            return Err(corrupt(format!("{length} bytes of version {:?}", row.first())));
        }
        let count = u32_at(&row, length - COUNT_BYTES);
        let ends_bytes = u64::from(count) * 4;
        let record_bytes = ((length - HEADER_BYTES - COUNT_BYTES) as u64).checked_sub(ends_bytes);
        let run = Run { first_offset, count, row };
        // The ends are there once their length fits; then the last one says how long the records are.
        let is_whole = count > 0 && record_bytes.is_some_and(|bytes| bytes == run.record_end(count - 1) as u64);
        if !is_whole || first_offset.checked_add(u64::from(count)).is_none() {
            return Err(corrupt(format!("{count} records in {length} bytes")));
        }
        Ok(run)
    }

    /// The offset of its first record.
    pub(crate) fn first_offset(&self) -> u64 {
        self.first_offset
    }

    /// The offset behind its last record.
    pub(crate) fn end_offset(&self) -> u64 {
        self.first_offset + u64::from(self.count)
    }

    /// When all of it was appended.
    pub(crate) fn append_time_ms(&self) -> i64 {
        i64_at(&self.row, 1)
    }

    /// Record bytes of the partition before this run.
    pub(crate) fn bytes_before(&self) -> u64 {
        i64_at(&self.row, 9).cast_unsigned()
    }

    /// Its own record bytes.
    pub(crate) fn record_bytes(&self) -> u64 {
        (self.ends_start() - HEADER_BYTES) as u64
    }

    /// What it takes in memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.row.len() + size_of::<Run>()
    }

    /// The record at this offset, without copying it.
    ///
    /// # Errors
    /// When the row's ends do not ascend.
    pub(crate) fn record(&self, offset: u64) -> Result<Bytes, RowError> {
        let index = offset.checked_sub(self.first_offset).and_then(|index| u32::try_from(index).ok());
        let index = index.filter(|index| *index < self.count).expect("callers ask within the run");
        let start = if index == 0 { 0 } else { self.record_end(index - 1) };
        let end = self.record_end(index);
        if start > end || HEADER_BYTES + end > self.ends_start() {
            return Err(RowError { what: "run", detail: format!("offset {offset}: record from {start} to {end}") });
        }
        Ok(self.row.slice(HEADER_BYTES + start..HEADER_BYTES + end))
    }

    fn ends_start(&self) -> usize {
        self.row.len() - COUNT_BYTES - self.count as usize * 4
    }

    fn record_end(&self, index: u32) -> usize {
        u32_at(&self.row, self.ends_start() + index as usize * 4) as usize
    }

    pub(crate) fn row(&self) -> &[u8] {
        &self.row
    }
}

/// Both callers read inside a row whose length was checked.
fn u32_at(row: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(row[at..at + 4].try_into().expect("four bytes"))
}

fn i64_at(row: &[u8], at: usize) -> i64 {
    i64::from_be_bytes(row[at..at + 8].try_into().expect("eight bytes"))
}

/// Builds one run.
#[derive(Debug)]
pub(crate) struct RunBuilder {
    first_offset: u64,
    row: Vec<u8>,
    ends: Vec<u32>,
}

impl RunBuilder {
    pub(crate) fn new(first_offset: u64, append_time_ms: i64, bytes_before: u64) -> RunBuilder {
        let mut row = Vec::with_capacity(HEADER_BYTES);
        row.put_u8(VERSION);
        row.put_i64(append_time_ms);
        row.put_u64(bytes_before);
        RunBuilder { first_offset, row, ends: Vec::new() }
    }

    /// Makes room for records that are about to be pushed.
    pub(crate) fn reserve(&mut self, records: usize, bytes: usize) {
        self.row.reserve(bytes + records * 4 + COUNT_BYTES);
        self.ends.reserve(records);
    }

    /// Whether the next record belongs into another run.
    pub(crate) fn is_full(&self) -> bool {
        self.row.len() - HEADER_BYTES >= RUN_BYTES_MAX
    }

    /// Adds a record; its size has been checked against the engine's limit, which is far below 4 GiB.
    pub(crate) fn push(&mut self, record: &[u8]) {
        self.row.put_slice(record);
        let end = u32::try_from(self.row.len() - HEADER_BYTES).expect("a run and one record are below 4 GiB");
        self.ends.push(end);
    }

    /// The finished run; `None` when nothing was pushed.
    pub(crate) fn finish(mut self) -> Option<Run> {
        let count = u32::try_from(self.ends.len()).expect("fewer records than bytes and ends");
        if count == 0 {
            return None;
        }
        self.row.reserve_exact(self.ends.len() * 4 + COUNT_BYTES);
        for end in self.ends {
            self.row.put_u32(end);
        }
        self.row.put_u32(count);
        Some(Run { first_offset: self.first_offset, count, row: Bytes::from(self.row) })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn run(records: &[&[u8]]) -> Run {
        let mut builder = RunBuilder::new(7, 1_000, 50);
        records.iter().for_each(|record| builder.push(record));
        builder.finish().expect("not empty")
    }

    #[test]
    fn the_bytes_are_these() {
        assert_eq!(
            run(&[b"a", b"", b"bcd"]).row(),
            b"\x01\0\0\0\0\0\0\x03\xe8\0\0\0\0\0\0\0\x32abcd\0\0\0\x01\0\0\0\x01\0\0\0\x04\0\0\0\x03"
        );
        assert!(RunBuilder::new(7, 1_000, 50).finish().is_none());
    }

    #[test]
    fn damaged_rows_are_refused_or_read_within_bounds() {
        let whole = run(&[b"one", b"two", b"three"]).row().to_vec();
        for length in 0..whole.len() {
            let torn = Run::decode(7, Bytes::copy_from_slice(&whole[..length]));
            assert!(torn.is_err(), "{length} bytes");
        }
        for at in 0..whole.len() {
            for bit in 0..8 {
                let mut damaged = whole.clone();
                damaged[at] ^= 1 << bit;
                if let Ok(run) = Run::decode(7, Bytes::from(damaged)) {
                    for offset in run.first_offset()..run.end_offset() {
                        let _ = run.record(offset);
                    }
                }
            }
        }
        assert!(Run::decode(u64::MAX, Bytes::from(whole)).is_err(), "offsets would overflow");
    }

    #[test]
    fn a_run_is_full_at_its_limit() {
        let mut builder = RunBuilder::new(0, 0, 0);
        builder.push(&vec![0; RUN_BYTES_MAX - 1]);
        assert!(!builder.is_full());
        builder.push(&[0]);
        assert!(builder.is_full());
    }

    proptest! {
        #[test]
        fn records_are_read_as_pushed(
            records in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..50), 1..50),
            first_offset in 0..u64::MAX / 2,
            append_time_ms: i64,
            bytes_before: u64,
        ) {
            let mut builder = RunBuilder::new(first_offset, append_time_ms, bytes_before);
            builder.reserve(3, 10);
            records.iter().for_each(|record| builder.push(record));
            let built = builder.finish().expect("not empty");
            let run = Run::decode(first_offset, built.row).expect("just written");
            prop_assert_eq!(run.append_time_ms(), append_time_ms);
            prop_assert_eq!(run.bytes_before(), bytes_before);
            prop_assert_eq!(run.record_bytes(), records.iter().map(|record| record.len() as u64).sum::<u64>());
            prop_assert_eq!(run.end_offset() - run.first_offset(), records.len() as u64);
            for (offset, record) in (first_offset..).zip(&records) {
                prop_assert_eq!(&run.record(offset).expect("whole")[..], &record[..]);
            }
        }
    }
}
