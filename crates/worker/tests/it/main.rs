//! The whole worker on virtual time: what it does when clocks step, destinations misbehave, processes die and owners change.

mod crash;
mod drain;
mod early;
mod isolation;
mod log;
mod ownership;
mod paths;
mod permits;
mod quiet;
mod rebinding;
mod store;
