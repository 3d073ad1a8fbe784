//! The whole worker on virtual time: what it does when clocks step, destinations misbehave, processes die and owners change.

mod account;
mod cell;
mod chaos;
mod crash;
mod early;
mod isolation;
mod quiet;
