//! Sizes, paces and deadlines of a worker. The binary fills them from its configuration.

use std::time::Duration;

use shard::schedule::lane::Load;
use shard::schedule::scheduler::SchedulerConfig;

/// How a worker runs its shards.
#[derive(Clone, Debug)]
pub struct WorkerConfig {
    /// The worker's name in metadata records.
    pub worker: String,
    /// The lane schedulers.
    pub scheduler: SchedulerConfig,
    /// What all shards of the worker may have under way together.
    pub load_max: Load,
    /// Records decided and committed together at most.
    pub run_records_max: usize,
    /// Bytes of frames after which a run is closed.
    pub run_bytes_max: usize,
    /// Owner records of one kind that may be on their way through the log at once. While they are, entries gather.
    pub records_in_flight_max: usize,
    /// Pause before anything is appended again after the log did not take a record, or could not say whether it did.
    pub append_retry_delay: Duration,
    /// Entries of one owner record at most; genesis may say less.
    pub entries_per_record_max: usize,
    /// From handing an attempt over until its outcome counts as unknown.
    pub send_deadline: Duration,
    /// From activation until attempts whose lane has not accounted for them count as unknown, and how long one try to open a
    /// session and account may take.
    pub recovery_deadline: Duration,
    /// Pause before a lane's session is opened again that could not be opened or did not last as long as this, doubled up to the
    /// next. One that lasted is opened again at once.
    pub lane_reopen_min: Duration,
    /// The longest such pause.
    pub lane_reopen_max: Duration,
    /// A fence is appended this often even when no deadline asks for it.
    pub fence_interval_max: Duration,
    /// No fence follows another sooner than this, unless a sweep is unfinished.
    pub fence_interval_min: Duration,
    /// Expiry keys visited by one fence; genesis may say less.
    pub expire_per_fence_max: u32,
    /// How often the log is told what it need not keep, and evidence what it may forget.
    pub release_interval: Duration,
    /// From the request to stop until what is under way is left to recovery.
    pub drain_deadline: Duration,
    /// Pause before a shard is acquired again after it was fenced.
    pub reacquire_pause: Duration,
    /// Results kept in memory for those who wait.
    pub verdicts_kept_max: usize,
    /// Callers that may wait for messages to end.
    pub end_watchers_max: usize,
}
