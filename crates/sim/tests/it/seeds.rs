//! Runs of the whole simulator.

use std::io::Write as _;
use std::sync::Mutex;

use sim::campaign::{campaign, play};
use sim::run::run_as;
use sim::swarm::{Swarm, Trouble};

/// Seeds that every build plays.
const FIXED: u64 = 300;
/// Seeds that once failed.
const FOUND: [u64; 6] = [
    // A log lost its head in the microsecond in which a worker had applied the last record of it.
    3_857_764_006_117_640_173,
    // An owner asked a log that refused at once as fast as it could.
    1_000_816,
    1_004_757,
    1_005_216,
    1_007_852,
    1_009_835,
];
/// Seeds that nobody has played before.
const FRESH: u64 = 200;

/// Threads of their own play seeds here; two campaigns at once would only be in each other's way.
static TURN: Mutex<()> = Mutex::new(());

fn holds(from: u64, count: u64) {
    let _turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let mut failures = Vec::new();
    campaign(
        from,
        count,
        || {},
        |seed, result| {
            if let Err(failure) = result {
                failures.push(format!(
                    "seed {seed} breaks {}: {}\n{}\nagain: dev/sim --seed {seed} --verbose",
                    failure.invariant, failure.detail, failure.events
                ));
            }
            failures.len() < 3
        },
    );
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}

#[test]
fn one_seed_is_one_run() {
    for seed in [1, 2, 3, 5, 8, 13] {
        let (first, again) = (play(seed, false), play(seed, false));
        assert_eq!(first, again, "seed {seed}");
        assert!(first.is_ok(), "seed {seed}: {first:?}");
    }
    let digest = |seed| play(seed, false).map(|outcome| outcome.events_digest);
    assert_ne!(digest(1), digest(2));
}

#[test]
fn every_invariant_holds_in_the_fixed_seeds() {
    holds(0, FIXED);
}

#[test]
fn every_invariant_holds_in_seeds_that_once_failed() {
    FOUND.into_iter().for_each(|seed| holds(seed, 1));
}

#[test]
fn every_invariant_holds_in_seeds_that_nobody_has_played() {
    let from = fastrand::u64(1 << 32..1 << 62);
    // What the test harness does not capture: a run that is stopped from outside leaves its seeds behind.
    let _ = writeln!(std::io::stderr().lock(), "seeds {from} to {}", from + FRESH - 1);
    holds(from, FRESH);
}

/// A host whose clock says that it is right and is not: nothing can help, and the simulator must see it.
#[test]
fn a_lying_clock_breaks_an_invariant() {
    let broken = (0..20).find_map(|seed| {
        let mut swarm = Swarm::of(seed);
        swarm.troubles.clear();
        swarm.troubles.insert(Trouble::LyingClock, 5);
        run_as(seed, &swarm, false).err()
    });
    let broken = broken.expect("a canary that lives is none");
    assert_eq!(broken.invariant, "never early");
}
