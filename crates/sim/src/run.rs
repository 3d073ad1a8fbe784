//! One run: a cell as its seed's swarm says, clients and troubles for a while, peace until everything has ended, and the verdict.

use std::cell::{Cell as Slot, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use fastrand::Rng;
use futures_util::future::join_all;
use protocol::hash::Hash;
use protocol::mutation_v2::Limits;
use protocol::policy::RetryPolicy;
use shard::query;
use shard::schedule::circuit::CircuitConfig;
use testkit::log::{default_limits, default_policy};
use worker::config::WorkerConfig;
use worker::lifecycle::ShardLifecycle;

use crate::account::{self, Account};
use crate::cell::{Cell, CellOptions, Worker, worker_config};
use crate::invariants;
use crate::nemesis::{Host, Nemesis};
use crate::story::{DiskStory, Harmed, Snapshot, Story};
use crate::swarm::{Swarm, Trouble};
use crate::told::Told;
use crate::work::{Asks, Client, Workers};
use crate::world::broker::Behavior;
use crate::world::disk::WorldDisk;
use crate::world::{self, Delay, Paces, WorldOptions};

/// From peace on, everything must have ended within this: the longest pauses of circuits, retries and reopened lanes, several times
/// over, and the shortest delivery window.
const ENDS_WITHIN: Duration = Duration::from_secs(240);
const LOOK_INTERVAL: Duration = Duration::from_millis(500);
/// Looks at disks while troubles last.
const SNAPSHOTS: u32 = 6;

/// What a run came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Its seed.
    pub seed: u64,
    /// What became of the messages.
    pub account: Account,
    /// Operations that clients asked for.
    pub operations: usize,
    /// Records in all logs.
    pub records: usize,
    /// A digest of everything that could be observed.
    pub events_digest: Hash,
    /// Digests of what the shards came to.
    pub states: Vec<Hash>,
}

/// What to say of a run that broke something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What it broke.
    pub invariant: &'static str,
    /// How.
    pub detail: String,
    /// The last things that happened.
    pub events: String,
}

/// Plays a seed and judges it.
///
/// # Errors
/// [`Failure`], the first invariant that does not hold.
///
/// # Panics
/// Where a part of the world sees at once that something is wrong.
pub fn run(seed: u64, verbose: bool) -> Result<Outcome, Failure> {
    run_as(seed, &Swarm::of(seed), verbose)
}

