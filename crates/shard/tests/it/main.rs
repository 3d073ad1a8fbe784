//! The tests of the deterministic core, against the model of `testkit` and against stores that fail.

mod agreement;
