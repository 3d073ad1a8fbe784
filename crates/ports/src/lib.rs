//! What a worker asks of the outside world, as traits and plain types. Nothing else crosses.
//!
//! One crate per outside system implements them and knows nothing of the worker; the simulator implements them with faults.
//! Each trait's documentation is its contract, and the conformance suites of `testkit` hold every implementation to it.

pub mod destination;
pub mod env;
pub mod log;
pub mod metadata;
pub mod source;
pub mod target;
pub mod topics;
