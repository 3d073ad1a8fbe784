//! Where a run happens: hosts with their disks and workers, which clients reach and troubles befall.

use std::cell::RefCell;
use std::rc::Rc;

use fastrand::Rng;
use worker::lifecycle::ShardLifecycle;

use crate::cell::{Cell, Worker};
use crate::story::Harmed;
use crate::swarm::Swarm;
use crate::world::disk::WorldDisk;

/// A machine: its disks stay, its worker comes and goes.
pub struct Host {
    /// What it is called.
    pub name: String,
    /// A disk for each shard. Another set takes its place when a disk is lost.
    pub disks: RefCell<Vec<WorldDisk>>,
    /// The worker that runs there now, or has died.
    pub worker: RefCell<Rc<Worker>>,
}

/// A shard's disk on a host.
pub struct HostDisk {
    /// Which host.
    pub host: usize,
    /// Which shard.
    pub shard: usize,
    /// The disk.
    pub disk: WorldDisk,
}

/// A cell with its hosts.
pub struct Scene<'a> {
    /// Everything outside of the hosts.
    pub cell: &'a Cell,
    /// What the seed decided.
    pub swarm: &'a Swarm,
    /// The hosts.
    pub hosts: Vec<Host>,
    /// Every disk there ever was.
    pub disks: RefCell<Vec<HostDisk>>,
    /// The log that was harmed.
    pub harmed: RefCell<Option<Harmed>>,
}

impl<'a> Scene<'a> {
    /// A cell in which every host has just started a worker.
    pub fn new(cell: &'a Cell, swarm: &'a Swarm) -> Scene<'a> {
        let all_disks = RefCell::default();
        let host = |number| {
            let name = char::from(b'a' + u8::try_from(number).unwrap_or(25)).to_string();
            let disks = new_disks(cell, number, &name, &all_disks);
            let worker = start_worker(cell, &name, &disks);
            Host { name, disks: RefCell::new(disks), worker: RefCell::new(worker) }
        };
        let hosts = (0..swarm.hosts).map(host).collect();
        Scene { cell, swarm, hosts, disks: all_disks, harmed: RefCell::default() }
    }

    /// Starts a worker in place of one that died.
    pub fn restart(&self, host: &Host) {
        let next = start_worker(self.cell, &host.name, &host.disks.borrow());
        host.worker.replace(next);
    }

    /// The host's disks are lost with what was on them.
    pub fn lose_disks(&self, number: usize) {
        let host = &self.hosts[number];
        host.disks.replace(new_disks(self.cell, number, &host.name, &self.disks));
    }

    /// Where a shard is on a host.
    pub fn lifecycle(&self, host: usize, shard: usize) -> ShardLifecycle {
        self.hosts[host].worker.borrow().lifecycle(shard)
    }

    /// How many records of a shard's log each disk there ever was holds, or its worker was given.
    pub fn held(&self, shard: usize) -> Vec<u64> {
        let log = &self.cell.shards[shard].log;
        let held_on = |disk: &HostDisk| {
            let applied = disk.disk.commits().last().map_or(0, |commit| commit.applied);
            let given = log.given(self.hosts[disk.host].worker.borrow().process.id());
            if disk.shard == shard { applied.max(given) } else { 0 }
        };
        self.disks.borrow().iter().map(held_on).collect()
    }

    /// The host, and its worker, that a load balancer would send a shard's caller to: the one that is active, where there is one.
    pub fn worker_for(&self, shard: usize, random: &mut Rng) -> (usize, Rc<Worker>) {
        let drawn = random.usize(..self.hosts.len());
        let active =
            (0..self.hosts.len()).find(|host| self.lifecycle(*host, shard) == ShardLifecycle::ActiveForCommands);
        let host = active.unwrap_or(drawn);
        (host, self.hosts[host].worker.borrow().clone())
    }
}

fn new_disks(cell: &Cell, host: usize, name: &str, all: &RefCell<Vec<HostDisk>>) -> Vec<WorldDisk> {
    let disks = cell.disks(name);
    let of_host = |(shard, disk): (usize, &WorldDisk)| HostDisk { host, shard, disk: disk.clone() };
    all.borrow_mut().extend(disks.iter().enumerate().map(of_host));
    disks
}

fn start_worker(cell: &Cell, name: &str, disks: &[WorldDisk]) -> Rc<Worker> {
    let worker = cell.start(&format!("worker {name}"), disks);
    cell.follow(&worker);
    Rc::new(worker)
}
