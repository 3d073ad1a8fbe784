//! How many records a second the engine takes and gives, and what one costs.
//!
//! ```text
//! cargo run --release -p embedded --example append_rate -- FOLDER [RECORDS] [APPENDERS] [RECORDS_PER_APPEND] [RECORD_BYTES]
//! ```
//!
//! Each appender has one append under way and its own partition. CPU is that of the whole process: the appenders, the
//! writer, flushes and compactions.

#![expect(clippy::print_stdout, clippy::disallowed_methods, clippy::cast_precision_loss)]

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use embedded::{Embedded, EmbeddedOptions, ReadLimit, Topic};
use store::{ResourceOptions, StoreResources};

struct Plan {
    records: u64,
    appenders: u32,
    per_append: u64,
    record_bytes: usize,
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().expect("usage: append_rate FOLDER [RECORDS] [APPENDERS] [PER_APPEND] [RECORD_BYTES]");
    let mut number = |default: u64| arguments.next().map_or(default, |text| text.parse().expect("a number"));
    let plan = Plan {
        records: number(2_000_000),
        appenders: u32::try_from(number(4)).expect("a few"),
        per_append: number(100),
        record_bytes: usize::try_from(number(250)).expect("a size"),
    };
    let folder = Path::new(&folder).join(format!("append-rate-{}", std::process::id()));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().expect("a runtime");
    let engine = open(&folder);
    let topic = runtime.block_on(engine.create_topic("t", plan.appenders, [1; 16])).expect("created");

    let (wall, cpu) = (Instant::now(), process_cpu());
    runtime.block_on(append(&topic, &plan));
    let (wall, cpu) = (wall.elapsed(), process_cpu().saturating_sub(cpu));
    let commits = engine.stats().commit_count;
    report("append", plan.records, wall, cpu);
    println!(
        "         {:.0} records a commit, {:.0} us a commit",
        plan.records as f64 / commits as f64,
        per(wall, commits)
    );

    let tail = engine.stats().tail_bytes / (plan.record_bytes as u64 + 4) / u64::from(plan.appenders);
    read("tail", &topic, &plan, tail / 2);
    engine.flush().expect("flush");
    engine.close();
    let engine = open(&folder);
    read("disk", &engine.topic("t").expect("there"), &plan, u64::MAX);
    println!("on disk  {} bytes", engine.stats().disk_bytes);
    engine.close();
    std::fs::remove_dir_all(&folder).expect("removed");
}

fn open(folder: &Path) -> Embedded {
    let options = EmbeddedOptions::new(StoreResources::new(ResourceOptions::default()).expect("defaults fit"));
    let now = || {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(0))
    };
    Embedded::open(folder, options, Arc::new(now)).expect("open")
}

async fn append(topic: &Topic, plan: &Plan) {
    let appenders = (0..plan.appenders).map(|appender| {
        let partition = topic.partition(appender).expect("there");
        let appends = plan.records / u64::from(plan.appenders) / plan.per_append;
        let (per_append, record_bytes) = (plan.per_append, plan.record_bytes);
        tokio::spawn(async move {
            for append in 0..appends {
                let records = (0..per_append).map(|index| record(append * per_append + index, record_bytes));
                partition.append(records.collect()).await.expect("appended");
            }
        })
    });
    for appender in appenders.collect::<Vec<_>>() {
        appender.await.expect("no panic");
    }
}

/// About as compressible as frames are: ids and fields in turn.
fn record(number: u64, length: usize) -> Bytes {
    let mut record = Vec::with_capacity(length + 16);
    let mut mixed = number;
    while record.len() < length {
        mixed = mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23);
        record.extend_from_slice(&mixed.to_be_bytes());
        record.extend_from_slice(b"destinat");
    }
    record.truncate(length);
    Bytes::from(record)
}

/// Reads the last `depth` records of each partition, 500 at a time.
fn read(label: &str, topic: &Topic, plan: &Plan, depth: u64) {
    let limit = ReadLimit { records_max: 500, bytes_max: 1 << 20 };
    let (wall, cpu) = (Instant::now(), process_cpu());
    let mut count = 0;
    for partition in (0..plan.appenders).filter_map(|index| topic.partition(index)) {
        let mut next = partition.end_offset().saturating_sub(depth);
        while next < partition.end_offset() {
            let records = partition.read(next, limit).expect("read").records;
            assert!(records.iter().all(|record| record.value.len() == plan.record_bytes));
            next += records.len() as u64;
            count += records.len() as u64;
        }
    }
    report(label, count, wall.elapsed(), process_cpu().saturating_sub(cpu));
}

fn report(label: &str, records: u64, wall: Duration, cpu: Duration) {
    let rate = records as f64 / wall.as_secs_f64();
    println!("{label:8} {rate:.0} records a second, {:.3} us CPU a record ({records} records)", per(cpu, records));
}

fn per(total: Duration, count: u64) -> f64 {
    total.as_secs_f64() * 1e6 / count as f64
}

#[expect(unsafe_code, reason = "std reads no CPU clocks")]
fn process_cpu() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid timespec to write to.
    assert_eq!(
        unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) },
        0,
        "a clock of every Unix"
    );
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).expect("below 1e9"))
}
