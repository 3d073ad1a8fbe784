//! What a seed decides before anything happens: how large the cell is, what clients do, and which troubles there are, how strongly.
//!
//! Each seed leaves most troubles out and gives the others weights of its own. A run in which everything fails at once hides what
//! only shows when one thing fails often.

use std::collections::BTreeMap;
use std::time::Duration;

use fastrand::Rng;

use crate::world;

/// A kind of trouble.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Trouble {
    /// Appends are refused, or nobody knows what became of them.
    LostAppends,
    /// Appends arrive after their answer was given up, or twice.
    LateAppends,
    /// The log takes its time.
    SlowLog,
    /// The log refuses every request for a while.
    LogOutage,
    /// Changes of metadata are refused, or their answers are lost.
    Metadata,
    /// Watches tell late and twice.
    Watches,
    /// Workers cannot reach the metadata store.
    Partitions,
    /// Sessions end although their worker lives.
    Sessions,
    /// Processes stand still, and go on where they stood.
    Pauses,
    /// Processes are killed, at any step.
    Crashes,
    /// A killed process leaves no disk behind.
    LostDisks,
    /// Commits fail, or nobody knows.
    Commits,
    /// Destinations refuse, hang, fall silent or cannot say.
    Destinations,
    /// Sessions with destinations cannot be opened, or are lost.
    Openings,
    /// Destinations know less of what they took, or nothing.
    Evidence,
    /// Destinations take longer than the send deadline.
    SlowDestinations,
    /// Topics are deleted and made again.
    Recreations,
    /// Clocks are set.
    ClockSteps,
    /// Clocks differ and drift.
    ClockSkew,
    /// One log leaves out, loses or forgets records, as no log may.
    HarmedLog,
    /// A clock is wrong and says that it is right. Nothing helps against it: only a run that must fail has it.
    LyingClock,
}

impl Trouble {
    const ALL: [Trouble; 20] = [
        Trouble::LostAppends,
        Trouble::LateAppends,
        Trouble::SlowLog,
        Trouble::LogOutage,
        Trouble::Metadata,
        Trouble::Watches,
        Trouble::Partitions,
        Trouble::Sessions,
        Trouble::Pauses,
        Trouble::Crashes,
        Trouble::LostDisks,
        Trouble::Commits,
        Trouble::Destinations,
        Trouble::Openings,
        Trouble::Evidence,
        Trouble::SlowDestinations,
        Trouble::Recreations,
        Trouble::ClockSteps,
        Trouble::ClockSkew,
        Trouble::HarmedLog,
    ];
    /// What happens to destinations alone, and must not be noticed beside them.
    const OF_DESTINATIONS: [Trouble; 5] =
        [Trouble::Destinations, Trouble::Openings, Trouble::Evidence, Trouble::SlowDestinations, Trouble::Recreations];
    /// How often a seed has it, of a hundred.
    const fn share(self) -> u8 {
        match self {
            Trouble::HarmedLog | Trouble::LostDisks => 8,
            Trouble::LogOutage | Trouble::Commits => 20,
            _ => 35,
        }
    }
}

/// How often clients do what, in parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weights {
    /// Schedule a message.
    pub schedule: u32,
    /// Schedule one under an id that was used before.
    pub schedule_again: u32,
    /// Cancel one.
    pub cancel: u32,
    /// Move one.
    pub reschedule: u32,
    /// Send a command a second time, to ask what became of it.
    pub ask: u32,
}

/// What a run is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Swarm {
    /// Hosts, each with a worker for every shard.
    pub hosts: usize,
    /// Shards of the route.
    pub shards: u32,
    /// Destinations. The first is left alone where all trouble is with destinations.
    pub destinations: usize,
    /// Clients.
    pub clients: u32,
    /// Operations of each.
    pub operations: u32,
    /// How long clients work and troubles last.
    pub span: Duration,
    /// How far ahead messages are due at most, beside the few that are due much later.
    pub delay_ms_max: i64,
    /// Messages are due at multiples of this, as those of people and timetables are: many at once.
    pub due_grid_ms: i64,
    /// Live messages that a shard takes.
    pub active_messages_max: u64,
    /// What clients do.
    pub weights: Weights,
    /// The troubles, and how strong each is, from 1 to 10.
    pub troubles: BTreeMap<Trouble, u8>,
}

impl Swarm {
    /// What a seed is made of.
    pub fn of(seed: u64) -> Swarm {
        let mut random = world::stream(seed, "swarm");
        let clients = random.u32(8..=20);
        let operations = 1_000_u32.div_ceil(clients) + random.u32(2..12);
        let weights = Weights {
            schedule: random.u32(30..=100),
            schedule_again: random.u32(0..=8),
            cancel: random.u32(0..=30),
            reschedule: random.u32(0..=30),
            ask: random.u32(0..=25),
        };
        let troubles = troubles(&mut random);
        Swarm {
            hosts: random.usize(1..=3),
            shards: random.u32(1..=3),
            destinations: random.usize(2..=5),
            clients,
            operations,
            span: Duration::from_millis(random.u64(2_000..=12_000)),
            delay_ms_max: random.i64(50..=8_000),
            due_grid_ms: [1, 20, 100, 500][random.usize(..4)],
            active_messages_max: if random.u8(0..100) < 15 { random.u64(20..=150) } else { 1_000_000 },
            weights,
            troubles,
        }
    }

    /// How strong a trouble is; `None` when the run is without.
    pub fn strength(&self, trouble: Trouble) -> Option<u8> {
        self.troubles.get(&trouble).copied()
    }

    /// Whether all trouble is with destinations, so that a healthy one must notice nothing.
    pub fn is_about_destinations(&self) -> bool {
        self.troubles.keys().all(|trouble| Trouble::OF_DESTINATIONS.contains(trouble))
    }
}

fn troubles(random: &mut Rng) -> BTreeMap<Trouble, u8> {
    let of_destinations = random.u8(0..100) < 15;
    let mut troubles = BTreeMap::new();
    for trouble in Trouble::ALL {
        let (drawn, strength) = (random.u8(0..100), random.u8(1..=10));
        let is_possible = !of_destinations || Trouble::OF_DESTINATIONS.contains(&trouble);
        if is_possible && drawn < trouble.share() {
            troubles.insert(trouble, strength);
        }
    }
    troubles
}
