//! Everything at once: several shards, destinations in every mood, commands that cross each other, a log and a metadata store
//! that fail, a clock that is set, and a worker that dies in the middle. One seed is one run, to the last letter.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use fastrand::Rng;
use protocol::code::StableCode;
use protocol::hash::Hash;
use protocol::mutation_v2::Disposition;
use protocol::policy::RetryPolicy;
use shard::schedule::circuit::CircuitConfig;
use shard::state::MessageUuid;
use testkit::log::default_policy;
use sim::world::broker::{Answering, Behavior, Evidence, Opening};
use sim::world::disk::WorldDisk;
use sim::world::log::LogFaults;
use sim::world::metadata::MetadataFaults;
use sim::world::{Delay, Paces, WorldOptions};
use worker::config::WorkerConfig;
use worker::lifecycle::ShardLifecycle;

use sim::account::{self, Account, Told};
use sim::cell::{Cell, CellOptions, Worker, worker_config};

/// Which troubles a run has: each seed leaves some out, so that the others get room.
#[derive(Clone, Copy, Debug)]
struct Troubles {
    log: bool,
    metadata: bool,
    clock: bool,
    destinations: bool,
    openings: bool,
    evidence: bool,
    crashes: u32,
    takeovers: bool,
    rebindings: bool,
}

impl Troubles {
    fn all() -> Troubles {
        Troubles {
            log: true,
            metadata: true,
            clock: true,
            destinations: true,
            openings: true,
            evidence: true,
            crashes: 2,
            takeovers: true,
            rebindings: true,
        }
    }

    fn of(random: &mut Rng) -> Troubles {
        Troubles {
            log: random.bool(),
            metadata: random.bool(),
            clock: random.bool(),
            destinations: random.bool(),
            openings: random.bool(),
            evidence: random.bool(),
            crashes: random.u32(0..4),
            takeovers: random.bool(),
            rebindings: random.bool(),
        }
    }
}

/// Paces at which a run of a minute sees every state.
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
        publish_admissions_max: 40,
        uncertain_retries_max: 4,
        ..default_policy()
    }
}

/// What a run came to.
struct Run {
    events: Vec<String>,
    events_digest: Hash,
    stores: Vec<Hash>,
    account: Account,
}

/// A machine: its disks stay, its worker comes and goes.
struct Host {
    disks: Vec<WorldDisk>,
    worker: RefCell<Rc<Worker>>,
}

struct Scene {
    cell: Cell,
    /// One, or two where each waits for the other's leases.
    hosts: Vec<Host>,
    troubles: Troubles,
}

fn run(seed: u64, troubles: impl FnOnce(&mut Rng) -> Troubles) -> Run {
    let mut setup = sim::world::stream(seed, "setup");
    let troubles = troubles(&mut setup);
    let cell = Cell::new(CellOptions {
        world: WorldOptions { start_us: setup.u16(0..1_000), ..WorldOptions::new(seed) },
        shard_count: 3,
        destinations: ["orders", "bills", "mails", "audits"].map(str::to_owned).to_vec(),
        policy: policy(),
        config: config(),
        ..CellOptions::new(seed)
    });
    cell.world.event(format_args!("{troubles:?}"));
    let behavior =
        Behavior { paces: Paces { there: Delay::between(0, 20), back: Delay::between(0, 10) }, ..Behavior::default() };
    cell.broker.set_default(behavior);
    for book in &cell.shards {
        book.log.set_paces(Paces { there: Delay::between(0, 8), back: Delay::between(0, 3) });
    }
    let names: &[&str] = if troubles.takeovers { &["a", "b"] } else { &["a"] };
    let hosts = names.iter().map(|name| {
        let disks = cell.disks(name);
        let worker = cell.start(&format!("worker {name}"), &disks);
        cell.follow(&worker);
        Host { disks, worker: RefCell::new(Rc::new(worker)) }
    });
    let scene = Scene { hosts: hosts.collect(), cell, troubles };
    let owners = scene.cell.world.run(scene.play());
    let Scene { cell, hosts, .. } = scene;
    let account = account::settle(&cell);
    assert_eq!(account.pending, 0, "{account:?}\n{}", cell.world.events_tail());
    let mut stores = Vec::new();
    for (shard, owner) in owners.into_iter().enumerate() {
        let told = Told::new(&cell, shard);
        let (disk, worker) = (&hosts[owner].disks[shard], hosts[owner].worker.borrow());
        let applied = worker.handles[shard].status().applied;
        assert_eq!(applied, cell.archive(shard).last().map(|record| record.position.clone()), "seed {seed}");
        assert_eq!(disk.digest(), told.digest(), "seed {seed}: the store of shard {shard} is not what its log says");
        stores.push(told.digest());
    }
    Run { events: cell.world.events(), events_digest: cell.world.events_digest(), stores, account }
}

