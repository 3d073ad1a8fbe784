//! What goes wrong in a run, as its swarm says: one loop for each kind of trouble, each with randomness of its own.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use fastrand::Rng;
use futures_util::future::join_all;
use protocol::code::StableCode;
use protocol::mutation_v2::Disposition;

use crate::cell::Worker;
use crate::scene::{Host, Scene};
use crate::story::{Harm, Harmed};
use crate::swarm::Trouble;
use crate::world::broker::{Answering, Behavior, Evidence, Opening};
use crate::world::log::LogFaults;
use crate::world::metadata::MetadataFaults;
use crate::world::{Delay, Paces};

/// What a worker allows its clock is 500.
const DRIFT_PPM_MAX: i32 = 400;

type Loop<'s> = Pin<Box<dyn Future<Output = ()> + 's>>;

impl Scene<'_> {
    /// Every trouble of the swarm, for its span.
    pub async fn rage(&self) {
        let loops: Vec<Loop<'_>> =
            self.swarm.troubles.iter().map(|(trouble, strength)| self.trouble(*trouble, *strength)).collect();
        tokio::select! {
            biased;
            () = self.cell.world.wait(self.swarm.span) => {}
            _ = join_all(loops) => {}
        }
    }

    fn trouble(&self, trouble: Trouble, strength: u8) -> Loop<'_> {
        let random = self.cell.world.random(&format!("{trouble:?}"));
        match trouble {
            Trouble::LostAppends | Trouble::LateAppends => Box::pin(self.spoil_appends(trouble, strength, random)),
            Trouble::SlowLog => Box::pin(self.slow_log(strength, random)),
            Trouble::LogOutage => Box::pin(self.log_outages(strength, random)),
            Trouble::Metadata | Trouble::Watches => Box::pin(self.spoil_metadata(trouble, strength)),
            Trouble::Partitions | Trouble::Sessions | Trouble::Pauses => {
                Box::pin(self.isolate_workers(trouble, strength, random))
            }
            Trouble::Crashes => Box::pin(self.crash(strength, random)),
            // Has its effect at crashes.
            Trouble::LostDisks => Box::pin(std::future::ready(())),
            Trouble::Commits => Box::pin(self.spoil_commits(strength)),
            Trouble::Destinations | Trouble::Openings | Trouble::Evidence | Trouble::SlowDestinations => {
                Box::pin(self.spoil_destinations(trouble, strength, random))
            }
            Trouble::Recreations => Box::pin(self.recreate(strength, random)),
            Trouble::ClockSteps => Box::pin(self.set_clocks(strength, random)),
            Trouble::ClockSkew => Box::pin(self.skew_clocks(strength, random)),
            Trouble::HarmedLog => Box::pin(self.harm_log(random)),
            Trouble::LyingClock => Box::pin(self.lie(strength)),
        }
    }

    /// A while that is shorter the stronger the trouble is.
    async fn pause(&self, strength: u8, random: &mut Rng) {
        let ms_max = 12_000 / u64::from(strength);
        self.cell.world.wait(Duration::from_millis(random.u64(ms_max / 4..=ms_max))).await;
    }

    fn host(&self, random: &mut Rng) -> &Host {
        &self.hosts[random.usize(..self.hosts.len())]
    }

    fn worker(&self, random: &mut Rng) -> Rc<Worker> {
        self.host(random).worker.borrow().clone()
    }

    /// Where trouble is with destinations only, the first is left alone.
    fn sick_destination(&self, random: &mut Rng) -> usize {
        let first = usize::from(self.swarm.is_about_destinations());
        random.usize(first..self.cell.destinations.len())
    }

    async fn spoil_appends(&self, trouble: Trouble, strength: u8, mut random: Rng) {
        loop {
            let percent = 2 * strength;
            for book in &self.cell.shards {
                let mut faults = book.log.faults();
                if trouble == Trouble::LostAppends {
                    faults.not_appended_percent = random.u8(0..=percent);
                    faults.unknown_percent = random.u8(0..=percent);
                } else {
                    faults.late_percent = random.u8(0..=percent);
                    faults.duplicated_percent = random.u8(0..=percent);
                }
                book.log.set_faults(faults);
            }
            self.pause(strength, &mut random).await;
        }
    }

    async fn slow_log(&self, strength: u8, mut random: Rng) {
        loop {
            let ms_max = random.u64(0..=60 * u64::from(strength));
            for book in &self.cell.shards {
                book.log.set_paces(Paces { there: Delay::between(0, ms_max), back: Delay::between(0, ms_max) });
            }
            self.pause(strength, &mut random).await;
        }
    }

    async fn log_outages(&self, strength: u8, mut random: Rng) {
        loop {
            self.pause(strength, &mut random).await;
            let book = &self.cell.shards[random.usize(..self.cell.shards.len())];
            book.log.set_unavailable(true);
            self.cell.world.wait(Duration::from_millis(random.u64(0..=3_000))).await;
            book.log.set_unavailable(false);
        }
    }

    async fn spoil_metadata(&self, trouble: Trouble, strength: u8) {
        let mut faults = self.cell.metadata.faults();
        if trouble == Trouble::Metadata {
            faults.unavailable_percent = 2 * strength;
            faults.unknown_percent = 2 * strength;
        } else {
            faults.watch_twice_percent = 5 * strength;
            faults.watch_delay = Delay::between(0, 300 * u64::from(strength));
        }
        self.cell.metadata.set_faults(faults);
    }

    async fn isolate_workers(&self, trouble: Trouble, strength: u8, mut random: Rng) {
        loop {
            self.pause(strength, &mut random).await;
            let process = self.worker(&mut random).process.clone();
            let away = Duration::from_millis(random.u64(200..14_000));
            match trouble {
                Trouble::Pauses => {
                    process.pause_at_step(process.steps() + random.u64(1..200));
                    self.cell.world.wait(away).await;
                    process.resume();
                }
                Trouble::Partitions => {
                    process.cut_off();
                    self.cell.world.wait(away).await;
                    process.reconnect();
                }
                _ => {
                    self.cell.metadata.end_sessions(&process);
                    self.cell.metadata.resync_watches();
                }
            }
        }
    }

    /// Workers die at some step of theirs and are started again.
    async fn crash(&self, strength: u8, mut random: Rng) {
        loop {
            self.pause(strength, &mut random).await;
            let number = random.usize(..self.hosts.len());
            let host = &self.hosts[number];
            let victim = host.worker.borrow().clone();
            victim.process.resume();
            victim.process.kill_at_step(victim.process.steps() + random.u64(1..400));
            victim.process.dead().await;
            self.cell.world.wait(Duration::from_millis(random.u64(0..3_000))).await;
            let is_disk_lost = self.swarm.strength(Trouble::LostDisks).is_some_and(|share| random.u8(0..10) < share);
            if is_disk_lost && self.may_lose_disks() {
                self.lose_disks(number);
            }
            self.restart(host);
        }
    }

    /// What a log still holds from its beginning can be applied again from the beginning.
    fn may_lose_disks(&self) -> bool {
        self.cell.shards.iter().all(|book| book.log.start() == 0)
    }

    async fn spoil_commits(&self, strength: u8) {
        for host in &self.hosts {
            for disk in host.disks.borrow().iter() {
                disk.set_faults(strength.div_ceil(4));
            }
        }
    }

    async fn spoil_destinations(&self, trouble: Trouble, strength: u8, mut random: Rng) {
        loop {
            let destination = self.sick_destination(&mut random);
            let place = self.cell.place(destination);
            let mut behavior = self.cell.broker.behavior(place);
            match trouble {
                Trouble::Destinations => behavior.answering = answering(&mut random),
                Trouble::Openings => {
                    let openings =
                        [Opening::Opens, Opening::Fails(StableCode::ResourceIncarnationMismatch), Opening::Hangs];
                    behavior.opening = openings[random.usize(..openings.len())];
                    if random.bool() {
                        self.cell.broker.lose_sessions(place);
                    }
                }
                Trouble::Evidence => {
                    let evidences =
                        [Evidence::Exact, Evidence::OfPresence, Evidence::None, Evidence::Unavailable, Evidence::Hangs];
                    behavior.evidence = evidences[random.usize(..evidences.len())];
                }
                _ => {
                    let ms_max = random.u64(0..=5_000);
                    behavior.paces = Paces { there: Delay::between(0, ms_max / 4), back: Delay::between(0, ms_max) };
                    behavior.remark = random.bool().then_some(StableCode::AdmissionCapacityGated);
                }
            }
            self.cell.broker.set(place, behavior);
            self.pause(strength, &mut random).await;
        }
    }

    /// Topics are deleted and made again, which operators notice after a while, of each shard by itself.
    async fn recreate(&self, strength: u8, mut random: Rng) {
        loop {
            self.pause(strength.min(5), &mut random).await;
            let destination = self.sick_destination(&mut random);
            let behavior = self.cell.broker.behavior(self.cell.place(destination));
            let rebind = self.cell.recreate(destination);
            self.cell.broker.set(self.cell.place(destination), behavior);
            for shard in 0..self.cell.shards.len() {
                self.cell.world.wait(Duration::from_millis(random.u64(0..1_500))).await;
                self.cell.shards[shard].log.append(&[self.cell.control(shard, rebind.clone())]);
            }
        }
    }

    async fn set_clocks(&self, strength: u8, mut random: Rng) {
        loop {
            self.pause(strength, &mut random).await;
            let host = self.worker(&mut random).process.host().clone();
            host.step(random.i64(-5_000_000..=5_000_000));
            host.lose_sync();
            self.cell.world.event(format_args!("a host's clock is set"));
            let (pause, offset_us) = (Duration::from_millis(random.u64(0..1_500)), random.i64(-800..=800));
            // Also when the trouble is over meanwhile: a clock that is wrong and stays so is a lie, against which nothing helps.
            self.cell.world.spawn("synchronise", async move {
                tokio::time::sleep_until(tokio::time::Instant::now() + pause).await;
                host.synchronise(offset_us, Duration::from_millis(1));
            });
            self.cell.world.wait(pause).await;
        }
    }

    /// A clock that differs says by how much it may, and so does one that drifts.
    async fn skew_clocks(&self, strength: u8, mut random: Rng) {
        loop {
            for host in &self.hosts {
                let bound_us = i64::from(strength) * 9_000;
                let clock = host.worker.borrow().process.host().clone();
                let bound = Duration::from_micros(bound_us.unsigned_abs());
                clock.set_bound_growth_ppm(DRIFT_PPM_MAX.unsigned_abs());
                clock.set_drift_ppm(random.i32(-DRIFT_PPM_MAX..=DRIFT_PPM_MAX));
                clock.synchronise(random.i64(-bound_us..=bound_us), bound);
            }
            self.pause(strength, &mut random).await;
        }
    }

    /// A clock that is ahead and calls itself exact, from a time on at which it is trusted.
    async fn lie(&self, strength: u8) {
        let ahead_us = 100_000 * i64::from(strength);
        for host in &self.hosts {
            host.worker.borrow().process.host().synchronise(ahead_us, Duration::from_millis(1));
        }
    }

    /// Once, after a while.
    async fn harm_log(&self, mut random: Rng) {
        let at = self.swarm.span.mul_f64(0.2 + 0.5 * random.f64());
        self.cell.world.wait(at).await;
        let shard = random.usize(..self.cell.shards.len());
        let log = &self.cell.shards[shard].log;
        self.cell.broker.tolerate(self.cell.shards[shard].identity.shard);
        let end = log.archive().len() as u64;
        let back = random.u64(1..=8).min(end.saturating_sub(1));
        let held = self.held(shard);
        let harm = match random.u8(0..4) {
            0 => {
                let offset = end + random.u64(0..10);
                log.skip(offset);
                Harm::Skips(offset)
            }
            1 => {
                log.lose_from(end - back);
                Harm::LostTail(end - back)
            }
            2 => {
                log.lose_before(end);
                Harm::LostHead(end)
            }
            _ => {
                log.recreate();
                Harm::Recreated
            }
        };
        self.harmed.replace(Some(Harmed { shard, harm, held }));
    }

    /// Everything works from here on, and every host has a worker.
    pub fn make_peace(&self) {
        let cell = self.cell;
        cell.world.event(format_args!("peace"));
        cell.metadata.set_faults(MetadataFaults::default());
        for book in &cell.shards {
            book.log.set_faults(LogFaults::default());
            book.log.set_paces(Paces::fixed(2, 1));
            book.log.set_unavailable(false);
        }
        for destination in 0..cell.destinations.len() {
            cell.misbehave(destination, |behavior| *behavior = Behavior::default());
        }
        // An operator sees to what was left half way.
        for rebind in cell.rebinds() {
            for (shard, book) in cell.shards.iter().enumerate() {
                book.log.append(&[cell.control(shard, rebind.clone())]);
            }
        }
        for host in &self.hosts {
            for disk in host.disks.borrow().iter() {
                disk.set_faults(0);
            }
            let worker = host.worker.borrow().clone();
            worker.process.resume();
            worker.process.reconnect();
            worker.process.forget_stops();
            worker.process.host().synchronise(0, Duration::from_millis(1));
            if worker.process.is_dead() {
                self.restart(host);
            }
        }
    }
}

fn answering(random: &mut Rng) -> Answering {
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
    answerings[random.usize(..answerings.len())]
}
