//! The tests of the deterministic core, against the model of `testkit` and against stores that fail.

mod agreement;
mod attempts;
mod claims;
mod commands;
mod controls;
mod desk;
mod extremes;
mod fences;
mod lifetimes;
mod lists;
mod positions;
mod replay;
mod scheduling;
mod story;
