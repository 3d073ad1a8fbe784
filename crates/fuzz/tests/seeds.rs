//! Plays every committed seed, and random changes of them, through its target.
//!
//! `UPDATE_SEEDS=1` writes the seeds that are made from the project's own vectors and logs. Whatever else lies in a target's
//! folder was an input that once did harm; it stays.
#![allow(clippy::unwrap_used, reason = "a test that cannot read its files has failed")]

mod make;

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use fuzz::{TARGETS, Target};

/// A folder stays small enough to be looked at.
const SEEDS_MAX: usize = 40;
const SEED_BYTES_MAX: usize = 4_096;

fn folder(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/fuzz").join(target)
}

/// The seeds of a target, ascending by file name.
fn committed(target: &str) -> Vec<(String, Vec<u8>)> {
    let mut paths: Vec<_> = std::fs::read_dir(folder(target)).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let name = |path: &Path| path.file_name().unwrap().to_string_lossy().into_owned();
    paths.iter().map(|path| (name(path), std::fs::read(path).unwrap())).collect()
}

/// Plays an input, and names it when its target panics.
fn play(target: Target, input: &[u8], what: &str) {
    if let Err(reason) = catch_unwind(AssertUnwindSafe(|| (target.run)(input))) {
        let reason = reason.downcast_ref::<String>().map_or("see above", String::as_str);
        panic!("target {}, {what}: {reason}; the input in hex is {}", target.name, hex::encode(input));
    }
}

#[test]
fn the_seeds_are_those_that_are_made() {
    // Asked once, by the one test that may write.
    #[allow(clippy::disallowed_methods, reason = "a test has no configuration but its environment")]
    let update = std::env::var("UPDATE_SEEDS").is_ok_and(|update| update == "1");
    let made = make::seeds();
    assert_eq!(made.keys().copied().collect::<Vec<_>>(), TARGETS.map(|target| target.name));
    for (target, seeds) in made {
        let names: BTreeSet<_> = seeds.iter().map(|(name, _)| name).collect();
        assert_eq!(names.len(), seeds.len(), "{target}: every seed has a name of its own");
        for (name, seed) in &seeds {
            let path = folder(target).join(name);
            if update {
                std::fs::create_dir_all(folder(target)).unwrap();
                std::fs::write(&path, seed).unwrap();
            }
            let kept = std::fs::read(&path).unwrap_or_else(|error| panic!("{target}/{name}: {error}"));
            assert!(kept == *seed, "{target}/{name} differs: if the change is meant, run with UPDATE_SEEDS=1");
        }
        let kept = committed(target);
        assert!(kept.len() <= SEEDS_MAX, "{target} has {} seeds", kept.len());
        for (name, seed) in kept {
            assert!(seed.len() <= SEED_BYTES_MAX, "{target}/{name} has {} bytes", seed.len());
        }
    }
}

#[test]
fn every_seed_is_taken() {
    for target in TARGETS {
        for (name, seed) in committed(target.name) {
            play(target, &seed, &format!("seed {name}"));
            // Everything that breaks off in the middle.
            let step = if target.name == "log" { 40 } else { 1 };
            for length in (0..seed.len().min(600)).step_by(step) {
                play(target, &seed[..length], &format!("the first {length} bytes of seed {name}"));
            }
        }
    }
}

#[test]
fn every_change_of_a_seed_is_taken() {
    for target in TARGETS {
        let seeds: Vec<Vec<u8>> = committed(target.name).into_iter().map(|(_, seed)| seed).collect();
        // A log is a thousand times the work of a value.
        let rounds = if target.name == "log" { 1_000 } else { 15_000 };
        for round in 0..rounds {
            let mut chance = fastrand::Rng::with_seed(round);
            let input = changed(&seeds, &mut chance);
            play(target, &input, &format!("round {round}"));
        }
    }
}

/// A seed with a few changes.
fn changed(seeds: &[Vec<u8>], chance: &mut fastrand::Rng) -> Vec<u8> {
    let mut input = seeds[chance.usize(..seeds.len())].clone();
    for _ in 0..chance.usize(1..5) {
        let at = chance.usize(..=input.len());
        let length = chance.usize(..=(input.len() - at).min(32));
        match chance.u8(..8) {
            0 if at < input.len() => input[at] ^= 1 << chance.u8(..8),
            1 if at < input.len() => input[at] = chance.u8(..),
            2 => input[at..at + length].fill(*chance.choice(&[0, 1, 0x7f, 0x80, 0xff]).unwrap()),
            3 => drop(input.drain(at..at + length)),
            4 => {
                let again = input[at..at + length].to_vec();
                input.splice(at..at, again);
            }
            5 => {
                let new: Vec<u8> = (0..chance.usize(..9)).map(|_| chance.u8(..)).collect();
                input.splice(at..at, new);
            }
            6 => {
                let other = &seeds[chance.usize(..seeds.len())];
                let from = chance.usize(..=other.len());
                input.truncate(at);
                input.extend_from_slice(&other[from..]);
            }
            _ => input.truncate(at),
        }
    }
    input
}
