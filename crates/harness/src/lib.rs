//! Runs the release binary as a user would: in a folder of its own, on a port of its own, over HTTP, and ends only what it
//! started. Process tests, crash rounds and benchmarks stand on it.

pub mod bench;
pub mod console;
pub mod crash;
pub mod interrupt;
pub mod kafka;
pub mod process;
pub mod run_folder;
pub mod wall_clock;
