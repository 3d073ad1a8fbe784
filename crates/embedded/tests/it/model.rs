//! Appends, reads, trims and restarts against a model that is a vector.

use std::path::Path;

use bytes::Bytes;
use embedded::{Embedded, ReadError, ReadLimit};
use proptest::prelude::*;

use crate::common::{Clock, id_of, open_with, options};

const PARTITIONS: u32 = 3;

#[derive(Clone, Debug)]
enum Step {
    /// Some appends that are queued together.
    Append(Vec<(u32, Vec<usize>)>),
    Read {
        partition: u32,
        offset: u64,
        records_max: usize,
        bytes_max: usize,
    },
    Trim {
        partition: u32,
        below: u64,
    },
    Flush,
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    let append = (0..PARTITIONS, prop::collection::vec(prop_oneof![9 => 0..300_usize, 1 => 0..400_000_usize], 1..8));
    prop_oneof![
        6 => prop::collection::vec(append, 1..4).prop_map(Step::Append),
        6 => (0..PARTITIONS, 0..60_u64, 0..30_usize, 0..5_000_usize).prop_map(|(partition, offset, records_max, bytes_max)| {
            Step::Read { partition, offset, records_max, bytes_max }
        }),
        2 => (0..PARTITIONS, 0..50_u64).prop_map(|(partition, below)| Step::Trim { partition, below }),
        1 => Just(Step::Flush),
        1 => Just(Step::Reopen),
    ]
}

/// What a partition should hold.
#[derive(Default)]
struct Model {
    start: u64,
    records: Vec<Bytes>,
}

impl Model {
    fn end(&self) -> u64 {
        self.records.len() as u64
    }

    fn read(&self, offset: u64, limit: ReadLimit) -> Result<Vec<Bytes>, ReadError> {
        if offset < self.start || offset > self.end() {
            return Err(ReadError::OffsetOutOfRange { offset, start: self.start, end: self.end() });
        }
        let mut found = Vec::new();
        let mut byte_count = 0;
        for record in &self.records[usize::try_from(offset).expect("small")..] {
            if found.len() >= limit.records_max || byte_count >= limit.bytes_max {
                break;
            }
            byte_count += record.len();
            found.push(record.clone());
        }
        Ok(found)
    }
}

fn open(folder: &Path) -> Embedded {
    let mut options = options();
    // Small enough that some reads find memory, some disk.
    options.tail_bytes_max = 3_000;
    open_with(folder, options, &Clock::at(1)).expect("open")
}

async fn play(folder: &Path, steps: Vec<Step>) -> Result<(), TestCaseError> {
    let mut engine = open(folder);
    let mut topic = engine.create_topic("t", PARTITIONS, id_of("t")).await.expect("created");
    let mut models: Vec<Model> = (0..PARTITIONS).map(|_| Model::default()).collect();
    let mut written = 0_u64;
    for step in steps {
        match step {
            Step::Append(appends) => {
                let mut futures = Vec::new();
                for (partition, sizes) in appends {
                    let model = &mut models[partition as usize];
                    let first_offset = model.end();
                    let values: Vec<Bytes> = sizes
                        .iter()
                        .map(|size| {
                            written += 1;
                            written.to_be_bytes().into_iter().cycle().take(*size).collect()
                        })
                        .collect();
                    model.records.extend(values.clone());
                    futures.push((first_offset, topic.partition(partition).expect("there").append(values)));
                }
                for (first_offset, append) in futures {
                    prop_assert_eq!(append.await.expect("appended").first_offset, first_offset);
                }
            }
            Step::Read { partition, offset, records_max, bytes_max } => {
                let limit = ReadLimit { records_max, bytes_max };
                let handle = topic.partition(partition).expect("there");
                let found = handle.read(offset, limit).map(|run| {
                    assert!(run.records.iter().zip(offset..).all(|(record, offset)| record.offset == offset));
                    run.records.into_iter().map(|record| record.value).collect::<Vec<_>>()
                });
                prop_assert_eq!(found, models[partition as usize].read(offset, limit));
            }
            Step::Trim { partition, below } => {
                let model = &mut models[partition as usize];
                let trimmed = topic.partition(partition).expect("there").trim(below).await;
                if below > model.end() {
                    prop_assert!(trimmed.is_err());
                } else {
                    model.start = model.start.max(below);
                    prop_assert_eq!(trimmed, Ok(model.start));
                }
            }
            Step::Flush => engine.flush().expect("flush"),
            Step::Reopen => {
                engine.close();
                engine = open(folder);
                topic = engine.topic("t").expect("there");
            }
        }
        for (partition, model) in (0..).zip(&models) {
            let handle = topic.partition(partition).expect("there");
            prop_assert_eq!((handle.start_offset(), handle.end_offset()), (model.start, model.end()));
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn a_partition_is_a_vector_with_a_start(steps in prop::collection::vec(step(), 1..40)) {
        let folder = tempfile::tempdir().expect("temporary folder");
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(play(folder.path(), steps))?;
    }
}
