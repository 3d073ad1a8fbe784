//! Seeds from a shard: the rows that a busy log leaves, and logs.

use std::collections::BTreeSet;

use protocol::mutation_v2::MutationBody;
use protocol::record::{self, LogRecord};
use shard::commit::Shard;
use shard::memory::MemoryStore;
use shard::store::{Family, Read};
use testkit::log::workload::{RandomLog, Step, Workload};

/// A log that does a bit of everything.
fn busy_log() -> RandomLog {
    let mut chance = fastrand::Rng::with_seed(3);
    let mut steps = Vec::new();
    for _ in 0..600 {
        steps.push(step(&mut chance, 24));
    }
    RandomLog::new(&[0; 20], &steps)
}

fn step(chance: &mut fastrand::Rng, choices: usize) -> Step {
    Step { what: chance.u16(..), choices: (0..choices).map(|_| chance.u16(..)).collect() }
}

/// The place of a table's decoder behind the two other forms of the target, by family and tag.
fn table_of(family: Family, tag: u8) -> Option<u8> {
    let index = match (family, tag) {
        (Family::Meta, tag @ 0..=7) => [0, 2, 3, 4, 5, 6, 7, 8][usize::from(tag)],
        (Family::Meta, 8) => 1,
        (Family::Meta, 9) => 9,
        (Family::Messages, _) => 10,
        (Family::Timeline, 1 | 2 | 4) => 11,
        (Family::Open, 1) => 12,
        (Family::Open, 2) => 13,
        (Family::Dedupe, 1) => 14,
        (Family::Dedupe, 2) => 15,
        (Family::Dedupe, 3) => 16,
        (Family::Dedupe, 4) => 17,
        _ => return None,
    };
    Some(index + 2)
}

/// One row of each table as a value, its key, and some of them as rows of another store.
pub(super) fn rows() -> Vec<(String, Vec<u8>)> {
    let log = busy_log();
    let mut shard = Shard::open(MemoryStore::new(), log.identity).unwrap();
    shard.commit(&log.records[..1]).unwrap();
    let mut seeds = Vec::new();
    let mut seen = BTreeSet::new();
    for record in &log.records[1..] {
        shard.commit(std::slice::from_ref(record)).unwrap();
        for family in Family::ALL {
            for (key, value) in shard.store().scan(family, &[], &[0xff; 64], usize::MAX).unwrap() {
                // Messages and payloads have no tag.
                let tag = if matches!(family, Family::Messages | Family::Payloads) { 0 } else { key[0] };
                let Some(table) = table_of(family, tag) else { continue };
                if value.len() > 1_000 || !seen.insert((family, tag)) {
                    continue;
                }
                let name = format!("{}-{tag:02x}", family.name());
                seeds.push((format!("value-{name}"), [&[table], &value[..]].concat()));
                if seeds.len() % 3 == 0 {
                    seeds.push((format!("key-{name}"), [&[0], &key[..]].concat()));
                }
                if seeds.len() % 2 == 0 {
                    let length = u16::try_from(key.len()).unwrap().to_be_bytes();
                    let head = [1, family as u8 - 1, length[0], length[1]];
                    seeds.push((format!("store-{name}"), [&head[..], &key, &value].concat()));
                }
            }
        }
    }
    seeds.truncate(38);
    seeds
}

/// Logs of steps, with bodies of the log's own commands and mutations between them.
pub(super) fn logs() -> Vec<(String, Vec<u8>)> {
    let mut seeds = Vec::new();
    for seed in 0..14_u8 {
        let mut chance = fastrand::Rng::with_seed(u64::from(seed));
        let (mut workload, founding) = Workload::new(&[u16::from(seed % 4); 20]);
        for record in &founding[1..] {
            workload.model.apply(record.position.broker_time_ms(), &record.frame);
        }
        let mut input = vec![seed | if seed % 2 == 0 { 0x40 } else { 0 }];
        let part = |bytes: &[u8]| [&u16::try_from(bytes.len()).unwrap().to_be_bytes(), bytes].concat();
        while input.len() < 2_200 {
            let run_ends = if chance.u8(..3) == 0 { 0x80 } else { 0 };
            let step = step(&mut chance, 14);
            let taken = workload.step(&step);
            match (chance.u8(..10), taken.map(|(record, _)| record)) {
                (0..6, _) | (_, None) => {
                    input.push(run_ends);
                    input.extend(step.what.to_be_bytes());
                    input.push(14);
                    input.extend(step.choices.iter().flat_map(|choice| choice.to_be_bytes()));
                }
                (6, Some(record)) => {
                    input.push(3 | run_ends);
                    input.extend(part(&record.frame));
                }
                (_, Some(record)) => match record::decode(&record.frame) {
                    Ok(LogRecord::Command(command)) => {
                        input.push(4 | run_ends);
                        input.push(u8::try_from(command.command_type().as_u32() - 1).unwrap());
                        input.push(chance.u8(..));
                        input.extend(part(&command.body_bytes));
                    }
                    Ok(LogRecord::MutationV2(mutation)) => {
                        let is_large =
                            matches!(&mutation.body, MutationBody::ShardControl(_)) && mutation.body_bytes.len() > 400;
                        if !is_large {
                            input.push(5 | run_ends);
                            input.push(u8::try_from(mutation.mutation_type().as_u32() - 1).unwrap());
                            input.extend(part(&mutation.body_bytes));
                        }
                    }
                    _ => input.extend([6 | run_ends, chance.u8(..), 0, chance.u8(..), chance.u8(..)]),
                },
            }
            if chance.u8(..6) == 0 {
                input.extend([7, chance.u8(..), chance.u8(..), chance.u8(..12)]);
            }
        }
        seeds.push((format!("log-{seed:02}"), input));
    }
    seeds
}
