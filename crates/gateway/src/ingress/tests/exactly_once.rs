//! Every record is taken once: over crashes at every step, rebalances, zombies, readings from the beginning, and outages of any
//! length.

use std::collections::BTreeMap;
use std::time::Duration;

use protocol::mutation_v2::Limits;
use shard::state::generation::MessageState;
use sim::world::log::LogFaults;
use sim::world::metadata::MetadataFaults;
use sim::world::{Delay, Paces, WorldOptions};
use testkit::log::default_limits;

use super::{DAY_MS, RECEIPTS, create, progress, refused, settled, taken};
use crate::tests::source::{Faults, record};
use crate::tests::world::{Cell, Server};

const RECORDS: usize = 12;

/// Records that are due far behind any test, so that all of them are still there at its end. Every fifth cannot be taken.
fn produce(cell: &Cell, partitions: u32, numbers: std::ops::Range<usize>) {
    for number in numbers {
        let (value, partition) = (number.to_string(), u32::try_from(number).expect("small") % partitions);
        let delay = if number % 5 == 4 { ("nereus-dealy", "400d") } else { ("nereus-delay", "400d") };
        cell.source.produce(partition, record(&value, cell.world.now_ms(), &[delay, ("n", &value)]));
    }
}

/// Everything that could be taken was, once; everything else was refused.
#[track_caller]
fn check(cell: &Cell, numbers: std::ops::Range<usize>, what: &str) {
    let (can, cannot): (Vec<usize>, Vec<usize>) = numbers.partition(|number| number % 5 != 4);
    let expected: BTreeMap<String, usize> = can.into_iter().map(|number| (number.to_string(), 1)).collect();
    assert_eq!(taken(cell), expected, "{what}");
    let expected: BTreeMap<String, String> =
        cannot.into_iter().map(|number| (number.to_string(), "INVALID_HEADER".to_owned())).collect();
    assert_eq!(refused(cell), expected, "{what}");
}

/// A life that ends at a step, the outage behind it, and how much longer the source is out of reach than the shards.
#[derive(Clone, Copy, Default)]
struct Crash {
    step: u64,
    outage: Duration,
    source_outage: Duration,
}

/// What is left when all crashes are over.
struct Aftermath {
    cell: Cell,
    /// Steps of the first life, from when there were records.
    steps: u64,
    /// How often a life found a run under way.
    under_way: usize,
    /// How many times ids of a run derived from, at most.
    times: usize,
}

/// Lives that end at a step each, and one that goes on to the end.
fn crash(seed: u64, crashes: &[Crash]) -> Aftermath {
    let outages: Duration = crashes.iter().map(|crash| crash.outage + crash.source_outage).sum();
    let options = WorldOptions { time_max: outages + Duration::from_secs(7_200), ..WorldOptions::new(seed) };
    let cell = Cell::with(options, 1, default_limits());
    let paces = Paces { there: Delay::between(0, 6), back: Delay::between(0, 6) };
    cell.logs().for_each(|log| log.set_paces(paces));
    let (mut steps, mut under_way, mut times) = (0, 0, 0);
    cell.world.run(async {
        let mut server = cell.start("server 0");
        server.active().await;
        create(&cell, &server).await;
        produce(&cell, 1, 0..RECORDS);
        for (number, crash) in crashes.iter().enumerate() {
            let began = server.process.steps();
            server.process.kill_at_step(began + crash.step);
            cell.world.wait(Duration::from_millis(400)).await;
            server.process.kill();
            cell.world.wait(crash.outage).await;
            cell.source.set_faults(Faults { open: 100, ..Faults::default() });
            server = cell.start(&format!("server {}", number + 1));
            cell.world.wait(crash.source_outage).await;
            cell.source.set_faults(Faults::default());
            let progress = progress(&cell, &server, 0).await;
            under_way += usize::from(progress.is_under_way());
            times = times.max(progress.earlier_uuid_ms.len() + 1);
        }
        let began = server.process.steps();
        cell.world.wait(Duration::from_millis(400)).await;
        steps = server.process.steps() - began;
        settled(&cell, &server, 1).await;
        // It may have been settled before, and the last life has not joined yet.
        cell.world.wait(Duration::from_secs(60)).await;
        assert_eq!(cell.source.committed(0), Some(cell.source.end(0)), "the group knows");
    });
    Aftermath { cell, steps, under_way, times }
}

