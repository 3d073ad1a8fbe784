//! Whole shard logs of arbitrary records behind a valid genesis: the shard decides every record as the model does, in any
//! batching, and its tables agree.

use std::sync::LazyLock;

use bytes::Bytes;
use protocol::command::CommandType;
use protocol::frame;
use protocol::id::Uuid7;
use protocol::mutation::MutationType;
use protocol::mutation_v2;
use shard::commit::Shard;
use shard::machine::SourceRecord;
use shard::memory::{MemoryDisk, MemoryStore};
use shard::state::digest::state_digest;
use testkit::log::START_MS;
use testkit::log::workload::{Step, Workload};
use testkit::model::{Answer, audit, compare};

use crate::forge;
use crate::input::Input;

/// More records than this add nothing but time.
const RECORDS_MAX: usize = 48;
/// Different limits that logs start with.
const SETUPS: usize = 4;

/// A shard with policies, destinations and an owner, and the model of it.
struct Start {
    workload: Workload,
    disk: MemoryDisk,
}

static STARTS: LazyLock<Vec<Start>> = LazyLock::new(|| {
    (0..SETUPS)
        .map(|setup| {
            let numbers = [u16::try_from(setup).unwrap_or_default(); 20];
            let (mut workload, records) = Workload::new(&numbers);
            for record in &records[1..] {
                workload.model.apply(record.position.broker_time_ms(), &record.frame);
            }
            let disk = MemoryDisk::new();
            let mut shard = Shard::open(disk.open(), workload.identity()).expect("an empty store opens");
            shard.commit(&records).expect("a store in memory answers");
            Start { workload, disk }
        })
        .collect()
});

/// A log: one byte chooses the limits and whether the log is applied a second time record by record, then one for each record says
/// what it is made from.
pub fn log(input: &[u8]) {
    let mut input = Input::new(input);
    let first = usize::from(input.byte());
    let start = &STARTS[first % SETUPS];
    let mut workload = start.workload.clone();
    let (mut records, mut answers): (Vec<SourceRecord>, Vec<Answer>) = (Vec::new(), Vec::new());
    let mut ends = Vec::new();
    while !input.is_empty() && records.len() < RECORDS_MAX {
        let what = input.byte();
        if let Some((record, answer)) = next(&mut workload, what, &mut input, &records) {
            records.push(record);
            answers.push(answer);
        }
        // The high bit ends a run.
        if what & 0x80 != 0 {
            ends.push(records.len());
        }
    }
    ends.push(records.len());
    let shard = apply(start, &workload, &records, &answers, ends);
    compare::assert_agree(shard.store(), &workload.model);
    audit::assert_consistent(shard.store());
    let digest = state_digest(shard.store()).expect("a store in memory answers");
    let disk = shard.into_store().disk();
    let reopened = Shard::open(disk.open(), workload.identity()).expect("what was committed opens");
    assert_eq!(state_digest(reopened.store()).expect("a store in memory answers"), digest);
    if first & 0x40 != 0 {
        let one_by_one = apply(start, &workload, &records, &answers, 1..=records.len());
        assert_eq!(state_digest(one_by_one.store()).expect("a store in memory answers"), digest, "of another batching");
    }
}

/// Applies runs of the records that end there.
fn apply(
    start: &Start,
    workload: &Workload,
    records: &[SourceRecord],
    answers: &[Answer],
    ends: impl IntoIterator<Item = usize>,
) -> Shard<MemoryStore> {
    let mut shard = Shard::open(start.disk.fork().open(), workload.identity()).expect("it was founded");
    let mut at = 0;
    for end in ends {
        let committed = shard.commit(&records[at..end]).expect("a log that follows is decided");
        let said: Vec<Answer> = committed.results().iter().map(|applied| compare::answer(&applied.result)).collect();
        assert_eq!(said, answers[at..end], "records {at}..{end}");
        at = end;
    }
    shard
}

/// The next record, if the byte leads to one.
fn next(
    workload: &mut Workload,
    what: u8,
    input: &mut Input<'_>,
    records: &[SourceRecord],
) -> Option<(SourceRecord, Answer)> {
    let frame = match what & 0x07 {
        // A record that somebody would write here: all that stands around the arbitrary ones.
        0..=2 => {
            let step = Step { what: input.u16(), choices: (0..input.below(16)).map(|_| input.u16()).collect() };
            return workload.step(&step);
        }
        3 => {
            let bytes = input.part();
            forge::sound_frame(bytes, frame::MAGIC).unwrap_or_else(|| Bytes::copy_from_slice(bytes))
        }
        4 => {
            let command_type = CommandType::ALL[input.below(CommandType::ALL.len())];
            let made_ms = workload.log.now_ms().unsigned_abs();
            let command = Uuid7::from_parts(made_ms, [input.byte(); 10]).ok();
            forge::command(command_type, &Bytes::copy_from_slice(input.part()), command)
        }
        5 => forge::Mutation {
            shard: workload.log.shard(),
            mutation_type: MutationType::ALL[input.below(MutationType::ALL.len())],
            body_version: mutation_v2::BODY_VERSION,
            author: None,
            retry_until_ms: workload.log.now_ms() + 60_000,
            body: Bytes::copy_from_slice(input.part()),
        }
        .frame(),
        6 => {
            // An earlier record with one byte changed.
            let earlier = records.get(input.below(records.len()))?;
            let (at, change) = (usize::from(input.u16()), input.byte());
            let mut bytes = earlier.frame.to_vec();
            let length = bytes.len();
            *bytes.get_mut(at % length.max(1))? ^= change;
            forge::sound_frame(&bytes, frame::MAGIC)?
        }
        _ => {
            let now_ms = workload.log.now_ms().saturating_add(i64::from(input.u16()) << (input.byte() % 24));
            workload.log.set_now(now_ms.max(START_MS));
            return None;
        }
    };
    let record = workload.log.append(frame);
    let answer = workload.model.apply(record.position.broker_time_ms(), &record.frame);
    Some((record, answer))
}