/// Plays a seed in a cell of this kind, and judges it.
///
/// # Errors
/// [`Failure`], the first invariant that does not hold.
///
/// # Panics
/// Where a part of the world sees at once that something is wrong.
pub fn run_as(seed: u64, swarm: &Swarm, verbose: bool) -> Result<Outcome, Failure> {
    let cell = Cell::new(CellOptions {
        world: WorldOptions {
            start_us: world::stream(seed, "start").u16(0..1_000),
            prints: verbose,
            ..WorldOptions::new(seed)
        },
        shard_count: swarm.shards,
        destinations: (0..swarm.destinations).map(|number| format!("destination-{number}")).collect(),
        policy: policy(),
        limits: limits(swarm),
        config: config(),
    });
    cell.world.event(format_args!("{swarm:?}"));
    let paces = Paces { there: Delay::between(0, 20), back: Delay::between(0, 10) };
    cell.broker.set_default(Behavior { paces, ..Behavior::default() });
    for book in &cell.shards {
        book.log.set_paces(Paces { there: Delay::between(0, 8), back: Delay::between(0, 3) });
        // What every shard has applied may go from the log, unless a lost disk must be made again from it.
        book.log.set_keeps_everything(swarm.hosts > 1 || swarm.strength(Trouble::LostDisks).is_some());
    }
    let all_disks = RefCell::new(Vec::new());
    let hosts: Vec<Host> = (0..swarm.hosts).map(|number| host(&cell, number, &all_disks)).collect();
    let harmed = Slot::new(None);
    let scene = Scene { cell: &cell, swarm, hosts: &hosts, disks: &all_disks, harmed: &harmed };
    let (asks, snapshots) = (Asks::default(), RefCell::new(Vec::new()));
    let ended = cell.world.run(scene.play(&asks, &snapshots));
    let failure = |invariant, detail| Failure { invariant, detail, events: cell.world.events_tail() };
    let failed = ended.map_err(|detail| failure("liveness", detail))?;

    let harmed = harmed.get();
    let is_sound = |shard: usize| harmed.is_none_or(|harmed| harmed.shard != shard);
    let disks = all_disks.take();
    let snapshots = snapshots.take();
    // States are compared where somebody looked, and where each disk was in the end.
    let looked_at = |shard: usize| {
        let snapshots = snapshots.iter().filter(|snapshot| snapshot.shard == shard).map(|snapshot| snapshot.applied);
        let disks = disks.iter().filter(|(_, of, _)| *of == shard).map(|(_, _, disk)| disk.applied());
        snapshots.chain(disks).collect()
    };
    let tell = |shard| is_sound(shard).then(|| Told::with_digests(&cell, shard, &looked_at(shard)));
    let story = Story {
        cell: &cell,
        told: (0..cell.shards.len()).map(tell).collect(),
        delivered: cell.broker.delivered(),
        received: cell.broker.received(),
        asked: asks.take(),
        disks: disks.into_iter().map(|(host, shard, disk)| DiskStory { host, shard, disk }).collect(),
        snapshots,
        harmed,
        failed,
        healthy: swarm.is_about_destinations().then_some(0),
    };
    for (invariant, check) in invariants::ALL {
        check(&story).map_err(|detail| failure(invariant, detail))?;
    }
    let account = account::settle_story(&story).map_err(|detail| failure("account", detail))?;
    Ok(Outcome {
        seed,
        account,
        operations: asks.operations(),
        records: cell.shards.iter().map(|book| book.log.archive().len()).sum(),
        events_digest: cell.world.events_digest(),
        states: story.told().map(|(_, told)| told.digest()).collect(),
    })
}

/// Paces at which a run of half a minute sees every state.
fn config() -> WorkerConfig {
    let mut config = worker_config();
    config.scheduler.circuit = CircuitConfig { open_min: Duration::from_millis(200), open_max: Duration::from_secs(5) };
    config.lane_reopen_min = Duration::from_millis(200);
    config.lane_reopen_max = Duration::from_secs(5);
    config.send_deadline = Duration::from_secs(2);
    config.recovery_deadline = Duration::from_secs(3);
    config.release_interval = Duration::from_secs(1);
    config.fence_interval_max = Duration::from_secs(20);
    config
}

fn policy() -> RetryPolicy {
    RetryPolicy {
        initial_backoff_ms: 100,
        backoff_ms_max: 2_000,
        publish_admissions_max: 12,
        uncertain_retries_max: 4,
        ..default_policy()
    }
}

fn limits(swarm: &Swarm) -> Limits {
    Limits { active_messages_max: swarm.active_messages_max, ..default_limits() }
}

fn host(cell: &Cell, number: usize, all_disks: &RefCell<Vec<(usize, usize, WorldDisk)>>) -> Host {
    let name = char::from(b'a' + u8::try_from(number).unwrap_or(25)).to_string();
    let disks = cell.disks(&name);
    all_disks.borrow_mut().extend(disks.iter().enumerate().map(|(shard, disk)| (number, shard, disk.clone())));
    let worker = cell.start(&format!("worker {name}"), &disks);
    cell.follow(&worker);
    Host { name, disks: RefCell::new(disks), worker: RefCell::new(Rc::new(worker)) }
}

struct Scene<'a> {
    cell: &'a Cell,
    swarm: &'a Swarm,
    hosts: &'a [Host],
    disks: &'a RefCell<Vec<(usize, usize, WorldDisk)>>,
    harmed: &'a Slot<Option<Harmed>>,
}

impl Workers for Scene<'_> {
    /// The one that is active, where there is one.
    fn of(&self, shard: usize, random: &mut Rng) -> (usize, Rc<Worker>) {
        let drawn = random.usize(..self.hosts.len());
        let active =
            (0..self.hosts.len()).find(|host| self.lifecycle(*host, shard) == ShardLifecycle::ActiveForCommands);
        let host = active.unwrap_or(drawn);
        (host, self.hosts[host].worker.borrow().clone())
    }
}