impl Scene {
    /// A minute of trouble, then peace until everything has ended. Returns which host owned each shard in the end.
    async fn play(&self) -> Vec<usize> {
        let troubled = async {
            tokio::join!(self.clients(), self.spoil(), self.set_clock(), self.crash(), self.usurp(), self.rebind());
        };
        troubled.await;
        self.make_peace();
        self.cell.world.wait(Duration::from_secs(90)).await;
        let owners = (0..self.cell.shards.len()).map(|shard| self.owner(shard)).collect();
        // Nobody writes any more; what is applied is all there is.
        for host in &self.hosts {
            host.worker.borrow().stop();
        }
        for host in &self.hosts {
            let worker = host.worker.borrow().clone();
            for shard in 0..self.cell.shards.len() {
                worker.becomes(shard, ShardLifecycle::Unassigned).await;
            }
        }
        self.cell.world.wait(Duration::from_secs(1)).await;
        owners
    }

    /// The one host whose worker is active for a shard.
    fn owner(&self, shard: usize) -> usize {
        let lifecycle = |host: &Host| host.worker.borrow().lifecycle(shard);
        let lifecycles: Vec<ShardLifecycle> = self.hosts.iter().map(lifecycle).collect();
        let is_active = |lifecycle: &ShardLifecycle| *lifecycle == ShardLifecycle::ActiveForCommands;
        assert_eq!(
            lifecycles.iter().filter(|lifecycle| is_active(lifecycle)).count(),
            1,
            "shard {shard} is {lifecycles:?}\n{}",
            self.cell.world.events_tail()
        );
        lifecycles.iter().position(is_active).expect("one is active")
    }

    fn host(&self, random: &mut Rng) -> &Host {
        &self.hosts[random.usize(..self.hosts.len())]
    }

    fn worker(&self, random: &mut Rng) -> Rc<Worker> {
        self.host(random).worker.borrow().clone()
    }

    async fn clients(&self) {
        let clients = (0..self.cell.shards.len()).map(|shard| self.client(shard));
        futures_util::future::join_all(clients).await;
    }

    async fn client(&self, shard: usize) {
        let cell = &self.cell;
        let mut random = cell.world.random(&format!("client of shard {shard}"));
        let mut messages: Vec<MessageUuid> = Vec::new();
        for _ in 0..150 {
            cell.world.wait(Duration::from_millis(random.u64(0..400))).await;
            let now_ms = cell.world.now_ms();
            let prepared = match (random.u32(0..100), random.choice(&messages)) {
                (0..12, Some(message)) => cell.cancel(shard, *message),
                (12..24, Some(message)) => cell.reschedule(shard, *message, now_ms + random.i64(-100..6_000)),
                _ => {
                    let deliver_at_ms = now_ms + random.i64(-500..6_000);
                    let window_ms = if random.u8(0..100) < 20 { random.i64(5_000..9_000) } else { 86_400_000 };
                    let expire_at_ms = deliver_at_ms.max(now_ms) + window_ms;
                    cell.schedule_until(shard, random.usize(..cell.destinations.len()), deliver_at_ms, expire_at_ms)
                }
            };
            messages.push(prepared.message);
            let through_worker = random.bool();
            if through_worker {
                // Whether it got there is what the account asks the log.
                let _ = self.worker(&mut random).handles[shard].append(vec![prepared.frame.clone()]).await;
            } else {
                cell.append(&prepared);
            }
        }
    }

    /// Destinations change their mood, logs and metadata fail for a while.
    async fn spoil(&self) {
        let cell = &self.cell;
        let mut random = cell.world.random("troubles");
        if self.troubles.metadata {
            cell.metadata.set_faults(MetadataFaults { unavailable_percent: 10, unknown_percent: 10 });
        }
        for _ in 0..30 {
            if self.troubles.log {
                let faults = LogFaults { not_appended_percent: random.u8(0..20), unknown_percent: random.u8(0..20) };
                for book in &cell.shards {
                    book.log.set_faults(faults);
                }
            }
            let destination = random.usize(..cell.destinations.len());
            let behavior = self.mood(&mut random);
            cell.misbehave(destination, |old| *old = Behavior { paces: old.paces, ..behavior });
            if random.u8(0..100) < 20 {
                cell.broker.lose_sessions(cell.place(destination));
            }
            cell.world.wait(Duration::from_millis(random.u64(200..2_000))).await;
        }
    }

