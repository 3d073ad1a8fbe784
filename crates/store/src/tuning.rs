//! What each column family is asked to be good at.
//!
//! The numbers were chosen with `examples/commit_cost.rs`, which plays the life of messages and prints CPU per key.

use rocksdb::{BlockBasedOptions, ColumnFamilyDescriptor, DBCompressionType, Options};
use shard::store::Family;

use crate::end_filter::{EndFilterFactory, ReleasedThrough};
use crate::resources::StoreResources;
use crate::rocks::StoreOptions;

/// RocksDB's own choice of zstd's window.
const WINDOW_BITS_DEFAULT: i32 = -14;
/// Tombstones are counted over a whole table, not over a window of it.
const NO_WINDOW: usize = 0;

/// The descriptors of every family.
pub(crate) fn families(
    resources: &StoreResources,
    options: &StoreOptions,
    released_through: &ReleasedThrough,
) -> Vec<ColumnFamilyDescriptor> {
    let tuned = |family| family_options(family, resources, options, released_through);
    Family::ALL.into_iter().map(|family| ColumnFamilyDescriptor::new(family.name(), tuned(family))).collect()
}

fn family_options(
    family: Family,
    resources: &StoreResources,
    options: &StoreOptions,
    released_through: &ReleasedThrough,
) -> Options {
    let mut tuned = Options::default();
    tuned.set_write_buffer_size(options.write_buffer_bytes_max);
    tuned.set_max_write_buffer_number(4);
    tuned.set_arena_block_size(128 << 10);
    // Index and filter of a table are read and cached whole, which makes a lookup a quarter cheaper than in pieces; small
    // tables keep those units small (about 300 KiB).
    tuned.set_target_file_size_base(32 << 20);
    tuned.set_level_compaction_dynamic_level_bytes(true);
    tuned.set_compression_type(DBCompressionType::Lz4);
    tuned.set_bottommost_compression_type(DBCompressionType::Zstd);
    tuned.set_bottommost_compression_options(WINDOW_BITS_DEFAULT, 1, 0, 0, true);
    tuned.set_periodic_compaction_seconds(options.periodic_compaction.as_secs());
    tuned.set_compaction_filter_factory(EndFilterFactory { released_through: released_through.clone() });

    let mut blocks = BlockBasedOptions::default();
    blocks.set_block_cache(resources.cache());
    blocks.set_format_version(6);
    blocks.set_block_size(8 << 10);
    // Indexes and filters live in the bounded cache, too.
    blocks.set_cache_index_and_filter_blocks(true);
    blocks.set_pin_l0_filter_and_index_blocks_in_cache(true);
    match family {
        Family::Messages | Family::Payloads | Family::Dedupe => {
            point_lookups(&mut tuned, &mut blocks);
            if family == Family::Payloads {
                blobs(&mut tuned);
            }
        }
        Family::Timeline | Family::Open | Family::History | Family::Meta => queue(&mut tuned),
    }
    tuned.set_block_based_table_factory(&blocks);
    tuned
}

/// Large families read by exact key, and asked for keys that are not there: a new command must not be found.
fn point_lookups(tuned: &mut Options, blocks: &mut BlockBasedOptions) {
    blocks.set_bloom_filter(10.0, false);
    blocks.set_whole_key_filtering(true);
    blocks.set_optimize_filters_for_memory(true);
    tuned.set_memtable_whole_key_filtering(true);
    // A third of a mebibyte: larger ones cost more in cache misses when rows are put than they save when rows are read.
    tuned.set_memtable_prefix_bloom_ratio(0.005);
}

/// Payloads from 1 KiB up are written to blob files, instead of again at every level. What still lives in the oldest quarter
/// of the files is copied to new ones when its key is compacted, and files of which half is garbage are compacted for it.
fn blobs(tuned: &mut Options) {
    tuned.set_enable_blob_files(true);
    tuned.set_min_blob_size(1 << 10);
    tuned.set_blob_compression_type(DBCompressionType::Lz4);
    tuned.set_enable_blob_gc(true);
    tuned.set_blob_gc_age_cutoff(0.25);
    tuned.set_blob_gc_force_threshold(0.5);
}

/// Small families whose rows come and go. A table that is mostly tombstones is compacted at once, so that a scan does not
/// walk over what was there.
fn queue(tuned: &mut Options) {
    tuned.add_compact_on_deletion_collector_factory(NO_WINDOW, 0, 0.6);
}
