//! What all shards of a worker may have under way together: the outer level of the two-level round robin.
//!
//! While there is room for everyone, a shard gets what it asks for. When there is not, shards wait in a ring and each turn gives
//! at most a quantum, so that one shard's burst cannot keep the others from sending.

use std::collections::BTreeMap;

use super::lane::Load;
use super::round_robin::{RoundRobin, RoundRobinConfig};

/// Shared permits with fair shares for whoever waits.
#[derive(Debug)]
pub struct Budget<Member> {
    limit: Load,
    used: Load,
    used_by: BTreeMap<Member, Load>,
    waiting: RoundRobin<Member>,
}

impl<Member: Copy + Ord> Budget<Member> {
    /// A budget nobody has used yet.
    pub fn new(limit: Load, round_robin: RoundRobinConfig) -> Budget<Member> {
        Budget { limit, used: Load::default(), used_by: BTreeMap::new(), waiting: RoundRobin::new(round_robin) }
    }

    /// What `member` may take up now, charged to it at once: give back what is not used. With nothing left it waits for its
    /// turn, and [`Budget::next_waiting`] names it when there is room again.
    pub fn take(&mut self, member: Member) -> Load {
        let free = Load {
            messages: self.limit.messages.saturating_sub(self.used.messages),
            bytes: self.limit.bytes.saturating_sub(self.used.bytes),
        };
        let others_wait = self.waiting.len() > usize::from(self.waiting.contains(member));
        let granted = if free.messages == 0 || free.bytes == 0 {
            Load::default()
        } else if !others_wait {
            self.waiting.remove(member);
            free
        } else {
            self.waiting.join(member);
            match self.waiting.turn(|_| 1) {
                Some((front, deficit)) if front == member => {
                    self.waiting.leave();
                    Load { messages: free.messages, bytes: free.bytes.min(deficit) }
                }
                _ => Load::default(),
            }
        };
        if granted.messages == 0 {
            self.waiting.join(member);
        }
        self.used.messages += granted.messages;
        self.used.bytes += granted.bytes;
        let used = self.used_by.entry(member).or_default();
        used.messages += granted.messages;
        used.bytes += granted.bytes;
        granted
    }

    /// Returns permits.
    pub fn give_back(&mut self, member: Member, load: Load) {
        let Some(used) = self.used_by.get_mut(&member) else { return };
        let returned = Load { messages: load.messages.min(used.messages), bytes: load.bytes.min(used.bytes) };
        used.messages -= returned.messages;
        used.bytes -= returned.bytes;
        self.used.messages -= returned.messages;
        self.used.bytes -= returned.bytes;
    }

    /// A member that is gone gives everything back and waits no more.
    pub fn remove(&mut self, member: Member) {
        if let Some(used) = self.used_by.remove(&member) {
            self.used.messages -= used.messages;
            self.used.bytes -= used.bytes;
        }
        self.waiting.remove(member);
    }

    /// Who should ask again now.
    pub fn next_waiting(&mut self) -> Option<Member> {
        if self.used.messages >= self.limit.messages || self.used.bytes >= self.limit.bytes {
            return None;
        }
        self.waiting.turn(|_| 1).map(|(member, _)| member)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Load = Load { messages: 100, bytes: 100_000 };
    const ROUNDS: RoundRobinConfig = RoundRobinConfig { quantum: 1_000, deficit_max: 10_000, cost_min: 100 };

    #[test]
    fn alone_a_shard_gets_everything() {
        let mut budget = Budget::new(LIMIT, ROUNDS);
        assert_eq!(budget.take(1), LIMIT);
        assert_eq!(budget.take(1), Load::default());
        budget.give_back(1, Load { messages: 7, bytes: 700 });
        assert_eq!(budget.take(1), Load { messages: 7, bytes: 700 });
    }

    #[test]
    fn a_burst_does_not_keep_another_shard_waiting() {
        let mut budget = Budget::new(LIMIT, ROUNDS);
        let mut held = BTreeMap::from([(1, budget.take(1)), (2, Load::default())]);
        let mut granted = BTreeMap::from([(1, 0_u64), (2, 0)]);
        // Both always want more; the first gives back a little at a time.
        assert_eq!(budget.take(1), Load::default());
        assert_eq!(budget.take(2), Load::default());
        for _ in 0..2_000 {
            for member in [1, 2] {
                let back = Load { messages: held[&member].messages.min(1), bytes: held[&member].bytes.min(500) };
                budget.give_back(member, back);
                let held = held.get_mut(&member).expect("a member");
                held.messages -= back.messages;
                held.bytes -= back.bytes;
            }
            while let Some(member) = budget.next_waiting() {
                let got = budget.take(member);
                if got.messages == 0 {
                    break;
                }
                // Only a few messages fit these bytes; the rest goes back.
                let used = Load { messages: got.messages.min(1), bytes: got.bytes.min(500) };
                budget
                    .give_back(member, Load { messages: got.messages - used.messages, bytes: got.bytes - used.bytes });
                *granted.get_mut(&member).expect("a member") += used.bytes;
                let held = held.get_mut(&member).expect("a member");
                held.messages += used.messages;
                held.bytes += used.bytes;
                budget.take(member);
            }
        }
        let share = granted[&2] as f64 / (granted[&1] + granted[&2]) as f64;
        assert!((0.4..0.6).contains(&share), "{granted:?}");
    }

    #[test]
    fn a_member_that_is_gone_frees_its_share() {
        let mut budget = Budget::new(LIMIT, ROUNDS);
        budget.take(1);
        budget.take(2);
        budget.remove(1);
        assert_eq!(budget.next_waiting(), Some(2));
        assert_eq!(budget.take(2), LIMIT);
    }
}
