//! Deficit round robin: who goes next, and how far, when several want more than there is (protocol registry §9.4).
//!
//! Used on both levels: across the lanes of a shard and across the shards of a worker. A member earns its quantum once a round
//! and spends it on its items' costs, so over time each gets its weight's share whatever the sizes, and every member with work
//! is visited once a round.

use std::collections::{BTreeMap, VecDeque};

/// Sizes of the rounds, in cost units (bytes).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoundRobinConfig {
    /// What a member of weight 1 earns a round.
    pub quantum: u64,
    /// What an unspent deficit is cut to, and what an item costs at most: one that cost more could never be afforded.
    pub deficit_max: u64,
    /// What an item costs at least.
    pub cost_min: u64,
}

/// A ring of members with work, their deficits, and whose turn it is.
#[derive(Clone, Debug)]
pub struct RoundRobin<Member> {
    config: RoundRobinConfig,
    ring: VecDeque<Member>,
    deficits: BTreeMap<Member, u64>,
    /// The member at the front has earned its quantum of this round already.
    front_has_earned: bool,
}

impl<Member: Copy + Ord> RoundRobin<Member> {
    /// An empty ring.
    pub fn new(config: RoundRobinConfig) -> RoundRobin<Member> {
        RoundRobin { config, ring: VecDeque::new(), deficits: BTreeMap::new(), front_has_earned: false }
    }

    /// What an item of this size costs.
    pub fn cost(&self, size: u64) -> u64 {
        size.max(self.config.cost_min).min(self.config.deficit_max)
    }

    /// A member has work. It joins at the end of the round, once.
    pub fn join(&mut self, member: Member) {
        if let std::collections::btree_map::Entry::Vacant(entry) = self.deficits.entry(member) {
            entry.insert(0);
            self.ring.push_back(member);
        }
    }

    /// Whether the member is in the ring.
    pub fn contains(&self, member: Member) -> bool {
        self.deficits.contains_key(&member)
    }

    /// How many members have work.
    pub fn len(&self) -> usize {
        self.ring.len()
    }

    /// Whether no member has work.
    pub fn is_empty(&self) -> bool {
        self.ring.is_empty()
    }

    /// Whose turn it is, and what it may spend. The member earns its quantum at the first look of its turn.
    pub fn turn(&mut self, weight: impl Fn(Member) -> u32) -> Option<(Member, u64)> {
        let member = *self.ring.front()?;
        let deficit = self.deficits.get_mut(&member)?;
        if !self.front_has_earned {
            let earned = self.config.quantum.saturating_mul(u64::from(weight(member).max(1)));
            *deficit = deficit.saturating_add(earned).min(self.config.deficit_max);
            self.front_has_earned = true;
        }
        Some((member, *deficit))
    }

    /// The member whose turn it is spends on an item.
    pub fn spend(&mut self, member: Member, cost: u64) {
        if let Some(deficit) = self.deficits.get_mut(&member) {
            *deficit = deficit.saturating_sub(cost);
        }
    }

    /// The turn is over; the member has more work, which it cannot afford in this round.
    pub fn pass(&mut self) {
        self.ring.rotate_left(usize::from(!self.ring.is_empty()));
        self.front_has_earned = false;
    }

    /// The turn is over and so is the member's work: it leaves, and saves nothing for later.
    pub fn leave(&mut self) {
        if let Some(member) = self.ring.pop_front() {
            self.deficits.remove(&member);
        }
        self.front_has_earned = false;
    }

    /// Takes a member out wherever it stands.
    pub fn remove(&mut self, member: Member) {
        if self.deficits.remove(&member).is_none() {
            return;
        }
        if self.ring.front().copied().is_some_and(|front| front == member) {
            self.front_has_earned = false;
        }
        self.ring.retain(|other| *other != member);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    const CONFIG: RoundRobinConfig = RoundRobinConfig { quantum: 1_000, deficit_max: 20_000, cost_min: 100 };

    /// Serves `count` items to members that always have more, and says how much each got.
    fn serve(sizes: &[u64], weights: &[u32], count: usize) -> Vec<u64> {
        let mut ring = RoundRobin::new(CONFIG);
        for member in 0..sizes.len() {
            ring.join(member);
        }
        let mut served = vec![0; sizes.len()];
        let mut items = 0;
        while items < count {
            let (member, deficit) = ring.turn(|member| weights[member]).expect("members have work");
            let cost = ring.cost(sizes[member]);
            if cost <= deficit {
                ring.spend(member, cost);
                served[member] += cost;
                items += 1;
            } else {
                ring.pass();
            }
        }
        served
    }

    #[test]
    fn equal_weights_get_equal_bytes_whatever_their_sizes() {
        let served = serve(&[100, 1_700, 10_000], &[1, 1, 1], 100_000);
        let most = *served.iter().max().expect("three members");
        let least = *served.iter().min().expect("three members");
        assert!(most - least <= 2 * CONFIG.deficit_max, "{served:?}");
    }

    #[test]
    fn weights_share_in_proportion() {
        let served = serve(&[500, 500], &[3, 1], 100_000);
        let ratio = served[0] as f64 / served[1] as f64;
        assert!((2.9..3.1).contains(&ratio), "{served:?}");
    }

    #[test]
    fn every_member_is_visited_once_a_round() {
        let mut ring = RoundRobin::new(CONFIG);
        for member in 0..5 {
            ring.join(member);
        }
        let mut visits = BTreeMap::new();
        for _ in 0..20 {
            let (member, _) = ring.turn(|_| 1).expect("members have work");
            *visits.entry(member).or_insert(0) += 1;
            ring.pass();
        }
        assert!(visits.values().all(|count| *count == 4), "{visits:?}");
    }

    #[test]
    fn a_member_that_left_saves_nothing() {
        let mut ring = RoundRobin::new(CONFIG);
        ring.join(1);
        ring.join(2);
        assert_eq!(ring.turn(|_| 1), Some((1, 1_000)));
        ring.leave();
        ring.join(1);
        assert_eq!(ring.turn(|_| 1), Some((2, 1_000)));
        ring.remove(2);
        assert_eq!(ring.turn(|_| 1), Some((1, 1_000)));
        assert_eq!(ring.len(), 1);
    }

    #[test]
    fn the_smallest_item_still_costs_and_the_largest_can_be_afforded() {
        let ring = RoundRobin::<usize>::new(CONFIG);
        assert_eq!(ring.cost(0), 100);
        assert_eq!(ring.cost(5_000), 5_000);
        assert_eq!(ring.cost(u64::MAX), CONFIG.deficit_max);
        serve(&[u64::MAX, 500], &[1, 1], 1_000);
    }
}