fn steps(stride: usize) -> impl Iterator<Item = u64> {
    let whole = crash(1, &[]);
    check(&whole.cell, 0..RECORDS, "without a crash");
    (1..whole.steps).step_by(stride)
}

#[test]
fn a_crash_at_any_step_neither_loses_nor_doubles_a_record() {
    let mut under_way = 0;
    for step in steps(1) {
        let after = crash(1 + step, &[Crash { step, outage: Duration::from_secs(1), ..Crash::default() }]);
        check(&after.cell, 0..RECORDS, &format!("step {step}"));
        under_way += after.under_way;
    }
    assert!(under_way > 20, "crashes left runs under way: {under_way}");
}

/// Behind the identity window nothing is deduplicated any more by the command's id: the message itself is found.
#[test]
fn an_outage_longer_than_ids_are_good_for_neither_loses_nor_doubles_a_record() {
    for (days, stride) in [(1, 2), (2, 5), (6, 5)] {
        let outage = Duration::from_secs(days * 86_400 + 3_600);
        for step in steps(stride) {
            // With the source back at once, and when the shards have closed the window.
            let source_outage = Duration::from_secs(if step % 7 == 0 { 1_200 } else { 0 });
            let after = crash(1 + step, &[Crash { step, outage, source_outage }]);
            check(&after.cell, 0..RECORDS, &format!("step {step}, {days} days"));
        }
    }
}

/// Ids that were made anew are as good as the first ones: a record may have been taken under either.
#[test]
fn a_crash_behind_such_an_outage_neither_loses_nor_doubles_a_record() {
    let (mut renewed, outage) = (0, Duration::from_secs(90_000));
    for step in steps(17) {
        for then in steps(9) {
            let first = Crash { step, outage, ..Crash::default() };
            let second = Crash { step: 60 + then, outage: Duration::from_secs(1), ..Crash::default() };
            let after = crash(step * 1_000 + then, &[first, second]);
            check(&after.cell, 0..RECORDS, &format!("step {step}, then {then}"));
            renewed += usize::from(after.times > 1);
        }
    }
    assert!(renewed > 10, "runs had their ids made anew: {renewed}");
}

/// When nothing that is kept can tell any more whether a record was taken, it is neither taken nor lost: it is set aside.
#[test]
fn what_nobody_can_know_any_more_is_set_aside_with_its_code() {
    let (mut forgotten, mut found) = (0, 0);
    for step in steps(7) {
        let (outage, source_outage) = (Duration::from_secs(8 * 86_400), Duration::from_secs(1_200));
        let after = crash(1 + step, &[Crash { step, outage, source_outage }]);
        let (taken, refused) = (taken(&after.cell), refused(&after.cell));
        for number in (0..RECORDS).map(|number| number.to_string()) {
            let code = refused.get(&number).map(String::as_str);
            match (taken.get(&number), code) {
                (Some(1), None) => found += 1,
                (None, Some("RECORD_OUTCOME_FORGOTTEN")) => forgotten += 1,
                (None, Some("INVALID_HEADER")) => {}
                other => panic!("step {step}, record {number}: {other:?}"),
            }
        }
    }
    assert!(forgotten > 10 && found > 50, "{forgotten} set aside, {found} taken");
}

