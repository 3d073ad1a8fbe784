//! RocksDB alone: the same keys of the same sizes in synced batches of the same length, with nothing else to do.
//!
//! It goes through the `store` crate, whose commit is one synced `WriteBatch` with the options that the server has, one
//! database and one thread a shard, as in the server. What the server does beside it (HTTP, the log with its own synced
//! batches, decisions, signatures, reads, the destination) is what the ratio is about.

use std::collections::VecDeque;
use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use bytes::{BufMut as _, Bytes, BytesMut};
use shard::state::envelope;
use shard::store::{Batch, Family, Store as _};
use store::{RocksStore, StoreOptions, StoreResources};
use tokio::time::Instant;

use super::sample::count;

/// Bytes of the rows that hold more or less the same whatever the message.
const UUID_BYTES: usize = 16;
const DEDUPE_ROW_BYTES: usize = 50;
const META_ROW_BYTES: usize = 60;
/// Bytes an admission row spends on a message that it names.
const OPEN_ENTRY_BYTES: usize = 24;
/// Messages between a schedule and its admission, and between that and its outcome, a shard.
const PENDING: usize = 8_000;
const IN_FLIGHT: usize = 1_000;

/// What of a message's life is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Its schedule.
    Schedule,
    /// Its schedule, admission and outcome.
    Life,
}

/// What to write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) part: Part,
    pub(crate) shards: usize,
    /// Messages in a batch, each in whatever part of its life it is.
    pub(crate) batch_length: usize,
    /// Bytes of keys and values that a message costs over that part.
    pub(crate) message_bytes: f64,
}

/// What came of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Raw {
    /// Messages a second, all shards together.
    pub(crate) rate: f64,
    /// Keys put or deleted a message.
    pub(crate) keys: f64,
    /// Bytes of keys and values a message.
    pub(crate) bytes: f64,
}

#[derive(Clone, Copy, Default)]
struct Written {
    messages: u64,
    keys: u64,
    bytes: u64,
}

/// Writes for a while and returns the rate.
pub(crate) fn measure(folder: &Path, shape: Shape, span: Duration) -> anyhow::Result<Raw> {
    let resources = StoreResources::new(store::ResourceOptions::default())?;
    let stores: Vec<RocksStore> = (0..shape.shards)
        .map(|shard| {
            let folder = folder.join(shard.to_string());
            RocksStore::open(&folder, b"bench", [0; 16], &resources, &StoreOptions::default())
        })
        .collect::<Result<_, _>>()
        .context("opening RocksDB alone")?;
    let began = Instant::now();
    let written = thread::scope(|scope| {
        let writers: Vec<_> =
            stores.into_iter().map(|store| scope.spawn(move || write(store, shape, began, span))).collect();
        let results = writers.into_iter().map(|writer| writer.join().map_err(|_| anyhow!("a writer panicked"))?);
        results.collect::<anyhow::Result<Vec<Written>>>()
    })?;
    let took = began.elapsed().as_secs_f64();
    let sum = |pick: fn(&Written) -> u64| count(written.iter().map(pick).sum::<u64>());
    let messages = sum(|written| written.messages);
    Ok(Raw {
        rate: messages / took,
        keys: sum(|written| written.keys) / messages,
        bytes: sum(|written| written.bytes) / messages,
    })
}

fn write(mut store: RocksStore, shape: Shape, began: Instant, span: Duration) -> anyhow::Result<Written> {
    let mut written = Written::default();
    let mut life = Life::new(shape);
    while began.elapsed() < span {
        let batch = life.next_batch();
        written.keys += batch.len() as u64;
        written.bytes += batch.byte_count() as u64;
        store.commit(batch).context("writing to RocksDB alone")?;
        written.messages += shape.batch_length as u64;
    }
    store.close();
    Ok(written)
}

/// The messages of one shard, as far as their keys go.
struct Life {
    shape: Shape,
    sizes: Sizes,
    next: u64,
    pending: VecDeque<u64>,
    in_flight: VecDeque<u64>,
    /// First message and length of each admission that is open.
    open: VecDeque<(u64, usize)>,
}

/// Bytes of the values that depend on what was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sizes {
    message_row: usize,
    payload: usize,
}

impl Sizes {
    /// Splits what a message was measured to cost over message rows and payload.
    fn of(shape: Shape) -> Sizes {
        // The keys of a schedule, and the values that are of one size.
        let schedule = 2 * UUID_BYTES + (21 + UUID_BYTES) + (17 + UUID_BYTES) + (UUID_BYTES + DEDUPE_ROW_BYTES);
        let (rows, fixed) = match shape.part {
            Part::Schedule => (1, schedule),
            Part::Life => (3, schedule + 2 * UUID_BYTES + 21 + 17 + UUID_BYTES + OPEN_ENTRY_BYTES),
        };
        let per_commit = 3 * (META_ROW_BYTES + 8) / shape.batch_length.max(1);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a size of a message")]
        let measured = shape.message_bytes.max(0.0) as usize;
        let rest = measured.saturating_sub(fixed + per_commit);
        // A message row is about half as large as the payload of 200 bytes with its fields.
        let message_row = (rest / (rows + 2)).max(16);
        Sizes { message_row, payload: rest.saturating_sub(rows * message_row).max(16) }
    }
}

