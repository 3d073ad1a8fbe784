//! An engine in a temporary folder, with a clock that the test owns.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use bytes::Bytes;
use embedded::{Embedded, EmbeddedOptions, OpenError, Partition, ReadError, ReadLimit, Record};
use store::{ResourceOptions, StoreResources};

pub(crate) const ALL: ReadLimit = ReadLimit { records_max: usize::MAX, bytes_max: usize::MAX };

/// A clock that stands until it is set.
#[derive(Clone, Debug)]
pub(crate) struct Clock(Arc<AtomicI64>);

impl Clock {
    pub(crate) fn at(now_ms: i64) -> Clock {
        Clock(Arc::new(AtomicI64::new(now_ms)))
    }

    pub(crate) fn set(&self, now_ms: i64) {
        self.0.store(now_ms, Ordering::Relaxed);
    }
}

pub(crate) fn options() -> EmbeddedOptions {
    let options =
        ResourceOptions { cache_bytes_max: 64 << 20, memtable_bytes_max: 32 << 20, ..ResourceOptions::default() };
    EmbeddedOptions::new(StoreResources::new(options).expect("they fit"))
}

pub(crate) fn open_with(folder: &Path, options: EmbeddedOptions, clock: &Clock) -> Result<Embedded, OpenError> {
    let clock = clock.clone();
    Embedded::open(folder, options, Arc::new(move || clock.0.load(Ordering::Relaxed)))
}

pub(crate) fn open(folder: &Path) -> Embedded {
    open_with(folder, options(), &Clock::at(1_000)).expect("open")
}

pub(crate) async fn partition(engine: &Embedded, topic: &str) -> Partition {
    let topic = engine.create_topic(topic, 1, id_of(topic)).await.expect("created");
    topic.partition(0).expect("there is one")
}

pub(crate) fn id_of(name: &str) -> [u8; 16] {
    let mut id = [0; 16];
    for (byte, place) in name.bytes().zip(id.iter_mut()) {
        *place = byte;
    }
    id
}

pub(crate) fn records(values: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Vec<Bytes> {
    values.into_iter().map(|value| Bytes::copy_from_slice(value.as_ref())).collect()
}

pub(crate) fn values(records: &[Record]) -> Vec<Bytes> {
    records.iter().map(|record| record.value.clone()).collect()
}

/// Everything from `offset` on.
pub(crate) fn read_all(partition: &Partition, offset: u64) -> Result<Vec<Record>, ReadError> {
    Ok(partition.read(offset, ALL)?.records)
}

/// The folder as it stands on disk: what a killed process leaves.
pub(crate) fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("folder");
    for entry in fs::read_dir(from).expect("folder") {
        let entry = entry.expect("entry");
        let target = to.join(entry.file_name());
        if entry.file_type().expect("type").is_dir() {
            copy_folder(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).expect("copied");
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "a test of concurrency makes its own tasks")]
pub(crate) fn spawn<T: Send + 'static>(task: impl Future<Output = T> + Send + 'static) -> tokio::task::JoinHandle<T> {
    tokio::spawn(task)
}
