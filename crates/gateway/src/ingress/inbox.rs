//! Records of one partition between the session that reads them and the life that carries them out.
//!
//! A partition whose shards do not answer must not hold up the others, so the session never waits for room here: when there is
//! enough, it is told to read the partition no more, and when there is room again, to go on.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ports::source::SourceRecord;
use tokio::sync::Notify;

/// Records of a run at most.
pub(super) const RUN_RECORDS_MAX: usize = 500;
/// Bytes after which a run takes no more records.
pub(super) const RUN_BYTES_MAX: usize = 1 << 20;
/// Runs that wait before the partition is read no more.
const RUNS_WAITING_MAX: usize = 2;
/// How often records may come that were on their way when reading was stopped, before the session is given up.
const LATE_MAX: u32 = 64;
/// What a record takes besides its bytes.
const RECORD_BYTES: usize = 64;

/// What is to be done about a partition whose records came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pushed {
    /// There is room for more.
    Fits,
    /// Read it no more until there is.
    Enough,
    /// It was read on although it should not have been.
    TooMuch,
}

/// The records that wait.
#[derive(Default)]
pub(super) struct Inbox {
    waiting: Mutex<Waiting>,
    arrived: Notify,
}

#[derive(Default)]
struct Waiting {
    records: VecDeque<SourceRecord>,
    bytes: usize,
    /// The offset behind the last record that came.
    next: u64,
    is_stopped: bool,
    /// How often records came since.
    late: u32,
}

impl Waiting {
    fn runs(&self) -> usize {
        (self.records.len() / RUN_RECORDS_MAX).max(self.bytes / RUN_BYTES_MAX)
    }
}

impl Inbox {
    /// Takes records that came. Those that came before are left out.
    pub(super) fn push(&self, records: Vec<SourceRecord>) -> Pushed {
        let mut waiting = self.lock();
        for record in records {
            if record.offset < waiting.next {
                continue;
            }
            waiting.next = record.offset.saturating_add(1);
            waiting.bytes += bytes_of(&record);
            waiting.records.push_back(record);
        }
        let pushed = if !waiting.is_stopped {
            waiting.is_stopped = waiting.runs() >= RUNS_WAITING_MAX;
            waiting.late = 0;
            if waiting.is_stopped { Pushed::Enough } else { Pushed::Fits }
        } else {
            waiting.late += 1;
            if waiting.late > LATE_MAX { Pushed::TooMuch } else { Pushed::Fits }
        };
        drop(waiting);
        self.arrived.notify_one();
        pushed
    }

    /// Waits until there is a record.
    pub(super) async fn ready(&self) {
        while self.is_empty() {
            self.arrived.notified().await;
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lock().records.is_empty()
    }

    /// The records of the next run, none when none wait.
    pub(super) fn take(&self) -> Vec<SourceRecord> {
        let mut waiting = self.lock();
        let (mut records, mut bytes) = (Vec::new(), 0);
        while records.len() < RUN_RECORDS_MAX && bytes < RUN_BYTES_MAX {
            let Some(record) = waiting.records.pop_front() else { break };
            bytes += bytes_of(&record);
            records.push(record);
        }
        waiting.bytes -= bytes;
        records
    }

    /// Where reading should go on, if it was stopped and there is room again.
    pub(super) fn resume_at(&self) -> Option<u64> {
        let waiting = self.lock();
        (waiting.is_stopped && waiting.runs() < RUNS_WAITING_MAX).then_some(waiting.next)
    }

    /// Reading goes on.
    pub(super) fn resumed(&self) {
        self.lock().is_stopped = false;
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn bytes_of(record: &SourceRecord) -> usize {
    let part = |part: &Option<bytes::Bytes>| part.as_ref().map_or(0, bytes::Bytes::len);
    let headers: usize =
        record.headers.iter().map(|header| header.name.len() + part(&header.value) + RECORD_BYTES).sum();
    part(&record.key) + part(&record.value) + headers + RECORD_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(offsets: impl IntoIterator<Item = u64>, bytes: usize) -> Vec<SourceRecord> {
        let record = |offset| SourceRecord {
            offset,
            timestamp_ms: None,
            key: None,
            value: Some(vec![0; bytes].into()),
            headers: Vec::new(),
        };
        offsets.into_iter().map(record).collect()
    }

    fn offsets(records: &[SourceRecord]) -> Vec<u64> {
        records.iter().map(|record| record.offset).collect()
    }

    #[test]
    fn a_run_is_bounded_by_records_and_by_bytes() {
        let inbox = Inbox::default();
        assert_eq!(inbox.push(records(0..501, 1)), Pushed::Fits);
        assert_eq!((inbox.take().len(), inbox.take().len(), inbox.take().len()), (500, 1, 0));
        inbox.push(records(600..603, 600_000));
        assert_eq!((offsets(&inbox.take()), offsets(&inbox.take())), (vec![600, 601], vec![602]));
        assert!(inbox.is_empty());
    }

    #[test]
    fn reading_stops_when_there_is_enough_and_goes_on_right_behind_it() {
        let inbox = Inbox::default();
        assert_eq!(inbox.push(records(0..999, 1)), Pushed::Fits);
        assert_eq!(inbox.push(records(1_000..1_001, 1)), Pushed::Enough);
        // What is on its way comes all the same, and is asked to stop only once.
        assert_eq!(inbox.push(records(1_005..1_006, 1)), Pushed::Fits);
        assert_eq!(inbox.resume_at(), None);
        inbox.take();
        assert_eq!(inbox.resume_at(), Some(1_006));
        inbox.resumed();
        assert_eq!(inbox.resume_at(), None);
    }

    #[test]
    fn a_session_that_is_not_to_be_stopped_is_given_up() {
        let inbox = Inbox::default();
        // However large one batch is.
        assert_eq!(inbox.push(records(0..10_000, 1)), Pushed::Enough);
        for late in 0..64 {
            assert_eq!(inbox.push(records(10_000 + late..10_001 + late, 1)), Pushed::Fits);
        }
        assert_eq!(inbox.push(records(20_000..20_001, 1)), Pushed::TooMuch);
    }

    #[test]
    fn what_came_before_does_not_come_again() {
        let inbox = Inbox::default();
        inbox.push(records([5, 7], 1));
        inbox.push(records([6, 7, 8], 1));
        assert_eq!(offsets(&inbox.take()), [5, 7, 8]);
    }
}
