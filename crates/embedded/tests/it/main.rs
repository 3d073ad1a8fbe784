//! Tests of the engine from outside, on real folders.

mod attempts;
mod common;
mod concurrency;
mod crash;
mod log;
mod metadata;
mod model;
mod opening;
mod ports;
mod topics;
mod trim;
