//! The part of a lane's timeline that is in memory.
//!
//! A [`DueWindow`] holds the waiting keys of the next few seconds, at most a given number of them, so memory does not grow with
//! what is pending. It knows up to which key it is complete and a lower bound of what stands behind, and is refilled by reading
//! the timeline from there.

use std::collections::BTreeMap;

use crate::state::MessageUuid;
use crate::state::keys::timeline::DueKey;

/// A message that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The message.
    pub message: MessageUuid,
    /// Its generation.
    pub generation: u32,
    /// Its cost to the lane scheduler.
    pub payload_bytes: u32,
}

/// A bounded, ordered window over one lane's DUE keys.
#[derive(Clone, Debug)]
pub struct DueWindow {
    entries: BTreeMap<DueKey, Waiting>,
    /// Every waiting key below this is in `entries`, or was taken from it.
    complete_below: DueKey,
    /// No waiting key stands at or behind `complete_below` and below this; `None` when none stands there at all.
    next_beyond: Option<DueKey>,
}

impl DueWindow {
    /// A window that knows nothing yet of a lane whose keys all stand at or behind `from`.
    pub fn unread(from: DueKey) -> DueWindow {
        DueWindow { entries: BTreeMap::new(), complete_below: from, next_beyond: Some(from) }
    }

    /// A window of a lane that has no waiting key yet.
    pub fn empty() -> DueWindow {
        DueWindow { entries: BTreeMap::new(), complete_below: DueKey::MIN, next_beyond: None }
    }

    /// Takes note of a waiting key. When the window is full, the latest key leaves memory.
    pub fn insert(&mut self, key: DueKey, waiting: Waiting, entries_max: usize) {
        if key >= self.complete_below {
            self.next_beyond = Some(self.next_beyond.map_or(key, |next| next.min(key)));
            return;
        }
        self.entries.insert(key, waiting);
        if self.entries.len() > entries_max
            && let Some((latest, _)) = self.entries.pop_last()
        {
            self.complete_below = latest;
            self.next_beyond = Some(latest);
        }
    }

    /// Forgets a key that no longer waits. A key that is not in memory is gone from the timeline, so nothing finds it again.
    pub fn remove(&mut self, key: DueKey) -> Option<Waiting> {
        self.entries.remove(&key)
    }

    /// The first key in memory.
    pub fn first(&self) -> Option<(DueKey, Waiting)> {
        self.entries.first_key_value().map(|(key, waiting)| (*key, *waiting))
    }

    /// Takes the first key out of memory, for a claim.
    pub fn pop_first(&mut self) -> Option<(DueKey, Waiting)> {
        self.entries.pop_first()
    }

    /// How many keys are in memory.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether no key is in memory.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether nothing waits in the lane at all, in memory or behind.
    pub fn is_exhausted(&self) -> bool {
        self.entries.is_empty() && self.next_beyond.is_none()
    }

    /// From where the timeline must be read next, if something may stand there.
    pub fn next_beyond(&self) -> Option<DueKey> {
        self.next_beyond
    }

    /// A time before which nothing in this lane waits.
    pub fn earliest_ms(&self) -> Option<i64> {
        let in_memory = self.entries.first_key_value().map(|(key, _)| key.eligible_at_ms);
        let beyond = self.next_beyond.map(|key| key.eligible_at_ms);
        in_memory.into_iter().chain(beyond).min()
    }