/// The server lives on, and the run it has begun is older than ids are good for when shards answer again.
#[test]
fn shards_that_do_not_answer_for_long_neither_lose_nor_double_a_record() {
    let hour_ms = 3_600_000;
    let limits = Limits { preparation_age_ms_max: hour_ms, command_retry_window_ms: hour_ms, ..default_limits() };
    for seed in 0..8 {
        let options = WorldOptions { time_max: Duration::from_secs(20_000), ..WorldOptions::new(seed) };
        let cell = Cell::with(options, 1, limits);
        cell.world.run(async {
            let server = cell.start("server");
            server.active().await;
            create(&cell, &server).await;
            cell.logs().for_each(|log| log.set_faults(LogFaults { not_appended_percent: 100, ..LogFaults::default() }));
            produce(&cell, 1, 0..RECORDS);
            cell.world.wait(Duration::from_secs(4_000)).await;
            cell.metadata.set_faults(MetadataFaults {
                unavailable_percent: 50,
                unknown_percent: 10,
                ..MetadataFaults::default()
            });
            cell.logs().for_each(|log| log.set_faults(LogFaults::default()));
            cell.world.wait(Duration::from_secs(120)).await;
            cell.metadata.set_faults(MetadataFaults::default());
            settled(&cell, &server, 1).await;
        });
        check(&cell, 0..RECORDS, &format!("seed {seed}"));
    }
}

/// What a seed's run is made of.
struct Chaos<'a> {
    cell: &'a Cell,
    random: fastrand::Rng,
    partitions: u32,
    produced: usize,
    servers: usize,
}

impl Chaos<'_> {
    /// One record in five is plain, has an id, cannot be taken, or is canceled or moved by a later record of its partition.
    fn produce(&mut self) {
        let number = self.produced;
        self.produced += 1;
        let (value, id) = (number.to_string(), format!("id-{number}"));
        let partition = self.random.u32(0..self.partitions);
        let put = |headers: &[(&str, &str)]| {
            self.cell.source.produce(partition, record(&value, self.cell.world.now_ms(), headers));
        };
        match number % 5 {
            0 => put(&[("nereus-delay", "400d")]),
            1 => put(&[("nereus-delay", "400d"), ("nereus-id", &id)]),
            2 => put(&[("nereus-dealy", "400d")]),
            3 => {
                put(&[("nereus-delay", "400d"), ("nereus-id", &id)]);
                put(&[("nereus-cancel", &id)]);
            }
            _ => {
                put(&[("nereus-delay", "400d"), ("nereus-id", &id)]);
                put(&[("nereus-reschedule", &id), ("nereus-delay", "500d")]);
            }
        }
    }

    fn trouble(&mut self) {
        let cell = self.cell;
        let percent = |random: &mut fastrand::Rng, max: u8| if random.bool() { random.u8(0..max) } else { 0 };
        let random = &mut self.random;
        for log in cell.logs() {
            log.set_faults(LogFaults {
                not_appended_percent: percent(random, 30),
                unknown_percent: percent(random, 30),
                ..LogFaults::default()
            });
            log.set_unavailable(random.u8(0..10) == 0);
        }
        cell.metadata.set_faults(MetadataFaults {
            unavailable_percent: percent(random, 20),
            unknown_percent: percent(random, 20),
            ..MetadataFaults::default()
        });
        cell.source.set_faults(Faults {
            open: percent(random, 30),
            breaks: percent(random, 10),
            commit: percent(random, 30),
            write: percent(random, 40),
        });
        cell.source.set_batch_max(random.usize(1..40));
    }

    fn heal(&self) {
        for log in self.cell.logs() {
            log.set_faults(LogFaults::default());
            log.set_unavailable(false);
        }
        self.cell.metadata.set_faults(MetadataFaults::default());
        self.cell.source.set_faults(Faults::default());
    }

    fn start(&mut self) -> Server {
        self.servers += 1;
        self.cell.start(&format!("server {}", self.servers))
    }

    async fn run(mut self) -> usize {
        let mut server = self.start();
        server.active().await;
        create(self.cell, &server).await;
        for _ in 0..self.random.usize(3..12) {
            self.trouble();
            for _ in 0..self.random.usize(1..8) {
                self.produce();
                self.cell.world.wait(Duration::from_millis(self.random.u64(0..60))).await;
            }
            match self.random.u8(0..10) {
                0 => self.cell.source.rebalance(),
                1 => self.cell.source.seek(Some(0)),
                2 => self.cell.source.seek(None),
                3 => self.cell.source.expel_members(),
                4 => self.cell.renew_destination(&server.gateway.records).await,
                5 | 6 => {
                    server.process.kill();
                    self.cell.world.wait(Duration::from_millis(self.random.u64(0..20_000))).await;
                    server = self.start();
                }
                7 => server = self.take_over(server).await,
                _ => {}
            }
            self.cell.world.wait(Duration::from_millis(self.random.u64(0..3_000))).await;
        }
        self.heal();
        settled(self.cell, &server, self.partitions).await;
        self.produced
    }

    /// Another server takes over while this one stands still; it goes on for a while without knowing.
    async fn take_over(&mut self, zombie: Server) -> Server {
        zombie.process.pause();
        self.cell.source.expel_members();
        let next = self.start();
        self.cell.world.wait(Duration::from_millis(self.random.u64(0..40_000))).await;
        zombie.process.resume();
        self.cell.world.wait(Duration::from_millis(self.random.u64(0..5_000))).await;
        zombie.process.kill();
        next
    }
}

