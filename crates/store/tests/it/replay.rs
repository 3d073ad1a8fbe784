//! Replay equality on RocksDB: the same log gives the state that the store in memory has, with restarts, checkpoints and
//! physical releases between.

use std::fs;

use proptest::prelude::*;
use shard::commit::Shard;
use store::RocksStore;
use tempfile::TempDir;
use testkit::log::replay::{Disk, Expected, replay};
use testkit::log::workload::{RandomLog, Step};

use crate::common;

/// A folder that outlives its store.
struct Folder(TempDir);

impl Folder {
    fn new() -> Folder {
        Folder(tempfile::tempdir().expect("a temporary folder"))
    }

    fn open(&self) -> RocksStore {
        common::open(&self.0.path().join("store")).expect("its own folder opens")
    }
}

impl Disk for Folder {
    type Store = RocksStore;

    fn open(&self) -> RocksStore {
        Folder::open(self)
    }

    fn fork(&self) -> Folder {
        let fork = Folder::new();
        let (from, to) = (self.0.path().join("store"), fork.0.path().join("store"));
        fs::create_dir(&to).expect("a folder");
        let store = self.open();
        fs::copy(from.join("FORMAT"), to.join("FORMAT")).expect("copied");
        store.checkpoint(&to.join("db")).expect("a checkpoint");
        store.close();
        fork
    }

    fn release(shard: &mut Shard<RocksStore>) {
        shard.release_ended();
        shard.store().compact().expect("the store answers");
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = (any::<u16>(), prop::collection::vec(any::<u16>(), 0..24));
    prop::collection::vec(step.prop_map(|(what, choices)| Step { what, choices }), 40..120)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_log_gives_on_disk_the_state_it_gives_in_memory(
        setup in prop::collection::vec(any::<u16>(), 20),
        steps in steps(),
        course in prop::collection::vec(any::<u16>(), 200),
    ) {
        let log = RandomLog::new(&setup, &steps);
        replay(&Folder::new(), &log, &Expected::new(&log), &course);
    }
}