    fn mood(&self, random: &mut Rng) -> Behavior {
        let takes_percent = random.u8(0..=100);
        let answerings = [
            Answering::Takes,
            Answering::Refuses(Disposition::MessageRetriable),
            Answering::Refuses(Disposition::MessagePermanent),
            Answering::Refuses(Disposition::LaneUnavailable),
            Answering::Hangs { takes_percent },
            Answering::CannotSay { takes_percent },
            Answering::FallsSilent { takes_percent },
        ];
        let openings = [Opening::Opens, Opening::Fails(StableCode::ResourceIncarnationMismatch), Opening::Hangs];
        let evidences = [Evidence::Exact, Evidence::OfPresence, Evidence::None, Evidence::Unavailable, Evidence::Hangs];
        let mut mood = Behavior::default();
        if self.troubles.destinations {
            mood.answering = answerings[random.usize(..answerings.len())];
        }
        if self.troubles.openings {
            mood.opening = openings[random.usize(..openings.len())];
        }
        if self.troubles.evidence {
            mood.evidence = evidences[random.usize(..evidences.len())];
        }
        mood
    }

    async fn set_clock(&self) {
        if !self.troubles.clock {
            return;
        }
        let world = &self.cell.world;
        let mut random = world.random("clock");
        for _ in 0..4 {
            world.wait(Duration::from_millis(random.u64(1_000..12_000))).await;
            let host = self.worker(&mut random).process.host().clone();
            host.step(random.i64(-5_000_000..=5_000_000));
            host.lose_sync();
            world.event(format_args!("the host clock is set"));
            world.wait(Duration::from_millis(random.u64(0..1_500))).await;
            host.synchronise(random.i64(-800..=800), Duration::from_millis(1));
        }
    }

    /// Workers die at some step of theirs and are started again, with the other host in between where there is one.
    async fn crash(&self) {
        let world = &self.cell.world;
        let mut random = world.random("crashes");
        for number in 0..self.troubles.crashes {
            world.wait(Duration::from_millis(random.u64(2_000..12_000))).await;
            let host = self.host(&mut random);
            let victim = host.worker.borrow().clone();
            victim.process.kill_at_step(victim.process.steps() + random.u64(1..400));
            victim.process.dead().await;
            world.wait(Duration::from_millis(random.u64(0..3_000))).await;
            let next = self.cell.start(&format!("worker {number}"), &host.disks);
            self.cell.follow(&next);
            host.worker.replace(Rc::new(next));
        }
    }

    /// Owners stand still, lose the metadata store or their sessions, and come back to find another in their place.
    async fn usurp(&self) {
        if !self.troubles.takeovers {
            return;
        }
        let cell = &self.cell;
        let mut random = cell.world.random("takeovers");
        for _ in 0..4 {
            cell.world.wait(Duration::from_millis(random.u64(1_000..6_000))).await;
            let process = self.worker(&mut random).process.clone();
            let away = Duration::from_millis(random.u64(500..14_000));
            match random.u8(0..3) {
                0 => {
                    process.pause();
                    cell.world.wait(away).await;
                    process.resume();
                }
                1 => {
                    process.cut_off();
                    cell.world.wait(away).await;
                    process.reconnect();
                }
                _ => cell.metadata.end_sessions(&process),
            }
        }
    }

    /// Topics are deleted and made again, which operators notice after a while, of each shard by itself.
    async fn rebind(&self) {
        if !self.troubles.rebindings {
            return;
        }
        let cell = &self.cell;
        let mut random = cell.world.random("rebindings");
        for _ in 0..4 {
            cell.world.wait(Duration::from_millis(random.u64(1_000..8_000))).await;
            let rebind = cell.recreate(random.usize(..cell.destinations.len()));
            for shard in 0..cell.shards.len() {
                cell.world.wait(Duration::from_millis(random.u64(0..1_500))).await;
                cell.shards[shard].log.append(&[cell.control(shard, rebind.clone())]);
            }
        }
    }

    fn make_peace(&self) {
        self.cell.world.event(format_args!("peace"));
        self.cell.metadata.set_faults(MetadataFaults::default());
        for book in &self.cell.shards {
            book.log.set_faults(LogFaults::default());
        }
        for destination in 0..self.cell.destinations.len() {
            self.cell.misbehave(destination, |behavior| {
                *behavior = Behavior { paces: behavior.paces, ..Behavior::default() };
            });
        }
    }
}

#[test]
fn one_seed_is_one_run() {
    let (first, second) = (run(1, |_| Troubles::all()), run(1, |_| Troubles::all()));
    for (line, (one, other)) in first.events.iter().zip(&second.events).enumerate() {
        assert_eq!(one, other, "line {line}");
    }
    assert_eq!(first.events_digest, second.events_digest);
    assert_eq!(first.stores, second.stores);
    assert_eq!(first.account, second.account);
    let other = run(2, |_| Troubles::all());
    assert_ne!(first.events_digest, other.events_digest);
    assert_ne!(first.stores, other.stores);
}

#[test]
fn every_account_can_be_settled() {
    for seed in 100..140 {
        let run = run(seed, Troubles::of);
        assert!(run.account.accepted > 100, "seed {seed}: {:?}", run.account);
    }
}