impl Scene<'_> {
    fn lifecycle(&self, host: usize, shard: usize) -> ShardLifecycle {
        self.hosts[host].worker.borrow().lifecycle(shard)
    }

    /// Trouble, then peace until everything has ended. Returns which shards failed on which hosts.
    async fn play(&self, asks: &Asks, snapshots: &RefCell<Vec<Snapshot>>) -> Result<BTreeSet<(usize, usize)>, String> {
        let nemesis =
            Nemesis { cell: self.cell, swarm: self.swarm, hosts: self.hosts, disks: self.disks, harmed: self.harmed };
        let clients =
            (0..self.swarm.clients).map(|number| Client::new(self.cell, self.swarm, self, asks, number).run());
        tokio::join!(join_all(clients), nemesis.rage(), self.take_snapshots(snapshots));
        nemesis.make_peace();
        self.end().await?;
        let failed = self.failed();
        for host in self.hosts {
            host.worker.borrow().stop();
        }
        for host in 0..self.hosts.len() {
            let worker = self.hosts[host].worker.borrow().clone();
            for shard in 0..self.cell.shards.len() {
                if !failed.contains(&(host, shard)) {
                    worker.becomes(shard, ShardLifecycle::Unassigned).await;
                }
            }
        }
        self.cell.world.wait(Duration::from_secs(1)).await;
        Ok(failed)
    }

    fn sound_shards(&self) -> impl Iterator<Item = usize> {
        let harmed = self.harmed.get().map(|harmed| harmed.shard);
        (0..self.cell.shards.len()).filter(move |shard| harmed != Some(*shard))
    }

    fn failed(&self) -> BTreeSet<(usize, usize)> {
        let all = (0..self.hosts.len()).flat_map(|host| (0..self.cell.shards.len()).map(move |shard| (host, shard)));
        all.filter(|(host, shard)| self.lifecycle(*host, *shard) == ShardLifecycle::Failed).collect()
    }

    /// Waits until every sound shard has an owner and no live message.
    async fn end(&self) -> Result<(), String> {
        let limit = self.cell.world.time().elapsed() + ENDS_WITHIN;
        while let Err(reason) = self.sound_shards().try_for_each(|shard| self.has_ended(shard)) {
            if self.cell.world.time().elapsed() > limit {
                return Err(format!("{ENDS_WITHIN:?} after the last trouble, {reason}"));
            }
            self.cell.world.wait(LOOK_INTERVAL).await;
        }
        // What is still on its way to a log has arrived, and a harmed log's owners have looked at it.
        self.cell.world.wait(Duration::from_secs(10)).await;
        self.sound_shards().try_for_each(|shard| self.has_ended(shard))
    }

    fn has_ended(&self, shard: usize) -> Result<(), String> {
        let lifecycles: Vec<ShardLifecycle> = (0..self.hosts.len()).map(|host| self.lifecycle(host, shard)).collect();
        let active: Vec<usize> =
            (0..self.hosts.len()).filter(|host| lifecycles[*host] == ShardLifecycle::ActiveForCommands).collect();
        let [owner] = active[..] else { return Err(format!("shard {shard} is {lifecycles:?}")) };
        let worker = self.hosts[owner].worker.borrow().clone();
        let progress = worker.handles[shard].read(query::progress).map_err(|error| error.to_string())?;
        match progress.active_messages {
            0 => Ok(()),
            left => Err(format!("{left} messages of shard {shard} have not ended")),
        }
    }

    async fn take_snapshots(&self, snapshots: &RefCell<Vec<Snapshot>>) {
        let mut random = self.cell.world.random("snapshots");
        for _ in 0..SNAPSHOTS {
            self.cell.world.wait(self.swarm.span.mul_f64(random.f64() * 2.0 / f64::from(SNAPSHOTS))).await;
            let disks = self.disks.borrow();
            let (_, shard, disk) = &disks[random.usize(..disks.len())];
            let (shard, applied, digest) = (*shard, disk.applied(), disk.digest());
            snapshots.borrow_mut().push(Snapshot { shard, applied, digest });
        }
    }
}
