//! The deterministic core of a Delay Shard.
//!
//! A shard is a function of its log: [`commit`] takes records in log order and turns a run of them into one
//! atomic write, and the same log gives the same state whatever the batching, the restarts and the owners between. Nothing
//! here reads a clock, draws a random number, opens a file or waits; time is an argument and effects are data.

pub mod memory;
pub mod state;
pub mod store;
