//! Which lane sessions are open, being opened or waiting to be opened again, and which attempts wait for a lane's word.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ports::destination::{AttemptRef, LaneError};
use shard::query::OpenAttempt;
use shard::state::LaneNo;

use crate::config::WorkerConfig;
use crate::unsettled::attempt_ref;

/// Sessions that may be in the making at once.
const OPENING_MAX: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Session {
    /// To be opened at this time.
    Closed {
        open_at: Duration,
    },
    Opening,
    Open,
}

#[derive(Debug)]
struct Entry {
    session: Session,
    failures: u32,
    /// What the last failure said.
    detail: String,
}

/// The book of a shard's lane sessions.
#[derive(Debug)]
pub(crate) struct LaneBook {
    reopen_min: Duration,
    reopen_max: Duration,
    /// When attempts that still wait for their lane's word count as unknown.
    recovery_until: Duration,
    lanes: BTreeMap<LaneNo, Entry>,
    to_open: BTreeSet<(Duration, LaneNo)>,
    opening: usize,
    /// Attempts of earlier epochs that are publishing.
    recovering: BTreeMap<LaneNo, Vec<OpenAttempt>>,
}

impl LaneBook {
    /// Lanes with attempts to recover are opened first.
    pub(crate) fn new(
        config: &WorkerConfig,
        lanes: impl Iterator<Item = LaneNo>,
        recovering: BTreeMap<LaneNo, Vec<OpenAttempt>>,
        now: Duration,
    ) -> LaneBook {
        let mut book = LaneBook {
            reopen_min: config.lane_reopen_min,
            reopen_max: config.lane_reopen_max,
            recovery_until: now + config.recovery_deadline,
            lanes: BTreeMap::new(),
            to_open: BTreeSet::new(),
            opening: 0,
            recovering: BTreeMap::new(),
        };
        for lane_no in lanes {
            let first = recovering.contains_key(&lane_no);
            book.close(lane_no, if first { Duration::ZERO } else { now });
        }
        book.recovering = recovering;
        book
    }

    /// A lane was created, or changed.
    pub(crate) fn found(&mut self, lane_no: LaneNo) {
        if !self.lanes.contains_key(&lane_no) {
            self.close(lane_no, Duration::ZERO);
        }
    }

    /// The lane delivers to another topic: its session is over, and what the old topic refused says nothing.
    pub(crate) fn rebound(&mut self, lane_no: LaneNo) {
        self.close(lane_no, Duration::ZERO);
        if let Some(entry) = self.lanes.get_mut(&lane_no) {
            entry.failures = 0;
            entry.detail.clear();
        }
    }

    /// Whether the lane has a session to send through.
    pub(crate) fn is_open(&self, lane_no: LaneNo) -> bool {
        self.lanes.get(&lane_no).is_some_and(|entry| entry.session == Session::Open)
    }

    fn close(&mut self, lane_no: LaneNo, open_at: Duration) {
        let entry = self.lanes.entry(lane_no).or_insert(Entry {
            session: Session::Closed { open_at },
            failures: 0,
            detail: String::new(),
        });
        match entry.session {
            Session::Closed { open_at } => {
                self.to_open.remove(&(open_at, lane_no));
            }
            Session::Opening => self.opening -= 1,
            Session::Open => {}
        }
        entry.session = Session::Closed { open_at };
        self.to_open.insert((open_at, lane_no));
    }

    /// Lanes whose session should be opened now; they count as being opened from here on.
    pub(crate) fn due_to_open(&mut self, now: Duration) -> Vec<LaneNo> {
        let mut due = Vec::new();
        while self.opening < OPENING_MAX
            && let Some((open_at, lane_no)) = self.to_open.first().copied().filter(|(open_at, _)| *open_at <= now)
        {
            self.to_open.remove(&(open_at, lane_no));
            if let Some(entry) = self.lanes.get_mut(&lane_no) {
                entry.session = Session::Opening;
                self.opening += 1;
                due.push(lane_no);
            }
        }
        due
    }

    /// Attempts of earlier epochs that the lane must be asked about.
    pub(crate) fn recovering(&self, lane_no: LaneNo) -> Vec<OpenAttempt> {
        self.recovering.get(&lane_no).cloned().unwrap_or_default()
    }

    /// A session is open. Returns the attempts of earlier epochs it was asked about.
    pub(crate) fn opened(&mut self, lane_no: LaneNo) -> Vec<OpenAttempt> {
        if let Some(entry) = self.lanes.get_mut(&lane_no) {
            if entry.session == Session::Opening {
                self.opening -= 1;
            }
            entry.session = Session::Open;
            entry.failures = 0;
            entry.detail.clear();
        }
        self.recovering.remove(&lane_no).unwrap_or_default()
    }

    /// A session could not be opened: again after a growing pause.
    pub(crate) fn failed(&mut self, lane_no: LaneNo, error: &LaneError, now: Duration) {
        let failures = self.lanes.get(&lane_no).map_or(0, |entry| entry.failures);
        let doubled = 1_u32.checked_shl(failures).unwrap_or(u32::MAX);
        let pause = self.reopen_min.saturating_mul(doubled).min(self.reopen_max);
        self.close(lane_no, now + pause);
        self.note(lane_no, error, failures.saturating_add(1));
    }

    /// A session is over: again soon.
    pub(crate) fn lost(&mut self, lane_no: LaneNo, error: &LaneError, now: Duration) {
        self.close(lane_no, now + self.reopen_min);
        self.note(lane_no, error, 0);
    }

    fn note(&mut self, lane_no: LaneNo, error: &LaneError, failures: u32) {
        if let Some(entry) = self.lanes.get_mut(&lane_no) {
            entry.failures = failures;
            entry.detail.clone_from(&error.detail);
        }
    }

    /// Attempts whose lane did not speak for them in time.
    pub(crate) fn overdue_recoveries(&mut self, now: Duration) -> Vec<AttemptRef> {
        if now < self.recovery_until {
            return Vec::new();
        }
        std::mem::take(&mut self.recovering).into_values().flatten().map(|open| attempt_ref(&open)).collect()
    }

    /// What a lane's last failure said.
    pub(crate) fn detail(&self, lane_no: LaneNo) -> &str {
        self.lanes.get(&lane_no).map_or("", |entry| &entry.detail)
    }

    /// When there is a lane to open or to give up waiting for.
    pub(crate) fn wake(&self) -> Option<Duration> {
        let open_at = self.to_open.first().map(|(open_at, _)| *open_at).filter(|_| self.opening < OPENING_MAX);
        let recovery = (!self.recovering.is_empty()).then_some(self.recovery_until);
        open_at.into_iter().chain(recovery).min()
    }
}
