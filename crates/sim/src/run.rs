//! One run: a cell as its seed's swarm says, clients and troubles for a while, peace until everything has ended, and the verdict.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::time::Duration;

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
use crate::cell::{Cell, CellOptions, worker_config};
use crate::invariants;
use crate::scene::{HostDisk, Scene};
use crate::story::{DiskStory, Snapshot, Story};
use crate::swarm::{Swarm, Trouble};
use crate::told::Told;
use crate::work::{Asks, Client};
use crate::world::broker::Behavior;
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
    let scene = Scene::new(&cell, swarm);
    let (asks, snapshots) = (Asks::default(), RefCell::new(Vec::new()));
    let ended = cell.world.run(scene.play(&asks, &snapshots));
    let failure = |invariant, detail| Failure { invariant, detail, events: cell.world.events_tail() };
    let failed = ended.map_err(|detail| failure("liveness", detail))?;

    let harmed = scene.harmed.take();
    let is_sound = |shard: usize| harmed.as_ref().is_none_or(|harmed| harmed.shard != shard);
    let disks: Vec<DiskStory> = scene.disks.take().into_iter().map(DiskStory::of).collect();
    let snapshots = snapshots.take();
    // States are compared where somebody looked, and where each disk was in the end.
    let looked_at = |shard: usize| {
        let snapshots = snapshots.iter().filter(|snapshot| snapshot.shard == shard).map(|snapshot| snapshot.applied);
        let disks = disks.iter().filter(|disk| disk.shard == shard).map(|disk| disk.applied);
        snapshots.chain(disks).collect()
    };
    let tell = |shard| is_sound(shard).then(|| Told::with_digests(&cell, shard, &looked_at(shard)));
    let story = Story {
        cell: &cell,
        told: (0..cell.shards.len()).map(tell).collect(),
        delivered: cell.broker.delivered(),
        received: cell.broker.received(),
        asked: asks.take(),
        disks,
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

impl Scene<'_> {
    /// Trouble, then peace until everything has ended. Returns which shards failed on which hosts.
    async fn play(&self, asks: &Asks, snapshots: &RefCell<Vec<Snapshot>>) -> Result<BTreeSet<(usize, usize)>, String> {
        let clients = (0..self.swarm.clients).map(|number| Client::new(self, asks, number).run());
        tokio::join!(join_all(clients), self.rage(), self.take_snapshots(snapshots));
        self.make_peace();
        self.end().await?;
        let failed = self.failed();
        for host in &self.hosts {
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
        let harmed = self.harmed.borrow().as_ref().map(|harmed| harmed.shard);
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
            let HostDisk { shard, disk, .. } = &disks[random.usize(..disks.len())];
            let (applied, digest) = disk.state();
            snapshots.borrow_mut().push(Snapshot { shard: *shard, applied, digest });
        }
    }
}
