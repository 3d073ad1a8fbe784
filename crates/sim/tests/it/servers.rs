//! The world's servers keep every promise of the ports, at whatever pace and in whatever order: what is tested on them counts.

use std::cell::Cell;
use std::num::NonZeroU32;
use std::time::Duration;

use protocol::resource::Resource;
use sim::world::broker::{Behavior, Broker};
use sim::world::log::LogServer;
use sim::world::metadata::{MetadataServer, SessionTimes};
use sim::world::{Delay, Paces, Process, World, WorldOptions};
use testkit::log::LogWriter;
use testkit::port_suites::destination::Subject;
use testkit::port_suites::{destination, log, metadata};

const SEEDS: std::ops::Range<u64> = 0..20;

/// Paces from at once to a while, by seed.
fn paces(seed: u64) -> Paces {
    Paces { there: Delay::between(0, seed), back: Delay::between(0, seed) }
}

fn in_worlds(run: impl AsyncFn(&World, &Process, u64)) {
    for seed in SEEDS {
        let world = World::new(WorldOptions::new(seed));
        let process = world.process("client");
        world.run(run(&world, &process, seed));
    }
}

#[test]
fn the_log_keeps_its_promises() {
    in_worlds(async |world, process, seed| {
        let shard = LogWriter::new(0, NonZeroU32::MIN).shard();
        let make = async || {
            let server = LogServer::new(world, shard, [0x10; 16]);
            server.set_paces(paces(seed));
            server.set_keeps_everything(seed % 2 == 0);
            server.client(process)
        };
        log::run(shard, make).await;
    });
}

#[test]
fn the_metadata_store_keeps_its_promises() {
    let times = SessionTimes { timeout: Duration::from_secs(10), guard: Duration::from_secs(7) };
    in_worlds(async |world, process, seed| {
        let make = async || {
            let server = MetadataServer::new(world, times);
            server.set_paces(paces(seed));
            server.client(process)
        };
        metadata::run(make).await;
    });
}

#[test]
fn destinations_keep_their_promises() {
    in_worlds(async |world, process, seed| {
        let topics = Cell::new(0);
        let make = async || {
            topics.set(topics.get() + 1);
            let broker = Broker::new(world);
            broker.set_default(Behavior { paces: paces(seed), ..Behavior::default() });
            let destination = broker.client(process);
            let records = move || broker.delivered().into_iter().map(|delivered| delivered.record).collect();
            Subject {
                destination,
                resource: Resource::Embedded { topic: [topics.get(); 16] },
                records: Box::new(records),
            }
        };
        destination::run(make).await;
    });
}