    /// Takes in a page of the timeline that was read from [`DueWindow::next_beyond`], ascending. Keys that wait beyond
    /// `horizon_ms` and keys that find the window full stay out of memory; `is_last` says that the page ends where the lane
    /// ends.
    pub fn fill(
        &mut self,
        page: impl IntoIterator<Item = (DueKey, Waiting)>,
        horizon_ms: i64,
        is_last: bool,
        entries_max: usize,
    ) {
        let mut last = None;
        for (key, waiting) in page {
            if key.eligible_at_ms > horizon_ms || self.entries.len() >= entries_max {
                self.complete_below = key;
                self.next_beyond = Some(key);
                return;
            }
            self.entries.insert(key, waiting);
            last = Some(key);
        }
        if is_last {
            // Complete up to the horizon and no further, so that later insertions far ahead stay out of memory.
            let horizon = DueKey { eligible_at_ms: horizon_ms, ..DueKey::MIN }.next_millisecond();
            self.complete_below = self.complete_below.max(horizon).max(last.map_or(DueKey::MIN, DueKey::successor));
            self.next_beyond = None;
        } else if let Some(last) = last {
            self.complete_below = last.successor();
            self.next_beyond = Some(last.successor());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::state::Seq;

    const ENTRIES_MAX: usize = 8;
    const PAGE_LENGTH: usize = 4;

    fn waiting(seq: u64) -> Waiting {
        Waiting { message: MessageUuid::from_parts(seq, [0; 10]).expect("fits"), generation: 0, payload_bytes: 1 }
    }

    /// A lane: what waits in its timeline, and the window over it.
    struct Lane {
        timeline: BTreeSet<DueKey>,
        window: DueWindow,
    }

    impl Lane {
        fn page(&mut self, horizon_ms: i64) {
            let Some(from) = self.window.next_beyond() else { return };
            let page: Vec<_> =
                self.timeline.range(from..).take(PAGE_LENGTH).map(|key| (*key, waiting(key.seq.0))).collect();
            let is_last = page.len() < PAGE_LENGTH;
            self.window.fill(page, horizon_ms, is_last, ENTRIES_MAX);
        }

        /// Everything due is taken in order, paging whenever memory has nothing due while something may stand behind.
        fn take_due(&mut self, now_ms: i64) -> Vec<DueKey> {
            let mut taken = Vec::new();
            loop {
                match self.window.first() {
                    Some((key, _)) if key.eligible_at_ms <= now_ms => {
                        self.window.pop_first();
                        self.timeline.remove(&key);
                        taken.push(key);
                    }
                    _ => match self.window.next_beyond() {
                        Some(next) if next.eligible_at_ms <= now_ms => self.page(now_ms + 5),
                        _ => return taken,
                    },
                }
            }
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Insert(i64),
        Remove(prop::sample::Index),
        Page(i64),
        Take(i64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0..60_i64).prop_map(Step::Insert),
            1 => any::<prop::sample::Index>().prop_map(Step::Remove),
            1 => (0..20_i64).prop_map(Step::Page),
            2 => (0..6_i64).prop_map(Step::Take),
        ]
    }

    proptest! {
        /// Memory and timeline together never lose a key, never repeat one, and give what is due in timeline order.
        #[test]
        fn nothing_due_is_missed(initial in prop::collection::vec(0..60_i64, 0..40), steps in prop::collection::vec(step(), 0..80)) {
            let key = |eligible_at_ms, seq| DueKey { eligible_at_ms, seq: Seq(seq) };
            let timeline: BTreeSet<DueKey> = initial.iter().zip(0..).map(|(at, seq)| key(*at, seq)).collect();
            let mut lane = Lane { timeline, window: DueWindow::unread(DueKey::MIN) };
            let (mut now_ms, mut seq) = (0, 1_000);
            for step in steps {
                match step {
                    Step::Insert(ahead_ms) => {
                        seq += 1;
                        let key = key(now_ms + ahead_ms, seq);
                        lane.timeline.insert(key);
                        lane.window.insert(key, waiting(seq), ENTRIES_MAX);
                    }
                    Step::Remove(index) if !lane.timeline.is_empty() => {
                        let key = *index.get(&lane.timeline.iter().copied().collect::<Vec<_>>());
                        lane.timeline.remove(&key);
                        lane.window.remove(key);
                    }
                    Step::Remove(_) => {}
                    Step::Page(ahead_ms) => lane.page(now_ms + ahead_ms),
                    Step::Take(step_ms) => {
                        now_ms += step_ms;
                        let due: Vec<DueKey> = lane.timeline.iter().copied().take_while(|key| key.eligible_at_ms <= now_ms).collect();
                        prop_assert_eq!(lane.take_due(now_ms), due);
                    }
                }
                prop_assert!(lane.window.len() <= ENTRIES_MAX);
                let earliest = lane.timeline.first().map(|key| key.eligible_at_ms);
                if let Some(earliest_ms) = earliest {
                    prop_assert!(lane.window.earliest_ms().is_some_and(|bound| bound <= earliest_ms));
                }
            }
        }
    }
}
