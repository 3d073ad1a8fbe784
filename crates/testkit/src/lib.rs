//! What every implementation must pass, kept apart from any of them.

pub mod store_suite;
pub mod vectors;
