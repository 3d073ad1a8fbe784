//! What may be set for the engine.

use store::StoreResources;

/// Bounds of the engine. The defaults suit a machine of two cores.
#[derive(Clone, Debug)]
pub struct EmbeddedOptions {
    /// Cache, memtables and threads, shared with the shards' stores.
    pub resources: StoreResources,
    /// The id given to a data folder that is made now; one that exists keeps its own.
    pub new_incarnation: [u8; 16],
    /// The largest record, in bytes. Default 8 MiB.
    pub record_bytes_max: usize,
    /// Bytes of appends and metadata changes that may wait for the writer. Default 32 MiB; an append larger than that waits
    /// until it is alone.
    pub queue_bytes_max: usize,
    /// How many appends and changes may wait for the writer. Default 16,384.
    pub queue_count_max: usize,
    /// About how many bytes of appends one group commit takes. Default 8 MiB.
    pub group_bytes_max: usize,
    /// Memory for the newest records of all partitions together, from which readers at the tail are served. Default 64 MiB.
    pub tail_bytes_max: usize,
    /// Write-ahead log that is kept, and so read at the next open, in bytes. Default 192 MiB.
    pub log_bytes_max: u64,
    /// Events a metadata watch may fall behind before it is told to list again. Default 1,024.
    pub watch_events_max: usize,
}

impl EmbeddedOptions {
    /// The defaults on these resources.
    pub fn new(resources: StoreResources) -> EmbeddedOptions {
        EmbeddedOptions {
            resources,
            new_incarnation: [0; 16],
            record_bytes_max: 8 << 20,
            queue_bytes_max: 32 << 20,
            queue_count_max: 16 << 10,
            group_bytes_max: 8 << 20,
            tail_bytes_max: 64 << 20,
            log_bytes_max: 192 << 20,
            watch_events_max: 1_024,
        }
    }
}