fn chaos(seed: u64) {
    let options = WorldOptions { time_max: Duration::from_secs(20_000), ..WorldOptions::new(seed) };
    let partitions = 2;
    let cell = Cell::with(options, 2, default_limits());
    let random = cell.world.random("chaos");
    let produced = cell.world.run(Chaos { cell: &cell, random, partitions, produced: 0, servers: 0 }.run());
    let told = cell.told();
    assert_eq!(told.len(), produced - (0..produced).filter(|number| number % 5 == 2).count(), "seed {seed}: messages");
    let (taken, refused) = (taken(&cell), refused(&cell));
    for number in 0..produced {
        let id = format!("id-{number}");
        let with_id: Vec<_> = told.iter().filter(|told| told.view.row.business_key == id).collect();
        let number_text = number.to_string();
        match (number % 5, &with_id[..]) {
            (0, []) => assert_eq!(taken.get(&number_text), Some(&1), "seed {seed}: record {number}"),
            (2, []) => assert_eq!(refused.get(&number_text).map(String::as_str), Some("INVALID_HEADER"), "seed {seed}"),
            (1, [one]) => assert_eq!((one.view.state, one.view.row.generation), (MessageState::Scheduled, 0)),
            (3, [one]) => assert_eq!(one.view.state, MessageState::Canceled, "seed {seed}: record {number}"),
            (4, [one]) => {
                let row = &one.view.row;
                assert_eq!((one.view.state, row.generation), (MessageState::Scheduled, 1), "seed {seed}: {number}");
                let days = (row.deliver_at_ms - cell.world.now_ms()) / DAY_MS;
                assert!((490..=500).contains(&days), "seed {seed}: record {number} in {days} days");
            }
            (_, found) => panic!("seed {seed}: record {number} is there {} times", found.len()),
        }
    }
    // Nothing was refused but what is misspelt, and every record has its receipt.
    assert!(refused.values().all(|code| code == "INVALID_HEADER"), "seed {seed}: {refused:?}");
    let receipts = cell.source.written(RECEIPTS).into_iter().map(|receipt| {
        let value: serde_json::Value = serde_json::from_slice(&receipt.value.expect("a value")).expect("JSON");
        (value["source_partition"].as_u64(), value["source_offset"].as_u64())
    });
    let receipts: std::collections::BTreeSet<_> = receipts.collect();
    assert_eq!(receipts.len(), produced + produced / 5 + (0..produced).filter(|n| n % 5 == 3).count(), "seed {seed}");
}

#[test]
fn whatever_happens_every_record_is_taken_once() {
    for seed in 0..200 {
        chaos(seed);
    }
}
