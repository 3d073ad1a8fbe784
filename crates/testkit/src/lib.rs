//! What every implementation must pass, kept apart from any of them.

pub mod log;
pub mod model;
pub mod port_suites;
pub mod store_suite;
pub mod vectors;
