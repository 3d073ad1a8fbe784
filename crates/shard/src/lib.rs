//! The deterministic core of a Delay Shard.
//!
//! A shard is a function of its log: [`commit::Shard::commit`] takes records in log order and turns a run of them into one
//! atomic write, and the same log gives the same state whatever the batching, the restarts and the owners between. Nothing
//! here reads a clock, draws a random number, opens a file or waits; time is an argument and effects are data.
//!
//! Read in this order: [`machine`] decides one record, [`state`] is what it decides on, [`commit`] makes a run durable,
//! [`effect`] is what follows, [`schedule`] turns due work into admissions, [`query`] reads for everyone else.

pub mod commit;
pub mod effect;
pub mod limits;
pub mod machine;
pub mod memory;
pub mod planted;
pub mod query;
pub mod schedule;
pub mod state;
pub mod store;
