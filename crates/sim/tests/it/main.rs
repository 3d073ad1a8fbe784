//! The simulator: its servers keep the promises of the ports, one seed is one run, and every run keeps the invariants.

mod seeds;
mod servers;
