//! Who may act for a shard: one durable record for all that must change together, and an ephemeral lease for liveness.

use protocol::id::ShardId;
use serde::{Deserialize, Serialize};

use crate::cas::{Change, Record, RecordError, Records};

/// The one durable control record of a shard. Every change is one compare-and-set, so there is nothing to keep consistent
/// between records.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShardControl {
    /// Rises with every take-over; an owner's OWNER_EPOCH record carries it.
    pub epoch: u64,
    /// The worker that took the epoch.
    pub worker: String,
    /// The run of that worker, 32 hex digits.
    pub worker_run: String,
}

impl Record for ShardControl {
    const NAME: &'static str = "shard control";

    fn check_successor(&self, next: &ShardControl) -> Result<(), String> {
        if next.epoch <= self.epoch {
            return Err(format!("epoch {} does not follow {}", next.epoch, self.epoch));
        }
        Ok(())
    }
}

/// Ephemeral: lives as long as its owner's metadata session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OwnerLease {
    /// The epoch it is for.
    pub epoch: u64,
    /// The worker.
    pub worker: String,
    /// The run.
    pub worker_run: String,
}

impl Record for OwnerLease {
    const NAME: &'static str = "owner lease";

    fn check_successor(&self, _: &OwnerLease) -> Result<(), String> {
        Err("a lease is created and deleted, never changed".to_owned())
    }
}

/// Key of a shard's control record.
pub fn control_key(shard: ShardId) -> String {
    format!("/nereus/shards/{}/{}", shard.route, shard.partition)
}

/// Key of a shard's lease.
pub fn lease_key(shard: ShardId) -> String {
    format!("/nereus/leases/{}/{}", shard.route, shard.partition)
}

/// Takes the next epoch for a worker: one more than both the record's and the store's.
///
/// # Errors
/// [`RecordError`].
pub async fn take_epoch(
    records: &Records,
    shard: ShardId,
    worker: &str,
    worker_run: &str,
    stored_epoch: u64,
) -> Result<u64, RecordError> {
    records
        .change(&control_key(shard), |current: Option<&ShardControl>| {
            let epoch = current.map_or(0, |current| current.epoch).max(stored_epoch) + 1;
            let next = ShardControl { epoch, worker: worker.to_owned(), worker_run: worker_run.to_owned() };
            Ok(Change::Write(next, epoch))
        })
        .await
}