impl Life {
    fn new(shape: Shape) -> Life {
        Life {
            shape,
            sizes: Sizes::of(shape),
            next: 0,
            pending: VecDeque::new(),
            in_flight: VecDeque::new(),
            open: VecDeque::new(),
        }
    }

    fn next_batch(&mut self) -> Batch {
        let mut batch = Batch::default();
        let Sizes { message_row, payload } = self.sizes;
        for _ in 0..self.shape.batch_length {
            let number = self.next;
            self.next += 1;
            let id = Bytes::copy_from_slice(&uuid(number));
            batch.put(Family::Messages, id.clone(), row(number, message_row, None));
            batch.put(Family::Payloads, id.clone(), row(number, payload, None));
            batch.put(Family::Timeline, due(number), id.clone());
            batch.put(Family::Timeline, expiry(number), id.clone());
            batch.put(Family::Dedupe, id, row(number, DEDUPE_ROW_BYTES, Some(i64::MAX)));
            if self.shape.part == Part::Life {
                self.pending.push_back(number);
            }
        }
        if self.pending.len() > PENDING {
            self.admit(&mut batch);
        }
        if self.in_flight.len() > IN_FLIGHT {
            self.settle(&mut batch);
        }
        for key in ["applied", "counters", "lane"] {
            batch.put(Family::Meta, key.as_bytes(), row(self.next, META_ROW_BYTES, None));
        }
        batch
    }

    fn admit(&mut self, batch: &mut Batch) {
        let first = self.pending.front().copied().unwrap_or_default();
        let admitted: Vec<u64> = self.pending.drain(..self.shape.batch_length.min(self.pending.len())).collect();
        let entries = row(first, admitted.len() * OPEN_ENTRY_BYTES, None);
        batch.put(Family::Open, first.to_be_bytes().to_vec(), entries);
        self.open.push_back((first, admitted.len()));
        for number in admitted {
            batch.put(Family::Messages, uuid(number).to_vec(), row(number, self.sizes.message_row, None));
            batch.delete(Family::Timeline, due(number));
            self.in_flight.push_back(number);
        }
    }

    fn settle(&mut self, batch: &mut Batch) {
        let Some((first, length)) = self.open.pop_front() else { return };
        batch.delete(Family::Open, first.to_be_bytes().to_vec());
        for number in self.in_flight.drain(..length) {
            batch.put(Family::Messages, uuid(number).to_vec(), row(number, self.sizes.message_row, Some(i64::MAX)));
            batch.delete(Family::Timeline, expiry(number));
            batch.delete(Family::Payloads, uuid(number).to_vec());
        }
    }
}

/// Ascends with the number, as UUIDs by time do, and is random behind.
fn uuid(number: u64) -> [u8; UUID_BYTES] {
    let mut uuid = [0; UUID_BYTES];
    uuid[..8].copy_from_slice(&(1_700_000_000_000 + number / 16).to_be_bytes());
    uuid[8..].copy_from_slice(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
    uuid
}

fn due(number: u64) -> Bytes {
    let mut key = BytesMut::with_capacity(21);
    key.put_u8(1);
    key.put_u8(0);
    key.put_u16(0);
    // Four partitions, as the benchmark's topic has.
    key.put_u8(number.to_le_bytes()[0] % 4);
    key.put_u64(1_700_000_000_000 + number / 16);
    key.put_u64(number);
    key.freeze()
}

fn expiry(number: u64) -> Bytes {
    let mut key = BytesMut::with_capacity(17);
    key.put_u8(2);
    key.put_u64(1_800_000_000_000 + number / 16);
    key.put_u64(number);
    key.freeze()
}

/// A row that compresses about as well as the server's: half of it is ids.
fn row(number: u64, length: usize, end_ms: Option<i64>) -> Bytes {
    let mut body = Vec::with_capacity(length + 8);
    let mut mixed = number;
    while body.len() < length {
        mixed = mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23);
        body.extend_from_slice(&mixed.to_be_bytes());
        body.extend_from_slice(b"destinat");
    }
    body.truncate(length);
    envelope::encode_bytes(&body, end_ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(part: Part, message_bytes: f64) -> Shape {
        Shape { part, shards: 1, batch_length: 100, message_bytes }
    }

    #[test]
    fn a_life_costs_the_bytes_that_were_measured() {
        for (shape, keys) in [(shape(Part::Schedule, 700.0), 5.03), (shape(Part::Life, 1_200.0), 10.05)] {
            let mut life = Life::new(shape);
            let settled_from = (PENDING + IN_FLIGHT) / shape.batch_length + 4;
            let batches: Vec<Batch> = (0..settled_from + 10).map(|_| life.next_batch()).skip(settled_from).collect();
            let messages = count((batches.len() * shape.batch_length) as u64);
            let sum = |pick: fn(&Batch) -> usize| count(batches.iter().map(pick).sum::<usize>() as u64) / messages;
            assert!((sum(Batch::len) - keys).abs() < 0.001, "{} keys", sum(Batch::len));
            let bytes = sum(Batch::byte_count);
            assert!((bytes / shape.message_bytes - 1.0).abs() < 0.05, "{bytes} bytes for {}", shape.message_bytes);
        }
    }

    #[test]
    fn rocksdb_alone_is_measured() {
        let folder = tempfile::tempdir().unwrap();
        let raw = measure(folder.path(), shape(Part::Schedule, 700.0), Duration::from_millis(20)).unwrap();
        assert!(raw.rate > 0.0 && raw.keys > 5.0);
    }
}
