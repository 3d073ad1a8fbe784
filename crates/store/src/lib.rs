//! The shard's ordered key-value store on RocksDB.
//!
//! The core asks for a [`Store`](shard::store::Store): point reads, scans, and one atomic, durable commit a run. This crate
//! gives it one RocksDB per shard, tuned for what a delayed message does to it (written once, touched twice, gone soon or kept
//! for years), and adds what only a real disk needs: a folder that says whose it is ([`format_file`]), memory shared and
//! bounded across the shards of a process ([`StoreResources`]), and a close after which the folder can be opened again at
//! once, whoever still holds a reader.
//!
//! Only this crate and `embedded` reach RocksDB ([`database`] and [`gate`] are what they share), so that the rest of the workspace builds and tests in seconds.

pub mod database;
mod end_filter;
mod engine;
pub mod format_file;
pub mod gate;
mod reader;
mod resources;
mod rocks;
mod stats;
mod tuning;

pub use database::OpenError;
pub use reader::RocksReader;
pub use resources::{ResourceOptions, ResourcesError, StoreResources};
pub use rocks::{RocksStore, StoreOptions};
pub use stats::StoreStats;
