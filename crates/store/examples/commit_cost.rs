//! What the store costs per key, measured on the life of messages: scheduled, admitted, published.
//!
//! ```text
//! cargo run --release -p store --example commit_cost -- FOLDER [MESSAGES] [PENDING] [MESSAGES_PER_COMMIT] [PAYLOAD_BYTES]
//! ```
//!
//! Every commit schedules some messages, admits as many that were scheduled PENDING messages before, and settles as many
//! that were admitted 2,000 messages before, with the reads that apply makes of them. So the store holds PENDING messages
//! throughout, and rows die as old as they do in a shard with that backlog. CPU is that of the whole process: the commit, and
//! the flushes and compactions it causes.

#![expect(
    clippy::print_stdout,
    clippy::disallowed_methods,
    clippy::cast_precision_loss,
    reason = "a program that measures time and prints figures"
)]

use std::path::Path;
use std::time::{Duration, Instant};

use bytes::{BufMut, Bytes, BytesMut};
use shard::state::envelope;
use shard::store::{Batch, Family, Read, Store};
use store::{ResourceOptions, RocksStore, StoreOptions, StoreResources};

const IN_FLIGHT: u64 = 2_000;

struct Plan {
    messages: u64,
    pending: u64,
    per_commit: u64,
    payload_bytes: usize,
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().expect("usage: commit_cost FOLDER [MESSAGES] [PENDING] [PER_COMMIT] [PAYLOAD_BYTES]");
    let mut number = |default: u64| arguments.next().map_or(default, |text| text.parse().expect("a number"));
    let plan = Plan {
        messages: number(1_000_000),
        pending: number(20_000),
        per_commit: number(80),
        payload_bytes: usize::try_from(number(200)).expect("a size"),
    };
    let resources = StoreResources::new(ResourceOptions::default()).expect("defaults fit");
    let folder = Path::new(&folder).join(format!("commit-cost-{}", std::process::id()));
    let mut store =
        RocksStore::open(&folder, b"bench", [0; 16], &resources, &StoreOptions::default()).expect("a new folder");

    let mut figures = Figures::default();
    let (wall, cpu) = (Instant::now(), process_cpu());
    let mut next = 0;
    while next < plan.messages + plan.pending + IN_FLIGHT {
        step(&mut store, &plan, next, &mut figures);
        next += plan.per_commit;
    }
    let (wall, cpu) = (wall.elapsed(), process_cpu().saturating_sub(cpu));
    print_figures(&plan, &figures, wall, cpu);
    let stats = store.stats().expect("open");
    println!("on disk         {} table bytes, {} blob bytes", stats.table_bytes, stats.blob_bytes);
    println!("in memory       {} bytes of blocks and memtables", resources.cache_bytes());
    store.close();
    std::fs::remove_dir_all(&folder).expect("removed");
}

fn print_figures(plan: &Plan, figures: &Figures, wall: Duration, cpu: Duration) {
    let Plan { messages, pending, per_commit, payload_bytes } = plan;
    let Figures { keys, commits, reads, commit_cpu, commit_wall, read_cpu } = figures;
    println!("{messages} messages, {pending} pending, {per_commit} a commit, {payload_bytes} payload bytes");
    println!("keys written    {keys}, {:.1} a message", *keys as f64 / *messages as f64);
    println!("commit          {:.3} us CPU a key", per(*commit_cpu, *keys));
    println!(
        "commit          {:.3} us elapsed a key, {:.0} us a commit",
        per(*commit_wall, *keys),
        per(*commit_wall, *commits)
    );
    println!("read            {:.3} us CPU a key", per(*read_cpu, *reads));
    println!("whole process   {:.3} us CPU a key written, {:.2} us a message", per(cpu, *keys), per(cpu, *messages));
    println!(
        "elapsed         {:.1} s, {:.0} messages a second",
        wall.as_secs_f64(),
        *messages as f64 / wall.as_secs_f64()
    );
}

#[derive(Default)]
struct Figures {
    keys: u64,
    commits: u64,
    reads: u64,
    commit_cpu: Duration,
    commit_wall: Duration,
    read_cpu: Duration,
}

fn per(total: Duration, count: u64) -> f64 {
    total.as_secs_f64() * 1e6 / count as f64
}

