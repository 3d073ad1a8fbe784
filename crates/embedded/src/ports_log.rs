//! A partition of a route's topic as a shard's log.

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt};
use ports::log::{AppendError, Barrier, ReadError, ReadLimit, ShardLog, SourceRecord};
use protocol::id::RouteId;
use protocol::position::{EmbeddedPosition, SourcePosition};

use crate::append::AppendError as EngineAppendError;
use crate::partition::Partition;
use crate::read::{ReadError as EngineReadError, ReadLimit as EngineReadLimit};
use crate::retention::{Retention, TrimError};

/// What a log keeps below the position the worker allows to go: 1 GiB or 24 h, whichever is less.
const RETENTION_DEFAULT: Retention = Retention { bytes_max: 1 << 30, age_max: Duration::from_secs(24 * 60 * 60) };

/// A shard's log. Its positions carry the topic's id as the log's.
#[derive(Clone, Debug)]
pub struct EmbeddedLog {
    route: RouteId,
    partition: Partition,
    retention: Retention,
}

impl EmbeddedLog {
    /// The log of the shard that has this partition of the route's topic. Of what may go it keeps 1 GiB or 24 h, for
    /// stores that were lost.
    pub fn new(route: RouteId, partition: Partition) -> EmbeddedLog {
        EmbeddedLog { route, partition, retention: RETENTION_DEFAULT }
    }

    /// The same log with another retention.
    #[must_use]
    pub fn with_retention(self, retention: Retention) -> EmbeddedLog {
        EmbeddedLog { retention, ..self }
    }

    fn position(&self, offset: u64, append_time_ms: i64) -> SourcePosition {
        SourcePosition::Embedded(EmbeddedPosition {
            route: self.route,
            log: self.partition.topic_id(),
            partition: self.partition.index(),
            offset,
            append_time_ms,
        })
    }

    /// The offset of a position of this log.
    fn offset_of(&self, position: &SourcePosition) -> Result<u64, ReadError> {
        match position {
            SourcePosition::Embedded(found)
                if found.route == self.route
                    && found.log == self.partition.topic_id()
                    && found.partition == self.partition.index() =>
            {
                Ok(found.offset)
            }
            other => {
                let detail = format!("position {other:?} is not of log {:?}", self.position(0, 0));
                Err(ReadError::Gap { detail })
            }
        }
    }

    async fn read_from(self, next: u64, limit: ReadLimit) -> Result<Vec<SourceRecord>, ReadError> {
        let limit = EngineReadLimit { records_max: limit.records_max.max(1), bytes_max: limit.bytes_max.max(1) };
        loop {
            let run = self.partition.read(next, limit).map_err(read_error)?;
            if run.records.is_empty() {
                self.partition.wait_beyond(next).await.map_err(read_error)?;
                continue;
            }
            let records = run.records.into_iter().map(|record| SourceRecord {
                position: self.position(record.offset, record.append_time_ms),
                frame: record.value,
            });
            return Ok(records.collect());
        }
    }
}

impl ShardLog for EmbeddedLog {
    fn append(&self, frames: Vec<Bytes>) -> BoxFuture<'static, Result<Vec<SourcePosition>, AppendError>> {
        let count = frames.len() as u64;
        let log = self.clone();
        let appended = self.partition.append(frames);
        async move {
            let appended = appended.await.map_err(append_error)?;
            let offsets = appended.first_offset..appended.first_offset + count;
            Ok(offsets.map(|offset| log.position(offset, appended.append_time_ms)).collect())
        }
        .boxed()
    }

    fn read(
        &self,
        after: Option<&SourcePosition>,
        limit: ReadLimit,
    ) -> BoxFuture<'static, Result<Vec<SourceRecord>, ReadError>> {
        let next = match after {
            None => Ok(0),
            Some(position) => self.offset_of(position).map(|offset| offset.saturating_add(1)),
        };
        let log = self.clone();
        async move { log.read_from(next?, limit).await }.boxed()
    }

    fn barrier(&self) -> BoxFuture<'static, Result<Barrier, ReadError>> {
        let barrier = match self.partition.last() {
            None => Barrier::Empty,
            Some((offset, append_time_ms)) => Barrier::Through(self.position(offset, append_time_ms)),
        };
        std::future::ready(Ok(barrier)).boxed()
    }

    fn trim(&self, position: &SourcePosition) -> BoxFuture<'static, Result<(), ReadError>> {
        let offset = self.offset_of(position);
        let log = self.clone();
        async move {
            match log.partition.retain(log.retention, offset?).await {
                Ok(_) => Ok(()),
                Err(TrimError::BeyondEnd { below_offset, end }) => {
                    let detail = format!("offset {below_offset} was never in the log, which ends at {end}");
                    Err(ReadError::Gap { detail })
                }
                Err(error) => Err(ReadError::Unavailable { reason: error.to_string() }),
            }
        }
        .boxed()
    }
}

fn append_error(error: EngineAppendError) -> AppendError {
    match error {
        EngineAppendError::Unknown { reason } => AppendError::Unknown { reason },
        certain => AppendError::NotAppended { reason: certain.to_string() },
    }
}

fn read_error(error: EngineReadError) -> ReadError {
    match error {
        // The record that should come next was trimmed, or the log went backwards: never resume silently.
        EngineReadError::OffsetOutOfRange { .. } | EngineReadError::Corrupt { .. } => {
            ReadError::Gap { detail: error.to_string() }
        }
        EngineReadError::Closed { .. } | EngineReadError::Io { .. } => {
            ReadError::Unavailable { reason: error.to_string() }
        }
    }
}
