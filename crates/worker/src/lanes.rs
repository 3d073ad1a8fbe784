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
    Open {
        since: Duration,
    },
}

#[derive(Debug)]
struct Entry {
    session: Session,
    /// Sessions in a row that could not be opened or did not last.
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
        self.lanes.get(&lane_no).is_some_and(|entry| matches!(entry.session, Session::Open { .. }))
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
            Session::Open { .. } => {}
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
    pub(crate) fn opened(&mut self, lane_no: LaneNo, now: Duration) -> Vec<OpenAttempt> {
        if let Some(entry) = self.lanes.get_mut(&lane_no) {
            if entry.session == Session::Opening {
                self.opening -= 1;
            }
            entry.session = Session::Open { since: now };
            entry.detail.clear();
        }
        self.recovering.remove(&lane_no).unwrap_or_default()
    }

    /// A session could not be opened, or did not last: again after a growing pause.
    pub(crate) fn failed(&mut self, lane_no: LaneNo, error: &LaneError, now: Duration) {
        let failures = self.lanes.get(&lane_no).map_or(0, |entry| entry.failures);
        let doubled = 1_u32.checked_shl(failures).unwrap_or(u32::MAX);
        let pause = self.reopen_min.saturating_mul(doubled).min(self.reopen_max);
        self.close(lane_no, now + pause);
        self.note(lane_no, error, failures.saturating_add(1));
    }

    /// A session is over. One that lasted is opened again at once: sessions end on any doubt, and nothing but a new one ends
    /// that. One that did not last counts as one that could not be opened, or a lane would go round in circles.
    pub(crate) fn lost(&mut self, lane_no: LaneNo, error: &LaneError, now: Duration) {
        let session = self.lanes.get(&lane_no).map(|entry| entry.session);
        match session {
            Some(Session::Open { since }) if now.saturating_sub(since) >= self.reopen_min => {
                self.close(lane_no, now);
                self.note(lane_no, error, 0);
            }
            _ => self.failed(lane_no, error, now),
        }
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

#[cfg(test)]
mod tests {
    use protocol::code::StableCode;

    use super::*;

    const LANE: LaneNo = LaneNo(1);

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// A book of one lane whose session is to be opened, with pauses from one second to ten.
    fn book() -> LaneBook {
        LaneBook {
            reopen_min: seconds(1),
            reopen_max: seconds(10),
            recovery_until: seconds(30),
            lanes: BTreeMap::new(),
            to_open: BTreeSet::new(),
            opening: 0,
            recovering: BTreeMap::new(),
        }
    }

    fn error() -> LaneError {
        LaneError { code: StableCode::CapabilityUnavailable, detail: "no connection".to_owned() }
    }

    /// Opens the lane's session as soon as it may be: when that is.
    fn open(book: &mut LaneBook) -> Duration {
        let now = book.wake().expect("a lane to open");
        if let Some(before) = now.checked_sub(Duration::from_millis(1)) {
            assert_eq!(book.due_to_open(before), [], "not before");
        }
        assert_eq!(book.due_to_open(now), [LANE]);
        book.opened(LANE, now);
        now
    }

    #[test]
    fn a_session_that_lasted_is_opened_again_at_once() {
        let mut book = book();
        book.found(LANE);
        let mut now = open(&mut book);
        for _ in 0..5 {
            now += seconds(1);
            book.lost(LANE, &error(), now);
            assert_eq!((book.is_open(LANE), book.detail(LANE)), (false, "no connection"));
            assert_eq!(open(&mut book), now);
            assert_eq!((book.is_open(LANE), book.detail(LANE)), (true, ""));
        }
    }

    #[test]
    fn a_session_that_is_lost_right_away_waits_longer_each_time_until_one_lasts() {
        let mut book = book();
        book.found(LANE);
        let mut now = open(&mut book);
        let mut pauses = Vec::new();
        for _ in 0..6 {
            let lost_at = now + Duration::from_millis(999);
            book.lost(LANE, &error(), lost_at);
            now = open(&mut book);
            pauses.push((now - lost_at).as_secs());
        }
        assert_eq!(pauses, [1, 2, 4, 8, 10, 10]);
        now += seconds(1);
        book.lost(LANE, &error(), now);
        assert_eq!(open(&mut book), now);
        book.lost(LANE, &error(), now);
        assert_eq!(open(&mut book), now + seconds(1), "the count begins again");
    }

    #[test]
    fn one_that_cannot_be_opened_and_one_that_does_not_last_are_counted_together() {
        let mut book = book();
        book.found(LANE);
        let now = book.wake().expect("a lane to open");
        book.due_to_open(now);
        book.failed(LANE, &error(), now);
        let now = open(&mut book);
        assert_eq!(now, seconds(1));
        book.lost(LANE, &error(), now);
        let now = book.wake().expect("a lane to open");
        assert_eq!(now, seconds(1 + 2));
        book.due_to_open(now);
        book.failed(LANE, &error(), now);
        assert_eq!(open(&mut book), now + seconds(4));
    }

    #[test]
    fn a_rebound_lane_is_opened_once_and_at_once_wherever_it_was() {
        let mut book = book();
        book.found(LANE);
        let mut now = open(&mut book);
        for _ in 0..4 {
            book.lost(LANE, &error(), now);
            now = open(&mut book);
        }
        book.lost(LANE, &error(), now);
        // While it waits for the end of a pause, while it is being opened, and while it is open.
        book.rebound(LANE);
        assert_eq!(book.due_to_open(now), [LANE]);
        book.rebound(LANE);
        assert_eq!((book.due_to_open(now), book.opening), (vec![LANE], 1));
        book.opened(LANE, now);
        book.rebound(LANE);
        assert!(!book.is_open(LANE));
        assert_eq!(book.due_to_open(now), [LANE]);
        book.opened(LANE, now);
        assert_eq!((book.wake(), book.due_to_open(now + seconds(100))), (None, vec![]), "no pause is left over");
    }
}
