//! Stores that share the memory and the threads of a process.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use shard::store::{Batch, Family, Store};
use store::{ResourceOptions, RocksStore, StoreOptions, StoreResources};

use crate::common::{IDENTITY, INCARNATION, commit_row};

/// Commits of the store beside the storm.
const COMMITS: u32 = 2_000;
/// The storm is over by then, whatever it came to.
const STORM_BYTES_MAX: u64 = 4 << 30;

/// Batches of rows all over the key space, so that every table overlaps every other and compaction never catches up.
fn storm(store: &mut RocksStore, ends: &AtomicBool, slowed: &AtomicU64) {
    let mut random = fastrand::Rng::with_seed(91);
    let mut written = 0;
    while !ends.load(Ordering::Relaxed) && written < STORM_BYTES_MAX {
        let mut batch = Batch::default();
        for _ in 0..64 {
            let value: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(2_000).collect();
            batch.put(Family::Messages, random.u64(..).to_be_bytes().to_vec(), value);
        }
        written += 64 * 2_000;
        store.commit(batch).expect("commit");
        let stats = store.stats().expect("open");
        if stats.is_write_stopped || stats.delayed_write_rate > 0 {
            slowed.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[test]
fn a_store_that_compaction_is_behind_of_slows_down_no_other() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let scarce = ResourceOptions {
        cache_bytes_max: 32 << 20,
        memtable_bytes_max: 16 << 20,
        flush_threads: 1,
        compaction_threads: 1,
    };
    let resources = StoreResources::new(scarce).expect("they fit");
    let open = |name: &str, write_buffer_bytes_max: usize| {
        let options = StoreOptions { write_buffer_bytes_max, ..StoreOptions::default() };
        RocksStore::open(&folder.path().join(name), IDENTITY, INCARNATION, &resources, &options).expect("open")
    };
    let (mut stormy, mut calm) = (open("stormy", 1 << 20), open("calm", 64 << 20));
    let (ends, slowed) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let storming = scope.spawn(|| storm(&mut stormy, &ends, &slowed));
        let (mut commits, mut beside) = (0_u32, 0_u32);
        // Only commits beside a store that is slowed down count.
        while beside < COMMITS && !storming.is_finished() {
            let before = slowed.load(Ordering::Relaxed);
            commit_row(&mut calm, Family::Messages, &commits.to_be_bytes(), vec![7; 500]);
            commits += 1;
            beside += u32::from(before > 0);
            let stats = calm.stats().expect("open");
            assert!(!stats.is_write_stopped, "writes are stopped after {commits} commits");
            assert_eq!(stats.delayed_write_rate, 0, "writes are slowed down after {commits} commits");
        }
        ends.store(true, Ordering::Relaxed);
        assert_eq!(beside, COMMITS, "compaction was never behind, after {commits} commits");
    });
}
