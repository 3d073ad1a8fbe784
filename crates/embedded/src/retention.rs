//! Letting old records go.

use std::ops::Range;
use std::time::Duration;

use crate::core::Core;
use crate::database::{Database, DatabaseError};
use crate::partition::PartitionState;
use crate::read::ReadError;
use crate::run::Run;

/// What is kept of the records that may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// At most about this many record bytes, the newest ones.
    pub bytes_max: u64,
    /// Nothing older than this.
    pub age_max: Duration,
}

/// A trim without success.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TrimError {
    /// The offset is behind the next record's.
    #[error("cannot trim below offset {below_offset}, the partition ends at {end}")]
    BeyondEnd {
        /// What was asked for.
        below_offset: u64,
        /// The offset the next record will have.
        end: u64,
    },
    /// Certainly not trimmed: the engine is closed.
    #[error("not trimmed, the engine is closed: {reason}")]
    Closed {
        /// Why it is closed.
        reason: String,
    },
    /// The start may have moved or not; trimming again is harmless.
    #[error("trim has an unknown outcome: {reason}")]
    Unknown {
        /// What happened.
        reason: String,
    },
    /// How far to trim could not be found out.
    #[error("not trimmed: {0}")]
    Read(ReadError),
}

/// The offset below which `retention` wants nothing kept; at most `below_offset`.
///
/// Size and age both grow towards older records, so the boundary is found by bisection: a few dozen rows are read, whatever
/// the partition holds.
pub(crate) fn target(
    core: &Core,
    partition: &PartitionState,
    retention: Retention,
    below_offset: u64,
) -> Result<u64, TrimError> {
    let (start, end) = {
        let view = partition.view();
        (view.start, view.end)
    };
    if below_offset > end {
        return Err(TrimError::BeyondEnd { below_offset, end });
    }
    if below_offset <= start {
        return Ok(start);
    }
    match boundary(core, partition, retention, start..below_offset) {
        // A trim that ran meanwhile explains whatever was missing.
        Err(TrimError::Read(_)) if partition.view().start > start => Ok(partition.view().start),
        found => found,
    }
}

/// The first offset in `range` that is kept; the range's end when none is.
fn boundary(
    core: &Core,
    partition: &PartitionState,
    retention: Retention,
    range: Range<u64>,
) -> Result<u64, TrimError> {
    let inside = core.gate.enter();
    let database = inside.resource().map_err(|reason| TrimError::Closed { reason: reason.to_owned() })?;
    let age_ms_max = i64::try_from(retention.age_max.as_millis()).unwrap_or(i64::MAX);
    let oldest_ms = (core.append_time)().saturating_sub(age_ms_max);
    let last = run_at(database, partition, range.end - 1)?;
    let is_kept = |run: &Run| {
        last.bytes_before().saturating_sub(run.bytes_before()) + last.record_bytes() <= retention.bytes_max
            && run.append_time_ms() >= oldest_ms
    };
    let (mut low, mut high) = (range.start, range.end);
    while low < high {
        let run = run_at(database, partition, low.midpoint(high))?;
        if is_kept(&run) {
            high = run.first_offset().max(low);
        } else {
            low = run.end_offset().min(high);
        }
    }
    Ok(low)
}

fn run_at(database: &Database, partition: &PartitionState, offset: u64) -> Result<Run, TrimError> {
    let mut found = None;
    let read = database.runs(partition.table, partition.key, offset, |run| {
        found = Some(run);
        Ok(false)
    });
    read.map_err(|error| TrimError::Read(error.into()))?;
    found.filter(|run| run.first_offset() <= offset).ok_or_else(|| {
        let detail = format!("nothing is stored at offset {offset}");
        TrimError::Read(DatabaseError::Corrupt(detail).into())
    })
}
