//! A simulator that makes the invariants of the architecture hard to break.
//!
//! It runs the real worker, shard, scheduler and client code on one thread and on virtual time, with a log, a metadata store,
//! destinations, disks and clocks that fail in every way their ports allow. One seed is one run, to the last letter: a failure prints
//! its seed, and `dev/sim --seed` shows it again.

pub mod account;
pub mod campaign;
pub mod cell;
pub mod invariants;
pub mod nemesis;
pub mod run;
pub mod scene;
pub mod story;
pub mod swarm;
pub mod told;
pub mod work;
pub mod world;
