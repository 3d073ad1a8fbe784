//! The runtime of Delay Shards: who owns a shard, what its owner does, and how the rest of the process talks to it.
//!
//! A worker runs on whatever single-threaded runtime it is given and takes time, randomness and tasks from
//! [`ports::env::Env`], so that the simulator can run the very same code. Decisions sit in plain structs (the pump, the
//! scheduler, the outbox, the lane book); [`task`] is the async shell that carries them between ports.
//!
//! Start at [`task::shard`], which makes a shard out of its ports, and at [`handle::ShardHandle`], which is the way to it.

pub mod budget;
pub mod config;
mod fence;
pub mod handle;
mod lanes;
pub mod lifecycle;
pub mod metrics;
mod outbox;
mod pump;
mod quota;
pub mod report;
pub mod sessions;
mod successor;
pub mod task;
mod unsettled;
mod verdicts;