/// One run of records: reads, then one commit.
fn step(store: &mut RocksStore, plan: &Plan, next: u64, figures: &mut Figures) {
    let stage = |behind: u64| {
        let until = next.checked_sub(behind).map(|start| (start + plan.per_commit).min(plan.messages));
        let start = next.saturating_sub(behind);
        start..until.unwrap_or(start).max(start)
    };
    let (scheduled, admitted, settled) = (stage(0), stage(plan.pending), stage(plan.pending + IN_FLIGHT));

    let started = thread_cpu();
    let mut get_many = |family, numbers: std::ops::Range<u64>, expected: bool| {
        let keys: Vec<[u8; 16]> = numbers.map(uuid).collect();
        let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
        let found = store.get_many(family, &keys).expect("get_many");
        assert!(found.iter().all(|row| row.is_some() == expected), "{} {keys:?}", family.name());
        figures.reads += keys.len() as u64;
    };
    get_many(Family::Dedupe, scheduled.clone(), false);
    get_many(Family::Messages, scheduled.clone(), false);
    get_many(Family::Messages, admitted.clone(), true);
    get_many(Family::Payloads, admitted.clone(), true);
    get_many(Family::Messages, settled.clone(), true);
    figures.read_cpu += thread_cpu().saturating_sub(started);

    let mut batch = Batch::default();
    for number in scheduled {
        batch.put(Family::Messages, uuid(number).to_vec(), message(number, 110, None));
        batch.put(Family::Payloads, uuid(number).to_vec(), message(number, plan.payload_bytes, None));
        batch.put(Family::Timeline, due(number), Bytes::copy_from_slice(&uuid(number)));
        batch.put(Family::Timeline, expiry(number), Bytes::copy_from_slice(&uuid(number)));
        batch.put(Family::Dedupe, uuid(number).to_vec(), message(number, 50, Some(i64::MAX)));
    }
    if !admitted.is_empty() {
        batch.put(Family::Open, admitted.start.to_be_bytes().to_vec(), message(admitted.start, 24 * 80, None));
    }
    for number in admitted {
        batch.put(Family::Messages, uuid(number).to_vec(), message(number, 120, None));
        batch.delete(Family::Timeline, due(number));
    }
    if !settled.is_empty() {
        batch.delete(Family::Open, settled.start.to_be_bytes().to_vec());
    }
    for number in settled {
        batch.put(Family::Messages, uuid(number).to_vec(), message(number, 150, Some(i64::MAX)));
        batch.delete(Family::Timeline, expiry(number));
        batch.delete(Family::Payloads, uuid(number).to_vec());
    }
    batch.put(Family::Meta, &b"applied"[..], message(next, 60, None));
    batch.put(Family::Meta, &b"counters"[..], message(next, 60, None));
    batch.put(Family::Meta, &b"lane"[..], message(next, 60, None));
    figures.keys += batch.len() as u64;
    figures.commits += 1;
    let (started, wall) = (thread_cpu(), Instant::now());
    store.commit(batch).expect("commit");
    figures.commit_cpu += thread_cpu().saturating_sub(started);
    figures.commit_wall += wall.elapsed();
}

/// Ascends with the number, as UUIDs by time do, and is random behind.
fn uuid(number: u64) -> [u8; 16] {
    let mut uuid = [0; 16];
    uuid[..8].copy_from_slice(&(1_700_000_000_000 + number / 16).to_be_bytes());
    uuid[8..].copy_from_slice(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
    uuid
}

fn due(number: u64) -> Bytes {
    let mut key = BytesMut::with_capacity(21);
    key.put_u8(1);
    key.put_u32(u32::try_from(number % 8).expect("below 8"));
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

/// A row that compresses about as well as ours do: half of it is ids.
fn message(number: u64, length: usize, end_ms: Option<i64>) -> Bytes {
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

#[expect(unsafe_code, reason = "std reads no CPU clocks")]
fn cpu(clock: libc::clockid_t) -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid timespec to write to.
    assert_eq!(unsafe { libc::clock_gettime(clock, &raw mut time) }, 0, "a clock of every Unix");
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).expect("below 1e9"))
}

fn thread_cpu() -> Duration {
    cpu(libc::CLOCK_THREAD_CPUTIME_ID)
}

fn process_cpu() -> Duration {
    cpu(libc::CLOCK_PROCESS_CPUTIME_ID)
}
